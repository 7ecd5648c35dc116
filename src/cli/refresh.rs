//! `resourcesync refresh`: sync now.

use std::path::Path;

use super::messages::Request;
use super::{Done, control};

pub(super) fn run(directory: &Path) -> Done {
    let (mounted, _) = control::place(directory)?;
    let text = control::ask(&mounted.directory, &Request::Refresh, |_| ())?;
    println!("{}: {text}", mounted.directory.display());
    Ok(())
}
