//! The mount command: checks, starts the daemon, shows its progress, and passes on how it went.

use std::io::{BufRead as _, BufReader, IsTerminal as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use super::messages::{Report, Request};
use super::task::Task;
use super::{Done, Stop, control, daemon, exit, guard, mounts, show};
use crate::options::Options;

/// How a mount is asked for.
#[derive(Clone, Debug)]
pub(super) struct Mount {
    pub(super) source: String,
    pub(super) directory: PathBuf,
    pub(super) options: Vec<String>,
    pub(super) sloppy: bool,
    pub(super) foreground: bool,
    pub(super) fake: bool,
    pub(super) verbose: bool,
}

fn wrong(message: impl Into<String>) -> Stop {
    Stop::new(exit::FAILED, message)
}

fn failed(message: impl std::fmt::Display) -> Stop {
    Stop::new(exit::MOUNT_FAILED, message.to_string())
}

/// Mounts, or changes a mount.
pub(super) fn run(asked: &Mount) -> Done {
    let options = Options::parse(&asked.options, asked.sloppy).map_err(wrong)?;
    let directory = prepare(&asked.directory)?;
    if options.remount {
        return remount(asked, &directory);
    }
    check_source(&asked.source)?;
    if let Some(mounted) = mounts::at(&directory).map_err(failed)? {
        return Err(failed(mounts::taken(&mounted)));
    }
    if asked.fake {
        return Ok(());
    }
    let mount_point =
        mounts::handle(&directory).map_err(|error| failed(format_args!("{}: {error}", directory.display())))?;
    let task = Task {
        source: asked.source.clone(),
        directory,
        mount_point: Arc::new(mount_point),
        options,
        texts: asked.options.clone(),
    };
    if asked.foreground {
        return daemon::run_here(&task, |report| {
            if let Report::Ready { resources, notes, .. } = report {
                tracing::info!(resources, "ready");
                notes.iter().for_each(|note| tracing::warn!("{note}"));
            }
        });
    }
    start(asked, &task)
}

/// Runs as the daemon that [`run`] started.
pub(super) fn run_daemon(asked: &Mount) -> Done {
    // The directory is stdin.
    let mount_point = std::io::stdin().as_fd().try_clone_to_owned().map_err(failed)?;
    let null = std::fs::File::open("/dev/null").map_err(failed)?;
    rustix::stdio::dup2_stdin(&null).map_err(failed)?;
    // Whoever started us prints the error.
    daemon::run_detached(&task(asked, mount_point)?).map_err(|stop| Stop::new(stop.code, ""))
}

/// Runs as the guard that the daemon started.
pub(super) fn run_guard(asked: &Mount) -> Done {
    let (line, mount_point) = guard::line().map_err(failed)?;
    guard::run(&task(asked, mount_point)?, line)
}

fn task(asked: &Mount, mount_point: OwnedFd) -> Result<Task, Stop> {
    let options = Options::parse(&asked.options, asked.sloppy).map_err(wrong)?;
    Ok(Task {
        source: asked.source.clone(),
        directory: asked.directory.clone(),
        mount_point: Arc::new(mount_point),
        options,
        texts: asked.options.clone(),
    })
}

/// What is at a directory.
enum Place {
    Free(PathBuf),
    /// A mount whose daemon is gone.
    Dead(PathBuf),
}

/// How long a directory may take to say what it is: on a mount whose daemon hangs, it never does.
const PATIENCE: Duration = Duration::from_secs(5);

/// The directory's own path, without symbolic links; a dead mount of ours on it is taken away.
fn prepare(directory: &Path) -> Result<PathBuf, Stop> {
    let (tell, told) = std::sync::mpsc::channel();
    let path = directory.to_owned();
    std::thread::spawn(move || tell.send(look(&path)));
    let hangs = || {
        let directory = directory.display();
        failed(format_args!(
            "{directory} does not answer: a mount on it hangs; take it away first: umount -l {directory}"
        ))
    };
    match told.recv_timeout(PATIENCE).map_err(|_| hangs())?? {
        Place::Free(found) => Ok(found),
        Place::Dead(found) => {
            if mounts::at(&found).map_err(failed)?.is_none() {
                return Err(failed(format_args!(
                    "{}: a dead mount that is not ours; umount it first",
                    directory.display()
                )));
            }
            detach(&found)?;
            prepare(&found)
        }
    }
}

fn look(directory: &Path) -> Result<Place, Stop> {
    let path = std::path::absolute(directory).map_err(failed)?;
    let looked = path.canonicalize().and_then(|found| Ok((found.metadata()?.is_dir(), found)));
    let found = match looked {
        Ok((true, found)) => found,
        Ok((false, _)) => return Err(failed(format_args!("{} is not a directory", directory.display()))),
        Err(error) if is_dead(&error) => {
            return Ok(Place::Dead(match (path.parent().map(Path::canonicalize), path.file_name()) {
                (Some(Ok(parent)), Some(name)) => parent.join(name),
                _ => path,
            }));
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let directory = directory.display();
            return Err(failed(format_args!(
                "{directory}: there is no such directory; make it first: mkdir -p {directory}"
            )));
        }
        Err(error) => return Err(failed(format_args!("{}: {error}", directory.display()))),
    };
    // The kernel may still know the root of a dead mount; this file it always asks for.
    let answer = std::fs::metadata(found.join(".resourcesync/status.json"));
    Ok(if answer.is_err_and(|error| is_dead(&error)) { Place::Dead(found) } else { Place::Free(found) })
}

fn is_dead(error: &std::io::Error) -> bool {
    [rustix::io::Errno::NOTCONN, rustix::io::Errno::CONNABORTED]
        .map(|errno| errno.raw_os_error())
        .contains(&error.raw_os_error().unwrap_or(0))
}

/// Takes a dead mount of ours away.
fn detach(directory: &Path) -> Done {
    let device = mounts::device(directory).map_err(failed)?.unwrap_or_default();
    match mounts::detach(directory, &device) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            let done = Command::new("fusermount3").arg("-uz").arg("--").arg(directory).status().map_err(failed)?;
            if done.success() {
                Ok(())
            } else {
                Err(failed(format_args!("cannot detach the dead mount at {}", directory.display())))
            }
        }
        result => result
            .map_err(|error| failed(format_args!("cannot detach the dead mount at {}: {error}", directory.display()))),
    }
}

fn check_source(source: &str) -> Done {
    let url = url::Url::parse(source).map_err(|error| {
        wrong(format!("{source}: {error}; a Source is named by its URL, for example https://source.example/"))
    })?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong(format!("{source}: only http and https Sources can be mounted")));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong(
            "user and password have no place in the Source's URL, where everybody can see them; use -o credentials=FILE",
        ));
    }
    let plain = |c: char| !c.is_control() && !c.is_whitespace();
    if !source.chars().all(plain) || (source.contains(',') && !rustix::process::geteuid().is_root()) {
        return Err(wrong(format!("{source:?}: blanks and commas must be percent-encoded (%20, %2C)")));
    }
    Ok(())
}

fn remount(asked: &Mount, directory: &Path) -> Done {
    if mounts::at(directory).map_err(failed)?.is_none() {
        return Err(failed(format_args!("{} is not a resourcesync mount; nothing to remount", directory.display())));
    }
    let request = Request::Remount { options: asked.options.clone(), sloppy: true };
    let text = control::ask(directory, &request, |_| ()).map_err(|stop| failed(stop.message))?;
    if asked.verbose || std::io::stderr().is_terminal() {
        show::err(format_args!("{}: {text}", directory.display()));
    }
    Ok(())
}

/// Starts the daemon, and waits until the mount answers.
fn start(asked: &Mount, task: &Task) -> Done {
    let program = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(program);
    // The command line names the program and the directory, for people and scripts that look for it.
    command.arg0("resourcesync").arg("mount").arg("--daemon");
    for options in &asked.options {
        command.arg("-o").arg(options);
    }
    if asked.sloppy {
        command.arg("--sloppy");
    }
    command.arg("--").arg(&task.source).arg(&task.directory);
    let mount_point = task.mount_point.try_clone().map_err(failed)?;
    command.stdin(mount_point).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| Stop::new(exit::USAGE, error.to_string()))?;
    let Some(reports) = child.stdout.take() else { return Err(failed("the daemon cannot be heard")) };
    let bar = show::bar("{bar:30} {pos}/{len} documents, {msg}");
    for line in BufReader::new(reports).lines() {
        let Ok(report) = serde_json::from_str::<Report>(&line.map_err(failed)?) else { continue };
        match report {
            Report::Progress(progress) => show::progress(&bar, &progress),
            Report::Ready { complete, resources, notes } => {
                bar.finish_and_clear();
                announce(asked, task, complete, resources, &notes);
                return Ok(());
            }
            Report::Failed { code, error } => {
                bar.finish_and_clear();
                let _ = child.wait();
                return Err(Stop::new(code, error));
            }
        }
    }
    bar.finish_and_clear();
    let status = child.wait().map_err(failed)?;
    Err(failed(format_args!("the daemon ended before the mount answered ({status}); its log says why")))
}

fn announce(asked: &Mount, task: &Task, complete: bool, resources: u64, notes: &[String]) {
    let directory = task.directory.display();
    for note in notes {
        show::err(format_args!("{directory}: {note}"));
    }
    if asked.verbose || std::io::stderr().is_terminal() {
        let state = if complete { "" } else { " so far" };
        show::err(format_args!(
            "{} at {directory}: {}{state}",
            asked.source,
            show::plural(resources, "resource", "resources")
        ));
    }
}
