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
