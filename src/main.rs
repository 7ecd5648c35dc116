//! The `resourcesync` command, and, called as `mount.resourcesync`, the helper of mount(8).

use std::process::ExitCode;

fn main() -> ExitCode {
    resourcesync::cli::run(std::env::args_os().collect())
}
