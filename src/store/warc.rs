//! WARC files (ISO 28500): the records of one, from the first to the last, with what was served of each resource.
//!
//! Compressed or not, the file is read as a stream; no more than the head of one record is held. What a head says is bounded
//! by 64 KiB, and what a body unfolds to by whoever reads it.

use std::io::{self, BufRead, Read};

use thiserror::Error;

/// The most bytes of the head of a record, or of a response.
const HEAD: usize = 64 << 10;
/// The most fields of a head.
const FIELDS: usize = 256;
/// The most bytes of the line that says how long a chunk is.
const CHUNK_LINE: usize = 4 << 10;

/// Why a WARC file cannot be read on.
#[derive(Debug, Error)]
pub enum WarcError {
    /// It is none, or is damaged.
    #[error("it is not a WARC file, or is damaged: {0}")]
    Damaged(String),
    /// The file could not be read.
    #[error("{0}")]
    Io(#[from] io::Error),
}

fn damaged<T>(problem: impl Into<String>) -> Result<T, WarcError> {
    Err(WarcError::Damaged(problem.into()))
}

/// The head of a record (ISO 28500, 5).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// `WARC-Type`: `response`, `resource`, `warcinfo` and so on.
    pub kind: String,
    /// `WARC-Target-URI`, where there is one.
    pub uri: Option<String>,
    /// `WARC-Date`, as written.
    pub date: Option<String>,
    /// `WARC-Payload-Digest`, as written.
    pub digest: Option<String>,
    /// `Content-Type` of the record itself.
    pub media: Option<String>,
    /// Whether not all of what was served is in it (`WARC-Truncated`).
    pub truncated: bool,
    /// `Content-Length`: bytes of the block.
    pub length: u64,
}

/// What a record has of its resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Payload {
    /// The media type.
    pub media: Option<String>,
    /// `Last-Modified` as HTTP writes it, if a server said so.
    pub last_modified: Option<String>,
    /// The content coding of the bytes.
    pub encoding: Option<String>,
    chunked: bool,
}

impl Payload {
    /// Whether the bytes are compressed for the transfer.
    #[must_use]
    pub fn is_gzip(&self) -> bool {
        self.encoding
            .as_deref()
            .is_some_and(|coding| coding.eq_ignore_ascii_case("gzip") || coding.eq_ignore_ascii_case("x-gzip"))
    }
}

/// The records of a file.
#[derive(Debug)]
pub struct Records<R> {
    input: R,
    /// What is left of the block of the record that was given out last.
    left: u64,
}

impl<R: BufRead> Records<R> {
    /// Reads a file that is not compressed, or no more.
    pub fn new(input: R) -> Self {
        Self { input, left: 0 }
    }

    /// The next record; none at the end of the file.
    ///
    /// # Errors
    /// If what comes next is no record.
    pub fn next_record(&mut self) -> Result<Option<Record>, WarcError> {
        self.skip()?;
        let head = unfolded(self.head(false)?);
        if head.is_empty() {
            return Ok(None);
        }
        let end_of_line = head.iter().position(|byte| *byte == b'\n').map_or(head.len(), |at| at + 1);
        if !head.starts_with(b"WARC/") {
            return damaged("a record does not begin with WARC/");
        }
        let mut fields = [httparse::EMPTY_HEADER; FIELDS];
        let fields = match httparse::parse_headers(&head[end_of_line..], &mut fields) {
            Ok(httparse::Status::Complete((_, fields))) => fields,
            Ok(httparse::Status::Partial) => return damaged("the head of a record is cut short"),
            Err(error) => return damaged(format!("the head of a record: {error}")),
        };
        let field = |name: &str| value(fields, name);
        let Some(length) = field("content-length").and_then(|text| text.parse().ok()) else {
            return damaged("a record does not say how long it is");
        };
        self.left = length;
        Ok(Some(Record {
            kind: field("warc-type").unwrap_or_default().to_ascii_lowercase(),
            // Some writers put it between angle brackets, as an early draft did.
            uri: field("warc-target-uri").map(|uri| uri.trim_matches(['<', '>']).to_owned()),
            date: field("warc-date"),
            digest: field("warc-payload-digest"),
            media: field("content-type"),
            truncated: field("warc-truncated").is_some(),
            length,
        }))
    }

    /// What the record that was given out last has of its resource; none if it has none that was served in full: requests,
    /// notes, redirects, errors, and records that only say that nothing has changed.
    ///
    /// # Errors
    /// If the head of a response cannot be read.
    pub fn payload(&mut self, record: &Record) -> Result<Option<Payload>, WarcError> {
        if record.truncated || record.uri.is_none() {
            return Ok(None);
        }
        match record.kind.as_str() {
            "resource" => Ok(Some(Payload { media: record.media.clone(), ..Payload::default() })),
            "response" if record.media.as_deref().is_some_and(|media| media.starts_with("application/http")) => {
                let mut head = self.head(true)?;
                if let [b'H', b'T', b'T', b'P', b'/', b'2' | b'3', b' ', ..] = head.as_slice() {
                    // Written by who had it in frames.
                    head.splice(5..6, *b"1.1");
                }
                let mut fields = [httparse::EMPTY_HEADER; FIELDS];
                let mut response = httparse::Response::new(&mut fields);
                let mut lenient = httparse::ParserConfig::default();
                lenient
                    .allow_obsolete_multiline_headers_in_responses(true)
                    .allow_spaces_after_header_name_in_responses(true)
                    .ignore_invalid_headers_in_responses(true);
                match lenient.parse_response(&mut response, &head) {
                    Ok(httparse::Status::Complete(_)) => {}
                    Ok(httparse::Status::Partial) => return damaged("the head of a response is cut short"),
                    Err(error) => return damaged(format!("the head of a response: {error}")),
                }
                if response.code != Some(200) {
                    return Ok(None);
                }
                let field = |name: &str| value(response.headers, name).filter(|text| !text.is_empty());
                let said = field("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"));
                Ok(Some(Payload {
                    media: field("content-type"),
                    last_modified: field("last-modified"),
                    encoding: field("content-encoding").filter(|coding| !coding.eq_ignore_ascii_case("identity")),
                    // Many keep the field, and the body without its chunks.
                    chunked: said && self.left > 0 && begins_a_chunk(self.input.fill_buf()?),
                }))
            }
            _ => Ok(None),
        }
    }

    /// The bytes of a payload, without what the transfer put between them; `raw` is given all of it as it was transferred.
    pub fn bytes<F: FnMut(&[u8])>(&mut self, payload: &Payload, raw: F) -> Bytes<'_, R, F> {
        Bytes { records: self, chunk: if payload.chunked { Chunk::Next } else { Chunk::None }, raw }
    }

    /// A head, up to and with the empty line after it; empty at the end of the file. One that lies `within` a block counts for it.
    fn head(&mut self, within: bool) -> Result<Vec<u8>, WarcError> {
        let mut head = Vec::new();
        loop {
            let begin = head.len();
            let most = (HEAD - begin) as u64;
            let most = if within { most.min(self.left) } else { most };
            (&mut self.input).take(most).read_until(b'\n', &mut head)?;
            let line = &head[begin..];
            if within {
                self.left -= line.len() as u64;
            }
            match line {
                [] if head.is_empty() && !within => return Ok(head),
                _ if !line.ends_with(b"\n") => return damaged("a head ends too soon, or is too long"),
                // Between records there are empty lines.
                b"\r\n" | b"\n" if begin == 0 && !within => head.clear(),
                b"\r\n" | b"\n" => return Ok(head),
                _ => {}
            }
        }
    }

    /// Passes over what is left of a block.
    fn skip(&mut self) -> Result<(), WarcError> {
        let left = std::mem::take(&mut self.left);
        let passed = io::copy(&mut (&mut self.input).take(left), &mut io::sink())?;
        if passed < left { damaged("the last record is cut short") } else { Ok(()) }
    }
}

/// A head in which each field is one line.
fn unfolded(head: Vec<u8>) -> Vec<u8> {
    let mut lines: Vec<u8> = Vec::with_capacity(head.len());
    for line in head.split_inclusive(|byte| *byte == b'\n') {
        if matches!(line, [b' ' | b'\t', ..]) && lines.ends_with(b"\n") {
            lines.truncate(lines.trim_ascii_end().len());
            lines.push(b' ');
        }
        lines.extend_from_slice(if line.starts_with(b"\t") { &line[1..] } else { line });
    }
    lines
}

/// Whether a body begins with the length of a chunk.
fn begins_a_chunk(start: &[u8]) -> bool {
    let digits = start.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    (1..=16).contains(&digits) && start.get(digits).is_none_or(|byte| matches!(byte, b'\r' | b'\n' | b';' | b' '))
}

/// The value of the first field of this name, without the blanks around it.
fn value(fields: &[httparse::Header<'_>], name: &str) -> Option<String> {
    let field = fields.iter().find(|field| field.name.eq_ignore_ascii_case(name))?;
    Some(String::from_utf8_lossy(field.value).trim().to_owned())
}

/// Where the reading of a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chunk {
    /// It has no chunks.
    None,
    /// Before the length of the next one.
    Next,
    /// So many bytes of one are left.
    Left(u64),
    /// After the last one.
    Done,
}

/// The bytes of a payload.
#[derive(Debug)]
pub struct Bytes<'r, R, F> {
    records: &'r mut Records<R>,
    chunk: Chunk,
    raw: F,
}

impl<R: BufRead, F: FnMut(&[u8])> Bytes<'_, R, F> {
    /// A line of the block, without its end.
    fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        let most = self.records.left.min(CHUNK_LINE as u64);
        (&mut self.records.input).take(most).read_until(b'\n', &mut line)?;
        self.records.left -= line.len() as u64;
        (self.raw)(&line);
        if !line.ends_with(b"\n") {
            return Err(broken("a chunk without a length"));
        }
        Ok(String::from_utf8_lossy(&line).trim().to_owned())
    }
}

fn broken(problem: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

impl<R: BufRead, F: FnMut(&[u8])> Read for Bytes<'_, R, F> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.chunk == Chunk::Next {
            let mut line = self.line()?;
            if line.is_empty() {
                // The end of the chunk before.
                line = self.line()?;
            }
            let digits = line.split(';').next().unwrap_or_default().trim();
            let length = u64::from_str_radix(digits, 16).map_err(|_| broken("a chunk without a length"))?;
            self.chunk = if length == 0 { Chunk::Done } else { Chunk::Left(length) };
            while self.chunk == Chunk::Done && self.records.left > 0 {
                // What follows the last chunk: fields, and an empty line.
                self.line()?;
            }
        }
        let most = match self.chunk {
            Chunk::Left(left) => left.min(self.records.left),
            Chunk::None => self.records.left,
            Chunk::Next | Chunk::Done => return Ok(0),
        };
        if out.is_empty() || self.chunk == Chunk::None && most == 0 {
            return Ok(0);
        }
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(out.len());
        let count = self.records.input.read(&mut out[..most])?;
        if count == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the record is cut short"));
        }
        self.records.left -= count as u64;
        (self.raw)(&out[..count]);
        if let Chunk::Left(left) = self.chunk {
            self.chunk = if left == count as u64 { Chunk::Next } else { Chunk::Left(left - count as u64) };
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(head: &str, block: &str) -> String {
        format!("WARC/1.0\r\n{head}Content-Length: {}\r\n\r\n{block}\r\n\r\n", block.len())
    }

    type Served = (String, Payload, Vec<u8>);

    /// The URI and the bytes of each payload, and what ended the reading.
    fn read(text: &[u8]) -> (Vec<Served>, Result<(), String>) {
        let mut records = Records::new(text);
        let mut found = Vec::new();
        loop {
            let record = match records.next_record() {
                Ok(Some(record)) => record,
                Ok(None) => return (found, Ok(())),
                Err(error) => return (found, Err(error.to_string())),
            };
            match records.payload(&record) {
                Ok(Some(payload)) => {
                    let mut bytes = Vec::new();
                    if let Err(error) = records.bytes(&payload, |_| ()).read_to_end(&mut bytes) {
                        return (found, Err(error.to_string()));
                    }
                    found.push((record.uri.unwrap_or_default(), payload, bytes));
                }
                // What is wrong within a record says nothing of the next.
                Ok(None) | Err(WarcError::Damaged(_)) => {}
                Err(error) => return (found, Err(error.to_string())),
            }
        }
    }

    const HTTP: &str = "Content-Type: application/http; msgtype=response\r\n";

    /// A file with what servers sent, and with odd records.
    fn served() -> String {
        let response = |uri: &str, head: &str, body: &str| {
            record(
                &format!("WARC-Type: response\r\nWARC-Target-URI: {uri}\r\n{HTTP}"),
                &format!("HTTP/1.1 {head}\r\n\r\n{body}"),
            )
        };
        [
            record("WARC-Type: warcinfo\r\nContent-Type: application/warc-fields\r\n", "software: x\r\n"),
            response("http://e.com/a", "200 OK\r\nContent-Type: text/plain", "first\n"),
            record(
                &format!("WARC-Type: request\r\nWARC-Target-URI: http://e.com/a\r\n{HTTP}"),
                "GET / HTTP/1.1\r\n\r\n",
            ),
            response("http://e.com/b", "200 OK\r\nTransfer-Encoding: chunked", "3\r\nabc\r\n2;x\r\nde\r\n0\r\n\r\n"),
            response("http://e.com/c", "404 Not Found", "no"),
            // Odd ones, that say nothing of the next.
            record(&format!("WARC-Type: response\r\nWARC-Target-URI: http://e.com/none\r\n{HTTP}"), ""),
            record(&format!("WARC-Type: response\r\nWARC-Target-URI: http://e.com/odd\r\n{HTTP}"), "not HTTP\r\n\r\n"),
            record(
                &format!("WARC-Type: response\r\nWARC-Target-URI:\r\n http://e.com/2\r\n{HTTP}"),
                "HTTP/2 200\r\nTransfer-Encoding: chunked\r\n\r\nno chunks",
            ),
            response("<http://e.com/d>", "200 OK\r\nContent-Encoding: gzip\r\nLast-Modified: then", ""),
            record(
                "WARC-Type: resource\r\nWARC-Target-URI: http://e.com/e\r\nContent-Type: image/png\r\n",
                "png\r\n\r\n",
            ),
            record("WARC-Type: revisit\r\nWARC-Target-URI: http://e.com/e\r\n", ""),
            response("http://e.com/f", "200 OK\r\nWARC-Truncated: no field of ours", "f").replacen(
                "WARC-Type: response",
                "WARC-Truncated: length\r\nWARC-Type: response",
                1,
            ),
        ]
        .concat()
    }

    #[test]
    fn what_was_served_is_found_and_nothing_else() {
        let file = served();
        let (found, end) = read(file.as_bytes());
        end.unwrap();
        let bodies: Vec<(&str, &str)> =
            found.iter().map(|(uri, _, bytes)| (uri.as_str(), std::str::from_utf8(bytes).unwrap())).collect();
        assert_eq!(
            bodies,
            [
                ("http://e.com/a", "first\n"),
                ("http://e.com/b", "abcde"),
                ("http://e.com/2", "no chunks"),
                ("http://e.com/d", ""),
                ("http://e.com/e", "png\r\n\r\n")
            ]
        );
        assert_eq!(found[0].1.media.as_deref(), Some("text/plain"));
        assert_eq!((found[3].1.encoding.as_deref(), found[3].1.last_modified.as_deref()), (Some("gzip"), Some("then")));
        assert_eq!(found[4].1.media.as_deref(), Some("image/png"));
        // Cut anywhere, it is either whole so far or known to be cut.
        for end in 0..file.len() {
            let (so_far, result) = read(&file.as_bytes()[..end]);
            assert_eq!(so_far, found[..so_far.len()], "{end}");
            assert!(
                result.is_err() || file[end..].trim_start().starts_with("WARC/") || file[end..].trim().is_empty(),
                "{end}"
            );
        }
    }

    #[test]
    fn what_is_no_warc_is_refused() {
        for (text, problem) in [
            ("PK\x03\x04", "ends too soon"),
            ("WARC/1.0\r\nContent-Length: 5\r\n\r\nabc", "cut short"),
            ("WARC/1.0\r\nWARC-Type: resource\r\n\r\n", "how long"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "does not begin with WARC/"),
        ] {
            let (_, end) = read(text.as_bytes());
            assert!(end.as_ref().is_err_and(|error| error.contains(problem)), "{text:?}: {end:?}");
        }
        let long = format!("WARC/1.0\r\nX: {}\r\n\r\n", "x".repeat(HEAD));
        assert!(read(long.as_bytes()).1.is_err_and(|error| error.contains("too long")));
    }

    proptest! {
        #[test]
        fn rubbish_does_no_harm(text in prop::collection::vec(any::<u8>(), 0..400), at in 0_usize..200) {
            let mut file = record(&format!("WARC-Type: response\r\nWARC-Target-URI: u:x\r\n{HTTP}"),
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n").into_bytes();
            let at = at.min(file.len());
            file.splice(at..at, text);
            let _ = read(&file);
        }
    }
}
