//! Where a daemon's log goes: syslog, which is the journal where systemd runs, else a file in the cache.

use std::ffi::CStr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::printable::Lines;

/// The environment variable that says how much is logged: `info`, `resourcesync=debug`, and so on.
pub(super) const LEVEL: &str = "RESOURCESYNC_LOG";

fn filter() -> EnvFilter {
    EnvFilter::try_from_env(LEVEL).unwrap_or_else(|_| EnvFilter::new("warn,resourcesync=info,fuser=error"))
}

/// A writer whose records are safe to show: one line each, without control characters and secrets.
struct Printed<M>(M);

impl<'w, M: MakeWriter<'w>> MakeWriter<'w> for Printed<M> {
    type Writer = Lines<M::Writer>;

    fn make_writer(&'w self) -> Self::Writer {
        Lines(self.0.make_writer())
    }

    fn make_writer_for(&'w self, metadata: &tracing::Metadata<'_>) -> Self::Writer {
        Lines(self.0.make_writer_for(metadata))
    }
}

/// To stderr, for what runs in the foreground.
pub(super) fn to_stderr() {
    let layer =
        tracing_subscriber::fmt::layer().with_writer(Printed(std::io::stderr)).with_target(false).with_ansi(false);
    // Fails only if a log was set up before.
    let _ = tracing_subscriber::registry().with(filter()).with(layer).try_init();
}

/// To where a machine keeps its logs.
pub(super) fn to_the_machine(cache: &Path) {
    let registry = tracing_subscriber::registry().with(filter());
    const NAME: &CStr = c"resourcesync";
    // Where systemd runs, this is the journal: `journalctl -t resourcesync`.
    if Path::new("/dev/log").exists()
        && let Some(syslog) =
            syslog_tracing::Syslog::new(NAME, syslog_tracing::Options::LOG_PID, syslog_tracing::Facility::Daemon)
    {
        let layer = tracing_subscriber::fmt::layer()
            .with_writer(Printed(syslog))
            .with_ansi(false)
            .without_time()
            .with_level(false);
        let _ = registry.with(layer).try_init();
        return;
    }
    let path = cache.join("log");
    // One old log is kept, so that a log that nobody rotates does not fill the disk.
    if std::fs::metadata(&path).is_ok_and(|metadata| metadata.len() > 8 << 20) {
        let _ = std::fs::rename(&path, cache.join("log.old"));
    }
    let mut options = std::fs::OpenOptions::new();
    options.create(true).append(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    if let Ok(file) = options.open(&path) {
        let layer = tracing_subscriber::fmt::layer()
            .with_writer(Printed(std::sync::Arc::new(file)))
            .with_ansi(false)
            .with_target(false);
        let _ = registry.with(layer).try_init();
    }
}
