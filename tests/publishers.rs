//! What real software publishes, emulated from its code and its sites: each publisher is followed over a random history of edits,
//! with editions that the mirror misses and pauses. The mount is never `complete` and different from the Source.
//!
//! `EDITS` (60) and `SEED` choose how long the histories are, and which.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that panics has failed")]

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use jiff::{SignedDuration, Timestamp};
use support::server::{Reply, Server};
use support::{Mirror, facts_of, scramble, seed};

/// Numbers that look random.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = scramble(self.0);
        self.0 % most
    }
}

/// One edit.
#[derive(Clone)]
struct Event {
    time: Timestamp,
    kind: &'static str,
    path: String,
    body: Vec<u8>,
}

/// The resources of a publisher, and all that happened to them.
struct World {
    server: Server,
    now: BTreeMap<String, (Timestamp, Vec<u8>)>,
    log: Vec<Event>,
    clock: Timestamp,
    dice: Dice,
}

/// `<url>` with these parts; what is empty is left out.
fn url(loc: &str, lastmod: Option<Timestamp>, md: &str) -> String {
    let lastmod = lastmod.map(|time| format!("<lastmod>{time}</lastmod>")).unwrap_or_default();
    let md = if md.is_empty() { String::new() } else { format!("<rs:md {md}/>") };
    format!("<url><loc>{loc}</loc>{lastmod}{md}</url>\n")
}

fn urlset(head: &str, entries: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" \
         xmlns:rs=\"http://www.openarchives.org/rs/terms/\">\n{head}{entries}</urlset>\n"
    )
}

fn index(head: &str, entries: &str) -> String {
    urlset(head, entries).replace("urlset", "sitemapindex").replace("url>", "sitemap>")
}

impl World {
    fn new(name: &str) -> Self {
        let own = name.bytes().fold(seed(), |sum, byte| scramble(sum ^ u64::from(byte)));
        println!("{name}: its history is that of {own}");
        // Each edit takes seconds of the Source's time, and no time of the test's.
        let clock = Timestamp::now() - SignedDuration::from_hours(5);
        let clock = Timestamp::from_second(clock.as_second()).unwrap();
        let mut world = Self { server: Server::start(), now: BTreeMap::new(), log: Vec::new(), clock, dice: Dice(own) };
        (0..10).for_each(|_| world.edit(true));
        world
    }

    fn url(&self, path: &str) -> String {
        self.server.url(path)
    }

    /// Creates, updates or deletes a resource.
    fn edit(&mut self, only_create: bool) {
        self.clock += SignedDuration::from_secs(1 + i64::try_from(self.dice.below(5)).unwrap());
        let path = format!("/files/{:02}.txt", self.dice.below(30));
        let is_there = self.now.contains_key(&path);
        let kind = match (is_there, self.dice.below(3)) {
            (false, _) => "created",
            (true, 0) if !only_create && self.now.len() > 3 => "deleted",
            (true, _) => "updated",
        };
        let body = format!("{path} of {} {}\n", self.clock, "x".repeat(usize::try_from(self.dice.below(50)).unwrap()));
        let event = Event { time: self.clock, kind, path: path.clone(), body: body.clone().into_bytes() };
        match kind {
            "deleted" => {
                self.now.remove(&path);
                self.server.remove(&path);
            }
            _ => {
                self.now.insert(path.clone(), (self.clock, body.clone().into_bytes()));
                self.server
                    .on(&path, move |request| Reply::good(request, body.as_bytes()).with("Content-Type", "text/plain"));
            }
        }
        self.log.push(event);
    }

    /// The entries of a Resource List.
    fn entries(&self, md: impl Fn(&[u8]) -> String) -> String {
        self.now.iter().map(|(path, (time, body))| url(&self.url(path), Some(*time), &md(body))).collect()
    }

    /// `rs:md` with a time.
    fn resource_list(&self, entries: &str) {
        let md = format!("<rs:md capability=\"resourcelist\" at=\"{}\"/>\n", self.clock);
        self.server.file("/resourcelist.xml", urlset(&md, entries));
    }

    fn offers(&self, documents: &[(&str, &str)]) {
        let entries: String = documents
            .iter()
            .map(|(path, name)| url(&self.url(path), None, &format!("capability=\"{name}\"")))
            .collect();
        let head = "<rs:md capability=\"capabilitylist\"/>\n";
        self.server.file("/capabilitylist.xml", urlset(head, &entries));
        let sets = url(&self.url("/capabilitylist.xml"), None, "capability=\"capabilitylist\"");
        self.server.file("/.well-known/resourcesync", urlset("<rs:md capability=\"description\"/>\n", &sets));
    }

    /// Whether the mount has what the Source has now; why not.
    fn differs(&self, mirror: &Mirror) -> Option<String> {
        let paths: Vec<&str> = self.now.keys().map(|path| path.trim_start_matches('/')).collect();
        let files = mirror.files();
        if files != paths {
            return Some(format!("it has {files:?}\nand not  {paths:?}"));
        }
        self.now.iter().find_map(|(path, (_, body))| match mirror.read(path.trim_start_matches('/')) {
            Ok(found) if found == *body => None,
            Ok(found) => Some(format!("{path} is {}", String::from_utf8_lossy(&found))),
            Err(error) => Some(format!("{path}: {error}")),
        })
    }

    /// Follows a publisher: `publish` writes its documents after an edit.
    fn follow(mut self, source: &str, options: &str, mut publish: impl FnMut(&mut Self)) {
        let edits: u64 = std::env::var("EDITS").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
        publish(&mut self);
        let mirror = Mirror::mount(&self.url(source), &format!("poll=0,relist=1s{options}"));
        let (mut done, mut agreed) = (0, 0);
        while done < edits {
            // Some editions are missed.
            for _ in 0..=self.dice.below(8) {
                self.edit(false);
                publish(&mut self);
                done += 1;
            }
            if self.dice.below(3) == 0 {
                // Publishers generate their documents anew though nothing has happened.
                publish(&mut self);
            }
            std::thread::sleep(Duration::from_millis(1050));
            let _ = mirror.refresh();
            let status = mirror.status();
            match self.differs(&mirror) {
                None => agreed += 1,
                Some(why) => {
                    let recent: Vec<String> = self
                        .log
                        .iter()
                        .rev()
                        .take(12)
                        .map(|one| format!("{} {} {}", one.time, one.kind, one.path))
                        .collect();
                    assert_ne!(status["state"], "complete", "{why}\nafter {done} edits: {recent:#?}\n{status:#}");
                }
            }
        }
        // What it could not follow, its lists make up for.
        publish(&mut self);
        std::thread::sleep(Duration::from_millis(1050));
        mirror.refreshed();
        let status = mirror.status();
        assert_eq!(self.differs(&mirror), None, "{status:#}");
        assert_eq!(status["state"], "complete", "{status:#}");
        assert!(agreed > 3, "it was in step {agreed} times only");
    }
}

/// The newest `most` events, oldest first.
fn window(log: &[Event], most: usize) -> &[Event] {
    &log[log.len().saturating_sub(most)..]
}

#[test]
fn hyrax() {
    // Newest first, `lastmod` alone, one entry for each work, never `deleted`; `from` is that of the oldest entry.
    World::new("hyrax").follow("/", "", |world| {
        world.offers(&[("/resourcelist.xml", "resourcelist"), ("/changelist.xml", "changelist")]);
        let entries = world.entries(|_| String::new());
        world.resource_list(&entries);
        let mut works: Vec<_> = world.now.iter().collect();
        works.sort_by_key(|(_, (time, _))| std::cmp::Reverse(*time));
        let entries: String =
            works.iter().map(|(path, (time, _))| url(&world.url(path), Some(*time), "change=\"updated\"")).collect();
        let from = works.last().map(|(_, (time, _))| *time).unwrap();
        let head = format!("<rs:md capability=\"changelist\" from=\"{from}\"/>\n");
        world.server.file("/changelist.xml", urlset(&head, &entries));
    });
}

#[test]
fn dspace() {
    // Deletions without a time, of handles that no list has; lists have hashes.
    World::new("dspace").follow("/", "", |world| {
        world.offers(&[("/resourcelist.xml", "resourcelist"), ("/changelist.xml", "changelist")]);
        let entries = world.entries(facts_of);
        world.resource_list(&entries);
        let entries: String = window(&world.log, 60)
            .iter()
            .map(|event| match event.kind {
                "deleted" => url(&world.url(&event.path.replace("/files/", "/handle/")), None, "change=\"deleted\""),
                kind => {
                    let md = format!("change=\"{kind}\" datetime=\"{}\" {}", event.time, facts_of(&event.body));
                    url(&world.url(&event.path), Some(event.time), &md)
                }
            })
            .collect();
        let from = window(&world.log, 60)[0].time;
        let head = format!("<rs:md capability=\"changelist\" from=\"{from}\"/>\n");
        world.server.file("/changelist.xml", urlset(&head, &entries));
    });
}

#[test]
fn weko3() {
    // Several Resource Lists in one Capability List, an index written as urlset, `rs:md` before `loc`.
    World::new("weko3").follow("/", "", |world| {
        world.offers(&[("/index.xml", "resourcelist"), ("/two.xml", "resourcelist")]);
        let md = format!("<rs:md capability=\"resourcelist\" at=\"{}\"/>\n", world.clock);
        let parts = format!("<url><rs:md capability=\"resourcelist\"/><loc>{}</loc></url>\n", world.url("/one.xml"));
        world.server.file("/index.xml", urlset(&md, &parts));
        let entries = |odd: bool| -> String {
            let listed = world.now.iter().enumerate().filter(|(at, _)| (at % 2 == 1) == odd);
            let entry = |(path, (time, body)): (&String, &(Timestamp, Vec<u8>))| {
                format!(
                    "<url><rs:md {}/><loc>{}</loc><lastmod>{time}</lastmod></url>\n",
                    facts_of(body),
                    world.url(path)
                )
            };
            listed.map(|(_, one)| entry(one)).collect()
        };
        world.server.file("/one.xml", urlset(&md, &entries(true)));
        world.server.file("/two.xml", urlset(&md, &entries(false)));
    });
}

#[test]
fn rsengine() {
    // Times without zone, `rs:ln` without `rel`, relative `loc`, Capability List entries without `capability`.
    World::new("rsengine").follow("/", "", |world| {
        let local = |time: Timestamp| time.to_string().replace('Z', "");
        let documents = ["/resourcelist.xml", "/changelist.xml"].map(|path| url(&world.url(path), None, "")).concat();
        world.offers(&[]);
        world.server.file("/capabilitylist.xml", urlset("<rs:md capability=\"capabilitylist\"/>\n", &documents));
        let entries: String = world.now.iter().map(|(path, (_, body))| url(path, None, &facts_of(body))).collect();
        let head = format!(
            "<rs:ln href=\"capabilitylist.xml\"/>\n<rs:md capability=\"resourcelist\" at=\"{}\"/>\n",
            local(world.clock)
        );
        world.server.file("/resourcelist.xml", urlset(&head, &entries));
        let entries: String = window(&world.log, 40)
            .iter()
            .map(|event| {
                let facts = if event.kind == "deleted" { String::new() } else { facts_of(&event.body) };
                url(&event.path, None, &format!("change=\"{}\" datetime=\"{}\" {facts}", event.kind, local(event.time)))
            })
            .collect();
        let head = format!("<rs:md capability=\"changelist\" from=\"{}\"/>\n", local(window(&world.log, 40)[0].time));
        world.server.file("/changelist.xml", urlset(&head, &entries));
    });
}

#[test]
fn heratio() {
    // Lists of pages whose `at` is the time of the request; a Change List whose interval moves with the request, in the order of
    // identifiers, with deletions under another URI at its end.
    World::new("heratio").follow("/", "", |world| {
        world.offers(&[("/resourcelist.xml", "resourcelist"), ("/changelist.xml", "changelist")]);
        let each = 7;
        let all: Vec<String> =
            world.now.iter().map(|(path, (time, body))| url(&world.url(path), Some(*time), &facts_of(body))).collect();
        let pages: Vec<String> = all.chunks(each).map(|page| page.concat()).collect();
        for (number, page) in pages.iter().cloned().enumerate() {
            let next = match number + 1 < pages.len() {
                true => {
                    format!(
                        "<rs:ln rel=\"next\" href=\"{}\"/>\n",
                        world.url(&format!("/resourcelist.xml?page={}", number + 2))
                    )
                }
                false => String::new(),
            };
            let path = if number == 0 { String::new() } else { format!("?page={}", number + 1) };
            world.server.on(&format!("/resourcelist.xml{path}"), move |_| {
                let md = format!("<rs:md capability=\"resourcelist\" at=\"{}\"/>\n", Timestamp::now());
                Reply::ok(urlset(&format!("{md}{next}"), &page))
            });
        }
        let mut newest: BTreeMap<&str, &Event> = BTreeMap::new();
        for event in &world.log {
            newest.insert(&event.path, event);
        }
        let (gone, there): (Vec<&Event>, Vec<&Event>) =
            newest.values().copied().partition(|event| event.kind == "deleted");
        let entries: String = there
            .iter()
            .map(|event| {
                let md = format!("change=\"updated\" datetime=\"{}\" {}", event.time, facts_of(&event.body));
                url(&world.url(&event.path), Some(event.time), &md)
            })
            .chain(gone.iter().map(|event| {
                let other = world.url(&event.path.replace("/files/", "/slug/"));
                url(&other, None, &format!("change=\"deleted\" datetime=\"{}\"", event.time))
            }))
            .collect();
        world.server.on("/changelist.xml", move |_| {
            let now = Timestamp::now();
            let from = now - SignedDuration::from_hours(720);
            Reply::ok(urlset(
                &format!("<rs:md capability=\"changelist\" from=\"{from}\" until=\"{now}\"/>\n"),
                &entries,
            ))
        });
    });
}

#[test]
fn core_connector() {
    // The well-known document lies below a path, `describedBy`, newlines inside `<loc>`.
    World::new("core").follow("/repo/", "", |world| {
        world.offers(&[("/resourcelist.xml", "resourcelist")]);
        world.server.remove("/.well-known/resourcesync");
        let sets = url(&format!("\n  {}\n", world.url("/capabilitylist.xml")), None, "capability=\"capabilitylist\"");
        let head = format!(
            "<rs:ln rel=\"describedBy\" href=\"{}\"/>\n<rs:md capability=\"description\"/>\n",
            world.url("/about")
        );
        world.server.file("/repo/.well-known/resourcesync", urlset(&head, &sets));
        world.server.file("/repo/", "<!DOCTYPE html><title>A repository</title>");
        let entries: String = world
            .now
            .iter()
            .map(|(path, (time, body))| url(&format!("\n    {}\n  ", world.url(path)), Some(*time), &facts_of(body)))
            .collect();
        world.resource_list(&entries);
    });
}

#[test]
fn a_static_site() {
    // An index of sitemaps in robots.txt, `lastmod` alone.
    World::new("static").follow("/", "", |world| {
        world.server.file("/robots.txt", format!("User-agent: *\nSitemap: {}\n", world.url("/sitemap_index.xml")));
        let all: Vec<String> =
            world.now.iter().map(|(path, (time, _))| url(&world.url(path), Some(*time), "")).collect();
        let (one, two) = all.split_at(all.len() / 2);
        world.server.file("/one.xml", urlset("", &one.concat()));
        world.server.file("/two.xml", urlset("", &two.concat()));
        let parts = ["/one.xml", "/two.xml"].map(|path| url(&world.url(path), Some(world.clock), ""));
        world.server.file("/sitemap_index.xml", index("", &parts.concat()));
    });
}

#[test]
fn a_site_behind_a_bot_wall() {
    // Content requests are sometimes answered with a page, whatever was asked for: neither hash nor length is listed.
    World::new("wall").follow("/", "", |world| {
        world.server.file("/robots.txt", format!("Sitemap: {}\n", world.url("/sitemap.xml")));
        let entries: String = world
            .now
            .iter()
            .map(|(path, (time, _))| url(&world.url(path), Some(*time), "type=\"text/plain\""))
            .collect();
        world.server.file("/sitemap.xml", urlset("", &entries));
        let walled: Vec<(String, Vec<u8>)> =
            world.now.iter().map(|(path, (_, body))| (path.clone(), body.clone())).collect();
        for (path, body) in walled {
            let asked = std::sync::atomic::AtomicU64::new(world.dice.below(4));
            world.server.on(&path, move |request| match asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst) % 7 {
                0 => Reply::ok("<!DOCTYPE html><title>Making sure you're not a bot!</title>")
                    .with("Content-Type", "text/html; charset=utf-8"),
                _ => Reply::good(request, &body).with("Content-Type", "text/plain"),
            });
        }
    });
}

#[test]
fn the_reference_simulator() {
    // It remembers its last 20 events; its Change List has no `from`, and `lastmod` for each.
    World::new("simulator").follow("/", "", |world| {
        world.offers(&[("/resourcelist.xml", "resourcelist"), ("/changelist.xml", "changelist")]);
        let entries = world.entries(facts_of);
        world.resource_list(&entries);
        let entries: String = window(&world.log, 20)
            .iter()
            .map(|event| {
                let facts = if event.kind == "deleted" { String::new() } else { facts_of(&event.body) };
                url(&world.url(&event.path), Some(event.time), &format!("change=\"{}\" {facts}", event.kind))
            })
            .collect();
        world.server.file("/changelist.xml", urlset("<rs:md capability=\"changelist\"/>\n", &entries));
    });
}

#[test]
fn rspub_core() {
    // A Change List that is full stays open and gains a link to an index; the next list has the `from` of the first one.
    World::new("rspub").follow("/", "", |world| {
        let each = 4;
        let lists: Vec<(String, Timestamp)> = world
            .log
            .chunks(each)
            .enumerate()
            .map(|(number, _)| (format!("/changelist_{number:04}.xml"), world.log[0].time))
            .collect();
        let several = lists.len() > 1;
        let root = if several { "/changelist-index.xml" } else { "/changelist_0000.xml" };
        world.offers(&[("/resourcelist.xml", "resourcelist"), (root, "changelist")]);
        if world.log.len() < 12 {
            let entries = world.entries(facts_of);
            world.resource_list(&entries);
        }
        let beside = match several {
            true => format!("<rs:ln rel=\"index\" href=\"{}\"/>\n", world.url("/changelist-index.xml")),
            false => String::new(),
        };
        for ((path, from), events) in lists.iter().zip(world.log.chunks(each)) {
            let entries: String = events
                .iter()
                .map(|event| {
                    let facts = if event.kind == "deleted" { String::new() } else { facts_of(&event.body) };
                    let md = format!("change=\"{}\" datetime=\"{}\" {facts}", event.kind, event.time);
                    url(&world.url(&event.path), Some(event.time), &md)
                })
                .collect();
            let head = format!("{beside}<rs:md capability=\"changelist\" from=\"{from}\"/>\n");
            world.server.file(path, urlset(&head, &entries));
        }
        let parts: String =
            lists.iter().map(|(path, from)| url(&world.url(path), None, &format!("from=\"{from}\""))).collect();
        let head = format!("<rs:md capability=\"changelist\" from=\"{}\"/>\n", lists[0].1);
        world.server.file("/changelist-index.xml", index(&head, &parts));
    });
}

#[test]
fn resync_build_with_kept_times() {
    // A Change List is the difference between the Resource List and a scan of the directory: undated, one change of each resource,
    // sorted by URI. A file that came and went since is in neither: then the Resource List is made anew, and the differences are
    // those from that.
    let mut made_at = 10;
    World::new("resync-build").follow("/", "", move |world| {
        world.offers(&[("/resourcelist.xml", "resourcelist"), ("/changelist.xml", "changelist")]);
        let listed = |events: &[Event]| {
            let mut all: BTreeMap<String, Event> = BTreeMap::new();
            for event in events {
                match event.kind {
                    "deleted" => drop(all.remove(&event.path)),
                    _ => drop(all.insert(event.path.clone(), event.clone())),
                }
            }
            all
        };
        let last = world.log.last().unwrap();
        if last.kind == "deleted" && !listed(&world.log[..made_at]).contains_key(&last.path) {
            made_at = world.log.len();
        }
        let made = world.log[made_at - 1].time;
        let before = listed(&world.log[..made_at]);
        let listed: String = before
            .values()
            .map(|event| url(&world.url(&event.path), Some(event.time), &facts_of(&event.body)))
            .collect();
        let md = format!("<rs:md capability=\"resourcelist\" at=\"{made}\"/>\n");
        world.server.file("/resourcelist.xml", urlset(&md, &listed));
        let mut entries = String::new();
        for (path, (time, body)) in &world.now {
            let kind = match before.get(path) {
                Some(old) if old.body == *body => continue,
                Some(_) => "updated",
                None => "created",
            };
            entries += &url(&world.url(path), Some(*time), &format!("change=\"{kind}\" {}", facts_of(body)));
        }
        for path in before.keys().filter(|path| !world.now.contains_key(*path)) {
            entries += &url(&world.url(path), None, "change=\"deleted\"");
        }
        let head = format!("<rs:md capability=\"changelist\" from=\"{made}\"/>\n");
        world.server.file("/changelist.xml", urlset(&head, &entries));
    });
}

/// A folder with the resources of a publisher, that `resync-build` scans.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// Has the resources of now, with their times.
    fn fill(&self, world: &World) {
        let files = self.0.path().join("files");
        let _ = std::fs::remove_dir_all(&files);
        std::fs::create_dir(&files).unwrap();
        for (path, (time, body)) in &world.now {
            let file = self.0.path().join(path.trim_start_matches('/'));
            std::fs::write(&file, body).unwrap();
            std::fs::File::options().write(true).open(&file).unwrap().set_modified(SystemTime::from(*time)).unwrap();
        }
    }

    /// Runs the program of the package `resync`, which says what it cannot do on its output and ends well.
    fn build(&self, world: &World, document: &str, arguments: &[&str]) {
        let mapping = format!("{}={}", world.url("/files"), self.path("files"));
        let output = Command::new(support::peer::program("peers", "python"))
            .arg("-I")
            .arg(support::peer::program("peers", "resync-build"))
            .args(["--hash", "sha-256", "--outfile", &self.path(document)])
            .args(arguments)
            .arg(mapping)
            .output()
            .unwrap();
        assert!(output.status.success() && Path::new(&self.path(document)).exists(), "{}", support::text(&output));
    }

    fn publish(&self, world: &World, document: &str) {
        world.server.file(&format!("/{document}"), std::fs::read(self.path(document)).unwrap());
    }
}

#[test]
fn resync_build_from_one_list() {
    // The program itself. Its Change List is what is different from a Resource List, without times of changes and without `from`;
    // the list is made anew now and then, and what it told until then is told no more. Of what came and went since the list was
    // made it tells nothing: then its publisher makes the list anew.
    let folder = Folder::new();
    let (mut made, mut last, mut listed) = (0, 0, Vec::new());
    World::new("resync-build, from one list").follow("/", "", move |world| {
        world.offers(&[("/resourcelist.xml", "resourcelist"), ("/changelist.xml", "changelist")]);
        folder.fill(world);
        let came_and_went = world.log[last..].iter().any(|one| one.kind == "deleted" && !listed.contains(&one.path));
        if made == 0 || made + 15 <= world.log.len() || last == world.log.len() || came_and_went {
            listed = world.now.keys().cloned().collect();
            folder.build(world, "resourcelist.xml", &["--write-resourcelist"]);
            folder.publish(world, "resourcelist.xml");
            made = world.log.len();
        }
        last = world.log.len();
        folder.build(world, "changelist.xml", &["--write-changelist", "--reference", &folder.path("resourcelist.xml")]);
        folder.publish(world, "changelist.xml");
    });
}

#[test]
fn resync_build_from_list_to_list() {
    // The program itself. Each Change List is what is different from the Resource List before it: who misses one has lost it.
    let folder = Folder::new();
    World::new("resync-build, from list to list").follow("/", "", move |world| {
        world.offers(&[("/resourcelist.xml", "resourcelist"), ("/changelist.xml", "changelist")]);
        folder.fill(world);
        let (list, before) = (folder.path("resourcelist.xml"), folder.path("before.xml"));
        let is_first = std::fs::rename(&list, &before).is_err();
        folder.build(world, "resourcelist.xml", &["--write-resourcelist"]);
        let reference = if is_first { &list } else { &before };
        let arguments = ["--write-changelist", "--reference", reference, "--newreference", &list];
        folder.build(world, "changelist.xml", &arguments);
        folder.publish(world, "resourcelist.xml");
        folder.publish(world, "changelist.xml");
    });
}

#[test]
fn pod() {
    // Bearer tokens apart: a Resource List and an open Change List, all entries dated to the day alone.
    World::new("pod").follow("/", "", |world| {
        world.offers(&[("/resourcelist.xml", "resourcelist"), ("/changelist.xml", "changelist")]);
        let entries = world.entries(facts_of);
        world.resource_list(&entries);
        let day = |time: Timestamp| time.to_string()[..10].to_owned();
        let entries: String = world
            .log
            .iter()
            .map(|event| {
                let facts = if event.kind == "deleted" { String::new() } else { facts_of(&event.body) };
                url(
                    &world.url(&event.path),
                    None,
                    &format!("change=\"{}\" datetime=\"{}\" {facts}", event.kind, day(event.time)),
                )
            })
            .collect();
        let head = format!("<rs:md capability=\"changelist\" from=\"{}\"/>\n", day(world.log[0].time));
        world.server.file("/changelist.xml", urlset(&head, &entries));
    });
}
