//! A WARC file into a ZIP package with a manifest.
//!
//! What lies in a WARC file is compressed record by record, with the heads of two protocols before each body, and perhaps
//! in chunks: no part of a body can be found by an offset. So this kind of package, and no other, is written anew once it is
//! here; all that comes after, the verification included, is as with any package. The same file becomes the same bytes.

use std::collections::HashMap;
use std::fs::File;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, BufRead as _, BufReader, BufWriter, Read, Seek as _, SeekFrom, Write};
use std::os::unix::fs::FileExt as _;

use base64::Engine as _;
use data_encoding::HEXLOWER;
use flate2::read::MultiGzDecoder;
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;
use zip::CompressionMethod;
use zip::write::{SimpleFileOptions, ZipWriter};

use crate::bounds::{self, Beyond, Bounds};
use crate::store::Store;
use crate::store::warc::{Payload, Record, Records, WarcError};
use crate::sync::transfer::package::MANIFEST;

/// After how many bytes the room on the disk is looked at.
const CHECK_EVERY: u64 = 8 << 20;
/// What may come of a small file whatever it unfolds to.
const FREE: u64 = 64 << 20;
/// Names of members have as many digits.
const DIGITS: usize = 7;

/// Why a package is not used.
#[derive(Debug, thiserror::Error)]
pub(in crate::sync) enum Unfit {
    #[error(transparent)]
    Warc(#[from] WarcError),
    #[error(transparent)]
    Beyond(#[from] Beyond),
    #[error("it cannot be written as a package: {0}")]
    Zip(#[from] zip::result::ZipError),
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl Unfit {
    /// Whether the same file may be fit another time: what was wrong is not in it.
    pub(in crate::sync) fn passes(&self) -> bool {
        match self {
            Self::Warc(WarcError::Io(error)) | Self::Io(error) | Self::Zip(zip::result::ZipError::Io(error)) => {
                !is_of_content(error)
            }
            Self::Warc(_) | Self::Beyond(_) | Self::Zip(_) => false,
        }
    }
}

/// Whether an error is of what was read, and not of the reading.
fn is_of_content(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    matches!(error.kind(), InvalidData | InvalidInput | UnexpectedEof)
}

/// What a file that is no ZIP package begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sync) enum Kind {
    Plain,
    Gzip,
}

/// Whether a file may be a WARC file, by its first bytes.
pub(in crate::sync) fn kind(file: &File) -> Option<Kind> {
    let mut start = [0; 5];
    let count = file.read_at(&mut start, 0).ok()?;
    match &start[..count] {
        b"WARC/" => Some(Kind::Plain),
        [0x1f, 0x8b, ..] => Some(Kind::Gzip),
        _ => None,
    }
}

/// What came of it.
pub(in crate::sync) struct Recast {
    /// The package.
    pub(in crate::sync) file: NamedTempFile,
    pub(in crate::sync) size: u64,
    pub(in crate::sync) resources: u64,
    /// Records whose bytes are not what they say.
    pub(in crate::sync) damaged: u64,
}

/// Writes a WARC file as a package. `sound`: the file is what its dump says; if it is not, the digests of its records are all
/// that there is to believe.
pub(in crate::sync) fn recast(
    file: &File,
    kind: Kind,
    store: &Store,
    bounds: &Bounds,
    sound: bool,
) -> Result<Recast, Unfit> {
    let length = file.metadata()?.len();
    let mut input = file;
    input.seek(SeekFrom::Start(0))?;
    let input = BufReader::with_capacity(256 << 10, input);
    let most = length.saturating_mul(bounds.unfolded).saturating_add(FREE);
    match kind {
        Kind::Plain => Work::new(store, bounds, most, sound)?.write(Records::new(input), CompressionMethod::Stored),
        Kind::Gzip => {
            let unfolded = Bounded { bytes: MultiGzDecoder::new(input), left: most };
            let unfolded = BufReader::with_capacity(256 << 10, unfolded);
            Work::new(store, bounds, most, sound)?.write(Records::new(unfolded), CompressionMethod::Deflated)
        }
    }
}

/// What unfolds to no more than so much.
struct Bounded<B> {
    bytes: B,
    left: u64,
}

impl<B: Read> Read for Bounded<B> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.bytes.read(out)?;
        let left = self.left.checked_sub(count as u64);
        self.left = left.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "it unfolds to more than limit_unfolded allows")
        })?;
        Ok(count)
    }
}

struct Work<'s> {
    store: &'s Store,
    bounds: &'s Bounds,
    /// The most bytes of all resources together.
    most: u64,
    written: u64,
    /// An entry of the manifest a line, each with the number of its member.
    entries: BufWriter<File>,
    /// The member that came last, of each URI.
    last: HashMap<u64, u64>,
    keys: RandomState,
    /// When the first record was written.
    at: Option<String>,
    damaged: u64,
    sound: bool,
}

impl<'s> Work<'s> {
    fn new(store: &'s Store, bounds: &'s Bounds, most: u64, sound: bool) -> Result<Self, Unfit> {
        Ok(Self {
            store,
            bounds,
            most,
            written: 0,
            entries: BufWriter::new(store.spool()?.into_file()),
            last: HashMap::new(),
            keys: RandomState::new(),
            at: None,
            damaged: 0,
            sound,
        })
    }

    fn write(mut self, mut records: Records<impl io::BufRead>, method: CompressionMethod) -> Result<Recast, Unfit> {
        let mut zip = ZipWriter::new(self.store.spool()?);
        let options = SimpleFileOptions::default().compression_method(method);
        let mut number = 0;
        while let Some(record) = records.next_record()? {
            let payload = match records.payload(&record) {
                Ok(Some(payload)) => payload,
                Ok(None) => continue,
                // What is wrong within one record says nothing of the next.
                Err(WarcError::Damaged(why)) => {
                    tracing::debug!(uri = record.uri, why, "a record is not used");
                    self.damaged += 1;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let uri = record.uri.as_deref().unwrap_or_default();
            // What the package itself says of its resources is said of them by their records.
            let is_manifest = record.kind == "resource" && uri.rsplit('/').next() == Some(MANIFEST);
            if is_manifest || !(uri.starts_with("http://") || uri.starts_with("https://")) {
                continue;
            }
            number += 1;
            if number >= self.bounds.members {
                return Err(bounds::MEMBERS.passed("the number of its members", self.bounds).into());
            }
            let large = record.length >= u64::from(u32::MAX) || payload.is_gzip();
            zip.start_file(format!("{number:0DIGITS$}"), options.large_file(large))?;
            match self.member(&mut records, &record, &payload, &mut zip)? {
                Some(sums) => self.note(number, &record, &payload, &sums)?,
                None => {
                    self.damaged += 1;
                    zip.abort_file()?;
                }
            }
        }
        let (resources, damaged) = (self.last.len() as u64, self.damaged);
        zip.start_file(MANIFEST, options.compression_method(CompressionMethod::Deflated))?;
        self.manifest(&mut zip)?;
        let file = zip.finish()?;
        let size = file.as_file().metadata()?.len();
        Ok(Recast { file, size, resources, damaged })
    }

    /// Writes the payload of a record; `None` if it is damaged.
    fn member(
        &mut self,
        records: &mut Records<impl io::BufRead>,
        record: &Record,
        payload: &Payload,
        out: &mut impl Write,
    ) -> Result<Option<Sums>, Unfit> {
        let digest = record.digest.as_deref();
        let mut raw = Sums::default();
        let bytes = records.bytes(payload, |bytes| {
            if digest.is_some() {
                raw.update(bytes);
            }
        });
        let mut coded = Tee { bytes, sums: Sums::default(), on: digest.is_some() };
        let sums = match payload.is_gzip() {
            // What was asked for in another coding than the one that it has by itself.
            true => self.body(MultiGzDecoder::new(&mut coded), out),
            false => self.body(&mut coded, out),
        };
        let coded = coded.sums;
        match sums {
            // Writers differ in what they call the payload.
            Ok(sums) => {
                let contradicts = |digest| [&sums, &coded, &raw].iter().all(|sums| sums.contradict(digest));
                Ok(if digest.is_some_and(contradicts) { None } else { Some(sums) })
            }
            Err(Unfit::Io(error)) if is_of_content(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn body(&mut self, mut bytes: impl Read, out: &mut impl Write) -> Result<Sums, Unfit> {
        let mut sums = Sums::default();
        let mut buffer = vec![0; 64 << 10];
        loop {
            let count = bytes.read(&mut buffer)?;
            if count == 0 {
                return Ok(sums);
            }
            out.write_all(&buffer[..count])?;
            sums.update(&buffer[..count]);
            let before = self.written / CHECK_EVERY;
            self.written += count as u64;
            if self.written > self.most {
                return Err(bounds::UNFOLDED.passed("what it unfolds to", self.bounds).into());
            }
            if sums.length > self.bounds.resource {
                return Err(bounds::RESOURCE.passed("the size of a resource in it", self.bounds).into());
            }
            if self.written / CHECK_EVERY > before {
                self.store.check_room(0)?;
            }
        }
    }

    fn note(&mut self, number: u64, record: &Record, payload: &Payload, sums: &Sums) -> Result<(), Unfit> {
        let Some(uri) = &record.uri else { return Ok(()) };
        if let Some(date) = record.date.as_ref().filter(|date| self.at.as_ref().is_none_or(|at| *date < at)) {
            self.at = Some(date.clone());
        }
        self.last.insert(self.keys.hash_one(uri), number);
        let attribute = |name: &str, value: Option<&str>| {
            value.map(|value| format!(" {name}=\"{}\"", escaped(value))).unwrap_or_default()
        };
        // Of bytes that nobody vouches for, a digest would say no more than what they are.
        let known = self.sound || record.digest.is_some();
        let hashes = if known { format!(" hash=\"{}\"", sums.clone().hashes()) } else { String::new() };
        let lastmod = payload.last_modified.as_deref().and_then(|text| httpdate::parse_http_date(text).ok());
        let lastmod = lastmod.and_then(|time| jiff::Timestamp::try_from(time).ok());
        writeln!(
            self.entries,
            "{number} <url><loc>{}</loc>{}<rs:md{} length=\"{}\"{}{} path=\"{number:0DIGITS$}\"/></url>",
            escaped(uri),
            lastmod.map(|time| format!("<lastmod>{time}</lastmod>")).unwrap_or_default(),
            hashes,
            sums.length,
            attribute("type", payload.media.as_deref()),
            attribute("encoding", payload.encoding.as_deref().filter(|_| !payload.is_gzip())),
        )?;
        Ok(())
    }

    /// Of a resource that comes more than once, the last record counts.
    fn manifest(self, out: &mut impl Write) -> Result<(), Unfit> {
        let at = self.at.map(|at| format!(" at=\"{}\"", escaped(&at))).unwrap_or_default();
        writeln!(
            out,
            "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" xmlns:rs=\"http://www.openarchives.org/rs/terms/\">\n<rs:md{at}/>"
        )?;
        let last: std::collections::HashSet<u64> = self.last.into_values().collect();
        let mut entries = self.entries.into_inner().map_err(io::IntoInnerError::into_error)?;
        entries.seek(SeekFrom::Start(0))?;
        for line in BufReader::new(entries).lines() {
            let line = line?;
            if let Some((number, entry)) = line.split_once(' ')
                && number.parse().is_ok_and(|number| last.contains(&number))
            {
                writeln!(out, "{entry}")?;
            }
        }
        writeln!(out, "</urlset>")?;
        Ok(())
    }
}

/// A text as it stands in an attribute or an element, in one line; what XML does not allow is left out.
fn escaped(text: &str) -> String {
    let plain: String = text.chars().filter(|c| !c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}')).collect();
    quick_xml::escape::escape(&plain).into_owned()
}

/// What is read, and its digests.
struct Tee<B> {
    bytes: B,
    sums: Sums,
    on: bool,
}

impl<B: Read> Read for Tee<B> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.bytes.read(out)?;
        if self.on {
            self.sums.update(&out[..count]);
        }
        Ok(count)
    }
}

/// The digests of a payload: which of them a list has is not known here.
#[derive(Clone, Default)]
struct Sums {
    md5: Md5,
    sha1: Sha1,
    sha256: Sha256,
    length: u64,
}

impl Sums {
    fn update(&mut self, bytes: &[u8]) {
        self.md5.update(bytes);
        self.sha1.update(bytes);
        self.sha256.update(bytes);
        self.length += bytes.len() as u64;
    }

    fn hashes(self) -> String {
        format!(
            "md5:{} sha-1:{} sha-256:{}",
            HEXLOWER.encode(&self.md5.finalize()),
            HEXLOWER.encode(&self.sha1.finalize()),
            HEXLOWER.encode(&self.sha256.finalize())
        )
    }

    /// Whether a `WARC-Payload-Digest` is of other bytes; one that cannot be read says nothing.
    fn contradict(&self, digest: &str) -> bool {
        let Some((algorithm, value)) = digest.split_once(':') else { return false };
        let sum: Vec<u8> = match algorithm.to_ascii_lowercase().replace('-', "").as_str() {
            "sha1" => self.sha1.clone().finalize().to_vec(),
            "sha256" => self.sha256.clone().finalize().to_vec(),
            "md5" => self.md5.clone().finalize().to_vec(),
            _ => return false,
        };
        let hex = HEXLOWER.encode(&sum);
        let base64 = base64::engine::general_purpose::STANDARD_NO_PAD.encode(&sum);
        let value = value.trim_end_matches('=');
        match value.len() {
            length if length == hex.len() => !value.eq_ignore_ascii_case(&hex),
            length if length == base64.len() => value != base64,
            length if length == base32(&sum).len() => !value.eq_ignore_ascii_case(&base32(&sum)),
            _ => false,
        }
    }
}

/// RFC 4648, 6, without padding.
fn base32(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.chunks(5) {
        let bits = chunk.iter().enumerate().fold(0_u64, |bits, (at, byte)| bits | u64::from(*byte) << (32 - 8 * at));
        for at in 0..(chunk.len() * 8).div_ceil(5) {
            let digit = (bits >> (35 - 5 * at) & 31) as u8;
            text.push(char::from(if digit < 26 { b'A' + digit } else { b'2' + digit - 26 }));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_read_as_archives_write_them() {
        // RFC 4648, 10.
        for (text, coded) in
            [("", ""), ("f", "MY"), ("fo", "MZXQ"), ("foo", "MZXW6"), ("foob", "MZXW6YQ"), ("foobar", "MZXW6YTBOI")]
        {
            assert_eq!(base32(text.as_bytes()), coded);
        }
        let mut sums = Sums::default();
        sums.update(b"abc");
        for (digest, contradicts) in [
            ("sha1:VGMT4NSHA2AWVOR6EVYXQUGCNSONBWE5", false),
            ("SHA-1:a9993e364706816aba3e25717850c26c9cd0d89d", false),
            ("sha1:VGMT4NSHA2AWVOR6EVYXQUGCNSONBWE6", true),
            ("sha1:a9993e364706816aba3e25717850c26c9cd0d89e", true),
            ("md5:900150983cd24fb0d6963f7d28e17f72", false),
            ("md5:kAFQmDzST7DWlj99KOF/cg==", false),
            ("sha1:what", false),
            ("blake3:x", false),
            ("x", false),
        ] {
            assert_eq!(sums.contradict(digest), contradicts, "{digest}");
        }
    }
}
