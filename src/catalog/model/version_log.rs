//! A version as the log of its resource has it.

use crate::catalog::model::ids::VersionId;
use crate::catalog::model::origin::How;
use crate::document::{Datetime, Hashes};

/// Where a version can be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whence {
    /// Here.
    Cache,
    /// From the URL of its resource, which has the newest version only.
    Source(String),
    /// In the package at this URL.
    Package(String),
    /// Under a URL that is its alone.
    Memento(String),
    /// By applying patches to a version that is here.
    Patch,
}

/// A version of a resource.
#[derive(Clone, Debug)]
pub struct VersionLog {
    /// Its number.
    pub id: VersionId,
    /// When it came into force.
    pub begin: Datetime,
    /// Until when it was; none if it still is.
    pub until: Option<Datetime>,
    /// How it came, if that is known.
    pub how: Option<How>,
    /// Whether it ended because the resource went.
    pub gone: bool,
    /// The time that `stat` shows, in nanoseconds.
    pub mtime: Datetime,
    /// Bytes.
    pub size: Option<u64>,
    /// Its digests.
    pub hashes: Hashes,
    /// Where it can be had, the nearest first; nowhere, if there is none.
    pub places: Vec<Whence>,
    /// The name of its file in the directory of its resource's versions.
    pub name: String,
    /// Its place there, which another takes over that is the same version in other words.
    pub rank: i64,
    /// Where its entry says that it is described, or comes from (core 14.5): relation type and URI, as written.
    pub sources: Vec<(&'static str, String)>,
}

impl VersionLog {
    /// Whether its content is here.
    #[must_use]
    pub fn is_here(&self) -> bool {
        self.places.first() == Some(&Whence::Cache)
    }

    /// Whether it was in force at a moment.
    #[must_use]
    pub fn in_force(&self, moment: Datetime) -> bool {
        self.begin <= moment && self.until.is_none_or(|until| moment < until)
    }
}
