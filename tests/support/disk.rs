//! A disk that can lose its power: what was written and not flushed is gone then, all of it or some.
//!
//! It is a file in a file system of this test's own, with a loop device and ext4 on it. ext4 flushes the device where it
//! must, the loop device asks for an fsync of the file, and only that makes what was written durable.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, LockOwner,
    OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyWrite, Request, WriteFlags,
};

use super::{scramble, shell};

const BLOCK: usize = 4096;
const FILE: INodeNo = INodeNo(2);

/// What is on the disk, and what is on its way there.
struct Platter {
    durable: Vec<u8>,
    waiting: BTreeMap<usize, Vec<u8>>,
    dead: bool,
    flushes: u64,
}

impl Platter {
    fn block(&self, number: usize) -> &[u8] {
        match self.waiting.get(&number) {
            Some(block) => block,
            None => &self.durable[number * BLOCK..][..BLOCK],
        }
    }

    fn write(&mut self, offset: usize, data: &[u8]) {
        let mut at = 0;
        while at < data.len() {
            let (number, within) = ((offset + at) / BLOCK, (offset + at) % BLOCK);
            let length = (BLOCK - within).min(data.len() - at);
            let mut block = self.block(number).to_vec();
            block[within..within + length].copy_from_slice(&data[at..at + length]);
            self.waiting.insert(number, block);
            at += length;
        }
    }

    fn read(&self, offset: usize, size: usize) -> Vec<u8> {
        let end = (offset + size).min(self.durable.len());
        let mut out = Vec::with_capacity(size);
        while offset + out.len() < end {
            let at = offset + out.len();
            let (number, within) = (at / BLOCK, at % BLOCK);
            let length = (BLOCK - within).min(end - at);
            out.extend_from_slice(&self.block(number)[within..within + length]);
        }
        out
    }

    fn flush(&mut self) {
        self.flushes += 1;
        for (number, block) in std::mem::take(&mut self.waiting) {
            self.durable[number * BLOCK..][..BLOCK].copy_from_slice(&block);
        }
    }
}

/// The file system that the disk's file lies in.
struct Layer(Arc<Mutex<Platter>>);

impl Layer {
    fn attributes(&self, ino: INodeNo) -> FileAttr {
        let size = match ino {
            FILE => self.0.lock().expect("no panic").durable.len() as u64,
            _ => 0,
        };
        let time = SystemTime::UNIX_EPOCH;
        FileAttr {
            ino,
            size,
            blocks: size / 512,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind: if ino == FILE { FileType::RegularFile } else { FileType::Directory },
            perm: 0o700,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

const KNOWN: Duration = Duration::from_secs(3600);

impl Filesystem for Layer {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match name == "disk" {
            true => reply.entry(&KNOWN, &self.attributes(FILE), Generation(0)),
            false => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&KNOWN, &self.attributes(ino));
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = self.0.lock().expect("no panic").read(usize::try_from(offset).expect("it fits"), size as usize);
        reply.data(&read);
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut platter = self.0.lock().expect("no panic");
        if platter.dead {
            return reply.error(Errno::EIO);
        }
        platter.write(usize::try_from(offset).expect("it fits"), data);
        reply.written(u32::try_from(data.len()).expect("it fits"));
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let mut platter = self.0.lock().expect("no panic");
        if platter.dead {
            return reply.error(Errno::EIO);
        }
        platter.flush();
        reply.ok();
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }
}

/// The disk, with ext4 on it. Dropping it takes all of it away.
pub struct Disk {
    platter: Arc<Mutex<Platter>>,
    folder: tempfile::TempDir,
    session: Option<BackgroundSession>,
    device: String,
    mounted: PathBuf,
}

impl Disk {
    /// A new one, mounted at an empty directory.
    pub fn new(megabytes: usize, directory: &Path) -> Self {
        super::require(&["losetup", "mkfs.ext4"]);
        let platter = Platter { durable: vec![0; megabytes << 20], waiting: BTreeMap::new(), dead: false, flushes: 0 };
        let mut disk = Self {
            platter: Arc::new(Mutex::new(platter)),
            folder: tempfile::tempdir().expect("a temporary directory"),
            session: None,
            device: String::new(),
            mounted: directory.to_owned(),
        };
        disk.attach();
        shell(&format!("mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 {}", disk.device));
        disk.mount();
        disk
    }

    fn attach(&mut self) {
        let mut config = Config::default();
        config.mount_options = vec![fuser::MountOption::FSName("disk".to_owned())];
        let layer = Layer(Arc::clone(&self.platter));
        self.session = Some(fuser::spawn_mount(layer, self.folder.path(), &config).expect("a mount"));
        let file = self.folder.path().join("disk");
        self.device = shell(&format!("losetup --find --show {}", file.display())).trim().to_owned();
    }

    fn mount(&self) {
        shell(&format!("mount -t ext4 {} {}", self.device, self.mounted.display()));
    }

    fn detach(&mut self) {
        // Whatever state it is in; errors say that it is gone already.
        let folder = self.mounted.display().to_string();
        let device = std::mem::take(&mut self.device);
        shell(&format!("umount -l {folder} 2>/dev/null || true; [ -z '{device}' ] || losetup -d {device} || true"));
        if let Some(session) = self.session.take() {
            let _ = session.umount_and_join();
        }
    }

    /// The power goes: of what was not flushed, each block is there or not, as the seed says; nothing is written any more.
    pub fn loses_power(&self, seed: u64) {
        let mut platter = self.platter.lock().expect("no panic");
        platter.dead = true;
        let kept = [0, 50, 90][usize::try_from(seed % 3).expect("it fits")];
        for (number, block) in std::mem::take(&mut platter.waiting) {
            if scramble(seed ^ (number as u64) << 8) % 100 < kept {
                platter.durable[number * BLOCK..][..BLOCK].copy_from_slice(&block);
            }
        }
    }

    /// The power comes back. Whoever used it, and is still about to write, writes to what is dead.
    pub fn comes_back(&mut self) {
        self.detach();
        let (durable, flushes) = {
            let mut dead = self.platter.lock().expect("no panic");
            (dead.durable.clone(), std::mem::take(&mut dead.flushes))
        };
        let platter = Platter { durable, waiting: BTreeMap::new(), dead: false, flushes };
        self.platter = Arc::new(Mutex::new(platter));
        self.attach();
        self.mount();
    }

    pub fn flushes(&self) -> u64 {
        self.platter.lock().expect("no panic").flushes
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.detach();
    }
}
