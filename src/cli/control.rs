//! The socket in the cache directory by which commands ask a daemon. The daemon answers processes of its own user and of root,
//! as the kernel reports them, whatever the permissions of the directory.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::OwnedWriteHalf;

use super::messages::{Request, Response};
use super::{Stop, mounts};
use crate::mirror::report;
use crate::printable;

pub(super) const SOCKET: &str = "control";

/// A path to the socket that is short whatever the directory's is: socket addresses hold 108 bytes.
pub(super) fn short(directory: &std::fs::File) -> String {
    format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd())
}

pub(super) async fn say(to: &mut OwnedWriteHalf, response: &Response) {
    let safe = match response {
        Response::Note { text } => Some(Response::Note { text: printable::redacted(text).into_owned() }),
        Response::Done { text } => Some(Response::Done { text: printable::redacted(text).into_owned() }),
        Response::Failed { error } => Some(Response::Failed { error: printable::redacted(error).into_owned() }),
        _ => None,
    };
    let line = serde_json::to_string(safe.as_ref().unwrap_or(response)).unwrap_or_default();
    // Whoever asked may be gone; the work is done all the same.
    let _ = to.write_all(format!("{}\n", printable::json(&line)).as_bytes()).await;
}

/// How often progress is told.
pub(super) const TICK: std::time::Duration = std::time::Duration::from_millis(100);

/// Asks the daemon of the mount at `directory`, and hands each of its answers on until the last one.
pub(super) fn ask(directory: &Path, request: &Request, mut hear: impl FnMut(&Response)) -> Result<String, Stop> {
    let status = directory.join(".resourcesync/status.json");
    let text = std::fs::read(&status).map_err(|error| Stop::failed(format_args!("{}: {error}", status.display())))?;
    let report: report::Report = serde_json::from_slice(&text)
        .map_err(|error| Stop::failed(format_args!("{}: {error}; is it of another version?", status.display())))?;
    let reach = |error: std::io::Error| {
        let cache = report.cache.display();
        Stop::failed(format_args!(
            "cannot reach the daemon through its cache {cache}: {error}; only who mounted it may"
        ))
    };
    let cache = std::fs::File::open(&report.cache).map_err(reach)?;
    let mut stream = UnixStream::connect(short(&cache)).map_err(reach)?;
    let mut line = serde_json::to_vec(request).map_err(Stop::failed)?;
    line.push(b'\n');
    stream.write_all(&line).map_err(reach)?;
    for line in BufReader::new(stream).lines() {
        let response: Response = serde_json::from_str(&line.map_err(reach)?).map_err(Stop::failed)?;
        match response {
            Response::Done { text } => return Ok(text),
            Response::Failed { error } => return Err(Stop::failed(error)),
            response => hear(&response),
        }
    }
    Err(Stop::failed("the daemon ended before it was done; its log says why"))
}

/// The mount in which a path lies, and the path below it.
pub(super) fn place(path: &Path) -> Result<(mounts::Mounted, String), Stop> {
    let absolute = path.canonicalize().map_err(|error| Stop::failed(format_args!("{}: {error}", path.display())))?;
    place_of(path, &absolute)
}

/// The mount in which a path lies, or lay: it may be gone.
pub(super) fn place_once(path: &Path) -> Result<(mounts::Mounted, String), Stop> {
    let failed = |error: std::io::Error| Stop::failed(format_args!("{}: {error}", path.display()));
    let absolute = std::path::absolute(path).map_err(failed)?;
    let known = absolute.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    let Some((above, real)) = known else { return place(path) };
    let rest = absolute.strip_prefix(above).unwrap_or(Path::new(""));
    place_of(path, &real.join(rest))
}

fn place_of(path: &Path, absolute: &Path) -> Result<(mounts::Mounted, String), Stop> {
    let mounted = mounts::containing(absolute).map_err(Stop::failed)?.ok_or_else(|| {
        Stop::failed(format_args!(
            "{} does not lie in a resourcesync mount; `resourcesync status` lists them",
            path.display()
        ))
    })?;
    let below = absolute.strip_prefix(&mounted.directory).unwrap_or(absolute).to_string_lossy().into_owned();
    Ok((mounted, below))
}
