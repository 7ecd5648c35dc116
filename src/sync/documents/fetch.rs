//! The documents of a list, brought here: an index and its parts, each asked for only if it changed.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{Seek, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;
use url::Url;

use super::outline::Outline;
use super::spooled::{About, Spooled};
use crate::bounds::{self, Beyond, Bounds};
use crate::catalog::{CatalogError, DocumentId, DocumentRow, Record, Transaction, has_others_only};
use crate::document::{Capability, Change, Datetime, Dialect, Entry, Facts, Head, Kind, Limits, Reader, Warnings};
use crate::path::Mapper;
use crate::source::{Answer, Asked, Client, SourceError, Trouble, Validators};
use crate::store::{self, Store};
use crate::sync::context::Context;
use crate::sync::priority;
use crate::sync::status::Status;

/// After how many bytes the room on the disk is looked at.
const CHECK_EVERY: u64 = 8 << 20;

/// All documents of a list as they are now.
#[derive(Debug, Default)]
pub(in crate::sync) struct Lists {
    /// Lists of resources that changed, or are new.
    pub(in crate::sync) read: Vec<Spooled>,
    /// Those that did not.
    pub(in crate::sync) unchanged: Vec<DocumentRow>,
    /// Indexes, changed or not.
    pub(in crate::sync) indexes: Vec<DocumentRow>,
    /// The `at` of what names a list: of its index, or of the page before it.
    pub(in crate::sync) inherited: HashMap<String, Datetime>,
    /// Those that were not asked for: their index says that they list nothing that is selected.
    pub(in crate::sync) excluded: Vec<String>,
    /// The selection, where that is so.
    pub(in crate::sync) selected: Arc<[String]>,
    /// Documents that could not be downloaded or read, and editions that were mixed.
    pub(in crate::sync) failed: Vec<SourceError>,
    /// One that is newer than what names it, while others are not: they may be being written.
    pub(in crate::sync) unfinished: Option<String>,
    /// Why not all documents are of one edition, where that may last.
    pub(in crate::sync) unsettled: Vec<Unsettled>,
}

impl Lists {
    /// The smallest `at` of all documents, where all have one, or inherit one (an index without `at` does not count).
    pub(in crate::sync) fn cursor(&self) -> Option<Datetime> {
        let read = self.read.iter().map(Spooled::at);
        let unchanged = self.unchanged.iter().map(|row| row.at.or_else(|| self.inherited.get(&row.url).copied()));
        let indexes = self.indexes.iter().filter(|row| row.at.is_some()).map(|row| row.at);
        let all = read.chain(unchanged).chain(indexes);
        all.min_by_key(|at| at.unwrap_or(Datetime::from_nanos(i64::MIN))).flatten()
    }

    /// What tells one edition of all lists from the next: their time, or else their bytes, which are read for that. None
    /// where nothing was read that could tell.
    pub(in crate::sync) fn edition(&self) -> Option<String> {
        match self.cursor() {
            _ if self.read.is_empty() => None,
            Some(at) => Some(at.to_string()),
            None => {
                let mut hasher = Sha256::new();
                for document in &self.read {
                    store::hash(&mut std::fs::File::open(&document.path).ok()?, &mut hasher).ok()?;
                }
                let digest: [u8; 32] = hasher.finalize().into();
                Some(HEXLOWER.encode(&digest))
            }
        }
    }

    /// The URLs of the documents that were downloaded, or have not changed.
    pub(in crate::sync) fn asked(&self) -> HashSet<&str> {
        let read = self.read.iter().map(|document| document.row.url.as_str());
        read.chain(self.indexes.iter().chain(&self.unchanged).map(|row| row.url.as_str())).collect()
    }
}

/// How many entries a step may still read, of all its documents together.
#[derive(Debug)]
pub(in crate::sync) struct Budget {
    left: AtomicU64,
    bounds: Bounds,
}

impl Budget {
    pub(in crate::sync) fn new(bounds: &Bounds) -> Arc<Self> {
        Arc::new(Self { left: AtomicU64::new(bounds.entries), bounds: *bounds })
    }

    /// Takes one entry off.
    ///
    /// # Errors
    /// If there is none left, now and from then on.
    pub(in crate::sync) fn take(&self) -> Result<(), Beyond> {
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        taken.map(|_| ()).map_err(|_| bounds::ENTRIES.passed("the number of entries", &self.bounds))
    }
}

/// Whether a step may write more: the disk has to have room, and the catalog no more names than the bound allows.
///
/// # Errors
/// With what is exceeded; then the step is undone.
pub(in crate::sync) fn check_growth(
    transaction: &Transaction<'_>,
    store: &Store,
    bounds: &Bounds,
) -> Result<(), CatalogError> {
    store.check_room(0).map_err(|error| CatalogError::Io { path: store.root().display().to_string(), error })?;
    match transaction.names_in_all() > bounds.names {
        true => Err(bounds::NAMES.passed("the number of files and directories", bounds).into()),
        false => Ok(()),
    }
}

/// A part that an index names.
#[derive(Clone, Debug)]
pub(in crate::sync) struct Part {
    pub(in crate::sync) url: String,
    /// When its snapshot began.
    pub(in crate::sync) at: Option<Datetime>,
    pub(in crate::sync) from: Option<Datetime>,
    pub(in crate::sync) until: Option<Datetime>,
    /// Whether its index says that it lists nothing that is selected.
    pub(in crate::sync) is_excluded: bool,
}

/// What the indexes of a list name, to compare editions.
#[derive(Debug, Default)]
pub(in crate::sync) struct Named {
    /// The URL of each index that was read, and its parts.
    pub(in crate::sync) indexes: Vec<(String, Outline)>,
    /// The `at` that an index gives for a part.
    pub(in crate::sync) at: HashMap<String, Datetime>,
}

/// Documents that may be of different editions: until they have stayed as they are for a while, nothing is concluded from them.
#[derive(Clone, Debug)]
pub(in crate::sync) struct Unsettled {
    /// What kind it is.
    pub(in crate::sync) kind: UnsettledKind,
    /// What is to stay as it is.
    pub(in crate::sync) state: String,
    pub(in crate::sync) why: String,
}

/// Kinds of [`Unsettled`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sync) enum UnsettledKind {
    /// An index is older than all of its parts: it may not name all of them.
    OlderIndex,
    /// A part is older than its index says.
    EarlierPart,
}

impl UnsettledKind {
    pub(in crate::sync) const ALL: [Self; 2] = [Self::OlderIndex, Self::EarlierPart];

    /// The name under which the catalog keeps since when.
    pub(in crate::sync) fn name(self) -> &'static str {
        match self {
            Self::OlderIndex => "older index",
            Self::EarlierPart => "earlier part",
        }
    }
}

/// Which documents of the lists are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sync) enum Scope {
    /// Those that have changed.
    Changed,
    All,
    /// Those that have changed; what they list is added, and nothing is concluded from what they do not list.
    Additions,
}

/// What asking for one document came to.
#[derive(Debug)]
pub(in crate::sync) enum Got {
    Unchanged(DocumentRow),
    List(Box<Spooled>),
    Index {
        row: DocumentRow,
        parts: Vec<Part>,
        outline: Outline,
        /// Whether it is an archive of what was asked for.
        archive: bool,
        about: Box<About>,
    },
}

/// Who brings documents, and which.
#[derive(Clone)]
pub(in crate::sync) struct DocumentFetcher {
    pub(in crate::sync) client: Arc<Client>,
    pub(in crate::sync) store: Arc<Store>,
    pub(in crate::sync) status: Arc<Status>,
    /// What the lists are to be.
    pub(in crate::sync) capability: Capability,
    pub(in crate::sync) bounds: Bounds,
    pub(in crate::sync) prefer: Option<Arc<str>>,
    /// Collections and categories that are selected, if any are.
    pub(in crate::sync) selected: Arc<[String]>,
    /// Whether caches on the way are to ask the server itself.
    pub(in crate::sync) past_caches: bool,
}

/// How often a list is looked at that is not as its index, or the first of its pages, says.
pub(in crate::sync) const MOST_LOOKS: usize = 4;
/// How long nothing is written of a list that is whole.
pub(in crate::sync) const WRITING: Duration = Duration::from_secs(2);
/// In place of the number of entries, for an index.
pub(in crate::sync) const INDEX: u64 = u64::MAX >> 1;

/// A document as it was downloaded.
pub(in crate::sync) struct Body {
    file: NamedTempFile,
    url: Url,
    pub(in crate::sync) validators: Validators,
    charset: Option<String>,
    /// When the server answered.
    date: Datetime,
}

impl DocumentFetcher {
    /// Who brings documents of a capability.
    pub(in crate::sync) fn new(context: &Context, capability: Capability) -> Self {
        Self {
            client: Arc::clone(&context.client),
            store: Arc::clone(&context.store),
            status: Arc::clone(&context.status),
            capability,
            bounds: context.config.bounds,
            prefer: context.config.prefer.clone(),
            selected: context.readers.ask(|reader| reader.selected()).unwrap_or_default().into(),
            past_caches: false,
        }
    }

    /// Downloads one document into the spool; `None` if it did not change.
    pub(in crate::sync) async fn spool(
        &self,
        url: &str,
        validators: Option<&Validators>,
        fresh: bool,
    ) -> Result<Option<Body>, SourceError> {
        let asked = Asked {
            validators,
            accept_encoding: Some("gzip, identity;q=0.5"),
            document: true,
            fresh: fresh || self.past_caches,
            ..Asked::default()
        };
        let mut last = None;
        for _ in 0..3 {
            // What is not answered, the client asks for again.
            let answer = self.client.ask(url, &asked).await?;
            if answer.status == 304 {
                return Ok(None);
            }
            match self.receive(url, answer).await {
                Err(error) if error.trouble.passes() => last = Some(error),
                received => return received.map(Some),
            }
        }
        Err(last.unwrap_or_else(|| SourceError::new(url, Trouble::Broken("no answer".to_owned()))))
    }

    /// Downloads the body of an answer.
    async fn receive(&self, url: &str, mut answer: Answer) -> Result<Body, SourceError> {
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
        let (url, charset, mut validators) = (answer.url.clone(), answer.charset(), answer.validators());
        let date = Datetime::from_system(answer.date());
        if validators.etag.is_none() && !validators.settled {
            // Written just now, it may be written again within the same second.
            validators.last_modified = None;
        }
        Ok(Body { file, url, validators, charset, date })
    }

    /// Asks for one document; for a changed one only, if validators of an earlier edition are known.
    pub(in crate::sync) async fn get(
        &self,
        url: &str,
        depth: usize,
        known: Option<DocumentRow>,
    ) -> Result<Got, SourceError> {
        let validators = known
            .as_ref()
            .map(|row| Validators { etag: row.etag.clone(), last_modified: row.last_modified.clone(), settled: false })
            .filter(|validators| !validators.is_empty());
        let Some(body) = self.spool(url, validators.as_ref(), false).await? else {
            return known.map(Got::Unchanged).ok_or_else(|| unconditional(url));
        };
        match self.with_pages(self.inspect(body, url, depth).await?, false).await? {
            Got::List(document) if document.about.is_mixed => self.afresh(url, depth).await,
            got => Ok(got),
        }
    }

    /// Asks for one document, past all caches. Where one page of a list has an end and another has none, the list may be being
    /// written: it is asked for until all pages agree, or until its entries stay the same.
    ///
    /// # Errors
    /// If it changes as long as it is looked at, and its pages do not agree.
    pub(in crate::sync) async fn afresh(&self, url: &str, depth: usize) -> Result<Got, SourceError> {
        let mut before = None;
        for _ in 0..=MOST_LOOKS {
            let body = self.spool(url, None, true).await?.ok_or_else(|| unconditional(url))?;
            let mut document = match self.with_pages(self.inspect(body, url, depth).await?, true).await? {
                Got::List(document) if document.about.is_mixed => document,
                got => return Ok(got),
            };
            let entries = Some(document.digest_of_entries());
            if entries == before {
                self.status.warning(&format!(
                    "{url}: some of its pages have an `until`, and others have none; it is taken to have ended"
                ));
                document.about.is_mixed = false;
                return Ok(Got::List(document));
            }
            before = entries;
            tokio::time::sleep(WRITING).await;
        }
        let problem = "some of its pages have an `until`, and others have none: they may be being written; it is read again \
                       with the next poll";
        Err(SourceError::new(url, Trouble::Mixed(problem.to_owned())))
    }

    /// A Change List with the pages that continue it, `fresh` past all caches: its changes have one order. Other lists go page by
    /// page, each with its validators.
    async fn with_pages(&self, got: Got, fresh: bool) -> Result<Got, SourceError> {
        let Got::List(mut document) = got else { return Ok(got) };
        let mut pages = HashSet::from([document.row.url.clone()]);
        while let Some(next) = document.about.next.clone().filter(|_| self.capability.tells_changes()) {
            if pages.len() as u64 >= self.bounds.documents {
                let beyond = bounds::DOCUMENTS.passed("the number of its pages", &self.bounds);
                return Err(SourceError::new(&document.row.url, beyond.into()));
            }
            if !pages.insert(next.clone()) {
                break;
            }
            let body = self.spool(&next, None, fresh).await?.ok_or_else(|| unconditional(&next))?;
            match self.inspect(body, &next, 1).await? {
                Got::List(page) => document.append(*page),
                _ => {
                    return Err(SourceError::new(
                        &next,
                        Trouble::Nowhere("it is an index, where a page was expected".to_owned()),
                    ));
                }
            }
        }
        Ok(Got::List(document))
    }

    pub(in crate::sync) async fn inspect(&self, body: Body, url: &str, depth: usize) -> Result<Got, SourceError> {
        let size = body.file.as_file().metadata().map(|metadata| metadata.len()).unwrap_or(0);
        self.status.update(|progress| progress.document_bytes += size);
        let url = url.to_owned();
        let own = self.clone();
        priority::run(move || inspect(body, &url, depth, &own))
            .await
            .unwrap_or_else(|error| Err(SourceError::new("document", Trouble::Broken(error.to_string()))))
    }

    /// Brings one list that no index names, without looking for others.
    pub(in crate::sync) async fn one(&self, url: &str) -> Result<Spooled, SourceError> {
        match self.get(url, 1, None).await? {
            Got::List(document) => Ok(*document),
            _ => Err(SourceError::new(url, Trouble::Nowhere(format!("it is not a {}", self.capability)))),
        }
    }

    /// What the head of a document says, without reading more of it than that.
    pub(in crate::sync) async fn head(&self, url: &str) -> Result<(Head, Facts), SourceError> {
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

/// An entry of a document, and what it says.
#[derive(Clone, Copy, Debug)]
pub(in crate::sync) struct Described<'e> {
    pub(in crate::sync) entry: &'e Entry,
    pub(in crate::sync) facts: &'e Facts,
}

/// What an entry of a list of resources says; `None` where [`record`] says nothing, and for a resource that is deleted, which a
/// list of 2012 may still tell of (0.1, 3.1.2).
pub(in crate::sync) fn resource(
    mapper: &Mapper,
    document: &Spooled,
    described: Described<'_>,
    at: Datetime,
    warnings: &mut Warnings,
) -> Option<Record> {
    let Described { entry, facts } = described;
    match (facts.change, facts.datetime) {
        (Some(Change::Deleted), Some(when)) if when > Datetime::now() => {
            let facts = Facts { datetime: None, change: None, ..facts.clone() };
            record(mapper, document, Described { entry, facts: &facts }, at, warnings)
        }
        (Some(Change::Deleted), _) => None,
        _ => record(mapper, document, described, at, warnings),
    }
}

/// What an entry of a document says of a resource; `None`, with a warning, if its URI can have no path, is longer than is
/// taken, or is no resource's.
pub(in crate::sync) fn record(
    mapper: &Mapper,
    document: &Spooled,
    described: Described<'_>,
    at: Datetime,
    warnings: &mut Warnings,
) -> Option<Record> {
    let Described { entry, facts } = described;
    if let Some(protocol) = entry.md.get("protocol") {
        warnings.push(
            entry.line,
            format_args!("{} is to be asked by the protocol {protocol:?}, and is no resource; passed over", entry.loc),
        );
        return None;
    }
    let uri = entry.loc.clone();
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

/// How much later than it was sent a list may be dated without a word: clocks differ.
const AHEAD: Duration = Duration::from_secs(60);
/// How much is read of a document to see its head.
const HEAD: usize = 64 << 10;

fn unreadable(error: crate::document::DocumentError) -> SourceError {
    let trouble = format!("line {}, column {}: {}", error.line, error.column, error.problem);
    SourceError::new(&error.url, Trouble::Nowhere(trouble))
}

/// Whether a document is a list or an index; an index is read whole.
fn inspect(body: Body, url: &str, depth: usize, fetcher: &DocumentFetcher) -> Result<Got, SourceError> {
    let wanted = fetcher.capability;
    let disk = |error: std::io::Error| SourceError::new(url, Trouble::Disk(error.to_string()));
    let Body { file, url: base, validators, charset, date } = body;
    let (mut file, path) = file.into_parts();
    file.rewind().map_err(disk)?;
    let limits = Limits::of(&fetcher.bounds);
    let mut reader = Reader::open_in(charset.as_deref(), &file, url, limits).map_err(unreadable)?;
    let head = match reader.may_have_more_head() {
        true => whole_head(File::open(&path).map_err(disk)?, charset.as_deref(), url, limits, &fetcher.status)?,
        false => reader.head().clone(),
    };
    let dialect = head.dialect;
    if dialect == Dialect::V0_1 && reader.head().dialect != dialect {
        let again = File::open(&path).map_err(disk)?;
        reader = Reader::open_as(dialect, charset.as_deref(), again, url, limits).map_err(unreadable)?;
    }
    let facts = head_facts(&head, url, date, fetcher)?;
    let mut about = About::of(&head, &facts, &base);
    let row = DocumentRow {
        id: DocumentId::default(),
        url: url.to_owned(),
        etag: validators.etag,
        last_modified: validators.last_modified,
        // Old drafts have `modified`, and some dumps `from`; a plain sitemap has nothing, and its file's
        // time must do.
        at: facts.at.or(facts.lastmod).or(facts.from),
        part: depth > 0,
        entries: 0,
        package: None,
        next: about.next.clone(),
    };
    let first = reader.next().map_err(unreadable)?;
    let nested = first.as_ref().is_some_and(|entry| entry.md.capability() == Some(wanted));
    let archive = head.capability().is_some_and(|own| Some(own) == wanted.archive());
    if head.kind != Kind::SitemapIndex && !nested && !archive {
        if about.by_lastmod && about.from.is_none() && wanted.tells_changes() {
            // Whether it reaches back to what is known, only its changes show.
            about.oldest = about.oldest.into_iter().chain(oldest(first, &mut reader)).min();
        }
        drop(reader);
        let document = Spooled::new(row, base, path, about, (fetcher.bounds, fetcher.prefer.clone()));
        return Ok(Got::List(Box::new(Spooled { charset, dialect, date, ..document })));
    }
    if head.kind == Kind::UrlSet && !archive {
        fetcher.status.warning(&format!("{url}: an index written as urlset; its entries are taken as lists"));
    }
    let (parts, outline) = read_index(first, reader, (&base, dialect), date, fetcher)?;
    let row = DocumentRow { next: None, entries: INDEX, ..row };
    Ok(Got::Index { row, parts, outline, archive, about: Box::new(about) })
}

/// What the head of a document says, which was sent at `date`.
///
/// # Errors
/// If it is of another capability than the one that is wanted.
fn head_facts(head: &Head, url: &str, date: Datetime, fetcher: &DocumentFetcher) -> Result<Facts, SourceError> {
    let wanted = fetcher.capability;
    let mut warnings = Warnings::default();
    let facts = Facts::of_attributes(&head.md, 0, &mut warnings);
    for warning in warnings.lines() {
        fetcher.status.warning(&format!("{url}: root rs:md: {warning}"));
    }
    if let Some(other) = head.capability().filter(|one| *one != wanted && Some(*one) != wanted.archive()) {
        return Err(SourceError::new(url, Trouble::Nowhere(format!("it is a {other}, where a {wanted} was expected"))));
    }
    if let Some(at) = facts.at.filter(|at| !wanted.tells_changes() && at.is_later_by(AHEAD, date)) {
        fetcher.status.warning(&format!(
            "{url}: it says that it was made at {at}, and was sent at {date}: if its clock or its time zone is not that of its \
             changes, those that are dated between the two are taken for known"
        ));
    }
    Ok(facts)
}

/// The time of the oldest change of a list, from its `first` one on. Where it breaks off is reported when it is applied.
fn oldest(first: Option<Entry>, reader: &mut Reader<'_>) -> Option<Datetime> {
    let (mut entry, mut oldest) = (first, None);
    while let Some(one) = entry {
        let facts = Facts::of_entry(&one, reader.warnings_mut());
        oldest = oldest.into_iter().chain(facts.datetime.or(facts.lastmod)).min();
        entry = reader.next().unwrap_or_default();
    }
    oldest
}

/// What an index names, from its `first` entry on.
fn read_index(
    mut first: Option<Entry>,
    mut reader: Reader<'_>,
    (base, dialect): (&Url, Dialect),
    date: Datetime,
    fetcher: &DocumentFetcher,
) -> Result<(Vec<Part>, Outline), SourceError> {
    let (mut parts, mut outline) = (Vec::new(), Outline::new(date));
    let url = reader.url().to_owned();
    while let Some(entry) = first {
        match base.join(&entry.loc) {
            Ok(child) if child == *base => {}
            Ok(child) => {
                let facts = Facts::of_entry(&entry, reader.warnings_mut());
                let Facts { at, from, until, .. } = facts;
                // Not its bytes: those may differ by the time at which they were compressed.
                outline.add(child.as_str(), &facts);
                let is_excluded = dialect == Dialect::V0_1 && has_others_only(&entry, &fetcher.selected);
                parts.push(Part { url: child.to_string(), at, from, until, is_excluded });
            }
            Err(error) => fetcher.status.warning(&format!("{url}, line {}: {:?}: {error}", entry.line, entry.loc)),
        }
        if parts.len() as u64 > fetcher.bounds.documents {
            let beyond = bounds::DOCUMENTS.passed("the number of its documents", &fetcher.bounds);
            return Err(SourceError::new(&url, beyond.into()));
        }
        first = reader.next().map_err(unreadable)?;
    }
    for warning in reader.warnings().lines() {
        fetcher.status.warning(&format!("{url}: {warning}"));
    }
    Ok((parts, outline))
}

/// The head of a document that may have its `rs:md` after entries.
fn whole_head(
    file: File,
    charset: Option<&str>,
    url: &str,
    limits: Limits,
    status: &Status,
) -> Result<Head, SourceError> {
    let mut reader = Reader::open_in(charset, file, url, limits).map_err(unreadable)?;
    // Where it breaks off is reported when it is applied.
    while let Ok(Some(_)) = reader.next() {}
    if !reader.head().md.is_empty() {
        status.warning(&format!("{url}: the document's rs:md stands after its entries; it counts all the same"));
    }
    Ok(reader.head().clone())
}
