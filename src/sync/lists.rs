//! The documents of a list, brought here: an index and its parts, each asked for only if it changed.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{Seek, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;
use url::Url;

use super::packages::Package;
use super::status::Status;
use crate::bounds::{self, Beyond, Bounds};
use crate::catalog::{CatalogError, DocumentRow, Record, Transaction};
use crate::document::{
    Capability, Change, Datetime, DocumentError, Entry, Facts, Head, Kind, Limits, Reader, Warnings,
};
use crate::path::Mapper;
use crate::source::{Asked, Client, SourceError, Trouble, Validators};
use crate::store::{self, Store};

/// After how many bytes the room on the disk is looked at.
const CHECK_EVERY: u64 = 8 << 20;
/// How often a list is begun again because its index changed under way.
const MOST_RESTARTS: usize = 3;

/// All documents of a list as they are now.
#[derive(Debug, Default)]
pub(super) struct Lists {
    /// Lists of resources that changed, or are new.
    pub(super) read: Vec<Spooled>,
    /// Those that did not.
    pub(super) unchanged: Vec<DocumentRow>,
    /// Indexes, changed or not.
    pub(super) indexes: Vec<DocumentRow>,
    /// Whether a document could not be had, or not be understood.
    pub(super) failed: Vec<SourceError>,
}

impl Lists {
    /// The smallest `at` of all documents, where all have one.
    pub(super) fn cursor(&self) -> Option<Datetime> {
        let all = self.read.iter().map(|document| document.row.at).chain(self.unchanged.iter().map(|row| row.at));
        // An index without `at` says nothing against its parts.
        let indexes = self.indexes.iter().filter(|row| row.at.is_some()).map(|row| row.at);
        all.chain(indexes).min_by_key(|at| at.unwrap_or(Datetime::from_nanos(i64::MIN))).flatten()
    }

    /// What tells one edition of all lists from the next: their time, or else their bytes, which are read for that. None
    /// where nothing was read that could tell.
    pub(super) fn edition(&self) -> Option<String> {
        match self.cursor() {
            _ if self.read.is_empty() => None,
            Some(at) => Some(at.to_string()),
            None => {
                let mut hasher = Sha256::new();
                for document in &self.read {
                    store::hash(&mut std::fs::File::open(&document.path).ok()?, &mut hasher).ok()?;
                }
                let digest: [u8; 32] = hasher.finalize().into();
                Some(digest.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}")))
            }
        }
    }

    /// The URLs of the documents that were had.
    pub(super) fn asked(&self) -> HashSet<&str> {
        let read = self.read.iter().map(|document| document.row.url.as_str());
        read.chain(self.indexes.iter().chain(&self.unchanged).map(|row| row.url.as_str())).collect()
    }
}

/// A document that lies in the spool.
#[derive(Debug)]
pub(super) struct Spooled {
    pub(super) row: DocumentRow,
    /// Where it came from: the base of its relative references.
    pub(super) base: Url,
    /// Where; it vanishes from the disk with this.
    pub(super) path: tempfile::TempPath,
    /// The package that it is the manifest of, where that can be read from.
    pub(super) package: Option<Arc<Package>>,
    pub(super) about: About,
    /// What of it is read.
    pub(super) bounds: Bounds,
    /// The media type of alternates that are taken for their resources.
    pub(super) prefer: Option<Arc<str>>,
}

impl Spooled {
    /// Begins to read it from a file that was opened at its path. `url` names it in errors.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub(super) fn reader<'f>(&self, file: &'f std::fs::File, url: &str) -> Result<Reader<'f>, DocumentError> {
        Reader::open(file, url, Limits::of(&self.bounds))
    }
}

/// How many entries a step may still read, of all its documents together.
#[derive(Debug)]
pub(super) struct Budget {
    left: AtomicU64,
    bounds: Bounds,
}

impl Budget {
    pub(super) fn new(bounds: &Bounds) -> Arc<Self> {
        Arc::new(Self { left: AtomicU64::new(bounds.entries), bounds: *bounds })
    }

    /// Takes one entry off.
    ///
    /// # Errors
    /// If there is none left, now and from then on.
    pub(super) fn take(&self) -> Result<(), Beyond> {
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        taken.map(|_| ()).map_err(|_| bounds::ENTRIES.passed("the number of entries", &self.bounds))
    }
}

/// Whether a step may write more: the disk has to have room, and the catalog no more names than the bound allows.
///
/// # Errors
/// With what is exceeded; then the step is undone.
pub(super) fn check_growth(transaction: &Transaction<'_>, store: &Store, bounds: &Bounds) -> Result<(), CatalogError> {
    store.check_room(0).map_err(|error| CatalogError::Io { path: store.root().display().to_string(), error })?;
    match transaction.names_in_all() > bounds.names {
        true => Err(bounds::NAMES.passed("the number of files and directories", bounds).into()),
        false => Ok(()),
    }
}

/// What a document says of itself.
#[derive(Clone, Debug, Default)]
pub(super) struct About {
    /// The interval of which it tells all changes.
    pub(super) from: Option<Datetime>,
    /// None while more are to come.
    pub(super) until: Option<Datetime>,
    /// The index that it belongs to (core 12.1).
    pub(super) index: Option<String>,
    /// The Capability List.
    pub(super) up: Option<String>,
    /// The changes before those of this one (0.1, 6.1).
    pub(super) prev: Option<String>,
    /// The time of its oldest change, where it gives no interval and `lastmod` is when a change happened.
    pub(super) oldest: Option<Datetime>,
    /// Whether `lastmod` is when a change happened.
    pub(super) by_lastmod: bool,
}

impl About {
    /// Reads it off the head of a document that came from `base`.
    pub(super) fn of(head: &Head, facts: &Facts, base: &Url) -> Self {
        let absolute = |link: Option<&str>| link.and_then(|href| base.join(href).ok()).map(String::from);
        Self {
            from: facts.from,
            until: facts.until,
            index: absolute(head.index()),
            up: absolute(head.above()),
            prev: absolute(head.before()),
            oldest: None,
            by_lastmod: head.changes_by_lastmod(),
        }
    }
}

/// A part that an index names.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) url: String,
    /// When its snapshot began.
    pub(super) at: Option<Datetime>,
    pub(super) from: Option<Datetime>,
    pub(super) until: Option<Datetime>,
}

/// What asking for one document came to.
#[derive(Debug)]
pub(super) enum Got {
    Unchanged(DocumentRow),
    List(Box<Spooled>),
    Index {
        row: DocumentRow,
        parts: Vec<Part>,
        digest: [u8; 32],
        /// Whether it is an archive of what was asked for.
        archive: bool,
    },
}

/// Who brings documents, and which.
#[derive(Clone)]
pub(super) struct Bringer {
    pub(super) client: Arc<Client>,
    pub(super) store: Arc<Store>,
    pub(super) status: Arc<Status>,
    /// What the lists are to be.
    pub(super) capability: Capability,
    pub(super) bounds: Bounds,
    pub(super) prefer: Option<Arc<str>>,
}

/// Brings the documents of the lists at `roots` here. `known` are those of the last time.
pub(super) async fn bring(bringer: &Bringer, roots: &[String], known: &[DocumentRow]) -> Lists {
    let mut restarts = 0;
    loop {
        let (lists, digests) = once(bringer, roots, known).await;
        if restarts == MOST_RESTARTS || !changed_meanwhile(bringer, &digests).await {
            return lists;
        }
        restarts += 1;
        bringer.status.warning("an index changed while its lists were read; reading again");
    }
}

/// An index is asked again after its children: they may be of different editions.
async fn changed_meanwhile(bringer: &Bringer, digests: &[(String, [u8; 32])]) -> bool {
    for (url, before) in digests {
        match bringer.get(url, 0, None).await {
            Ok(Got::Index { digest, .. }) if digest != *before => return true,
            _ => {}
        }
    }
    false
}

async fn once(bringer: &Bringer, roots: &[String], known: &[DocumentRow]) -> (Lists, Vec<(String, [u8; 32])>) {
    let known: HashMap<&str, &DocumentRow> = known.iter().map(|row| (row.url.as_str(), row)).collect();
    let mut lists = Lists::default();
    let mut digests = Vec::new();
    let bounds = &bringer.bounds;
    let mut asked: HashSet<String> = HashSet::new();
    let mut queue: VecDeque<(String, usize)> = VecDeque::new();
    for root in roots {
        if asked.insert(root.clone()) {
            queue.push_back((root.clone(), 0));
        }
    }
    let mut running = FuturesUnordered::new();
    loop {
        while running.len() < bringer.client.connections()
            && let Some((url, depth)) = queue.pop_front()
        {
            let row = known.get(url.as_str()).map(|row| (*row).clone());
            let bringer = bringer.clone();
            running.push(async move {
                let got = bringer.get(&url, depth, row).await;
                (url, depth, got)
            });
        }
        bringer.status.update(|progress| progress.documents_known = progress.documents_known.max(asked.len() as u64));
        let Some((url, depth, got)) = running.next().await else { break };
        bringer.status.update(|progress| progress.documents += 1);
        let mut children = Vec::new();
        match got {
            Ok(Got::List(document)) => lists.read.push(*document),
            Ok(Got::Unchanged(row)) if row.entries == INDEX => {
                // Its children may have changed all the same.
                children = known.values().filter(|child| child.part).map(|child| child.url.clone()).collect();
                lists.indexes.push(row);
            }
            Ok(Got::Unchanged(row)) => lists.unchanged.push(row),
            Ok(Got::Index { row, parts, digest, .. }) => {
                digests.push((url.clone(), digest));
                lists.indexes.push(row);
                children = parts.into_iter().map(|part| part.url).collect();
            }
            Err(error) => lists.failed.push(error),
        }
        for child in children {
            if asked.contains(&child) {
                continue;
            }
            let beyond = match (depth as u64 >= bounds.depth, asked.len() as u64 >= bounds.documents) {
                (true, _) => bounds::DEPTH.passed("the depth of its indexes", bounds),
                (_, true) => bounds::DOCUMENTS.passed("the number of its documents", bounds),
                (false, false) => {
                    asked.insert(child.clone());
                    queue.push_back((child, depth + 1));
                    continue;
                }
            };
            lists.failed.push(SourceError::new(&url, beyond.into()));
            break;
        }
    }
    // The order in which documents came is chance; the order in which they apply must not be.
    lists.read.sort_by(|one, other| one.row.url.cmp(&other.row.url));
    (lists, digests)
}

/// In place of the number of entries, for an index.
const INDEX: u64 = u64::MAX >> 1;

struct Body {
    file: NamedTempFile,
    url: Url,
    validators: Validators,
}

impl Bringer {
    /// Brings one document into the spool; `None` if it did not change.
    async fn spool(
        &self,
        url: &str,
        validators: Option<&Validators>,
        fresh: bool,
    ) -> Result<Option<Body>, SourceError> {
        let asked = Asked {
            validators,
            accept_encoding: Some("gzip, identity;q=0.5"),
            document: true,
            fresh,
            ..Asked::default()
        };
        let mut last = None;
        for _ in 0..3 {
            match self.spool_once(url, &asked).await {
                Err(error) if error.trouble.passes() => last = Some(error),
                other => return other,
            }
        }
        Err(last.unwrap_or_else(|| SourceError::new(url, Trouble::Broken("no answer".to_owned()))))
    }

    async fn spool_once(&self, url: &str, asked: &Asked<'_>) -> Result<Option<Body>, SourceError> {
        let mut answer = self.client.ask(url, asked).await?;
        if answer.status == 304 {
            return Ok(None);
        }
        let disk = |error: std::io::Error| SourceError::new(url, Trouble::Disk(error.to_string()));
        let mut file = self.store.spool().map_err(disk)?;
        let mut size = 0;
        while let Some(chunk) = answer.chunk().await? {
            let before = size / CHECK_EVERY;
            size += chunk.len() as u64;
            if size > self.bounds.document {
                return Err(SourceError::new(url, bounds::DOCUMENT.passed("its size", &self.bounds).into()));
            }
            if size / CHECK_EVERY > before {
                self.store.check_room(0).map_err(disk)?;
            }
            file.write_all(&chunk).map_err(disk)?;
        }
        let (url, mut validators) = (answer.url.clone(), answer.validators());
        if validators.etag.is_none() && !validators.settled {
            // Written just now, it may be written again within the same second.
            validators.last_modified = None;
        }
        Ok(Some(Body { file, url, validators }))
    }

    /// Asks for one document; for a changed one only, if validators of an earlier edition are known.
    pub(super) async fn get(&self, url: &str, depth: usize, known: Option<DocumentRow>) -> Result<Got, SourceError> {
        let validators = known
            .as_ref()
            .map(|row| Validators { etag: row.etag.clone(), last_modified: row.last_modified.clone(), settled: false })
            .filter(|validators| *validators != Validators::default());
        match self.spool(url, validators.as_ref(), false).await? {
            Some(body) => self.look(body, url, depth).await,
            None => known.map(Got::Unchanged).ok_or_else(|| unconditional(url)),
        }
    }

    /// Asks for one document, past all caches.
    pub(super) async fn afresh(&self, url: &str, depth: usize) -> Result<Got, SourceError> {
        match self.spool(url, None, true).await? {
            Some(body) => self.look(body, url, depth).await,
            None => Err(unconditional(url)),
        }
    }

    async fn look(&self, body: Body, url: &str, depth: usize) -> Result<Got, SourceError> {
        let size = body.file.as_file().metadata().map(|metadata| metadata.len()).unwrap_or(0);
        self.status.update(|progress| progress.document_bytes += size);
        let url = url.to_owned();
        let own = self.clone();
        tokio::task::spawn_blocking(move || look(body, url, depth, &own))
            .await
            .unwrap_or_else(|error| Err(SourceError::new("document", Trouble::Broken(error.to_string()))))
    }

    /// Brings one list that no index names, without looking for others.
    pub(super) async fn one(&self, url: &str) -> Result<Spooled, SourceError> {
        match self.get(url, 1, None).await? {
            Got::List(document) => Ok(*document),
            _ => Err(SourceError::new(url, Trouble::Nowhere(format!("it is not a {}", self.capability)))),
        }
    }

    /// What the head of a document says, without reading more of it than that.
    pub(super) async fn head(&self, url: &str) -> Result<(Head, Facts), SourceError> {
        let asked = Asked { accept_encoding: Some("identity"), document: true, ..Asked::default() };
        let mut answer = self.client.ask(url, &asked).await?;
        let mut start = Vec::new();
        while start.len() < HEAD
            && let Some(chunk) = answer.chunk().await?
        {
            start.extend_from_slice(&chunk);
        }
        let mut reader = Reader::open(start.as_slice(), url, Limits::of(&self.bounds)).map_err(unreadable)?;
        let head = reader.head().clone();
        let facts = Facts::of_attributes(&head.md, 0, reader.warnings_mut());
        Ok((head, facts))
    }
}

fn unconditional(url: &str) -> SourceError {
    SourceError::new(url, Trouble::Broken("304 where nothing was asked conditionally".to_owned()))
}

/// What an entry of a list of resources says; `None` where [`record`] says nothing, and for a resource that is deleted, which a
/// list of 2012 may still tell of (0.1, 3.1.2).
pub(super) fn resource(
    mapper: &Mapper,
    document: &Spooled,
    entry: &Entry,
    facts: &Facts,
    at: Datetime,
    warnings: &mut Warnings,
) -> Option<Record> {
    match (facts.change, facts.datetime) {
        (Some(Change::Deleted), Some(when)) if when > Datetime::now() => {
            let facts = Facts { datetime: None, change: None, ..facts.clone() };
            record(mapper, document, entry, &facts, at, warnings)
        }
        (Some(Change::Deleted), _) => None,
        _ => record(mapper, document, entry, facts, at, warnings),
    }
}

/// What an entry of a document says of a resource; `None`, with a warning, if its URI can have no path, is longer than is
/// taken, or is no resource's.
pub(super) fn record(
    mapper: &Mapper,
    document: &Spooled,
    entry: &Entry,
    facts: &Facts,
    at: Datetime,
    warnings: &mut Warnings,
) -> Option<Record> {
    if let Some(protocol) = entry.md.get("protocol") {
        warnings.push(
            entry.line,
            format_args!("{} is to be asked by the protocol {protocol:?}, and is no resource; passed over", entry.loc),
        );
        return None;
    }
    let uri = match entry.is_absolute() {
        true => entry.loc.clone(),
        false => document.base.join(&entry.loc).map_or_else(|_| entry.loc.clone(), String::from),
    };
    if uri.len() as u64 > document.bounds.uri {
        let beyond = bounds::URI.passed("the length of its URI", &document.bounds);
        warnings.push(entry.line, format_args!("{beyond}; the entry is passed over"));
        return None;
    }
    let preferred = document.prefer.as_deref().and_then(|media| entry.preferring(media));
    match mapper.path(&uri) {
        Ok(path) if path.names.len() as u64 > document.bounds.segments => {
            let beyond = bounds::SEGMENTS.passed("the number of segments of its path", &document.bounds);
            warnings.push(entry.line, format_args!("{beyond}; the entry is passed over"));
            None
        }
        Ok(path) => Some(match preferred {
            None => Record::new(uri, path, entry, facts, at),
            Some(entry) => {
                let Facts { length, hashes, .. } = Facts::of_attributes(&entry.md, entry.line, warnings);
                Record::new(uri, path, &entry, &Facts { length, hashes, ..facts.clone() }, at)
            }
        }),
        Err(error) => {
            warnings.push(entry.line, format_args!("{error}; the entry is passed over"));
            None
        }
    }
}

/// How much is read of a document to see its head.
const HEAD: usize = 64 << 10;

fn unreadable(error: crate::document::DocumentError) -> SourceError {
    let trouble = format!("line {}, column {}: {}", error.line, error.column, error.problem);
    SourceError::new(&error.url, Trouble::Nowhere(trouble))
}

/// Sees whether a document is a list or an index, and reads an index whole.
fn look(body: Body, url: String, depth: usize, bringer: &Bringer) -> Result<Got, SourceError> {
    let wanted = bringer.capability;
    let disk = |error: std::io::Error| SourceError::new(&url, Trouble::Disk(error.to_string()));
    let Body { file, url: base, validators } = body;
    let (mut file, path) = file.into_parts();
    file.rewind().map_err(disk)?;
    let mut reader = Reader::open(&file, &url, Limits::of(&bringer.bounds)).map_err(unreadable)?;
    let head = reader.head().clone();
    let facts = Facts::of_attributes(&head.md, 0, reader.warnings_mut());
    if let Some(other) = head.capability().filter(|one| *one != wanted && Some(*one) != wanted.archive()) {
        return Err(SourceError::new(
            &url,
            Trouble::Nowhere(format!("it is a {other}, where a {wanted} was expected")),
        ));
    }
    let mut row = DocumentRow {
        id: 0,
        url: url.clone(),
        etag: validators.etag,
        last_modified: validators.last_modified,
        // Old drafts have `modified`, and some dumps `from`; a plain sitemap has nothing, and its file's
        // time must do.
        at: facts.at.or(facts.lastmod).or(facts.from),
        part: depth > 0,
        entries: 0,
        package: None,
    };
    let mut first = reader.next().map_err(unreadable)?;
    let nested = first.as_ref().is_some_and(|entry| entry.md.capability() == Some(wanted));
    let archive = head.capability().is_some_and(|own| Some(own) == wanted.archive());
    if head.kind != Kind::SitemapIndex && !nested && !archive {
        let mut about = About::of(&head, &facts, &base);
        if about.by_lastmod && about.from.is_none() && wanted.tells_changes() {
            // Whether it reaches back to what is known, only its changes tell.
            let mut entry = first.take();
            while let Some(one) = entry {
                let facts = Facts::of_entry(&one, reader.warnings_mut());
                about.oldest = facts
                    .datetime
                    .or(facts.lastmod)
                    .map(|at| about.oldest.map_or(at, |old| old.min(at)))
                    .or(about.oldest);
                // Where it breaks off is told by whoever applies it.
                entry = reader.next().unwrap_or_default();
            }
        }
        return Ok(Got::List(Box::new(Spooled {
            row,
            about,
            base,
            path,
            package: None,
            bounds: bringer.bounds,
            prefer: bringer.prefer.clone(),
        })));
    }
    if head.kind == Kind::UrlSet && !archive {
        bringer.status.warning(&format!("{url}: an index written as urlset; its entries are taken as lists"));
    }
    let mut parts = Vec::new();
    while let Some(entry) = first {
        match base.join(&entry.loc) {
            Ok(child) if child == base => {}
            Ok(child) => {
                let Facts { at, from, until, .. } = Facts::of_entry(&entry, reader.warnings_mut());
                parts.push(Part { url: child.to_string(), at, from, until });
            }
            Err(error) => bringer.status.warning(&format!("{url}, line {}: {:?}: {error}", entry.line, entry.loc)),
        }
        if parts.len() as u64 > bringer.bounds.documents {
            let beyond = bounds::DOCUMENTS.passed("the number of its documents", &bringer.bounds);
            return Err(SourceError::new(&url, beyond.into()));
        }
        first = reader.next().map_err(unreadable)?;
    }
    row.entries = INDEX;
    // Of what it names, not of its bytes: those may differ by the moment at which they were compressed.
    let named: Vec<&str> = parts.iter().map(|part| part.url.as_str()).collect();
    let digest = Sha256::digest(named.join("\n")).into();
    Ok(Got::Index { row, parts, digest, archive })
}
