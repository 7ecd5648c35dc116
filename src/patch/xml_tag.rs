//! What is within a tag, and what is in text: as it is written, and what it stands for.

use std::borrow::Cow;
use std::ops::Range;

/// The namespace that the prefix `xml` always has.
pub(super) const XML_NAMESPACE: &str = "http://www.w3.org/XML/1998/namespace";

/// An attribute, or a namespace declaration, in a start tag.
#[derive(Debug, Clone)]
pub(super) struct Attribute<'t> {
    pub(super) name: &'t str,
    /// The value as it is written.
    pub(super) raw: &'t str,
    pub(super) quote: char,
    /// Where it is in the tag, with the white space before it.
    pub(super) whole: Range<usize>,
    /// Where the value is in the tag.
    pub(super) value: Range<usize>,
}

impl<'t> Attribute<'t> {
    /// The value that it stands for.
    pub(super) fn value(&self) -> Cow<'t, str> {
        if self.raw.contains(['&', '\t', '\n', '\r']) {
            // Line ends and tabs are spaces in an attribute, unless they are references.
            let spaced = self.raw.replace("\r\n", " ").replace(['\t', '\n', '\r'], " ");
            Cow::Owned(unescape(&spaced).into_owned())
        } else {
            Cow::Borrowed(self.raw)
        }
    }

    /// The prefix that it declares, if it is a namespace declaration; empty for the default namespace.
    pub(super) fn declares(&self) -> Option<&'t str> {
        if self.name == "xmlns" { Some("") } else { self.name.strip_prefix("xmlns:") }
    }
}

/// The name in a start tag.
pub(super) fn name(tag: &str) -> &str {
    let inner = tag.strip_prefix('<').unwrap_or(tag);
    let end = inner.find(|char: char| is_space(char) || char == '/' || char == '>').unwrap_or(inner.len());
    inner.get(..end).unwrap_or_default()
}

/// A qualified name's prefix, which may be empty, and local part.
pub(super) fn split(name: &str) -> (&str, &str) {
    name.split_once(':').unwrap_or(("", name))
}

/// XML's white space.
pub(super) fn is_space(char: char) -> bool {
    matches!(char, ' ' | '\t' | '\n' | '\r')
}

/// The attributes of a start tag, up to where something is wrong.
pub(super) fn attributes(tag: &str) -> impl Iterator<Item = Attribute<'_>> {
    attributes_or_error(tag).map_while(Result::ok)
}

/// The attributes of a start tag; `Err` is for what is wrong with the next.
pub(super) fn attributes_or_error(tag: &str) -> impl Iterator<Item = Result<Attribute<'_>, &'static str>> {
    let mut at = name(tag).len() + 1;
    std::iter::from_fn(move || {
        let from = at;
        let rest = tag.get(from..)?;
        let body = rest.trim_start_matches(is_space);
        if matches!(body, "" | ">" | "/>") {
            return None;
        }
        // The next call finds the end, so that an error is given once.
        at = tag.len();
        if body.len() == rest.len() {
            return Some(Err("white space is missing before an attribute"));
        }
        let Some((name, value)) = body.split_once('=') else { return Some(Err("an attribute has no value")) };
        let name = name.trim_end_matches(is_space);
        let value = value.trim_start_matches(is_space);
        if name.is_empty() || name.contains(|char: char| is_space(char) || "<>&\"'/".contains(char)) {
            return Some(Err("an attribute has no proper name"));
        }
        let Some(quote) = value.chars().next().filter(|quote| matches!(quote, '"' | '\'')) else {
            return Some(Err("an attribute's value is not in quotes"));
        };
        let Some((raw, after)) = value.get(1..).and_then(|inner| inner.split_once(quote)) else {
            return Some(Err("an attribute's value has no end"));
        };
        if raw.contains('<') {
            return Some(Err("a \"<\" is in an attribute's value"));
        }
        at = tag.len() - after.len();
        let value = at - 1 - raw.len()..at - 1;
        Some(Ok(Attribute { name, raw, quote, whole: from..at, value }))
    })
}

/// An attribute by its name as it is written.
pub(super) fn attribute<'t>(tag: &'t str, name: &str) -> Option<Attribute<'t>> {
    attributes(tag).find(|attribute| attribute.name == name)
}

/// A start tag with one stretch of it replaced.
pub(super) fn spliced(tag: &str, range: Range<usize>, with: &str) -> String {
    let (before, after) = (tag.get(..range.start).unwrap_or_default(), tag.get(range.end..).unwrap_or_default());
    [before, with, after].concat()
}

/// A start tag with an attribute put in: a namespace declaration after the last of its kind, others at the end.
pub(super) fn with_attribute(tag: &str, name: &str, raw: &str, quote: char) -> String {
    let is_declaration = name == "xmlns" || name.starts_with("xmlns:");
    let last = attributes(tag).filter(|one| !is_declaration || one.declares().is_some()).last();
    let at = last.map_or(self::name(tag).len() + 1, |one| one.whole.end);
    spliced(tag, at..at, &format!(" {name}={quote}{raw}{quote}"))
}

/// Text as it is to stand in an attribute's value in such quotes; references in it stay.
pub(super) fn to_attribute(raw: &str, quote: char) -> String {
    let quoted = raw.replace(quote, if quote == '"' { "&quot;" } else { "&apos;" });
    quoted.replace('\t', "&#9;").replace('\n', "&#10;").replace('\r', "&#13;")
}

/// The references in a text: each with its place, from the ampersand to the semicolon, and the name between.
pub(super) fn references(raw: &str) -> impl Iterator<Item = Result<(Range<usize>, &str), &'static str>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = raw.get(at..)?;
        let from = at + rest.find('&')?;
        let inner = raw.get(from + 1..)?;
        let end = inner.find(|char: char| char == ';' || char == '&' || char == '<' || is_space(char));
        let Some(end) = end.filter(|&end| end > 0 && inner.get(end..).is_some_and(|rest| rest.starts_with(';'))) else {
            at = raw.len();
            return Some(Err("an \"&\" begins no reference"));
        };
        at = from + end + 2;
        Some(Ok((from..at, inner.get(..end).unwrap_or_default())))
    })
}

/// The character that a reference stands for without any declaration.
pub(super) fn resolve(name: &str) -> Option<char> {
    match name {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => {
            let digits = name.strip_prefix('#')?;
            let code = match digits.strip_prefix('x') {
                Some(hex) => u32::from_str_radix(hex, 16),
                None => digits.parse(),
            };
            char::from_u32(code.ok()?)
        }
    }
}

/// Text with its references resolved; those to entities stay as they are.
pub(super) fn unescape(raw: &str) -> Cow<'_, str> {
    if !raw.contains('&') {
        return Cow::Borrowed(raw);
    }
    let mut text = String::with_capacity(raw.len());
    let mut done = 0;
    for (range, name) in references(raw).map_while(Result::ok) {
        if let Some(char) = resolve(name) {
            text.push_str(raw.get(done..range.start).unwrap_or_default());
            text.push(char);
            done = range.end;
        }
    }
    text.push_str(raw.get(done..).unwrap_or_default());
    Cow::Owned(text)
}

/// A stretch of a text node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stretch<'t> {
    /// Characters and references.
    Plain(&'t str),
    /// What is within a CDATA section.
    Cdata(&'t str),
}

/// The stretches of a text node as it is written.
pub(super) fn stretches(raw: &str) -> impl Iterator<Item = Stretch<'_>> {
    let mut rest = raw;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        if let Some(inner) = rest.strip_prefix(CDATA) {
            let (inner, after) = inner.split_once("]]>").unwrap_or((inner, ""));
            rest = after;
            return Some(Stretch::Cdata(inner));
        }
        let (plain, after) = rest.split_at(rest.find(CDATA).unwrap_or(rest.len()));
        rest = after;
        Some(Stretch::Plain(plain))
    })
}

/// What begins a CDATA section.
pub(super) const CDATA: &str = "<![CDATA[";

/// What a text node stands for.
pub(super) fn string_value(raw: &str) -> Cow<'_, str> {
    if !raw.contains(['&', '<', '\r']) {
        return Cow::Borrowed(raw);
    }
    let mut text = String::with_capacity(raw.len());
    for stretch in stretches(raw) {
        match stretch {
            Stretch::Plain(plain) => text.push_str(&unescape(&line_ends(plain))),
            Stretch::Cdata(inner) => text.push_str(&line_ends(inner)),
        }
    }
    Cow::Owned(text)
}

/// Text with the line ends that every reader of XML makes of all others.
pub(super) fn line_ends(text: &str) -> Cow<'_, str> {
    if text.contains('\r') { Cow::Owned(text.replace("\r\n", "\n").replace('\r', "\n")) } else { Cow::Borrowed(text) }
}
