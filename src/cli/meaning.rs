//! What of a document means something here: what is used, what is only kept for people to see, what is ignored, and why.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::show;
use crate::document::{Attributes, Entry, Head, Link, relation};
use crate::patch;

/// What becomes of a thing that a document says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Used,
    Kept,
    Ignored,
}

impl Fate {
    const ALL: [Self; 3] = [Self::Used, Self::Kept, Self::Ignored];

    fn name(self) -> &'static str {
        match self {
            Self::Used => "used",
            Self::Kept => "kept",
            Self::Ignored => "ignored",
        }
    }
}

/// How often a document says what, by its fate; with what it is for, or why it is not.
#[derive(Debug, Default)]
pub(super) struct Meaning(BTreeMap<(Fate, String, &'static str), u64>);

/// Attributes of `rs:md`, and what they are for.
const ATTRIBUTES: [(&str, &str); 14] = [
    ("hash", "content is held to it"),
    ("length", "content is held to it, and it is the size of the file"),
    ("type", "the media type, which type= chooses by"),
    ("encoding", "what content is unfolded by"),
    ("path", "where in its package it lies"),
    ("change", "what happened"),
    ("datetime", "when it happened"),
    ("expires", "when it was deleted"),
    ("modified", "when it was made"),
    ("at", "when the snapshot was begun: changes are followed from there"),
    ("completed", "when the snapshot was ended"),
    ("from", "where the changes of this document begin"),
    ("until", "where the changes of this document end"),
    ("capability", "what the document is"),
];

/// Relations, and what their targets are for.
const RELATIONS: [(&str, &str); 20] = [
    ("duplicate", "another place of the same bytes"),
    (relation::DUPLICATE[1], "another place of the same bytes"),
    ("memento", "where a version is"),
    ("timemap", "which versions there are"),
    ("timegate", "which version was in force"),
    ("collection", "collection= chooses by it; the members are in .resourcesync/collections"),
    ("describedby", "`resourcesync log` shows it"),
    ("via", "`resourcesync log` shows it"),
    ("canonical", "the resource is found by it in .resourcesync/uris"),
    ("contents", "a copy of the manifest, where the package cannot be read yet"),
    ("up", "the document above"),
    ("top", "the Capability List"),
    ("http://www.openarchives.org/rs/capabilitylist", "the Capability List"),
    ("index", "the index that it is a part of"),
    ("prev", "the changes before these"),
    ("hub", "who delivers notifications"),
    ("self", "where it is"),
    ("current", "where the newest is"),
    (relation::CHANGE_SET, "changes are followed by it"),
    (relation::DUMP, "a mirror is filled from it"),
];

fn known(table: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    table.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, what)| *what)
}

impl Meaning {
    fn note(&mut self, fate: Fate, what: impl Into<String>, why: &'static str) {
        *self.0.entry((fate, what.into(), why)).or_default() += 1;
    }

    /// Adds what a document says of itself.
    pub(super) fn of_head(&mut self, head: &Head) {
        self.attributes(&head.md);
        for link in &head.links {
            match link.0.get("protocol") {
                Some(protocol) if relation::is_callback(protocol) => {
                    self.note(Fate::Used, protocol, "changes are received by it, where listen= says at which address");
                }
                Some(protocol) if protocol.trim() == relation::XMPP => match cfg!(feature = "xmpp") {
                    true => {
                        self.note(Fate::Used, protocol, "changes are received by it, where credentials= has an account")
                    }
                    false => {
                        self.note(Fate::Ignored, protocol, "this program was built without XMPP (--features xmpp)")
                    }
                },
                Some(protocol) => self.note(Fate::Ignored, protocol, "changes are not received by this protocol"),
                None => self.link(link),
            }
        }
    }

    /// Adds what an entry says.
    pub(super) fn of_entry(&mut self, head: &Head, entry: &Entry) {
        if entry.lastmod.is_some() {
            let is_change = head.changes_by_lastmod() && entry.md.get("change").is_some();
            self.note(Fate::Used, "lastmod", if is_change { "when it happened" } else { "when it was modified" });
        }
        if entry.changefreq.is_some() {
            self.note(Fate::Kept, "changefreq", "an extended attribute");
        }
        self.attributes(&entry.md);
        entry.links.iter().for_each(|link| self.link(link));
    }

    fn attributes(&mut self, md: &Attributes) {
        for (name, value) in md.iter() {
            match known(&ATTRIBUTES, name) {
                Some(what) => self.note(Fate::Used, name, what),
                None if name == "protocol" => {
                    self.note(
                        Fate::Ignored,
                        format!("protocol {value}"),
                        "what is asked by another protocol is not fetched",
                    );
                }
                None => self.note(Fate::Kept, name, "an extended attribute"),
            }
        }
    }

    fn link(&mut self, link: &Link) {
        if relation::is_any(link.rel(), &relation::PATCH) {
            let kind = link.0.get("type").or_else(|| link.0.get("protocol")).unwrap_or_default();
            return match patch::Kind::of_media_type(kind) {
                Some(_) => self.note(Fate::Used, format!("patch {kind}"), "the next version is made by it"),
                None => self.note(
                    Fate::Ignored,
                    format!("patch {kind}"),
                    "no kind of patch that is known: what it changes is fetched whole",
                ),
            };
        }
        let relations = || link.rel().split_ascii_whitespace();
        for name in relations() {
            match known(&RELATIONS, name) {
                Some(what) => self.note(Fate::Used, name, what),
                // A mirror of 2012 is an alternate by its first name.
                None if relation::is_any(link.rel(), &relation::DUPLICATE) => {}
                None if name.eq_ignore_ascii_case("alternate") => {
                    self.note(Fate::Kept, "alternate", "prefer= takes one in place of its resource");
                }
                None => self.note(Fate::Kept, name, "an extended attribute, and a link in .resourcesync/links"),
            }
        }
        if relations().next().is_none() {
            self.note(Fate::Ignored, "a link without rel", "it does not say what it is for");
        }
    }

    fn of(&self, fate: Fate) -> impl Iterator<Item = (&str, &'static str, u64)> {
        self.0
            .iter()
            .filter(move |((own, ..), _)| *own == fate)
            .map(|((_, what, why), count)| (what.as_str(), *why, *count))
    }

    /// For programs: by fate, each with its name, how often it is there, and what for.
    pub(super) fn json(&self) -> Value {
        let all = |fate| {
            self.of(fate)
                .map(|(what, why, count)| json!({"what": what, "count": count, "why": why}))
                .collect::<Vec<_>>()
        };
        json!({"used": all(Fate::Used), "kept": all(Fate::Kept), "ignored": all(Fate::Ignored)})
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for fate in Fate::ALL {
            for (index, (what, why, count)) in self.of(fate).enumerate() {
                if index == 0 {
                    let name =
                        if fate == Fate::Ignored { show::paint("33", fate.name()) } else { fate.name().to_owned() };
                    text.push_str(&format!("\n{name}\n"));
                }
                text.push_str(&format!("  {what} {}  {why}\n", show::dim(&format!("×{}", show::count(count)))));
            }
        }
        text
    }
}
