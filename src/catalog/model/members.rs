//! Members of packages.

use crate::catalog::model::ids::{PackageId, VersionId};
use crate::document::Hashes;

/// What is known of the content of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// Nobody has looked yet.
    Unseen,
    /// It is here, and is what is listed.
    Verified,
    /// It is not what is listed, or cannot be read.
    Damaged,
    /// It is here and whole, and nothing is listed that it could be held to.
    Intact,
}

/// Where in a package the content of a version lies.
#[derive(Clone, Debug)]
pub struct MemberRow {
    /// The version.
    pub version: VersionId,
    /// The package.
    pub package: PackageId,
    /// Where its local header begins.
    pub header: u64,
    /// Bytes in the package.
    pub compressed: u64,
    /// Bytes of the content.
    pub size: u64,
    /// The CRC-32 of the content.
    pub crc: u32,
    /// Bytes of its name.
    pub name_length: u16,
    /// Whether it is deflated; else it is stored as it is.
    pub deflated: bool,
    /// The digests that its manifest gives, where those are not the version's own.
    pub hashes: Option<Hashes>,
    /// Whether a content coding is to be undone.
    pub coded: bool,
    /// What is known of it.
    pub state: MemberState,
    /// The epoch of the package for which the state holds.
    pub epoch: i64,
}

/// What was found of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Looked {
    /// The version that has it as its content.
    pub version: VersionId,
    /// What it is.
    pub state: MemberState,
    /// The epoch of the package whose bytes were looked at.
    pub epoch: i64,
    /// The SHA-256 of the content, where nothing else holds the version to it.
    pub sha256: Option<[u8; 32]>,
}

/// A member that nobody has looked at, and what its content is held to.
#[derive(Clone, Debug)]
pub struct UnseenMember {
    /// The member.
    pub member: MemberRow,
    /// The length that is listed, as coded.
    pub length: Option<u64>,
    /// The digests that are listed.
    pub hashes: Hashes,
}

/// What came of giving a version a member as its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attached {
    /// This version of the same step, of which the same was listed, has it now.
    New(VersionId),
    /// It has it now, or had something as good.
    Yes,
    /// No such resource is in the tree.
    NotListed,
    /// What is listed of the resource is not what the manifest says.
    Other,
}

/// Sums over packages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberTotals {
    /// Versions of the current tree with a member as their content.
    pub members: u64,
    /// Those of them that are here and verified.
    pub verified: u64,
    /// Those of them that are damaged.
    pub damaged: u64,
}
