//! Links of resources.

use crate::catalog::model::ids::{NameId, VersionId};
use crate::document::Datetime;

/// A name of the current tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Its number.
    pub name: NameId,
    /// The version that it shows, if it is a file.
    pub version: Option<VersionId>,
    /// When it changed last, by our clock, in nanoseconds.
    pub changed: Datetime,
}

/// A link of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Related {
    /// One relation type.
    pub relation: String,
    /// The target, absolute.
    pub uri: String,
}
