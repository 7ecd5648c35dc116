//! Random histories of a Source, told in the ways that Sources tell them, against a map in memory: after each sync
//! the mount is the map.

use std::collections::BTreeMap;

use crate::support::changes::{Source, at, change, change_index, change_list, link};
use crate::support::{Mirror, facts_of, scramble};

/// How a Source tells of a change.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Manner {
    /// With time, hash and length.
    Full,
    /// With the time alone.
    Dated,
    /// With hash and length alone.
    Hashed,
    /// With `lastmod` alone, newest first.
    Backwards,
    /// With times for some, and hashes for all.
    Mixed,
}

#[derive(Clone)]
struct Happened {
    path: String,
    kind: &'static str,
    second: u64,
    body: String,
}

struct Teller {
    manner: Manner,
    random: u64,
    second: u64,
    told: Vec<Happened>,
    /// Where lists begin: places in what is told, and moments.
    lists: Vec<(usize, u64)>,
    made: u64,
}

impl Teller {
    fn next(&mut self, below: u64) -> u64 {
        self.random = scramble(self.random);
        self.random % below
    }

    fn entry(&self, source: &Source, one: &Happened) -> String {
        let (time, facts) = (format!("datetime=\"{}\" ", at(one.second)), facts_of(one.body.as_bytes()));
        let facts = if one.kind == "deleted" { String::new() } else { facts };
        let url = source.url(&one.path);
        match self.manner {
            Manner::Full => change(&url, one.kind, &(time + &facts)),
            Manner::Dated => change(&url, one.kind, &time),
            Manner::Hashed => change(&url, one.kind, &facts),
            Manner::Mixed if one.second.is_multiple_of(3) => change(&url, one.kind, &facts),
            Manner::Mixed => change(&url, one.kind, &(time + &facts)),
            Manner::Backwards => {
                change(&url, one.kind, "").replace("</loc>", &format!("</loc><lastmod>{}</lastmod>", at(one.second)))
            }
        }
    }

    fn entries(&self, source: &Source, from: usize, to: usize) -> String {
        let mut entries: Vec<String> = self.told[from..to].iter().map(|one| self.entry(source, one)).collect();
        if self.manner == Manner::Backwards {
            entries.reverse();
        }
        entries.concat()
    }

    /// Publishes all lists, and the index that they are in.
    fn publish(&self, source: &Source) {
        let to_index = link("index", &source.url("/changelist.xml"));
        let mut index = Vec::new();
        for (number, (place, from)) in self.lists.iter().enumerate() {
            let next = self.lists.get(number + 1);
            let to = next.map_or(self.told.len(), |next| next.0);
            let until = next.map(|next| next.1);
            let path = format!("/list-{number}.xml");
            let entries = self.entries(source, *place, to);
            source.server.file(&path, change_list(Some(*from), until, &to_index, &entries));
            index.push((source.url(&path), Some(*from), until));
        }
        source.server.file("/changelist.xml", change_index(self.lists[0].1, &index));
        // What is not in the index any more is gone.
        (self.lists.len()..30).for_each(|number| source.server.remove(&format!("/list-{number}.xml")));
    }

    fn changes(&mut self, source: &mut Source, paths: &[&str]) {
        for _ in 0..=self.next(6) {
            // Without times of their own, changes are told apart by more than the second.
            self.second += if self.manner == Manner::Full { self.next(2) } else { 1 + self.next(3) };
            let path = paths[usize::try_from(self.next(paths.len() as u64)).unwrap()].to_owned();
            self.made += 1;
            // Now and then it is what it was before.
            let body = match self.next(4) {
                0 if self.manner != Manner::Full => format!("again {}", self.next(2)),
                _ => format!("{} {}", self.made, path),
            };
            let known = source.now.get(&path).cloned();
            let kind = match (&known, self.next(4)) {
                (Some(_), 0) => "deleted",
                (Some(_), _) => "updated",
                (None, _) => "created",
            };
            if kind == "updated" && known.as_deref() == Some(body.as_bytes()) {
                continue;
            }
            let body = if kind == "deleted" { String::new() } else { body };
            match kind {
                "deleted" => source.remove(&path),
                _ => source.put(&path, body.as_bytes()),
            }
            self.told.push(Happened { path, kind, second: self.second, body });
        }
    }
}

/// What was told of the paths that differ, and the versions that the mirror has, for whoever looks into a failure.
fn explain(mirror: &Mirror, teller: &Teller, paths: &[String]) {
    println!("lists: {:?}; {:#}", teller.lists, mirror.status()["sets"]);
    for path in paths {
        for (place, one) in teller.told.iter().enumerate().filter(|(_, one)| one.path == *path) {
            println!("{path}: told at {place}, second {}: {} {:?}", one.second, one.kind, one.body);
        }
        println!("{:#?}", mirror.log(path.trim_start_matches('/')));
    }
}

fn same(mirror: &Mirror, now: &BTreeMap<String, Vec<u8>>, teller: &Teller, told: &str) {
    let mut shown = BTreeMap::new();
    for path in mirror.files() {
        // A resource that is also a prefix of others lies in their directory.
        let own = format!("/{}", path.strip_suffix("/@self").unwrap_or(&path));
        let content = mirror.read(&path).unwrap_or_else(|error| {
            explain(mirror, teller, std::slice::from_ref(&own));
            panic!("{told}: {path}: {error}: {}", mirror.errors())
        });
        shown.insert(own, content);
    }
    let text = |map: &BTreeMap<String, Vec<u8>>| -> Vec<String> {
        map.iter().map(|(path, body)| format!("{path}: {}", String::from_utf8_lossy(body))).collect()
    };
    if shown != *now {
        let paths = shown.keys().chain(now.keys()).filter(|path| shown.get(*path) != now.get(*path));
        explain(
            mirror,
            teller,
            &paths.cloned().collect::<std::collections::BTreeSet<_>>().into_iter().collect::<Vec<_>>(),
        );
    }
    assert_eq!(text(&shown), text(now), "{told}");
}

#[test]
fn random_histories_told_in_every_manner_are_followed() {
    let seed = crate::support::seed();
    let manners = [Manner::Full, Manner::Dated, Manner::Hashed, Manner::Backwards, Manner::Mixed];
    std::thread::scope(|scope| {
        for (number, manner) in (0_u64..).zip(manners) {
            scope.spawn(move || follow(seed + number, manner));
        }
    });
}

fn follow(seed: u64, manner: Manner) {
    // One is a prefix of another, and one lies deeper.
    let paths = ["/a", "/a/b", "/a/b/c", "/d", "/e/f", "/g"];
    let mut source = Source::start(&[("/a", "a"), ("/d", "d")], &["changelist"]);
    let mut teller = Teller { manner, random: seed, second: 0, told: Vec::new(), lists: vec![(0, 0)], made: 0 };
    teller.publish(&source);
    let mirror = Mirror::mount(&source.url("/"), "poll=0");
    for step in 0..60 {
        let mut told = format!("SEED={seed}, {manner:?}, step {step}: changes");
        teller.changes(&mut source, &paths);
        match teller.next(10) {
            // The open list is closed, and another begun. Its first second is the last one's.
            0 | 1 => {
                told += ", rotated";
                teller.lists.push((teller.told.len(), teller.second));
                // Two changes within the second in which one list ends and the next begins have no order.
                teller.second += 1;
            }
            // Everything is told in one list.
            2 => {
                told += ", in one list";
                teller.lists = vec![(0, 0)];
            }
            // A new Resource List; the changes before it are not told any more.
            3 => {
                told += ", a new baseline";
                teller.second += 1;
                source.list(teller.second);
                if teller.next(2) == 0 {
                    told += ", older changes forgotten";
                    teller.lists = vec![(teller.told.len(), teller.second)];
                }
                teller.second += 1;
            }
            4 => {
                told += ", remounted";
                mirror.remount();
            }
            _ => {}
        }
        teller.publish(&source);
        mirror.refreshed();
        if mirror.status()["state"] == "held" {
            // A new baseline leaves out more than half.
            let output = crate::support::run(&["refresh", "--accept-deletions", &mirror.directory.to_string_lossy()]);
            assert!(output.status.success(), "{told}: {}", crate::support::text(&output));
        }
        same(&mirror, &source.now, &teller, &told);
        if step % 7 == 0 {
            // Nothing new: nothing changes.
            let syncs = mirror.log("");
            mirror.refreshed();
            assert_eq!(mirror.log(""), syncs, "{told}");
        }
    }
    let creations = teller.told.iter().filter(|one| one.kind != "deleted").count();
    let versions = crate::support::catalog::versions(&mirror.cache);
    println!("{manner:?}: {} changes, {versions} versions", teller.told.len());
    // Where a list says more than the changes did, what it lists may be new; else each change is a version, and a
    // resource is listed once more with a new baseline if what was told before is forgotten.
    if manner == Manner::Full {
        assert!(versions <= creations + 2 + 12, "{manner:?}: {versions} versions of {creations}");
    }
}
