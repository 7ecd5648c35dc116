//! JSON text as a tree that keeps how it was written.
//!
//! `serde_json`'s values do not serve here: they forget white space and escapes, their removal reorders keys, and the
//! features that would keep key order and numbers change the type for the whole crate. So this tree's scalars are spans
//! of the text they were read from, and its containers know the white space around their members. What is written of
//! it is the concern of [`super::json_style`], what is done to it of [`super::json_ops`].

use super::{Document, MOST_DEPTH, MOST_DIGITS, MOST_NODES, PatchError, line_at, within};
use std::borrow::Cow;

/// A stretch of a [`Text`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    at: u32,
    len: u32,
}

impl Span {
    /// For white space of which nothing is known, since its member was not written where it is now.
    pub(super) const NONE: Self = Self { at: u32::MAX, len: 0 };

    fn new(from: usize, to: usize) -> Self {
        // Both documents together stay below 4 GiB: see `Bounds::patch`.
        let narrow = |offset: usize| u32::try_from(offset).unwrap_or(u32::MAX - 1);
        Self { at: narrow(from), len: narrow(to.saturating_sub(from)) }
    }

    pub(super) fn is_known(self) -> bool {
        self != Self::NONE
    }
}

/// The text of both documents, one after the other, into which spans point.
#[derive(Debug)]
pub(super) struct Text {
    /// The old version, the patch, and keys that were named by JSON Pointers.
    all: String,
    /// Where the patch begins.
    patch_at: usize,
    /// Where the patch ends.
    patch_end: usize,
}

impl Text {
    /// Takes both documents, without their byte order marks.
    pub(super) fn new(old: &[u8], patch: &[u8]) -> Result<Self, PatchError> {
        let mut all = String::with_capacity(old.len() + patch.len());
        all.push_str(utf8(Document::Old, old)?);
        let patch_at = all.len();
        all.push_str(utf8(Document::Patch, patch)?);
        let patch_end = all.len();
        Ok(Self { all, patch_at, patch_end })
    }

    pub(super) fn get(&self, span: Span) -> &str {
        let at = span.at as usize;
        self.all.get(at..at + span.len as usize).unwrap_or_default()
    }

    /// The text of one of the documents.
    pub(super) fn get_document(&self, document: Document) -> &str {
        let range = if document == Document::Old { 0..self.patch_at } else { self.patch_at..self.patch_end };
        self.all.get(range).unwrap_or_default()
    }

    /// Makes a key that was named by a JSON Pointer a token.
    pub(super) fn add_key(&mut self, key: &str) -> Span {
        let from = self.all.len();
        self.all.push('"');
        for char in key.chars() {
            match char {
                '"' | '\\' => self.all.extend(['\\', char]),
                '\0'..='\u{1F}' => self.all.push_str(&format!("\\u{:04x}", u32::from(char))),
                _ => self.all.push(char),
            }
        }
        self.all.push('"');
        Span::new(from, self.all.len())
    }

    /// Whether a token came with the patch.
    pub(super) fn is_new(&self, span: Span) -> bool {
        span.at as usize >= self.patch_at
    }

    /// Reads one of the documents.
    pub(super) fn read(&self, document: Document) -> Result<Tree, PatchError> {
        let text = self.get_document(document);
        let start = if document == Document::Old { 0 } else { self.patch_at };
        let end = start + text.len();
        let mut reader =
            Reader { text: self.all.get(..end).unwrap_or_default(), start, pos: start, document, values: 0 };
        let lead = reader.space();
        let root = reader.value()?;
        let trail = reader.space();
        if reader.pos < end {
            return Err(reader.error("there is more after the value"));
        }
        Ok(Tree { root, lead, trail, values: reader.values })
    }
}

fn utf8(document: Document, bytes: &[u8]) -> Result<&str, PatchError> {
    let bytes = bytes.strip_prefix(BOM).unwrap_or(bytes);
    std::str::from_utf8(bytes).map_err(|error| {
        let line = bytes.iter().take(error.valid_up_to()).filter(|&&byte| byte == b'\n').count() + 1;
        PatchError::Syntax { document, line, why: "it is not UTF-8, as JSON has to be".to_owned() }
    })
}

/// UTF-8's byte order mark.
pub(super) const BOM: &[u8] = b"\xEF\xBB\xBF";

/// A JSON document.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    pub(super) root: Value,
    /// The white space before the value.
    pub(super) lead: Span,
    /// The white space after the value.
    pub(super) trail: Span,
    /// How many values there were.
    pub(super) values: usize,
}

/// A JSON value.
#[derive(Debug, Clone)]
pub(super) enum Value {
    /// A string with its quotes, a number, or one of the three names.
    Scalar(Span),
    Array(Box<Items>),
    Object(Box<Items>),
}

/// What is in an array or an object.
#[derive(Debug, Clone)]
pub(super) struct Items {
    pub(super) members: Vec<Member>,
    /// The white space after the opening bracket.
    pub(super) open: Span,
    /// The white space before the closing bracket; unknown if there were no members.
    pub(super) close: Span,
    /// The depth at which the old version has this container, if its white space is to be kept.
    pub(super) depth: Option<u16>,
}

/// A member of an object, or an element of an array: that has no key.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) key: Span,
    /// The white space after the comma before it; unknown for the first.
    pub(super) before: Span,
    /// The colon and the white space on both sides of it.
    pub(super) colon: Span,
    /// The white space before the comma after it; unknown for the last.
    pub(super) after: Span,
    pub(super) value: Value,
}

impl Member {
    fn blank() -> Self {
        Self::new(Span::NONE, Value::Scalar(Span::NONE))
    }

    /// A member of which the white space is yet to be chosen.
    pub(super) fn new(key: Span, value: Value) -> Self {
        Self { key, before: Span::NONE, colon: Span::NONE, after: Span::NONE, value }
    }
}

impl Value {
    pub(super) fn items(&self) -> Option<&Items> {
        match self {
            Self::Scalar(_) => None,
            Self::Array(items) | Self::Object(items) => Some(items),
        }
    }

    pub(super) fn items_mut(&mut self) -> Option<&mut Items> {
        match self {
            Self::Scalar(_) => None,
            Self::Array(items) | Self::Object(items) => Some(items),
        }
    }

    /// How many values this is, and how deep they are nested: a scalar is 1 and 0.
    pub(super) fn extent(&self) -> (usize, usize) {
        let Some(items) = self.items() else { return (1, 0) };
        items.members.iter().fold((1, 1), |(count, height), member| {
            let (more, inner) = member.value.extent();
            (count + more, height.max(inner + 1))
        })
    }

    /// How many bytes the tokens of this have.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Scalar(token) => token.len as usize,
            Self::Array(items) | Self::Object(items) => {
                items.members.iter().map(|member| member.key.len as usize + member.value.bytes() + 2).sum()
            }
        }
    }
}

/// The string that a string token stands for.
///
/// A lone surrogate, which no string here can hold, is read as U+FFFD.
pub(super) fn decode(token: &str) -> Cow<'_, str> {
    let inner = token.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(token);
    if !inner.contains('\\') {
        return Cow::Borrowed(inner);
    }
    let mut units: Vec<u16> = Vec::new();
    let mut decoded = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(at) = rest.find('\\') {
        let (plain, escape) = rest.split_at(at);
        if !plain.is_empty() {
            flush(&mut units, &mut decoded);
            decoded.push_str(plain);
        }
        let mut chars = escape.chars();
        chars.next();
        let named = match chars.next() {
            Some('u') => None,
            Some('b') => Some('\u{8}'),
            Some('f') => Some('\u{c}'),
            Some('n') => Some('\n'),
            Some('r') => Some('\r'),
            Some('t') => Some('\t'),
            other => other,
        };
        let length = match named {
            Some(named) => {
                flush(&mut units, &mut decoded);
                decoded.push(named);
                2
            }
            None => {
                let unit = escape.get(2..6).and_then(|digits| u16::from_str_radix(digits, 16).ok());
                units.push(unit.unwrap_or(0xFFFD));
                6
            }
        };
        rest = escape.get(length..).unwrap_or_default();
    }
    flush(&mut units, &mut decoded);
    decoded.push_str(rest);
    Cow::Owned(decoded)
}

/// Moves UTF-16 units, which escapes may have split into two, to the string.
fn flush(units: &mut Vec<u16>, decoded: &mut String) {
    decoded.extend(char::decode_utf16(units.drain(..)).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)));
}

/// An array or an object being read.
struct Container {
    items: Items,
    is_object: bool,
    /// The member whose value is being read.
    next: Member,
}

impl Container {
    fn end(&self) -> u8 {
        if self.is_object { b'}' } else { b']' }
    }

    fn into_value(self) -> Value {
        let items = Box::new(self.items);
        if self.is_object { Value::Object(items) } else { Value::Array(items) }
    }
}

/// Reads JSON (RFC 8259).
struct Reader<'t> {
    /// The text up to the document's end; spans count from its beginning.
    text: &'t str,
    /// Where the document begins.
    start: usize,
    pos: usize,
    document: Document,
    values: usize,
}

impl Reader<'_> {
    fn error(&self, why: impl Into<String>) -> PatchError {
        let text = self.text.get(self.start..).unwrap_or_default();
        PatchError::Syntax { document: self.document, line: line_at(text, self.pos - self.start), why: why.into() }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.pos).copied()
    }

    fn eat(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.pos += usize::from(there);
        there
    }

    fn skip(&mut self, wanted: impl Fn(u8) -> bool) -> usize {
        let from = self.pos;
        while self.peek().is_some_and(&wanted) {
            self.pos += 1;
        }
        self.pos - from
    }

    fn space(&mut self) -> Span {
        let from = self.pos;
        self.skip(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
        Span::new(from, self.pos)
    }

    /// Reads a value, with its containers on a stack of their own, since a thread's is short.
    fn value(&mut self) -> Result<Value, PatchError> {
        let mut open: Vec<Container> = Vec::new();
        loop {
            let mut value = match self.peek() {
                Some(begin @ (b'{' | b'[')) => {
                    self.count()?;
                    within("the depth of nesting", open.len() + 1, MOST_DEPTH)?;
                    let depth = if self.document == Document::Old { u16::try_from(open.len()).ok() } else { None };
                    self.pos += 1;
                    let items = Items { members: Vec::new(), open: self.space(), close: Span::NONE, depth };
                    let mut container = Container { items, is_object: begin == b'{', next: Member::blank() };
                    if !self.eat(container.end()) {
                        self.key(&mut container)?;
                        open.push(container);
                        continue;
                    }
                    container.into_value()
                }
                _ => self.scalar()?,
            };
            loop {
                let Some(container) = open.last_mut() else { return Ok(value) };
                container.next.value = value;
                let space = self.space();
                let mut member = std::mem::replace(&mut container.next, Member::blank());
                if self.eat(b',') {
                    member.after = space;
                    container.items.members.push(member);
                    container.next.before = self.space();
                    self.key(container)?;
                    break;
                }
                if !self.eat(container.end()) {
                    let end = char::from(container.end());
                    return Err(self.error(format!("a comma or a \"{end}\" is expected")));
                }
                container.items.members.push(member);
                container.items.close = space;
                let Some(container) = open.pop() else { return Ok(Value::Scalar(Span::NONE)) };
                value = container.into_value();
            }
        }
    }

    fn count(&mut self) -> Result<(), PatchError> {
        self.values += 1;
        within("the number of values in a document", self.values, MOST_NODES)
    }

    fn scalar(&mut self) -> Result<Value, PatchError> {
        self.count()?;
        let from = self.pos;
        match self.peek() {
            Some(b'"') => self.string()?,
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ => {
                let rest = self.text.get(self.pos..).unwrap_or_default();
                let name = ["true", "false", "null"].into_iter().find(|name| rest.starts_with(name));
                self.pos += name.ok_or_else(|| self.error("a value is expected"))?.len();
            }
        }
        Ok(Value::Scalar(Span::new(from, self.pos)))
    }

    /// Reads the next member's key, and its colon, if the container is an object.
    fn key(&mut self, container: &mut Container) -> Result<(), PatchError> {
        if !container.is_object {
            return Ok(());
        }
        let from = self.pos;
        if self.peek() != Some(b'"') {
            return Err(self.error("a key is expected"));
        }
        self.string()?;
        container.next.key = Span::new(from, self.pos);
        let from = self.pos;
        self.space();
        if !self.eat(b':') {
            return Err(self.error("a colon is expected after a key"));
        }
        self.space();
        container.next.colon = Span::new(from, self.pos);
        Ok(())
    }

    fn string(&mut self) -> Result<(), PatchError> {
        self.pos += 1;
        loop {
            self.skip(|byte| !matches!(byte, b'"' | b'\\' | 0..=0x1F));
            match self.peek() {
                Some(b'"') => {
                    self.pos += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    self.pos += 1;
                    match self.peek() {
                        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.pos += 1,
                        Some(b'u') => {
                            self.pos += 1;
                            let from = self.pos;
                            while self.pos < from + 4 && self.peek().is_some_and(|byte| byte.is_ascii_hexdigit()) {
                                self.pos += 1;
                            }
                            if self.pos < from + 4 {
                                return Err(self.error("\\u is not followed by four hexadecimal digits"));
                            }
                        }
                        _ => return Err(self.error("a backslash begins no escape that is known")),
                    }
                }
                Some(_) => return Err(self.error("a control character is in a string")),
                None => return Err(self.error("a string has no end")),
            }
        }
    }

    fn number(&mut self) -> Result<(), PatchError> {
        let from = self.pos;
        self.eat(b'-');
        let whole = if self.eat(b'0') { 1 } else { self.digits() };
        let fraction = if self.eat(b'.') { self.digits() } else { 1 };
        let exponent = if self.eat(b'e') || self.eat(b'E') {
            if !self.eat(b'+') {
                self.eat(b'-');
            }
            self.digits()
        } else {
            1
        };
        if whole == 0 || fraction == 0 || exponent == 0 {
            return Err(self.error("digits are missing in a number"));
        }
        within("the length of a number", self.pos - from, MOST_DIGITS)
    }

    fn digits(&mut self) -> usize {
        self.skip(|byte| byte.is_ascii_digit())
    }
}
