//! Resource Dumps (core 11): which packages there are, and what their manifests say. Whose content lies where
//! in them is [`attach`]'s; packages of Change Dumps are [`changes`]'s.
//!
//! A manifest plays one of two parts. Where a Resource List that is as new as the dump says what there
//! is, the manifest only says where bytes lie, and is believed for those resources of which both say the
//! same. Where there is no such list, manifests are the lists that the tree is made from.
//!
//! A package that cannot be read from yet (its server gives no parts of it, and the whole is still on its
//! way) has its members attached later, by [`attach_later`].

mod changes;

use std::collections::HashSet;
use std::io::Read as _;
use std::sync::Arc;

use futures_util::StreamExt as _;
use url::Url;

use super::fetch::{DocumentFetcher, Lists};
use super::lists;
use super::spooled::{About, Spooled};
use crate::bounds::{self, Bounds};
use crate::catalog::{DocumentId, DocumentRow, PackageId, PackageRow, SetId, SetRow};
use crate::document::{Capability, Datetime, Facts, Kind, Limits, Reader};
use crate::source::{Asked, FoundSet, SourceError, Trouble};
use crate::store::archive::{Found, Member};
use crate::sync::context::Context;
use crate::sync::error::SyncError;
use crate::sync::packages;
use crate::sync::status::Status;
use crate::sync::transfer::package::{MANIFEST, Package};

pub(in crate::sync) use changes::{Packed, manifests_of_changes, packages_since};

/// How many packages are read at once.
const AT_ONCE: usize = 8;

/// A package as a dump lists it.
#[derive(Clone, Debug)]
pub(in crate::sync) struct Listed {
    pub(in crate::sync) row: PackageRow,
    /// Where a copy of its manifest is.
    contents: Option<String>,
    /// The interval of which it has all changes, if it has changes.
    pub(in crate::sync) from: Option<Datetime>,
    until: Option<Datetime>,
}

impl Listed {
    fn inner_manifest(&self, patient: bool, how: Reading) -> InnerManifest<'_> {
        InnerManifest { row: &self.row, patient, capability: how.manifest }
    }
}

/// A dump as it is now.
#[derive(Debug, Default)]
pub(in crate::sync) struct Dump {
    /// Its documents: the dump, or an index and its parts.
    pub(in crate::sync) documents: Vec<DocumentRow>,
    pub(in crate::sync) packages: Vec<Listed>,
    /// Manifests that lie here.
    pub(in crate::sync) manifests: Vec<Spooled>,
    /// Manifests that did not change since the tree was made from them.
    pub(in crate::sync) unchanged: Vec<DocumentRow>,
    /// What could not be had, or not be understood.
    pub(in crate::sync) failed: Vec<SourceError>,
}

impl Dump {
    /// When its snapshot began: as its document says, else as its packages do.
    pub(in crate::sync) fn at(&self) -> Option<Datetime> {
        let documents = self.documents.iter().filter_map(|row| row.at).min();
        documents.or_else(|| self.packages.iter().filter_map(|package| package.row.at).min())
    }

    /// The packages that can be read from, or will be: that a server was silent does not say that it will be.
    pub(in crate::sync) fn of_use(&self) -> Vec<PackageId> {
        let of_use = |listed: &&Listed| {
            let error = self.failed.iter().find(|error| error.url == listed.row.url);
            error.is_none_or(|error| {
                error.trouble.passes() || error.trouble.is_away() || matches!(error.trouble, Trouble::Changed)
            })
        };
        self.packages.iter().filter(of_use).map(|listed| listed.row.id).collect()
    }

    /// Bytes of all packages, as far as they are listed.
    pub(in crate::sync) fn bytes(&self) -> u64 {
        self.packages.iter().filter_map(|package| package.row.length).fold(0, u64::saturating_add)
    }

    /// As the lists that the tree is made from.
    pub(in crate::sync) fn into_lists(self) -> Lists {
        Lists {
            read: self.manifests,
            unchanged: self.unchanged,
            indexes: self.documents,
            failed: self.failed,
            ..Lists::default()
        }
    }
}

/// Where a set has its dumps.
#[derive(Debug, Default)]
pub(in crate::sync) struct Offered {
    /// Documents that list packages.
    documents: Vec<String>,
    /// Packages that no document lists (0.1, 4.2).
    packages: Vec<String>,
}

impl Offered {
    pub(in crate::sync) fn of(found: &FoundSet) -> Self {
        Self { documents: found.urls(Capability::ResourceDump), packages: found.urls(Capability::Dump) }
    }

    /// One dump.
    pub(in crate::sync) fn at(url: &str) -> Self {
        Self { documents: vec![url.to_owned()], packages: Vec::new() }
    }

    pub(in crate::sync) fn is_empty(&self) -> bool {
        self.documents.is_empty() && self.packages.is_empty()
    }
}

/// Learns which packages a set has.
pub(in crate::sync) async fn bring(context: &Context, set: &SetRow, offered: &Offered, known: &[DocumentRow]) -> Dump {
    let mut dump = match offered.documents.is_empty() {
        true => Dump::default(),
        false => bring_documents(context, set, &offered.documents, known).await,
    };
    for url in &offered.packages {
        match alone(context, set, url).await {
            Ok(listed) => dump.packages.push(listed),
            Err(error) => dump.failed.push(error),
        }
    }
    dump
}

/// A package that no document lists: what its server says of it tells one edition from the next.
async fn alone(context: &Context, set: &SetRow, url: &str) -> Result<Listed, SourceError> {
    let asked = Asked { head: true, document: true, ..Asked::default() };
    let (length, validators) = match context.client.ask(url, &asked).await {
        Ok(answer) => (answer.length(), answer.validators()),
        // Some servers know no HEAD; how large it is shows when it is read.
        Err(error)
            if matches!(
                error.trouble,
                Trouble::Status { code: 400 | 401 | 403 | 405 | 501, .. } | Trouble::Walled { .. }
            ) =>
        {
            Default::default()
        }
        Err(error) => return Err(error),
    };
    let tells = [validators.etag, validators.last_modified];
    let edition = tells.iter().flatten().cloned().chain(length.map(|length| length.to_string()));
    let row = PackageRow {
        rset: set.id,
        url: url.to_owned(),
        edition: edition.collect::<Vec<_>>().join("|"),
        length,
        ..PackageRow::default()
    };
    Ok(Listed { row, contents: None, from: None, until: None })
}

/// Brings the documents of dumps here, and learns which packages they list.
async fn bring_documents(context: &Context, set: &SetRow, roots: &[String], known: &[DocumentRow]) -> Dump {
    let fetcher = DocumentFetcher::new(context, Capability::ResourceDump);
    let plain: Vec<DocumentRow> = known.iter().filter(|row| row.package.is_none()).cloned().collect();
    let mut found = lists::bring(&fetcher, roots, &plain).await;
    if !found.read.is_empty() && (!found.unchanged.is_empty() || known.is_empty()) && !plain.is_empty() {
        // Which packages an unchanged document lists is not kept.
        found = lists::bring(&fetcher, roots, &[]).await;
    }
    let mut dump = Dump { failed: found.failed, ..Dump::default() };
    dump.documents.extend(found.indexes);
    if found.read.is_empty() {
        dump.documents.extend(found.unchanged);
        dump.unchanged = known.iter().filter(|row| row.package.is_some()).cloned().collect();
        return dump;
    }
    let (read, mut listing) = (found.read, Listing::new(set.id, Arc::clone(&context.status)));
    let looked = tokio::task::spawn_blocking(move || {
        let mut documents = Vec::new();
        for document in &read {
            match listing.add(document) {
                Ok(entries) => documents.push(DocumentRow { entries, ..document.row.clone() }),
                Err(error) => listing.failed.push(error),
            }
        }
        (listing, documents)
    });
    match looked.await {
        Ok((listing, documents)) => {
            dump.packages = listing.packages;
            dump.documents.extend(documents);
            dump.failed.extend(listing.failed);
        }
        Err(error) => dump.failed.push(SourceError::new(&set.key, Trouble::Broken(error.to_string()))),
    }
    dump
}

/// The packages that documents list.
struct Listing {
    rset: SetId,
    status: Arc<Status>,
    /// What was listed already: URLs, and editions of what is there.
    editions: HashSet<(String, String)>,
    packages: Vec<Listed>,
    failed: Vec<SourceError>,
}

impl Listing {
    fn new(rset: SetId, status: Arc<Status>) -> Self {
        Self { rset, status, editions: HashSet::new(), packages: Vec::new(), failed: Vec::new() }
    }

    /// Adds the packages that one document lists; returns the number of its entries.
    fn add(&mut self, document: &Spooled) -> Result<u64, SourceError> {
        let url = &document.row.url;
        let unreadable = |error: crate::document::DocumentError| {
            SourceError::new(url, Trouble::Nowhere(format!("line {}: {}", error.line, error.problem)))
        };
        let mut reader = document.entries(url).map_err(unreadable)?;
        let mut entries = 0;
        while let Some(entry) = reader.next().map_err(unreadable)? {
            entries += 1;
            let facts = Facts::of_entry(&entry, reader.warnings_mut());
            let location = match Url::parse(&entry.loc) {
                Ok(location) => location,
                Err(error) => {
                    // What a package lists that cannot be had is not gone.
                    let problem = format!("line {}: {:?}: {error}", entry.line, entry.loc);
                    self.failed.push(SourceError::new(url, Trouble::Nowhere(problem)));
                    continue;
                }
            };
            let at = facts.at.or(facts.from).or(document.at());
            let edition = edition(&facts, at);
            if !self.editions.insert((location.to_string(), edition.clone())) {
                continue;
            }
            if self.packages.len() as u64 >= document.bounds.documents {
                let beyond = bounds::DOCUMENTS.passed("the number of its packages", &document.bounds);
                return Err(SourceError::new(url, beyond.into()));
            }
            let contents = entry.links.iter().find(|link| link.is("contents")).and_then(|link| link.href());
            let row = PackageRow {
                rset: self.rset,
                url: location.into(),
                edition,
                length: facts.length,
                hashes: facts.hashes,
                at,
                ..PackageRow::default()
            };
            let contents = contents.map(str::to_owned);
            self.packages.push(Listed { row, contents, from: facts.from, until: facts.until });
        }
        for warning in reader.warnings().lines() {
            self.status.warning(&format!("{url}: {warning}"));
        }
        Ok(entries)
    }
}

/// What tells one edition of a package from the next.
fn edition(facts: &Facts, at: Option<Datetime>) -> String {
    let time = |time: Option<Datetime>| time.map(|time| time.to_string()).unwrap_or_default();
    let length = facts.length.map(|length| length.to_string()).unwrap_or_default();
    format!("{}|{length}|{}|{}|{}", time(at), facts.hashes, time(facts.lastmod), time(facts.until))
}

/// How the packages of a dump are read.
#[derive(Clone, Copy, Debug)]
pub(in crate::sync) struct Reading {
    /// Whether all of them are downloaded at once: nothing of them is here yet.
    pub(in crate::sync) download: bool,
    /// Whether they are to be brought here, in the end.
    pub(in crate::sync) wanted: bool,
    /// Whether a list says what there is: then nothing is to be learnt again of packages that were read.
    pub(in crate::sync) beside: bool,
    /// Whether an archive has them: they can be had for good.
    pub(in crate::sync) archived: bool,
    /// What their manifests are.
    pub(in crate::sync) manifest: Capability,
}

/// Enters the packages of a dump into the catalog, and begins to download them if that is wished.
pub(in crate::sync) async fn enter(context: &Arc<Context>, dump: &mut Dump, how: Reading) -> Result<(), SyncError> {
    let changes = how.manifest == Capability::ChangeDumpManifest;
    let packages: Vec<PackageRow> = dump
        .packages
        .iter()
        .map(|listed| PackageRow { wanted: how.wanted, archived: how.archived, changes, ..listed.row.clone() })
        .collect();
    let ids = context
        .write_queue
        .step(move |writer| {
            let transaction = writer.begin(true)?;
            let ids = packages.iter().map(|row| transaction.put_package(row)).collect::<Result<Vec<PackageId>, _>>()?;
            Ok((ids, transaction.commit()?))
        })
        .await?;
    for (listed, id) in dump.packages.iter_mut().zip(ids) {
        if let Some(row) = context.readers.ask(|reader| reader.package(id))? {
            listed.row = row;
        }
        if how.download {
            let started = packages::start(context, &listed.row, None);
            started.map_err(|error| SyncError::cache(&listed.row.url, error))?;
        }
    }
    let total = dump.packages.len() as u64;
    context.status.update(|progress| (progress.packages, progress.packages_known) = (0, total));
    Ok(())
}

/// Reads the manifests of all packages of a dump that are not known yet.
pub(in crate::sync) async fn read(context: &Arc<Context>, dump: &mut Dump, known: &[DocumentRow], how: Reading) {
    let unread: Vec<Listed> = dump
        .packages
        .iter()
        .filter(|listed| {
            let before = known.iter().find(|row| row.package == Some(listed.row.id)).filter(|_| listed.row.indexed);
            dump.unchanged.extend(before.cloned());
            before.is_none() && !(how.beside && listed.row.indexed)
        })
        .cloned()
        .collect();
    let mut reading = futures_util::stream::iter(unread)
        .map(|listed| {
            let context = Arc::clone(context);
            async move {
                let manifest = manifest(&context, &listed, how).await;
                (listed, manifest)
            }
        })
        .buffer_unordered(AT_ONCE);
    while let Some((listed, manifest)) = reading.next().await {
        context.status.update(|progress| progress.packages += 1);
        match manifest {
            Ok(Some(document)) => dump.manifests.push(document),
            Ok(None) => {}
            Err(error) => dump.failed.push(SourceError::new(&listed.row.url, error.trouble)),
        }
    }
    // The order in which packages came is chance; the order in which they apply must not be.
    dump.manifests.sort_by_key(|document| document.row.package);
}

/// The manifest of a package: from the package, else the copy that the dump links to.
async fn manifest(context: &Arc<Context>, listed: &Listed, how: Reading) -> Result<Option<Spooled>, SourceError> {
    let disk = |error: std::io::Error| SourceError::new(&listed.row.url, Trouble::Disk(error.to_string()));
    let package = packages::take(context, &listed.row).map_err(disk)?;
    let error = match inner_manifest(context, &package, listed.inner_manifest(false, how)).await {
        Ok(document) => return Ok(Some(document)),
        Err(error) => error,
    };
    let late = matches!(error.trouble, Trouble::NoRanges);
    if late && how.beside {
        // The list is enough for now: members are attached when the package is here.
        return Ok(None);
    }
    if let Some(contents) = &listed.contents {
        let copy = DocumentFetcher::new(context, how.manifest).one(contents).await;
        match copy {
            Ok(document) => {
                if !late {
                    context.status.error(&format!("{error}; its manifest is read from {contents} instead"));
                }
                let row = manifest_row(&listed.row, &document);
                let readable = !late && packages::find_one(context, &package, MANIFEST, false).await.is_ok();
                return Ok(Some(Spooled { row, package: readable.then_some(package), ..document }));
            }
            Err(other) => context.status.warning(&format!("{other}; the package itself is read instead")),
        }
    }
    match (late, how.download) {
        // All of it will be here before long.
        (true, true) => inner_manifest(context, &package, listed.inner_manifest(true, how)).await.map(Some),
        (true, false) => {
            packages::start(context, &listed.row, None).map_err(disk)?;
            inner_manifest(context, &package, listed.inner_manifest(true, how)).await.map(Some)
        }
        (false, _) => Err(error),
    }
}

/// A manifest among the documents that the tree is made from.
fn manifest_row(package: &PackageRow, document: &Spooled) -> DocumentRow {
    let at = [package.at, document.row.at].into_iter().flatten().min();
    DocumentRow {
        url: package.url.clone(),
        etag: None,
        last_modified: None,
        at,
        part: true,
        package: Some(package.id),
        ..document.row.clone()
    }
}

/// The manifest of a package that is wanted from the package itself.
#[derive(Clone, Copy)]
pub(in crate::sync) struct InnerManifest<'m> {
    pub(in crate::sync) row: &'m PackageRow,
    /// Whether to wait for the whole package where its server gives no parts of it.
    pub(in crate::sync) patient: bool,
    pub(in crate::sync) capability: Capability,
}

/// The manifest that lies in a package, or in the file that has replaced it since.
pub(in crate::sync) async fn inner_manifest(
    context: &Arc<Context>,
    package: &Arc<Package>,
    wanted: InnerManifest<'_>,
) -> Result<Spooled, SourceError> {
    match manifest_in(context, package, wanted).await {
        Err(error) if package.has_left() => match packages::get(context, wanted.row.id) {
            Some(package) => manifest_in(context, &package, wanted).await,
            None => Err(error),
        },
        found => found,
    }
}

/// The manifest, or the manifests in the same package that it is an index of, one after the other.
async fn manifest_in(
    context: &Arc<Context>,
    package: &Arc<Package>,
    wanted: InnerManifest<'_>,
) -> Result<Spooled, SourceError> {
    let failed = |trouble| SourceError::new(&wanted.row.url, trouble);
    let (index, parts) = manifest_at(context, package, wanted, MANIFEST).await?;
    let mut whole: Option<Spooled> = None;
    let (mut known, mut size) = (HashSet::new(), 0_u64);
    for name in &parts {
        if !known.insert(name) {
            return Err(failed(Trouble::Nowhere(format!("{MANIFEST} names {name} twice"))));
        }
        let (part, further) = manifest_at(context, package, wanted, name).await?;
        if !further.is_empty() {
            return Err(failed(Trouble::Nowhere(format!("{name} is an index, within an index of manifests"))));
        }
        size = size.saturating_add(part.path.metadata().map_or(0, |metadata| metadata.len()));
        if size > context.config.bounds.document {
            let beyond = bounds::DOCUMENT.passed("the size of its manifests", &context.config.bounds);
            return Err(failed(beyond.into()));
        }
        match &mut whole {
            None => whole = Some(part),
            Some(whole) => {
                whole.row.at = [whole.row.at, part.row.at].into_iter().flatten().min();
                whole.append(part);
            }
        }
    }
    let Some(mut whole) = whole else { return Ok(index) };
    whole.manifests = parts;
    // When the snapshot began, the earliest of them says.
    whole.row.at = [whole.row.at, index.row.at].into_iter().flatten().min();
    Ok(whole)
}

/// Reads one document of manifests from a package; the second part of the answer is what it names, if it is an index.
async fn manifest_at(
    context: &Arc<Context>,
    package: &Arc<Package>,
    wanted: InnerManifest<'_>,
    name: &str,
) -> Result<(Spooled, Vec<String>), SourceError> {
    let InnerManifest { row, patient, capability } = wanted;
    let failed = |trouble| SourceError::new(&row.url, trouble);
    let (found, broken) = packages::find_one(context, package, name, patient).await?;
    let member = match found {
        Found::Member(member) => member,
        Found::Missing => {
            let broken = broken.map(|why| format!("{why}; ")).unwrap_or_default();
            return Err(failed(Trouble::Nowhere(format!("{broken}the package has no {name}"))));
        }
        Found::Refused(why) => return Err(failed(Trouble::Nowhere(format!("{name}: {why}")))),
    };
    if member.size > context.config.bounds.document {
        let beyond = bounds::DOCUMENT.passed("the size of its manifest", &context.config.bounds);
        return Err(failed(beyond.into()));
    }
    packages::bring_member(context, package, &member, || ()).await?;
    let unpacking = Unpacking {
        package: Arc::clone(package),
        member,
        name: name.to_owned(),
        store: Arc::clone(&context.store),
        row: row.clone(),
        capability,
        bounds: context.config.bounds,
        prefer: context.config.prefer.clone(),
    };
    let spooled = tokio::task::spawn_blocking(move || unpacking.spool());
    spooled.await.unwrap_or_else(|error| Err(failed(Trouble::Broken(error.to_string()))))
}

/// A manifest that is taken out of its package.
struct Unpacking {
    package: Arc<Package>,
    member: Member,
    /// The name of the member.
    name: String,
    store: Arc<crate::store::Store>,
    row: PackageRow,
    capability: Capability,
    bounds: Bounds,
    prefer: Option<Arc<str>>,
}

impl Unpacking {
    fn spool(self) -> Result<(Spooled, Vec<String>), SourceError> {
        let Self { package, member, name, store, row, capability, bounds, prefer } = self;
        let failed = |trouble| SourceError::new(&row.url, trouble);
        let disk = |error: std::io::Error| failed(Trouble::Disk(error.to_string()));
        let mut stream = member
            .stream(Arc::clone(&package.file))
            .map_err(|error| failed(Trouble::Nowhere(format!("{name}: {error}"))))?;
        let mut file = store.spool().map_err(disk)?;
        store.check_room(member.size).map_err(disk)?;
        let mut buffer = vec![0; 256 << 10];
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => std::io::Write::write_all(&mut file, &buffer[..count]).map_err(disk)?,
                Err(error) => return Err(failed(Trouble::Nowhere(format!("{name}: {error}")))),
            }
        }
        let path = file.into_temp_path();
        let base = Url::parse(&row.url).map_err(|error| failed(Trouble::BadUrl(error.to_string())))?;
        let opened = std::fs::File::open(&path).map_err(disk)?;
        let unreadable = |error: crate::document::DocumentError| {
            let place = format!("{name}, line {}, column {}", error.line, error.column);
            failed(Trouble::Nowhere(format!("{place}: {}", error.problem)))
        };
        let mut reader = Reader::open(&opened, &row.url, Limits::of(&bounds)).map_err(unreadable)?;
        let head = reader.head().clone();
        if let Some(other) = head.capability().filter(|one| *one != capability) {
            return Err(failed(Trouble::Nowhere(format!("{name} is a {other}, where a manifest was expected"))));
        }
        let mut parts = Vec::new();
        while head.kind == Kind::SitemapIndex
            && let Some(entry) = reader.next().map_err(unreadable)?
        {
            if parts.len() as u64 >= bounds.documents {
                return Err(failed(bounds::DOCUMENTS.passed("the number of its manifests", &bounds).into()));
            }
            let inside = entry.md.get("path").unwrap_or_else(|| entry.loc.rsplit('/').next().unwrap_or_default());
            parts.push(inside.trim_start_matches('/').to_owned());
        }
        let facts = Facts::of_attributes(&head.md, 0, reader.warnings_mut());
        let own = DocumentRow {
            id: DocumentId::default(),
            url: row.url.clone(),
            etag: None,
            last_modified: None,
            at: facts.at.or(facts.lastmod).or(facts.from),
            part: true,
            entries: 0,
            package: Some(row.id),
            next: None,
        };
        let about = About::of(&head, &facts, &base);
        let document =
            Spooled { package: Some(Arc::clone(&package)), ..Spooled::new(own, base, path, about, (bounds, prefer)) };
        Ok((Spooled { row: manifest_row(&row, &document), ..document }, parts))
    }
}

/// Lets go of a package that is of no use as it is.
async fn forget(context: &Context, id: PackageId) -> Result<(), SyncError> {
    context.write_queue.write(move |transaction| transaction.forget_package(id)).await?;
    packages::forget(context, id)?;
    context.write_queue.recount().await
}

/// Removes packages that nothing needs any more.
pub(in crate::sync) async fn forget_idle(context: &Context, set: SetId, kept: Vec<PackageId>) -> Result<(), SyncError> {
    let idle = context
        .write_queue
        .step(move |writer| {
            let transaction = writer.begin(false)?;
            let idle = transaction.forget_idle_packages(set, &kept)?;
            Ok((idle, transaction.commit()?))
        })
        .await?;
    if idle.is_empty() {
        return Ok(());
    }
    context.write_queue.recount().await?;
    for id in idle {
        packages::forget(context, id)?;
    }
    Ok(())
}

/// All manifests of a Resource Dump as they are now, without taking anything from its packages.
pub(in crate::sync) async fn lists_of(
    context: &Arc<Context>,
    set: &SetRow,
    found: &FoundSet,
) -> Result<Lists, SyncError> {
    let mut dump = bring(context, set, &Offered::of(found), &[]).await;
    let manifest = Capability::ResourceDumpManifest;
    let how = Reading { download: false, wanted: false, beside: false, archived: false, manifest };
    if !dump.packages.is_empty() {
        enter(context, &mut dump, how).await?;
        read(context, &mut dump, &[], how).await;
    }
    Ok(dump.into_lists())
}

/// Whether the packages of a dump can all be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sync) enum Fit {
    All,
    TooLargeForCache(u64),
    TooLargeForDisk(u64),
}

pub(in crate::sync) fn fits(context: &Context, dump: &Dump) -> Result<Fit, SyncError> {
    let bytes = dump.bytes();
    if let Some(limit) = context.write_queue.cache_size().filter(|limit| bytes > *limit) {
        return Ok(Fit::TooLargeForCache(limit));
    }
    let room = context.store.room()?;
    if bytes > room.total {
        return Ok(Fit::TooLargeForDisk(room.total));
    }
    Ok(Fit::All)
}
