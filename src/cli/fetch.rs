//! `resourcesync fetch`: content into the cache ahead of use.

use std::path::PathBuf;

use super::messages::{Request, Response};
use super::{Done, Stop, control, show};

pub(super) fn run(paths: &[PathBuf], pin: bool) -> Done {
    let mut failures = 0;
    for path in paths {
        let (mounted, below) = match control::place(path) {
            Ok(found) => found,
            Err(stop) => {
                show::err(format_args!("{}: {}", show::error_word("resourcesync"), stop.message));
                failures += 1;
                continue;
            }
        };
        let bar = show::bar("{bar:30} {pos}/{len} files, {msg}, {per_sec}, {eta} left");
        let mut last = (0, 0, 0);
        control::ask(&mounted.directory, &Request::Fetch { path: below, pin }, |response| {
            if let Response::Fetched { files, bytes, failed, total } = response {
                last = (*files, *bytes, *failed);
                bar.set_length(*total);
                bar.set_position(files + failed);
                bar.set_message(show::size(*bytes));
            }
        })?;
        bar.finish_and_clear();
        let (files, bytes, failed) = last;
        let kept = if pin { ", pinned" } else { "" };
        show::out(format_args!(
            "{}: {}, {}{kept}",
            path.display(),
            show::plural(files, "file", "files"),
            show::size(bytes)
        ));
        if failed > 0 {
            show::err(format_args!(
                "{}: {} could not be had; `resourcesync status {}` says why",
                path.display(),
                show::plural(failed, "file", "files"),
                mounted.directory.display()
            ));
        }
        failures += failed;
    }
    if failures > 0 { Err(Stop::failed("not everything could be fetched")) } else { Ok(()) }
}
