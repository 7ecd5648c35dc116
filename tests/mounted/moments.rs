//! Random histories, and what the mount shows of them: the tree as of each moment is what the Source was then.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::support::changes::{Source, at, change_list};
use crate::support::server::Server;
use crate::support::{Mirror, entry, facts_of, resource_list, scramble};

/// Some are prefixes of others, so that files become directories and files again.
const PATHS: [&str; 7] = ["/a", "/a/b", "/a/b/c", "/d", "/e/f", "/e/f/g/h", "/i"];

/// What a resource was, from a moment on.
#[derive(Clone, Debug)]
struct Was {
    second: u64,
    path: &'static str,
    /// None: it was deleted.
    body: Option<String>,
}

struct Model {
    random: u64,
    second: u64,
    was: Vec<Was>,
    told: String,
    made: u64,
}

impl Model {
    fn next(&mut self, below: u64) -> u64 {
        self.random = scramble(self.random);
        self.random % below
    }

    /// One change, and what a Change List says of it.
    fn change(&mut self, source: &mut Source) {
        self.second += 1 + self.next(3);
        let path = PATHS[usize::try_from(self.next(PATHS.len() as u64)).unwrap()];
        self.made += 1;
        let kind = match (source.now.contains_key(path), self.next(3)) {
            (false, _) => "created",
            (true, 0) => "deleted",
            (true, _) => "updated",
        };
        let body = format!("{} {path}", self.made);
        let entry = source.does(kind, path, self.second, &body);
        self.told.push_str(&entry);
        self.was.push(Was { second: self.second, path, body: (kind != "deleted").then_some(body) });
    }

    /// What there was at a moment.
    fn as_of(&self, second: u64) -> BTreeMap<String, String> {
        let mut there = BTreeMap::new();
        for was in self.was.iter().filter(|was| was.second <= second) {
            match &was.body {
                Some(body) => there.insert(was.path.to_owned(), body.clone()),
                None => there.remove(was.path),
            };
        }
        there
    }
}

/// The files of the tree as of a moment, by the paths of their resources; none for content that cannot be had.
fn shown(mirror: &Mirror, second: u64) -> BTreeMap<String, Option<String>> {
    let root = mirror.path(&format!(".versions/@{}", at(second)));
    let content = |path: String| {
        let own = format!("/{}", path.strip_suffix("/@self").unwrap_or(&path));
        (own, std::fs::read_to_string(root.join(&path)).ok())
    };
    crate::support::files(&root).into_iter().map(content).collect()
}

/// No directory in which nothing lies.
fn has_empty_directory(mirror: &Mirror, second: u64) -> bool {
    let root = mirror.path(&format!(".versions/@{}/", at(second)));
    !crate::support::shell(&format!("find {}/ -mindepth 1 -type d -empty", root.display())).is_empty()
}

fn explain(model: &Model, second: u64) -> String {
    model.was.iter().fold(format!("second {second}\n"), |mut text, was| {
        let _ = writeln!(text, "{was:?}");
        text
    })
}

#[test]
fn the_tree_as_of_each_moment_is_what_the_source_was() {
    let seed = crate::support::seed();
    std::thread::scope(|scope| {
        for number in 0..4 {
            scope.spawn(move || follow(seed + number));
        }
    });
}

fn follow(seed: u64) {
    let mut source = Source::start(&[("/a", "0 /a"), ("/d", "0 /d")], &["changelist"]);
    let first = |path, body: &str| Was { second: 0, path, body: Some(body.to_owned()) };
    let was = vec![first("/a", "0 /a"), first("/d", "0 /d")];
    let mut model = Model { random: seed, second: 0, was, told: String::new(), made: 0 };
    source.changes("");
    let mirror = Mirror::mount(&source.url("/"), "poll=0,content=all");
    let mut readable = 0;
    for step in 0..40 {
        for _ in 0..=model.next(2) {
            model.change(&mut source);
        }
        source.server.file("/changelist.xml", change_list(Some(0), None, "", &model.told));
        mirror.refreshed();
        if model.next(15) == 0 {
            mirror.kill();
            let again = mirror.try_mount();
            assert!(again.status.success(), "{}", crate::support::text(&again));
        }
        // What is known of before is asked for again and again: the kernel must not remember what is not so.
        for _ in 0..3 {
            let latest = model.second + 2;
            let second = model.next(latest + 1);
            let (found, wanted) = (shown(&mirror, second), model.as_of(second));
            let told = || format!("SEED={seed}, step {step}, {}", explain(&model, second));
            assert_eq!(found.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>(), "{}", told());
            for (path, content) in found.iter().filter_map(|(path, content)| Some((path, content.as_ref()?))) {
                assert_eq!(content, &wanted[path], "{path}: {}", told());
                readable += 1;
            }
            assert!(!has_empty_directory(&mirror, second), "{}", told());
        }
        let now = shown(&mirror, model.second + 100);
        let files: BTreeSet<String> =
            mirror.files().iter().map(|path| format!("/{}", path.strip_suffix("/@self").unwrap_or(path))).collect();
        assert_eq!(now.into_keys().collect::<BTreeSet<_>>(), files);
    }
    assert!(readable > 200, "{readable}");
    // Each resource has a directory of versions, wherever it lies now, and each version that can be had is in it.
    for path in PATHS.iter().filter(|path| model.was.iter().any(|was| was.path == **path)) {
        let inner = mirror.path(&format!(".versions{path}/@self"));
        let own = if inner.exists() { inner } else { mirror.path(&format!(".versions{path}")) };
        for version in crate::support::files(&own).iter().filter(|name| !name.contains('/')) {
            let body = std::fs::read_to_string(own.join(version)).unwrap();
            let second = model.was.iter().find(|was| was.body.as_ref() == Some(&body)).map(|was| was.second);
            let second = second.unwrap_or_else(|| panic!("SEED={seed}: {path} was never {body:?}"));
            assert_eq!(*version, at(second).replace(['-', ':'], ""), "SEED={seed}, {path}");
        }
    }
}

/// A capture of an archive: of a time, and by its body.
fn captured(server: &Server, seconds: &[u64]) -> String {
    let mut map = String::from("<http://example.com/>; rel=\"original\"");
    for second in seconds {
        server.file(&format!("/capture/{second}"), format!("captured {second}"));
        let datetime = jiff::Timestamp::from_second(1_772_352_000 + i64::try_from(*second).unwrap()).unwrap();
        let datetime = datetime.strftime("%a, %d %b %Y %H:%M:%S GMT");
        let _ = write!(map, ",\n</capture/{second}>; rel=\"memento\"; datetime=\"{datetime}\"");
    }
    map
}

#[test]
fn what_an_archive_saw_lies_between_what_the_source_said() {
    let seed = crate::support::seed();
    let mut random = seed;
    let mut next = |below: u64| {
        random = scramble(random);
        random % below
    };
    for round in 0..12 {
        let mut source = Source::start(&[("/a", "0")], &["changelist"]);
        let listed =
            entry(&source.url("/a"), &facts_of(b"0")).replace("</url>", "<rs:ln rel=\"timemap\" href=\"/map\"/></url>");
        source.server.file("/resourcelist.xml", resource_list(&at(100), &listed));
        source.changes("");
        // The Source's own word, by the second from which it holds; none: it was deleted.
        let mut own: Vec<(u64, Option<String>)> = vec![(100, Some("0".to_owned()))];
        let mut captures: Vec<u64> = (0..next(6)).map(|_| next(90) + 2 * next(60)).collect();
        captures.sort_unstable();
        captures.dedup();
        source.server.file("/map", captured(&source.server, &captures));
        let mirror = Mirror::mount(&source.url("/"), "poll=0,content=all");
        mirror.wait("content", |status| status["cached"]["resources"] == 1);
        let (mut told, mut second) = (String::new(), 100);
        let mut asked = false;
        for _ in 0..next(5) {
            if next(3) == 0 {
                asked = true;
                let _ = crate::support::files(&mirror.path(".versions/a"));
            }
            second += 1 + next(30);
            let there = own.last().unwrap().1.is_some();
            let kind = if there { ["updated", "deleted"][usize::try_from(next(2)).unwrap()] } else { "created" };
            let body = format!("{second}");
            told += &source
                .does(kind, "/a", second, &body)
                .replace("</url>", "<rs:ln rel=\"timemap\" href=\"/map\"/></url>");
            own.push((second, (kind != "deleted").then_some(body)));
            source.changes(&told);
            mirror.refreshed();
            if kind != "deleted" {
                mirror.read("a").unwrap();
            }
        }
        let _ = crate::support::files(&mirror.path(".versions/a"));
        // An archive's version of a second in which the Source's own began is that.
        let seen: Vec<u64> = captures
            .iter()
            .copied()
            .filter(|capture| own.iter().all(|(begin, body)| begin != capture || body.is_none()))
            .collect();
        for moment in 0..second + 40 {
            let said = own.iter().rfind(|(begin, _)| *begin <= moment);
            let before = seen.iter().rfind(|capture| **capture <= moment);
            let after = seen.iter().find(|capture| **capture > moment);
            let began = said.map_or(0, |(begin, _)| *begin);
            let ends = own.iter().find(|(begin, _)| *begin > moment).map_or(u64::MAX, |(begin, _)| *begin);
            let wanted = match (said, before) {
                (None, before) => before.map(|capture| format!("captured {capture}")),
                (_, Some(capture)) if *capture == moment && *capture >= began => Some(format!("captured {capture}")),
                (Some((_, Some(_))), Some(capture))
                    if *capture >= began && after.is_some_and(|after| *after < ends) =>
                {
                    Some(format!("captured {capture}"))
                }
                (Some((_, body)), _) => body.clone(),
            };
            let found =
                mirror.read(&format!(".versions/a/{}", at(moment))).ok().map(|body| String::from_utf8(body).unwrap());
            let told = format!(
                "SEED={seed}, round {round}, second {moment}: own {own:?}, seen {captures:?}, asked before: {asked}"
            );
            assert_eq!(found, wanted, "{told}\n{}", mirror.errors());
            if moment % 7 == 0 {
                let there = mirror
                    .read(&format!(".versions/@{}/a", at(moment)))
                    .ok()
                    .map(|body| String::from_utf8(body).unwrap());
                assert_eq!(there, wanted, "as of: {told}");
            }
        }
    }
}
