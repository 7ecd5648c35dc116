//! Resources that a server serves, and what a mirror makes of them.

use super::server::Server;
use super::{Mirrored, bytes, entry_of};

/// Serves resources whose bodies are their paths, and returns their entries.
pub fn named(server: &Server, paths: &[&str]) -> String {
    paths
        .iter()
        .map(|path| {
            server.file(path, path.as_bytes());
            entry_of(&server.url(path), path.as_bytes())
        })
        .collect()
}

/// Serves so many resources, and returns their entries.
pub fn numbered(server: &Server, names: std::ops::Range<u64>) -> String {
    let resource = |number: u64| {
        let path = format!("/{number}");
        server.file(&path, bytes(number, 100));
        entry_of(&server.url(&path), &bytes(number, 100))
    };
    names.map(resource).collect()
}

/// A resource cannot be read, for this reason.
pub fn cannot_be_read(mirror: &impl Mirrored, path: &str, reason: &str) {
    let error = mirror.read(path).expect_err(path);
    assert_eq!(error.raw_os_error(), Some(5), "{path}: {error}");
    let errors = mirror.status()["errors"].to_string();
    assert!(errors.contains(reason), "{path}: {reason:?} is not in {errors}");
}

/// A numbered resource can be read.
pub fn is_usable(mirror: &impl Mirrored, number: u64) {
    assert_eq!(
        mirror.read(&number.to_string()).expect("its content"),
        bytes(number, 100),
        "{}",
        mirror.status()["errors"]
    );
}
