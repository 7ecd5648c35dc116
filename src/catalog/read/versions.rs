//! The versions of one resource: when each was in force, where it can be had, and the name of its file.
//!
//! A file is named by the second in which its version came into force; within one second a fraction, then `~2`,
//! tell it from those that were known before it. So no name ever moves to another version.

use crate::catalog::db::numbers::{damaged, own, unseen};
use crate::catalog::model::ids::{NameId, VersionId};
use std::collections::{HashMap, HashSet};

use rusqlite::{Row, params};

use crate::catalog::db::columns::MEMBER_HERE;
use crate::catalog::db::names::{OWN, resource_name};
use crate::catalog::db::pool::Reader;
use crate::catalog::error::CatalogError;
use crate::catalog::model::mementos::{EntrySays, MementoLink};
use crate::catalog::model::origin::How;
use crate::catalog::model::record::Extra;
use crate::catalog::model::version_log::{VersionLog, Whence};
use crate::document::{Datetime, Hashes, relation};
use crate::path::{SELF, extension};

type Result<T> = std::result::Result<T, CatalogError>;

/// Patches that are applied one after the other, at most, to make a version of one that is here.
const MOST_PATCHES: usize = 32;

/// A version, and what has to be known of others to say where it can be had.
pub(in crate::catalog) struct Found {
    log: VersionLog,
    archived: bool,
    patched: bool,
}

impl Found {
    /// Of a row of the statement of [`Reader::versions_of`], and the places that are known besides: URLs of mementos, and whether
    /// they are gone.
    fn of(row: &Row<'_>, uri: &str, places: Vec<(String, bool)>) -> Result<Self> {
        let hashes: Option<Vec<u8>> = row.get(7)?;
        let extra: Option<String> = row.get(8)?;
        let package: Option<String> = row.get(10)?;
        let how = How::of(row.get(3)?);
        let until: Option<Datetime> = row.get(2)?;
        let mut log = VersionLog {
            id: row.get(0)?,
            begin: row.get(1)?,
            until,
            how,
            gone: row.get::<_, Option<i64>>(4)?.is_some(),
            mtime: row.get(5)?,
            size: row.get::<_, Option<i64>>(6)?.map(i64::unsigned_abs),
            hashes: hashes.as_deref().map(Hashes::from_bytes).unwrap_or_default(),
            places: Vec::new(),
            name: String::new(),
            rank: row.get(12)?,
            sources: Vec::new(),
        };
        let Links { patch, sources, mut mementos } = Links::of(extra.as_deref(), uri, &log);
        log.sources = sources;
        log.places.extend(row.get::<_, bool>(9)?.then_some(Whence::Cache));
        log.places.extend(until.is_none().then(|| Whence::Source(uri.to_owned())));
        log.places.extend(package.map(Whence::Package));
        for (url, gone) in places {
            mementos.retain(|known| *known != url);
            mementos.extend((!gone).then_some(url));
        }
        log.places.extend(mementos.into_iter().map(Whence::Memento));
        let patched = row.get::<_, bool>(11)? || patch;
        Ok(Self { patched, archived: how.is_some_and(How::is_archived), log })
    }
}

impl Reader {
    /// All versions of a resource, the newest first.
    pub fn versions_of(&self, resource: NameId) -> Result<Vec<VersionLog>> {
        let Some((own_name, uri)) = self.resource_name(resource)? else { return Ok(Vec::new()) };
        let mut places = self.memento_places(resource)?;
        let facts = format!(
            "v.id, v.begin, v.until, v.change, v.gone, v.mtime, v.size, v.hashes, v.extra, v.object IS NOT NULL OR {MEMBER_HERE},
             (SELECT p.url FROM member m JOIN package p ON p.id = m.package WHERE m.version = v.id AND m.state != {damaged}
                 AND (NOT p.doubtful OR m.state != {unseen} OR m.hashes IS NOT NULL OR v.hashes IS NOT NULL)),
             EXISTS (SELECT 1 FROM patch WHERE version = v.id), COALESCE(v.rank, v.id), {own} AS own", damaged = damaged!(), unseen = unseen!(), own = own!("v.change")
        );
        let mut statement = self.connection().prepare_cached(&format!(
            "{OWN} SELECT {facts} FROM own JOIN version v ON v.name = own.id AND v.until IS NOT NULL
             UNION ALL SELECT {facts} FROM own JOIN name n ON n.id = own.id JOIN version v ON v.id = n.version
             ORDER BY 2, own, 1"
        ))?;
        let mut rows = statement.query(params![resource, SELF])?;
        let mut all: Vec<Found> = Vec::new();
        while let Some(row) = rows.next()? {
            let mementos = places.remove(&row.get(0)?).unwrap_or_default();
            all.push(Found::of(row, &uri, mementos)?);
        }
        patchable(&mut all);
        let mut all = editions_as_one(all);
        give_names(&mut all, extension(&own_name));
        all.reverse();
        Ok(all.into_iter().map(|found| found.log).collect())
    }

    fn resource_name(&self, resource: NameId) -> Result<Option<(String, String)>> {
        resource_name(self.connection(), self.mapper(), resource)
    }

    /// The extension that the names of a resource's versions have, with its dot.
    pub fn versions_extension(&self, resource: NameId) -> Result<String> {
        Ok(self.resource_name(resource)?.map(|(name, _)| extension(&name).to_owned()).unwrap_or_default())
    }

    /// The URI of a resource.
    pub fn resource_uri(&self, resource: NameId) -> Result<String> {
        Ok(self.resource_name(resource)?.map(|(_, uri)| uri).unwrap_or_default())
    }

    /// The mementos of a resource by version, and whether their server said that they are no more.
    fn memento_places(&self, resource: NameId) -> Result<HashMap<VersionId, Vec<(String, bool)>>> {
        let facts = "m.version, m.url, m.gone, m.negotiated";
        let mut statement = self.connection().prepare_cached(&format!(
            "{OWN} SELECT {facts} FROM own JOIN version v ON v.name = own.id AND v.until IS NOT NULL JOIN memento m ON m.version = v.id
             UNION ALL SELECT {facts} FROM own JOIN name n ON n.id = own.id JOIN memento m ON m.version = n.version
             ORDER BY 4, 2"
        ))?;
        let mut places: HashMap<VersionId, Vec<(String, bool)>> = HashMap::new();
        let mut rows = statement.query(params![resource, SELF])?;
        while let Some(row) = rows.next()? {
            places.entry(row.get(0)?).or_default().push((row.get(1)?, row.get::<_, i64>(2)? > 0));
        }
        Ok(places)
    }

    /// Whether it is known where a version can be had.
    pub fn can_be_had(&self, version: VersionId) -> Result<bool> {
        let mut statement = self.connection().prepare_cached(concat!(
            "SELECT EXISTS (SELECT 1 FROM version v WHERE v.id = ?1 AND (v.until IS NULL OR v.object IS NOT NULL
                 OR instr(v.extra, 'memento') OR EXISTS (SELECT 1 FROM member m WHERE m.version = v.id AND m.state != ",
            damaged!(),
            ")
                 OR EXISTS (SELECT 1 FROM memento e WHERE e.version = v.id AND NOT e.gone)
                 OR EXISTS (SELECT 1 FROM patch p WHERE p.version = v.id)))"
        ))?;
        Ok(statement.query_row([version], |row| row.get(0))?)
    }

    /// What the newest versions of a resource that say so link to under a relation type (core 14.6: `timemap`,
    /// `timegate`), as written.
    pub fn linked_from(&self, resource: NameId, relation: &str) -> Result<Vec<String>> {
        let mut statement = self.connection().prepare_cached(&format!(
            "{OWN} SELECT extra, begin, id FROM (
                 SELECT v.extra, v.begin, v.id FROM own JOIN name n ON n.id = own.id JOIN version v ON v.id = n.version
                 UNION ALL SELECT v.extra, v.begin, v.id FROM own JOIN version v ON v.name = own.id AND v.until IS NOT NULL)
             WHERE instr(extra, ?3) ORDER BY 2 DESC, 3 DESC LIMIT 16"
        ))?;
        let mut rows = statement.query(params![resource, SELF, relation])?;
        while let Some(row) = rows.next()? {
            let extra: Extra = serde_json::from_str(&row.get::<_, String>(0)?).unwrap_or_default();
            let found: Vec<String> = extra.linked(&[relation]).map(str::to_owned).collect();
            if !found.is_empty() {
                return Ok(found);
            }
        }
        Ok(Vec::new())
    }
}

/// What the links of a version's entry are good for.
#[derive(Default)]
struct Links {
    mementos: Vec<String>,
    patch: bool,
    sources: Vec<(&'static str, String)>,
}

/// Relations to what a resource is described by, or comes from.
const SOURCES: [&str; 2] = ["describedby", "via"];

impl Links {
    fn of(extra: Option<&str>, uri: &str, version: &VersionLog) -> Self {
        let Some(text) =
            extra.filter(|text| ["memento", "patch", "partial"].iter().chain(&SOURCES).any(|rel| text.contains(rel)))
        else {
            return Self::default();
        };
        let extra: Extra = serde_json::from_str(text).unwrap_or_default();
        let patch = extra.linked(&relation::PATCH).next().is_some();
        let length = extra.length.or(version.size);
        let times = [Some(version.begin), Some(version.mtime)];
        let says = EntrySays { uri, hashes: &version.hashes, length, times };
        let linked = |rel: &'static str| extra.linked(&[rel]).map(|uri| (rel, uri.to_owned())).collect::<Vec<_>>();
        Self { mementos: extra.own_mementos(&says), patch, sources: SOURCES.into_iter().flat_map(linked).collect() }
    }
}

impl Extra {
    /// The targets of links of one of these relation types, as written.
    pub fn linked<'e>(&'e self, relations: &'e [&str]) -> impl Iterator<Item = &'e str> {
        self.links.iter().filter_map(move |link| {
            let is = relation::is_any(link.get("rel")?, relations);
            link.get("href").map(|href| href.trim()).filter(|href| is && !href.is_empty())
        })
    }

    /// Where the version of an entry, which says so, can be had, by its memento links.
    #[must_use]
    pub fn own_mementos(&self, says: &EntrySays<'_>) -> Vec<String> {
        let read = |link: &std::collections::BTreeMap<String, String>| match MementoLink::read(
            |name| link.get(name).map(String::as_str),
            says,
        ) {
            Some(MementoLink::Own(url, _)) => Some(url),
            _ => None,
        };
        self.links.iter().filter_map(read).collect()
    }
}

/// Of versions in their order, finds those that patches make of one that is here.
fn patchable(all: &mut [Found]) {
    let mut steps: Option<usize> = None;
    for found in all.iter_mut().filter(|found| !found.archived) {
        steps = match steps {
            _ if found.log.is_here() => Some(0),
            Some(steps) if found.patched && steps < MOST_PATCHES => {
                found.log.places.push(Whence::Patch);
                Some(steps + 1)
            }
            _ => None,
        };
        if found.log.gone {
            steps = None;
        }
    }
}

/// What an entry said in other words of the same bytes at the same time is one version, the last of which counts.
fn editions_as_one(all: Vec<Found>) -> Vec<Found> {
    let mut kept: Vec<Found> = Vec::with_capacity(all.len());
    for mut found in all {
        if let Some(before) = kept.last_mut().filter(|before| before.is_edition_of(&found)) {
            found.log.rank = found.log.rank.min(before.log.rank);
            *before = found;
        } else {
            kept.push(found);
        }
    }
    kept
}

impl Found {
    /// Whether nothing but words changed between this version and the next.
    fn is_edition_of(&self, next: &Self) -> bool {
        let (one, other) = (&self.log, &next.log);
        let never_in_force = one.until.is_some_and(|until| until <= one.begin) && !one.gone;
        let shared = one.hashes.iter().any(|hash| other.hashes.get(hash.algorithm()).is_some());
        // Of a change it is told that the resource is another, if nothing says otherwise.
        let told = other.how.is_some_and(How::is_change);
        let same_bytes = match shared {
            true => one.hashes.agree(&other.hashes),
            false => !told && one.size == other.size && one.mtime == other.mtime,
        };
        never_in_force && one.begin == other.begin && same_bytes && !self.archived && !next.archived
    }
}

fn give_names(versions: &mut [Found], extension: &str) {
    let mut by_rank: Vec<usize> = (0..versions.len()).collect();
    by_rank.sort_by_key(|index| versions[*index].log.rank);
    let mut taken: HashSet<String> = HashSet::new();
    let mut next: HashMap<String, u32> = HashMap::new();
    for index in by_rank {
        let begin = versions[index].log.begin;
        let (plain, exact) = (begin.basic(false), begin.basic(true));
        let mut stem = if taken.contains(&plain) { exact.clone() } else { plain };
        while taken.contains(&stem) {
            let number = next.entry(exact.clone()).or_insert(1);
            *number += 1;
            stem = format!("{exact}~{number}");
        }
        versions[index].log.name = format!("{stem}{extension}");
        taken.insert(stem);
    }
}
