//! The encodings of XML documents, in and out.

use super::{Condition, Document, PatchError};
use encoding_rs::Encoding as Charset;

/// How a document's characters are bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Utf8 {
        bom: bool,
    },
    Utf16 {
        big: bool,
        bom: bool,
    },
    /// The first 128, or all 256, characters, each a byte.
    Direct {
        last: u8,
    },
    /// One that `encoding_rs` knows.
    Other(&'static Charset),
}

impl Encoding {
    /// Finds out a document's encoding, as the XML recommendation's appendix F says, and reads it.
    ///
    /// A byte order mark is no part of the text.
    pub(super) fn read(document: Document, bytes: &[u8]) -> Result<(Self, String), PatchError> {
        let (encoding, rest) = match bytes {
            [0xEF, 0xBB, 0xBF, rest @ ..] => (Self::Utf8 { bom: true }, rest),
            [0xFE, 0xFF, rest @ ..] => (Self::Utf16 { big: true, bom: true }, rest),
            [0xFF, 0xFE, rest @ ..] => (Self::Utf16 { big: false, bom: true }, rest),
            [0, b'<', ..] => (Self::Utf16 { big: true, bom: false }, bytes),
            [b'<', 0, ..] => (Self::Utf16 { big: false, bom: false }, bytes),
            _ => (Self::declared(document, bytes)?, bytes),
        };
        let wrong = || error(document, format!("it is not in {}, as it says it is", encoding.name()));
        let text = match encoding {
            Self::Utf8 { .. } => std::str::from_utf8(rest).map_err(|_| wrong())?.to_owned(),
            Self::Utf16 { big, .. } => {
                let pairs = rest.chunks_exact(2);
                if !pairs.remainder().is_empty() {
                    return Err(wrong());
                }
                let of = if big { u16::from_be_bytes } else { u16::from_le_bytes };
                let units = pairs.map(|pair| of([pair[0], pair[1]]));
                char::decode_utf16(units).collect::<Result<_, _>>().map_err(|_| wrong())?
            }
            Self::Direct { last } => {
                if rest.iter().any(|&byte| byte > last) {
                    return Err(wrong());
                }
                rest.iter().map(|&byte| char::from(byte)).collect()
            }
            Self::Other(charset) => {
                charset.decode_without_bom_handling_and_without_replacement(rest).ok_or_else(wrong)?.into_owned()
            }
        };
        Ok((encoding, text))
    }

    /// The encoding that the XML declaration names; UTF-8 if it names none.
    fn declared(document: Document, bytes: &[u8]) -> Result<Self, PatchError> {
        let head: String = bytes.iter().take(256).map(|&byte| char::from(byte)).collect();
        let declaration =
            head.strip_prefix("<?xml").and_then(|rest| rest.split_once("?>")).map_or("", |(inner, _)| inner);
        let label = declaration
            .split_once("encoding")
            .and_then(|(_, rest)| rest.trim_start().strip_prefix('='))
            .map(str::trim_start)
            .and_then(|rest| {
                let quote = rest.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
                rest.get(1..)?.split_once(quote)
            })
            .map_or("UTF-8", |(label, _)| label);
        Ok(match label.to_ascii_lowercase().as_str() {
            // encoding_rs takes these for windows-1252, as HTML does but XML does not.
            "us-ascii" | "ascii" => Self::Direct { last: 0x7F },
            "iso-8859-1" | "latin1" | "latin-1" => Self::Direct { last: 0xFF },
            lower => match Charset::for_label_no_replacement(lower.as_bytes()) {
                Some(charset) if charset == encoding_rs::UTF_8 => Self::Utf8 { bom: false },
                // With UTF-16, these bytes could not have been read as they were.
                Some(charset) if charset != encoding_rs::UTF_16BE && charset != encoding_rs::UTF_16LE => {
                    Self::Other(charset)
                }
                _ => return Err(error(document, format!("the encoding \"{label}\" is not known"))),
            },
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Utf8 { .. } => "UTF-8",
            Self::Utf16 { .. } => "UTF-16",
            Self::Direct { last: 0x7F } => "US-ASCII",
            Self::Direct { .. } => "ISO-8859-1",
            Self::Other(charset) => charset.name(),
        }
    }

    /// Writes a document; a character that has no place in the encoding becomes a decimal reference.
    ///
    /// In a comment or a processing instruction a reference is no such thing, but there nothing better can be done.
    pub(super) fn write(self, text: &str) -> Vec<u8> {
        match self {
            Self::Utf8 { bom: false } => text.as_bytes().to_vec(),
            Self::Utf8 { bom: true } => [b"\xEF\xBB\xBF", text.as_bytes()].concat(),
            Self::Utf16 { big, bom } => {
                let of = if big { u16::to_be_bytes } else { u16::to_le_bytes };
                let mark = bom.then_some(0xFEFF);
                mark.into_iter().chain(text.encode_utf16()).flat_map(of).collect()
            }
            Self::Direct { last } => {
                let mut bytes = Vec::with_capacity(text.len());
                for char in text.chars() {
                    match u8::try_from(char) {
                        Ok(byte) if byte <= last => bytes.push(byte),
                        _ => bytes.extend_from_slice(format!("&#{};", u32::from(char)).as_bytes()),
                    }
                }
                bytes
            }
            // Here, too, it is decimal references that stand in.
            Self::Other(charset) => charset.encode(text).0.into_owned(),
        }
    }
}

fn error(document: Document, why: String) -> PatchError {
    PatchError::Xml { condition: Condition::InvalidCharacterSet, place: document.to_string(), why }
}
