//! Where a resource can be had, and whether what came is what was listed.

use std::io::{self, Read, Write};

use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest as _, Sha256, Sha512};

use super::client::{Answer, is_html};
use super::compress;
use super::error::Trouble;
use crate::document::{Algorithm, Digest, Hashes};

/// What a Source lists of the bytes it sends.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    /// Bytes, as coded.
    pub length: Option<u64>,
    /// The digests of the bytes, as coded.
    pub hashes: Hashes,
    /// The content coding that the Source declares.
    pub encoding: Option<String>,
    /// The media type.
    pub media: Option<String>,
}

impl Expected {
    /// Refuses an HTML page that came from `url` in place of a file.
    ///
    /// # Errors
    /// If a file of another type is listed.
    pub fn check_page(&self, url: &str, answer: &Answer) -> Result<(), Trouble> {
        match self.file_type(url).filter(|_| answer.is_html()) {
            Some(listed) => Err(Trouble::Page { listed }),
            None => Ok(()),
        }
    }

    /// Refuses a body whose first bytes, `start`, are those of an HTML page that came from `url` in place of a file of one of the
    /// formats of [`Expected::format`], whatever its server calls it.
    ///
    /// # Errors
    /// If such a file is listed.
    pub fn check_start(&self, url: &str, start: &[u8]) -> Result<(), Trouble> {
        let text = String::from_utf8_lossy(&start[..start.len().min(256)]).to_ascii_lowercase();
        let text = text.trim_start_matches('\u{feff}').trim_start();
        let is_page = text.starts_with("<!doctype html") || text.starts_with("<html");
        match self.file_type(url).filter(|_| is_page && self.format(url).is_some()) {
            Some(listed) => Err(Trouble::Page { listed }),
            None => Ok(()),
        }
    }

    /// Whether a body that begins so is none of the formats of [`Expected::format`].
    #[must_use]
    pub fn has_no_format(start: &[u8]) -> bool {
        !start.is_empty() && !BEGINNINGS.iter().any(|beginning| start.starts_with(beginning))
    }

    /// The format of the file that is listed at `url`, if it is one of those whose files each begin with bytes of their own, and
    /// neither a hash nor a length says more: two formats never have the same bytes.
    #[must_use]
    pub fn format(&self, url: &str) -> Option<&'static str> {
        let listed = self.file_type(url)?;
        let name = listed.trim_start_matches("a .").trim_end_matches(" file");
        let essence = name.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        FORMATS.iter().find(|(_, names)| names.contains(&essence.as_str())).map(|(format, _)| *format)
    }

    /// What is listed, where that is no HTML page and the media type is all that tells a resource from a bot wall's page: there
    /// is neither a hash nor a length. Where no type is listed, the extension tells of files that are never HTML.
    fn file_type(&self, url: &str) -> Option<String> {
        if self.length.is_some() || !self.hashes.is_empty() {
            return None;
        }
        match &self.media {
            Some(media) => (!is_html(media)).then(|| media.clone()),
            None => {
                let path = url.split(['?', '#']).next().unwrap_or_default();
                // `File:Photo.jpg` is the page of a wiki about that file.
                let name = path.rsplit('/').next().filter(|name| !name.contains(':') && !name.contains("%3A"))?;
                let (_, extension) = name.rsplit_once('.')?;
                let extension = extension.to_ascii_lowercase();
                NEVER_HTML.contains(&extension.as_str()).then(|| format!("a .{extension} file"))
            }
        }
    }
}

/// Extensions of files that are never HTML pages.
const NEVER_HTML: [&str; 38] = [
    "7z", "avi", "bz2", "csv", "doc", "docx", "epub", "flac", "gif", "gz", "jp2", "jpeg", "jpg", "json", "jsonld",
    "mets", "mkv", "mov", "mp3", "mp4", "odt", "ogg", "pdf", "png", "ppt", "pptx", "rdf", "tar", "tgz", "tif", "tiff",
    "ttl", "wav", "webp", "xls", "xlsx", "xz", "zip",
];

/// Formats, and the media types and extensions of their files.
const FORMATS: [(&str, &[&str]); 10] = [
    ("PDF", &["application/pdf", "pdf"]),
    ("JPEG", &["image/jpeg", "jpg", "jpeg"]),
    ("PNG", &["image/png", "png"]),
    ("GIF", &["image/gif", "gif"]),
    ("TIFF", &["image/tiff", "tif", "tiff"]),
    ("JPEG 2000", &["image/jp2", "jp2"]),
    ("WebP", &["image/webp", "webp"]),
    ("ZIP", &["application/zip", "application/epub+zip", "zip", "epub", "docx", "xlsx", "pptx", "odt"]),
    ("gzip", &["application/gzip", "application/x-gzip", "gz", "tgz"]),
    ("MP3", &["audio/mpeg", "mp3"]),
];

/// How files of these formats begin.
const BEGINNINGS: [&[u8]; 16] = [
    b"%PDF",
    b"\xff\xd8\xff",
    b"\x89PNG",
    b"GIF8",
    b"II*\0",
    b"II+\0",
    b"MM\0*",
    b"MM\0+",
    b"\0\0\0\x0cjP",
    b"\xff\x4f\xff\x51",
    b"RIFF",
    b"PK",
    b"\x1f\x8b",
    b"ID3",
    b"\xff\xfb",
    b"\xff\xf3",
];

/// In which form a body is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// As it came.
    Plain,
    /// With this content coding undone.
    Decoded(String),
}

/// Where the bytes of a resource can be had, best first (core 14.2): by the Source's wish its mirrors,
/// by priority, come before `loc` where there is a hash to hold them to, else after it. Schemes that
/// are not HTTP are passed over.
#[must_use]
pub fn locations(loc: &str, duplicates: &[(u32, String)], has_hash: bool) -> Vec<String> {
    let mut mirrors: Vec<&(u32, String)> = duplicates
        .iter()
        .filter(|(_, href)| {
            let scheme = href.split_once(':').map(|(scheme, _)| scheme.to_ascii_lowercase());
            matches!(scheme.as_deref(), Some("http" | "https"))
        })
        .collect();
    mirrors.sort_by_key(|(priority, _)| *priority);
    let mut all: Vec<String> = mirrors.into_iter().map(|(_, href)| href.clone()).collect();
    if has_hash {
        all.push(loc.to_owned())
    } else {
        all.insert(0, loc.to_owned())
    }
    let mut known = std::collections::HashSet::new();
    all.retain(|location| known.insert(location.clone()));
    all
}

/// Digests of bytes on their way: always SHA-256, and what the Source lists.
pub struct Hasher {
    sha256: Sha256,
    md5: Option<Md5>,
    sha1: Option<Sha1>,
    sha512: Option<Sha512>,
    length: u64,
}

impl std::fmt::Debug for Hasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hasher").field("length", &self.length).finish_non_exhaustive()
    }
}

/// What a [`Hasher`] found.
#[derive(Clone, Debug)]
pub struct Sums {
    /// Bytes.
    pub length: u64,
    /// Always there.
    pub sha256: [u8; 32],
    hashes: Hashes,
}

impl Hasher {
    /// For bytes of which the Source lists these hashes.
    #[must_use]
    pub fn new(listed: &Hashes) -> Self {
        Self {
            sha256: Sha256::new(),
            md5: listed.get(Algorithm::Md5).map(|_| Md5::new()),
            sha1: listed.get(Algorithm::Sha1).map(|_| Sha1::new()),
            sha512: listed.get(Algorithm::Sha512).map(|_| Sha512::new()),
            length: 0,
        }
    }

    /// Takes in more bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.length += bytes.len() as u64;
        self.sha256.update(bytes);
        if let Some(md5) = &mut self.md5 {
            md5.update(bytes);
        }
        if let Some(sha1) = &mut self.sha1 {
            sha1.update(bytes);
        }
        if let Some(sha512) = &mut self.sha512 {
            sha512.update(bytes);
        }
    }

    /// The digests.
    #[must_use]
    pub fn finish(self) -> Sums {
        let sha256: [u8; 32] = self.sha256.finalize().into();
        let mut hashes = Hashes::default();
        let found = [
            Digest::new(Algorithm::Sha256, &sha256),
            self.md5.and_then(|md5| Digest::new(Algorithm::Md5, &md5.finalize())),
            self.sha1.and_then(|sha1| Digest::new(Algorithm::Sha1, &sha1.finalize())),
            self.sha512.and_then(|sha512| Digest::new(Algorithm::Sha512, &sha512.finalize())),
        ];
        found.into_iter().flatten().for_each(|digest| hashes.insert(digest));
        Sums { length: self.length, sha256, hashes }
    }

    /// The digests of all that a reader gives.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(listed: &Hashes, mut source: impl Read) -> io::Result<Sums> {
        let mut hasher = Self::new(listed);
        let mut buffer = vec![0; 256 << 10];
        loop {
            match source.read(&mut buffer)? {
                0 => return Ok(hasher.finish()),
                count => hasher.update(&buffer[..count]),
            }
        }
    }
}

/// Holds bytes to what the Source lists of them: its length, and each of its hashes, strongest first.
///
/// # Errors
/// With what differs.
pub fn verify(sums: &Sums, expected: &Expected) -> Result<(), Trouble> {
    if let Some(length) = expected.length.filter(|length| *length != sums.length) {
        return Err(Trouble::WrongLength { got: sums.length, expected: length });
    }
    for listed in expected.hashes.iter().rev() {
        if let Some(found) = sums.hashes.get(listed.algorithm()).filter(|found| *found != listed) {
            let hexadecimal = |digest: &Digest| digest.to_string().split_once(':').map(|(_, hex)| hex.to_owned());
            return Err(Trouble::WrongHash {
                algorithm: listed.algorithm().token(),
                got: hexadecimal(found).unwrap_or_default(),
                expected: hexadecimal(listed).unwrap_or_default(),
            });
        }
    }
    Ok(())
}

/// Undoes a content coding (or several, the last applied last), and returns the digests of what comes
/// out.
///
/// # Errors
/// If the coding is not known, the bytes are not so coded, there are more than `most`, or they cannot
/// be written.
pub fn decode(
    coding: &str,
    source: impl Read,
    mut sink: impl Write,
    listed: &Hashes,
    most: u64,
) -> Result<Sums, Trouble> {
    let bad = |problem: String| Trouble::BadCoding { coding: coding.to_owned(), problem };
    let mut layers: Box<dyn Read + '_> = Box::new(source);
    for layer in coding.split(',').rev() {
        layers = match layer.trim().to_ascii_lowercase().as_str() {
            "gzip" | "x-gzip" => Box::new(MultiGzDecoder::new(layers)),
            "br" => Box::new(brotli_decompressor::Decompressor::new(layers, 64 << 10)),
            "zstd" => {
                Box::new(ruzstd::decoding::StreamingDecoder::new(layers).map_err(|error| bad(error.to_string()))?)
            }
            "compress" | "x-compress" => {
                Box::new(compress::Decoder::new(layers).map_err(|error| bad(error.to_string()))?)
            }
            "deflate" => deflate(layers).map_err(|error| bad(error.to_string()))?,
            "identity" | "" => layers,
            other => return Err(bad(format!("{other} is not supported"))),
        };
    }
    let mut hasher = Hasher::new(listed);
    let mut buffer = vec![0; 256 << 10];
    loop {
        match layers.read(&mut buffer).map_err(|error| bad(error.to_string()))? {
            0 => return Ok(hasher.finish()),
            count => {
                hasher.update(&buffer[..count]);
                if hasher.length > most {
                    return Err(Trouble::TooLarge(most));
                }
                sink.write_all(&buffer[..count]).map_err(|error| Trouble::Disk(error.to_string()))?;
            }
        }
    }
}

/// `deflate` is zlib by the letter of RFC 9110, and raw in the wild.
fn deflate<'a>(mut source: Box<dyn Read + 'a>) -> io::Result<Box<dyn Read + 'a>> {
    let mut start = [0; 2];
    let mut got = 0;
    while got < 2 {
        match source.read(&mut start[got..])? {
            0 => break,
            count => got += count,
        }
    }
    let zlib = got == 2 && start[0] & 0x0f == 8 && u16::from_be_bytes(start) % 31 == 0;
    let whole = io::Cursor::new(start[..got].to_vec()).chain(source);
    Ok(if zlib { Box::new(ZlibDecoder::new(whole)) } else { Box::new(DeflateDecoder::new(whole)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_come_first_only_where_a_hash_holds_them() {
        let mirrors = [
            (2, "http://mirror2.example.com/res1".to_owned()),
            (3, "gsiftp://gridftp.example.com/res1".to_owned()),
            (1, "http://mirror1.example.com/res1".to_owned()),
        ];
        let loc = "http://example.com/res1";
        assert_eq!(
            locations(loc, &mirrors, true),
            ["http://mirror1.example.com/res1", "http://mirror2.example.com/res1", loc]
        );
        assert_eq!(
            locations(loc, &mirrors, false),
            [loc, "http://mirror1.example.com/res1", "http://mirror2.example.com/res1"]
        );
    }

    #[test]
    fn every_listed_hash_must_agree() {
        let mut complaints = Vec::new();
        let right = "md5:5d41402abc4b2a76b9719d911017c592 sha-1:aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d";
        let expected = |hash: &str, complaints: &mut Vec<String>| Expected {
            length: Some(5),
            hashes: Hashes::parse(hash, complaints),
            encoding: None,
            media: None,
        };
        let good = expected(right, &mut complaints);
        let sums = Hasher::read(&good.hashes, &b"hello"[..]).unwrap();
        assert_eq!(verify(&sums, &good), Ok(()));
        let wrong = expected(&right.replace("592", "593"), &mut complaints);
        assert!(matches!(verify(&sums, &wrong), Err(Trouble::WrongHash { algorithm: "md5", .. })));
        let short = Hasher::read(&good.hashes, &b"hell"[..]).unwrap();
        assert_eq!(verify(&short, &good), Err(Trouble::WrongLength { got: 4, expected: 5 }));
    }

    #[test]
    fn brotli_and_zstd_are_decoded() {
        let text = b"hello, hello";
        let length = u32::try_from(text.len()).unwrap();
        // One block each that is stored as it is (RFC 7932, 9.2; RFC 8878, 3.1.1).
        let header = (length - 1) << 4 | 1 << 20;
        let brotli = [&header.to_le_bytes()[..3], text, &[3]].concat();
        let block = length << 3 | 1;
        let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x20, u8::try_from(length).unwrap()];
        let zstd = [&frame[..], &block.to_le_bytes()[..3], text].concat();
        for (coding, coded) in [("br", brotli), ("zstd", zstd)] {
            let mut out = Vec::new();
            decode(coding, coded.as_slice(), &mut out, &Hashes::default(), 1000).unwrap();
            assert_eq!(out, text, "{coding}");
        }
    }

    #[test]
    fn a_page_is_no_file_of_another_type() {
        let expected = |media: Option<&str>| Expected { media: media.map(str::to_owned), ..Expected::default() };
        for (media, url, is_refused) in [
            (Some("application/pdf"), "http://a.example/x", true),
            (Some("text/html; charset=utf-8"), "http://a.example/x.pdf", false),
            (None, "http://a.example/x.PDF?download=1", true),
            (None, "http://a.example/x", false),
            (None, "http://a.example/x.html", false),
            (None, "http://wiki.example/File:Photo.jpg", false),
        ] {
            assert_eq!(expected(media).file_type(url).is_some(), is_refused, "{media:?} {url}");
            assert_eq!(expected(media).check_start(url, b"<!DOCTYPE html>").is_err(), is_refused, "{media:?} {url}");
            assert!(expected(media).check_start(url, b"%PDF-1.7").is_ok());
        }
        for (media, url, format) in [
            (Some("application/pdf"), "http://a.example/x", Some("PDF")),
            (None, "http://a.example/x.JPG", Some("JPEG")),
            (None, "http://a.example/x.docx", Some("ZIP")),
            (None, "http://a.example/x.json", None),
            (Some("text/plain"), "http://a.example/x.pdf", None),
        ] {
            assert_eq!(expected(media).format(url), format, "{media:?} {url}");
        }
        let listed = Expected { length: Some(7), ..expected(Some("application/pdf")) };
        assert_eq!(listed.file_type("http://a.example/x"), None, "its length tells");
    }

    #[test]
    fn a_bomb_is_not_unpacked() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        gzip.write_all(&vec![0; 1 << 20]).unwrap();
        let bomb = gzip.finish().unwrap();
        let mut out = Vec::new();
        let found = decode("gzip", bomb.as_slice(), &mut out, &Hashes::default(), 10_000);
        assert_eq!(found.unwrap_err(), Trouble::TooLarge(10_000));
        assert!(out.len() <= 10_000);
    }
}
