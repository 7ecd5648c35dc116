//! Where a daemon's log goes: the journal, else syslog, else a file in the cache.

use std::ffi::CStr;
use std::path::Path;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// The environment variable that says how much is logged: `info`, `resourcesync=debug`, and so on.
pub(super) const LEVEL: &str = "RESOURCESYNC_LOG";

fn filter() -> EnvFilter {
    EnvFilter::try_from_env(LEVEL).unwrap_or_else(|_| EnvFilter::new("warn,resourcesync=info,fuser=error"))
}

/// To stderr, for what runs in the foreground.
pub(super) fn to_stderr() {
    use std::io::IsTerminal as _;
    let ansi = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false).with_ansi(ansi);
    // Fails only if a log was set up before.
    let _ = tracing_subscriber::registry().with(filter()).with(layer).try_init();
}

/// To where a machine keeps its logs; returns where that is.
pub(super) fn to_the_machine(cache: &Path) -> String {
    let registry = tracing_subscriber::registry().with(filter());
    if Path::new("/run/systemd/journal/socket").exists()
        && let Ok(journal) = tracing_journald::layer()
    {
        let _ = registry.with(journal.with_syslog_identifier("resourcesync".to_owned())).try_init();
        return "the journal (journalctl -t resourcesync)".to_owned();
    }
    const NAME: &CStr = c"resourcesync";
    if Path::new("/dev/log").exists()
        && let Some(syslog) =
            syslog_tracing::Syslog::new(NAME, syslog_tracing::Options::LOG_PID, syslog_tracing::Facility::Daemon)
    {
        let layer =
            tracing_subscriber::fmt::layer().with_writer(syslog).with_ansi(false).without_time().with_level(false);
        let _ = registry.with(layer).try_init();
        return "syslog".to_owned();
    }
    let path = cache.join("log");
    // One old log is kept, so that a log that nobody rotates does not fill the disk.
    if std::fs::metadata(&path).is_ok_and(|metadata| metadata.len() > 8 << 20) {
        let _ = std::fs::rename(&path, cache.join("log.old"));
    }
    match std::fs::OpenOptions::new().create(true).append(true).open(&path) {
        Ok(file) => {
            let layer = tracing_subscriber::fmt::layer()
                .with_writer(std::sync::Arc::new(file))
                .with_ansi(false)
                .with_target(false);
            let _ = registry.with(layer).try_init();
            path.display().to_string()
        }
        Err(_) => "nowhere".to_owned(),
    }
}
