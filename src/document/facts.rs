//! The typed reading of an entry: times, hashes and numbers, with a complaint for each bad value.

use super::hash::Hashes;
use super::record::{Attributes, Capability, Entry, Warnings};
use super::time::{Datetime, Forgiven};

/// The nature of a change (core 7, `change`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The resource is new.
    Created,
    /// The resource has new content or metadata.
    Updated,
    /// The resource is gone.
    Deleted,
}

impl Change {
    /// The attribute's value.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Deleted => "deleted",
        }
    }
}

/// What an entry or a document's own `rs:md` says, read by type. A value that cannot be read is
/// absent here: a bad date empties its field, not the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The time of last modification; for the old drafts also `modified`.
    pub lastmod: Option<Datetime>,
    /// When the change happened.
    pub datetime: Option<Datetime>,
    /// When the snapshot began.
    pub at: Option<Datetime>,
    /// When the snapshot ended.
    pub completed: Option<Datetime>,
    /// Where the interval begins.
    pub from: Option<Datetime>,
    /// Where the interval ends.
    pub until: Option<Datetime>,
    /// The nature of the change.
    pub change: Option<Change>,
    /// The length in bytes, as coded.
    pub length: Option<u64>,
    /// The digests of the bytes, as coded.
    pub hashes: Hashes,
}

impl Facts {
    /// What an entry says of a resource or of a document.
    pub fn of_entry(entry: &Entry, warnings: &mut Warnings) -> Self {
        let mut facts = Self::of_attributes(&entry.md, entry.line, warnings);
        if let Some(text) = &entry.lastmod {
            facts.lastmod = datetime("lastmod", text, entry.line, warnings).or(facts.lastmod);
        }
        facts
    }

    /// What the attributes of an `rs:md` or `rs:ln` in this line say.
    pub fn of_attributes(md: &Attributes, line: u64, warnings: &mut Warnings) -> Self {
        let (mut facts, mut expires) = (Self::default(), None);
        for (name, value) in md.iter() {
            let slot = match name {
                "datetime" => &mut facts.datetime,
                "expires" => &mut expires,
                "at" => &mut facts.at,
                "completed" => &mut facts.completed,
                "from" => &mut facts.from,
                "until" => &mut facts.until,
                "modified" => &mut facts.lastmod,
                "change" => {
                    facts.change = change(value, line, warnings);
                    continue;
                }
                "capability" => {
                    Capability::spelling(value).into_iter().for_each(|warning| warnings.push(line, warning));
                    continue;
                }
                "length" => {
                    facts.length = length(value, line, warnings);
                    continue;
                }
                "hash" => {
                    let mut complaints = Vec::new();
                    facts.hashes = Hashes::parse(value, &mut complaints);
                    complaints.iter().for_each(|complaint| warnings.push(line, complaint));
                    continue;
                }
                _ => continue,
            };
            *slot = datetime(name, value, line, warnings);
        }
        // That of a deletion (0.1, 3.1.2).
        facts.datetime = facts.datetime.or(expires.filter(|_| facts.change == Some(Change::Deleted)));
        facts
    }
}

fn datetime(name: &str, text: &str, line: u64, warnings: &mut Warnings) -> Option<Datetime> {
    match Datetime::parse(text) {
        Ok((moment, Forgiven::Nothing)) => Some(moment),
        Ok((moment, Forgiven::NoZone)) => {
            warnings.push(line, format_args!("{name} {text:?} has no time zone; taken as UTC"));
            Some(moment)
        }
        Ok((moment, Forgiven::Spelling)) => {
            warnings.push(line, format_args!("{name} {text:?} is not quite a W3C datetime; read as {moment}"));
            Some(moment)
        }
        Err(error) => {
            warnings.push(line, format_args!("{name}: {error}; ignored"));
            None
        }
    }
}

fn change(value: &str, line: u64, warnings: &mut Warnings) -> Option<Change> {
    let known =
        [Change::Created, Change::Updated, Change::Deleted].into_iter().find(|change| change.name() == value.trim());
    if known.is_none() {
        warnings.push(line, format_args!("change {value:?} is not created, updated or deleted; ignored"));
    }
    known
}

fn length(value: &str, line: u64, warnings: &mut Warnings) -> Option<u64> {
    let length = value.trim().parse::<u64>().ok().filter(|length| i64::try_from(*length).is_ok());
    if length.is_none() {
        warnings.push(line, format_args!("length {value:?} is not a number of bytes; ignored"));
    }
    length
}
