//! What is kept of an entry of a list.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};

use serde::Deserialize;
use serde::Serialize;

use crate::catalog::model::collection::absolute;
use crate::catalog::model::mementos::{EntrySays, Memento, MementoLink};
use crate::catalog::model::targets::{Relation, Target};
use crate::document::{Datetime, Entry, Facts, Hashes};
use crate::path::ResourcePath;

/// What few resources have, as one JSON text: it is kept only where there is something to keep.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extra {
    /// The content coding that the Source declares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
    /// The declared length, where it is not the size: that of the coded bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<u64>,
    /// `lastmod` as written, where it is not as we would write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lastmod: Option<String>,
    /// As written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changefreq: Option<String>,
    /// Attributes of `rs:md` that have no place of their own, as written.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub md: BTreeMap<String, String>,
    /// The links, attributes as written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<BTreeMap<String, String>>,
}

impl Extra {
    /// Where the alternate is that is taken for the resource, as written.
    #[must_use]
    pub fn preferred(&self) -> Option<&str> {
        self.md.get(Entry::PREFERRED).map(String::as_str)
    }

    /// Attributes that have no column of their own, and links.
    pub(in crate::catalog) fn of_entry(entry: &Entry) -> Self {
        let mut extra = Self::default();
        for (name, value) in entry.md.iter() {
            if !matches!(name, "hash" | "length" | "type" | "encoding" | "path") {
                extra.md.insert(name.to_owned(), value.to_owned());
            }
        }
        for link in &entry.links {
            extra.links.push(link.0.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect());
        }
        extra
    }

    fn is_empty(&self) -> bool {
        let Self { encoding, length, lastmod, changefreq, md, links } = self;
        let texts = [encoding, lastmod, changefreq];
        length.is_none() && md.is_empty() && links.is_empty() && texts.iter().all(|text| text.is_none())
    }
}

/// A resource as a list describes it.
#[derive(Clone, Debug)]
pub struct Record {
    /// Absolute.
    pub uri: String,
    /// Where it lies.
    pub path: ResourcePath,
    /// When the version came into force, by the Source's clock.
    pub begin: Datetime,
    /// The time that `stat` shows.
    pub mtime: Datetime,
    /// Where that is from: 0 the list, 1 `lastmod`, 2 the change.
    pub dated: u8,
    /// The size that a reader gets, if the entry tells it.
    pub size: Option<u64>,
    /// The digests of the bytes, as coded.
    pub hashes: Hashes,
    /// The media type.
    pub media: Option<String>,
    /// Whether a content coding is declared.
    pub coded: bool,
    /// The rest.
    pub extra: Option<String>,
    /// Other versions that it links to.
    pub mementos: Vec<Memento>,
    /// What it links to by relations that are looked up.
    pub targets: Vec<Target>,
}

impl Record {
    /// What an entry of a list whose snapshot began at `at` says of the resource `uri` at `path`.
    #[must_use]
    pub fn new(uri: String, path: ResourcePath, entry: &Entry, facts: &Facts, at: Datetime) -> Self {
        let encoding = entry
            .md
            .get("encoding")
            .map(str::trim)
            .filter(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case("identity"))
            .map(str::to_owned);
        let (mtime, dated) = match (facts.lastmod, facts.datetime) {
            (Some(lastmod), _) => (lastmod, 1),
            (None, Some(datetime)) => (datetime, 2),
            (None, None) => (at, 0),
        };
        let mut extra = Extra {
            length: facts.length.filter(|_| encoding.is_some()),
            lastmod: entry
                .lastmod
                .as_ref()
                .filter(|text| !facts.lastmod.is_some_and(|at| at.is_written(text)))
                .cloned(),
            changefreq: entry.changefreq.clone(),
            ..Extra::of_entry(entry)
        };
        let says = EntrySays {
            uri: &uri,
            hashes: &facts.hashes,
            length: facts.length,
            times: [facts.lastmod, facts.datetime],
        };
        let (modified, mementos) = MementoLink::of_entry(&entry.links, &says);
        let size = if encoding.is_some() { None } else { facts.length };
        let coded = encoding.is_some();
        extra.encoding = encoding;
        let targets = extra.targets(&uri);
        let extra = (!extra.is_empty()).then(|| serde_json::to_string(&extra).unwrap_or_default());
        Self {
            uri,
            path,
            // A clock that runs ahead does not take the resource out of the tree as of now.
            begin: facts.datetime.or(modified).or(facts.lastmod).unwrap_or(at).min(Datetime::now()),
            mtime,
            dated,
            size,
            hashes: facts.hashes.clone(),
            media: entry.md.get("type").map(str::trim).filter(|media| !media.is_empty()).map(str::to_owned),
            coded,
            extra,
            mementos,
            targets,
        }
    }

    /// What the record says of the bytes, as a number: two records with the same say the same.
    pub(in crate::catalog) fn fingerprint(&self, keys: &RandomState) -> u64 {
        keys.hash_one((self.size, self.hashes.to_bytes(), self.mtime.nanos(), self.dated, self.coded))
    }
}

impl Extra {
    /// What the entry of the resource `uri` links to by these relations.
    pub(in crate::catalog) fn targets(&self, uri: &str) -> Vec<Target> {
        let mut targets = Vec::new();
        for (relation, name) in [(Relation::Canonical, "canonical"), (Relation::Collection, "collection")] {
            for target in self.linked(&[name]).filter_map(|href| absolute(uri, href)) {
                let target = Target { relation, uri: target };
                if (relation == Relation::Collection || target.uri != uri) && !targets.contains(&target) {
                    targets.push(target);
                }
            }
        }
        targets
    }
}
