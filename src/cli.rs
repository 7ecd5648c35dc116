//! Commands, the mount helper, and the wiring of the rooms.
//!
//! **Owns** what a user types and sees: options and their one definition, exit codes, progress, the
//! daemon's life and what it may do, the control socket between a command and a daemon.
//!
//! **Promises** that a command that fails says why and what to do, on stderr, with a documented exit
//! code; that colours and bars appear on a terminal only, and `NO_COLOR` is heeded; that no secret is
//! ever printed.
//!
//! Layout, each line uses only those above it:
//! - `logging`, `messages`, `mounts`, `syscalls`
//! - `confine`, `show`
//! - `control`, `install`, `meaning`, `task`
//! - `audit`, `fetch`, `guard`, `inspect`, `log`, `refresh`, `status`
//! - `server`
//! - `daemon`
//! - `mount`
//! - `demo`, `helper`
//! - `commands`

mod audit;
mod commands;
mod confine;
mod control;
mod daemon;
mod demo;
mod fetch;
mod guard;
mod helper;
mod inspect;
mod install;
mod log;
mod logging;
mod meaning;
mod messages;
mod mount;
mod mounts;
mod refresh;
mod server;
mod show;
mod status;
mod syscalls;
mod task;

use std::ffi::OsString;
use std::process::ExitCode;

/// The exit codes of all commands.
pub mod exit {
    /// All went well.
    pub const OK: u8 = 0;
    /// The command failed; or of `mount`: it was called wrongly.
    pub const FAILED: u8 = 1;
    /// The command was called wrongly; or of `mount`: the system failed (no memory, no `/dev/fuse`).
    pub const USAGE: u8 = 2;
    /// Of `mount`: nothing was mounted.
    pub const MOUNT_FAILED: u8 = 32;
}

/// Why a command ends with something other than 0.
#[derive(Debug)]
pub(crate) struct Stop {
    code: u8,
    message: String,
}

impl Stop {
    fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    fn failed(message: impl std::fmt::Display) -> Self {
        Self::new(exit::FAILED, message.to_string())
    }
}

type Done = Result<(), Stop>;

/// Runs the program with these arguments, the program's own name among them.
#[must_use]
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    if let Err(error) = confine::be_the_caller() {
        show::err(format_args!("resourcesync: {error}"));
        return ExitCode::from(exit::USAGE);
    }
    std::panic::set_hook(Box::new(|panic| {
        let text = panic.to_string();
        if text.contains("failed printing to std") {
            // Whoever reads us has seen enough; but a disk that is full is a failure.
            let enough = text.contains("Broken pipe");
            std::process::exit(i32::from(if enough { exit::OK } else { exit::FAILED }));
        }
        show::err(format_args!("resourcesync: this is a bug: {text}"));
    }));
    let name = arguments.first().map(std::path::PathBuf::from);
    let name = name.as_ref().and_then(|path| path.file_name()).and_then(|name| name.to_str()).unwrap_or("resourcesync");
    // mount(8) calls a link of ours; mount.fuse calls us by our own name, with a Source as first word.
    let by_mount = name.starts_with("mount.")
        || arguments.get(1).and_then(|first| first.to_str()).is_some_and(|first| first.contains("://"));
    let done = if by_mount { helper::run(&arguments[1..]) } else { commands::run(arguments) };
    match done {
        Ok(()) => ExitCode::from(exit::OK),
        Err(stop) => {
            if !stop.message.is_empty() {
                show::err(format_args!("{}: {}", show::error_word(name), stop.message));
            }
            ExitCode::from(stop.code)
        }
    }
}
