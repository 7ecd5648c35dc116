//! From bytes as they came to UTF-8 text with a place: gzip, byte order marks, encodings, limits.

use std::io::{self, BufRead, BufReader, Read};

use encoding_rs_io::DecodeReaderBytesBuilder;
use flate2::bufread::MultiGzDecoder;

use crate::bounds::{self, Bounds};

/// What one document may cost.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The largest size in bytes, after decompression.
    pub document: u64,
    /// The largest size in bytes of one tag or one run of text.
    pub token: u64,
    /// The largest size in bytes of one entry, with all that is in it.
    pub entry: u64,
    /// The most links an entry may have; more are passed over.
    pub links: usize,
    /// The most attributes an element may have; more are passed over.
    pub attributes: usize,
    /// How deep elements may lie in one another.
    pub depth: usize,
}

impl Limits {
    /// What a mount with these bounds takes.
    #[must_use]
    pub fn of(bounds: &Bounds) -> Self {
        let (token, links) = (1 << 20, bounds::count(bounds.links));
        // Some hundred bytes for each link, and as much as one tag for all else.
        let entry = token + (bounds.links << 9);
        Self { document: bounds.document, token, entry, links, attributes: 100, depth: 64 }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::of(&Bounds::default())
    }
}

const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Whether the first bytes of a document are those of an HTML page.
#[must_use]
pub fn looks_like_html(start: &[u8]) -> bool {
    let text = String::from_utf8_lossy(&start[..start.len().min(1024)]).to_ascii_lowercase();
    let text = text.trim_start_matches('\u{feff}').trim_start();
    text.starts_with("<!doctype html")
        || text.starts_with("<html")
        || (text.contains("<html") && !text.contains("<urlset"))
}

/// Undoes gzip, known by its magic bytes and by nothing else, and transcodes what is not UTF-8.
///
/// The encoding is that of a byte order mark, else `charset` (RFC 7303, 3), else that of the XML declaration.
pub(super) fn text<'a>(
    source: impl Read + 'a,
    charset: Option<&str>,
    notes: &mut Vec<String>,
) -> io::Result<Box<dyn Read + 'a>> {
    let mut source: Box<dyn BufRead + 'a> = Box::new(BufReader::with_capacity(128 << 10, source));
    for layer in 0..3 {
        if !starts_with(source.as_mut(), &GZIP)? {
            break;
        }
        match layer {
            0 => {}
            1 => notes.push("the document was compressed twice".to_owned()),
            _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "the document is compressed more than twice")),
        }
        source = Box::new(BufReader::with_capacity(128 << 10, MultiGzDecoder::new(source)));
    }
    let start = source.fill_buf()?;
    let label = if start.starts_with(&[0xef, 0xbb, 0xbf]) {
        notes.push("a byte order mark stands before the document".to_owned());
        None
    } else if start.starts_with(&[0xff, 0xfe]) || start.starts_with(&[0xfe, 0xff]) {
        notes.push("the document is in UTF-16".to_owned());
        None
    } else {
        let charset = charset.map(str::trim).filter(|label| !label.is_empty());
        match charset.map_or_else(|| declared_encoding(start), unless_utf8) {
            None => return Ok(source),
            Some(label) => {
                notes.push(format!("the document is in {label}, not in UTF-8"));
                Some(label)
            }
        }
    };
    let encoding = match &label {
        None => None,
        Some(label) => Some(encoding_rs_io_label(label)?),
    };
    Ok(Box::new(DecodeReaderBytesBuilder::new().encoding(encoding).bom_override(true).strip_bom(true).build(source)))
}

fn starts_with(source: &mut dyn BufRead, magic: &[u8]) -> io::Result<bool> {
    Ok(source.fill_buf()?.starts_with(magic))
}

fn encoding_rs_io_label(label: &str) -> io::Result<&'static encoding_rs::Encoding> {
    encoding_rs::Encoding::for_label(label.as_bytes())
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("the encoding {label:?} is not known")))
}

/// The encoding an XML declaration names, unless it is UTF-8 or a part of it.
fn declared_encoding(start: &[u8]) -> Option<String> {
    let declaration = start.strip_prefix(b"<?xml")?;
    let end = memchr::memchr(b'>', declaration)?;
    let declaration = std::str::from_utf8(&declaration[..end]).ok()?;
    let value = declaration.split_once("encoding")?.1.trim_start().strip_prefix('=')?.trim_start();
    let quote = value.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
    unless_utf8(value[1..].split(quote).next()?.trim())
}

/// The name of an encoding, unless it is UTF-8 or a part of it.
fn unless_utf8(label: &str) -> Option<String> {
    let plain = label.to_ascii_lowercase();
    (!matches!(plain.as_str(), "utf-8" | "utf8" | "us-ascii" | "ascii" | "")).then(|| label.to_owned())
}

/// Counts lines, and holds a document and each token in it to their limits.
pub(super) struct Counted<'a> {
    inner: BufReader<Box<dyn Read + 'a>>,
    /// How many bytes of the buffer that come next hold no line feed; so most tokens are not searched for one.
    in_line: usize,
    consumed: u64,
    line: u64,
    line_start: u64,
    token_start: u64,
    entry_start: Option<u64>,
    document_limit: u64,
    token_limit: u64,
    entry_limit: u64,
}

/// A place in a document, counted from 1; columns are bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) line: u64,
    pub(super) column: u64,
}

impl<'a> Counted<'a> {
    pub(super) fn new(inner: Box<dyn Read + 'a>, limits: &Limits) -> Self {
        Self {
            inner: BufReader::with_capacity(128 << 10, inner),
            in_line: 0,
            consumed: 0,
            line: 1,
            line_start: 0,
            token_start: 0,
            entry_start: None,
            document_limit: limits.document,
            token_limit: limits.token,
            entry_limit: limits.entry,
        }
    }

    /// Where reading stands.
    pub(super) fn place(&self) -> Place {
        Place { line: self.line, column: self.consumed - self.line_start + 1 }
    }

    /// Counts the lines that end in the next bytes, and looks for where the one after them does.
    fn pass_lines(&mut self, count: usize) {
        let buffer = self.inner.buffer();
        let mut at = self.in_line;
        loop {
            let end = memchr::memchr(b'\n', &buffer[at..]).map_or(buffer.len(), |ahead| at + ahead);
            if end >= count {
                self.in_line = end - count;
                return;
            }
            at = end + 1;
            self.line += 1;
            self.line_start = self.consumed + at as u64;
        }
    }

    /// A new token begins here, within an entry or not.
    pub(super) fn mark(&mut self, in_entry: bool) {
        self.token_start = self.consumed;
        self.entry_start = in_entry.then(|| self.entry_start.unwrap_or(self.consumed));
    }

    /// How many bytes were read.
    pub(super) fn consumed(&self) -> u64 {
        self.consumed
    }
}

impl Read for Counted<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let count = available.len().min(out.len());
        out[..count].copy_from_slice(&available[..count]);
        self.consume(count);
        Ok(count)
    }
}

impl BufRead for Counted<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.consumed > self.document_limit {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("the document is larger than the {} bytes allowed ({})", self.document_limit, bounds::DOCUMENT),
            ));
        }
        if self.consumed - self.token_start > self.token_limit {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("one tag or text is larger than the {} bytes allowed", self.token_limit),
            ));
        }
        if self.entry_start.is_some_and(|start| self.consumed - start > self.entry_limit) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("one entry is larger than the {} bytes allowed ({})", self.entry_limit, bounds::LINKS),
            ));
        }
        self.inner.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        match self.in_line.checked_sub(count) {
            Some(rest) => self.in_line = rest,
            None => self.pass_lines(count),
        }
        self.consumed += count as u64;
        self.inner.consume(count);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_place_is_that_of_a_count_from_the_start(text in "[a\n]{0,60}", steps in prop::collection::vec(0..9_usize, 0..40)) {
            let mut counted = Counted::new(Box::new(text.as_bytes()), &Limits::default());
            // A buffer so small that steps end at its end, and lines lie across it.
            counted.inner = BufReader::with_capacity(7, Box::new(text.as_bytes()));
            let mut passed = 0;
            for step in steps {
                let step = counted.fill_buf().map_or(0, <[u8]>::len).min(step);
                counted.consume(step);
                passed += step;
                let before = &text[..passed];
                let line = before.matches('\n').count() as u64 + 1;
                let column = (passed - before.rfind('\n').map_or(0, |at| at + 1)) as u64 + 1;
                prop_assert_eq!((counted.place().line, counted.place().column), (line, column));
            }
        }
    }
}
