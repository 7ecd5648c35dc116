//! The mounts of this machine, as the kernel lists them.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use rustix::mount::UnmountFlags;

/// A mount of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mounted {
    pub(super) directory: PathBuf,
    pub(super) source: String,
}

/// The type under which the kernel lists us.
pub(super) const TYPE: &str = "fuse.resourcesync";

/// Our mounts that this process can see.
pub(super) fn ours() -> io::Result<Vec<Mounted>> {
    Ok(parse(&std::fs::read_to_string("/proc/self/mountinfo")?))
}

fn parse(mountinfo: &str) -> Vec<Mounted> {
    mountinfo
        .lines()
        .filter_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            let mut after = after.split(' ');
            if after.next()? != TYPE {
                return None;
            }
            let source = unescape(after.next()?);
            let directory = PathBuf::from(unescape(before.split(' ').nth(4)?));
            Some(Mounted { directory, source })
        })
        .collect()
}

/// Undoes the octal escapes of blanks and the like.
fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let octal = bytes
            .get(at + 1..at + 4)
            .filter(|_| bytes[at] == b'\\')
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match octal {
            Some(byte) => {
                out.push(byte);
                at += 4;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The device of whatever is mounted topmost at exactly this directory, as the kernel numbers it: no two file systems that
/// are in use have the same.
pub(super) fn device(directory: &Path) -> io::Result<Option<String>> {
    let all = std::fs::read_to_string("/proc/self/mountinfo")?;
    let topmost = all.lines().rev().map(|line| line.split(' ')).find_map(|mut words| {
        let device = words.nth(2)?;
        (Path::new(&unescape(words.nth(1)?)) == directory).then(|| device.to_owned())
    });
    Ok(topmost)
}

/// Where the file system of this device is mounted: at `own`, if it is there, else where it is topmost.
pub(super) fn place_of(device_number: &str, own: &Path) -> io::Result<Option<PathBuf>> {
    if device(own)?.as_deref() == Some(device_number) {
        return Ok(Some(own.to_owned()));
    }
    let all = std::fs::read_to_string("/proc/self/mountinfo")?;
    let topmost = all.lines().rev().map(|line| line.split(' ')).find_map(|mut words| {
        let is_it = words.nth(2)? == device_number;
        let directory = PathBuf::from(unescape(words.nth(1)?));
        is_it.then_some(directory)
    });
    Ok(topmost)
}

/// The device of the file system that a file is in, as the kernel numbers it in `mountinfo`. Asks the kernel alone: the
/// process that serves the file system may be gone.
pub(super) fn device_of(file: impl AsFd) -> io::Result<String> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = rustix::fs::statx(file, "", flags, StatxFlags::empty())?;
    Ok(format!("{}:{}", found.stx_dev_major, found.stx_dev_minor))
}

/// Opens a directory, to be mounted on, without entering it.
pub(super) fn handle(directory: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, directory, flags, Mode::empty())?)
}

/// Unmounts, for root, what is at a directory, if it is the file system of this device: the owner of a directory above it
/// could lead to another one. Those who still use it keep it until they are done.
pub(super) fn detach(directory: &Path, device: &str) -> io::Result<()> {
    let handle = handle(directory)?;
    if device_of(&handle)? != device {
        return Err(io::Error::other("something else is mounted there now"));
    }
    rustix::mount::unmount(format!("/proc/self/fd/{}", handle.as_raw_fd()), UnmountFlags::DETACH)?;
    Ok(())
}

/// Our topmost mount at exactly this directory.
pub(super) fn at(directory: &Path) -> io::Result<Option<Mounted>> {
    Ok(ours()?.into_iter().rev().find(|mounted| mounted.directory == directory))
}

/// Our mount in which a path lies.
pub(super) fn containing(path: &Path) -> io::Result<Option<Mounted>> {
    let mut found: Option<Mounted> = None;
    for mounted in ours()? {
        let deeper = found.as_ref().is_none_or(|known| mounted.directory.starts_with(&known.directory));
        if path.starts_with(&mounted.directory) && deeper {
            found = Some(mounted);
        }
    }
    Ok(found)
}

/// What is said where a directory is a mount of ours already.
pub(super) fn taken(mounted: &Mounted) -> String {
    let Mounted { directory, source } = mounted;
    format!("{} is mounted already, from {source}; unmount it first, or use -o remount", directory.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_is_read() {
        let text = "36 35 98:0 / /mnt\\040a rw shared:1 - fuse.resourcesync https://a.example/x\\040y ro,user_id=0\n\
                    37 35 98:0 / /mnt/b rw - ext4 /dev/vda rw\n";
        let expected = Mounted { directory: "/mnt a".into(), source: "https://a.example/x y".into() };
        assert_eq!(parse(text), [expected]);
    }
}
