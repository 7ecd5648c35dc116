//! Network namespaces for one test: a near one, where the test and the daemon run, and a far one that it connects to.
//! Addresses for documentation (203.0.113.0/24, 2001:db8::/32) count as public, unless they are the machine's own: all
//! but [`OWN`] and [`OWN_V6`] are in the far namespace. Other addresses are on the loopback device of the near one.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::{require, shell, text};

/// The public addresses of the near namespace, in each network with a far one.
pub const OWN: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 200);
pub const OWN_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0xc8);

const INSIDE: &str = "RESOURCESYNC_TEST_NETWORK";

/// Keeps the far namespace alive as long as this process.
static FAR: OnceLock<File> = OnceLock::new();

/// Runs a test again in network namespaces and a mount namespace of its own, and returns whether this is that run: in
/// the other, nothing is left to do. Nothing leaves the machine; `hosts` is all that names resolve to.
pub fn enters(test: &str, addresses: &[&str], hosts: &str) -> bool {
    if std::env::var(INSIDE).is_ok_and(|inside| inside == test) {
        shell("ip link set lo up");
        let host = |address: &str| address.split('/').next().and_then(|host| host.parse().ok()).expect("an address");
        let (far, near): (Vec<&str>, Vec<&str>) = addresses.iter().partition(|address| is_far(host(address)));
        near.iter().for_each(|address| drop(shell(&format!("ip address add {address} dev lo nodad"))));
        if !far.is_empty() {
            FAR.set(connect_far(&far)).expect("one network for each process");
        }
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(hosts.as_bytes()).expect("its content");
        shell(&format!("mount --bind {} /etc/hosts", file.path().display()));
        return true;
    }
    require(&["unshare", "nsenter", "ip"]);
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

/// Binds in the namespace that the address belongs to.
pub fn listener(address: SocketAddr) -> TcpListener {
    let Some(far) = FAR.get().filter(|_| is_far(address.ip())) else {
        return TcpListener::bind(address).expect("a free port");
    };
    // A socket stays in the namespace of the thread that creates it.
    let bind = move || {
        move_into_link_name_space(far.as_fd(), Some(LinkNameSpaceType::Network)).expect("the far namespace");
        TcpListener::bind(address).expect("a free port")
    };
    std::thread::spawn(bind).join().expect("no panic")
}

fn is_far(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.octets().starts_with(&[203, 0, 113]) && address != OWN,
        IpAddr::V6(address) => address.segments().starts_with(&[0x2001, 0xdb8]) && address != OWN_V6,
    }
}

/// Creates the far namespace with these addresses, and connects it.
fn connect_far(addresses: &[&str]) -> File {
    // The namespace needs a process until it is open here; `cat` ends with this process at the latest.
    let mut holder = Command::new("unshare");
    let mut holder =
        holder.args(["--net", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("unshare");
    let (mut input, mut output) = (holder.stdin.take().expect("a pipe"), holder.stdout.take().expect("a pipe"));
    // An echo proves that it runs in its namespace.
    input.write_all(b".").and_then(|()| output.read_exact(&mut [0])).expect("an echo");
    let process = holder.id();
    shell(&format!("ip link add near type veth peer name far netns {process}"));
    let own = ["203.0.113.192/28".to_owned(), format!("{OWN_V6}/128")];
    let own = own.each_ref().map(String::as_str);
    // The kernel talks to a second address of a network from the first one.
    shell(&format!("ip address add 203.0.113.199/28 dev near nodad; ip address add {OWN}/28 dev near nodad"));
    let inside = format!("nsenter --target {process} --net");
    for (prefix, device, here, there) in [("", "near", &own[1..], addresses), (&inside, "far", addresses, &own)] {
        shell(&format!("{prefix} ip link set {device} up"));
        here.iter().for_each(|one| drop(shell(&format!("{prefix} ip address add {one} dev {device} nodad"))));
        there.iter().for_each(|one| drop(shell(&format!("{prefix} ip route add {one} dev {device}"))));
    }
    let far = File::open(format!("/proc/{process}/ns/net")).expect("the far namespace");
    drop(input);
    holder.wait().expect("its end");
    far
}
