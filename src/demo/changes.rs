//! What changes at the demo Source, and the documents that tell of it (core 12, 13, 14.4).
//!
//! Records in JSON and XML are updated, each time with a patch; news come and go. The open Change List is
//! closed when it is long enough: then it goes into the index, its bitstreams into a package of the Change
//! Dump, and a Resource List of that moment is published. What is older than a few closed lists is forgotten. Whoever
//! subscribed is notified of all that.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::Write as _;

use bytes::Bytes;
use quick_xml::escape::escape;
use zip::CompressionMethod;
use zip::write::{SimpleFileOptions, ZipWriter};

use super::notifications::Channel;
use super::{Content, Make, Package, RECORDS, Resource, WORDS, hexadecimal, scramble};
use crate::document::{Capability, Datetime};

/// The media types of what changes.
pub(super) const JSON: &str = "application/json";
pub(super) const XML: &str = "application/xml";

/// How many changes an open list has before it is closed.
const CLOSED_AFTER: usize = 30;
/// How many closed lists are kept.
const KEPT: usize = 20;
/// How many news there are before the oldest goes.
const NEWS: u64 = 8;

/// What happened so far.
pub(super) struct History {
    /// When the open list was begun.
    pub(super) since: Datetime,
    pub(super) open: Vec<Change>,
    pub(super) closed: VecDeque<Closed>,
    /// How many changes there were.
    pub(super) made: u64,
}

/// A change.
pub(super) struct Change {
    path: String,
    kind: &'static str,
    at: Datetime,
    /// As it was after that; none if it was deleted.
    resource: Option<Resource>,
    /// The path and the media type of a patch, and its length.
    patch: Option<(String, &'static str, usize)>,
}

/// A list that will not grow any more.
pub(super) struct Closed {
    number: u64,
    from: Datetime,
    until: Datetime,
    changes: Vec<Change>,
}

pub(super) fn json_path(number: u64) -> String {
    format!("/records/record-{number}.json")
}

pub(super) fn xml_path(number: u64) -> String {
    format!("/records/record-{number}.xml")
}

fn words(seed: u64, count: u64) -> String {
    let word = |at| WORDS[usize::try_from(scramble(seed << 20 | at) % WORDS.len() as u64).unwrap_or(0)];
    (0..count).map(word).collect::<Vec<_>>().join(" ")
}

/// A record in JSON at one of its revisions.
pub(super) fn json(number: u64, revision: u64) -> Make {
    let (title, text) = (words(number, 5), words(number + 100, 120));
    let note = words(number * 1000 + revision, 4);
    Make::Bytes(
        format!(
            "{{\n  \"id\": {number},\n  \"title\": \"{title}\",\n  \"revision\": {revision},\n  \"note\": \"{note}\",\n  \
             \"text\": \"{text}\"\n}}\n"
        )
        .into(),
    )
}

/// A record in XML at one of its revisions.
pub(super) fn xml(number: u64, revision: u64) -> Make {
    let (title, text) = (words(number + 200, 5), words(number + 300, 120));
    Make::Bytes(
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<record id=\"{number}\">\n  <title>{title}</title>\n  \
             <revision>{revision}</revision>\n  <text>{text}</text>\n</record>\n"
        )
        .into(),
    )
}

fn list_path(number: u64) -> String {
    format!("/changes/{number:04}.xml")
}

fn package_path(number: u64) -> String {
    format!("/changes/{number:04}.zip")
}

impl Content {
    /// Something changes, and the documents tell of it.
    pub(super) fn change(&mut self, at: Datetime) {
        let number = self.history.made;
        self.history.made += 1;
        let known = self.history.open.len();
        let round = number / 4;
        let (record, revision) = (round % RECORDS, round / RECORDS + 1);
        match number % 4 {
            0 => {
                let note = words(record * 1000 + revision, 4);
                let patch = format!(
                    "[{{\"op\": \"replace\", \"path\": \"/revision\", \"value\": {revision}}}, \
                     {{\"op\": \"replace\", \"path\": \"/note\", \"value\": \"{note}\"}}]"
                );
                let patch = Some((patch, "application/json-patch+json", "json"));
                self.put(json_path(record), Resource::new(JSON, at, json(record, revision)), patch);
            }
            1 => {
                let patch = format!("<diff><replace sel=\"record/revision/text()\">{revision}</replace></diff>\n");
                let patch = Some((patch, "application/xml-patch+xml", "xml"));
                self.put(xml_path(record), Resource::new(XML, at, xml(record, revision)), patch);
            }
            2 => {
                let text = format!("News {round}: {}.\n", words(round + 5000, 12));
                let resource = Resource::new("text/plain", at, Make::Bytes(text.into()));
                self.put(format!("/news/news-{round:04}.txt"), resource, None);
            }
            _ if round >= NEWS => self.remove(at, format!("/news/news-{:04}.txt", round - NEWS)),
            _ => {
                let text = format!("News {round}, corrected: {}.\n", words(round + 9000, 12));
                let resource = Resource::new("text/plain", at, Make::Bytes(text.into()));
                self.put(format!("/news/news-{round:04}.txt"), resource, None);
            }
        }
        let mut entries = String::new();
        self.history.open[known..].iter().for_each(|change| self.entry(&mut entries, change, None));
        let published = (self.history.open.len() >= CLOSED_AFTER).then(|| self.close());
        self.tell();
        self.notify(Channel::Changes, at, &entries);
        if let Some((at, entries)) = published {
            self.notify(Channel::Framework, at, &entries);
        }
    }

    pub(super) fn put(&mut self, path: String, resource: Resource, patch: Option<(String, &'static str, &str)>) {
        let at = resource.modified;
        let patch = patch.map(|(text, media, extension)| {
            let path = format!("/patches/{:06}.{extension}", self.history.made);
            let length = text.len();
            self.patches.insert(path.clone(), (media, Bytes::from(text)));
            (path, media, length)
        });
        self.versions.keep(&path, resource.clone());
        let known = self.resources.insert(path.clone(), resource.clone()).is_some();
        let kind = if known { "updated" } else { "created" };
        self.history.open.push(Change { path, kind, at, resource: Some(resource), patch });
    }

    fn remove(&mut self, at: Datetime, path: String) {
        if self.resources.remove(&path).is_some() {
            self.versions.deleted(&path);
            self.history.open.push(Change { path, kind: "deleted", at, resource: None, patch: None });
        }
    }

    /// Closes the open list, packs its bitstreams, and publishes a Resource List of this moment. Returns the moment and
    /// the entries that a notification has of what is published.
    fn close(&mut self) -> (Datetime, String) {
        let now = Datetime::now();
        let number = self.history.closed.back().map_or(1, |last| last.number + 1);
        let changes = std::mem::take(&mut self.history.open);
        let from = std::mem::replace(&mut self.history.since, now);
        let closed = Closed { number, from, until: now, changes };
        match self.pack_changes(&closed) {
            Ok(bytes) => {
                let sha256 = hexadecimal(&bytes);
                self.packages.insert(package_path(number), Package { bytes: bytes.into(), sha256, manifest: "" });
            }
            Err(error) => tracing::error!(%error, number, "the demo Source goes without this package"),
        }
        let list = self.change_list(Some(&closed));
        self.documents.insert(list_path(number), list);
        self.history.closed.push_back(closed);
        if self.history.closed.len() > KEPT
            && let Some(oldest) = self.history.closed.pop_front()
        {
            self.documents.remove(&list_path(oldest.number));
            self.packages.remove(&package_path(oldest.number));
            for (path, ..) in oldest.changes.into_iter().filter_map(|change| change.patch) {
                self.patches.remove(&path);
            }
        }
        let list = self.list(Capability::ResourceList, now, "/");
        self.documents.insert("/resourcelist.xml".to_owned(), list);
        (now, self.published(number))
    }

    /// What is published when a list is closed. The next one begins then.
    fn published(&self, number: u64) -> String {
        let (base, index) = (&self.base, Some("/changelist.xml"));
        let mut text = String::new();
        for (path, change, capability, index) in [
            ("/resourcelist.xml".to_owned(), "created", Capability::ResourceList, None),
            (list_path(number), "updated", Capability::ChangeList, index),
            (list_path(number + 1), "created", Capability::ChangeList, index),
            ("/changedump.xml".to_owned(), "updated", Capability::ChangeDump, None),
        ] {
            let index = index.map(|index| format!("<rs:ln rel=\"index\" href=\"{base}{index}\"/>"));
            let _ = writeln!(
                text,
                "  <url><loc>{base}{path}</loc><rs:md change=\"{change}\" capability=\"{capability}\"/>{}</url>",
                index.unwrap_or_default()
            );
        }
        text
    }

    /// The documents that say what is open and what is closed.
    pub(super) fn tell(&mut self) {
        let number = self.history.closed.back().map_or(1, |last| last.number + 1);
        let open = self.change_list(None);
        self.documents.insert(list_path(number), open);
        let first = self.history.closed.front().map_or(self.history.since, |closed| closed.from);
        let mut index = self.head(Capability::ChangeList, &format!(" from=\"{first}\""), Some("/capabilitylist.xml"));
        let mut dump = self.head(Capability::ChangeDump, &format!(" from=\"{first}\""), Some("/capabilitylist.xml"));
        for Closed { number, from, until, .. } in &self.history.closed {
            let interval = format!("from=\"{from}\" until=\"{until}\"");
            let _ = writeln!(
                index,
                "  <sitemap><loc>{}{}</loc><rs:md {interval}/></sitemap>",
                self.base,
                list_path(*number)
            );
            let path = package_path(*number);
            if let Some(Package { bytes, sha256, .. }) = self.packages.get(&path) {
                let length = bytes.len();
                let _ = writeln!(
                    dump,
                    "  <url><loc>{}{path}</loc><rs:md hash=\"sha-256:{sha256}\" length=\"{length}\" type=\"application/zip\" \
                     {interval}/></url>",
                    self.base,
                );
            }
        }
        let _ = writeln!(
            index,
            "  <sitemap><loc>{}{}</loc><rs:md from=\"{}\"/></sitemap>\n</urlset>",
            self.base,
            list_path(number),
            self.history.since
        );
        dump.push_str("</urlset>\n");
        self.documents.insert("/changelist.xml".to_owned(), index.replace("urlset", "sitemapindex"));
        self.documents.insert("/changedump.xml".to_owned(), dump);
    }

    /// A closed list, or the open one.
    fn change_list(&self, closed: Option<&Closed>) -> String {
        let (changes, interval) = match closed {
            Some(closed) => (&closed.changes, format!(" from=\"{}\" until=\"{}\"", closed.from, closed.until)),
            None => (&self.history.open, format!(" from=\"{}\"", self.history.since)),
        };
        let mut text = self.head(Capability::ChangeList, &interval, Some("/capabilitylist.xml"));
        let _ = writeln!(text, "  <rs:ln rel=\"index\" href=\"{}/changelist.xml\"/>", self.base);
        changes.iter().for_each(|change| self.entry(&mut text, change, None));
        text.push_str("</urlset>\n");
        text
    }

    fn entry(&self, text: &mut String, change: &Change, path: Option<&str>) {
        let Change { kind, at, resource, patch, .. } = change;
        let loc = format!("{}{}", self.base, change.path);
        let facts = resource.as_ref().map(|Resource { media, sha256, length, .. }| {
            format!(" hash=\"sha-256:{sha256}\" length=\"{length}\" type=\"{media}\"")
        });
        let facts = facts.unwrap_or_default();
        let place = path.map(|path| format!(" path=\"/{path}\"")).unwrap_or_default();
        let lastmod = resource.as_ref().map(|_| format!("<lastmod>{at}</lastmod>")).unwrap_or_default();
        let link = patch.as_ref().map(|(path, media, length)| {
            format!(
                "<rs:ln rel=\"http://www.openarchives.org/rs/terms/patch\" href=\"{}{path}\" type=\"{media}\" length=\"{length}\"/>",
                self.base
            )
        });
        let _ = writeln!(
            text,
            "  <url><loc>{}</loc>{lastmod}<rs:md change=\"{kind}\" datetime=\"{at}\"{facts}{place}/>{}{}{}</url>",
            escape(loc.as_str()),
            link.unwrap_or_default(),
            resource.as_ref().and_then(|_| self.memento_link(&change.path, *at, &facts)).unwrap_or_default(),
            self.negotiation(&change.path),
        );
    }

    fn pack_changes(&self, closed: &Closed) -> zip::result::ZipResult<Vec<u8>> {
        let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
        let mut package = ZipWriter::new(std::io::Cursor::new(Vec::new()));
        let interval = format!(" from=\"{}\" until=\"{}\"", closed.from, closed.until);
        let mut manifest = self.head(Capability::ChangeDumpManifest, &interval, Some("/capabilitylist.xml"));
        for (number, change) in closed.changes.iter().enumerate() {
            let path = format!("changes/{number:03}");
            let Some(resource) = &change.resource else {
                self.entry(&mut manifest, change, None);
                continue;
            };
            package.start_file(path.as_str(), options)?;
            package.write_all(&resource.make.bytes())?;
            self.entry(&mut manifest, change, Some(&path));
        }
        manifest.push_str("</urlset>\n");
        package.start_file("manifest.xml", options)?;
        package.write_all(manifest.as_bytes())?;
        Ok(package.finish()?.into_inner())
    }
}
