//! What a daemon may do: whom it becomes, what it keeps, who mounts for it.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::time::{Duration, Instant};

use crate::support::changes::{Source, agrees};
use crate::support::network::enters;
use crate::support::server::Server;
use crate::support::{Mirror, capability, document, entry_of, resource_list, run, shell, text};

/// A line of what the kernel says of each thread of a process; all threads say the same.
fn threads_say(process: u32, name: &str) -> String {
    let mut said: Vec<String> = fs::read_dir(format!("/proc/{process}/task"))
        .unwrap()
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("status")).ok())
        .filter_map(|status| Some(status.lines().find_map(|line| line.strip_prefix(name))?.trim().to_owned()))
        .collect();
    said.sort();
    said.dedup();
    assert_eq!(said.len(), 1, "{name} {said:?}");
    said.remove(0)
}

fn capabilities(process: u32) -> [u64; 3] {
    ["CapEff:", "CapPrm:", "CapBnd:"].map(|name| u64::from_str_radix(&threads_say(process, name), 16).unwrap())
}

#[test]
fn a_daemon_of_root_keeps_no_capability() {
    let source = Source::start(&[("/a", "one"), ("/b/c", "two")], &[]);
    for options in ["io=kernel", "io=auto", "io=passthrough"] {
        let mirror = Mirror::mount(&source.url("/"), options);
        let daemon = mirror.daemon().unwrap();
        assert_eq!(capabilities(daemon), [0; 3], "{options}");
        assert_eq!(threads_say(daemon, "NoNewPrivs:"), "1");
        agrees(&mirror, &source);
        mirror.refreshed();
        // What names are resolved by, and nothing else that is root's, is reached by it.
        mirror.remount();
        agrees(&mirror, &source);
    }
}

#[test]
fn a_daemon_becomes_another_user_and_does_all_it_did() {
    let mut source = Source::start(&[("/a", "one"), ("/b/c", "two")], &["changelist"]);
    source.changes("");
    let secret = tempfile::NamedTempFile::new().unwrap();
    fs::write(secret.path(), "other.example bearer x\n").unwrap();
    fs::set_permissions(secret.path(), fs::Permissions::from_mode(0o600)).unwrap();
    // As root, at first: what it made is given.
    let mut mirror = Mirror::mount(&source.url("/"), "poll=0");
    agrees(&mirror, &source);
    mirror.unmount();
    // Where its directory is, others must get to.
    mirror.set_options("poll=0,run_as=nobody");
    fs::set_permissions(mirror.cache.parent().unwrap(), fs::Permissions::from_mode(0o700)).unwrap();
    let refused = mirror.try_mount();
    assert!(!refused.status.success() && text(&refused).contains("chmod o+x"), "{}", text(&refused));
    fs::set_permissions(mirror.cache.parent().unwrap(), fs::Permissions::from_mode(0o711)).unwrap();
    mirror.set_options(&format!("poll=0,run_as=nobody,credentials={}", secret.path().display()));
    let output = mirror.try_mount();
    assert!(output.status.success(), "{}", text(&output));
    let daemon = mirror.daemon().unwrap();
    let nobody = fs::read_to_string("/etc/passwd").unwrap();
    let nobody: u32 =
        nobody.lines().find_map(|line| line.strip_prefix("nobody:x:")?.split(':').next()?.parse().ok()).unwrap();
    assert_eq!(threads_say(daemon, "Uid:"), [nobody; 4].map(|uid| uid.to_string()).join("\t"));
    assert_eq!(capabilities(daemon), [0; 3]);
    assert_eq!(threads_say(daemon, "Groups:").split_whitespace().count(), 1);
    agrees(&mirror, &source);
    let change = source.does("updated", "/a", 10, "anew");
    source.changes(&change);
    mirror.refreshed();
    agrees(&mirror, &source);
    assert_eq!(fs::metadata(mirror.path("a")).unwrap().uid(), 0, "files are still of whoever mounted");
    assert_eq!(fs::metadata(mirror.cache.join("catalog.db")).unwrap().uid(), nobody);
    assert_eq!(fs::metadata(&mirror.cache).unwrap().mode() & 0o777, 0o700);
    // A signal takes the mount away, though its daemon may not.
    let pid = rustix::process::Pid::from_raw(i32::try_from(daemon).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    mirror.wait_for_end();
    assert_eq!(fs::read_dir(&mirror.directory).unwrap().count(), 0);
    // One that was killed leaves a mount that says so, and the next replaces it.
    assert!(mirror.try_mount().status.success());
    mirror.kill();
    let error = fs::read_dir(&mirror.directory).unwrap_err().raw_os_error();
    assert!(matches!(error, Some(103 | 107)), "ECONNABORTED or ENOTCONN: {error:?}");
    assert!(mirror.try_mount().status.success());
    agrees(&mirror, &source);
}

#[test]
fn nothing_is_left_of_what_mounts_when_the_daemon_is_gone() {
    let source = Source::start(&[("/a", "one")], &[]);
    let mirror = Mirror::mount(&source.url("/"), "poll=0");
    assert!(mirror.guard().is_some());
    mirror.kill();
    let began = Instant::now();
    while mirror.guard().is_some() {
        assert!(began.elapsed() < Duration::from_secs(5));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_user_that_is_not_there_and_a_cache_that_is_not_ours_are_refused() {
    let source = Source::start(&[("/a", "one")], &[]);
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("home");
    fs::create_dir(&cache).unwrap();
    fs::write(cache.join("letters"), "mine").unwrap();
    let directory = folder.path().join("mirror");
    fs::create_dir(&directory).unwrap();
    let mount = |options: &str| {
        let options = format!("cache={},{options}", cache.display());
        let output = run(&["mount", &source.url("/"), &directory.to_string_lossy(), "-o", &options]);
        assert!(!output.status.success());
        text(&output)
    };
    assert!(mount("run_as=nobody-at-all").contains("there is no such user"));
    assert!(mount("run_as=nobody").contains("letters"));
    assert_eq!(fs::metadata(cache.join("letters")).unwrap().uid(), 0);
}

#[test]
fn a_directory_that_another_mount_holds_is_not_waited_for_without_end() {
    let source = Source::start(&[("/a", "one")], &[]);
    let mirror = Mirror::mount(&source.url("/"), "poll=0");
    mirror.unmount();
    mirror.wait_for_end();
    let directory = fs::metadata(&mirror.directory).unwrap();
    let lock = format!("/run/resourcesync/mount-{:x}-{:x}", directory.dev(), directory.ino());
    let held = fs::File::open(lock).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let began = Instant::now();
    let output = mirror.try_mount();
    assert!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
    assert_eq!(output.status.code(), Some(32));
    assert!(text(&output).contains("of user 0 (root) holds a lock on it"), "{}", text(&output));
    drop(held);
    // It is not mounted later, when the caller has gone away.
    mirror.wait_for_end();
    std::thread::sleep(Duration::from_millis(300));
    assert!(mirror.guard().is_none() && mirror.names("").is_empty());
    assert!(mirror.try_mount().status.success());
    agrees(&mirror, &source);
}

/// A name server of this test's own, which knows one name.
fn knows(address: &str, answer: [u8; 4]) {
    let socket = UdpSocket::bind((address, 53)).unwrap();
    std::thread::spawn(move || {
        let mut question = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut question) {
            let mut reply = question[..length].to_vec();
            // The name ends with an empty label, and its type follows (RFC 1035, 4.1.2).
            let end = 12 + question[12..].iter().position(|byte| *byte == 0).unwrap() + 5;
            let (ours, is_address) = (question[12..].starts_with(b"\x06source\x04test\0"), question[end - 3] == 1);
            reply.truncate(end);
            reply[2..4].copy_from_slice(&[0x81, if ours { 0x80 } else { 0x83 }]);
            reply[6..12].copy_from_slice(&[0, u8::from(ours && is_address), 0, 0, 0, 0]);
            if ours && is_address {
                reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
                reply.extend(answer);
            }
            let _ = socket.send_to(&reply, from);
        }
    });
}

#[test]
fn names_are_resolved_where_resolv_conf_leads_and_by_the_next_one() {
    let name = "confined::names_are_resolved_where_resolv_conf_leads_and_by_the_next_one";
    if !enters(name, &["127.0.0.2/8", "127.0.0.3/8"], "127.0.0.1 localhost\n") {
        return;
    }
    // As where /etc/resolv.conf is a link to what another program writes anew with each network.
    let folder = tempfile::tempdir().unwrap();
    let (etc, own) = (folder.path().join("etc"), folder.path().join("network"));
    fs::create_dir(&own).unwrap();
    let says = |server: &str| {
        fs::write(own.join("new"), format!("nameserver {server}\noptions timeout:1 attempts:1\n")).unwrap();
        fs::rename(own.join("new"), own.join("resolv.conf")).unwrap();
    };
    says("127.0.0.1");
    shell(&format!(
        "cp -a /etc {0} && ln -sf {1}/resolv.conf {0}/ && echo 'hosts: files dns' > {0}/nsswitch.conf && mount --bind {0} /etc",
        etc.display(),
        own.display()
    ));
    knows("127.0.0.1", [127, 0, 0, 2]);
    let serves = |server: &Server, at: &str, path: &str, text: &str| {
        let url = |path: &str| format!("http://source.test:{}{path}", server.address().port());
        let leads = |path: &str, to: &str, name: &str, its: &str| {
            server.file(path, document(name, "", "", &capability(&url(to), its)));
        };
        leads("/.well-known/resourcesync", "/caps.xml", "description", "capabilitylist");
        leads("/caps.xml", "/list.xml", "capabilitylist", "resourcelist");
        server.file("/list.xml", resource_list(at, &entry_of(&url(path), text.as_bytes())));
        server.file(path, text);
        url("/")
    };
    let server = Server::at(([127, 0, 0, 2], 0).into());
    let port = server.address().port();
    let url = serves(&server, "2026-01-02T03:04:05Z", "/a", "one");
    let mirror = Mirror::mount(&url, "poll=0");
    assert_eq!(mirror.read("a").unwrap(), b"one", "{}", mirror.errors());
    // Another network: another name server, and another address.
    drop(server);
    knows("127.0.0.3", [127, 0, 0, 3]);
    says("127.0.0.3");
    let server = Server::at(([127, 0, 0, 3], port).into());
    serves(&server, "2026-02-02T03:04:05Z", "/b", "two");
    let output = mirror.refresh();
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(mirror.read("b").unwrap(), b"two", "{}", mirror.errors());
}
