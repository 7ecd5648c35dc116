//! Bytes: content by its SHA-256, packages as they came, files that are still being fetched, documents
//! on their way in.
//!
//! **Owns** what lies under the cache directory beside the catalog: `objects/`, one file for each
//! distinct content; `packages/`, packages of dumps, whole or in part; `partial/`, what was fetched of
//! a version so far; `spool/`, documents while they are read. And what a ZIP package looks like inside
//! ([`archive`]), and a WARC file ([`warc`]).
//!
//! **Assumes** that one process holds the cache.
//!
//! **Promises** that an object, once there, is whole and is what its name says (it comes into being by
//! a rename of a file that was hashed before); that no name from outside is ever a path on disk; that
//! [`Store::flush`] brings everything to the disk.
//!
//! **Never knows** what a resource is called or where it came from.

pub mod archive;
pub mod boot;
pub mod private;
pub mod warc;

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use data_encoding::HEXLOWER;
use rustix::fs::OFlags;
use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;

use crate::bounds;

/// The store of one cache directory.
#[derive(Debug)]
pub struct Store {
    root: PathBuf,
    /// The directories in it, by which files are opened.
    objects: OwnedFd,
    packages: OwnedFd,
    partial: OwnedFd,
    /// Bytes of the disk that are left free for others.
    free: u64,
}

/// Room on the file system of the cache, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// In all.
    pub total: u64,
    /// For us.
    pub available: u64,
}

/// A file of content.
#[derive(Clone, Copy, Debug)]
pub struct Object {
    /// Its digest.
    pub sha256: [u8; 32],
    /// Bytes.
    pub size: u64,
    /// When it was given its name, in whole seconds.
    pub came: SystemTime,
}

/// Content, to be read at offsets.
#[derive(Clone, Debug)]
pub enum Body {
    /// A stretch of a file: where it begins there, and its length in bytes.
    File(Arc<File>, u64, u64),
    /// Bytes in memory.
    Memory(Arc<[u8]>),
}

thread_local! {
    /// Grows to the largest request that its thread has answered: the kernel's are 1 MiB at most.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl Body {
    /// A file from its beginning.
    #[must_use]
    pub fn whole(file: Arc<File>, size: u64) -> Self {
        Self::File(file, 0, size)
    }

    /// Gives so many bytes from an offset on, or up to the end, to `take`; or why they cannot be read.
    ///
    /// A buffer of the size of most requests, made anew for each, is memory that the kernel maps, clears and takes back each
    /// time: so each thread keeps its own.
    pub fn read_at<T>(&self, offset: u64, size: u32, take: impl FnOnce(io::Result<&[u8]>) -> T) -> T {
        match self {
            Self::Memory(bytes) => {
                let begin = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
                let end = begin.saturating_add(size as usize).min(bytes.len());
                take(Ok(&bytes[begin..end]))
            }
            Self::File(file, begin, len) => {
                let most = usize::try_from(len.saturating_sub(offset).min(u64::from(size))).unwrap_or(0);
                let mut buffer = BUFFER.take();
                if buffer.len() < most {
                    buffer.resize(most, 0);
                }
                let got = read_up_to(file, &mut buffer[..most], begin.saturating_add(offset));
                let taken = take(got.map(|got| &buffer[..got]));
                BUFFER.set(buffer);
                taken
            }
        }
    }
}

/// Hashes what is left of a file.
///
/// # Errors
/// If it cannot be read.
pub fn hash(file: &mut File, hasher: &mut Sha256) -> io::Result<()> {
    let mut buffer = vec![0; 256 << 10];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(()),
            count => hasher.update(&buffer[..count]),
        }
    }
}

/// Reads what is there of so many bytes.
fn read_up_to(file: &File, out: &mut [u8], at: u64) -> io::Result<usize> {
    let mut got = 0;
    while got < out.len() {
        match file.read_at(&mut out[got..], at + got as u64) {
            Ok(0) => break,
            Ok(count) => got += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

impl Store {
    /// Opens the store of a cache directory, making what is missing, and empties the spool of what a
    /// process before us left there. So many bytes of the disk are left free for others.
    ///
    /// # Errors
    /// If a directory cannot be made or read.
    pub fn open(cache: &Path, free: u64) -> io::Result<Self> {
        let root = File::open(cache)?;
        let directory = |name| private::subdirectory(&root, name);
        let store = Self {
            root: cache.to_owned(),
            objects: directory("objects")?,
            packages: directory("packages")?,
            partial: directory("partial")?,
            free,
        };
        directory("spool")?;
        for stale in fs::read_dir(store.root.join("spool"))? {
            fs::remove_file(stale?.path())?;
        }
        Ok(store)
    }

    /// The cache directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The path of content below `objects`.
    fn object_name(sha256: &[u8; 32]) -> PathBuf {
        let mut name = HEXLOWER.encode(sha256);
        name.insert(2, '/');
        name.into()
    }

    fn object_path(&self, sha256: &[u8; 32]) -> PathBuf {
        self.root.join("objects").join(Self::object_name(sha256))
    }

    /// Opens the content with this digest.
    ///
    /// # Errors
    /// If it is not there. A file that another user could have changed counts as missing.
    pub fn object(&self, sha256: &[u8; 32]) -> io::Result<File> {
        private::file(&self.objects, &Self::object_name(sha256), OFlags::RDONLY).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => io::Error::new(io::ErrorKind::NotFound, error),
            _ => error,
        })
    }

    /// Whether there is content with this digest; where that cannot be found out, there is.
    #[must_use]
    pub fn has(&self, sha256: &[u8; 32]) -> bool {
        !self.object(sha256).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// When the content with this digest was given its name, in whole seconds.
    ///
    /// # Errors
    /// If it is not there.
    pub fn came(&self, sha256: &[u8; 32]) -> io::Result<SystemTime> {
        Ok(given_its_name(&fs::symlink_metadata(self.object_path(sha256))?))
    }

    /// Makes content of bytes whose digest is known.
    ///
    /// # Errors
    /// If the disk is full, and so on; then nothing is left behind.
    pub fn put(&self, sha256: &[u8; 32], bytes: &[u8]) -> io::Result<()> {
        let mut file = self.spool()?;
        file.write_all(bytes)?;
        self.adopt(sha256, file.into_temp_path())
    }

    /// Makes content of a file of this store whose digest is known.
    ///
    /// # Errors
    /// If the file cannot be moved.
    pub fn adopt(&self, sha256: &[u8; 32], file: tempfile::TempPath) -> io::Result<()> {
        private::subdirectory(&self.objects, &format!("{:02x}", sha256[0]))?;
        file.persist(self.object_path(sha256)).map_err(|error| error.error)
    }

    /// The content in the folder of those whose digests begin with this byte.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn objects(&self, first: u8) -> io::Result<Vec<Object>> {
        let folder = self.root.join("objects").join(format!("{first:02x}"));
        let files = match fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            files => files?,
        };
        let mut objects = Vec::new();
        for file in files {
            let file = file?;
            let Some(sha256) = file.file_name().to_str().and_then(|name| digest(first, name)) else { continue };
            let metadata = file.metadata()?;
            objects.push(Object { sha256, size: metadata.len(), came: given_its_name(&metadata) });
        }
        Ok(objects)
    }

    /// Removes content. That it is gone already is no error.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn remove(&self, sha256: &[u8; 32]) -> io::Result<()> {
        absent_is_fine(fs::remove_file(self.object_path(sha256)))
    }

    /// Whether content is what its name says.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn check(&self, sha256: &[u8; 32]) -> io::Result<bool> {
        let mut hasher = Sha256::new();
        hash(&mut self.object(sha256)?, &mut hasher)?;
        Ok(hasher.finalize().as_slice() == sha256)
    }

    /// A new file that vanishes if nobody adopts it.
    ///
    /// # Errors
    /// If it cannot be made, or nothing more is to be written.
    pub fn spool(&self) -> io::Result<NamedTempFile> {
        self.check_room(0)?;
        NamedTempFile::new_in(self.root.join("spool"))
    }

    /// The file of what was fetched so far of a version, made where there is none.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn partial(&self, version: i64) -> io::Result<File> {
        open_or_make(&self.partial, &version.to_string())
    }

    /// The file of a package, as much of it as there is, made where there is none.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn package(&self, package: i64) -> io::Result<File> {
        open_or_make(&self.packages, &package.to_string())
    }

    fn package_path(&self, package: i64) -> PathBuf {
        self.root.join("packages").join(package.to_string())
    }

    /// Where notes on it lie: which parts of it are there.
    #[must_use]
    pub fn package_notes(&self, package: i64) -> PathBuf {
        self.package_path(package).with_extension("json")
    }

    /// The packages of which there is anything.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn packages(&self) -> io::Result<Vec<i64>> {
        numbers(&self.root.join("packages"))
    }

    /// Forgets the notes on a package: all of it is there.
    ///
    /// # Errors
    /// If they cannot be removed.
    pub fn forget_package_notes(&self, package: i64) -> io::Result<()> {
        absent_is_fine(fs::remove_file(self.package_notes(package)))
    }

    /// Puts a file in the place of what there is of a package; who has that open goes on with it.
    ///
    /// # Errors
    /// If it cannot be put there.
    pub fn replace_package(&self, package: i64, file: NamedTempFile) -> io::Result<()> {
        file.as_file().sync_data()?;
        file.persist(self.package_path(package)).map_err(|error| error.error)?;
        Ok(())
    }

    /// Forgets what there is of a package.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn forget_package(&self, package: i64) -> io::Result<()> {
        self.forget_package_notes(package)?;
        absent_is_fine(fs::remove_file(self.package_path(package)))
    }

    /// Where that file lies.
    #[must_use]
    pub fn partial_path(&self, version: i64) -> PathBuf {
        self.root.join("partial").join(version.to_string())
    }

    /// Where notes on it lie: what it is a part of.
    #[must_use]
    pub fn partial_notes(&self, version: i64) -> PathBuf {
        self.root.join("partial").join(format!("{version}.json"))
    }

    /// The versions of which a part was fetched.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn partials(&self) -> io::Result<Vec<i64>> {
        numbers(&self.root.join("partial"))
    }

    /// Forgets what was fetched so far of a version.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn forget_partial(&self, version: i64) -> io::Result<()> {
        absent_is_fine(fs::remove_file(self.partial_notes(version)))?;
        absent_is_fine(fs::remove_file(self.partial_path(version)))
    }

    /// Brings everything to the disk.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn flush(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(File::open(&self.root)?)?)
    }

    /// Whether so many bytes more leave enough for others.
    ///
    /// # Errors
    /// With what is missing, and what to do.
    pub fn check_room(&self, needed: u64) -> io::Result<()> {
        let room = self.room()?;
        if needed.saturating_add(self.free) > room.available {
            let text = format!(
                "{needed} bytes more are needed, and {} are free; make room, or set cache_size= ({}={} stays free)",
                room.available,
                bounds::FREE,
                bounds::FREE.unit.show(self.free)
            );
            return Err(io::Error::new(io::ErrorKind::StorageFull, text));
        }
        Ok(())
    }

    /// Room on the file system of the cache.
    ///
    /// # Errors
    /// If the file system does not say.
    pub fn room(&self) -> io::Result<Room> {
        let found = rustix::fs::statvfs(&self.root)?;
        Ok(Room {
            total: found.f_blocks.saturating_mul(found.f_frsize),
            available: found.f_bavail.saturating_mul(found.f_frsize),
        })
    }
}

fn given_its_name(metadata: &fs::Metadata) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(metadata.ctime()).unwrap_or(0))
}

/// The digest that a file is named by: its first byte names the folder.
fn digest(first: u8, name: &str) -> Option<[u8; 32]> {
    let mut digest = [first; 32];
    if name.len() != 62 || !name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    for (byte, at) in digest[1..].iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&name[at..at + 2], 16).ok()?;
    }
    Some(digest)
}

/// Opens a file, made where there is none. One that another user could have changed is removed first.
fn open_or_make(directory: &OwnedFd, name: &str) -> io::Result<File> {
    let open = || private::file(directory, Path::new(name), OFlags::RDWR | OFlags::CREATE);
    match open() {
        Err(error)
            if error.kind() == io::ErrorKind::PermissionDenied
                || error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) =>
        {
            rustix::fs::unlinkat(directory, name, rustix::fs::AtFlags::empty())?;
            open()
        }
        result => result,
    }
}

/// The numbers that files in a directory are named by.
fn numbers(directory: &Path) -> io::Result<Vec<i64>> {
    let mut numbers = Vec::new();
    for file in fs::read_dir(directory)? {
        numbers.extend(file?.path().file_stem().and_then(|stem| stem.to_str()?.parse::<i64>().ok()));
    }
    numbers.sort_unstable();
    numbers.dedup();
    Ok(numbers)
}

fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
