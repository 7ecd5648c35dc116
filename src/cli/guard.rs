//! Who mounts and unmounts. The daemon talks to servers, and may do neither: that is taken from it before it has said a word
//! to anybody ([`super::confine`]). A guard is a process of this program that does these two for it, for the directory and with
//! the options that it was started with. It reads nothing but a word at a time from its daemon, and ends with it.
//!
//! A daemon that ends without a word, by `kill -9` for one, leaves a mount that says that nobody is there: an empty directory in
//! its place might be taken for a Source that has nothing any more.

use std::io::{BufRead as _, BufReader, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use rustix::process::{getegid, geteuid};
use tokio::signal::unix::{SignalKind, signal};

use super::daemon::Task;
use super::{Done, Stop, exit, mounts};

const MOUNT: &str = "mount\n";
const UNMOUNT: &str = "unmount\n";
const FORGET: &str = "forget\n";
/// What it answers if all went well; anything else is why not.
const DONE: &str = "done";

/// How long another mount on the same directory is waited for; less than all of it may take.
const CLAIM: Duration = Duration::from_secs(10);

/// How long a mount, or its end, may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A daemon's end of the line. One word is said at a time.
#[derive(Debug)]
pub(super) struct Guard(UnixStream);

impl Guard {
    /// Starts one.
    ///
    /// # Errors
    /// If no process can be started.
    pub(super) fn start(task: &Task) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("cannot start what mounts: {error}");
        let (own, other) = UnixStream::pair().map_err(failed)?;
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
        Ok(Self(own))
    }

    /// Has the directory mounted; returns the session's device.
    ///
    /// # Errors
    /// With why it is not.
    pub(super) fn mount(&self) -> Result<OwnedFd, String> {
        let (answer, device) = self.ask(MOUNT)?;
        match device {
            Some(device) if answer == DONE => Ok(device),
            _ => Err(answer),
        }
    }

    /// Has it unmounted.
    ///
    /// # Errors
    /// With why it is not.
    pub(super) fn unmount(&self) -> Result<(), String> {
        match self.ask(UNMOUNT)? {
            (answer, _) if answer == DONE => Ok(()),
            (answer, _) => Err(answer),
        }
    }

    /// Has the cache's directory removed, if it is empty.
    pub(super) fn forget(&self) {
        // It does no harm where it is.
        let _ = self.ask(FORGET);
    }

    fn ask(&self, word: &str) -> Result<(String, Option<OwnedFd>), String> {
        let gone = |error: &dyn std::fmt::Display| format!("the process that mounts is gone, or hangs ({error})");
        let answer = (&self.0).write_all(word.as_bytes()).and_then(|()| receive(&self.0));
        answer.map_err(|error| {
            // An answer that comes too late is to no other question; and what it tells of is undone by who gives it.
            let _ = self.0.shutdown(std::net::Shutdown::Both);
            gone(&error)
        })
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

/// Runs as the guard that a daemon started: its line is stdin.
pub(super) fn run(task: &Task) -> Done {
    let failed = |error: std::io::Error| Stop::new(exit::USAGE, error.to_string());
    let _ = std::env::set_current_dir("/");
    let stream = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().map_err(failed)?);
    let words = stream.try_clone().map_err(failed)?;
    let _deaf = deaf().map_err(failed)?;
    let mut mounted = None;
    for word in BufReader::new(words.take(u64::from(u16::MAX))).lines() {
        let (answer, device) = match word.map_err(failed)?.as_str() {
            "mount" => match mount(task) {
                Ok(device) => match mounts::device(&task.directory) {
                    Ok(there) => {
                        mounted = there;
                        (DONE.to_owned(), Some(device))
                    }
                    Err(error) => {
                        drop(device);
                        let left = unmount(&task.directory).err().map(|left| format!("; {left}")).unwrap_or_default();
                        (format!("{}: {error}{left}", task.directory.display()), None)
                    }
                },
                Err(error) => (error, None),
            },
            "unmount" => {
                let there = mounts::device(&task.directory).map_err(failed)?;
                let result = match there {
                    None => Ok(()),
                    there if there == mounted => unmount(&task.directory),
                    Some(_) => Err(format!("{}: something else is mounted there now", task.directory.display())),
                };
                (result.err().unwrap_or_else(|| DONE.to_owned()), None)
            }
            "forget" => {
                let gone = std::fs::remove_dir(task.options.cache_for(&task.source));
                (gone.err().map_or_else(|| DONE.to_owned(), |error| error.to_string()), None)
            }
            word => (format!("{word:?} is not understood"), None),
        };
        if let Err(error) = send(&stream, &answer, device.as_ref()) {
            if device.is_some() {
                // Nobody is there who would answer for it.
                unmount(&task.directory).map_err(|error| Stop::new(exit::MOUNT_FAILED, error))?;
            }
            return Err(failed(error));
        }
    }
    Ok(())
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

/// Holds a directory while it is being mounted on: two at once would stack their mounts.
fn claim(directory: &Path) -> Result<std::fs::File, String> {
    let error = |error: std::io::Error| format!("{}: {error}", directory.display());
    let file = std::fs::File::open(directory).map_err(error)?;
    let began = Instant::now();
    while let Err(errno) = rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        if errno != rustix::io::Errno::WOULDBLOCK {
            return Err(error(errno.into()));
        }
        if began.elapsed() > CLAIM {
            return Err(format!("{}: another process holds a lock on it (flock); see lsof", directory.display()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    match mounts::at(directory).map_err(error)? {
        Some(mounted) => Err(super::mount::taken(&mounted)),
        None => Ok(file),
    }
}

fn mount(task: &Task) -> Result<OwnedFd, String> {
    let _claim = claim(&task.directory)?;
    match geteuid().is_root() {
        true => mount_as_root(task),
        false => mount_by_helper(task),
    }
}

const DEVICE: &str = "/dev/fuse";

fn mount_as_root(task: &Task) -> Result<OwnedFd, String> {
    let directory = task.directory.display();
    let device =
        std::fs::OpenOptions::new().read(true).write(true).open(DEVICE).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                format!("{directory}: {DEVICE} is missing; load the kernel module: modprobe fuse")
            }
            _ => format!("{directory}: {DEVICE} may not be opened ({error})"),
        })?;
    let mut flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOATIME;
    flags.set(MountFlags::NOEXEC, task.options.noexec);
    let data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions,allow_other",
        device.as_raw_fd(),
        geteuid().as_raw(),
        getegid().as_raw()
    );
    let data = std::ffi::CString::new(data).map_err(|error| error.to_string())?;
    rustix::mount::mount(task.source.as_str(), &task.directory, "fuse.resourcesync", flags, data.as_c_str())
        .map_err(|error| format!("{directory}: {error}"))?;
    Ok(device.into())
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
    options.extend(["ro", "nosuid", "nodev", "noatime"].map(str::to_owned));
    let more = [
        (task.options.noexec, "noexec"),
        (task.options.default_permissions, "default_permissions"),
        (task.options.allow_other, "allow_other"),
    ];
    options.extend(more.iter().filter(|(wanted, _)| *wanted).map(|(_, name)| (*name).to_owned()));
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

/// Takes the mount away; from under those who still use it, if there are any.
fn unmount(directory: &Path) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", directory.display());
    if geteuid().is_root() {
        let quick = rustix::mount::unmount(directory, UnmountFlags::NOFOLLOW);
        return quick
            .or_else(|_| rustix::mount::unmount(directory, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW))
            .map_err(|error| failed(&error));
    }
    for how in ["-u", "-uz"] {
        let mut command = Command::new("fusermount3");
        command.arg(how).arg("--").arg(directory).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if command.status().map_err(|error| failed(&error))?.success() {
            return Ok(());
        }
    }
    Err(failed(&"fusermount3 -u does not unmount it"))
}
