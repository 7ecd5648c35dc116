//! A network of a test's own: a namespace with the addresses that it wants, and names for them.

use std::io::Write as _;
use std::process::Command;

use super::{require, shell, text};

const INSIDE: &str = "RESOURCESYNC_TEST_NETWORK";

/// Runs a test again in a network namespace and a mount namespace of its own, and returns whether this is that run: in
/// the other, nothing is left to do. All addresses are of the loopback device, so that nothing leaves the machine;
/// `hosts` is all that names resolve to.
pub fn enters(test: &str, addresses: &[&str], hosts: &str) -> bool {
    if std::env::var(INSIDE).is_ok_and(|inside| inside == test) {
        shell("ip link set lo up");
        addresses.iter().for_each(|address| drop(shell(&format!("ip address add {address} dev lo nodad"))));
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(hosts.as_bytes()).expect("its content");
        shell(&format!("mount --bind {} /etc/hosts", file.path().display()));
        return true;
    }
    require(&["unshare", "ip"]);
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new("unshare");
    // What is unmounted outside must be gone here too: a mount of another test would stay alive.
    command.args(["--net", "--mount", "--propagation", "slave", "--"]).arg(program);
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(INSIDE, test);
    for proxy in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        command.env_remove(proxy);
    }
    let output = command.output().expect("unshare");
    assert!(output.status.success() && text(&output).contains("1 passed"), "{}", text(&output));
    println!("{}", text(&output));
    false
}

/// Names resolve to something else from now on.
pub fn names(hosts: &str) {
    std::fs::write("/etc/hosts", hosts).expect("it is this test's own");
}
