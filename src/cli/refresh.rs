//! `resourcesync refresh`: sync now.

use std::path::Path;

use super::messages::{Request, Response};
use super::{Done, control, show};

pub(super) fn run(directory: &Path, accept_deletions: bool) -> Done {
    let (mounted, _) = control::place(directory)?;
    let bar = show::bar("{bar:30} {pos}/{len} documents, {msg}");
    let said = control::ask(&mounted.directory, &Request::Refresh { accept_deletions }, |response| {
        if let Response::Syncing(progress) = response {
            show::progress(&bar, progress);
        }
    });
    bar.finish_and_clear();
    let text = said?;
    show::out(format_args!("{}: {text}", mounted.directory.display()));
    Ok(())
}
