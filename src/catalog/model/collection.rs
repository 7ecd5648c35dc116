//! Names of collections (core 14.5).

use data_encoding::HEXLOWER;
use sha2::Digest as _;
use sha2::Sha256;

use crate::path::{set_labels, shortened};

/// The names of collections (core 14.5).
#[derive(Debug)]
pub(in crate::catalog) struct Collection;

impl Collection {
    /// What a collection can be called by the last part of its URI: the one name, or the other where that is another's, too.
    pub(in crate::catalog) fn labels(uri: &str) -> [String; 2] {
        let label = set_labels(&[uri]).pop().unwrap_or_default();
        let digest = Sha256::digest(uri);
        let digest = HEXLOWER.encode(&digest[..4]);
        let long = shortened(&format!("{label}~{digest}")).into_owned();
        [label, long]
    }
}

/// The target of a link of a resource.
pub(in crate::catalog) fn absolute(base: &str, href: &str) -> Option<String> {
    match url::Url::parse(href.trim()) {
        Ok(uri) => Some(uri.into()),
        Err(_) => url::Url::parse(base).ok()?.join(href.trim()).ok().map(String::from),
    }
}
