//! The forms of older drafts, read into the records of the specification in force.
//!
//! ResourceSync 0.1 (2012) says by elements of their own what `rs:md` and `rs:ln` say by attributes. The D-Lib article
//! (2013) has these two, in another namespace, and shows two forms that are no sitemap: an Atom feed, and a root element
//! `resync`. Whatever the form, names become the ones in force (`rs:size` is `length`, a Change Set is a `changelist`) and
//! values stay as written, but for digests, which become hexadecimal.

use std::borrow::Cow;

use quick_xml::events::BytesStart;

use super::{Field, Reader, Step};
use crate::bounds;
use crate::document::hash::Hashes;
use crate::document::input::Place;
use crate::document::names::{self, Namespace};
use crate::document::record::{Attributes, Capability, Dialect, Entry, Kind, Link};

/// The element in which a document is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `urlset` or `sitemapindex`.
    Sitemap,
    /// An Atom feed (D-Lib article, figures 9 and 10).
    Atom,
    /// `resync` (D-Lib article, figure 11).
    Resync,
}

/// The elements of older drafts whose text is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Older {
    /// `expires`: when the resource was deleted (0.1, 3.1.2).
    Expires,
    /// `rs:fixity` (0.1, 3.1.3).
    Fixity,
    /// `rs:size` (0.1, 3.1.4).
    Size,
    /// `rs:mimetype` (0.1, 3.1.5).
    MimeType,
    /// `rs:contentencoding` (0.1, 3.1.6).
    ContentEncoding,
    /// `rs:path` (0.1, 4.2.1).
    Path,
    /// `updated` of an Atom feed.
    Modified,
}

impl Older {
    fn of_terms(local: &str) -> Option<Self> {
        Some(match local {
            "fixity" => Self::Fixity,
            "size" => Self::Size,
            "mimetype" => Self::MimeType,
            "contentencoding" => Self::ContentEncoding,
            "path" => Self::Path,
            _ => return None,
        })
    }

    /// The attribute of `rs:md` that says the same.
    fn name(self) -> &'static str {
        match self {
            Self::Expires => "expires",
            Self::Fixity => "hash",
            Self::Size => "length",
            Self::MimeType => "type",
            Self::ContentEncoding => "encoding",
            Self::Path => "path",
            Self::Modified => "modified",
        }
    }
}

/// What relations of the draft of 2012 begin with.
const OURS: &str = "http://www.openarchives.org/rs/";
/// Names that mean something in `rs:md`: a category that is called so is none of it.
const MEANT: [&str; 15] = [
    "hash",
    "length",
    "type",
    "encoding",
    "path",
    "change",
    "datetime",
    "expires",
    "protocol",
    "capability",
    "at",
    "from",
    "until",
    "modified",
    "preferred",
];

/// What stands between values of one name, in a form that repeats an element.
fn between(name: &str) -> char {
    if name == "hash" { ' ' } else { '\n' }
}

/// The capability that the URI of a type names (`http://www.openarchives.org/rs/changelist`), or the type of a Change Set.
fn capability(kind: &str) -> &str {
    match kind.trim().rsplit('/').next().unwrap_or_default() {
        "changeset" => Capability::ChangeList.name(),
        name => name,
    }
}

impl Reader<'_> {
    /// Takes a root element that is no sitemap's; false if it is of no form that is known.
    pub(super) fn older_root(
        &mut self,
        local: &str,
        namespace: Namespace,
        start: &BytesStart<'_>,
    ) -> Result<bool, String> {
        self.form = match (namespace, local) {
            (Namespace::Atom, "feed") => Form::Atom,
            (Namespace::DLib | Namespace::Terms | Namespace::None, "resync") => Form::Resync,
            _ => return Ok(false),
        };
        self.head.kind = Kind::UrlSet;
        self.head.dialect = Dialect::DLib2013;
        let attributes = self.attributes(start, 1)?;
        let ours = self.ours(&attributes, "type").map(str::to_owned);
        let kind = ours.or_else(|| attributes.get("rstype").map(str::to_owned)).unwrap_or_default();
        if Capability::from_name(capability(&kind)).is_none() {
            // A feed of news, for one.
            return Ok(false);
        }
        self.head.md.push(Cow::Borrowed("capability"), capability(&kind));
        if let Some(modified) = attributes.get("modified") {
            self.head.md.push(Cow::Borrowed("modified"), modified);
        }
        Ok(true)
    }

    /// The value of an attribute of our namespace.
    fn ours<'v>(&self, attributes: &'v Attributes, name: &str) -> Option<&'v str> {
        let is_ours = |(key, _): &(&str, &str)| {
            key.split_once(':').is_some_and(|(prefix, local)| {
                local == name && matches!(self.scope.resolve(prefix), Some(Namespace::Terms | Namespace::DLib))
            })
        };
        attributes.iter().find(is_ours).map(|(_, value)| value)
    }

    /// What an attribute of the root of a sitemap says: `rs:type` (0.1, 5.1).
    pub(super) fn older_root_attributes(&mut self, attributes: Attributes) {
        if attributes.is_empty() {
            return;
        }
        if let Some(kind) = self.ours(&attributes, "type").map(|kind| capability(kind).to_owned()) {
            self.head.dialect = Dialect::V0_1;
            self.head.md.push(Cow::Borrowed("capability"), &kind);
        }
    }

    /// Attributes without a prefix, and ours without theirs.
    fn own(&self, attributes: Attributes) -> Attributes {
        if attributes.iter().all(|(name, _)| !name.contains(':')) {
            return attributes;
        }
        let mut own = Attributes::default();
        for (name, value) in attributes.iter() {
            match name.split_once(':') {
                None => own.push(names::attribute(name), value),
                Some((prefix, local)) => {
                    if matches!(self.scope.resolve(prefix), Some(Namespace::Terms | Namespace::DLib)) {
                        own.push(names::attribute(local), value);
                    }
                }
            }
        }
        own
    }

    /// A child of the root that is neither an entry nor of the specification in force.
    pub(super) fn older_head_element(
        &mut self,
        local: &str,
        namespace: Namespace,
        attributes: Attributes,
        place: Place,
    ) {
        match (namespace, local) {
            (Namespace::Xhtml, _) if matches!(self.head.dialect, Dialect::Sitemap | Dialect::V0_1) => {
                let own = self.own(attributes);
                // Sitemaps of today have links of XHTML, too.
                let is_ours = match local {
                    "meta" => is_modified(&own),
                    "link" => own.get("protocol").is_some() || own.get("rel").is_some_and(|rel| rel.contains(OURS)),
                    _ => false,
                };
                if is_ours {
                    self.head.dialect = Dialect::V0_1;
                }
                match local {
                    "link" if self.head.dialect == Dialect::V0_1 => self.head_link(own, place.line),
                    "meta" if is_ours && self.head.md.get("modified").is_none() => {
                        let value = own.get("content").unwrap_or_default();
                        self.head.md.push(Cow::Borrowed("modified"), value);
                    }
                    _ => {}
                }
            }
            (Namespace::Atom, "link") if self.form == Form::Atom => {
                let own = self.own(attributes);
                self.head_link(own, place.line);
            }
            (Namespace::Atom, "updated") if self.form == Form::Atom => {
                self.begin_text(Field::Older(Older::Modified));
            }
            // As the figure has it, what follows an item is about that one.
            (_, "link") if self.form == Form::Resync => {
                let own = self.own(attributes);
                match self.entry.is_some() {
                    true => self.entry_link(own, place.line),
                    false => self.head_link(own, place.line),
                }
            }
            _ => {}
        }
    }

    fn head_link(&mut self, attributes: Attributes, line: u64) {
        if self.head.links.len() < self.limits.links {
            self.head.links.push(Link(attributes));
        } else {
            self.warnings.push(line, format_args!("more links than {} allows; ignored", bounds::LINKS));
        }
    }

    fn entry_link(&mut self, attributes: Attributes, line: u64) {
        match self.entry.as_mut() {
            Some(entry) if entry.links.len() < self.limits.links => entry.links.push(Link(attributes)),
            _ => self.warnings.push(line, format_args!("more links than {} allows; ignored", bounds::LINKS)),
        }
    }

    /// Begins an entry of a form that is no sitemap; the one before it is whole then.
    pub(super) fn older_entry(&mut self, start: &BytesStart<'_>, place: Place) -> Result<Step, String> {
        if self.form == Form::Atom {
            self.check_attributes(start)?;
            self.entry = Some(Entry { line: place.line, ..Entry::default() });
            return Ok(Step::Nothing);
        }
        let attributes = self.attributes(start, place.line)?;
        let mut entry = Entry { line: place.line, ..Entry::default() };
        for (name, value) in self.own(attributes).iter() {
            match name {
                "href" => value.trim().clone_into(&mut entry.loc),
                "modified" => entry.lastmod = Some(value.to_owned()),
                _ => entry.md.push(names::attribute(name), value),
            }
        }
        let step = self.give_held();
        // Each has the room of an entry.
        self.xml.get_mut().mark(false);
        self.said = 0;
        self.entry = Some(entry);
        Ok(step)
    }

    /// An entry is whole: one that has expired, and says nothing else of when it changed, was deleted (0.1, 3.1.2).
    pub(super) fn end_older_entry(&mut self) {
        self.said = 0;
        if let Some(entry) = self.entry.as_mut()
            && entry.lastmod.is_none()
            && entry.md.get("change").is_none()
            && entry.md.get("expires").is_some()
        {
            entry.md.push(Cow::Borrowed("change"), "deleted");
        }
    }

    /// Gives out the item that was held for the links that might follow it.
    pub(super) fn give_held(&mut self) -> Step {
        match self.entry.take() {
            Some(entry) if entry.loc.is_empty() => {
                self.warnings.push(entry.line, "an item without href; passed over");
                Step::Nothing
            }
            Some(entry) => {
                self.held = Some(entry);
                self.entries += 1;
                Step::Held
            }
            None => Step::Nothing,
        }
    }

    /// A child of an entry that is not of the specification in force.
    pub(super) fn older_entry_element(
        &mut self,
        local: &str,
        namespace: Namespace,
        start: &BytesStart<'_>,
        place: Place,
    ) -> Result<(), String> {
        let dialect = self.head.dialect;
        match (namespace, local) {
            (Namespace::Sitemap | Namespace::None, "expires") if dialect == Dialect::V0_1 => {
                self.check_attributes(start)?;
                self.begin_text(Field::Older(Older::Expires));
            }
            (Namespace::Terms, _) if matches!(dialect, Dialect::Sitemap | Dialect::V0_1) => {
                let attributes = self.attributes(start, place.line)?;
                let Some(field) = Older::of_terms(local) else { return Ok(()) };
                self.head.dialect = Dialect::V0_1;
                self.begin_text(Field::Older(field));
                if field == Older::Fixity {
                    // What stands before the digest in `hash`.
                    self.prefix = format!("{}:", self.own(attributes).get("type").unwrap_or_default().trim());
                }
            }
            (Namespace::Xhtml, "link") if dialect == Dialect::V0_1 => {
                let attributes = self.attributes(start, place.line)?;
                let own = self.own(attributes);
                self.entry_link(own, place.line);
            }
            (Namespace::Xhtml, "meta") if dialect == Dialect::V0_1 => {
                let attributes = self.attributes(start, place.line)?;
                if let (Some(name), Some(value)) = (attributes.get("name"), attributes.get("content"))
                    && !MEANT.contains(&name)
                {
                    self.say(name, value);
                }
            }
            (Namespace::Atom, "updated") if self.form == Form::Atom => self.begin_text(Field::LastMod),
            (Namespace::Atom, "link" | "content") if self.form == Form::Atom => {
                let attributes = self.attributes(start, place.line)?;
                self.atom(local, attributes, place);
            }
            (_, "link") if self.form == Form::Resync => {
                let attributes = self.attributes(start, place.line)?;
                let own = self.own(attributes);
                self.entry_link(own, place.line);
            }
            _ => self.check_attributes(start)?,
        }
        Ok(())
    }

    /// What an attribute of `loc` or `lastmod` says: `rs:protocol` (0.1, 4.3.3), `rs:type` (0.1, 3.1.2).
    pub(super) fn older_field_attributes(
        &mut self,
        field: Field,
        start: &BytesStart<'_>,
        line: u64,
    ) -> Result<(), String> {
        let attributes = self.attributes(start, line)?;
        if self.head.dialect == Dialect::V1_1 || attributes.is_empty() {
            return Ok(());
        }
        let said = match field {
            Field::Loc => self.ours(&attributes, "protocol").map(|protocol| ("protocol", protocol.to_owned())),
            Field::LastMod => self.ours(&attributes, "type").map(|kind| ("change", kind.to_owned())),
            _ => None,
        };
        if let Some((name, value)) = said {
            self.head.dialect = Dialect::V0_1;
            self.say(name, &value);
        }
        Ok(())
    }

    /// The place of a resource in an Atom feed: a link that is `canonical`, or what the content is taken from.
    fn atom(&mut self, local: &str, attributes: Attributes, place: Place) {
        let own = self.own(attributes);
        let link = Link(own);
        let at = if local == "content" { link.0.get("src").map(str::trim) } else { link.href() };
        let is_itself = local == "content" || link.is("canonical") || link.0.get("change").is_some();
        let is_new = self.entry.as_ref().is_some_and(|entry| entry.loc.is_empty());
        match at.filter(|at| is_itself && is_new && !at.is_empty()) {
            Some(at) => {
                if let Some(entry) = self.entry.as_mut() {
                    at.clone_into(&mut entry.loc);
                }
                for (name, value) in link.0.iter().filter(|(name, _)| !matches!(*name, "rel" | "href" | "src")) {
                    self.say(name, value);
                }
            }
            None if local == "link" => self.entry_link(link.0, place.line),
            None => {}
        }
    }

    /// Notes of the entry what `rs:md` would say.
    fn say(&mut self, name: &str, value: &str) {
        let Some(entry) = self.entry.as_mut() else { return };
        if self.said >= self.limits.attributes {
            self.warnings.push(entry.line, "more is said of the entry than is allowed; ignored");
            return;
        }
        self.said += 1;
        entry.md.add(names::attribute(name), value, between(name));
    }

    /// Puts the text of an element to what is said of the entry, or of the document.
    pub(super) fn keep_older(&mut self, field: Older) {
        let text = std::mem::take(&mut self.text);
        let value = text.trim();
        match field {
            Older::Modified if self.entry.is_none() => {
                if self.head.md.get("modified").is_none() {
                    self.head.md.push(Cow::Borrowed(field.name()), value);
                }
            }
            Older::Fixity => {
                let written = std::mem::take(&mut self.prefix) + value;
                // Base64 is what this draft asks for: no reason for a complaint, if it is a digest.
                let hashes = Hashes::parse(&written, &mut Vec::new());
                let written = hashes.iter().next().map_or(written, ToString::to_string);
                self.say(field.name(), &written);
            }
            // Beside a time of modification, it says until when that is good.
            Older::Expires => self.say(field.name(), value),
            _ => self.say(field.name(), value),
        }
        self.text = text;
    }
}

/// Whether `xhtml:meta` says when the document was made (0.1, 3.1).
fn is_modified(meta: &Attributes) -> bool {
    meta.get("name").is_some_and(|name| name.trim().eq_ignore_ascii_case("dcterms.modified"))
}
