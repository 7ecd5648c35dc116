//! How far back the history of a set reaches.

use crate::document::{Capability, Datetime};

/// A document of an archive that is in the history, or cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchivedRow {
    /// Where it is.
    pub url: String,
    /// Of what it is an archive.
    pub capability: Capability,
    /// When its snapshot, or its interval, began.
    pub begin: Option<Datetime>,
    /// Why not all of it is in the history.
    pub failure: Option<String>,
}

/// How far the history of a set reaches back, and by what.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    /// The moments at which complete lists were made that are known, ascending.
    pub snapshots: Vec<Datetime>,
    /// The first of them that the tree was made from: what happened since is followed.
    pub first: Option<Datetime>,
    /// The last of those.
    pub last: Option<Datetime>,
    /// What was not followed since: until a newer list gives their state.
    pub gaps: Vec<(Datetime, Datetime)>,
    /// What of archives was read.
    pub archived: Vec<ArchivedRow>,
}
