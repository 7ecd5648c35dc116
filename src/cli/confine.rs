//! What a daemon may do, taken from it before it has said a word to anybody.
//!
//! It talks to servers that nobody here controls, as root, for years: a bug in it should not be the end of the machine. So,
//! while it has one thread, it becomes the user of `run_as=`, keeps the capabilities that it uses, gains no others
//! (`no_new_privs`), and reaches of the file system what it needs (Landlock, where the kernel has it): its cache, and what
//! names, certificates and libraries are read from. Mounting and unmounting is not among that: a [`super::guard`] does it.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset,
    RulesetAttr as _, RulesetCreatedAttr as _, RulesetStatus, Scope,
};
use rustix::process::{Gid, Uid};
use rustix::thread::{self, CapabilitySet, CapabilitySets};

use super::syscalls;
use crate::store::private;
use crate::users::{self, User};

/// What is left to a daemon.
#[derive(Clone, Debug)]
pub(super) struct Needs<'a> {
    /// Whom it becomes.
    pub(super) user: Option<&'a User>,
    /// Where it writes.
    pub(super) cache: &'a Path,
}

/// What is read beside the cache: names, certificates, libraries that resolve names, what the machine is like. Directories,
/// not files: `resolv.conf` is replaced by another when the network is.
const READ: [&str; 12] = [
    "/etc",
    "/usr",
    "/lib",
    "/lib64",
    "/nix",
    "/gnu",
    "/proc",
    "/sys/devices/system",
    "/sys/fs/cgroup",
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager",
];
/// Devices: the first three for whoever asks, the last for the session's threads.
const DEVICES: [&str; 4] = ["/dev/null", "/dev/urandom", "/dev/random", "/dev/fuse"];

/// How far a process is held to what it needs of the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// As far as this program knows how to.
    Fully,
    /// As far as this kernel can.
    Partly,
    /// Not at all: this kernel has no Landlock.
    Not,
}

/// Leaves this process no more than it needs. It has one thread.
///
/// # Errors
/// With what could not be taken from it.
pub(super) fn confine(needs: &Needs<'_>) -> Result<Held, String> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |error: rustix::io::Errno| format!("cannot {what}: {error}")
    };
    let root = rustix::process::geteuid().is_root();
    if root {
        for capability in CapabilitySet::all().iter() {
            match thread::remove_capability_from_bounding_set(capability) {
                // Not one of this kernel.
                Err(rustix::io::Errno::INVAL) => {}
                result => result.map_err(failed("drop a capability"))?,
            }
        }
        if let Some(user) = needs.user {
            become_user(user).map_err(failed("become another user"))?;
            if let Err(error) = std::fs::read_dir(needs.cache) {
                return Err(format!(
                    "-o run_as={}: it cannot get to the cache {} ({error}); let it pass through the directories above: chmod o+x",
                    user.name,
                    needs.cache.display()
                ));
            }
        }
    }
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    thread::set_capabilities(None, sets).map_err(failed("drop capabilities"))?;
    thread::set_no_new_privs(true).map_err(failed("give up new privileges"))?;
    syscalls::refuse().map_err(|error| format!("cannot refuse system calls: {error}"))?;
    reach(needs).map_err(|error| format!("cannot confine to {}: {error}", needs.cache.display()))
}

/// Gives up what a copy of this program with the setuid or setgid bit has beyond its caller: the caller's options and
/// environment count as far as the caller's own rights go. Called while there is one thread.
///
/// # Errors
/// If the kernel refuses to drop it.
pub(super) fn be_the_caller() -> Result<(), String> {
    let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
    let failed = |error| format!("cannot give up the rights of the setuid bit ({error}); remove it: chmod u-s,g-s");
    if uid != rustix::process::geteuid() || gid != rustix::process::getegid() {
        thread::set_thread_res_gid(gid, gid, gid).map_err(failed)?;
        thread::set_thread_res_uid(uid, uid, uid).map_err(failed)?;
    }
    if !uid.is_root() {
        // Those that the file has (setcap) are not the caller's, either.
        let none = CapabilitySet::empty();
        let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
        thread::set_capabilities(None, sets).map_err(failed)?;
    }
    Ok(())
}

fn become_user(user: &User) -> rustix::io::Result<()> {
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    thread::set_keep_capabilities(true)?;
    thread::set_thread_groups(&[gid])?;
    thread::set_thread_res_gid(gid, gid, gid)?;
    thread::set_thread_res_uid(uid, uid, uid)?;
    thread::set_keep_capabilities(false)
}

/// What names are resolved by, where it is a link to somewhere else. `resolv.conf` is another file of the same directory when the
/// network is another; but a directory at the top, as `/run`, is not the name servers' alone.
fn names() -> (Vec<PathBuf>, Option<PathBuf>) {
    let files = ["/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/localtime"];
    let files: Vec<PathBuf> = files.iter().filter_map(|file| std::fs::canonicalize(file).ok()).collect();
    let folder = files.iter().find(|file| file.ends_with("resolv.conf")).and_then(|file| file.parent());
    let folder = folder.filter(|folder| folder.components().count() > 2).map(Path::to_owned);
    (files, folder)
}

fn reach(needs: &Needs<'_>) -> Result<Held, landlock::RulesetError> {
    const KNOWN: ABI = ABI::V6;
    let read = AccessFs::from_read(KNOWN) & !AccessFs::Execute;
    let write = AccessFs::from_all(KNOWN)
        & !(AccessFs::Execute | AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev);
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    let below = |paths: Vec<PathBuf>, access| {
        // What is not there need not be reached.
        paths.into_iter().filter_map(move |path| {
            Some(Ok::<_, landlock::RulesetError>(PathBeneath::new(PathFd::new(path).ok()?, access)))
        })
    };
    let (files, folder) = names();
    let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(KNOWN))?
        .handle_access(AccessNet::BindTcp)?
        .scope(Scope::AbstractUnixSocket | Scope::Signal)?
        .create()?
        .add_rules(below(paths(&READ), read))?
        .add_rules(below(folder.into_iter().collect(), read))?
        .add_rules(below(files, AccessFs::ReadFile.into()))?
        .add_rules(below(paths(&DEVICES), device))?
        .add_rules(below(vec![needs.cache.to_owned()], write))?;
    let status = rules.restrict_self()?;
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => Held::Fully,
        RulesetStatus::PartiallyEnforced => Held::Partly,
        RulesetStatus::NotEnforced => Held::Not,
    })
}

/// What a cache directory holds, at its top.
pub(super) const OWN: [&str; 12] = [
    "catalog.db",
    "catalog.db-wal",
    "catalog.db-shm",
    "catalog.db-journal",
    "control",
    "lock",
    "log",
    "log.old",
    "objects",
    "packages",
    "partial",
    "spool",
];

/// Gives a cache, with all that is in it, to a user.
///
/// # Errors
/// If it has anything else in it, or cannot be given.
pub(super) fn give(cache: &Path, user: &User) -> Result<(), String> {
    let failed = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    let owner = std::fs::symlink_metadata(cache).map_err(|error| failed(cache, error))?.uid();
    if owner == user.uid {
        return Ok(());
    }
    if owner != 0 {
        return Err(format!(
            "-o run_as={}: the cache {} belongs to user {}",
            user.name,
            cache.display(),
            users::describe(owner)
        ));
    }
    for item in std::fs::read_dir(cache).map_err(|error| failed(cache, error))? {
        let path = item.map_err(|error| failed(cache, error))?.path();
        // What each ext4 file system has at its top is root's.
        if path.ends_with(private::LOST_AND_FOUND) {
            continue;
        }
        if !path.file_name().and_then(|name| name.to_str()).is_some_and(|name| OWN.contains(&name)) {
            return Err(format!(
                "-o run_as={}: the cache {} has something in it that is not its own ({}); give it a directory that is empty",
                user.name,
                cache.display(),
                path.display()
            ));
        }
    }
    let directory = std::fs::File::open(cache).map_err(|error| failed(cache, error))?;
    private::give_below(&directory, user.uid, user.gid).map_err(|error| failed(cache, error))?;
    // Last: if this is cut off, it is done again.
    std::os::unix::fs::fchown(&directory, Some(user.uid), Some(user.gid)).map_err(|error| failed(cache, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_is_given_and_nothing_else_is() {
        assert!(rustix::process::geteuid().is_root(), "as all tests, for root: only root can give a file away");
        let folder = tempfile::tempdir().unwrap();
        let user = User { name: "somebody".to_owned(), uid: 12_345, gid: 12_346 };
        std::fs::create_dir_all(folder.path().join("objects/aa")).unwrap();
        std::fs::write(folder.path().join("objects/aa/b"), "x").unwrap();
        std::os::unix::fs::symlink("/etc/hosts", folder.path().join("objects/link")).unwrap();
        std::fs::write(folder.path().join("letters"), "mine").unwrap();
        std::fs::create_dir(folder.path().join("lost+found")).unwrap();
        let owner = |path: &str| std::fs::symlink_metadata(folder.path().join(path)).unwrap().uid();
        assert!(give(folder.path(), &user).unwrap_err().contains("letters"));
        assert_eq!((owner("objects"), owner("")), (0, 0));
        std::fs::remove_file(folder.path().join("letters")).unwrap();
        give(folder.path(), &user).unwrap();
        assert_eq!(owner("lost+found"), 0);
        assert_eq!([owner("objects/aa/b"), owner("objects/link"), owner("objects"), owner("")], [user.uid; 4]);
        assert_eq!(std::fs::metadata("/etc/hosts").unwrap().uid(), 0, "what a link leads to is not its own");
        let other = User { uid: 54_321, ..user };
        assert!(give(folder.path(), &other).unwrap_err().contains("belongs to user 12345"));
    }

    /// What a thread may do is its own: the other tests go on as before.
    fn confined<T: Send>(needs: &Needs<'_>, act: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                confine(needs).unwrap();
                act()
            });
            thread.join().unwrap()
        })
    }

    #[test]
    fn a_confined_thread_reaches_its_cache_and_listens_nowhere() {
        let (cache, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(other.path().join("secret"), "x").unwrap();
        let needs = Needs { user: None, cache: cache.path() };
        confined(&needs, || {
            std::fs::create_dir(cache.path().join("objects")).unwrap();
            std::fs::write(cache.path().join("spool"), "x").unwrap();
            std::fs::rename(cache.path().join("spool"), cache.path().join("objects/x")).unwrap();
            assert_eq!(std::fs::read(cache.path().join("objects/x")).unwrap(), b"x");
            std::fs::read_to_string("/etc/hosts").unwrap();
            let denied = |error: std::io::Error| error.kind() == std::io::ErrorKind::PermissionDenied;
            assert!(std::fs::read(other.path().join("secret")).is_err_and(denied));
            assert!(std::fs::write(other.path().join("new"), "x").is_err_and(denied));
            assert!(std::fs::write("/etc/new", "x").is_err_and(denied));
            assert!(std::process::Command::new("/bin/true").status().is_err_and(denied));
            assert_eq!(rustix::process::chroot("/"), Err(rustix::io::Errno::PERM), "seccomp");
            assert!(std::net::TcpListener::bind("127.0.0.1:0").is_err_and(denied));
            assert!(thread::no_new_privs().unwrap());
            assert!(thread::capabilities(None).unwrap().permitted.is_empty());
        });
        assert!(!thread::no_new_privs().unwrap());
    }

    #[test]
    fn a_user_keeps_no_capability() {
        assert!(rustix::process::geteuid().is_root(), "as all tests, for root: only root becomes another");
        let cache = tempfile::tempdir().unwrap();
        let user = User { name: "somebody".to_owned(), uid: 12_345, gid: 12_346 };
        give(cache.path(), &user).unwrap();
        let needs = Needs { user: Some(&user), cache: cache.path() };
        let (uid, caps) = confined(&needs, || {
            std::fs::write(cache.path().join("x"), "x").unwrap();
            let owner = std::fs::metadata(cache.path().join("x")).unwrap().uid();
            assert!(std::net::TcpListener::bind("127.0.0.1:0").is_err(), "nobody listens");
            (owner, thread::capabilities(None).unwrap())
        });
        assert_eq!(uid, user.uid);
        assert_eq!((caps.effective, caps.permitted), (CapabilitySet::empty(), CapabilitySet::empty()));
    }
}
