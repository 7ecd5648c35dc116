//! Whose content lies where in a package: versions are given its members, as its manifest says.
//!
//! A member is given to a version only where both say the same of it; what does not fit is gathered, and told
//! of once for the package.

use std::sync::Arc;

use super::step_context::StepContext;
use crate::bounds::{self, Bounds};
use crate::catalog::{
    Attached, CatalogError, MemberRow, MemberState, NameId, PackageRow, Recent, Record, SetRow, Transaction,
    UnseenMember, VersionId,
};
use crate::document::{Capability, Datetime, Entry, Facts, relation};
use crate::source::{SourceError, Trouble};
use crate::store::archive::{Directory, Found, Member, Method, Partial};
use crate::sync::context::Context;
use crate::sync::documents::fetch::{Budget, Described};
use crate::sync::documents::spooled::Spooled;
use crate::sync::documents::{dumps, fetch};
use crate::sync::error::SyncError;
use crate::sync::packages;
use crate::sync::status::Status;
use crate::sync::transfer::package::{MANIFEST, NewMembers, Package};

/// Members with a flaw that are told of one by one, of each package.
const MOST_TOLD: usize = 20;

/// Gives versions the members of one package as their content, and gathers what does not fit.
pub(in crate::sync) struct Attacher {
    package: Arc<Package>,
    bounds: Bounds,
    prefer: Option<Arc<str>>,
    directory: Directory,
    attached: u64,
    others: u64,
    unlisted: u64,
    flawed: u64,
    told: Vec<String>,
    /// Members that versions were just given, for whoever looks at them next.
    fresh: Vec<UnseenMember>,
}

/// Members beyond this number are looked up again when they are to be looked at.
const MOST_FRESH: usize = 50_000;

impl Attacher {
    /// For a document that is the manifest of a package, if that can be read; else its content is fetched later.
    pub(in crate::sync) fn of(document: &Spooled, status: &Status) -> Option<Self> {
        let attacher = Self::new(document.package.as_ref()?, document);
        attacher.inspect_err(|error| status.error(&error.to_string())).ok()
    }

    /// For a package whose directory is here, and its manifest.
    ///
    /// # Errors
    /// If it cannot be read after all.
    fn new(package: &Arc<Package>, document: &Spooled) -> Result<Self, SourceError> {
        let (bounds, prefer) = (&document.bounds, document.prefer.clone());
        let failed = |error: String| SourceError::new(&package.url, Trouble::Nowhere(error));
        let own = Arc::clone(package);
        let total = package.total().or_else(|| package.file.metadata().map(|metadata| metadata.len()).ok());
        let partial =
            Partial::new(Arc::clone(&package.file), total.unwrap_or(0), move |begin, end| own.has(begin, end));
        let mut directory = Directory::read(partial, bounds).map_err(|error| failed(error.to_string()))?;
        // Manifests do not name themselves.
        for name in std::iter::once(MANIFEST).chain(document.manifests.iter().map(String::as_str)) {
            directory.find(name);
        }
        let (package, told, fresh) = (Arc::clone(package), Vec::new(), Vec::new());
        Ok(Self {
            package,
            bounds: *bounds,
            prefer,
            directory,
            attached: 0,
            others: 0,
            unlisted: 0,
            flawed: 0,
            told,
            fresh,
        })
    }

    fn flaw(&mut self, uri: &str, why: &str) {
        self.flawed += 1;
        if self.told.len() < MOST_TOLD {
            self.told.push(format!("{uri}: its member in {} is not used: {why}", self.package.url));
        }
    }

    /// The member of an entry, if it has one that can be used.
    fn member(&mut self, entry: &Entry, record: &Record) -> Option<MemberRow> {
        if self.prefer.as_deref().is_some_and(|media| entry.preferring(media).is_some()) {
            // What lies here is another representation.
            self.directory.find(entry.md.get("path")?);
            return None;
        }
        let Some(path) = entry.md.get("path") else {
            self.flaw(&record.uri, "the manifest has no path for it");
            return None;
        };
        let member = match self.directory.find(path) {
            Found::Member(member) => member,
            Found::Missing => {
                self.flaw(&record.uri, &format!("the manifest names {path}, which is not in the package"));
                return None;
            }
            Found::Refused(why) => {
                self.flaw(&record.uri, why);
                return None;
            }
        };
        if let Some(size) = record.size.filter(|size| *size != member.size) {
            let why = format!("it has {} bytes where the manifest says {size}", member.size);
            self.flaw(&record.uri, &why);
            return None;
        }
        if record.size.is_none() && member.size > self.bounds.resource {
            let beyond = bounds::RESOURCE.passed("its size", &self.bounds);
            self.flaw(&record.uri, &beyond.to_string());
            return None;
        }
        Some(self.row(&member))
    }

    /// As the catalog has it.
    fn row(&self, member: &Member) -> MemberRow {
        MemberRow {
            version: VersionId::new(0),
            package: self.package.id,
            header: member.header,
            compressed: member.compressed,
            size: member.size,
            crc: member.crc,
            name_length: member.name_length,
            deflated: member.method == Method::Deflated,
            hashes: None,
            coded: false,
            state: MemberState::Unseen,
            epoch: self.package.epoch,
        }
    }

    /// Of a manifest that the tree is made from: gives the version that its entry came to its member.
    pub(in crate::sync) fn give(
        &mut self,
        transaction: &Transaction<'_>,
        entry: &Entry,
        record: &Record,
        version: VersionId,
    ) -> Result<(), CatalogError> {
        match self.member(entry, record) {
            Some(member) => self.attach(transaction, record, version, member),
            None => Ok(()),
        }
    }

    fn attach(
        &mut self,
        transaction: &Transaction<'_>,
        record: &Record,
        version: VersionId,
        member: MemberRow,
    ) -> Result<(), CatalogError> {
        let attached = transaction.attach(version, record, &member)?;
        self.count(attached, member, record);
        Ok(())
    }

    /// Of the manifest of a Change Dump: gives the version that a change made its member, be it new or known.
    pub(in crate::sync) fn give_change(
        &mut self,
        transaction: &Transaction<'_>,
        entry: &Entry,
        record: &Record,
        version: VersionId,
    ) -> Result<(), CatalogError> {
        let mut patched = false;
        for link in entry.links.iter().filter(|link| relation::is_any(link.rel(), &relation::PATCH)) {
            let (Some(path), Some(media)) = (link.0.get("path"), link.0.get("type")) else { continue };
            match self.directory.find(path) {
                Found::Member(member) => {
                    transaction.attach_patch(version, media, &self.row(&member))?;
                    patched = true;
                }
                Found::Missing => {
                    self.flaw(&record.uri, &format!("the manifest names a patch {path}, which is not in the package"));
                }
                Found::Refused(why) => self.flaw(&record.uri, why),
            }
        }
        if patched && entry.md.get("path").is_none() {
            return Ok(());
        }
        let Some(mut member) = self.member(entry, record) else { return Ok(()) };
        // The version may come from a list that says less.
        member.hashes = Some(record.hashes.clone()).filter(|hashes| !hashes.is_empty());
        self.attach(transaction, record, version, member)
    }

    fn count(&mut self, attached: Attached, member: MemberRow, record: &Record) {
        match attached {
            Attached::New(version) => {
                self.attached += 1;
                if self.fresh.len() < MOST_FRESH && !record.coded {
                    let member = MemberRow { version, ..member };
                    self.fresh.push(UnseenMember { member, length: record.size, hashes: record.hashes.clone() });
                }
            }
            Attached::Yes => self.attached += 1,
            Attached::Other => self.others += 1,
            Attached::NotListed => self.unlisted += 1,
        }
    }

    /// Of a manifest beside a list: gives the listed version its member, if both say the same of it.
    fn give_listed(
        &mut self,
        transaction: &mut Transaction<'_>,
        directory: NameId,
        (entry, record): (&Entry, &Record),
        length_suffices: bool,
    ) -> Result<(), CatalogError> {
        let Some(member) = self.member(entry, record) else { return Ok(()) };
        let attached = transaction.attach_to_listed(directory, record, &member, length_suffices)?;
        if matches!(attached, Attached::New(_) | Attached::Yes) {
            transaction.linked_beside(directory, record)?;
        }
        self.count(attached, member, record);
        Ok(())
    }

    /// Says what did not fit, and notes that the package has been gone through.
    pub(in crate::sync) fn finish(
        self,
        transaction: &Transaction<'_>,
        status: &Status,
    ) -> Result<NewMembers, CatalogError> {
        let url = &self.package.url;
        self.told.iter().for_each(|told| status.error(told));
        if self.flawed > self.told.len() as u64 {
            status.error(&format!("{url}: {} more of its members are not used", self.flawed - self.told.len() as u64));
        }
        if let Some(why) = &self.directory.broken {
            status.error(&format!("{url}: {why}"));
        }
        match self.directory.unused() {
            0 => {}
            // What a later record made out of date has no place in the manifest that was written for it.
            _ if self.package.is_recast() => {}
            1 => status.warning(&format!("{url}: it has a member that its manifest does not name")),
            unused => status.warning(&format!("{url}: it has {unused} members that its manifest does not name")),
        }
        if self.others > 0 {
            tracing::info!(url, others = self.others, "members are of other versions than those listed");
        }
        if self.unlisted > 0 {
            tracing::info!(url, unlisted = self.unlisted, "members are of resources that are not listed");
        }
        tracing::debug!(url, attached = self.attached, "members attached");
        transaction.package_indexed(self.package.id)?;
        Ok(NewMembers { package: self.package, members: self.fresh })
    }
}

/// Gives the versions of the tree the members of a package as their content, where its manifest says the
/// same of them as the list does.
pub(in crate::sync) fn beside_list(
    transaction: &mut Transaction<'_>,
    context: &StepContext,
    directory: NameId,
    document: &Spooled,
    length_suffices: bool,
) -> Result<Option<NewMembers>, CatalogError> {
    let StepContext { mapper, status, .. } = context;
    let Some(mut attacher) = Attacher::of(document, status) else { return Ok(None) };
    let url = format!("{} ({MANIFEST})", document.row.url);
    let at = document.at().unwrap_or_else(Datetime::now);
    let mut reader = match document.entries(&url) {
        Ok(reader) => reader,
        Err(error) => {
            status.error(&error.to_string());
            return Ok(None);
        }
    };
    let budget = Budget::new(&document.bounds);
    loop {
        let entry = match reader.next() {
            Ok(Some(entry)) => entry,
            Ok(None) => break,
            Err(error) => {
                status.error(&format!("{error}; the members that it names before that are used"));
                break;
            }
        };
        if let Err(beyond) = budget.take() {
            status.error(&format!("{url}: {beyond}; the members that it names before that are used"));
            break;
        }
        let facts = Facts::of_entry(&entry, reader.warnings_mut());
        let described = Described { entry: &entry, facts: &facts };
        let Some(record) = fetch::resource(mapper, document, described, at, reader.warnings_mut()) else {
            continue;
        };
        attacher.give_listed(transaction, directory, (&entry, &record), length_suffices)?;
    }
    for warning in reader.warnings().lines() {
        status.warning(&format!("{url}: {warning}"));
    }
    attacher.finish(transaction, status).map(Some)
}

/// Gives the versions of a list the members of the packages whose manifests were read beside it. What was
/// listed just now is looked at no second time: `recent` knows it.
pub(in crate::sync) async fn attach(
    context: &Context,
    set: &SetRow,
    manifests: Vec<Spooled>,
    mut recent: Recent,
    length_suffices: bool,
) -> Result<(), SyncError> {
    for document in manifests {
        let (own, directory) = (StepContext::of(context), set.directory);
        let (back, fresh) = context
            .write_queue
            .step(move |writer| {
                // If this is lost with the machine's power, it is done again.
                let mut transaction = writer.begin(false)?;
                transaction.remember(recent);
                let fresh = beside_list(&mut transaction, &own, directory, &document, length_suffices)?;
                let recent = transaction.recent();
                Ok(((recent, fresh), transaction.commit()?))
            })
            .await?;
        recent = back;
        if let Some(fresh) = fresh {
            context.check_members(fresh);
        }
    }
    Ok(())
}

/// Attaches the members of a package that could not be read from when the tree was made, and now can.
pub(in crate::sync) async fn attach_later(context: &Arc<Context>, row: &PackageRow) -> Result<(), SyncError> {
    let package = packages::take(context, row)?;
    let Some(set) = context.sets()?.into_iter().find(|set| set.id == row.rset) else { return Ok(()) };
    let document = dumps::inner_manifest(
        context,
        &package,
        dumps::InnerManifest { row, patient: true, capability: Capability::ResourceDumpManifest },
    )
    .await?;
    // By then a newer list may be in.
    let length_suffices = set.at.zip(row.at).is_some_and(|(list, package)| list <= package);
    attach(context, &set, vec![document], Recent::default(), length_suffices).await
}
