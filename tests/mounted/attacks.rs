//! What a hostile Source, a local user and a peer that knows a callback's path could do, and what they get. Each test is the
//! attacker: a server, or a user without rights.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::attacker::{Flood, Flooder, NOBODY, as_nobody, mebibytes, processor_time, shell_as_nobody};
use crate::support::changes::{Source, agrees, at, told};
use crate::support::server::{Reply, Server};
use crate::support::telling::{channel, free_port};
use crate::support::{
    Mirror, PROGRAM, capability, catalog, document, entry, entry_of, facts_of, resource_list, run, shell, text, xattr,
};

const AT: &str = "2026-01-02T03:04:05Z";

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A Source with one resource, whose sets offer these WebSocket channels, one each.
fn with_channels(urls: &[String]) -> Server {
    let server = Server::start();
    server.file("/a", "one");
    let mut sets = String::new();
    for (number, url) in urls.iter().enumerate() {
        let (list, capabilities) = (format!("/list{number}.xml"), format!("/capabilities{number}.xml"));
        server.file(&list, resource_list(AT, &entry_of(&server.url("/a"), b"one")));
        let offers = capability(&server.url(&list), "resourcelist") + &channel(url, "change-notification", &[]);
        server.file(&capabilities, document("capabilitylist", "", "", &offers));
        sets.push_str(&capability(&server.url(&capabilities), "capabilitylist"));
    }
    server.file("/.well-known/resourcesync", document("description", "", "", &sets));
    server
}

fn states(mirror: &Mirror) -> Vec<(String, String)> {
    let status = mirror.status();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let channels = status["channels"].as_array().unwrap().iter();
    channels.map(|channel| (text(&channel["state"]), text(&channel["reason"]))).collect()
}

#[test]
fn a_channel_that_pings_and_never_reads_takes_no_memory_and_is_closed() {
    let flooder = Flooder::start(Flood::Pings);
    let server = with_channels(&[flooder.url("/")]);
    let mirror = Mirror::mount(&server.url("/"), "poll=0,limit_messages=50");
    let daemon = mirror.daemon().unwrap();
    let before = mebibytes(daemon, "VmRSS");
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(60)
        && !states(&mirror).iter().any(|one| one.1.contains("limit_messages=50"))
    {
        assert!(mebibytes(daemon, "VmRSS") < before + 40, "{} MiB", mebibytes(daemon, "VmRSS"));
        std::thread::sleep(Duration::from_millis(200));
    }
    let (state, reason) = states(&mirror).remove(0);
    assert_eq!(state, "failing", "{reason}");
    assert!(reason.contains("limit_messages=50") && reason.contains("polled"), "{reason}");
    assert!(flooder.frames() < 100_000, "they were read as fast as they came: {}", flooder.frames());
    assert_eq!(mirror.read("capabilities0.xml/a").or_else(|_| mirror.read("a")).unwrap(), b"one");
}

#[test]
fn no_more_channels_are_joined_than_allowed_and_the_other_sets_are_polled() {
    let flooder = Flooder::start(Flood::Silence);
    let urls: Vec<String> = (0..30).map(|number| flooder.url(&format!("/{number}"))).collect();
    let server = with_channels(&urls);
    for (options, most) in [("limit_channels=5", 5), ("limit_connections=16", 8)] {
        let mirror = Mirror::mount(&server.url("/"), &format!("poll=0,{options}"));
        let unused = |states: &[(String, String)]| {
            states.iter().filter(|(state, why)| state == "unused" && why.contains("limit_channels=")).count()
        };
        let began = Instant::now();
        while states(&mirror).iter().filter(|(state, _)| state == "live").count() < most {
            assert!(began.elapsed() < Duration::from_secs(30), "{:?}", states(&mirror));
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(unused(&states(&mirror)), 30 - most, "{:?}", states(&mirror));
    }
    assert_eq!(flooder.accepted(), 5 + 8);
}

#[test]
fn without_a_home_directory_the_cache_is_not_where_anybody_may_write() {
    let source = Source::start(&[("/a", "one")], &[]);
    let folder = tempfile::tempdir().unwrap();
    chown(folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let program = Path::new(PROGRAM);
    // As mount(8) calls the helper of a user's mount: without HOME. The home of this user is not there.
    let output = as_nobody(program).args(["mount", &source.url("/")]).arg(folder.path()).output().unwrap();
    let said = text(&output);
    shell(&format!("umount -l {} 2>/dev/null || true", folder.path().display()));
    assert!(!output.status.success(), "{said}");
    let shared_directory = std::env::temp_dir().join("resourcesync").display().to_string();
    assert!(said.contains("cache") && !said.contains(&shared_directory), "{said}");
}

#[test]
fn a_cache_that_another_user_could_change_is_refused() {
    let source = Source::start(&[("/a", "one")], &[]);
    let mirror = Mirror::mount(&source.url("/"), "poll=0");
    mirror.unmount();
    let above = mirror.cache.parent().unwrap().to_owned();
    let refused = |part: &str| {
        let output = mirror.try_mount();
        let said = text(&output);
        assert!(!output.status.success() && said.contains(part), "{said}");
        assert!(said.contains("chown") || said.contains("chmod"), "the next step: {said}");
    };
    for path in [&mirror.cache, &above] {
        chown(path, None, Some(NOBODY)).unwrap();
        for (changed, part) in [(0o770, "written by its group"), (0o707, "written by everybody")] {
            let before = fs::metadata(path).unwrap().mode() & 0o7777;
            mode(path, changed);
            refused(part);
            mode(path, before);
        }
        chown(path, Some(NOBODY), None).unwrap();
        refused("belongs to user 65534");
        chown(path, Some(0), None).unwrap();
    }
    assert!(mirror.try_mount().status.success());
    agrees(&mirror, &source);
}

fn object(cache: &Path, bytes: &[u8]) -> PathBuf {
    let name = crate::support::sha256(bytes);
    cache.join("objects").join(&name[..2]).join(&name[2..])
}

#[test]
fn content_that_another_user_could_have_changed_is_fetched_again() {
    let source = Source::start(&[("/a", "one"), ("/b", "two"), ("/c", "ten")], &[]);
    let mirror = Mirror::mount(&source.url("/"), "poll=0");
    agrees(&mirror, &source);
    mirror.unmount();
    for (bytes, change) in [(b"one", 0), (b"two", 1), (b"ten", 2)] {
        let object = object(&mirror.cache, bytes);
        fs::write(&object, "bad").unwrap();
        match change {
            0 => mode(&object, 0o666),
            1 => chown(&object, Some(NOBODY), None).unwrap(),
            _ => {
                let elsewhere = mirror.cache.parent().unwrap().join("elsewhere");
                fs::rename(&object, &elsewhere).unwrap();
                symlink(&elsewhere, &object).unwrap();
            }
        }
    }
    assert!(mirror.try_mount().status.success());
    agrees(&mirror, &source);
    assert_eq!(["/a", "/b", "/c"].map(|path| source.server.count(path)), [2; 3]);
}

#[test]
fn a_link_in_the_cache_leads_to_nobody_elses_files() {
    let source = Source::start(&[("/a", "one")], &[]);
    let mirror = Mirror::mount(&source.url("/"), "poll=0");
    mirror.unmount();
    let victim = tempfile::tempdir().unwrap();
    fs::write(victim.path().join("letters"), "mine").unwrap();
    for name in ["spool", "objects", "partial", "packages"] {
        let own = mirror.cache.join(name);
        fs::rename(&own, mirror.cache.join("kept")).unwrap();
        symlink(victim.path(), &own).unwrap();
        let output = mirror.try_mount();
        assert!(!output.status.success(), "{name}: {}", text(&output));
        fs::remove_file(&own).unwrap();
        fs::rename(mirror.cache.join("kept"), &own).unwrap();
    }
    assert_eq!(fs::read_to_string(victim.path().join("letters")).unwrap(), "mine");
    assert_eq!(fs::read_dir(victim.path()).unwrap().count(), 1);
    assert!(mirror.try_mount().status.success());
}

#[test]
fn nobody_else_reads_the_cache_or_gives_orders_to_the_daemon() {
    let source = Source::start(&[("/a", "one")], &[]);
    let folder = tempfile::tempdir().unwrap();
    mode(folder.path(), 0o755);
    let (directory, cache) = (folder.path().join("mirror"), folder.path().join("cache"));
    fs::create_dir(&directory).unwrap();
    fs::create_dir(&cache).unwrap();
    mode(&cache, 0o755);
    // A catalog that an earlier version made with the umask of its caller.
    fs::write(cache.join("catalog.db"), "").unwrap();
    fs::write(cache.join("log"), "").unwrap();
    mode(&cache.join("catalog.db"), 0o644);
    mode(&cache.join("log"), 0o666);
    let mount = format!(
        "umask 0; exec {PROGRAM} mount {} {} -o poll=0,cache={}",
        source.url("/"),
        directory.display(),
        cache.display()
    );
    shell(&mount);
    fs::read(directory.join("a")).unwrap();
    let mut left = vec![cache.clone()];
    let mut files = 0;
    while let Some(folder) = left.pop() {
        for item in fs::read_dir(&folder).unwrap().flatten() {
            let found = fs::symlink_metadata(item.path()).unwrap();
            assert_eq!(found.mode() & 0o077, 0, "{}", item.path().display());
            files += 1;
            if found.is_dir() {
                left.push(item.path());
            }
        }
    }
    let read = shell_as_nobody(&format!("cat {}/catalog.db {0}/catalog.db-shm {0}/log", cache.display()));
    let order = as_nobody(Path::new(PROGRAM)).arg("refresh").arg(&directory).output().unwrap();
    // The socket itself would answer those who get to it, whatever its permissions, if not for their user.
    mode(&cache.join("control"), 0o777);
    let insisting = as_nobody(Path::new(PROGRAM)).arg("refresh").arg(&directory).output().unwrap();
    let own = run(&["refresh", &directory.to_string_lossy()]);
    shell(&format!("umount {}", directory.display()));
    assert!(files > 8 && !read.status.success() && read.stdout.is_empty(), "{}", text(&read));
    assert!(!order.status.success() && !insisting.status.success(), "{}{}", text(&order), text(&insisting));
    assert!(own.status.success(), "{}", text(&own));
}

#[test]
fn a_sync_that_cannot_write_is_a_state_with_a_reason() {
    let mut source = Source::start(&[("/a", "one")], &["changelist"]);
    source.changes("");
    let mirror = Mirror::mount(&source.url("/"), "poll=0");
    let holder = rusqlite::Connection::open(mirror.cache.join("catalog.db")).unwrap();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    let change = source.does("updated", "/a", 10, "two");
    source.changes(&change);
    assert!(!mirror.refresh().status.success());
    let status = mirror.status();
    assert_eq!(status["state"], "partial", "{status:#}");
    assert!(status["reason"].as_str().unwrap().contains("locked"), "{status:#}");
    holder.execute_batch("ROLLBACK").unwrap();
    drop(holder);
    mirror.refreshed();
    let status = mirror.status();
    assert_eq!((status["state"].as_str(), status["reason"].as_str()), (Some("complete"), None));
    agrees(&mirror, &source);
}

/// Entries of so many resources, each linked to a collection and a canonical URI.
fn linking(server: &Server, count: u64) -> String {
    let links = |number: u64| {
        format!(
            "<rs:ln rel=\"collection\" href=\"http://e.example/c/{}\"/><rs:ln rel=\"canonical\" href=\"http://e.example/{number}\"/>",
            number % 50
        )
    };
    (0..count)
        .map(|number| {
            let entry = entry(&server.url(&format!("/d/{number}")), "length=\"3\"");
            entry.replace("</url>", &format!("{}</url>", links(number)))
        })
        .collect()
}

#[test]
fn what_anybody_may_ask_for_below_resourcesync_reads_no_more_than_it_shows() {
    let mut source = Source::start(&[], &["changelist"]);
    let entries = linking(&source.server, 20_000);
    source.server.file("/resourcelist.xml", resource_list(&at(0), &entries));
    source.changes("");
    let mirror = Mirror::mount(&source.url("/"), "poll=0");
    let mut changes = String::new();
    let ask = |name: &str| {
        let began = Instant::now();
        let found = fs::symlink_metadata(mirror.path(&format!(".resourcesync/{name}"))).is_ok();
        (found, began.elapsed())
    };
    let mut longest = Duration::ZERO;
    for second in 1..5 {
        // Whatever was gathered before, a change makes it old.
        changes.push_str(&source.does("updated", "/new", second, "x"));
        source.changes(&changes);
        mirror.refreshed();
        for (name, is_there) in [
            ("uris/http:%2F%2Fe.example%2Fnothing", false),
            ("uris/http:%2F%2Fe.example%2F17", true),
            ("collections/~nothing", false),
            ("collections/17", true),
        ] {
            let (found, took) = ask(name);
            assert_eq!(found, is_there, "{name}");
            longest = longest.max(took);
        }
    }
    assert!(longest < Duration::from_millis(150), "{longest:?}");
    assert_eq!(mirror.names(".resourcesync/collections").len(), 50);
    assert_eq!(mirror.names(".resourcesync/collections/17").len(), 400);
    let target = fs::read_link(mirror.path(".resourcesync/uris/http:%2F%2Fe.example%2F17")).unwrap();
    assert_eq!(target, Path::new("../../d/17"));
}

#[test]
fn status_files_that_are_kept_open_take_no_more_than_their_bound() {
    let source = Source::start(&[("/a", "one")], &[]);
    // Errors as long as a Source can make them.
    let long = |number: u64| format!("/{number}?{}", "x".repeat(6000));
    let entries: String = (0..50).map(|number| entry(&source.url(&long(number)), "length=\"3\"")).collect();
    source.server.file("/resourcelist.xml", resource_list(AT, &entries));
    let mirror = Mirror::mount(&source.url("/"), "poll=0,limit_snapshots=2M");
    for file in mirror.files() {
        assert!(mirror.read(&file).is_err());
    }
    let status = mirror.path(".resourcesync/status.json");
    let size = fs::metadata(&status).unwrap().len();
    assert!(size < 200_000, "error texts are cut: {size}");
    let daemon = mirror.daemon().unwrap();
    let before = mebibytes(daemon, "VmRSS");
    let mut first = fs::File::open(&status).unwrap();
    let kept: Vec<fs::File> = (0..200).map(|_| fs::File::open(&status).unwrap()).collect();
    let grown = mebibytes(daemon, "VmRSS").saturating_sub(before);
    assert!(grown < 25, "{grown} MiB");
    assert_eq!(mirror.status()["state"], "complete", "a new one can be read");
    let stale = first.read_to_string(&mut String::new()).unwrap_err();
    assert_eq!(stale.raw_os_error(), Some(libc::ESTALE));
    drop(kept);
}

/// The processor time of a refresh that applies what is then published: other work on the machine does not add to it.
fn applies(source: &Source, options: &str, publish: impl FnOnce()) -> Duration {
    source.changes("");
    let mirror = Mirror::mount(&source.url("/"), options);
    publish();
    let daemon = mirror.daemon().unwrap();
    let before = processor_time(daemon);
    mirror.refreshed();
    let took = processor_time(daemon) - before;
    assert_eq!(mirror.status()["state"], "complete");
    assert!(catalog::versions(&mirror.cache) >= 200, "the changes were applied");
    took
}

/// Whether the second is about as many times the first as there is work for, and not that squared.
fn is_linear(name: &str, times: f64, [few, many]: [Duration; 2]) {
    let ratio = many.as_secs_f64() / few.as_secs_f64().max(0.05);
    println!("{name}: {few:?}, {many:?}: {ratio:.1} for {times}");
    assert!(ratio < times * 3.0, "{name}: {ratio:.1} times as long for {times} times as many");
}

#[test]
fn thousands_of_changes_of_one_resource_take_as_long_as_of_many() {
    let source = Source::start(&[("/a", "one")], &["changelist"]);
    source.changes("");
    let url = source.url("/a");
    let time = |number: usize| {
        format!("datetime=\"2026-03-02T{:02}:{:02}:{:02}Z\"", number / 3600, number / 60 % 60, number % 60)
    };
    let hash = |number: usize| facts_of(format!("{number}").as_bytes());
    let dated = |number: usize| format!("change=\"updated\" {} {}", time(number), hash(number));
    let at_once = |number: usize| format!("change=\"updated\" {} {}", time(0), hash(number));
    let undated = |number: usize| format!("change=\"updated\" {}", hash(number));
    let list = |count: usize, md: &dyn Fn(usize) -> String| -> String {
        (0..count).map(|number| entry(&url, &md(number))).collect()
    };
    let ways: [(&str, &dyn Fn(usize) -> String); 3] =
        [("dated", &dated), ("in one second", &at_once), ("undated", &undated)];
    for (name, md) in ways {
        is_linear(name, 6.0, [1500, 9000].map(|count| applies(&source, "poll=0", || source.changes(&list(count, md)))));
    }
}

#[test]
fn thousands_of_mementos_of_one_resource_take_as_long_as_of_many() {
    let source = Source::start(&[("/a", "one")], &["changelist"]);
    source.changes("");
    let list = |count: usize| -> String {
        let link = |number: usize| {
            let time = format!(
                "2019-03-{:02}T{:02}:{:02}:{:02}Z",
                1 + number / 86_400,
                number / 3600 % 24,
                number / 60 % 60,
                number % 60
            );
            format!("<rs:ln rel=\"memento\" href=\"{}\" modified=\"{time}\"/>", source.url(&format!("/m/{number}")))
        };
        (0..count / 200)
            .map(|change| {
                let links: String = (change * 200..(change + 1) * 200).map(link).collect();
                let entry = told(&source.url("/a"), "updated", 10 + change as u64, format!("{change}").as_bytes());
                entry.replace("</url>", &format!("{links}</url>"))
            })
            .collect()
    };
    is_linear("mementos", 6.0, [2000, 12_000].map(|count| applies(&source, "poll=0", || source.changes(&list(count)))));
}

#[test]
fn thousands_of_changes_before_the_time_of_a_newer_list_take_as_long_as_of_many() {
    let source = Source::start(&[("/a", "a")], &["changelist"]);
    let publish = |count: u64| {
        let update = |number: u64| told(&source.url("/a"), "updated", 10 + number, format!("{number}").as_bytes());
        source.changes(&(0..count).map(update).collect::<String>());
        source.list(count + 100);
        // The list is due by then.
        std::thread::sleep(Duration::from_millis(1200));
    };
    let took = [1000, 6000].map(|count| {
        source.list(0);
        applies(&source, "poll=0,relist=1s", || publish(count))
    });
    is_linear("before the list", 6.0, took);
}

#[test]
fn a_path_of_thousands_of_segments_makes_no_directories() {
    let source = Source::start(&[("/a", "one")], &["changelist"]);
    source.changes("");
    let mirror = Mirror::mount(&source.url("/"), "poll=0");
    let deep = |number: u64| source.url(&format!("/{number}{}", "/a".repeat(3900)));
    source.changes(&(0..5).map(|number| told(&deep(number), "created", 10, b"x")).collect::<String>());
    mirror.refreshed();
    assert_eq!(mirror.names(".versions"), ["a"]);
    let warnings = mirror.status()["warnings"].to_string();
    assert!(warnings.contains("limit_segments=255"), "{warnings}");
    assert_eq!(mirror.files(), ["a"]);
}

#[test]
fn with_more_names_than_allowed_a_sync_changes_nothing() {
    let source = Source::start(&[("/a", "one")], &["changelist"]);
    source.changes("");
    let mirror = Mirror::mount(&source.url("/"), "poll=0,limit_names=1000");
    source.changes(
        &(0..1100).map(|number| told(&source.url(&format!("/{number}")), "created", 10, b"x")).collect::<String>(),
    );
    let output = mirror.refresh();
    assert!(!output.status.success() && text(&output).contains("limit_names=1000"), "{}", text(&output));
    assert_eq!(mirror.files(), ["a"]);
    let status = mirror.status();
    assert_eq!(status["state"], "partial");
    assert!(status["reason"].as_str().unwrap().contains("limit_names=1000"));
}

#[test]
fn the_catalogs_log_stays_short_however_many_messages_come_and_whoever_reads() {
    let flooder = Flooder::start(Flood::Messages);
    let server = with_channels(&[flooder.url("/")]);
    let entries: String = (0..2000).map(|number| entry(&server.url(&format!("/d/{number}")), "length=\"3\"")).collect();
    server.file("/list0.xml", resource_list(AT, &entries));
    let mirror = Mirror::mount(&server.url("/"), "poll=0,limit_log=1M,limit_messages=1000000");
    let stop = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (stop, file) = (Arc::clone(&stop), mirror.path("d/7"));
            std::thread::spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    // Not kept by the kernel: each asks the catalog.
                    let _ = xattr(&file, "user.xdg.origin.url");
                }
            })
        })
        .collect();
    let log = mirror.cache.join("catalog.db-wal");
    let began = Instant::now();
    let mut longest = 0;
    while began.elapsed() < Duration::from_secs(8) {
        longest = longest.max(fs::metadata(&log).map_or(0, |log| log.len()));
        std::thread::sleep(Duration::from_millis(20));
    }
    stop.store(true, Ordering::SeqCst);
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    let received = mirror.status()["notifications"]["received"].as_u64().unwrap();
    assert!(received > 1000, "{received}");
    assert!(longest < 12 << 20, "{longest} bytes after {received} messages");
}

#[test]
fn where_the_disk_is_full_no_sync_writes() {
    let source = Source::start(&[("/a", "one")], &["changelist"]);
    source.changes("");
    let mut mirror = Mirror::mount(&source.url("/"), "poll=0");
    mirror.unmount();
    mirror.set_options("poll=0,limit_free=1024T");
    assert!(mirror.try_mount().status.success());
    assert!(!mirror.refresh().status.success());
    let status = mirror.status();
    assert_eq!(status["state"], "partial");
    let reason = status["reason"].as_str().unwrap();
    assert!(reason.contains("limit_free=1024T") && reason.contains("make room"), "{reason}");
}

#[test]
fn the_daemon_has_no_rights_and_passes_content_through_all_the_same() {
    let large = "x".repeat(3 << 20);
    let source = Source::start(&[("/a", &large), ("/b", "two")], &[]);
    let mirror = Mirror::mount(&source.url("/"), "poll=0,io=passthrough");
    agrees(&mirror, &source);
    // What is here now is passed through when it is opened again.
    agrees(&mirror, &source);
    assert_eq!(mirror.status()["io"], "passthrough", "{}", mirror.status()["io_why"]);
    let reads = |status: &serde_json::Value| status["requests"]["read"].as_u64().unwrap();
    let before = reads(&mirror.status());
    shell(&format!("cat {0}/a {0}/a > /dev/null", mirror.directory.display()));
    assert_eq!(reads(&mirror.status()), before, "reads do not come to the daemon");
    let status = fs::read_to_string(format!("/proc/{}/status", mirror.daemon().unwrap())).unwrap();
    for line in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        let found = status.lines().find_map(|found| found.strip_prefix(&format!("{line}:\t"))).unwrap();
        assert_eq!(u64::from_str_radix(found, 16).unwrap(), 0, "{line}");
    }
    assert!(status.contains("Seccomp:\t2") && status.contains("NoNewPrivs:\t1"), "{status}");
}

#[test]
fn a_mount_point_that_is_exchanged_while_the_source_is_looked_for_is_not_followed() {
    let source = Source::start(&[("/a", "one")], &[]);
    let description =
        document("description", "", "", &capability(&source.url("/capabilitylist.xml"), "capabilitylist"));
    source.server.on("/.well-known/resourcesync", move |_| Reply {
        delay: Duration::from_secs(2),
        ..Reply::ok(description.clone())
    });
    let folder = tempfile::tempdir().unwrap();
    let (own, moved, victim) = (folder.path().join("m"), folder.path().join("moved"), folder.path().join("victim"));
    for directory in [&own, &victim] {
        fs::create_dir(directory).unwrap();
    }
    fs::write(victim.join("precious"), "x").unwrap();
    let options = format!("poll=0,cache={}", folder.path().join("cache").display());
    let mut mount = Command::new(PROGRAM)
        .args(["mount", &source.url("/"), &own.to_string_lossy(), "-o", &options])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(700));
    fs::rename(&own, &moved).unwrap();
    symlink(&victim, &own).unwrap();
    let status = mount.wait().unwrap();
    let (there, read) = (fs::read_to_string(victim.join("precious")), fs::read_to_string(moved.join("a")));
    shell(&format!("umount -l {} || umount -l {} || true", moved.display(), victim.display()));
    assert_eq!(there.unwrap(), "x", "the other directory is as it was");
    assert!(status.success() && read.unwrap() == "one", "the mount is on the directory that was named");
}

#[test]
fn a_users_mount_keeps_its_permissions_and_no_file_is_executed() {
    crate::support::require(&["unshare", "fusermount3", "setpriv"]);
    let source = Source::start(&[("/a", "one")], &[]);
    let script = format!(
        r#"
        echo user_allow_other > $1/fuse.conf; mount --bind $1/fuse.conf /etc/fuse.conf
        mkdir $1/m $1/home; chown 65534 $1/m $1/home; chmod 666 /dev/fuse
        user() {{ setpriv --reuid "$1" --regid 65534 --clear-groups "${{@:2}}"; }}
        user 65534 {PROGRAM} mount {0} $1/m -o poll=0,cache=$1/home/cache,allow_other,umask=077
        trap "umount -l $1/m" EXIT
        user 65534 cat $1/m/a
        if user 65533 cat $1/m/a 2>/dev/null; then echo "another user reads it"; fi
        if user 65533 ls $1/m 2>/dev/null; then echo "another user lists it"; fi
        findmnt -no OPTIONS $1/m | tr , '\n' | grep -xE 'noexec|default_permissions' | sort | tr '\n' ' '
        "#,
        source.url("/")
    );
    let output = in_own_mounts(&script);
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "onedefault_permissions noexec");
    // Of root's mount: what is executed is the dynamic linker, with a program of the Source's.
    let program = fs::read("/bin/true").unwrap();
    let server = Server::start();
    server.file("/true", program.clone());
    server.source(AT, &entry_of(&server.url("/true"), &program));
    let mirror = Mirror::mount(&server.url("/"), "poll=0");
    let linker = shell("ls /lib64/ld-linux-x86-64.so.2 /lib/ld-linux-aarch64.so.1 2>/dev/null || true");
    let linker = linker.lines().next().expect("a dynamic linker").to_owned();
    assert!(Command::new(&linker).arg("/bin/true").status().unwrap().success());
    let output = Command::new(&linker).arg(mirror.path("true")).output().unwrap();
    assert!(!output.status.success(), "{}", text(&output));
}

/// Runs a script of bash, in which `$1` is a new directory that anybody may enter, in its own namespace of mounts.
fn in_own_mounts(script: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    mode(folder.path(), 0o755);
    Command::new("unshare")
        .args(["--mount", "--propagation", "private", "bash", "-euo", "pipefail", "-c", script, "bash"])
        .arg(folder.path())
        .output()
        .unwrap()
}

#[test]
fn what_is_checked_hinders_no_usual_mount() {
    crate::support::require(&["unshare", "fusermount3", "setpriv"]);
    let source = Source::start(&[("/a", "one")], &[]);
    // Above the cache lies a directory of root's that others may enter and not list.
    let entered = format!(
        r#"
        mkdir -m 711 $1/top; mkdir $1/top/home $1/m; chown 65534 $1/top/home $1/m; chmod 666 /dev/fuse
        setpriv --reuid 65534 --regid 65534 --clear-groups {PROGRAM} mount {0} $1/m -o poll=0,cache=$1/top/home/cache
        trap "umount -l $1/m" EXIT
        setpriv --reuid 65534 --regid 65534 --clear-groups cat $1/m/a
        "#,
        source.url("/")
    );
    // Where root's mounts would lock their directories nothing can be written.
    let locked = format!(
        r#"
        mkdir $1/m; mount -t tmpfs -o ro none /run
        {PROGRAM} mount {0} $1/m -o poll=0,cache=$1/cache
        trap "umount -l $1/m" EXIT
        cat $1/m/a
        "#,
        source.url("/")
    );
    for script in [entered, locked] {
        let output = in_own_mounts(&script);
        assert!(output.status.success() && output.stdout == b"one", "{}", text(&output));
    }
}

/// A hub that verifies each subscription once, with this challenge, and keeps to itself what it was sent.
fn hub(server: &Server, challenge: &'static str) {
    server.on("/hub", move |request| {
        let form: Vec<(String, String)> = url::form_urlencoded::parse(&request.body).into_owned().collect();
        let field = |name: &str| form.iter().find(|(own, _)| own == name).map(|(_, value)| value.clone()).unwrap();
        let (mode, topic, callback) = (field("hub.mode"), field("hub.topic"), field("hub.callback"));
        std::thread::spawn(move || get(&callback, &mode, &topic, challenge, "864000"));
        Reply::status(202)
    });
}

/// Sends a request; returns the status of its answer.
fn send(url: &str, method: &str, path_and_head: &str, body: &[u8]) -> String {
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let (query, head) = path_and_head.split_once('\n').unwrap_or((path_and_head, ""));
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let request =
        format!("{method} /{path}{query} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {}\r\n{head}\r\n", body.len());
    stream.write_all(request.as_bytes()).unwrap();
    let _ = stream.write_all(body);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).split(' ').nth(1).unwrap_or_default().to_owned()
}

fn get(callback: &str, mode: &str, topic: &str, challenge: &str, lease: &str) -> String {
    let query = url::form_urlencoded::Serializer::new(String::new())
        .append_pair("hub.mode", mode)
        .append_pair("hub.topic", topic)
        .append_pair("hub.challenge", challenge)
        .append_pair("hub.lease_seconds", lease)
        .append_pair("hub.reason", "because")
        .finish();
    send(callback, "GET", &format!("?{query}"), b"")
}

#[test]
fn who_knows_a_callback_and_no_secret_changes_nothing() {
    let mut source = Source::start(&[("/a", "one")], &[]);
    hub(&source.server, "the hub's own");
    let topic = source.url("/topic");
    let offers = capability(&source.url("/resourcelist.xml"), "resourcelist")
        + &channel(&topic, "change-notification", &[&source.url("/hub")]);
    source.server.file("/capabilitylist.xml", document("capabilitylist", "", "", &offers));
    let mirror = Mirror::mount(&source.url("/"), &format!("poll=0,listen=127.0.0.1:{}", free_port()));
    let status = mirror.wait("a live channel", |status| status["channels"][0]["state"] == "live");
    let lease = status["channels"][0]["lease_until"].clone();
    let form = source.server.requests().into_iter().find(|request| request.path == "/hub").unwrap().body;
    let field = |name: &str| {
        url::form_urlencoded::parse(&form).find(|(own, _)| own == name).map(|(_, value)| value.into_owned()).unwrap()
    };
    let (callback, secret) = (field("hub.callback"), field("hub.secret"));
    assert_eq!(get(&callback, "subscribe", &topic, "somebody else's", "1"), "200", "it is wanted, and that is all");
    assert_eq!(get(&callback, "unsubscribe", &topic, "somebody else's", "1"), "404");
    let channel = mirror.status()["channels"][0].clone();
    assert_eq!((&channel["state"], &channel["lease_until"]), (&"live".into(), &lease), "{channel}");
    assert_eq!(get(&callback, "denied", &topic, "", "1"), "200");
    // The hub is asked, and only it can end the subscription.
    mirror.wait("a renewal", |status| status["channels"][0]["lease_until"] != lease);
    assert_eq!(mirror.status()["channels"][0]["state"], "live");
    let body = crate::support::telling::notification(0, 10, &source.does("updated", "/a", 10, "two"));
    let signed = |secret: &str| {
        use hmac::{KeyInit as _, Mac as _};
        let mut mac = hmac::Hmac::<sha2::Sha256>::new_from_slice(secret.as_bytes()).unwrap();
        mac.update(body.as_bytes());
        format!("X-Hub-Signature: sha256={}\r\n", crate::support::hex(&mac.finalize().into_bytes()))
    };
    let posts = |head: &str| send(&callback, "POST", &format!("\n{head}"), body.as_bytes());
    let began = Instant::now();
    assert_eq!(posts(&signed("a guess")), "403");
    assert!(began.elapsed() >= Duration::from_millis(250), "a flood of them is slowed down: {:?}", began.elapsed());
    let many: String = (0..94).map(|number| signed(&format!("guess {number}"))).collect();
    assert_eq!(posts(&(many + &signed(&secret))), "403", "no more than one signature is looked at");
    assert_eq!(posts(&signed(&secret)), "202");
    mirror.wait("the change", |_| mirror.read("a").is_ok_and(|found| found == b"two"));
}

/// Serves a body that comes in pieces of so many bytes each tenth of a second, and never ends, on each connection.
fn drips(piece: usize) -> (String, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/list.xml", listener.local_addr().unwrap());
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let stop = Arc::clone(&stopped);
            std::thread::spawn(move || {
                let _ = stream.read(&mut [0; 4096]);
                let head = "HTTP/1.1 200 x\r\nContent-Type: application/xml\r\nContent-Length: 100000000\r\n\r\n";
                let _ = stream
                    .write_all(format!("{head}{}", resource_list(AT, "").trim_end_matches("</urlset>\n")).as_bytes());
                while !stop.load(Ordering::SeqCst) && stream.write_all(" ".repeat(piece).as_bytes()).is_ok() {
                    std::thread::sleep(Duration::from_millis(100));
                }
            });
        }
    });
    (url, stop)
}

#[test]
fn a_list_that_drips_ends_the_sync_with_a_state() {
    // At 240 bytes a second it is too slow; at 20,000 it goes on until the time of a sync is over.
    for (piece, options, part) in
        [(24, "timeout=3", "less than 1024 bytes a second"), (2000, "timeout=3,limit_sync=10", "limit_sync=10")]
    {
        let source = Source::start(&[("/a", "one")], &[]);
        let mirror = Mirror::mount(&source.url("/"), &format!("poll=0,{options}"));
        let (url, stop) = drips(piece);
        source
            .server
            .file("/capabilitylist.xml", document("capabilitylist", "", "", &capability(&url, "resourcelist")));
        let began = Instant::now();
        let output = mirror.refresh();
        let took = began.elapsed();
        stop.store(true, Ordering::SeqCst);
        assert!(took < Duration::from_secs(40), "{took:?}: {}", text(&output));
        let status = mirror.status();
        assert_eq!(status["state"], "partial", "{status:#}");
        assert!(status["errors"].to_string().contains(part), "{}", status["errors"]);
        assert_eq!(mirror.read("a").unwrap(), b"one");
    }
}

/// Characters that act on a terminal, or change how text is read.
fn is_hostile(c: char) -> bool {
    (c.is_control() && c != '\n')
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200b}'..='\u{200f}')
}

#[test]
fn what_a_source_writes_cannot_act_on_a_terminal() {
    let hostile = "x&#x9b;31m&#x202e;y&#x2066;&#13;z";
    let source = Source::start(&[("/a", "one")], &["changelist"]);
    let links = format!("<rs:ln rel=\"describedby\" href=\"http://e.example/{hostile}\" title=\"{hostile}\"/>");
    let named =
        entry(&source.url("/n&#x9b;&#x202e;m"), &format!("{} pri=\"{hostile}\"", facts_of(b"one")).replace('&', "&"));
    let named = named.replace("&amp;#", "&#").replace("</url>", &format!("{links}</url>"));
    source.server.file("/resourcelist.xml", resource_list(AT, &named));
    source.changes("");
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), resource_list(AT, &named)).unwrap();
    let mirror = Mirror::mount(&source.url("/"), "poll=0");
    let change = told(&source.url("/n&#x9b;&#x202e;m"), "updated", 10, b"two").replace("&amp;#", "&#");
    source.changes(&change);
    mirror.refreshed();
    let path = mirror.path(&mirror.files()[0]).to_string_lossy().into_owned();
    let directory = mirror.directory.to_string_lossy().into_owned();
    let document = file.path().to_string_lossy().into_owned();
    let commands: [&[&str]; 8] = [
        &["inspect", &document],
        &["inspect", &document, "--json"],
        &["inspect", &source.url("/resourcelist.xml"), "--all"],
        &["log", &path],
        &["log", &path, "--json"],
        &["log", &directory],
        &["status", &directory],
        &["audit", &directory, "--json"],
    ];
    for command in commands {
        let output = run(command);
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(!said.is_empty(), "{command:?}");
        assert!(!said.contains(is_hostile), "{command:?}: {said:?}");
    }
    let json = run(&["inspect", &document, "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert!(json.to_string().contains('\u{202e}'), "what is escaped means the same");
    let status = fs::read_to_string(mirror.path(".resourcesync/status.json")).unwrap();
    let log = fs::read_to_string(mirror.cache.join("log")).unwrap_or_default();
    assert!(!status.contains(is_hostile) && !log.contains(is_hostile));
}

#[test]
fn what_the_daemon_reports_of_a_file_cannot_be_forged_and_its_list_fits() {
    let server = Server::start();
    server.file("/a", "one");
    let relations: String =
        (0..400).map(|number| format!("<rs:ln rel=\"r{number:0>200}\" href=\"http://e.example/\"/>")).collect();
    let md = "length=\"3\" verified=\"yes\" error=\"none\" asked=\"never\"";
    server.source(AT, &entry(&server.url("/a"), md).replace("</url>", &format!("{relations}</url>")));
    let mirror = Mirror::mount(&server.url("/"), "poll=0");
    let file = mirror.path("a");
    assert_eq!(xattr(&file, "user.resourcesync.verified"), None, "its content is not here");
    assert_eq!(xattr(&file, "user.resourcesync.listed.verified").as_deref(), Some("yes"));
    assert_eq!(xattr(&file, "user.resourcesync.error"), None);
    let mut names = vec![0; 65_536];
    let length = rustix::fs::listxattr(&file, &mut names[..]).expect("the list fits");
    let names = String::from_utf8_lossy(&names[..length]).into_owned();
    let count = names.split_terminator('\0').count();
    let omitted: usize = xattr(&file, "user.resourcesync.omitted").unwrap().parse().unwrap();
    assert!(omitted > 50 && count > 250, "{count} listed, {omitted} omitted");
    assert!(names.contains("user.xdg.origin.url") && names.contains("user.resourcesync.length"));
    assert_eq!(mirror.read("a").unwrap(), b"one");
    assert_eq!(xattr(&file, "user.resourcesync.verified").as_deref(), Some("yes"));
}

#[test]
fn a_secret_that_a_server_sends_back_is_shown_nowhere() {
    const TOKEN: &str = "S3cretT0ken+of/the=mirror";
    let source = Source::start(&[("/a", "one")], &[]);
    let echoes = |request: &crate::support::server::Request| {
        let sent = request.header("authorization").unwrap_or_default().to_owned();
        let token = sent.trim_start_matches("Bearer ").to_owned();
        let escaped = url::form_urlencoded::byte_serialize(token.as_bytes()).collect::<String>();
        Reply::status(302).with("Location", &format!("gopher://x.example/?one={token}&two={escaped}"))
    };
    source.server.on("/a", echoes);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("credentials");
    fs::write(&file, format!("http://{} bearer {TOKEN}\n", source.server.address())).unwrap();
    mode(&file, 0o600);
    let mirror = Mirror::mount(&source.url("/"), &format!("poll=0,credentials={}", file.display()));
    assert!(mirror.read("a").is_err());
    let sent = source.server.requests().into_iter().rfind(|request| request.path == "/a").unwrap();
    assert_eq!(sent.header("authorization"), Some(format!("Bearer {TOKEN}").as_str()), "it was sent");
    let status = fs::read_to_string(mirror.path(".resourcesync/status.json")).unwrap();
    let log = fs::read_to_string(mirror.cache.join("log")).unwrap_or_default();
    assert!(status.contains("gopher"), "the error is there: {status}");
    for shown in [status, log, text(&run(&["status", &mirror.directory.to_string_lossy()]))] {
        assert!(!shown.contains("S3cret"), "{shown}");
    }
}

#[test]
fn a_lock_of_another_user_holds_up_no_mount_of_roots() {
    crate::support::require(&["setpriv", "flock"]);
    let source = Source::start(&[("/a", "one")], &[]);
    let mirror = Mirror::prepare(&source.url("/"), "poll=0");
    mode(mirror.directory.parent().unwrap(), 0o755);
    let mut holder = as_nobody(Path::new("flock"))
        .arg(&mirror.directory)
        .args(["sleep", "60"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let began = Instant::now();
    let output = mirror.try_mount();
    let took = began.elapsed();
    let ended = holder.try_wait().unwrap();
    shell(&format!("pkill -P {} || true", holder.id()));
    let _ = holder.wait();
    assert!(ended.is_none(), "the lock was held all the time");
    assert!(output.status.success(), "{}", text(&output));
    assert!(took < Duration::from_secs(8), "{took:?}");
    agrees(&mirror, &source);
}

#[test]
fn a_setuid_copy_gives_its_caller_nothing() {
    let folder = tempfile::tempdir().unwrap();
    mode(folder.path(), 0o755);
    let (copy, secret) = (folder.path().join("resourcesync"), folder.path().join("secret.xml"));
    fs::copy(PROGRAM, &copy).unwrap();
    fs::write(&secret, resource_list(AT, &entry("http://e.example/secret", ""))).unwrap();
    mode(&secret, 0o600);
    for bits in [0o4755, 0o2755] {
        mode(&copy, bits);
        if bits == 0o2755 {
            mode(&secret, 0o640);
        }
        let output = as_nobody(&copy).arg("inspect").arg(&secret).output().unwrap();
        let said = text(&output);
        assert!(!output.status.success() && !said.contains("e.example"), "{bits:o}: {said}");
    }
}
