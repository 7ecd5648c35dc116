//! The commands, as clap parses them.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{CommandFactory as _, Parser, Subcommand};

use super::mount::Mount;
use super::{Done, Stop, audit, demo, exit, fetch, inspect, install, log, mount, refresh, status};
use crate::options;

/// Mount a ResourceSync Source as a read-only directory: complete, verified, readable when the Source
/// is away.
#[derive(Debug, Parser)]
#[command(
    name = "resourcesync",
    version,
    arg_required_else_help = true,
    after_help = "Try it:  resourcesync demo\n\
                  Mount:   mount -t resourcesync https://source.example/ /mnt/mirror   (after `resourcesync install`)\n\n\
                  Exit codes: 0 all went well; 1 it failed; 2 wrong usage. `mount` exits as mount(8) says:\n\
                  1 wrong usage, 2 system error, 32 nothing was mounted."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Mount a Source on a directory; returns when the tree is complete
    #[command(after_help = options::help(), override_usage = "resourcesync mount SOURCE DIR [-o OPTIONS]...")]
    Mount {
        /// The Source's origin, or the URL of one of its documents or of a plain sitemap
        source: String,
        /// An existing directory
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// Options, separated by commas (listed below)
        #[arg(short = 'o', value_name = "OPTIONS")]
        options: Vec<String>,
        /// Stay in the foreground and log to stderr
        #[arg(long, short = 'f')]
        foreground: bool,
        /// Say what was mounted
        #[arg(long, short = 'v')]
        verbose: bool,
        /// Pass over options that are not known
        #[arg(long, short = 's')]
        sloppy: bool,
        /// Be the daemon of a mount
        #[arg(long, hide = true)]
        daemon: bool,
        /// Be what mounts for a daemon
        #[arg(long, hide = true)]
        guard: bool,
    },
    /// Show what each mount of this machine, or the one at DIR, is doing
    Status(status::Arguments),
    /// Show what a Source offers, or what one document says
    Inspect(inspect::Arguments),
    /// Sync now, and return when done
    Refresh {
        /// A mount, or a path in one
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// Let go what a complete list leaves out, however much it is
        #[arg(long)]
        accept_deletions: bool,
    },
    /// Show the versions of a resource, or what changed in a mount, newest first
    #[command(
        after_help = "A change is A (created), M (updated) or D (deleted), with its time by the Source's clock; a sync has the \
                            time of this machine, which is what --since speaks of; of one resource it speaks of the Source's. A mount's first sync lists no changes, and no sync more than 200,000.\n\n\
                            Of a resource each version is shown with the name of its file below .versions/PATH/ and where it can be had; its \
                            Source is asked for versions that are not known yet. The tree as it was at any moment is .versions/@MOMENT/ in the mount."
    )]
    Log {
        /// A resource, also one that is gone, or a directory in a mount
        #[arg(value_name = "PATH")]
        path: PathBuf,
        /// Nothing older: 2026-03-01, 2026-03-01T12:00:00Z, or 15m, 2h, 3d ago
        #[arg(long, value_name = "TIME")]
        since: Option<String>,
        /// Print a JSON list
        #[arg(long)]
        json: bool,
    },
    /// Compare the mirror with what its Source lists now; exits 0 if they agree, 1 if not
    #[command(
        after_help = "Missing: listed, not here. Extra: here, not listed. Stale: another time, length or hash. Corrupt (with\n\
                            --content): content in the cache that is not what it was. What the Source's changes told since its\n\
                            lists were made is newer than they are, and no fault."
    )]
    Audit(audit::Arguments),
    /// Bring content into the cache ahead of use; a directory means all below it, .versions/PATH all versions of PATH
    Fetch {
        /// Keep it: cache_size= will not evict it
        #[arg(long)]
        pin: bool,
        /// Files and directories in a mount
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<PathBuf>,
    },
    /// Put the program, the helper of mount(8), the man page and shell completions in place
    Install(install::Arguments),
    /// Start a Source on loopback and mount it: the main job with nothing else installed
    Demo {
        /// Where to mount it [default: a temporary directory]
        #[arg(value_name = "DIR")]
        directory: Option<PathBuf>,
        /// Show it once and end, instead of running until Ctrl-C
        #[arg(long)]
        once: bool,
    },
}

/// The definition of the command line, for the man page and completions.
fn definition() -> clap::Command {
    Arguments::command()
}

/// Parses and runs.
pub(super) fn run(arguments: Vec<OsString>) -> Done {
    let mounting = arguments.get(1).is_some_and(|first| first == "mount");
    let parsed = match Arguments::try_parse_from(arguments) {
        Ok(parsed) => parsed,
        Err(error) => {
            let code = match error.exit_code() {
                0 => exit::OK,
                // mount(8) has its own number for wrong usage.
                _ if mounting => exit::FAILED,
                _ => exit::USAGE,
            };
            // Nothing can be done where stdout and stderr are closed.
            let _ = error.print();
            return if code == exit::OK { Ok(()) } else { Err(Stop::new(code, "")) };
        }
    };
    match parsed.command {
        Command::Mount { source, directory, options, foreground, verbose, sloppy, daemon, guard } => {
            let asked = Mount { source, directory, options, sloppy, foreground, fake: false, verbose };
            match (daemon, guard) {
                (true, _) => mount::run_daemon(&asked),
                (_, true) => mount::run_guard(&asked),
                _ => mount::run(&asked),
            }
        }
        Command::Status(arguments) => status::run(&arguments),
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::Refresh { directory, accept_deletions } => refresh::run(&directory, accept_deletions),
        Command::Audit(arguments) => audit::run(&arguments),
        Command::Log { path, since, json } => log::run(&path, since.as_deref(), json),
        Command::Fetch { pin, paths } => fetch::run(&paths, pin),
        Command::Install(arguments) => install::run(&arguments, definition()),
        Command::Demo { directory, once } => demo::run(directory.as_deref(), once),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_definition_is_sound() {
        super::definition().debug_assert();
    }
}
