//! What a daemon may do, taken from it before it has said a word to anybody.
//!
//! It talks to servers that nobody here controls, as root, for years: a bug in it should not be the end of the machine. So,
//! while it has one thread, it becomes the user it is told to be (`user=`), keeps the capabilities that it uses, gains no others
//! (`no_new_privs`), and reaches of the file system what it needs (Landlock, where the kernel has it): its cache, and what
//! names, certificates and libraries are read from. Mounting and unmounting is not among that: a [`super::guard`] does it.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, NetPort, PathBeneath, PathFd, Ruleset,
    RulesetAttr as _, RulesetCreatedAttr as _, RulesetStatus, Scope,
};
use rustix::process::{Gid, Uid};
use rustix::thread::{self, CapabilitySet, CapabilitySets};

/// Somebody of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// As it was given.
    pub name: String,
    /// Its number.
    pub uid: u32,
    /// The number of its own group.
    pub gid: u32,
}

impl User {
    /// Finds a user by its name or its number.
    ///
    /// # Errors
    /// If there is no such user.
    pub fn find(name: &str) -> Result<Self, String> {
        let users = std::fs::read_to_string("/etc/passwd").map_err(|error| format!("/etc/passwd: {error}"))?;
        let found = users.lines().map(|line| line.split(':').collect::<Vec<_>>()).find_map(|fields| {
            let [own, _, uid, gid, ..] = fields.as_slice() else { return None };
            let (uid, gid) = (uid.parse().ok()?, gid.parse().ok()?);
            (*own == name || name.parse() == Ok(uid)).then_some((uid, gid))
        });
        match found {
            Some((uid, gid)) => Ok(Self { name: name.to_owned(), uid, gid }),
            None => {
                Err(format!("-o user={name}: there is no such user in /etc/passwd; make one: useradd --system {name}"))
            }
        }
    }
}

/// What is left to a daemon.
#[derive(Clone, Debug)]
pub(super) struct Needs<'a> {
    /// Whom it becomes.
    pub(super) user: Option<&'a User>,
    /// Where it writes.
    pub(super) cache: &'a Path,
    /// Whether it may hand files of the cache to the kernel, which wants CAP_SYS_ADMIN.
    pub(super) passthrough: bool,
    /// The port that it listens at.
    pub(super) listens: Option<u16>,
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
        let mut kept = CapabilitySet::empty();
        kept.set(CapabilitySet::SYS_ADMIN, needs.passthrough);
        kept.set(CapabilitySet::NET_BIND_SERVICE, needs.listens.is_some_and(|port| (1..1024).contains(&port)));
        let owner =
            std::fs::metadata(needs.cache).map_err(|error| format!("{}: {error}", needs.cache.display()))?.uid();
        // A cache that another owns is reached as root reaches all things.
        kept.set(CapabilitySet::DAC_OVERRIDE, needs.user.is_none() && owner != 0);
        for capability in CapabilitySet::all().difference(kept).iter() {
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
                    "-o user={}: it cannot get to the cache {} ({error}); let it pass through the directories above: chmod o+x",
                    user.name,
                    needs.cache.display()
                ));
            }
        }
        let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
        thread::set_capabilities(None, sets).map_err(failed("drop capabilities"))?;
    }
    thread::set_no_new_privs(true).map_err(failed("give up new privileges"))?;
    reach(needs).map_err(|error| format!("cannot confine to {}: {error}", needs.cache.display()))
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
        .add_rules(below(vec![needs.cache.to_owned()], write))?
        .add_rules(
            needs
                .listens
                .into_iter()
                .map(|port| Ok::<_, landlock::RulesetError>(NetPort::new(port, AccessNet::BindTcp))),
        )?;
    let status = rules.restrict_self()?;
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => Held::Fully,
        RulesetStatus::PartiallyEnforced => Held::Partly,
        RulesetStatus::NotEnforced => Held::Not,
    })
}

/// What a cache directory holds, at its top.
const OWN: [&str; 12] = [
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
        return Err(format!("-o user={}: the cache {} is another's (user {owner})", user.name, cache.display()));
    }
    let items = std::fs::read_dir(cache).map_err(|error| failed(cache, error))?;
    let mut left = Vec::new();
    for item in items {
        let path = item.map_err(|error| failed(cache, error))?.path();
        // What each ext4 file system has at its top is root's.
        if path.ends_with("lost+found") {
            continue;
        }
        if !path.file_name().and_then(|name| name.to_str()).is_some_and(|name| OWN.contains(&name)) {
            return Err(format!(
                "-o user={}: the cache {} has something in it that is not its own ({}); give it a directory that is empty",
                user.name,
                cache.display(),
                path.display()
            ));
        }
        left.push(path);
    }
    while let Some(path) = left.pop() {
        let kind = std::fs::symlink_metadata(&path).map_err(|error| failed(&path, error))?.file_type();
        if kind.is_dir() {
            for item in std::fs::read_dir(&path).map_err(|error| failed(&path, error))? {
                left.push(item.map_err(|error| failed(&path, error))?.path());
            }
        }
        std::os::unix::fs::lchown(&path, Some(user.uid), Some(user.gid)).map_err(|error| failed(&path, error))?;
    }
    // Last: if this is cut off, it is done again.
    std::os::unix::fs::lchown(cache, Some(user.uid), Some(user.gid)).map_err(|error| failed(cache, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_by_number() {
        let root = User::find("root").unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert_eq!(User::find("0").unwrap().uid, 0);
        assert!(User::find("nobody-at-all").unwrap_err().contains("useradd"));
    }

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
        assert!(give(folder.path(), &other).unwrap_err().contains("is another's"));
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
    fn a_confined_thread_reaches_its_cache_and_listens_nowhere_else() {
        let (cache, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(other.path().join("secret"), "x").unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let needs = Needs { user: None, cache: cache.path(), passthrough: false, listens: Some(port) };
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
            std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
            assert!(std::net::TcpListener::bind("127.0.0.1:0").is_err_and(denied));
            assert!(thread::no_new_privs().unwrap());
            assert!(thread::capabilities(None).unwrap().permitted.is_empty());
        });
        assert!(!thread::no_new_privs().unwrap());
    }

    #[test]
    fn a_user_keeps_what_passthrough_wants_and_no_more() {
        assert!(rustix::process::geteuid().is_root(), "as all tests, for root: only root becomes another");
        let cache = tempfile::tempdir().unwrap();
        let user = User { name: "somebody".to_owned(), uid: 12_345, gid: 12_346 };
        give(cache.path(), &user).unwrap();
        let needs = Needs { user: Some(&user), cache: cache.path(), passthrough: true, listens: None };
        let (uid, caps) = confined(&needs, || {
            std::fs::write(cache.path().join("x"), "x").unwrap();
            let owner = std::fs::metadata(cache.path().join("x")).unwrap().uid();
            assert!(std::net::TcpListener::bind("127.0.0.1:0").is_err(), "nobody listens");
            (owner, thread::capabilities(None).unwrap())
        });
        assert_eq!(uid, user.uid);
        assert_eq!((caps.effective, caps.permitted), (CapabilitySet::SYS_ADMIN, CapabilitySet::SYS_ADMIN));
    }
}
