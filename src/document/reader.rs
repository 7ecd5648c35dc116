//! The streaming reader: one entry at a time, with everything that was tolerated on the way.

mod older;

use std::borrow::Cow;
use std::fmt;
use std::io::Read;

use memchr::memmem::Finder;
use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event};
use thiserror::Error;

use super::input::{self, Counted, Limits, Place};
use super::names::{self, Namespace};
use super::plain;
use super::record::{Attributes, Dialect, Entry, Head, Kind, Link, Warnings, is_absolute};
use crate::bounds;
use older::{Form, Older};

/// Why a document could not be read, or not to its end. What was read before stands, but says
/// nothing of what the document does not list.
#[derive(Clone, Debug, Error)]
#[error("{url}: line {line}, column {column}: {problem}")]
pub struct DocumentError {
    /// The document's URL or file name.
    pub url: String,
    /// Counted from 1, in the document as decompressed.
    pub line: u64,
    /// Counted from 1, in bytes.
    pub column: u64,
    /// What is wrong.
    pub problem: String,
}

/// Reads one document as a stream. Memory does not grow with the document.
pub struct Reader<'a> {
    xml: quick_xml::Reader<Counted<'a>>,
    url: String,
    limits: Limits,
    buffer: Vec<u8>,
    scope: Scope,
    /// Finds `xmlns`; to make one takes longer than to search an element with it.
    xmlns: Finder<'static>,
    depth: usize,
    head: Head,
    form: Form,
    entry: Option<Entry>,
    /// One that is whole, and was kept until the next began.
    held: Option<Entry>,
    field: Option<Field>,
    /// How deep the element lies whose text that is.
    field_depth: usize,
    text: String,
    /// What is put before that text.
    prefix: String,
    /// How much elements of older drafts said of the entry.
    said: usize,
    warnings: Warnings,
    entries: u64,
    peeked: Option<Option<Entry>>,
    root_seen: bool,
    /// Whether the root element declares the namespace of `rs:md`.
    declares_terms: bool,
    finished: bool,
}

impl fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("url", &self.url).field("head", &self.head).finish_non_exhaustive()
    }
}

/// The elements of an entry whose text is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    Loc,
    LastMod,
    ChangeFreq,
    /// Of an older draft.
    Older(Older),
}

/// The namespace bindings in force.
#[derive(Default)]
struct Scope(Vec<(String, Namespace, usize)>);

impl Scope {
    fn resolve(&self, prefix: &str) -> Option<Namespace> {
        // Prefixes are so short that a call to `memcmp` for each was a sixth of the time that it took to read a list.
        let is = |bound: &str| bound.len() == prefix.len() && bound.bytes().eq(prefix.bytes());
        match self.0.iter().rev().find(|(bound, _, _)| is(bound)) {
            Some((_, namespace, _)) => Some(*namespace),
            None if prefix.is_empty() => Some(Namespace::None),
            None if prefix == "xml" => Some(Namespace::Foreign),
            None => None,
        }
    }

    fn leave(&mut self, depth: usize) {
        while self.0.last().is_some_and(|(_, _, at)| *at > depth) {
            self.0.pop();
        }
    }
}

/// What one step through the document came to.
enum Step {
    Nothing,
    /// The entry is whole. It stays where it is until it is given out: to move it costs more than to read its end.
    Entry,
    /// The entry before the one that begins is whole.
    Held,
    End,
}

impl<'a> Reader<'a> {
    /// Begins to read a document, up to its first entry, so that its head is known. `url` names it
    /// in errors.
    ///
    /// # Errors
    /// If it is no `urlset` and no `sitemapindex`, or is not well-formed so far.
    pub fn open(source: impl Read + 'a, url: &str, limits: Limits) -> Result<Self, DocumentError> {
        Self::open_in(None, source, url, limits)
    }

    /// As [`Reader::open`], of a document whose server names its encoding (the `charset` of `Content-Type`).
    ///
    /// # Errors
    /// As [`Reader::open`], and if the encoding is not known.
    pub fn open_in(
        charset: Option<&str>,
        source: impl Read + 'a,
        url: &str,
        limits: Limits,
    ) -> Result<Self, DocumentError> {
        Self::open_as(Dialect::Sitemap, charset, source, url, limits)
    }

    /// As [`Reader::open_in`], of a document in which an earlier reading found marks of this dialect: perhaps after entries that have
    /// elements of it that plain sitemaps have, too (`expires`; 0.1, 3.1.2).
    ///
    /// # Errors
    /// As [`Reader::open_in`].
    pub fn open_as(
        dialect: Dialect,
        charset: Option<&str>,
        source: impl Read + 'a,
        url: &str,
        limits: Limits,
    ) -> Result<Self, DocumentError> {
        let mut notes = Vec::new();
        let at_start = |problem: String| DocumentError { url: url.to_owned(), line: 1, column: 1, problem };
        let text = input::text(source, charset, &mut notes).map_err(|error| at_start(error.to_string()))?;
        let mut warnings = Warnings::default();
        notes.iter().for_each(|note| warnings.push(0, note));
        let xml = quick_xml::Reader::from_reader(Counted::new(text, &limits));
        let mut reader = Self {
            xml,
            url: url.to_owned(),
            limits,
            buffer: Vec::with_capacity(4096),
            scope: Scope::default(),
            xmlns: Finder::new(b"xmlns"),
            depth: 0,
            head: Head { kind: Kind::UrlSet, dialect, md: Attributes::default(), links: Vec::new() },
            form: Form::Sitemap,
            entry: None,
            held: None,
            field: None,
            field_depth: 0,
            text: String::new(),
            prefix: String::new(),
            said: 0,
            warnings,
            entries: 0,
            peeked: None,
            root_seen: false,
            declares_terms: false,
            finished: false,
        };
        let first = reader.advance()?;
        reader.peeked = Some(first);
        Ok(reader)
    }

    /// What the document says of itself. Complete from the start, unless the document puts its own
    /// `rs:md` or `rs:ln` after entries; then complete at its end.
    #[must_use]
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Whether the root element declares the namespace of `rs:md`, and no `rs:md` of the document came before its first entry:
    /// it may follow.
    #[must_use]
    pub fn may_have_more_head(&self) -> bool {
        self.head.md.is_empty() && self.declares_terms
    }

    /// The document's name in errors.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What was tolerated so far.
    #[must_use]
    pub fn warnings(&self) -> &Warnings {
        &self.warnings
    }

    /// The place for warnings that a typed reading adds.
    pub fn warnings_mut(&mut self) -> &mut Warnings {
        &mut self.warnings
    }

    /// How many bytes of it were read, as decompressed.
    #[must_use]
    pub fn consumed(&self) -> u64 {
        self.xml.get_ref().consumed()
    }

    /// The next entry; `None` at the end of a document that is whole.
    ///
    /// # Errors
    /// If the document is not well-formed, or ends too soon. Nothing follows an error.
    #[allow(clippy::should_implement_trait, reason = "an error ends the document; an iterator would go on")]
    pub fn next(&mut self) -> Result<Option<Entry>, DocumentError> {
        match self.peeked.take() {
            Some(first) => Ok(first),
            None => self.advance(),
        }
    }

    fn advance(&mut self) -> Result<Option<Entry>, DocumentError> {
        while !self.finished {
            match self.step()? {
                Step::Nothing => {}
                Step::Entry => return Ok(self.entry.take()),
                Step::Held => return Ok(self.held.take()),
                Step::End => self.finished = true,
            }
        }
        Ok(None)
    }

    fn step(&mut self) -> Result<Step, DocumentError> {
        self.xml.get_mut().mark(self.entry.is_some());
        let place = self.xml.get_ref().place();
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let read = self.xml.read_event_into(&mut buffer);
        let step = match read {
            Ok(event) => self.event(event, place).map_err(|problem| (place, problem)),
            Err(quick_xml::Error::IllFormed(quick_xml::errors::IllFormedError::MissingEndTag(_))) => {
                Err((self.xml.get_ref().place(), self.cut_short()))
            }
            Err(quick_xml::Error::Syntax(error)) => {
                Err((place, format!("{error}; the document may be cut short here")))
            }
            Err(error) => Err((place, error.to_string())),
        };
        self.buffer = buffer;
        step.map_err(|(place, problem)| {
            self.finished = true;
            DocumentError { url: self.url.clone(), line: place.line, column: place.column, problem }
        })
    }

    fn cut_short(&self) -> String {
        match self.entries {
            0 => "the document ends before its root element does".to_owned(),
            entries => format!("the document is cut short after {entries} entries"),
        }
    }

    fn event(&mut self, event: Event<'_>, place: Place) -> Result<Step, String> {
        match event {
            Event::Start(start) => self.start(&start, place),
            Event::Empty(start) => match self.start(&start, place)? {
                Step::Nothing => Ok(self.end()),
                step => {
                    self.end();
                    Ok(step)
                }
            },
            Event::End(_) => Ok(self.end()),
            Event::Text(text) if plain::is_text(&text) => self.allowed_characters(&text, place).map(|()| Step::Nothing),
            Event::Text(text) => self.characters(&text.xml10_content(), place).map(|()| Step::Nothing),
            Event::CData(text) => self.characters(&text.xml10_content(), place).map(|()| Step::Nothing),
            Event::GeneralRef(reference) => {
                let text = match reference.resolve_char_ref().map_err(|error| error.to_string())? {
                    Some(character) => Cow::Owned(character.to_string()),
                    None => {
                        let name = reference.xml10_content();
                        Cow::Borrowed(
                            quick_xml::escape::resolve_predefined_entity(&name)
                                .ok_or_else(|| format!("the entity &{name}; is not declared"))?,
                        )
                    }
                };
                self.characters(&text, place).map(|()| Step::Nothing)
            }
            Event::DocType(_) => Err("a DOCTYPE has no place in a sitemap document; refused".to_owned()),
            Event::Eof if self.depth > 0 => Err(self.cut_short()),
            Event::Eof if !self.root_seen => Err("the document is empty".to_owned()),
            Event::Eof => Ok(Step::End),
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) => Ok(Step::Nothing),
        }
    }

    fn start(&mut self, start: &BytesStart<'_>, place: Place) -> Result<Step, String> {
        self.depth += 1;
        if self.depth > self.limits.depth {
            return Err(format!("elements lie deeper in one another than the {} allowed", self.limits.depth));
        }
        self.bind(start)?;
        let name = start.name();
        let (local, prefix) = name.decompose();
        let prefix = prefix.map(|prefix| prefix.into_inner()).unwrap_or_default();
        let namespace =
            self.scope.resolve(prefix).ok_or_else(|| format!("the namespace prefix {prefix:?} is not declared"))?;
        let local = local.into_inner();
        match self.depth {
            1 => self.root(local, namespace, start)?,
            2 => match (namespace, local, self.form) {
                (Namespace::Sitemap | Namespace::None, "url" | "sitemap", Form::Sitemap) => {
                    self.check_attributes(start)?;
                    self.begin_entry(local, place);
                }
                (Namespace::Atom, "entry", Form::Atom) | (_, "item", Form::Resync) => {
                    return self.older_entry(start, place);
                }
                _ => self.head_element(local, namespace, start, place)?,
            },
            3 if self.entry.is_some() => self.entry_element(local, namespace, start, place)?,
            _ => self.check_attributes(start)?,
        }
        Ok(Step::Nothing)
    }

    /// Notes the namespaces that an element declares.
    fn bind(&mut self, start: &BytesStart<'_>) -> Result<(), String> {
        let written = start.attributes_raw().as_bytes();
        if written.is_empty() || self.xmlns.find(written).is_none() {
            return Ok(());
        }
        for attribute in start.attributes() {
            let attribute = attribute.map_err(|error| error.to_string())?;
            let key = attribute.key.0;
            let prefix = match key.strip_prefix("xmlns") {
                Some("") => "",
                Some(rest) => match rest.strip_prefix(':') {
                    Some(prefix) => prefix,
                    None => continue,
                },
                None => continue,
            };
            let uri = value(&attribute)?;
            let (namespace, exact) = names::namespace(&uri);
            if !exact {
                self.warnings.push(0, format_args!("the namespace {uri:?} is not spelled as its specification has it"));
            }
            self.declares_terms |= self.depth == 1 && matches!(namespace, Namespace::Terms | Namespace::DLib);
            self.scope.0.push((prefix.to_owned(), namespace, self.depth));
        }
        Ok(())
    }

    fn root(&mut self, local: &str, namespace: Namespace, start: &BytesStart<'_>) -> Result<(), String> {
        if self.root_seen {
            return Err(format!("a second root element, {local:?}, follows the first"));
        }
        self.root_seen = true;
        self.head.kind = match local {
            "urlset" => Kind::UrlSet,
            "sitemapindex" => Kind::SitemapIndex,
            _ if self.older_root(local, namespace, start)? => return Ok(()),
            _ => return Err(format!("the root element is {local:?}, neither urlset nor sitemapindex")),
        };
        match namespace {
            Namespace::Sitemap => {}
            Namespace::None => self.warnings.push(0, "the root element is in no namespace; taken as a sitemap"),
            _ => {
                self.warnings
                    .push(0, "the root element is in a namespace that is not the sitemaps'; taken as a sitemap");
                let prefix = start.name().prefix().map(|prefix| prefix.into_inner().to_owned()).unwrap_or_default();
                self.scope.0.push((prefix, Namespace::Sitemap, self.depth));
            }
        }
        let attributes = self.attributes(start, 1)?;
        self.older_root_attributes(attributes);
        Ok(())
    }

    fn begin_entry(&mut self, local: &str, place: Place) {
        let wanted = match self.head.kind {
            Kind::UrlSet => "url",
            Kind::SitemapIndex => "sitemap",
        };
        if local != wanted {
            self.warnings.push(place.line, format_args!("a {local} element in a {}", self.head.kind.name()));
        }
        self.entry = Some(Entry { line: place.line, ..Entry::default() });
    }

    /// A child of the root that is no entry.
    fn head_element(
        &mut self,
        local: &str,
        namespace: Namespace,
        start: &BytesStart<'_>,
        place: Place,
    ) -> Result<(), String> {
        let attributes = self.attributes(start, place.line)?;
        let dialect = match namespace {
            Namespace::Terms if self.form == Form::Sitemap => Dialect::V1_1,
            Namespace::DLib if self.form == Form::Sitemap => Dialect::DLib2013,
            _ => {
                self.older_head_element(local, namespace, attributes, place);
                return Ok(());
            }
        };
        if self.entries > 0 {
            self.warnings.push(place.line, format_args!("rs:{local} of the document stands after entries"));
        }
        match local {
            // What elements of older drafts said before it gives way to it.
            "md" if self.head.md.is_empty() || self.head.dialect == Dialect::V0_1 => {
                self.head.dialect = dialect;
                self.head.md = attributes;
                if self.head.md.get("capability").is_some() && self.head.capability().is_none() {
                    let name = self.head.md.get("capability").unwrap_or_default();
                    self.warnings.push(place.line, format_args!("the capability {name:?} is not known"));
                }
            }
            "md" => self.warnings.push(place.line, "a second rs:md of the document; ignored"),
            "ln" if self.head.links.len() < self.limits.links => {
                self.check_link(&attributes, place.line);
                self.head.links.push(Link(attributes));
            }
            "ln" => self.warnings.push(place.line, format_args!("more links than {} allows; ignored", bounds::LINKS)),
            _ => {}
        }
        Ok(())
    }

    fn entry_element(
        &mut self,
        local: &str,
        namespace: Namespace,
        start: &BytesStart<'_>,
        place: Place,
    ) -> Result<(), String> {
        let field = match (namespace, local) {
            (Namespace::Sitemap | Namespace::None, "loc") => Field::Loc,
            (Namespace::Sitemap | Namespace::None, "lastmod") => Field::LastMod,
            (Namespace::Sitemap | Namespace::None, "changefreq") => Field::ChangeFreq,
            (Namespace::Terms | Namespace::DLib, "md") => {
                let attributes = self.attributes(start, place.line)?;
                match self.entry.as_mut() {
                    Some(entry) if entry.md.is_empty() || self.said > 0 => {
                        self.said = 0;
                        entry.md = attributes;
                    }
                    _ => self.warnings.push(place.line, "a second rs:md of the entry; ignored"),
                }
                return Ok(());
            }
            (Namespace::Terms | Namespace::DLib, "ln") => {
                let attributes = self.attributes(start, place.line)?;
                self.check_link(&attributes, place.line);
                let room = self.limits.links;
                match self.entry.as_mut() {
                    Some(entry) if entry.links.len() < room => entry.links.push(Link(attributes)),
                    _ => self
                        .warnings
                        .push(place.line, format_args!("more links than {} allows; ignored", bounds::LINKS)),
                }
                return Ok(());
            }
            _ => return self.older_entry_element(local, namespace, start, place),
        };
        if !start.attributes_raw().is_empty() {
            self.older_field_attributes(field, start, place.line)?;
        }
        self.begin_text(field);
        Ok(())
    }

    /// The text of the element that begins is kept.
    fn begin_text(&mut self, field: Field) {
        self.field = Some(field);
        self.field_depth = self.depth;
        self.text.clear();
    }

    fn check_link(&mut self, attributes: &Attributes, line: u64) {
        if attributes.get("rel").is_none_or(|rel| rel.trim().is_empty()) {
            self.warnings.push(line, "rs:ln without rel; it says nothing");
        }
        match attributes.get("href").map(str::trim) {
            None | Some("") => self.warnings.push(line, "rs:ln without href; it leads nowhere"),
            Some(href) if !is_absolute(href) => {
                self.warnings.push(line, format_args!("href {href:?} is relative; taken as relative to the document"));
            }
            Some(_) => {}
        }
    }

    /// The attributes of an element, with namespace declarations left out.
    fn attributes(&mut self, start: &BytesStart<'_>, line: u64) -> Result<Attributes, String> {
        match plain::attributes(start.attributes_raw(), self.limits.attributes) {
            Some(attributes) => Ok(attributes),
            None => self.any_attributes(start, line),
        }
    }

    /// The attributes of any element, plain or not.
    fn any_attributes(&mut self, start: &BytesStart<'_>, line: u64) -> Result<Attributes, String> {
        let mut list = Attributes::default();
        for attribute in start.attributes() {
            let attribute = attribute.map_err(|error| error.to_string())?;
            let key = attribute.key.0;
            if key.starts_with("xmlns") && matches!(key.as_bytes().get(5), None | Some(b':')) {
                continue;
            }
            self.check_prefix(key)?;
            if list.len() == self.limits.attributes {
                self.warnings.push(line, "more attributes than are allowed; ignored");
                break;
            }
            list.push(names::attribute(key), &value(&attribute)?);
        }
        Ok(list)
    }

    /// Holds the attributes of an element that says nothing to us to well-formedness.
    fn check_attributes(&self, start: &BytesStart<'_>) -> Result<(), String> {
        if start.attributes_raw().trim_ascii().is_empty() {
            return Ok(());
        }
        for attribute in start.attributes() {
            let attribute = attribute.map_err(|error| error.to_string())?;
            self.check_prefix(attribute.key.0)?;
            value(&attribute)?;
        }
        Ok(())
    }

    fn check_prefix(&self, key: &str) -> Result<(), String> {
        match key.split_once(':') {
            Some((prefix, _)) if prefix != "xmlns" && self.scope.resolve(prefix).is_none() => {
                Err(format!("the namespace prefix {prefix:?} is not declared"))
            }
            _ => Ok(()),
        }
    }

    fn characters(&mut self, text: &str, place: Place) -> Result<(), String> {
        if let Some(forbidden) = forbidden(text) {
            return Err(format!("the character U+{:04X} is not allowed in XML", u32::from(forbidden)));
        }
        self.allowed_characters(text, place)
    }

    fn allowed_characters(&mut self, text: &str, place: Place) -> Result<(), String> {
        if self.depth == 0 && !text.trim_ascii().is_empty() {
            return Err("text stands outside the root element".to_owned());
        }
        if self.field.is_some() && self.depth == self.field_depth {
            if self.text.len() + text.len() > usize::try_from(self.limits.token).unwrap_or(usize::MAX) {
                return Err(format!("the text begun before line {} is larger than allowed", place.line));
            }
            self.text.push_str(text);
        }
        Ok(())
    }

    fn end(&mut self) -> Step {
        if self.field.is_some() && self.depth == self.field_depth {
            self.end_text();
        }
        let step = match self.depth {
            // What follows an item may be about it.
            2 if self.form == Form::Resync => Step::Nothing,
            1 if self.form == Form::Resync => self.give_held(),
            2 if self.said > 0 => {
                self.end_older_entry();
                self.end_entry()
            }
            2 => self.end_entry(),
            _ => Step::Nothing,
        };
        self.depth -= 1;
        self.scope.leave(self.depth);
        step
    }

    fn end_entry(&mut self) -> Step {
        match &self.entry {
            Some(entry) if entry.loc.is_empty() => {
                self.warnings.push(entry.line, "an entry without loc; passed over");
                self.entry = None;
                Step::Nothing
            }
            Some(_) => {
                self.entries += 1;
                Step::Entry
            }
            None => Step::Nothing,
        }
    }

    fn end_text(&mut self) {
        match (self.field.take(), self.entry.as_mut()) {
            (Some(Field::Older(field)), _) => self.keep_older(field),
            (Some(field), Some(entry)) => keep(entry, field, &self.text, &mut self.warnings),
            _ => {}
        }
    }
}

/// Puts the text of a field into its entry.
fn keep(entry: &mut Entry, field: Field, text: &str, warnings: &mut Warnings) {
    let trimmed = text.trim();
    match field {
        Field::Loc if !entry.loc.is_empty() => warnings.push(entry.line, "a second loc in the entry; ignored"),
        Field::Loc => {
            if trimmed.len() != text.len() {
                warnings.push(entry.line, "blanks around loc; trimmed");
            }
            if !trimmed.is_empty() && !is_absolute(trimmed) {
                warnings
                    .push(entry.line, format_args!("loc {trimmed:?} is relative; taken as relative to the document"));
            }
            trimmed.clone_into(&mut entry.loc);
        }
        Field::LastMod if entry.lastmod.is_none() => entry.lastmod = Some(trimmed.to_owned()),
        Field::ChangeFreq if entry.changefreq.is_none() => entry.changefreq = Some(trimmed.to_owned()),
        Field::LastMod | Field::ChangeFreq | Field::Older(_) => {
            warnings.push(entry.line, "a repeated element in the entry; ignored")
        }
    }
}

/// The first character that XML 1.0 does not allow.
fn forbidden(text: &str) -> Option<char> {
    text.chars().find(|c| matches!(c, '\0'..='\x08' | '\x0b' | '\x0c' | '\x0e'..='\x1f' | '\u{fffe}' | '\u{ffff}'))
}

fn value<'v>(attribute: &quick_xml::events::attributes::Attribute<'v>) -> Result<Cow<'v, str>, String> {
    if memchr::memchr(b'<', attribute.value.as_bytes()).is_some() {
        return Err(format!("the value of {} holds a <", attribute.key.0));
    }
    if let Some(forbidden) = forbidden(&attribute.value) {
        return Err(format!("the character U+{:04X} is not allowed in XML", u32::from(forbidden)));
    }
    attribute.normalized_value(XmlVersion::Implicit1_0).map_err(|error| format!("{}: {error}", attribute.key.0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reader(limits: Limits) -> Reader<'static> {
        Reader::open("<urlset xmlns:p='urn:p'>\n<url><loc>urn:x</loc></url></urlset>".as_bytes(), "u", limits)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// What is written after the name of an element: mostly attributes, some of them odd.
    fn written() -> impl Strategy<Value = String> {
        let name = prop::sample::select(vec![
            "hash", "length", "a", "a", "p:a", "q:a", "xmlns", "xmlns:p", "xmlnsa", "", "=", "a\"", "é", "a\u{1}", "<",
            "&",
        ]);
        let equals = prop::sample::select(vec!["=", "=", "=", "=", " =", "= ", "", "=="]);
        let quote = prop::sample::select(vec!["\"", "\"", "\"", "\"", "'", ""]);
        let value = prop::sample::select(vec![
            "", "x", "a b", "é", "\u{fffe}", "\u{ffff}", "\u{fffd}", "\u{ef00}", "\u{7f}", "\u{85}", "\u{0}", "\u{1f}",
            "\t", "\r\n", "\n", "&amp;", "&#9;", "&", "&x;", "<", ">", "'", "\"", "=", "%41", "xmlns",
        ]);
        let blank = prop::sample::select(vec![" ", " ", " ", "  ", "\n", "\t", "", "\u{a0}"]);
        let one = (blank, name, equals, quote, value)
            .prop_map(|(blank, name, equals, quote, value)| format!("{blank}{name}{equals}{quote}{value}{quote}"));
        let plain = (0..40_u8, "[ -~]{0,9}").prop_map(|(name, value)| format!(" a{name}=\"{value}\""));
        let all = prop::collection::vec(prop_oneof![1 => one, 3 => plain], 0..24);
        (all, prop::sample::select(vec!["", " ", "\n"])).prop_map(|(all, end)| all.concat() + end)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        #[test]
        fn plain_attributes_are_read_as_any_others_are(written in written(), most in 0..30_usize) {
            let written = if written.starts_with([' ', '\n', '\t']) { written } else { format!(" {written}") };
            let content = format!("e{written}");
            let start = BytesStart::from_content(content.as_str(), 1);
            let mut reader = reader(Limits { attributes: most, ..Limits::default() });
            let warnings = reader.warnings.count();
            let any = reader.any_attributes(&start, 1);
            if let Some(plain) = plain::attributes(&written, most) {
                prop_assert_eq!(any, Ok(plain));
                prop_assert_eq!(reader.warnings.count(), warnings);
                prop_assert!(reader.bind(&start).is_ok() && reader.check_attributes(&start).is_ok());
                prop_assert_eq!(reader.scope.0.len(), 1);
            }
        }

        #[test]
        fn plain_text_is_read_as_any_other_is(text in "[a\n\t\r\u{1}\u{1f}\u{7f}\u{85}é\u{fffd}\u{fffe}\u{ffff}\u{ef00}]{0,40}") {
            if plain::is_text(&text) {
                prop_assert_eq!(forbidden(&text), None);
                prop_assert_eq!(quick_xml::events::BytesText::from_escaped(text.as_str()).xml10_content(), text.as_str());
            }
        }
    }

    #[test]
    fn only_what_means_itself_is_plain() {
        for (written, plain) in [
            ("", true),
            (" ", true),
            (" a=\"\"", true),
            (" hash=\"x y\" b=\"'>é\" ", true),
            (" a=\"1\" a=\"2\"", false),
            (" a=\"1\"b=\"2\"", false),
            (" a='1'", false),
            (" a =\"1\"", false),
            (" a= \"1\"", false),
            (" a=\"1", false),
            (" a", false),
            (" =\"1\"", false),
            (" p:a=\"1\"", false),
            (" xmlns=\"1\"", false),
            (" a=\"&lt;\"", false),
            (" a=\"<\"", false),
            (" a=\"\n\"", false),
            (" a=\"\u{fffe}\"", false),
        ] {
            assert_eq!(plain::attributes(written, 100).is_some(), plain, "{written:?}");
        }
        for (text, plain) in [("", true), ("a\n\té", true), ("\r", false), ("\u{b}", false), ("\u{ffff}", false)] {
            assert_eq!(plain::is_text(text), plain, "{text:?}");
        }
    }
}
