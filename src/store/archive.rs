//! ZIP packages, read where they lie (core 11.1).
//!
//! The directory of a package is walked once, and becomes a [`Directory`]: 48 bytes a member, whatever
//! their names. What of it is kept elsewhere is a [`Member`]: where the bytes are, and what they must
//! come to. Nothing is ever unpacked to a path: a name in an archive is only compared.
//!
//! A package need not be complete. Whoever reads one gives a [`Partial`], which knows what is there;
//! reading beyond that ends with [`ArchiveError::Hole`], and is done again when more has come.

use std::fs::File;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use crc32fast::Hasher as Crc;
use flate2::read::DeflateDecoder;
use flate2::{Decompress, FlushDecompress, Status};
use thiserror::Error;
use zip::CompressionMethod;
use zip::read::{Config, ZipFileEntry};
use zip::result::ZipError;
use zip::unstable::read::ZipIterable;

use super::read_up_to;
use crate::bounds::{self, Beyond, Bounds};

/// How much is read of a directory at once.
const WINDOW: usize = 256 << 10;
/// The fixed part of a local header.
const LOCAL: usize = 30;
/// What is allowed for the extra field of a local header before it has been seen.
const EXTRA: u64 = 512;

/// How a member is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// As it is.
    Stored,
    /// Deflated.
    Deflated,
}

/// Where the bytes of a member lie in its package, and what they must come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Where its local header begins.
    pub header: u64,
    /// Bytes in the package.
    pub compressed: u64,
    /// Bytes of the content.
    pub size: u64,
    /// The CRC-32 of the content.
    pub crc: u32,
    /// Bytes of its name.
    pub name_length: u16,
    /// How it is stored.
    pub method: Method,
}

/// Why a package, or a member of one, cannot be read.
#[derive(Debug, Error)]
pub enum ArchiveError {
    /// What is at this offset is not there yet.
    #[error("the bytes at {0} are not here yet")]
    Hole(u64),
    /// It is no ZIP file, or its directory cannot be found.
    #[error("it is not a ZIP package: {0}")]
    NotZip(String),
    /// The bytes are not what the directory says.
    #[error("{0}")]
    Damaged(String),
    /// It is more than a bound allows.
    #[error(transparent)]
    Beyond(#[from] Beyond),
    /// The file could not be read.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// What a look for a path in a [`Directory`] finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The member.
    Member(Member),
    /// There is none.
    Missing,
    /// There is one that must not be used, and why.
    Refused(&'static str),
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    key: u64,
    member: Member,
    flaw: Option<Flaw>,
    used: bool,
}

#[derive(Clone, Copy, Debug)]
#[repr(u8)]
enum Flaw {
    Name,
    NotAFile,
    Encrypted,
    Method,
    Twice,
    Overlap,
    Outside,
    Bomb,
}

impl Flaw {
    fn text(self) -> &'static str {
        match self {
            Self::Name => "its name in the package leads out of it",
            Self::NotAFile => "it is a symbolic link or a device",
            Self::Encrypted => "it is encrypted",
            Self::Method => "it is compressed by a method other than deflate",
            Self::Twice => "the package has two members of that name",
            Self::Overlap => "it shares bytes with another member",
            Self::Outside => "it is said to lie outside of the package",
            Self::Bomb => "it is said to unfold to more than deflate can, or limit_unfolded allows",
        }
    }
}

/// The directory of a package. Names are kept as keyed 64-bit hashes.
#[derive(Debug)]
pub struct Directory {
    keys: RandomState,
    slots: Vec<Slot>,
    /// Why the walk ended early, if it did.
    pub broken: Option<String>,
}

impl Directory {
    /// Walks the directory of a package.
    ///
    /// # Errors
    /// If a part of it is not there yet, it cannot be found, or has more members than allowed. A directory that breaks off
    /// is kept up to there.
    pub fn read(package: Partial, bounds: &Bounds) -> Result<Self, ArchiveError> {
        let keys = RandomState::new();
        let mut slots: Vec<Slot> = Vec::new();
        let broken = walk(package, bounds, |name, member, flaw| {
            slots.push(Slot { key: keys.hash_one(name), member, flaw, used: false });
        })?;
        mark_overlaps(&mut slots);
        slots.sort_unstable_by_key(|slot| slot.key);
        for at in 1..slots.len() {
            if slots[at].key == slots[at - 1].key {
                slots[at].flaw = Some(Flaw::Twice);
                slots[at - 1].flaw = Some(Flaw::Twice);
            }
        }
        Ok(Self { keys, slots, broken })
    }

    /// Looks for one member without keeping the others in memory. Returns also why the walk ended early,
    /// if it did.
    ///
    /// # Errors
    /// As [`Directory::read`].
    pub fn find_one(package: Partial, path: &str, bounds: &Bounds) -> Result<(Found, Option<String>), ArchiveError> {
        let mut found = Found::Missing;
        let broken = walk(package, bounds, |name, member, flaw| {
            if name != path.as_bytes() {
                return;
            }
            found = match (&found, flaw) {
                (Found::Missing, None) => Found::Member(member),
                (Found::Missing, Some(flaw)) => Found::Refused(flaw.text()),
                _ => Found::Refused(Flaw::Twice.text()),
            };
        })?;
        Ok((found, broken))
    }

    /// The member at a path as a manifest gives it: relative to the root of the package, with a leading
    /// slash or without.
    pub fn find(&mut self, path: &str) -> Found {
        let relative = path.trim().trim_start_matches('/');
        let at = |keys: &RandomState, slots: &[Slot], name: &str| {
            let key = keys.hash_one(name.as_bytes());
            let at = slots.partition_point(|slot| slot.key < key);
            (slots.get(at).is_some_and(|slot| slot.key == key)).then_some(at)
        };
        let with_slash = format!("/{relative}");
        let found = [relative, relative.trim_start_matches("./"), &with_slash]
            .into_iter()
            .find_map(|name| at(&self.keys, &self.slots, name));
        let Some(found) = found else { return Found::Missing };
        let key = self.slots[found].key;
        self.slots[found..].iter_mut().take_while(|slot| slot.key == key).for_each(|slot| slot.used = true);
        let slot = &self.slots[found];
        match slot.flaw {
            None => Found::Member(slot.member),
            Some(flaw) => Found::Refused(flaw.text()),
        }
    }

    /// How many members nobody has looked for.
    #[must_use]
    pub fn unused(&self) -> usize {
        self.slots.iter().filter(|slot| !slot.used).count()
    }
}

/// Visits the members of a package, as its directory has them; returns why that ended early, if it did.
fn walk(
    mut package: Partial,
    bounds: &Bounds,
    mut visit: impl FnMut(&[u8], Member, Option<Flaw>),
) -> Result<Option<String>, ArchiveError> {
    let (hole, size) = (Arc::clone(&package.hole), package.size);
    let mut start = [0; 4];
    package.read_exact(&mut start).map_err(|error| package.judge(error))?;
    let looks_right = matches!(&start, b"PK\x03\x04" | b"PK\x05\x06" | b"PK\x07\x08" | b"PK00");
    let failed = |error: ZipError| match hole.get() {
        Some(at) => ArchiveError::Hole(*at),
        None => match error {
            ZipError::Io(error) if error.kind() != io::ErrorKind::UnexpectedEof => ArchiveError::Io(error),
            error => {
                let start = if looks_right { "" } else { ", and it does not begin as one" };
                ArchiveError::NotZip(format!("{error}{start}"))
            }
        },
    };
    let mut walk = ZipIterable::try_new(package, Config::default()).map_err(&failed)?;
    let count = walk.len();
    if count as u64 > bounds.members {
        return Err(bounds::MEMBERS.passed("the number of its members", bounds).into());
    }
    for (seen, entry) in walk.files().map_err(&failed)?.enumerate() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                if let Some(at) = hole.get() {
                    return Err(ArchiveError::Hole(*at));
                }
                return Ok(Some(format!("its directory breaks off after {seen} of {count} members: {error}")));
            }
        };
        if entry.is_dir() {
            continue;
        }
        let (member, flaw) = judged(&entry, size, bounds);
        visit(entry.name_raw(), member, flaw);
    }
    Ok(None)
}

/// A member of a package of this size, and what is wrong with it, if anything is.
fn judged(entry: &ZipFileEntry<'_>, size: u64, bounds: &Bounds) -> (Member, Option<Flaw>) {
    let name = entry.name_raw();
    let method = match entry.compression() {
        CompressionMethod::Stored => Some(Method::Stored),
        CompressionMethod::Deflated => Some(Method::Deflated),
        _ => None,
    };
    let kind = entry.external_attributes() >> 16 & 0o170_000;
    let (compressed, content) = (entry.compressed_size(), entry.size());
    let member = Member {
        header: entry.header_start(),
        compressed,
        size: content,
        crc: entry.crc32(),
        name_length: u16::try_from(name.len()).unwrap_or(u16::MAX),
        method: method.unwrap_or(Method::Stored),
    };
    // A type of 0 is no type: many writers leave it out.
    let flaw = if leads_out(name) {
        Some(Flaw::Name)
    } else if !matches!(kind, 0 | 0o100_000) && entry.unix_mode().is_some() {
        Some(Flaw::NotAFile)
    } else if entry.encrypted() {
        Some(Flaw::Encrypted)
    } else if method.is_none() {
        Some(Flaw::Method)
    } else if member.least_end().is_none_or(|end| end > size) {
        Some(Flaw::Outside)
    } else if content > compressed.saturating_mul(bounds.unfolded).saturating_add(bounds.unfolded)
        || (method == Some(Method::Stored) && content != compressed)
    {
        Some(Flaw::Bomb)
    } else {
        None
    };
    (member, flaw)
}

/// Whether a name is empty, absolute on Windows, or has a part that leads upwards. One that begins with a slash, as DSpace writes
/// it, is relative to the root of the package: nothing is unpacked.
fn leads_out(name: &[u8]) -> bool {
    let drive = matches!(name, [letter, b':', ..] if letter.is_ascii_alphabetic());
    let absolute = matches!(name.first(), None | Some(b'\\'));
    drive || absolute || name.contains(&0) || name.split(|byte| matches!(byte, b'/' | b'\\')).any(|part| part == b"..")
}

/// Marks members whose bytes are also those of others.
fn mark_overlaps(slots: &mut [Slot]) {
    slots.sort_unstable_by_key(|slot| slot.member.header);
    // The member that reaches furthest so far.
    let mut reach: Option<(u64, usize)> = None;
    for at in 0..slots.len() {
        let Some(end) = slots[at].member.least_end() else { continue };
        if let Some((_, other)) = reach.filter(|(reach, _)| slots[at].member.header < *reach) {
            for one in [at, other] {
                slots[one].flaw = slots[one].flaw.or(Some(Flaw::Overlap));
            }
        }
        if reach.is_none_or(|(reach, _)| end > reach) {
            reach = Some((end, at));
        }
    }
}

impl Member {
    /// Where its bytes end at the earliest: with no extra field in its local header.
    fn least_end(&self) -> Option<u64> {
        self.header.checked_add(LOCAL as u64 + u64::from(self.name_length))?.checked_add(self.compressed)
    }

    /// The part of the package that holds it, in all likelihood: only the local header tells how long
    /// that is.
    #[must_use]
    pub fn extent(&self) -> (u64, u64) {
        (self.header, self.least_end().unwrap_or(u64::MAX).saturating_add(EXTRA))
    }

    /// Where its data begins, read from its local header.
    ///
    /// # Errors
    /// If there is no local header, or one that is not this member's.
    pub fn data(&self, package: &File) -> Result<u64, ArchiveError> {
        let mut head = [0; LOCAL];
        package.read_exact_at(&mut head, self.header)?;
        self.data_after(&head)
    }

    fn data_after(&self, head: &[u8]) -> Result<u64, ArchiveError> {
        let word = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        let method = match self.method {
            Method::Stored => 0,
            Method::Deflated => 8,
        };
        if &head[..4] != b"PK\x03\x04" || word(8) != method || word(26) != self.name_length {
            return Err(ArchiveError::Damaged(
                "the package's directory is wrong: no such member begins there".to_owned(),
            ));
        }
        Ok(self.header + LOCAL as u64 + u64::from(word(26)) + u64::from(word(28)))
    }

    /// The whole content, for members that fit in memory.
    ///
    /// # Errors
    /// If it is not what the directory says.
    pub fn content(&self, package: &File) -> Result<Vec<u8>, ArchiveError> {
        let mut content = Vec::new();
        self.content_into(package, &mut Vec::new(), &mut content)?;
        Ok(content)
    }

    /// As [`Member::content`], into a buffer that may have been used before; so may `raw`, for what is read.
    ///
    /// # Errors
    /// If it is not what the directory says; what is in the buffer then is of no use.
    pub fn content_into(&self, package: &File, raw: &mut Vec<u8>, content: &mut Vec<u8>) -> Result<(), ArchiveError> {
        let guess = LOCAL as u64 + u64::from(self.name_length) + EXTRA + self.compressed;
        raw.resize(usize::try_from(guess).map_err(io::Error::other)?, 0);
        let got = read_up_to(package, raw, self.header)?;
        raw.truncate(got);
        if got < LOCAL {
            return Err(ArchiveError::Damaged("the package ends before it".to_owned()));
        }
        let begin = usize::try_from(self.data_after(raw)? - self.header).map_err(io::Error::other)?;
        let compressed = usize::try_from(self.compressed).map_err(io::Error::other)?;
        if begin + compressed > raw.len() {
            let had = raw.len();
            raw.resize(begin + compressed, 0);
            package.read_exact_at(&mut raw[had..], self.header + had as u64)?;
        }
        let data = &raw[begin..begin + compressed];
        content.resize(usize::try_from(self.size).map_err(io::Error::other)?, 0);
        match self.method {
            Method::Deflated => inflate(data, content)?,
            Method::Stored if data.len() == content.len() => content.copy_from_slice(data),
            Method::Stored => self.check(data.len() as u64, 0)?,
        }
        self.check(content.len() as u64, crc32fast::hash(content))
    }

    fn check(&self, size: u64, crc: u32) -> Result<(), ArchiveError> {
        if size != self.size {
            return Err(ArchiveError::Damaged(format!(
                "it unfolds to {size} bytes where the package's directory says {}",
                self.size
            )));
        }
        if crc != self.crc {
            return Err(ArchiveError::Damaged(format!(
                "its CRC is {crc:08x} where the package's directory says {:08x}",
                self.crc
            )));
        }
        Ok(())
    }

    /// The content as a stream; its last read fails if the whole is not what the directory says.
    ///
    /// # Errors
    /// As [`Member::data`].
    pub fn stream(&self, package: Arc<File>) -> Result<Content, ArchiveError> {
        let section = Section { at: self.data(&package)?, left: self.compressed, file: package };
        let body: Box<dyn Read + Send> = match self.method {
            Method::Stored => Box::new(section),
            Method::Deflated => Box::new(DeflateDecoder::new(io::BufReader::with_capacity(WINDOW, section))),
        };
        // One byte more than there may be shows that there are more.
        Ok(Content { body: body.take(self.size.saturating_add(1)), member: *self, size: 0, crc: Crc::new() })
    }
}

thread_local! {
    static INFLATE: std::cell::RefCell<Decompress> = std::cell::RefCell::new(Decompress::new(false));
}

/// Inflates what is said to fill the buffer, which becomes shorter if it does not.
fn inflate(data: &[u8], out: &mut Vec<u8>) -> Result<(), ArchiveError> {
    let bad = |what: &str| ArchiveError::Damaged(format!("it cannot be inflated: {what}"));
    let size = out.len();
    INFLATE.with_borrow_mut(|inflate| {
        inflate.reset(false);
        match inflate.decompress(data, out, FlushDecompress::Finish) {
            Ok(Status::StreamEnd) => {}
            Ok(_) if inflate.total_out() >= size as u64 => {
                return Err(bad(&format!("it comes to more than the {size} bytes that the directory says")));
            }
            Ok(_) => return Err(bad("it ends too soon")),
            Err(error) => return Err(bad(&error.to_string())),
        }
        out.truncate(usize::try_from(inflate.total_out()).unwrap_or(size));
        Ok(())
    })
}

/// The content of a member on its way.
pub struct Content {
    body: io::Take<Box<dyn Read + Send>>,
    member: Member,
    size: u64,
    crc: Crc,
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Content").field("member", &self.member).finish_non_exhaustive()
    }
}

impl Read for Content {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.body.read(out)?;
        self.size += count as u64;
        self.crc.update(&out[..count]);
        if self.size > self.member.size {
            return Err(io::Error::other(format!(
                "it comes to more than the {} bytes that the directory says",
                self.member.size
            )));
        }
        if count == 0 && !out.is_empty() {
            self.member.check(self.size, self.crc.clone().finalize()).map_err(io::Error::other)?;
        }
        Ok(count)
    }
}

/// A stretch of a file.
struct Section {
    file: Arc<File>,
    at: u64,
    left: u64,
}

impl Read for Section {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(out.len());
        let count = self.file.read_at(&mut out[..most], self.at)?;
        self.at += count as u64;
        self.left -= count as u64;
        Ok(count)
    }
}

/// A package of which parts may be missing, as a file to be read from here and there.
pub struct Partial {
    file: Arc<File>,
    size: u64,
    at: u64,
    /// Whether the offsets from the one up to the other are there.
    here: Box<dyn Fn(u64, u64) -> bool + Send>,
    hole: Arc<std::sync::OnceLock<u64>>,
    window: Vec<u8>,
    window_at: u64,
}

impl std::fmt::Debug for Partial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Partial").field("size", &self.size).finish_non_exhaustive()
    }
}

impl Partial {
    /// A package of `size` bytes; `here` says whether the offsets from one up to another are in the file.
    #[must_use]
    pub fn new(file: Arc<File>, size: u64, here: impl Fn(u64, u64) -> bool + Send + 'static) -> Self {
        let hole = Arc::default();
        Self { file, size, at: 0, here: Box::new(here), hole, window: Vec::new(), window_at: 0 }
    }

    fn judge(&self, error: io::Error) -> ArchiveError {
        match self.hole.get() {
            Some(at) => ArchiveError::Hole(*at),
            None if error.kind() == io::ErrorKind::UnexpectedEof => ArchiveError::NotZip("it is too short".to_owned()),
            None => ArchiveError::Io(error),
        }
    }
}

impl Read for Partial {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.at >= self.size || out.is_empty() {
            return Ok(0);
        }
        let inside = |at: u64| at >= self.window_at && at < self.window_at + self.window.len() as u64;
        if !inside(self.at) {
            // As much as is there, which is at least the next bytes that are wanted.
            let most = (self.size - self.at).min(WINDOW as u64);
            let least = most.min(out.len() as u64);
            let len = [most, most.min(4096), least].into_iter().find(|len| (self.here)(self.at, self.at + len));
            let Some(len) = len else {
                let _ = self.hole.set(self.at);
                return Err(io::Error::other(format!("the bytes at {} are not here yet", self.at)));
            };
            self.window.resize(usize::try_from(len).unwrap_or(WINDOW), 0);
            let got = read_up_to(&self.file, &mut self.window, self.at)?;
            self.window.truncate(got);
            self.window_at = self.at;
        }
        let begin = usize::try_from(self.at - self.window_at).unwrap_or(usize::MAX);
        let bytes = self.window.get(begin..).unwrap_or_default();
        let count = bytes.len().min(out.len());
        out[..count].copy_from_slice(&bytes[..count]);
        self.at += count as u64;
        Ok(count)
    }
}

impl Seek for Partial {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.size.checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(self.at)
    }
}

#[cfg(test)]
mod tests;
