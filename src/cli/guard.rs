//! Who mounts and unmounts, and registers files for passthrough. The daemon talks to servers, and may do neither: the rights to
//! do so are taken from it before it has sent anything to anybody ([`super::confine`]). A guard is a process of this program that
//! does this for it, for the directory and with the options that it was started with. It reads nothing but a word at a time from
//! its daemon, and a file with it, and ends with it.
//!
//! A daemon that ends without a word, by `kill -9` for one, leaves a mount that says that nobody is there: an empty directory in
//! its place might be taken for a Source that has nothing any more.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fuser::BackingId;
use parking_lot::Mutex;
use rustix::fs::OFlags;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string,
    fsmount, fsopen, move_mount,
};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use rustix::process::{getegid, geteuid};
use tokio::signal::unix::{SignalKind, signal};

use super::task::Task;
use super::{Done, Stop, exit, mounts};
use crate::fs::Backing;
use crate::store::private;
use crate::users;

/// Comes first, with the directory.
const MOUNT_POINT: &str = "mount point\n";
const MOUNT: &str = "mount\n";
const UNMOUNT: &str = "unmount\n";
const FORGET: &str = "forget\n";
/// Comes with a file.
const REGISTER: &str = "register\n";
/// What it answers if all went well; anything else is why not.
const DONE: &str = "done";

/// How long another mount on the same directory is waited for; less than all of it may take.
const CLAIM: Duration = Duration::from_secs(10);

/// How long a mount, or its end, may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A daemon's end of the line. The lock is what makes it one word and its answer at a time; nothing else is done under it.
#[derive(Debug)]
pub(super) struct Guard(Mutex<UnixStream>);

impl Guard {
    /// Starts one.
    ///
    /// # Errors
    /// If no process can be started.
    pub(super) fn start(task: &Task) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("cannot start what mounts: {error}");
        let (own, other) = UnixStream::pair().map_err(failed)?;
        let mount_point = task.mount_point.try_clone().map_err(failed)?;
        send(&own, MOUNT_POINT, Some(&mount_point)).map_err(failed)?;
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(program);
        // Whoever looks for the daemon does not find this.
        command.arg0("resourcesync-guard").args(["mount", "--guard"]);
        for option in &task.texts {
            command.arg("-o").arg(option);
        }
        // What is not known was said already.
        command.arg("--sloppy").arg("--").arg(&task.source).arg(&task.directory);
        command.stdin(OwnedFd::from(other)).stdout(Stdio::null()).stderr(Stdio::null());
        // What interrupts the daemon at a terminal is for the daemon.
        command.process_group(0);
        command.spawn().map_err(failed)?;
        own.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        Ok(Self(Mutex::new(own)))
    }

    /// Has the directory mounted; returns the session's device, and what is worth a warning.
    ///
    /// # Errors
    /// With why it is not.
    pub(super) fn mount(&self) -> Result<(OwnedFd, Option<String>), String> {
        let (answer, device) = self.ask(MOUNT, None)?;
        match (device, answer.strip_prefix(DONE)) {
            (Some(device), Some("")) => Ok((device, None)),
            (Some(device), Some(note)) => Ok((device, Some(note.trim().to_owned()))),
            _ => Err(answer),
        }
    }

    /// Has it unmounted.
    ///
    /// # Errors
    /// With why it is not.
    pub(super) fn unmount(&self) -> Result<(), String> {
        match self.ask(UNMOUNT, None)? {
            (answer, _) if answer == DONE => Ok(()),
            (answer, _) => Err(answer),
        }
    }

    /// Has the cache's directory removed, if it is empty.
    pub(super) fn forget(&self) {
        // It does no harm where it is.
        let _ = self.ask(FORGET, None);
    }

    fn ask(&self, word: &str, file: Option<&OwnedFd>) -> Result<(String, Option<OwnedFd>), String> {
        let gone = |error: &dyn std::fmt::Display| format!("the process that mounts is gone, or hangs ({error})");
        let line = self.0.lock();
        let answer = send(&line, word, file).and_then(|()| receive(&line));
        answer.map_err(|error| {
            // An answer that comes too late is to no other question; and what it tells of is undone by who gives it.
            let _ = line.shutdown(std::net::Shutdown::Both);
            gone(&error)
        })
    }
}

impl Backing for Guard {
    fn register(&self, file: &File) -> std::io::Result<u32> {
        let file = file.try_clone()?.into();
        let (answer, _) = self.ask(REGISTER, Some(&file)).map_err(std::io::Error::other)?;
        match answer.split_once(' ') {
            Some(("number", number)) => number.parse().map_err(std::io::Error::other),
            Some(("errno", number)) => {
                Err(number.parse().map_or_else(std::io::Error::other, std::io::Error::from_raw_os_error))
            }
            _ => Err(std::io::Error::other(answer)),
        }
    }
}

/// The most that is answered, in bytes.
const MOST: usize = 4096;

fn receive(stream: &UnixStream) -> std::io::Result<(String, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut text = vec![0; MOST];
    let got = recvmsg(stream, &mut [IoSliceMut::new(&mut text)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    if got.bytes == 0 {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    let device = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    Ok((String::from_utf8_lossy(&text[..got.bytes]).into_owned(), device))
}

fn send(stream: &UnixStream, text: &str, device: Option<&OwnedFd>) -> std::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = device.map(|device| [device.as_fd()]);
    if let Some(files) = &files {
        control.push(SendAncillaryMessage::ScmRights(files));
    }
    let most = text.floor_char_boundary(MOST);
    sendmsg(stream, &[IoSlice::new(&text.as_bytes()[..most])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The line to the daemon, which is stdin, and the directory that comes first on it.
///
/// # Errors
/// If no directory comes.
pub(super) fn line() -> std::io::Result<(UnixStream, OwnedFd)> {
    let stream = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    match receive(&stream)? {
        (word, Some(directory)) if word == MOUNT_POINT => Ok((stream, directory)),
        _ => Err(std::io::ErrorKind::InvalidData.into()),
    }
}

/// Runs as the guard that a daemon started, on its line.
pub(super) fn run(task: &Task, stream: UnixStream) -> Done {
    let failed = |error: std::io::Error| Stop::new(exit::USAGE, error.to_string());
    let _ = std::env::set_current_dir("/");
    let _deaf = deaf().map_err(failed)?;
    let mut mount = OwnMount::default();
    // It ends with its daemon.
    while let Ok((word, file)) = receive(&stream) {
        let (answer, device) = mount.answer(task, &word, file);
        if let Err(error) = send(&stream, &answer, device.as_ref()) {
            if device.is_some() {
                // Nobody is there who would answer for it.
                unmount(&task.directory, &mount.number).map_err(|error| Stop::new(exit::MOUNT_FAILED, error))?;
            }
            return Err(failed(error));
        }
    }
    Ok(())
}

/// What a guard has mounted.
#[derive(Default)]
struct OwnMount {
    /// The device number of the file system.
    number: Option<String>,
    /// Where its session reads requests.
    device: Option<OwnedFd>,
}

impl OwnMount {
    /// Does what a word asks for; returns the answer, and a device that goes with it.
    fn answer(&mut self, task: &Task, word: &str, file: Option<OwnedFd>) -> (String, Option<OwnedFd>) {
        let done = |result: Result<(), String>| (result.err().unwrap_or_else(|| DONE.to_owned()), None);
        match (word, file) {
            (MOUNT, _) => match mount(task) {
                Ok(Mounted { device, number, note }) => {
                    // Without it, no file can be registered.
                    self.device = device.try_clone().ok();
                    self.number = Some(number);
                    (note.map_or_else(|| DONE.to_owned(), |note| format!("{DONE}\n{note}")), Some(device))
                }
                Err(error) => (error, None),
            },
            (UNMOUNT, _) => done(unmount(&task.directory, &self.number)),
            (FORGET, _) => done(task.options.cache_for(&task.source).and_then(|cache| forget(task, &cache))),
            (REGISTER, Some(file)) => match &self.device {
                None => ("nothing is mounted".to_owned(), None),
                Some(device) => match BackingId::create_raw(device, file) {
                    Ok(number) => (format!("number {number}"), None),
                    Err(error) => (format!("errno {}", error.raw_os_error().unwrap_or(libc::EIO)), None),
                },
            },
            (word, _) => (format!("{word:?} is not understood"), None),
        }
    }
}

/// Removes the directory of a cache in which there is nothing.
fn forget(task: &Task, cache: &Path) -> Result<(), String> {
    let own = [task.options.run_as.as_ref().map_or_else(|| geteuid().as_raw(), |user| user.uid)];
    let above = if task.options.run_as.is_some() { &[][..] } else { &own[..] };
    let owners = private::Owners { users: &own, above, is_private_group: &users::is_private_group };
    private::remove_empty(cache, owners).map_err(|error| error.to_string())
}

/// Signals are for the daemon, and may come to all processes of a service: this one ends when its line does, or nobody would
/// be there to unmount.
fn deaf() -> std::io::Result<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let context = runtime.enter();
    for kind in [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()] {
        // What is once taken over by tokio stays so.
        drop(signal(kind)?);
    }
    drop(context);
    Ok(runtime)
}

/// A mount that was made.
struct Mounted {
    /// Where its session reads requests.
    device: OwnedFd,
    /// The device number of the file system, as `mountinfo` has it.
    number: String,
    /// What is worth a warning.
    note: Option<String>,
}

/// A directory that is held while it is being mounted on: two at once would stack their mounts.
struct Claim {
    _lock: LockFile,
    note: Option<String>,
}

/// Where root's mounts lock their directories.
const LOCKS: &str = "/run/resourcesync";

/// What is locked for a directory.
enum LockFile {
    /// For root a file of its own, since any user who can read a directory can lock it, too.
    Own(File),
    /// For others, and where `/run` is read-only, the directory. A mount that can write there is not known to one that cannot.
    Directory(File),
}

impl LockFile {
    fn file(&self) -> &File {
        match self {
            Self::Own(file) | Self::Directory(file) => file,
        }
    }
}

fn lock_file(mount_point: &OwnedFd) -> std::io::Result<LockFile> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = File::from(rustix::fs::openat(mount_point, ".", flags, rustix::fs::Mode::empty())?);
    if !geteuid().is_root() {
        return Ok(LockFile::Directory(directory));
    }
    let metadata = directory.metadata()?;
    let name = format!("mount-{:x}-{:x}", metadata.dev(), metadata.ino());
    let owners = private::Owners { users: &[], above: &[], is_private_group: &users::is_private_group };
    let own = private::open(Path::new(LOCKS), owners).map_err(std::io::Error::from).and_then(|(locks, _)| {
        private::file(&locks, Path::new(&name), OFlags::RDWR | OFlags::CREATE).map(LockFile::Own)
    });
    match own {
        Err(error) if error.kind() == std::io::ErrorKind::ReadOnlyFilesystem => Ok(LockFile::Directory(directory)),
        own => own,
    }
}

/// Claims a directory. A lock of a user who could not mount here is waited for, and then ignored.
fn claim(task: &Task) -> Result<Claim, String> {
    let directory = task.directory.display();
    let error = |error: std::io::Error| format!("{directory}: {error}");
    let lock = lock_file(&task.mount_point).map_err(error)?;
    let file = lock.file();
    let began = Instant::now();
    let mut note = None;
    loop {
        match rustix::fs::flock(file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            Err(rustix::io::Errno::WOULDBLOCK) if began.elapsed() <= CLAIM => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let holder = Holder::find(file);
                let who = holder.as_ref().map_or_else(|| "another process".to_owned(), ToString::to_string);
                let text = format!("{directory}: {who} holds a lock on it (flock)");
                if matches!(lock, LockFile::Own(_)) || holder.is_some_and(|holder| holder.uid == geteuid().as_raw()) {
                    return Err(format!("{text}; end it, or wait until it ends"));
                }
                note = Some(format!("{text}; it was waited for {} s, and ignored", CLAIM.as_secs()));
                break;
            }
            Err(errno) => return Err(error(errno.into())),
        }
    }
    match mounts::at(&task.directory).map_err(error)? {
        Some(mounted) => Err(mounts::taken(&mounted)),
        None => Ok(Claim { _lock: lock, note }),
    }
}

/// A process that holds a lock.
struct Holder {
    process: u32,
    name: String,
    uid: u32,
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = crate::printable::line(&self.name);
        write!(f, "process {} ({name}) of user {}", self.process, users::describe(self.uid))
    }
}

impl Holder {
    /// The process that holds a flock(2) on a file, as /proc/locks lists it.
    fn find(file: &File) -> Option<Self> {
        let metadata = file.metadata().ok()?;
        let (major, minor) = (rustix::fs::major(metadata.dev()), rustix::fs::minor(metadata.dev()));
        let place = format!("{major:02x}:{minor:02x}:{}", metadata.ino());
        let locks = std::fs::read_to_string("/proc/locks").ok()?;
        let process = locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).find_map(|words| {
            let [_, "FLOCK", _, _, process, at, ..] = words.as_slice() else { return None };
            (*at == place).then(|| process.parse::<u32>().ok()).flatten()
        })?;
        // The real user: what a program with the setuid bit has for its own, its caller has not.
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let uid = status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().next()?.parse().ok())?;
        let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        Some(Self { process, name: name.trim().to_owned(), uid })
    }
}

fn mount(task: &Task) -> Result<Mounted, String> {
    let claim = claim(task)?;
    let (device, number) = match geteuid().is_root() {
        true => mount_as_root(task)?,
        false => {
            let device = mount_by_helper(task)?;
            let number =
                mounts::device(&task.directory).map_err(|error| format!("{}: {error}", task.directory.display()))?;
            (device, number.unwrap_or_default())
        }
    };
    Ok(Mounted { device, number, note: claim.note })
}

const DEVICE: &str = "/dev/fuse";

fn mount_as_root(task: &Task) -> Result<(OwnedFd, String), String> {
    let directory = task.directory.display();
    let device =
        std::fs::OpenOptions::new().read(true).write(true).open(DEVICE).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                format!("{directory}: {DEVICE} is missing; load the kernel module: modprobe fuse")
            }
            _ => format!("{directory}: {DEVICE} may not be opened ({error})"),
        })?;
    let number = attach(task, &device).map_err(|error| format!("{directory}: {error}"))?;
    Ok((device.into(), number))
}

/// Mounts on the directory that was opened when the mount was asked for, wherever that is now (fsopen(2), move_mount(2)).
/// Returns the device number of the file system.
fn attach(task: &Task, device: &File) -> rustix::io::Result<String> {
    let fs = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let strings = [
        ("source", task.source.clone()),
        ("subtype", "resourcesync".to_owned()),
        ("fd", device.as_raw_fd().to_string()),
        ("rootmode", "40000".to_owned()),
        ("user_id", geteuid().as_raw().to_string()),
        ("group_id", getegid().as_raw().to_string()),
    ];
    for (key, value) in &strings {
        fsconfig_set_string(&fs, *key, value.as_str())?;
    }
    for flag in ["ro", "default_permissions", "allow_other"] {
        fsconfig_set_flag(&fs, flag)?;
    }
    fsconfig_create(&fs)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC
        | MountAttrFlags::MOUNT_ATTR_NOATIME;
    let mount = fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    let number = mounts::device_of(&mount)
        .map_err(|error| rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO))?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(&mount, "", &*task.mount_point, "", flags)?;
    Ok(number)
}

/// Without root, fusermount3 mounts, and hands the device over on a socket.
fn mount_by_helper(task: &Task) -> Result<OwnedFd, String> {
    let directory = task.directory.display();
    let failed = |error: &dyn std::fmt::Display| {
        format!("{directory}: {error}; without root, fusermount3 is needed (Debian: apt install fuse3)")
    };
    let (own, other) = UnixStream::pair().map_err(|error| failed(&error))?;
    let name = task.source.replace('\\', "\\\\").replace(',', "\\,");
    let mut options = vec![format!("fsname={name}"), "subtype=resourcesync".to_owned()];
    options.extend(["ro", "nosuid", "nodev", "noexec", "noatime", "default_permissions"].map(str::to_owned));
    options.extend(task.options.allow_other.then(|| "allow_other".to_owned()));
    let mut command = Command::new("fusermount3");
    command.arg("-o").arg(options.join(",")).arg("--").arg(&task.directory);
    // It sends the device on the file whose number this is.
    command.env("_FUSE_COMMFD", "0").stdin(OwnedFd::from(other)).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed(&error))?;
    // Its end is ours to close, or there would be no end.
    drop(command);
    let received = receive(&own);
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        // What cannot be read of it is not needed.
        let _ = stderr.by_ref().take(MOST as u64).read_to_string(&mut said);
    }
    let status = child.wait().map_err(|error| failed(&error))?;
    match received {
        Ok((_, Some(device))) if status.success() => Ok(device),
        _ if !Path::new(DEVICE).exists() => {
            Err(format!("{directory}: {DEVICE} is missing; load the kernel module: modprobe fuse"))
        }
        _ if said.contains(DEVICE) => Err(format!("{directory}: {}; as root: chmod 666 {DEVICE}", said.trim())),
        _ if !said.trim().is_empty() => Err(format!("{directory}: {}", said.trim())),
        Ok(_) => Err(failed(&format!("fusermount3 ended with {status}"))),
        Err(error) => Err(failed(&error)),
    }
}

/// Unmounts the file system of this device, wherever it is mounted now; those who still use it keep it until they are done.
fn unmount(own: &Path, mounted: &Option<String>) -> Result<(), String> {
    let Some(number) = mounted else { return Ok(()) };
    let Some(directory) = mounts::place_of(number, own).map_err(|error| error.to_string())? else { return Ok(()) };
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", directory.display());
    if geteuid().is_root() {
        return mounts::detach(&directory, number).map_err(|error| failed(&error));
    }
    for how in ["-u", "-uz"] {
        let mut command = Command::new("fusermount3");
        command.arg(how).arg("--").arg(&directory).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if command.status().map_err(|error| failed(&error))?.success() {
            return Ok(());
        }
    }
    Err(failed(&"fusermount3 -u does not unmount it"))
}
