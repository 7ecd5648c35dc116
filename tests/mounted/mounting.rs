//! mount(8), fstab, umount, remount, dead mounts, users: in a mount namespace of its own, so that the
//! machine's `/sbin` and mounts stay as they are.

use std::process::Command;

use crate::support::server::Server;
use crate::support::{Mirror, bytes, entry_of, output, run, shell, text};

const AT: &str = "2026-01-02T03:04:05Z";

fn source(count: u64) -> Server {
    let server = Server::start();
    let mut entries = String::new();
    for number in 0..count {
        let path = format!("/d/{number:03}");
        server.file(&path, bytes(number, 1000));
        entries.push_str(&entry_of(&server.url(&path), &bytes(number, 1000)));
    }
    server.source(AT, &entries);
    server
}

/// Runs a script where `resourcesync install` has put the helper into `/sbin`, and all mounts go away
/// with the namespace. `$W` is a work directory, `$S` the Source's URL, `$M` a mount point.
fn in_a_namespace(server: &Server, script: &str) -> String {
    crate::support::require(&["unshare", "mount", "findmnt", "mount.fuse3"]);
    assert!(rustix::process::geteuid().is_root(), "mount(8) needs root; run the tests as root");
    let work = tempfile::tempdir().unwrap();
    let prelude = r#"
        mkdir -p "$W/m" "$W/upper" "$W/work"
        mount -t tmpfs none "$W/upper"; mkdir "$W/upper/u" "$W/upper/w"
        mount -t overlay overlay -o "lowerdir=$(readlink -f /sbin),upperdir=$W/upper/u,workdir=$W/upper/w" "$(readlink -f /sbin)"
        "$P" install --prefix "$W/prefix" > "$W/installed"
        export PATH="$W/prefix/bin:$PATH"
        M=$W/m
        printf '%s %s resourcesync %s 0 0\n' "$S" "$M" "_netdev,nofail,x-systemd.automount,cache=$W/cache" > "$W/fstab"
        mounts() { findmnt -rn -t fuse.resourcesync -o TARGET | grep -cxF "$M" || true; }
        expect() { [ "$1" = "$2" ] || { echo "expected $2, found $1: $3" >&2; exit 1; }; }
        daemon() { pgrep -f "^resourcesync mount --daemon .*$M\$" || true; }
        end() { for i in $(seq 1200); do [ -z "$(daemon)" ] && return; sleep 0.05; done; echo "the daemon does not end" >&2; exit 1; }
        trap 'umount -l "$M" 2>/dev/null || true; umount -l "$M" 2>/dev/null || true; end' EXIT
    "#;
    let output = Command::new("unshare")
        .args([
            "--mount",
            "--propagation",
            "private",
            "bash",
            "-euo",
            "pipefail",
            "-c",
            &format!("{prelude}\n{script}"),
        ])
        .env("W", work.path())
        .env("S", server.url("/"))
        .env("P", crate::support::PROGRAM)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn an_fstab_line_mounts_and_unmounts() {
    let said = in_a_namespace(
        &source(50),
        r#"
        mount -T "$W/fstab" "$M"
        expect "$(ls "$M/d" | wc -l)" 50 "files"
        expect "$(findmnt -rn -o SOURCE,FSTYPE "$M")" "$S fuse.resourcesync" "as the kernel lists it"
        cat "$M/d/007" | wc -c
        mount -a -T "$W/fstab"; mount -a -T "$W/fstab"
        expect "$(mounts)" 1 "mount -a twice"
        mount -T "$W/fstab" -o remount,timeout=7 "$M"
        expect "$(mounts)" 1 "remount"
        before=$(date +%s%N); umount "$M"; after=$(date +%s%N)
        [ $((after - before)) -lt 10000000000 ] || { echo "umount took $((after - before)) ns" >&2; exit 1; }
        end
        expect "$(mounts)" 0 "umount"
        mount -T "$W/fstab" "$M"
        expect "$(ls "$M/d" | wc -l)" 50 "files after mounting again"
        expect "$(mounts)" 1 "mounted again"
        "#,
    );
    assert_eq!(said.trim(), "1000");
}

#[test]
fn a_killed_daemon_is_replaced() {
    in_a_namespace(
        &source(10),
        r#"
        mount -T "$W/fstab" "$M"
        kill -9 $(daemon); end
        ls "$M" 2>/dev/null && exit 1
        mount -T "$W/fstab" "$M"
        expect "$(mounts)" 1 "one mount after a kill"
        expect "$(ls "$M/d" | wc -l)" 10 "files after a kill"
        kill $(daemon); end
        expect "$(mounts)" 0 "a daemon that is asked to end takes its mount away"
        mount -T "$W/fstab" "$M"; kill -9 $(daemon); end
        umount "$M"
        expect "$(mounts)" 0 "a plain umount of a dead mount"
        "#,
    );
}

#[test]
fn every_way_to_say_mount() {
    in_a_namespace(
        &source(10),
        r#"
        for type in resourcesync fuse.resourcesync; do
            mount -t $type "$S" "$M" -o "cache=$W/cache-$type"
            expect "$(cat "$M/d/003" | wc -c)" 1000 "$type"
            expect "$(mounts)" 1 "$type"
            if mount -t $type "$S" "$M" -o "cache=$W/cache-$type" 2>"$W/again"; then exit 1; fi
            expect "$(mounts)" 1 "a second mount is refused"
            mount -t $type -o remount,poll=60 "$S" "$M"
            mount -o remount,poll=61 "$M"
            expect "$(mounts)" 1 "remount $type"
            umount -t fuse.resourcesync "$M"; end
        done
        resourcesync mount "$S" "$M" -o "cache=$W/c"
        expect "$(mounts)" 1 "resourcesync mount"
        umount "$M"; end
        mount -t resourcesync -f "$S" "$M" -o "cache=$W/c"
        expect "$(mounts)" 0 "mount -f"
        mount -t resourcesync -s "$S" "$M" -o "cache=$W/c,no-such-option"
        umount "$M"; end
        "#,
    );
}

#[test]
fn failures_have_their_reason_and_their_exit_code() {
    in_a_namespace(
        &source(1),
        r#"
        fails() { # code, words, arguments
            code=$1; words=$2; shift 2
            set +e; said=$("$@" 2>&1 </dev/null); found=$?; set -e
            expect "$found" "$code" "$* says: $said"
            case "$said" in *"$words"*) ;; *) echo "$words: not in: $said" >&2; exit 1;; esac
        }
        fails 1 "there is no such option" mount -t resourcesync "$S" "$M" -o bogus
        fails 1 "expected a duration" mount -t resourcesync "$S" "$M" -o timeout=soon
        fails 1 "is named by its URL" mount.resourcesync source "$M"
        fails 1 "use -o credentials=FILE" mount -t resourcesync "http://me:secret@127.0.0.1/" "$M"
        fails 1 "usage:" mount.resourcesync "$S"
        fails 32 "there is no such directory" resourcesync mount "$S" "$W/nowhere"
        fails 32 "is not a directory" resourcesync mount "$S" "$W/fstab"
        fails 32 "cannot connect" mount -t resourcesync "http://127.0.0.1:9/" "$M" -o "cache=$W/c9,timeout=2"
        fails 32 "nothing to remount" resourcesync mount "$S" "$M" -o remount
        expect "$(mounts)" 0 "nothing is mounted"
        expect "$(daemon)" "" "no daemon is left"
        "#,
    );
}

#[test]
fn in_the_background_it_mounts_before_the_source_is_there() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mirror = Mirror::mount(&format!("http://{free}/"), "bg,timeout=2");
    assert_eq!(mirror.wait("away", |status| status["state"] == "away" || status["state"] == "empty")["resources"], 0);
    assert_eq!(mirror.files().len(), 0);
    let server = Server::at(free);
    server.file("/a", "text");
    server.source(AT, &entry_of(&server.url("/a"), b"text"));
    let said = mirror.refresh();
    assert!(said.status.success(), "{}", text(&said));
    mirror.wait("the tree", |_| mirror.path("a").exists());
    assert_eq!(mirror.read("a").unwrap(), b"text");
}

#[test]
fn wait_bounds_the_mount_and_the_sync_goes_on_behind() {
    let server = source(5);
    let list = std::sync::Arc::new(std::sync::Mutex::new(()));
    let held = list.lock().unwrap();
    let (gate, body) =
        (list.clone(), crate::support::resource_list(AT, &entry_of(&server.url("/d/001"), &bytes(1, 1000))));
    server.on("/resourcelist.xml", move |request| {
        drop(gate.lock());
        crate::support::server::Reply::good(request, body.as_bytes())
    });
    let began = std::time::Instant::now();
    let mirror = Mirror::mount(&server.url("/"), "wait=1");
    assert!(began.elapsed().as_secs_f32() < 20.0, "{:?}", began.elapsed());
    assert_eq!(mirror.status()["state"], "syncing");
    assert_eq!(mirror.files().len(), 0);
    drop(held);
    mirror.wait("the tree", |status| status["state"] == "complete");
    mirror.wait("the kernel to know", |_| mirror.path("d/001").exists());
    assert_eq!(mirror.files(), ["d/001"]);
}

#[test]
fn a_user_mounts_through_fusermount3() {
    crate::support::require(&["fusermount3", "setpriv"]);
    let server = source(5);
    in_a_namespace(
        &server,
        r#"
        # Some machines keep /dev/fuse to root, or the program where nobody else may go.
        mknod "$W/fuse" c 10 229; chmod 666 "$W/fuse"; mount --bind "$W/fuse" /dev/fuse
        chmod 755 "$W" "$W/prefix" "$W/prefix/bin"
        mkdir "$W/home" "$W/home/m"; chown -R 65534:65534 "$W/home"; M=$W/home/m
        user() { setpriv --reuid 65534 --regid 65534 --clear-groups env -u XDG_CACHE_HOME HOME="$W/home" PATH="$PATH" "$@"; }
        user resourcesync mount "$S" "$M"
        expect "$(mounts)" 1 "a user's mount"
        expect "$(user cat "$M/d/003" | wc -c)" 1000 "read by who mounted it"
        user resourcesync status "$M" --json | grep -q '"cache": ".*/home/.cache/resourcesync/127.0.0.1-'
        if cat "$M/d/003" 2>/dev/null; then echo "root reads a user's mount" >&2; exit 1; fi
        user resourcesync refresh "$M"
        kill -9 $(daemon); end
        user resourcesync mount "$S" "$M"
        expect "$(mounts)" 1 "a user's dead mount is replaced"
        user fusermount3 -u "$M"; end
        expect "$(mounts)" 0 "fusermount3 -u"
        "#,
    );
}

#[test]
fn status_shows_all_mounts_and_the_log_is_kept() {
    let server = source(3);
    let (one, two) = (Mirror::mount(&server.url("/"), ""), Mirror::mount(&server.url("/"), "content=all"));
    let all: serde_json::Value = serde_json::from_str(&output(&["status", "--json"])).unwrap();
    for mirror in [&one, &two] {
        let found =
            all.as_array().unwrap().iter().find(|one| one["directory"] == mirror.directory.to_string_lossy().as_ref());
        let found = found.expect("each mount is in the status");
        for key in ["source", "state", "sets", "resources", "cached", "last_sync", "lag", "errors", "pid", "cache"] {
            assert!(found.get(key).is_some(), "{key} is not in {found:#}");
        }
        assert_eq!((found["state"].as_str(), found["resources"].as_u64()), (Some("complete"), Some(3)));
    }
    let person = output(&["status", &one.directory.to_string_lossy()]);
    assert!(person.contains("complete") && person.contains("3, 0 cached") && person.contains("last sync"), "{person}");
    one.kill();
    let person = output(&["status"]);
    assert!(person.contains("dead"), "a dead mount keeps nobody from seeing the others: {person}");
    assert_eq!(run(&["status", "/"]).status.code(), Some(1));
    assert!(
        shell(&format!("cat {}/log /dev/null", two.cache.display())).contains("mounted")
            || std::path::Path::new("/dev/log").exists()
    );
}

#[test]
fn install_puts_everything_in_place_and_takes_it_away() {
    let root = tempfile::tempdir().unwrap();
    let place = root.path().to_string_lossy().into_owned();
    let said = output(&["install", "--destdir", &place]);
    for path in [
        "usr/local/bin/resourcesync",
        "usr/local/share/man/man8/resourcesync.8",
        "usr/local/share/bash-completion/completions/resourcesync",
    ] {
        assert!(root.path().join(path).is_file() && said.contains(path), "{path}: {said}");
    }
    let helper = root.path().join("sbin/mount.resourcesync");
    assert_eq!(std::fs::read_link(&helper).unwrap().to_str(), Some("/usr/local/bin/resourcesync"));
    let manual = std::fs::read_to_string(root.path().join("usr/local/share/man/man8/resourcesync.8")).unwrap();
    assert!(manual.contains("verify=strict|stream|warn|off") && manual.contains(".SH FSTAB"), "{manual}");
    output(&["install", "--destdir", &place]);
    output(&["install", "--destdir", &place, "--remove"]);
    assert_eq!(crate::support::files(root.path()), Vec::<String>::new());
}

#[test]
fn the_demo_shows_itself_and_ends() {
    let said = output(&["demo", "--once"]);
    assert!(said.contains("2,023 resources") && said.contains("Found 2,02"), "{said}");
    assert!(said.contains("notification: ") && said.contains("M  records/record-0.json"), "{said}");
    assert!(said.contains("Try:") && said.contains("unmounted"), "{said}");
    let mirror = said.lines().find_map(|line| line.strip_prefix("unmounted ")).unwrap();
    assert!(!std::path::Path::new(mirror).exists(), "nothing is left of it");
}

#[test]
fn a_signal_to_all_processes_of_a_service_takes_the_mount_away() {
    let server = Server::start();
    server.source("2026-03-01T00:00:00Z", "");
    let mirror = Mirror::mount(&server.url("/"), "");
    let (daemon, guard) = (mirror.daemon().unwrap(), mirror.guard().unwrap());
    for process in [guard, daemon] {
        shell(&format!("kill -TERM {process}"));
    }
    mirror.wait_for_end();
    assert!(!shell("cat /proc/self/mountinfo").contains(&*mirror.directory.to_string_lossy()));
}

#[test]
fn what_somebody_else_mounted_there_since_stays() {
    let server = Server::start();
    server.source("2026-03-01T00:00:00Z", &crate::support::entry_of(&server.url("/a"), b"a"));
    server.file("/a", "a");
    let mirror = Mirror::mount(&server.url("/"), "");
    let held = std::fs::File::open(mirror.path("a")).unwrap();
    let directory = mirror.directory.display();
    shell(&format!("umount -l {directory} && mount -t tmpfs other {directory}"));
    shell(&format!("kill -TERM {}", mirror.daemon().unwrap()));
    drop(held);
    mirror.wait_for_end();
    let mounts = shell("cat /proc/self/mountinfo");
    shell(&format!("umount {directory}"));
    assert!(mounts.lines().any(|line| line.contains(&*mirror.directory.to_string_lossy()) && line.contains("tmpfs")));
}
