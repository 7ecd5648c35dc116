//! Packages of dumps.

use crate::catalog::model::ids::{PackageId, SetId};
use crate::document::{Datetime, Hashes};

/// A package of a dump.
#[derive(Clone, Debug, Default)]
pub struct PackageRow {
    /// Its number, which is never used twice.
    pub id: PackageId,
    /// The set it belongs to.
    pub rset: SetId,
    /// Where it can be had.
    pub url: String,
    /// What its dump says of it: the same URL with another edition is another package.
    pub edition: String,
    /// What tells that the bytes at the URL are still those that are here.
    pub validator: Option<String>,
    /// Its length as listed.
    pub length: Option<u64>,
    /// Its digests as listed.
    pub hashes: Hashes,
    /// When its snapshot began.
    pub at: Option<Datetime>,
    /// Its length as found.
    pub size: Option<u64>,
    /// Whether all of it is here.
    pub whole: bool,
    /// Whether all of it that is needed is to be brought here ahead of use.
    pub wanted: bool,
    /// Whether it is of a Change Dump: then what it has of superseded versions is wanted, too.
    pub changes: bool,
    /// Whether it is not what its dump says, so that only members with a hash of their own are trusted.
    pub doubtful: bool,
    /// Whether versions were given its members.
    pub indexed: bool,
    /// How many bytes of it are here.
    pub bytes: u64,
    /// How often its bytes were begun anew: what was found of members counts for one epoch only.
    pub epoch: i64,
    /// Whether what its server has is no ZIP file, and is written as one when all of it is here: its parts are not the server's.
    pub recast: bool,
    /// Whether an archive has it: what lies in it can be had for good.
    pub archived: bool,
}

/// How much of a package is here.
#[derive(Clone, Copy, Debug)]
pub struct PackageBytes {
    /// How many bytes.
    pub bytes: u64,
    /// Whether these are all.
    pub whole: bool,
    /// Whether they are not what the dump says of the package.
    pub doubtful: bool,
}
