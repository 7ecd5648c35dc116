//! Archives as they are: what they say of the past, and what they give instead of it.

use crate::support::changes::{Source, at};
use crate::support::memento::{capture, timemap};
use crate::support::{Mirror, entry, facts_of, ln, resource_list};
use std::fs;
use std::os::fd::AsRawFd as _;

/// A Source whose one resource `/a` has these links, and nothing said of its bytes unless `said`.
fn linking(links: &str, said: bool) -> Source {
    let source = Source::start(&[("/a", "now")], &[]);
    let facts = if said { facts_of(b"now") } else { String::new() };
    list(&source, at(0).as_str(), &facts, links);
    source
}

fn list(source: &Source, lastmod: &str, facts: &str, links: &str) {
    let listed = entry(&source.url("/a"), facts)
        .replace("</loc>", &format!("</loc><lastmod>{lastmod}</lastmod>"))
        .replace("</url>", &format!("{links}</url>"));
    source.server.file("/resourcelist.xml", resource_list(&at(0), &listed));
}

fn mount(source: &Source) -> Mirror {
    Mirror::mount(&source.url("/"), "poll=0")
}

#[test]
fn who_works_in_the_tree_of_a_moment_goes_on_when_the_past_is_learnt() {
    let source = linking(&ln("timemap", "/map", ""), true);
    source.server.file("/map", timemap(&[("/m/1", 2001)]));
    source.server.on("/m/1", |request| capture(request, "old", 2001));
    let mirror = mount(&source);
    let mount = mirror.directory.display();
    // The working directory is still where it was, by its name, after what was looked up there came from an archive.
    let said = crate::support::shell(&format!(
        "cd {mount}/.versions/@20050101T000000Z; ls; cat a; sleep 0.3; ls; /bin/pwd; cd ..; /bin/pwd"
    ));
    assert_eq!(said, format!("olda\n{mount}/.versions/@20050101T000000Z\n{mount}/.versions\n"));
}

/// Reads names with a small buffer, so that a listing takes many questions.
fn some_names(directory: &fs::File, most: usize) -> Vec<String> {
    let mut buffer = [std::mem::MaybeUninit::uninit(); 512];
    let mut names = Vec::new();
    let mut entries = rustix::fs::RawDir::new(directory, &mut buffer);
    while let Some(entry) = entries.next() {
        names.push(entry.unwrap().file_name().to_string_lossy().into_owned());
        if names.len() >= most && entries.is_buffer_empty() {
            break;
        }
    }
    names.retain(|name| !matches!(name.as_str(), "." | ".."));
    names
}

#[test]
fn a_listing_that_is_under_way_neither_doubles_nor_skips() {
    let source = linking(&ln("timemap", "/map", ""), true);
    let urls: Vec<(String, i16)> = (1700..1900).map(|year| (format!("/m/{year}"), year)).collect();
    let listed =
        |from: usize| -> Vec<(&str, i16)> { urls[from..].iter().map(|(url, year)| (url.as_str(), *year)).collect() };
    source.server.file("/map", timemap(&listed(100)));
    let mirror = mount(&source);
    let directory = fs::File::open(mirror.path(".versions/a")).unwrap();
    assert!(directory.as_raw_fd() > 0);
    let mut found = some_names(&directory, 40);
    assert!(found.len() < 80, "{}", found.len());
    // Older ones are learnt, and somebody else lists them all.
    let older: String = listed(0)[..100]
        .iter()
        .map(|(url, year)| ln("memento", url, &format!("modified=\"{year}-01-01T00:00:00Z\" length=\"4\"")))
        .collect();
    list(&source, &at(0), &facts_of(b"now"), &older);
    mirror.refreshed();
    assert!(mirror.names(".versions/a").len() > 150);
    found.extend(some_names(&directory, usize::MAX));
    let mut distinct = found.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), found.len(), "nothing twice");
    for (_, year) in &urls[100..] {
        assert!(distinct.contains(&format!("{year}0101T000000Z")), "{year} was skipped");
    }
}
