//! `resourcesync refresh`: sync now.

use std::path::Path;

use super::messages::Request;
use super::{Done, control};

pub(super) fn run(directory: &Path, accept_deletions: bool) -> Done {
    let (mounted, _) = control::place(directory)?;
    let text = control::ask(&mounted.directory, &Request::Refresh { accept_deletions }, |_| ())?;
    println!("{}: {text}", mounted.directory.display());
    Ok(())
}
