//! Sources made of the examples of the drafts: an example is served with true facts of what is served beside it.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest as _, Md5};

use super::examples;
use super::server::{Reply, Server};
use super::{gzip, md5, sha256};

/// A server with what the example documents speak of.
pub struct Draft {
    pub server: Server,
    /// What a reader gets of each path, and what is sent for it.
    pub content: BTreeMap<String, (Vec<u8>, Vec<u8>)>,
}

/// An example as it must have been meant.
pub fn example(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/examples").join(format!("{name}.xml"));
    examples::mended(name, &fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}

/// The entries of a document, each with what follows it.
fn blocks(text: &str) -> Vec<usize> {
    let starts = ["<url>", "<entry>", "<item ", "<sitemap>"];
    let mut at: Vec<usize> = starts.iter().flat_map(|start| text.match_indices(start)).map(|(at, _)| at).collect();
    at.sort_unstable();
    at.push(text.len());
    at
}

/// What stands between two texts.
fn between<'t>(text: &'t str, begin: &str, end: &str) -> Option<&'t str> {
    let from = text.find(begin)? + begin.len();
    Some(&text[from..from + text[from..].find(end)?])
}

/// The path of the resource that an entry is about.
fn own(block: &str) -> Option<String> {
    let uri = match block.find("<loc") {
        Some(at) => between(&block[at..], ">", "<"),
        None => between(block, "src=\"", "\"").or_else(|| between(block, "href=\"", "\"")),
    };
    uri.and_then(|uri| uri.trim().strip_prefix("http://example.com")).map(str::to_owned)
}

/// The paths of the resources that a document is about, and what it says of each: whether it was deleted, or created.
pub fn paths(text: &str) -> Vec<(String, &'static str)> {
    let at = blocks(text);
    at.windows(2)
        .filter_map(|pair| {
            let block = &text[pair[0]..pair[1]];
            let what = match block {
                _ if block.contains("\"deleted\"") || block.contains("<expires>") => "deleted",
                _ if block.contains("\"created\"") => "created",
                _ => "updated",
            };
            own(block).map(|path| (path, what))
        })
        .collect()
}

impl Draft {
    pub fn start() -> Self {
        Self { server: Server::start(), content: BTreeMap::new() }
    }

    /// Serves a resource; `coded`: compressed.
    pub fn put(&mut self, path: &str, body: &str, coded: bool) {
        let plain = body.as_bytes().to_vec();
        let sent = if coded { gzip(&plain) } else { plain.clone() };
        let served = sent.clone();
        self.server.on(path, move |request| {
            let reply = Reply::good(request, &served);
            if coded { reply.with("Content-Encoding", "gzip") } else { reply }
        });
        self.content.insert(path.to_owned(), (plain, sent));
    }

    pub fn delete(&mut self, path: &str) {
        self.server.remove(path);
        self.content.remove(path);
    }

    /// Serves all that an example is about.
    pub fn put_all(&mut self, text: &str, body: &str) {
        for (path, what) in paths(text) {
            if what == "deleted" {
                self.delete(&path);
            } else {
                let coded = text.contains("<rs:contentencoding>");
                self.put(&path, &format!("{path} {body}\n"), coded);
            }
        }
    }

    /// A document of the specifications' host as one of this server, with true digests and lengths.
    pub fn made(&self, text: &str) -> String {
        // What Unix called compress is not what anybody serves.
        let text = &text.replace("compress<", "gzip<");
        let at = blocks(text);
        let mut made = text[..at[0]].to_owned();
        for pair in at.windows(2) {
            let block = &text[pair[0]..pair[1]];
            match own(block).and_then(|path| self.content.get(&path)) {
                Some((_, sent)) => made.push_str(&with_facts(block, sent)),
                None => made.push_str(block),
            }
        }
        let host = self.server.url("");
        made.replace("http://example.com", &host).replace("http://mirror1.example.com", &format!("{host}/mirror1"))
    }

    /// Serves a document of the specifications' host.
    pub fn serve(&self, path: &str, text: &str) {
        self.server.file(path, self.made(text));
    }

    /// What a mirror has to have.
    pub fn tree(&self) -> BTreeMap<String, Vec<u8>> {
        self.content.iter().map(|(path, (plain, _))| (path.trim_start_matches('/').to_owned(), plain.clone())).collect()
    }
}

/// An entry with the digests and the length of these bytes, where it gives any.
fn with_facts(block: &str, sent: &[u8]) -> String {
    let mut made = block.to_owned();
    let mut put = |begin: &str, end: &str, fact: &dyn Fn(&str) -> String| {
        if let Some(before) = between(&made, begin, end).map(str::to_owned) {
            made = made.replacen(&format!("{begin}{before}{end}"), &format!("{begin}{}{end}", fact(&before)), 1);
        }
    };
    put("hash=\"", "\"", &|before| {
        let mut hashes = vec![];
        if before.contains("md5:") {
            hashes.push(format!("md5:{}", md5(sent)));
        }
        if before.contains("sha-256:") {
            hashes.push(format!("sha-256:{}", sha256(sent)));
        }
        hashes.join(" ")
    });
    put(" length=\"", "\"", &|_| sent.len().to_string());
    put("<rs:size>", "<", &|_| sent.len().to_string());
    put("<rs:fixity type=\"md5\">", "<", &|_| STANDARD.encode(Md5::digest(sent)));
    made
}

pub fn sitemap_of_2012(modified: &str, links: &str, entries: &str) -> String {
    format!(
        "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" xmlns:rs=\"http://www.openarchives.org/rs/terms/\" \
         xmlns:xhtml=\"http://www.w3.org/1999/xhtml\"><xhtml:meta name=\"DCTERMS.modified\" content=\"{modified}\"/>{links}{entries}</urlset>"
    )
}

/// A Change Set of 2012 with these entries.
pub fn change_set(modified: &str, links: &str, entries: &str) -> String {
    sitemap_of_2012(modified, links, entries).replacen("<urlset ", "<urlset rs:type=\"changeset\" ", 1)
}

pub fn listed(path: &str, lastmod: &str) -> String {
    format!("<url><loc>http://example.com{path}</loc><lastmod>{lastmod}</lastmod></url>")
}

pub fn robots(draft: &Draft) {
    draft.server.file("/robots.txt", format!("User-agent: *\nSitemap: {}\n", draft.server.url("/sitemap.xml")));
}

/// A Source of 2012 that pushes its changes, and what it has.
pub struct Pushing {
    pub draft: Draft,
    second: u32,
    link: String,
    /// What the last change was made to.
    before: BTreeMap<String, (Vec<u8>, Vec<u8>)>,
}

impl Pushing {
    /// With ten resources, and a link to where it takes subscriptions.
    pub fn start(link: &str) -> Self {
        let mut draft = Draft::start();
        (0..10).for_each(|n| draft.put(&format!("/res{n}"), &format!("first {n}"), false));
        robots(&draft);
        let entries: String = draft.content.keys().map(|path| listed(path, "2012-08-01T00:00:00Z")).collect();
        draft.serve("/sitemap.xml", &sitemap_of_2012("2012-08-01T00:00:00Z", link, &entries));
        Self { draft, second: 0, link: link.to_owned(), before: BTreeMap::new() }
    }

    /// Changes one resource; returns the Change Set that tells of it.
    pub fn changes(&mut self, random: u64) -> String {
        self.second += 1;
        self.before = self.draft.content.clone();
        let path = format!("/res{}", random % 13);
        let time =
            format!("2012-08-09T{:02}:{:02}:{:02}Z", self.second / 3600, self.second / 60 % 60, self.second % 60);
        let known = self.draft.content.contains_key(&path);
        let entry = if known && (random / 13).is_multiple_of(4) {
            self.draft.delete(&path);
            format!("<url><loc>http://example.com{path}</loc><expires>{time}</expires></url>")
        } else {
            self.draft.put(&path, &format!("change {} of {path}", self.second), false);
            let kind = if known { "updated" } else { "created" };
            listed(&path, &time)
                .replace("<lastmod>", &format!("<lastmod rs:type=\"{kind}\">"))
                .replace("</url>", "<rs:fixity type=\"md5\">x</rs:fixity></url>")
        };
        let set = change_set("x", "", &entry).replace("<xhtml:meta name=\"DCTERMS.modified\" content=\"x\"/>", "");
        self.draft.made(&set)
    }

    /// The last change did not happen.
    pub fn undo(&mut self) {
        let gone: Vec<String> =
            self.draft.content.keys().filter(|path| !self.before.contains_key(*path)).cloned().collect();
        gone.iter().for_each(|path| self.draft.delete(path));
        for (path, (body, plain)) in self.before.clone() {
            self.draft.put(&path, &String::from_utf8(plain.clone()).expect("text"), body != plain);
        }
    }

    /// Its Sitemap lists what there is.
    pub fn lists(&self) {
        let time =
            format!("2012-08-09T{:02}:{:02}:{:02}Z", self.second / 3600, self.second / 60 % 60, self.second % 60);
        let entries: String = self.draft.content.keys().map(|path| listed(path, &time)).collect();
        self.draft.serve("/sitemap.xml", &sitemap_of_2012(&time, &self.link, &entries));
    }
}
