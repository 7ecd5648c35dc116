//! The main job: thousands of resources (`RESOURCES=20000`) behind nginx, read in every way, then without the server.

use std::fs;
use std::io::Write as _;

use crate::support::nginx::Nginx;
use crate::support::{
    Mirror, bytes, capability, document, entry_of, index, many, output, resource_list, scramble, shell,
};

/// Writes a Source of `count` resources in directories of a thousand, its list in three parts; the
/// resources lie in `htdocs/data`, and beside it a file for `sha256sum -c`.
fn source(nginx: &Nginx, count: u64) {
    let root = nginx.root();
    let mut sums = fs::File::create(root.join("SHA256SUMS")).unwrap();
    let mut parts = vec![String::new()];
    for number in 0..count {
        let path = format!("data/{:02}/{number:05}.bin", number / 1000);
        let length = 200 + usize::try_from(scramble(number) % 6000).unwrap();
        let content = bytes(number, length);
        fs::create_dir_all(root.join(&path).parent().unwrap()).unwrap();
        fs::write(root.join(&path), &content).unwrap();
        writeln!(sums, "{}  {path}", crate::support::sha256(&content)).unwrap();
        if number > 0 && number % (count / 3 + 1) == 0 {
            parts.push(String::new());
        }
        parts.last_mut().unwrap().push_str(&entry_of(&nginx.url(&format!("/{path}")), &content));
    }
    let at = "2026-01-02T03:04:05Z";
    let mut urls = Vec::new();
    for (number, entries) in parts.iter().enumerate() {
        fs::write(root.join(format!("part{number}.xml")), resource_list(at, entries)).unwrap();
        urls.push(nginx.url(&format!("/part{number}.xml")));
    }
    fs::write(root.join("resourcelist.xml"), index("resourcelist", &format!("at=\"{at}\""), &urls)).unwrap();
    let list = capability(&nginx.url("/resourcelist.xml"), "resourcelist");
    fs::write(root.join("capabilitylist.xml"), document("capabilitylist", "", "", &list)).unwrap();
    fs::create_dir(root.join(".well-known")).unwrap();
    let sets = capability(&nginx.url("/capabilitylist.xml"), "capabilitylist");
    fs::write(root.join(".well-known/resourcesync"), document("description", "", "", &sets)).unwrap();
}

/// `diff -r`, `tar`, `rsync -c`, `sha256sum -c`, and eight readers at once.
fn everything_agrees(nginx: &Nginx, mirror: &Mirror) {
    let (mount, served) = (mirror.directory.display(), nginx.root().display());
    assert_eq!(shell(&format!("diff -r {mount}/data {served}/data")), "");
    let (ours, theirs) = (
        shell(&format!("cd {mount} && tar cf - --sort=name --owner=0 --mtime=@0 --mode=0444 data | sha256sum")),
        shell(&format!("cd {served} && tar cf - --sort=name --owner=0 --mtime=@0 --mode=0444 data | sha256sum")),
    );
    assert_eq!(ours, theirs, "tar");
    let differing = shell(&format!("rsync -rcn --out-format=%n {mount}/data/ {served}/data/"));
    assert_eq!(differing.trim(), "", "rsync -c");
    shell(&format!("cd {mount} && sha256sum -c --quiet {served}/SHA256SUMS"));
    shell(&format!(
        "cd {mount} && for reader in 1 2 3 4 5 6 7 8; do (sha256sum -c --quiet {served}/SHA256SUMS) & readers=\"${{readers:-}} $!\"; done; \
         for reader in $readers; do wait $reader; done"
    ));
}

#[test]
fn thousands_of_resources_agree_with_and_without_the_server() {
    crate::support::require(&["nginx", "rsync"]);
    let mut nginx = Nginx::prepare();
    source(&nginx, many());
    nginx.start();
    let mirror = Mirror::mount(&nginx.url("/"), "");
    assert_eq!(mirror.status()["resources"], many());
    everything_agrees(&nginx, &mirror);
    let fetched = nginx.log().iter().filter(|path| path.starts_with("/data/")).count();
    assert_eq!(fetched as u64, many(), "each resource is fetched once, however many read it");
    nginx.stop();
    everything_agrees(&nginx, &mirror);
    mirror.remount();
    everything_agrees(&nginx, &mirror);
}

#[test]
fn warm_work_does_not_reach_the_daemon() {
    let mut nginx = Nginx::prepare();
    source(&nginx, 2000);
    nginx.start();
    let mirror = Mirror::mount(&nginx.url("/"), "");
    let mount = mirror.directory.display();
    let work = format!(
        "find {mount}/data -type f -size +0 -printf '%s %T@ %p\\n' | sha256sum; cat {mount}/data/*/* | sha256sum"
    );
    // Once to fetch, once more because a directory's listing is kept from its second reading on.
    shell(&work);
    let daemon = mirror.daemon().unwrap();
    let tries = (0..3).any(|_| {
        let cold = shell(&work);
        // A daemon that is stopped can answer nothing: what asks it waits until the time is up.
        shell(&format!("kill -STOP {daemon}"));
        let warm = std::process::Command::new("timeout").args(["20", "bash", "-c", &work]).output().unwrap();
        shell(&format!("kill -CONT {daemon}"));
        // A kernel that is short of memory, or a host that takes it away, may forget what it knew in between.
        String::from_utf8_lossy(&warm.stdout) == cold
    });
    assert!(tries, "what was read before is asked for again, each time");
}

#[test]
fn https_is_trusted_by_a_given_authority() {
    let mut nginx = Nginx::prepare_tls();
    source(&nginx, 20);
    nginx.start();
    let mirror = Mirror::mount(&nginx.url("/"), &format!("ca={}", nginx.authority().display()));
    assert_eq!(shell(&format!("diff -r {}/data {}/data", mirror.directory.display(), nginx.root().display())), "");
    let stranger = Mirror::prepare(&nginx.url("/"), "timeout=3");
    let output = stranger.try_mount();
    let said = crate::support::text(&output);
    assert!(output.status.code() == Some(32) && said.contains("certificate"), "{said}");
}

#[test]
fn a_complete_mirror_reads_without_having_been_read() {
    crate::support::require(&["nginx", "rsync"]);
    let mut nginx = Nginx::prepare();
    source(&nginx, many());
    nginx.start();
    let mirror = Mirror::mount(&nginx.url("/"), "content=all");
    let status = mirror.wait("all content", |status| status["cached"]["resources"] == many());
    assert_eq!(status["error_count"], 0);
    let shown = output(&["status", &mirror.directory.to_string_lossy()]);
    let grouped = format!("{},{:03}", many() / 1000, many() % 1000);
    assert!(shown.contains(&format!("{grouped}, {grouped} cached")), "{shown}");
    nginx.stop();
    everything_agrees(&nginx, &mirror);
}
