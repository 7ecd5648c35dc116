//! Patch links: versions made from those that are here, by Change List and by Change Dump; and the resource itself
//! wherever that cannot be done.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::changes::{Source, at, change, interval, told};
use crate::support::dump::{self, Item};
use crate::support::opened::Mirror;
use crate::support::server::Reply;
use crate::support::{document, entry, facts_of};
use serde::Deserialize;

const PATCH: &str = "http://www.openarchives.org/rs/terms/patch";

#[derive(Deserialize)]
struct Made {
    name: String,
    versions: Vec<Version>,
}

#[derive(Deserialize)]
struct Version {
    file: String,
    patch: Option<String>,
    r#type: Option<String>,
}

/// Documents in the styles of several programs, with patches that the Python packages jsonpatch and lxml made.
fn made(folder: &Path, seed: u64) -> Vec<Made> {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/support/make_patches.py");
    let output = Command::new("/usr/bin/python3").arg(script).arg(folder).arg(seed.to_string()).output();
    let output = output.expect("python3; run scripts/test-deps");
    assert!(output.status.success(), "run scripts/test-deps: {}", crate::support::text(&output));
    serde_json::from_slice(&fs::read(folder.join("made.json")).unwrap()).unwrap()
}

fn patch_link(href: &str, media: &str, length: usize) -> String {
    format!("<rs:ln rel=\"{PATCH}\" href=\"{href}\" type=\"{media}\" length=\"{length}\"/>")
}

fn with_link(entry: &str, link: &str) -> String {
    entry.replace("</url>", &format!("{link}</url>"))
}

/// How often whole resources, and patches, were asked for.
fn asked(source: &Source) -> (usize, usize) {
    let requests = source.server.requests();
    let count = |begin: &str| requests.iter().filter(|one| one.path.starts_with(begin)).count();
    (count("/doc/"), count("/patch/"))
}

#[test]
fn documents_in_many_styles_are_brought_up_to_date_by_patches_and_no_full_bodies() {
    let seed = crate::support::seed();
    let folder = tempfile::tempdir().unwrap();
    let made = made(folder.path(), seed);
    let read = |name: &str| fs::read(folder.path().join(name)).unwrap();
    let mut source = Source::start(&[], &["changelist"]);
    for one in &made {
        source.put(&format!("/doc/{}", one.name), &read(&one.versions[0].file));
    }
    source.list(0);
    source.changes("");
    let mirror = Mirror::mount(&source.url("/"), "poll=0");
    for one in &made {
        assert_eq!(mirror.read(&format!("doc/{}", one.name)).unwrap(), read(&one.versions[0].file));
    }
    let before = asked(&source);
    assert_eq!(before, (made.len(), 0));
    let mut entries = String::new();
    let mut patches = 0;
    let most = made.iter().map(|one| one.versions.len()).max().unwrap();
    for step in 1..most {
        for one in &made {
            let Some(version) = one.versions.get(step) else { continue };
            let (path, body) = (format!("/doc/{}", one.name), read(&version.file));
            let patch = read(version.patch.as_ref().unwrap());
            let at_path = format!("/patch/{}", version.file);
            let link = patch_link(&source.url(&at_path), version.r#type.as_ref().unwrap(), patch.len());
            source.server.file(&at_path, patch);
            source.put(&path, &body);
            entries += &with_link(&told(&source.url(&path), "updated", step as u64 * 10, &body), &link);
            patches += 1;
        }
        // Some steps are taken one at a time, and some two together.
        if step % 3 != 2 || step + 1 == most {
            source.changes(&entries);
            mirror.refreshed();
            for one in made.iter().filter(|one| one.versions.len() > step || step + 1 == most) {
                let version = &one.versions[step.min(one.versions.len() - 1)];
                let shown = mirror.read(&format!("doc/{}", one.name)).unwrap();
                assert_eq!(shown, read(&version.file), "SEED={seed}, {}", version.file);
            }
        }
    }
    let (whole, patched) = asked(&source);
    let missed: Vec<String> = source
        .server
        .requests()
        .into_iter()
        .filter(|one| one.path.starts_with("/doc/"))
        .skip(before.0)
        .map(|one| one.path)
        .collect();
    println!(
        "{} documents, {patches} patches, {patched} fetched, {} full bodies: {missed:?}",
        made.len(),
        whole - before.0
    );
    assert_eq!(
        (whole - before.0, patched),
        (0, patches),
        "SEED={seed}: patches are fetched, and no full bodies: {missed:?}"
    );
}

const OLD: &str = "{\"title\": \"old\", \"text\": \"one two three four five six seven eight nine ten eleven twelve\"}";
const NEW: &str = "{\"title\": \"new\", \"text\": \"one two three four five six seven eight nine ten eleven twelve\"}";
const GOOD: &str = "[{\"op\": \"replace\", \"path\": \"/title\", \"value\": \"new\"}]";

#[test]
fn anything_else_falls_back_to_the_resource() {
    let good = || Reply::ok(GOOD);
    type Case = (&'static str, &'static str, fn() -> Reply);
    let cases: [Case; 6] = [
        ("a patch that makes something else", "application/json-patch+json", || {
            Reply::ok("[{\"op\": \"replace\", \"path\": \"/title\", \"value\": \"wrong\"}]")
        }),
        ("a patch that cannot be applied", "application/json-patch+json", || {
            Reply::ok("[{\"op\": \"remove\", \"path\": \"/nothing\"}]")
        }),
        ("a patch that is none", "application/json-patch+json", || Reply::ok("<html>")),
        ("a patch that is not there", "application/json-patch+json", || Reply::status(404)),
        ("a type that nobody knows", "application/x-tiff-diff", || Reply::ok(GOOD)),
        ("a patch that is larger than what it makes", "application/json-patch+json", || Reply::ok(GOOD)),
    ];
    for (case, media, reply) in cases {
        let mut source = Source::start(&[("/doc/a", OLD)], &["changelist"]);
        source.changes("");
        source.server.on("/patch/a", move |_| reply());
        let mirror = Mirror::mount(&source.url("/"), "poll=0");
        assert_eq!(mirror.read("doc/a").unwrap(), OLD.as_bytes());
        let length = if case.contains("larger") { NEW.len() } else { GOOD.len() };
        let link = patch_link(&source.url("/patch/a"), media, length);
        let entry = source.does("updated", "/doc/a", 10, NEW);
        source.changes(&with_link(&entry, &link));
        mirror.refreshed();
        assert_eq!(mirror.read("doc/a").unwrap(), NEW.as_bytes(), "{case}");
        assert_eq!(asked(&source).0, 2, "{case}");
        assert_eq!(mirror.status()["error_count"], 0, "{case}: {}", mirror.errors());
    }
    // The version before is not here; or there is no hash to hold the result to.
    for (case, read_before, facts) in
        [("never read", false, facts_of(NEW.as_bytes())), ("no hash", true, format!("length=\"{}\"", NEW.len()))]
    {
        let mut source = Source::start(&[("/doc/a", OLD)], &["changelist"]);
        source.changes("");
        source.server.on("/patch/a", move |_| good());
        let mirror = Mirror::mount(&source.url("/"), "poll=0");
        if read_before {
            mirror.read("doc/a").unwrap();
        }
        let before = asked(&source).0;
        source.put("/doc/a", NEW.as_bytes());
        let entry = change(&source.url("/doc/a"), "updated", &format!("datetime=\"{}\" {facts}", at(10)));
        source.changes(&with_link(&entry, &patch_link(&source.url("/patch/a"), "application/json-patch", GOOD.len())));
        mirror.refreshed();
        assert_eq!(mirror.read("doc/a").unwrap(), NEW.as_bytes(), "{case}");
        assert_eq!(asked(&source), (before + 1, 0), "{case}");
    }
}

#[test]
fn patches_lie_in_packages_too_and_make_versions_that_were_superseded() {
    let third = NEW.replace("twelve", "twelve thirteen");
    let merge = "{\"text\": \"one two three four five six seven eight nine ten eleven twelve thirteen\"}";
    let mut source = Source::start(&[("/doc/a", OLD), ("/doc/b", "b")], &["changedump"]);
    let item = |path: &str, bytes: &str| Item::new(&source.url("/doc/a"), bytes.as_bytes()).at(path);
    let items = [item("/patches/1.json", GOOD), item("/patches/2.json", merge)];
    let url = source.url("/doc/a");
    let of = |body: &str, second: u64, path: &str, media: &str| {
        let link = format!("<rs:ln rel=\"{PATCH}\" href=\"{url}?patch\" path=\"{path}\" type=\"{media}\"/>");
        with_link(&told(&url, "updated", second, body.as_bytes()), &link)
    };
    let entries = of(NEW, 10, "/patches/1.json", "application/json-patch+json")
        + &of(&third, 20, "/patches/2.json", "application/merge-patch+json");
    let manifest = document("changedump-manifest", &interval(Some(0), Some(30)), "", &entries);
    let package = dump::package_with(&manifest, &items);
    let empty = document("changedump", &interval(Some(0), None), "", "");
    source.server.file("/changedump.xml", empty);
    let mirror = Mirror::mount(&source.url("/"), "poll=0");
    mirror.read("doc/a").unwrap();
    let listed = entry(
        &source.url("/package.zip"),
        &format!("type=\"application/zip\" length=\"{}\" {}", package.len(), interval(Some(0), Some(30))),
    );
    source.server.file("/package.zip", package);
    source.server.file("/changedump.xml", document("changedump", &interval(Some(0), None), "", &listed));
    source.put("/doc/a", third.as_bytes());
    mirror.refreshed();
    let before = asked(&source).0;
    assert_eq!(mirror.read("doc/a").unwrap(), third.as_bytes());
    assert_eq!(asked(&source).0, before, "{}", mirror.errors());
    assert_eq!(mirror.status()["error_count"], 0, "{}", mirror.errors());
}

#[test]
fn a_complete_mirror_takes_patches_ahead_of_use() {
    let mut source = Source::start(&[("/doc/a", OLD)], &["changelist"]);
    source.changes("");
    source.server.on("/patch/a", |_| Reply::ok(GOOD));
    let mirror = Mirror::mount(&source.url("/"), "poll=0,content=all");
    mirror.wait("all content", |status| status["cached"]["resources"] == 1);
    let entry = source.does("updated", "/doc/a", 10, NEW);
    source.changes(&with_link(&entry, &patch_link(&source.url("/patch/a"), "application/json-patch+json", GOOD.len())));
    mirror.refreshed();
    mirror.wait("all content", |status| status["cached"]["resources"] == 1);
    assert_eq!(asked(&source), (1, 1));
    assert_eq!(mirror.read("doc/a").unwrap(), NEW.as_bytes());
}
