//! Patches: a new version of a resource made from the old one.
//!
//! A Source may tell of a change with a link to a patch in place of the whole new content. What is held here is the old
//! version's bytes, the patch, and some sign by which the new version's bytes would be known, nearly always a hash.
//!
//! Three kinds of patch are understood: JSON Patch (RFC 6902), JSON Merge Patch (RFC 7396), and XML Patch (RFC 5261,
//! with the media type and root element of RFC 7351). All three have the same gap. They say which *value* the new
//! version has, and are silent on its *bytes*: white space, the order of keys, escapes, quotes. A hash is of bytes. So
//! two things are done to find them:
//!
//! * What the patch does not touch stays as it was written. Both document models here keep each token's own text, and
//!   the white space between, so that a document to which nothing is done is written as it was read.
//! * What the patch adds is written in the style of the old document, and where that shows none, in each of the usual ways; XML
//!   also in the canonical form. They are tried one after another, likeliest first, until the caller's check accepts one. The
//!   patches of a Source that formats the whole document differently from version to version are of no use: the resource is
//!   fetched, and a superseded version that is nowhere else cannot be read.
//!
//! That the check has the last word is what makes guessing safe: a wrong guess costs time, never a wrong content.
//!
//! Everything read here comes from elsewhere, so everything has a bound: the size of each document ([`Bounds::patch`]) and of
//! what is made of it, the time, the depth of nesting, the number of values or nodes, the steps a patch may cost, and the ways to
//! write a result that are tried. No entity is ever expanded and nothing outside the two documents is ever read.

use std::collections::HashSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use crate::bounds::{self, Bounds};

mod json;
mod json_number;
mod json_ops;
mod json_string;
mod json_style;
mod xml;
mod xml_encoding;
mod xml_mangle;
mod xml_ops;
mod xml_style;
mod xml_tag;
mod xpath;

#[cfg(test)]
mod tests;

/// The depth of nesting over which no document is taken, which is libxml2's bound too. It bounds recursion, so it has to
/// stay far below what a thread's stack holds.
const MOST_DEPTH: usize = 256;
/// The number of values (JSON) or nodes (XML) over which no document is taken, which bounds memory: each costs about a
/// hundred bytes.
const MOST_NODES: usize = 512 << 10;
/// The length in bytes over which no number is taken: they are compared by what they are worth.
const MOST_DIGITS: usize = 1024;
/// The length in bytes over which no tag, and the number of attributes over which no element is taken: each is looked
/// up among the others.
const MOST_TAG: usize = 256 << 10;
const MOST_ATTRIBUTES: usize = 1000;
/// The length in bytes over which no selector is taken.
const MOST_SELECTOR: usize = 4096;
/// The number of operations over which no patch is taken.
const MOST_OPERATIONS: usize = 1 << 20;
/// The steps for each second of [`Bounds::patch_time`] over which a patch is given up. A step is a look at one key or node, or at
/// some bytes: they are about as long in all.
const MOST_STEPS: u64 = 1 << 25;
/// The number of ways to write a result that are tried.
const MOST_CANDIDATES: usize = 200;
/// The bytes written for trial, in all.
const MOST_TRIED_BYTES: usize = 128 << 20;

/// The kinds of patch that are understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// JSON Patch, RFC 6902.
    JsonPatch,
    /// JSON Merge Patch, RFC 7396.
    JsonMergePatch,
    /// XML Patch, RFC 5261 and RFC 7351.
    XmlPatch,
}

impl Kind {
    /// The kind that a media type names, if it is one of them; letter case and parameters are of no account.
    ///
    /// Next to the registered names these two are known: `application/json-patch`, the name in drafts of RFC 6902, and
    /// `application/patch-ops-error+xml`, the only one that RFC 5261 registers, which ResourceSync's own examples use
    /// for the patches themselves.
    #[must_use]
    pub fn of_media_type(media_type: &str) -> Option<Self> {
        let essence = media_type.split(';').next().unwrap_or_default().trim();
        [
            ("application/json-patch+json", Self::JsonPatch),
            ("application/json-patch", Self::JsonPatch),
            ("application/merge-patch+json", Self::JsonMergePatch),
            ("application/xml-patch+xml", Self::XmlPatch),
            ("application/patch-ops-error+xml", Self::XmlPatch),
        ]
        .into_iter()
        .find_map(|(name, kind)| essence.eq_ignore_ascii_case(name).then_some(kind))
    }
}

/// Which of the two documents an error is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Document {
    /// The version to which the patch is applied.
    Old,
    /// The patch.
    Patch,
}

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Old => "the old version",
            Self::Patch => "the patch",
        })
    }
}

/// The error conditions of RFC 5261, section 5.1, under their names there.
///
/// `unsupported-xml-id` is not among them, since `xml:id` is supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// A `sel`, `type`, `ws` or `pos` that is not allowed, or content that cannot be an attribute's value.
    InvalidAttributeValue,
    /// A document is not in the character set it says, or a character has no place in the old version's.
    InvalidCharacterSet,
    /// The patch is no well-formed XML, or no collection of operations.
    InvalidDiffFormat,
    /// A reference to an entity that is not declared.
    InvalidEntityDeclaration,
    /// A prefix for which there is no declaration, or one that may not be declared or removed.
    InvalidNamespacePrefix,
    /// A namespace URI that is not allowed, or a declaration that is not where it is said to be.
    InvalidNamespaceUri,
    /// The content of a `<replace>` is not of the kind of the node that is to be replaced.
    InvalidNodeTypes,
    /// An operation that is not understood.
    InvalidPatchDirective,
    /// The document would be left with no root element, or with two.
    InvalidRootElementOperation,
    /// A change to the prolog other than to its comments and processing instructions.
    InvalidXmlPrologOperation,
    /// White space is to be removed where there is none.
    InvalidWhitespaceDirective,
    /// No node, or more than one, is where the selector points.
    UnlocatedNode,
    /// `id()` in a document in which no attribute is known to be an ID.
    UnsupportedIdFunction,
}

impl Condition {
    /// The name of the error element.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::InvalidAttributeValue => "invalid-attribute-value",
            Self::InvalidCharacterSet => "invalid-character-set",
            Self::InvalidDiffFormat => "invalid-diff-format",
            Self::InvalidEntityDeclaration => "invalid-entity-declaration",
            Self::InvalidNamespacePrefix => "invalid-namespace-prefix",
            Self::InvalidNamespaceUri => "invalid-namespace-uri",
            Self::InvalidNodeTypes => "invalid-node-types",
            Self::InvalidPatchDirective => "invalid-patch-directive",
            Self::InvalidRootElementOperation => "invalid-root-element-operation",
            Self::InvalidXmlPrologOperation => "invalid-xml-prolog-operation",
            Self::InvalidWhitespaceDirective => "invalid-whitespace-directive",
            Self::UnlocatedNode => "unlocated-node",
            Self::UnsupportedIdFunction => "unsupported-id-function",
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a patch gives no new version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatchError {
    /// One of the bounds in this module is passed.
    #[error("{what} is over the bound of {most}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// The bound.
        most: u64,
    },
    /// A document is not of the format its kind asks for.
    #[error("{document}, line {line}: {why}")]
    Syntax {
        /// Which document.
        document: Document,
        /// The line, from 1.
        line: usize,
        /// What is wrong there.
        why: String,
    },
    /// An operation of a JSON Patch cannot be done (RFC 6902, section 5).
    #[error("operation {number}, {op} at \"{path}\": {why}")]
    Operation {
        /// The operation's number, from 1.
        number: usize,
        /// The operation's name, empty if it has none.
        op: String,
        /// The JSON Pointer it is about.
        path: String,
        /// Why it cannot be done.
        why: String,
    },
    /// An XML document or an operation on it meets an error condition of RFC 5261, section 5.
    #[error("{condition}: {place}: {why}")]
    Xml {
        /// The error condition.
        condition: Condition,
        /// The operation, by number, line in the patch, name and selector; or the document.
        place: String,
        /// What is wrong.
        why: String,
    },
    /// The patch was applied, but no way to write the result was the one looked for.
    #[error("the patch was applied, but none of {tried} ways to write the result fits")]
    NoFit {
        /// How many different ways were tried.
        tried: usize,
    },
}

/// A patch, and how it is written.
#[derive(Clone, Copy, Debug)]
pub struct Patch<'p> {
    /// Its format.
    pub kind: Kind,
    /// All of it.
    pub bytes: &'p [u8],
}

/// Applies a patch to the old version's bytes, and gives the new version's.
///
/// `fits` is asked of each way to write the result, likeliest first; the first for which it holds is given back. A
/// way that comes to another length than `length`, where that is known, is not asked about. Neither the old version nor the
/// patch may be larger than `bounds` allow, and a result twice as large at most; applying it and looking for a way to write its
/// result take no longer than they allow: whoever waits for the new version could have fetched it meanwhile.
///
/// # Errors
///
/// [`PatchError::NoFit`] if the patch can be applied, but `fits` holds for none; the others if it cannot be: RFC 6902,
/// section 5, and RFC 5261, section 5. A JSON Merge Patch that is JSON can always be applied.
pub fn apply(
    old: &[u8],
    patch: Patch<'_>,
    length: Option<u64>,
    bounds: &Bounds,
    fits: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<Vec<u8>, PatchError> {
    let Patch { kind, bytes: patch } = patch;
    for (what, bytes) in [("the old version's size", old), ("the patch's size", patch)] {
        within(what, bytes.len(), bounds::count(bounds.patch))?;
    }
    let length = length.map(|length| usize::try_from(length).unwrap_or(usize::MAX));
    let until = Instant::now() + Duration::from_secs(bounds.patch_time);
    let mut trial = Trial { fits, seen: HashSet::new(), written: 0, length, bounds: *bounds, until };
    let found = match kind {
        Kind::JsonPatch => json_ops::apply_patch(old, patch, &mut trial)?,
        Kind::JsonMergePatch => json_ops::apply_merge(old, patch, &mut trial)?,
        Kind::XmlPatch => xml_ops::apply(old, patch, &mut trial)?,
    };
    found.ok_or(PatchError::NoFit { tried: trial.seen.len() })
}

/// Holds a number to its bound.
fn within(what: &'static str, number: usize, most: usize) -> Result<(), PatchError> {
    if number > most { Err(PatchError::TooLarge { what, most: most as u64 }) } else { Ok(()) }
}

/// The steps and the time that are left to a patch, and what it may make.
#[derive(Debug)]
struct Steps {
    all: u64,
    left: u64,
    /// How many are left when the clock is looked at again.
    look: u64,
    until: Instant,
    /// The most bytes that it may put in.
    size: usize,
}

impl Steps {
    /// A look at the clock costs about as much as so many steps.
    const PER_LOOK: u64 = 4096;

    fn take(&mut self, steps: usize) -> Result<(), PatchError> {
        let left = self.left.checked_sub(steps as u64);
        self.left = left.unwrap_or(0);
        if self.left < self.look {
            self.look = self.left.saturating_sub(Self::PER_LOOK);
            if left.is_none() || Instant::now() > self.until {
                return Err(PatchError::TooLarge { what: "the work the patch asks for", most: self.all });
            }
        }
        Ok(())
    }
}

/// The ways to write a result, as they are tried.
struct Trial<'f> {
    fits: &'f mut dyn FnMut(&[u8]) -> bool,
    /// Hashes of what was asked about, so that ways that come to the same bytes count, and cost, once.
    seen: HashSet<u64>,
    written: usize,
    /// That of the new version, where it is known.
    length: Option<usize>,
    bounds: Bounds,
    until: Instant,
}

impl Trial<'_> {
    /// What is left to the patch at its beginning.
    fn steps(&self) -> Steps {
        let all = MOST_STEPS * self.bounds.patch_time;
        Steps { all, left: all, look: all - Steps::PER_LOOK, until: self.until, size: bounds::count(self.bounds.patch) }
    }

    /// Asks about one way to write the result, and gives it back if it is the one.
    fn offer(&mut self, candidate: Vec<u8>) -> Option<Vec<u8>> {
        self.written = self.written.saturating_add(candidate.len());
        if self.length.is_some_and(|length| length != candidate.len()) {
            // It counts as tried: there are not more ways than these.
            self.seen.insert(candidate.len() as u64 ^ self.seen.len() as u64);
            return None;
        }
        let mut hasher = DefaultHasher::new();
        candidate.hash(&mut hasher);
        (self.seen.insert(hasher.finish()) && (self.fits)(&candidate)).then_some(candidate)
    }

    /// Whether enough was tried.
    fn is_spent(&self) -> bool {
        self.seen.len() >= MOST_CANDIDATES || self.written >= MOST_TRIED_BYTES || Instant::now() > self.until
    }

    /// The length in bytes, as UTF-8, over which a way to write the result is not the one.
    fn most(&self) -> usize {
        // In another encoding it may have half as many bytes.
        let most = 2 * bounds::count(self.bounds.patch);
        self.length.map_or(most, |length| length.saturating_mul(2).saturating_add(64).min(most))
    }
}

/// The number, from 1, of the line in which an offset lies.
fn line_at(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|&byte| byte == b'\n').count() + 1
}
