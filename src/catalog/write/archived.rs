//! How a transaction keeps the versions that links and archives tell of: which are known already, where each can be
//! had, and when it was in force.
//!
//! What the Source itself said of a resource stands. A memento of the same second or of the same bytes is another
//! place for a version that is known; any other is a version of its own, between those that are known.

use crate::catalog::model::ids::{NameId, SetId, VersionId};
use std::collections::{HashMap, HashSet};

use rusqlite::{OptionalExtension, Row, params};

use crate::catalog::db::names::{OWN, resource_of};
use crate::catalog::error::CatalogError;
use crate::catalog::model::mementos::{Answered, EntrySays, Memento, TimeMapRow};
use crate::catalog::model::origin::How;
use crate::catalog::model::record::{Extra, Record};
use crate::catalog::write::insert::VersionValues;
use crate::catalog::write::transaction::{NOBODY, Transaction};
use crate::document::{Datetime, Hashes};
use crate::path::SELF;

type Result<T> = std::result::Result<T, CatalogError>;

/// The most versions of one resource that are taken from archives.
pub(in crate::catalog) const MOST: usize = 100_000;

/// The most places that are kept of one version.
const MOST_PLACES: usize = 8;

/// How long a server is believed that something is no more.
const GONE: i64 = 86_400 * SECOND;

/// In nanoseconds.
pub(in crate::catalog) const SECOND: i64 = 1_000_000_000;

/// So many links wait until they are compared with what is known.
const MOST_WAITING: usize = 100_000;

/// So few links of a resource are looked up one by one.
const FEW: usize = 8;

/// How many versions of one second are compared with a memento, where none has the same hashes.
pub(in crate::catalog) const MOST_COMPARED: usize = 64;

fn urls(mementos: &[Memento]) -> HashSet<&str> {
    mementos.iter().map(|memento| memento.url.as_str()).collect()
}

/// Where versions of a resource can be had.
#[derive(Default)]
struct Places {
    /// By URL, the version that it has, and of what time.
    urls: HashMap<String, (VersionId, Option<Datetime>)>,
    /// How many there are of a version.
    counts: HashMap<VersionId, usize>,
}

impl Places {
    fn count(&mut self, version: VersionId, there: bool) {
        *self.counts.entry(version).or_insert(0) += usize::from(there);
    }

    /// Whether a place is to be kept: it is known, or there are not too many of its version.
    fn take(&mut self, version: VersionId, memento: &Memento) -> bool {
        if self.urls.get(&memento.url).is_some_and(|(known, _)| *known == version) {
            return true;
        }
        let room = self.counts.get(&version).copied().unwrap_or(0) < MOST_PLACES;
        if room {
            self.count(version, true);
            self.urls.insert(memento.url.clone(), (version, memento.datetime));
        }
        room
    }
}

/// A version of the resource whose history is being put in order.
pub(in crate::catalog) struct Known {
    id: VersionId,
    begin: Datetime,
    until: Option<Datetime>,
    archived: bool,
    hashes: Hashes,
    /// Of an archived one, up to when it is known to be the one in force.
    sure: Option<Datetime>,
}

impl Transaction<'_> {
    /// The versions of this name changed: what archives remember of its resource may lie elsewhere between them.
    pub(in crate::catalog) fn history_changed(&mut self, name: NameId) -> Result<()> {
        let any = match self.remembered.any {
            Some(any) => any,
            None => self
                .connection()
                .prepare_cached("SELECT EXISTS (SELECT 1 FROM version WHERE change >= 16)")?
                .query_row([], |row| row.get(0))?,
        };
        self.remembered.any = Some(any);
        if any {
            self.remembered.names.insert(name);
        }
        Ok(())
    }

    pub(in crate::catalog) fn rearrange_remembered(&mut self) -> Result<()> {
        self.put_linked()?;
        let mut resources = HashSet::new();
        for name in std::mem::take(&mut self.remembered.names) {
            resources.insert(resource_of(&self.transaction, name)?);
        }
        for resource in resources {
            let is_archived: bool = self
                .connection()
                .prepare_cached(&format!(
                    "{OWN} SELECT EXISTS (SELECT 1 FROM own CROSS JOIN version v ON v.name = own.id AND v.change >= 16)"
                ))?
                .query_row(params![resource, SELF], |row| row.get(0))?;
            if is_archived {
                self.rearrange(resource)?;
            }
        }
        Ok(())
    }

    /// A version of this name was in force in the past: for those who look at that time, and for the listing of
    /// its versions.
    pub(in crate::catalog) fn lived(&mut self, name: NameId, begin: Datetime, until: Datetime) -> Result<()> {
        let parent = self.listing_changed(name)?;
        self.tree.span(parent, begin, until);
        self.tree.changes.from(begin);
        self.history_changed(name)
    }

    /// The other versions that an entry of a manifest beside a list links to.
    pub fn linked_beside(&mut self, directory: NameId, record: &Record) -> Result<()> {
        if record.mementos.is_empty() {
            return Ok(());
        }
        let current = self.resource(directory, record)?.and_then(|(_, current)| current);
        self.linked(current.map(|(_, version)| version), record)
    }

    /// The other versions that the entry of a version links to.
    pub(in crate::catalog) fn linked(&mut self, version: Option<VersionId>, record: &Record) -> Result<()> {
        let Some(version) = version.filter(|_| !record.mementos.is_empty()) else { return Ok(()) };
        let name: NameId = self
            .connection()
            .prepare_cached("SELECT name FROM version WHERE id = ?1")?
            .query_row([version], |row| row.get(0))?;
        let resource = resource_of(&self.transaction, name)?;
        self.remembered.linked.entry(resource).or_default().extend(record.mementos.iter().cloned());
        self.remembered.count += record.mementos.len();
        match self.remembered.count >= MOST_WAITING {
            true => self.put_linked(),
            false => Ok(()),
        }
    }

    /// Keeps what entries link to, as far as it is not known: lists are read again and again.
    fn put_linked(&mut self) -> Result<()> {
        self.remembered.count = 0;
        for (resource, linked) in std::mem::take(&mut self.remembered.linked) {
            let unknown = match linked.len() <= FEW {
                true => self.unknown_of_few(resource, linked)?,
                false => {
                    let known = self.urls_of_past(resource, &urls(&linked))?;
                    linked.into_iter().filter(|memento| !known.contains(&memento.url)).collect()
                }
            };
            if !unknown.is_empty() {
                self.put_mementos(resource, &unknown)?;
            }
        }
        Ok(())
    }

    /// Those of a few mementos whose URLs are not kept of a superseded version of the resource.
    fn unknown_of_few(&self, resource: NameId, linked: Vec<Memento>) -> Result<Vec<Memento>> {
        let mut known = self.connection().prepare_cached(&format!(
            "{OWN} SELECT EXISTS (SELECT 1 FROM own JOIN version v ON v.name = own.id AND v.until IS NOT NULL
             JOIN memento m ON m.version = v.id AND m.url = ?3)"
        ))?;
        let mut unknown = Vec::new();
        for memento in linked {
            if !known.query_row(params![resource, SELF, memento.url], |row| row.get(0))? {
                unknown.push(memento);
            }
        }
        Ok(unknown)
    }

    /// Which of these URLs are kept of superseded versions of the resource.
    fn urls_of_past(&self, resource: NameId, wanted: &HashSet<&str>) -> Result<HashSet<String>> {
        let mut statement = self.connection().prepare_cached(&format!(
            "{OWN} SELECT m.url FROM own JOIN version v ON v.name = own.id AND v.until IS NOT NULL
             JOIN memento m ON m.version = v.id"
        ))?;
        let urls = statement.query_map(params![resource, SELF], |row| row.get::<_, String>(0))?;
        let is_wanted = |url: &rusqlite::Result<String>| url.as_ref().map_or(true, |url| wanted.contains(url.as_str()));
        Ok(urls.filter(is_wanted).collect::<rusqlite::Result<_>>()?)
    }

    /// The same bytes in other words: where a version could be had that was never in force, the next can.
    pub(in crate::catalog) fn inherit_places(&self, before: VersionId, next: VersionId) -> Result<()> {
        let (name, never_in_force): (NameId, bool) = self
            .connection()
            .prepare_cached("SELECT name, until <= begin FROM version WHERE id = ?1")?
            .query_row([before], |row| Ok((row.get(0)?, row.get(1)?)))?;
        if !never_in_force {
            return Ok(());
        }
        self.connection()
            .prepare_cached("UPDATE OR IGNORE memento SET version = ?2 WHERE version = ?1")?
            .execute([before, next])?;
        let uri = self.uri_of_resource(resource_of(&self.transaction, name)?)?;
        let links = self
            .connection()
            .prepare_cached(&format!("SELECT {LINKING} FROM version v WHERE v.id = ?1 AND instr(v.extra, 'memento')"))?
            .query_row([before], |row| own_links(row, &uri))
            .optional()?;
        for url in links.unwrap_or_default() {
            self.connection()
                .prepare_cached("INSERT OR IGNORE INTO memento (version, url, negotiated) VALUES (?1, ?2, 0)")?
                .execute(params![next, url])?;
        }
        Ok(())
    }

    /// Versions of a resource that links or archives tell of.
    pub fn put_mementos(&mut self, resource: NameId, told: &[Memento]) -> Result<()> {
        let mut known = self.versions_known(resource)?;
        let mut places = self.places_known(resource, &urls(told))?;
        let mut index = KnownIndex::new(&known);
        let mut archived = known.iter().filter(|version| version.archived).count();
        let mut told_more = false;
        for memento in told {
            // One that is negotiated has the URL of all others.
            let same_url = places.urls.get(&memento.url).filter(|_| !memento.negotiated);
            let same_url = same_url.filter(|(_, datetime)| {
                memento.datetime.zip(*datetime).is_none_or(|(one, other)| one.second() == other.second())
            });
            let version = match same_url {
                Some((version, _)) => *version,
                None => match index.same_version(&known, memento) {
                    Some(at) => known[at].id,
                    None if archived >= MOST => continue,
                    None => {
                        let id = self.insert_archived(resource, memento)?;
                        known.push(Known {
                            id,
                            begin: memento.begin,
                            until: None,
                            archived: true,
                            hashes: memento.hashes.clone(),
                            sure: None,
                        });
                        index.add(&known, known.len() - 1);
                        archived += 1;
                        told_more = true;
                        id
                    }
                },
            };
            if places.take(version, memento) {
                told_more |= self.put_place(version, memento)?;
            }
        }
        if told_more {
            self.listing_changed(resource)?;
        }
        self.rearrange(resource)
    }

    /// The versions of this name are not what they were: for whoever lists them.
    fn listing_changed(&self, name: NameId) -> Result<NameId> {
        Ok(self
            .connection()
            .prepare_cached("UPDATE name SET changed = ?2 WHERE id = ?1 RETURNING parent")?
            .query_row(params![name, self.now], |row| row.get(0))?)
    }

    /// How many places are kept of each version of a resource; and which versions these URLs have, by what is kept, and by
    /// what the versions' own entries link to. A Source can link to any number of other URLs: they take no memory.
    fn places_known(&self, resource: NameId, wanted: &HashSet<&str>) -> Result<Places> {
        let mut places = Places::default();
        let mut statement = self.connection().prepare_cached(&format!(
            "{OWN} SELECT m.url, m.version, m.datetime, m.gone FROM own JOIN version v ON v.name = own.id AND v.until IS NOT NULL
             JOIN memento m ON m.version = v.id
             UNION ALL SELECT m.url, m.version, m.datetime, m.gone FROM own JOIN name n ON n.id = own.id
             JOIN memento m ON m.version = n.version"
        ))?;
        let mut rows = statement.query(params![resource, SELF])?;
        while let Some(row) = rows.next()? {
            let datetime = row.get::<_, Option<i64>>(2)?.map(Datetime::from_nanos);
            let (url, version): (String, VersionId) = (row.get(0)?, row.get(1)?);
            places.count(version, row.get::<_, i64>(3)? == 0);
            if wanted.contains(url.as_str()) {
                places.urls.insert(url, (version, datetime));
            }
        }
        let mut statement = self.connection().prepare_cached(&format!(
            "{OWN} SELECT {LINKING}, v.id FROM own JOIN version v ON v.name = own.id AND v.until IS NOT NULL WHERE instr(v.extra, 'memento')
             UNION ALL SELECT {LINKING}, v.id FROM own JOIN name n ON n.id = own.id JOIN version v ON v.id = n.version
             WHERE instr(v.extra, 'memento')"
        ))?;
        let mut rows = statement.query(params![resource, SELF])?;
        let mut uri = None;
        while let Some(row) = rows.next()? {
            let uri = match &uri {
                Some(uri) => uri,
                None => uri.insert(self.uri_of_resource(resource)?),
            };
            for url in own_links(row, uri)?.into_iter().filter(|url| wanted.contains(url.as_str())) {
                places.urls.entry(url).or_insert((row.get(5)?, None));
            }
        }
        Ok(places)
    }

    /// Keeps a place of a version; returns whether that says anything new.
    fn put_place(&self, version: VersionId, memento: &Memento) -> Result<bool> {
        // What is known until the next one is not made less sure by who knows it up to a moment only.
        let long_ago = self.now.plus_nanos(-GONE);
        let rows = self
            .connection()
            .prepare_cached(
                "INSERT INTO memento (version, url, datetime, negotiated, sure) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (version, url) DO UPDATE SET sure = max(sure, excluded.sure),
                     gone = CASE WHEN gone < ?6 THEN 0 ELSE gone END
                 WHERE sure IS NOT max(sure, excluded.sure) OR gone AND gone < ?6",
            )?
            .execute(params![
                version,
                memento.url,
                memento.datetime.map(Datetime::nanos),
                memento.negotiated,
                memento.sure.map(Datetime::nanos),
                long_ago
            ])?;
        Ok(rows > 0)
    }

    fn insert_archived(&mut self, resource: NameId, memento: &Memento) -> Result<VersionId> {
        let rset: SetId = self
            .connection()
            .prepare_cached("SELECT rset FROM name WHERE id = ?1")?
            .query_row([resource], |row| row.get(0))?;
        self.tree.ensure_self(&self.transaction, resource, rset)?;
        self.remembered.any = Some(true);
        let id = self.new_version();
        let media = self.media(memento.media.as_deref())?;
        let hashes = (!memento.hashes.is_empty()).then(|| memento.hashes.to_bytes());
        let size = memento.size.and_then(|size| i64::try_from(size).ok());
        let at = memento.begin;
        VersionValues {
            id,
            name: resource,
            document: NOBODY,
            begin: at,
            until: Some(at),
            mtime: at,
            dated: 0,
            size,
            settled: size.is_none(),
            hashes,
            media,
            extra: None,
            object: None,
            served: None,
            change: Some(How::ARCHIVED.number()),
            gone: None,
            came: None,
            went: None,
            ended: None,
            rank: None,
        }
        .insert(self.connection())?;
        Ok(id)
    }

    fn versions_known(&self, resource: NameId) -> Result<Vec<Known>> {
        const FACTS: &str = "v.id, v.begin, v.until, COALESCE(v.change, 0) >= 16, v.hashes,
             (SELECT CASE WHEN count(*) = count(m.sure) THEN max(m.sure) END FROM memento m WHERE m.version = v.id)";
        let mut statement = self.connection().prepare_cached(&format!(
            "{OWN} SELECT {FACTS} FROM own JOIN version v ON v.name = own.id AND v.until IS NOT NULL
             UNION ALL SELECT {FACTS} FROM own JOIN name n ON n.id = own.id JOIN version v ON v.id = n.version
             ORDER BY 2, 1"
        ))?;
        let rows = statement.query_map(params![resource, SELF], |row| {
            let hashes: Option<Vec<u8>> = row.get(4)?;
            Ok(Known {
                id: row.get(0)?,
                begin: row.get(1)?,
                until: row.get(2)?,
                archived: row.get(3)?,
                hashes: hashes.as_deref().map(Hashes::from_bytes).unwrap_or_default(),
                sure: row.get(5)?,
            })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Says until when each version that only archives tell of was in force: until the next one, before the Source
    /// told of any; between two that were seen in what the Source says is one, the first. What was seen after all
    /// others, or while the Source had none, is of its second alone: the Source's own word goes on after it.
    fn rearrange(&mut self, resource: NameId) -> Result<()> {
        let mut known = self.versions_known(resource)?;
        if self.absorb(&known)? {
            known = self.versions_known(resource)?;
        }
        let first_own = known.iter().find(|version| !version.archived).map_or(Datetime::MAX, |version| version.begin);
        let own_begins: HashSet<Datetime> =
            known.iter().filter(|version| !version.archived).map(|version| version.begin).collect();
        let mut cover: Option<&Known> = None;
        let mut changed: Option<(Datetime, Datetime)> = None;
        let mut update = self.transaction.prepare_cached("UPDATE version SET until = ?2 WHERE id = ?1")?;
        let mut next_of = 0;
        for (index, version) in known.iter().enumerate() {
            if !version.archived {
                cover = Some(version);
                continue;
            }
            next_of = next_of.max(index + 1);
            while known.get(next_of).is_some_and(|next| next.begin == version.begin) {
                next_of += 1;
            }
            let next = known.get(next_of);
            let covered = |moment| cover.is_some_and(|cover| cover.until.is_none_or(|until| until > moment));
            let until = match next {
                _ if version.begin < first_own => {
                    let next = next.map_or(Datetime::MAX, |next| next.begin);
                    version.sure.map_or(next, |sure| next.min(sure.plus_nanos(1)))
                }
                Some(next) if next.archived && covered(next.begin) => {
                    version.sure.map_or(next.begin, |sure| next.begin.min(sure.plus_nanos(1)))
                }
                // Asked about a moment at which what the Source said could not be had.
                next => {
                    let end = version.sure.map_or(Datetime::MIN, |sure| sure.plus_nanos(1));
                    let most = next.map_or(Datetime::MAX, |next| next.begin);
                    end.max(version.begin.plus_nanos(SECOND)).min(most)
                }
            };
            // What the Source itself said of that very moment stands.
            let until = if own_begins.contains(&version.begin) { version.begin } else { until };
            if version.until != Some(until) {
                update.execute(params![version.id, until])?;
                let (begin, end) = changed.unwrap_or((version.begin, until));
                changed = Some((begin.min(version.begin), end.max(until)));
            }
        }
        drop(update);
        if let Some((begin, end)) = changed {
            let parent = self.listing_changed(resource)?;
            self.tree.span(parent, begin, end);
            self.tree.changes.from(begin);
        }
        Ok(())
    }

    /// What an archive told of before the Source did is the Source's version: its places are places of that. Whoever
    /// reads it goes on reading it.
    fn absorb(&self, known: &[Known]) -> Result<bool> {
        let mut own: HashMap<i64, &Known> = HashMap::new();
        for version in known.iter().filter(|version| !version.archived) {
            own.insert(version.begin.second(), version);
        }
        let mut any = false;
        for version in known.iter().filter(|version| version.archived) {
            let same = own.get(&version.begin.second());
            let Some(same) = same.filter(|same| same.hashes.agree(&version.hashes)) else { continue };
            any = true;
            let connection = self.connection();
            connection
                .prepare_cached("UPDATE OR IGNORE memento SET version = ?2 WHERE version = ?1")?
                .execute(params![version.id, same.id])?;
            connection.prepare_cached("DELETE FROM memento WHERE version = ?1")?.execute(params![version.id])?;
            self.take_over(version.id, same.id)?;
            connection.prepare_cached("UPDATE version SET name = 0 WHERE id = ?1")?.execute(params![version.id])?;
        }
        Ok(any)
    }

    /// A version is another one in other words: it takes its place among the names below `.versions`, and its content.
    pub(in crate::catalog) fn take_over(&self, from: VersionId, version: VersionId) -> Result<()> {
        self.connection()
            .prepare_cached(
                "UPDATE version SET rank = min(COALESCE(rank, id), (SELECT COALESCE(rank, id) FROM version WHERE id = ?1))
                 WHERE id = ?2",
            )?
            .execute(params![from, version])?;
        // What was read of the one is read of the other, unless that is said to be something else.
        self.connection()
            .prepare_cached(
                "UPDATE version SET object = a.object, served = a.served, size = a.size FROM version a
                 WHERE version.id = ?2 AND a.id = ?1 AND a.object IS NOT NULL AND version.object IS NULL
                   AND version.served IS NULL AND (version.hashes IS NULL OR version.hashes = a.hashes)
                   AND (version.size IS NULL OR version.size = a.size)",
            )?
            .execute(params![from, version])?;
        Ok(())
    }

    /// What was asked of the versions of a resource.
    pub fn put_timemap(&self, resource: NameId, row: &TimeMapRow) -> Result<()> {
        self.connection()
            .prepare_cached(
                "INSERT OR REPLACE INTO timemap (name, url, etag, last_modified, read) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![resource, row.url, row.etag, row.last_modified, row.read])?;
        Ok(())
    }

    /// A server answered for a place of a version.
    pub fn place_is(&self, version: VersionId, url: &str, answered: Answered) -> Result<()> {
        let (gone, original) = (answered == Answered::Gone, answered == Answered::Original);
        self.connection()
            .prepare_cached(
                "INSERT INTO memento (version, url, negotiated, gone, original) VALUES (?1, ?2, 0, ?3, ?4)
                 ON CONFLICT (version, url) DO UPDATE SET gone = excluded.gone, original = excluded.original",
            )?
            .execute(params![version, url, if gone { self.now } else { Datetime::EPOCH }, original])?;
        if gone {
            self.connection()
                .prepare_cached("UPDATE name SET changed = ?2 WHERE id = (SELECT name FROM version WHERE id = ?1)")?
                .execute(params![version, self.now])?;
        }
        Ok(())
    }
}

/// What [`own_links`] reads of version `v`.
const LINKING: &str = "v.begin, v.mtime, v.size, v.hashes, v.extra";

/// Where a version can be had by the memento links of its own entry.
fn own_links(row: &Row<'_>, uri: &str) -> rusqlite::Result<Vec<String>> {
    let hashes: Option<Vec<u8>> = row.get(3)?;
    let hashes = hashes.as_deref().map(Hashes::from_bytes).unwrap_or_default();
    let extra: Extra = serde_json::from_str(&row.get::<_, String>(4)?).unwrap_or_default();
    let length = extra.length.or(row.get::<_, Option<i64>>(2)?.map(i64::unsigned_abs));
    let times = [Some(row.get(0)?), Some(row.get(1)?)];
    Ok(extra.own_mementos(&EntrySays { uri, hashes: &hashes, length, times }))
}

/// Known versions by what a memento is compared with.
#[derive(Default)]
struct KnownIndex {
    /// By second, the Source's own versions and those of archives, each in the order of their numbers.
    by_second: HashMap<i64, [Vec<usize>; 2]>,
    /// The same by second and hashes.
    by_hashes: HashMap<(i64, Vec<u8>), [Vec<usize>; 2]>,
    /// The Source's own versions that were current for some time, or are, in the order of their beginnings: they do not
    /// overlap.
    lived: Vec<usize>,
}

impl KnownIndex {
    fn new(known: &[Known]) -> Self {
        let mut index = Self::default();
        (0..known.len()).for_each(|at| index.add(known, at));
        index
    }

    fn add(&mut self, known: &[Known], at: usize) {
        let version = &known[at];
        let (second, kind) = (version.begin.second(), usize::from(version.archived));
        self.by_second.entry(second).or_default()[kind].push(at);
        self.by_hashes.entry((second, version.hashes.to_bytes())).or_default()[kind].push(at);
        if !version.archived && version.until.is_none_or(|until| until > version.begin) {
            self.lived.push(at);
        }
    }

    /// The version that a memento is of, if it is known: the Source's own rather than an archive's, and of several the last
    /// one, which is what was current then.
    fn same_version(&self, known: &[Known], memento: &Memento) -> Option<usize> {
        let second = memento.begin.second();
        let same_hashes = self.by_hashes.get(&(second, memento.hashes.to_bytes()));
        let same_second = self.by_second.get(&second);
        for kind in [0, 1] {
            let same = same_hashes.and_then(|all| all[kind].last().copied());
            let agrees = |at: &usize| known[*at].hashes.agree(&memento.hashes);
            let newest = same_second.into_iter().flat_map(|all| all[kind].iter().rev().take(MOST_COMPARED).copied());
            if let Some(found) = newest.filter(agrees).chain(same).max() {
                return Some(found);
            }
        }
        if memento.hashes.is_empty() {
            return None;
        }
        let begin = memento.begin;
        let after = self.lived.partition_point(|at| known[*at].begin <= begin);
        let current = *self.lived.get(after.checked_sub(1)?)?;
        let version = &known[current];
        let shared = memento.hashes.iter().any(|hash| version.hashes.get(hash.algorithm()).is_some());
        let is_same =
            version.until.is_none_or(|until| until > begin) && shared && version.hashes.agree(&memento.hashes);
        is_same.then_some(current)
    }
}
