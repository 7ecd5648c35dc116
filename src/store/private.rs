//! A directory that no other user can change: neither what is in it, nor what its path leads to.
//!
//! A user who can write to a directory, or to one above it, can put other files in the place of those that are there. Content
//! and catalog are believed because they were verified when they came, so both have to lie where only the user of the daemon
//! and root can write. [`open`] checks each directory on the way, and opens the next one relative to it; what is in the
//! directory is opened relative to that, and no symbolic link is followed.

use std::fs::{File, Permissions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags};
use thiserror::Error;

/// Why a directory is not private.
#[derive(Debug, Error)]
pub enum Exposed {
    /// It, or one above it, belongs to another user.
    #[error(
        "{path} belongs to user {owner}, who could replace what is in it; give another directory, or change its owner: chown {expected} {path}"
    )]
    Owner {
        /// The directory.
        path: String,
        /// Whose it is.
        owner: u32,
        /// Whose it should be.
        expected: u32,
    },
    /// It, or one above it, can be written by others.
    #[error("{path} can be written by {who} (mode {mode:04o}); remove that permission: chmod {change} {path}")]
    Writable {
        /// The directory.
        path: String,
        /// By whom: its group, or everybody.
        who: &'static str,
        /// Its permissions.
        mode: u32,
        /// What `chmod` takes.
        change: &'static str,
    },
    /// It cannot be made or opened.
    #[error("{path}: {source}")]
    Io {
        /// The directory.
        path: String,
        /// Why.
        source: io::Error,
    },
}

impl From<Exposed> for io::Error {
    fn from(exposed: Exposed) -> Self {
        let kind = match &exposed {
            Exposed::Io { source, .. } => source.kind(),
            Exposed::Owner { .. } | Exposed::Writable { .. } => io::ErrorKind::PermissionDenied,
        };
        Self::new(kind, exposed)
    }
}

impl Exposed {
    fn io(path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io { path: path.display().to_string(), source: source.into() }
    }
}

/// Who may own a private directory, and those above it, beside root.
#[derive(Clone, Copy)]
pub struct Owners<'a> {
    /// The users that may own the directory itself.
    pub users: &'a [u32],
    /// And those above it.
    pub above: &'a [u32],
    /// Whether a group has this user as its only member: such a group may have write permission.
    pub is_private_group: &'a dyn Fn(u32, u32) -> bool,
}

impl std::fmt::Debug for Owners<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Owners").field("users", &self.users).finish_non_exhaustive()
    }
}

impl Owners<'_> {
    fn check_owner(&self, path: &Path, owner: u32, is_last: bool) -> Result<(), Exposed> {
        let users = if is_last { self.users } else { self.above };
        if owner == 0 || users.contains(&owner) {
            return Ok(());
        }
        let expected = users.first().copied().unwrap_or(0);
        Err(Exposed::Owner { path: path.display().to_string(), owner, expected })
    }

    fn check(&self, path: &Path, directory: &File, is_last: bool) -> Result<(), Exposed> {
        let metadata = directory.metadata().map_err(|error| Exposed::io(path, error))?;
        let (owner, mode) = (metadata.uid(), metadata.mode() & 0o7777);
        let shown = || path.display().to_string();
        self.check_owner(path, owner, is_last)?;
        // In a directory with the sticky bit, each can remove what is his own alone, and what comes below is checked.
        if mode & 0o1000 != 0 && !is_last {
            return Ok(());
        }
        // With an access control list, these are the permissions of whomever it names. Where that is not told, there may be one.
        let has_list = || {
            let list = rustix::fs::fgetxattr(directory, "system.posix_acl_access", &mut [0_u8; 0][..]);
            !matches!(list, Err(rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP))
        };
        let by_group = mode & 0o020 != 0 && (has_list() || !(self.is_private_group)(metadata.gid(), owner));
        match (mode & 0o002 != 0, by_group) {
            (true, _) => Err(Exposed::Writable { path: shown(), who: "everybody", mode, change: "o-w" }),
            (_, true) => Err(Exposed::Writable { path: shown(), who: "its group", mode, change: "g-w" }),
            _ => Ok(()),
        }
    }
}

fn open_directory(above: impl AsFd, name: &Path) -> rustix::io::Result<File> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(above, name, flags, Mode::empty()).map(File::from)
}

/// Opens a directory on the way to another: one that may be entered and not listed is passed through.
fn open_above(above: impl AsFd, name: &Path) -> rustix::io::Result<File> {
    match open_directory(&above, name) {
        Err(rustix::io::Errno::ACCESS) => {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::openat(above, name, flags, Mode::empty()).map(File::from)
        }
        opened => opened,
    }
}

/// The most symbolic links in a path, as the kernel has it.
const MOST_LINKS: usize = 40;

/// How a directory is entered.
#[derive(Clone, Copy)]
struct Entering {
    /// Whether it is the one that is wanted, and not one above it.
    is_last: bool,
    /// Whether it is made if it is missing.
    makes: bool,
}

/// A walk along a path, from directory to directory, each of which is checked before anything is looked up in it.
struct Walk<'o> {
    owners: Owners<'o>,
    /// From the root to where it is: each directory with its path.
    at: Vec<(File, PathBuf)>,
    links: usize,
}

impl<'o> Walk<'o> {
    fn new(owners: Owners<'o>) -> Result<Self, Exposed> {
        let root = PathBuf::from("/");
        let directory = open_directory(CWD, &root).map_err(|error| Exposed::io(&root, error))?;
        owners.check(&root, &directory, false)?;
        Ok(Self { owners, at: vec![(directory, root)], links: 0 })
    }

    /// Where it is. It is never empty: nothing is above the root.
    fn here(&self) -> Option<&(File, PathBuf)> {
        self.at.last()
    }

    /// Goes along a path. What is made is for its owner alone, but for what is above the last directory, which anybody may enter if
    /// root makes it, since the daemon may become another user.
    fn along(&mut self, path: &Path, how: Entering) -> Result<(), Exposed> {
        let steps: Vec<Component<'_>> = path.components().collect();
        for (index, step) in steps.iter().enumerate() {
            let is_last = how.is_last && index + 1 == steps.len();
            match step {
                Component::RootDir => self.at.truncate(1),
                Component::ParentDir => self.at.truncate(self.at.len().saturating_sub(1).max(1)),
                Component::Normal(name) => self.enter(Path::new(name), Entering { is_last, ..how })?,
                Component::CurDir | Component::Prefix(_) => {}
            }
        }
        Ok(())
    }

    fn enter(&mut self, name: &Path, how: Entering) -> Result<(), Exposed> {
        let Entering { is_last, makes } = how;
        let Some((above, path)) = self.here() else { return Ok(()) };
        let path = path.join(name);
        let io = |error: rustix::io::Errno| Exposed::io(&path, error);
        let found = rustix::fs::openat(above, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
        let is_new = makes && matches!(found, Err(rustix::io::Errno::NOENT));
        if is_new {
            match rustix::fs::mkdirat(above, name, Mode::RWXU) {
                Ok(()) => {}
                // Another process made it since: it is checked as what was there before. What comes and goes ends the walk.
                Err(rustix::io::Errno::EXIST) => return self.enter(name, Entering { makes: false, ..how }),
                Err(error) => return Err(io(error)),
            }
        } else {
            let found = File::from(found.map_err(io)?);
            let metadata = found.metadata().map_err(|error| Exposed::io(&path, error))?;
            if metadata.is_symlink() {
                self.links += 1;
                if self.links > MOST_LINKS {
                    return Err(io(rustix::io::Errno::LOOP));
                }
                self.owners.check_owner(&path, metadata.uid(), false)?;
                let target = rustix::fs::readlinkat(&found, "", Vec::new()).map_err(io)?;
                let target = PathBuf::from(std::ffi::OsString::from_vec(target.into_bytes()));
                return self.along(&target, how);
            }
        }
        let directory = if is_last { open_directory(above, name) } else { open_above(above, name) }.map_err(io)?;
        if is_new && !is_last && rustix::process::geteuid().is_root() {
            directory.set_permissions(Permissions::from_mode(0o755)).map_err(|error| Exposed::io(&path, error))?;
        }
        self.owners.check(&path, &directory, is_last)?;
        self.at.push((directory, path));
        Ok(())
    }
}

/// Opens a directory, made where there is none, if it is private to `owners` and root. Returns it with its path, in which there
/// is no symbolic link.
///
/// # Errors
/// If it is exposed, or cannot be made or opened.
pub fn open(path: &Path, owners: Owners<'_>) -> Result<(OwnedFd, PathBuf), Exposed> {
    let mut walk = Walk::new(owners)?;
    walk.along(path, Entering { is_last: true, makes: true })?;
    // A path that ends in a link to a directory above ends in one that was checked as such.
    if let Some((directory, path)) = walk.here() {
        owners.check(path, directory, true)?;
    }
    match walk.at.pop() {
        // It may have been opened as one on the way, which cannot be listed.
        Some((directory, path)) => match open_directory(directory, Path::new(".")) {
            Ok(directory) => Ok((directory.into(), path)),
            Err(error) => Err(Exposed::io(&path, error)),
        },
        None => Err(Exposed::io(path, io::ErrorKind::NotFound)),
    }
}

/// Removes a directory that is private to `owners` and root, if it is empty.
///
/// # Errors
/// If it is exposed, or is not empty.
pub fn remove_empty(path: &Path, owners: Owners<'_>) -> Result<(), Exposed> {
    let mut walk = Walk::new(owners)?;
    walk.along(path, Entering { is_last: true, makes: false })?;
    let [.., (above, _), (_, path)] = walk.at.as_slice() else { return Ok(()) };
    let name = path.file_name().unwrap_or_default();
    rustix::fs::unlinkat(above, name, AtFlags::REMOVEDIR).map_err(|error| Exposed::io(path, error))
}

/// What fsck(8) finds is in a directory of this name, and is for root.
pub const LOST_AND_FOUND: &str = "lost+found";

/// Gives all that is below a directory, but for `lost+found`, to a user, what is in a directory before that itself, without following any link.
///
/// # Errors
/// If something cannot be given.
pub fn give_below(directory: &File, uid: u32, gid: u32) -> io::Result<()> {
    let (user, group) = (rustix::fs::Uid::from_raw(uid), rustix::fs::Gid::from_raw(gid));
    for entry in rustix::fs::Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") || name.to_bytes() == LOST_AND_FOUND.as_bytes() {
            continue;
        }
        match rustix::fs::openat(directory, name, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
        {
            Ok(below) => give_below(&File::from(below), uid, gid)?,
            // It is a file or a link.
            Err(rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP | rustix::io::Errno::NXIO) => {}
            Err(error) => return Err(error.into()),
        }
        rustix::fs::chownat(directory, name, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}

/// Opens, or makes, a directory in a private one, if it is the daemon's own.
///
/// # Errors
/// If it is a link, belongs to another user, or cannot be made.
pub fn subdirectory(above: impl AsFd, name: &str) -> io::Result<OwnedFd> {
    match rustix::fs::mkdirat(&above, name, Mode::RWXU) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let directory = open_directory(above, Path::new(name))?;
    let metadata = directory.metadata()?;
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        let text =
            format!("{name} in the cache belongs to user {}; remove it, or use another cache=DIR", metadata.uid());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    if metadata.mode() & 0o077 != 0 {
        directory.set_permissions(Permissions::from_mode(0o700))?;
    }
    Ok(directory.into())
}

/// Opens a file below a private directory. No link is followed on the way.
///
/// # Errors
/// If it cannot be opened, is no plain file, or if another user owns it or could have written to it: then the kind of
/// the error is [`io::ErrorKind::PermissionDenied`].
pub fn file(above: impl AsFd, path: &Path, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let mode = if flags.contains(OFlags::CREATE) { Mode::RUSR | Mode::WUSR } else { Mode::empty() };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let opened = rustix::fs::openat2(&above, path, flags, mode, resolve);
    let opened = match opened {
        // Kernels before 5.6: the directories on the way were checked when they were opened first.
        Err(rustix::io::Errno::NOSYS) => rustix::fs::openat(above, path, flags, mode)?,
        opened => opened?,
    };
    let file = File::from(opened);
    let metadata = file.metadata()?;
    let own = metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & 0o022 == 0;
    if !metadata.is_file() || !own {
        let text = format!("{}: it is not the daemon's own file, or others can write to it", path.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(file)
}

/// Takes the permissions of others from the files and directories at the top of a cache that earlier versions of this program
/// made with them. Returns whether others could read any of the files.
///
/// # Errors
/// If that cannot be done.
pub fn tighten(cache: impl AsFd, names: &[&str]) -> io::Result<bool> {
    let mut was_readable = false;
    for name in names {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = match rustix::fs::openat(&cache, *name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            // It is a socket, or is not there.
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NXIO) => continue,
            Err(error) => return Err(error.into()),
        };
        let metadata = file.metadata()?;
        if metadata.mode() & 0o077 != 0 {
            was_readable |= metadata.is_file() && metadata.mode() & 0o044 != 0;
            let mode = if metadata.is_dir() { 0o700 } else { 0o600 };
            file.set_permissions(Permissions::from_mode(mode))?;
        }
    }
    Ok(was_readable)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    const NOBODY: u32 = 65_534;

    fn open_for_root(path: &Path) -> Result<(), String> {
        open(path, Owners { users: &[], above: &[], is_private_group: &|_, _| false })
            .map(drop)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn what_another_user_could_change_is_refused() {
        assert!(rustix::process::geteuid().is_root(), "only root can give a directory away");
        let folder = tempfile::tempdir().unwrap();
        let (above, cache) = (folder.path().join("above"), folder.path().join("above/cache"));
        open_for_root(&cache).unwrap();
        assert_eq!(std::fs::metadata(&cache).unwrap().mode() & 0o777, 0o700);
        for (path, mode, part) in [
            (&above, 0o775, "by its group (mode 0775)"),
            (&above, 0o757, "by everybody (mode 0757)"),
            (&cache, 0o720, "by its group"),
            (&cache, 0o1777, "by everybody"),
        ] {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
            let error = open_for_root(&cache).unwrap_err();
            assert!(error.contains(part) && error.contains("chmod"), "{error}");
            std::fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
        }
        // Nor what a link in another user's directory leads to; nor is anything changed on the way.
        let (own, victim) = (folder.path().join("own"), folder.path().join("victim"));
        std::fs::create_dir(&own).unwrap();
        std::fs::write(&victim, "x").unwrap();
        std::fs::set_permissions(&victim, Permissions::from_mode(0o600)).unwrap();
        for target in [&above, &victim] {
            symlink(target, own.join("link")).unwrap();
            chown(&own, Some(NOBODY), None).unwrap();
            assert!(open_for_root(&own.join("link/x/y")).unwrap_err().contains("belongs to user 65534"));
            chown(&own, Some(0), None).unwrap();
            std::os::unix::fs::lchown(own.join("link"), Some(NOBODY), None).unwrap();
            assert!(open_for_root(&own.join("link/x/y")).unwrap_err().contains("belongs to user 65534"));
            std::fs::remove_file(own.join("link")).unwrap();
        }
        assert_eq!(std::fs::metadata(&victim).unwrap().mode() & 0o777, 0o600);
        symlink("../above", own.join("link")).unwrap();
        let (_, real) =
            open(&own.join("link/x/y"), Owners { users: &[], above: &[], is_private_group: &|_, _| false }).unwrap();
        assert_eq!(real, above.join("x/y"));
        remove_empty(&own.join("link/x/y"), Owners { users: &[], above: &[], is_private_group: &|_, _| false })
            .unwrap();
        assert!(!above.join("x/y").exists());
        // In a directory such as /tmp, others can make entries, and remove none that are not theirs.
        std::fs::set_permissions(&above, Permissions::from_mode(0o1777)).unwrap();
        open_for_root(&cache).unwrap();
        for path in [&above, &cache] {
            chown(path, Some(NOBODY), None).unwrap();
            let error = open_for_root(&cache).unwrap_err();
            assert!(error.contains("belongs to user 65534"), "{error}");
            open(&cache, Owners { users: &[NOBODY], above: &[NOBODY], is_private_group: &|_, _| false }).unwrap();
            chown(path, Some(0), None).unwrap();
        }
    }

    #[test]
    fn what_is_not_the_daemons_own_is_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let root = open_directory(CWD, folder.path()).unwrap();
        let other = tempfile::tempdir().unwrap();
        symlink(other.path(), folder.path().join("link")).unwrap();
        assert!(subdirectory(&root, "link").is_err());
        let own = subdirectory(&root, "objects").unwrap();
        std::fs::write(other.path().join("victim"), "x").unwrap();
        symlink(other.path().join("victim"), folder.path().join("objects/link")).unwrap();
        assert!(file(&own, Path::new("link"), OFlags::RDONLY).is_err());
        assert!(file(&root, Path::new("link/victim"), OFlags::RDONLY).is_err());
        assert!(file(&root, Path::new("../escaped"), OFlags::RDWR | OFlags::CREATE).is_err());
        file(&own, Path::new("new"), OFlags::RDWR | OFlags::CREATE).unwrap();
        let path = folder.path().join("objects/new");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        std::fs::set_permissions(&path, Permissions::from_mode(0o620)).unwrap();
        let error = file(&own, Path::new("new"), OFlags::RDONLY).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert!(tighten(&own, &["new", "missing"]).unwrap());
        assert!(!tighten(&own, &["new"]).unwrap());
        file(&own, Path::new("new"), OFlags::RDONLY).unwrap();
    }
}
