//! Directories as programs list them.

use crate::support::changes::{Source, at};
use crate::support::server::Server;
use crate::support::{Mirror, entry, resource_list};

#[test]
fn a_host_that_is_down_is_waited_for_once_in_a_listing() {
    let source = Source::start(&[("/a", "a")], &[]);
    // Nothing listens there: connections are refused.
    let gone = { Server::start().url("") };
    let entries: String = (0..20).map(|number| entry(&format!("{gone}/{number}"), "")).collect();
    source.server.file("/resourcelist.xml", resource_list(&at(0), &entries));
    let mirror = Mirror::mount(&source.url("/"), "poll=0,timeout=20");
    let began = std::time::Instant::now();
    let listed = crate::support::run_shell(&format!("ls -lR {}", mirror.directory.display()));
    assert!(!listed, "their sizes are not known");
    assert!(began.elapsed() < std::time::Duration::from_secs(20), "{:?}", began.elapsed());
}

/// 8: more than 50,000 entries in a list, in little memory.
#[test]
fn pitfall_8_fifty_thousand_is_no_limit_and_costs_little_memory() {
    let server = Server::start();
    let entries: String = (0..120_000)
        .map(|number| entry(&server.url(&format!("/{}/{number}.txt", number / 500)), "length=\"9\""))
        .collect();
    server.source(&at(0), &entries);
    let mirror = Mirror::mount(&server.url("/"), "poll=0");
    assert_eq!(mirror.files().len(), 120_000);
    let daemon = mirror.daemon().unwrap();
    let status = std::fs::read_to_string(format!("/proc/{daemon}/status")).unwrap();
    let most: u64 =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok()).unwrap();
    assert!(most < 128 << 10, "{most} kB");
}
