//! What a tree is made from: Resource Lists, a Resource Dump, or both.
//!
//! A list that is as new as the dump says what there is, and the dump where its bytes lie; a dump that is
//! newer than the list, or the only thing that the Source offers, says both. What was chosen, and why, is
//! kept with the set and shown in the status.
//!
//! A dump fills a mirror for the first time. After that, lists tell what changed, unless the Source has
//! none, or none that is as new as the dump was.

use std::sync::Arc;

use super::attach;
use crate::catalog::{DocumentRow, PackageId, Recent, Seed, SetRow, SetState};
use crate::document::{Capability, Datetime};
use crate::source::FoundSet;
use crate::sync::config::SeedFrom;
use crate::sync::context::Context;
use crate::sync::documents::dumps::{Dump, Fit, Offered, Reading, fits};
use crate::sync::documents::fetch::{DocumentFetcher, Lists, Scope};
use crate::sync::documents::{dumps, fetch, lists};
use crate::sync::error::SyncError;

/// What one set is to be made from.
#[derive(Debug, Default)]
pub(in crate::sync) struct Baseline {
    /// The lists of what there is, be they Resource Lists or manifests.
    pub(in crate::sync) lists: Lists,
    /// A dump that only says where content lies, and is still to be read.
    pub(in crate::sync) beside: Option<Beside>,
    /// When the snapshot of the dump began, if it was looked at.
    pub(in crate::sync) dumped: Option<Datetime>,
    /// The packages that are needed, if a dump was looked at.
    pub(in crate::sync) packages: Option<Vec<PackageId>>,
}

/// A dump beside a list.
#[derive(Debug)]
pub(in crate::sync) struct Beside {
    dump: Dump,
    how: Reading,
    fit: Fit,
    from: From,
    fresh: bool,
    read: bool,
}

impl Beside {
    /// Reads the manifests of the packages, and gives the versions of the list their members. To be called
    /// twice: the reading may go on while the list is applied, the giving comes after.
    pub(in crate::sync) async fn read(&mut self, context: &Arc<Context>) {
        if !self.read {
            self.how.beside = true;
            dumps::read(context, &mut self.dump, &[], self.how).await;
        }
    }

    /// See [`Beside::read`].
    pub(in crate::sync) async fn give(
        mut self,
        context: &Context,
        set: &SetRow,
        recent: Recent,
    ) -> Result<(), SyncError> {
        // What is wrong with the dump does not make the list any less whole.
        self.dump.failed.iter().for_each(|error| context.status.error(&error.to_string()));
        if let Some(error) = self.dump.failed.first().filter(|_| self.dump.manifests.is_empty()) {
            self.from = From::ListAlone { why: format!("the Resource Dump cannot be used: {error}") };
        }
        if self.fresh || set.seed.is_none() || context.config.seed == SeedFrom::Dump {
            let (name, why) = said(&self.from, &self.dump, self.fit);
            note(context, set, name, why).await?;
        }
        let packages = self.dump.of_use();
        let length_suffices = matches!(self.from, From::List { as_new: true });
        attach::attach(context, set, std::mem::take(&mut self.dump.manifests), recent, length_suffices).await?;
        dumps::forget_idle(context, set.id, packages).await
    }
}

/// Brings what a set is made from.
pub(in crate::sync) async fn bring(
    context: &Arc<Context>,
    set: &SetRow,
    found: &FoundSet,
    known: &[DocumentRow],
    scope: Scope,
) -> Result<Baseline, SyncError> {
    let lists = found.urls(Capability::ResourceList);
    let dumps = Offered::of(found);
    let status = &context.status;
    let choice = context.config.seed;
    let fresh = set.state == SetState::Empty;
    let made_from_dump = known.iter().any(|row| row.package.is_some());
    if lists.is_empty() && (dumps.is_empty() || choice == SeedFrom::List) {
        let offered: Vec<&str> = found.capabilities.iter().map(|document| document.capability.name()).collect();
        let hint = if dumps.is_empty() { "" } else { "; seed=auto reads its Resource Dump" };
        return Err(SyncError::Unfit(format!(
            "the set {} offers no Resource List (it offers: {}){hint}",
            set.key,
            if offered.is_empty() { "nothing".to_owned() } else { offered.join(", ") }
        )));
    }
    status.phase("reading lists");
    // A process before this one may have ended before all packages were gone through.
    let unfinished =
        context.readers.ask(|reader| reader.packages())?.iter().any(|row| row.rset == set.id && !row.indexed);
    let wants_dump = fresh || made_from_dump || unfinished || lists.is_empty() || choice == SeedFrom::Dump;
    if dumps.is_empty() || choice == SeedFrom::List || !wants_dump {
        let why = match choice {
            SeedFrom::List => "seed=list says so",
            SeedFrom::Dump => "seed=dump was asked for, but the Source offers no Resource Dump",
            SeedFrom::Auto => "the Source offers no Resource Dump",
        };
        if fresh {
            note(context, set, "list", why.to_owned()).await?;
        }
        let fetcher = DocumentFetcher::new(context, Capability::ResourceList);
        return Ok(Baseline { lists: lists::bring(&fetcher, &lists, known).await, ..Baseline::default() });
    }
    with_dump(context, set, found, known, scope).await
}

/// Brings what a set is made from where its dump counts.
async fn with_dump(
    context: &Arc<Context>,
    set: &SetRow,
    found: &FoundSet,
    known: &[DocumentRow],
    scope: Scope,
) -> Result<Baseline, SyncError> {
    let fresh = set.state == SetState::Empty;
    let (list_urls, offered) = (found.urls(Capability::ResourceList), Offered::of(found));
    let made_from_dump = known.iter().any(|row| row.package.is_some());
    let fetcher = DocumentFetcher::new(context, Capability::ResourceList);
    let own: Vec<DocumentRow> = if made_from_dump { Vec::new() } else { known.to_vec() };
    let lists = async {
        let at = set.at.filter(|_| made_from_dump);
        match list_urls.is_empty() || (at.is_some() && !is_newer(&fetcher, &list_urls, at).await) {
            true => None,
            false => Some(lists::bring(&fetcher, &list_urls, &own).await),
        }
    };
    let seen = if made_from_dump && scope != Scope::All { known } else { &[] };
    let dump = async {
        let mut dump = dumps::bring(context, set, &offered, seen).await;
        let fit = fits(context, &dump)?;
        let wanted = fit == Fit::All;
        let manifest = Capability::ResourceDumpManifest;
        let how = Reading { download: fresh && wanted, wanted, beside: false, archived: false, manifest };
        if !dump.packages.is_empty() {
            dumps::enter(context, &mut dump, how).await?;
        }
        Ok::<_, SyncError>((dump, fit, how))
    };
    let (lists, dump) = tokio::join!(lists, dump);
    let (mut dump, fit, how) = dump?;
    let dumped = dump.at();
    let from = choose(lists.as_ref(), &dump, list_urls.is_empty());
    let lists = match (&from, lists) {
        (From::List { .. } | From::ListAlone { .. }, Some(lists)) => {
            let beside = Some(Beside { dump, how, fit, from, fresh, read: false });
            return Ok(Baseline { lists, beside, dumped, packages: None });
        }
        (_, lists) => lists.filter(|lists| fresh && !lists.read.is_empty()),
    };
    context.status.phase("reading packages");
    dumps::read(context, &mut dump, seen, how).await;
    if let Some(lists) = lists.filter(|_| !dump.failed.is_empty()) {
        // Part of a newer dump would be less than an older list.
        let beside = Some(Beside { dump, how, fit, from: From::List { as_new: false }, fresh, read: true });
        return Ok(Baseline { lists, beside, dumped, packages: None });
    }
    if fresh {
        let (name, why) = said(&from, &dump, fit);
        note(context, set, name, why).await?;
    }
    let packages = Some(dump.of_use()).filter(|_| !dump.packages.is_empty());
    Ok(Baseline { lists: dump.into_lists(), beside: None, dumped, packages })
}

/// Whether a Resource List says that it is at least as new as `at`, or does not say of when it is.
async fn is_newer(fetcher: &fetch::DocumentFetcher, urls: &[String], at: Option<Datetime>) -> bool {
    for url in urls {
        let newer = match fetcher.head(url).await {
            Ok((_, facts)) => facts.at.or(facts.lastmod).is_none_or(|list| at.is_none_or(|at| list >= at)),
            // Whoever reads all of it tells what is wrong with it.
            Err(_) => true,
        };
        if newer {
            return true;
        }
    }
    false
}

/// What says what there is.
#[derive(Debug)]
enum From {
    /// The list, and the dump beside it.
    List { as_new: bool },
    /// The list, for the dump is of no use.
    ListAlone { why: String },
    /// The dump.
    Dump { why: &'static str },
}

fn choose(lists: Option<&Lists>, dump: &Dump, no_list: bool) -> From {
    let Some(lists) = lists else {
        let why = match no_list {
            true => "it offers no Resource List",
            false => "its Resource List is older than the dump",
        };
        return From::Dump { why };
    };
    let nothing = lists.read.is_empty() && lists.unchanged.is_empty();
    let usable = !dump.packages.is_empty() || !dump.unchanged.is_empty();
    if let Some(error) = dump.failed.first().filter(|_| !usable) {
        return From::ListAlone { why: format!("the Resource Dump cannot be used: {error}") };
    }
    if nothing && !lists.failed.is_empty() {
        return From::Dump { why: "its Resource List cannot be read" };
    }
    match (lists.cursor(), dump.at()) {
        (Some(list), Some(dumped)) if list < dumped && dump.failed.is_empty() => {
            From::Dump { why: "its Resource List is older than the dump" }
        }
        (Some(list), Some(dumped)) => From::List { as_new: list <= dumped },
        _ => From::List { as_new: false },
    }
}

/// The name and the reason of a choice, for people.
fn said(from: &From, dump: &Dump, fit: Fit) -> (&'static str, String) {
    let at = dump.at().map(|at| format!(" of {at}")).unwrap_or_default();
    let count = match dump.packages.len() {
        1 => "1 package".to_owned(),
        count => format!("{count} packages"),
    };
    let size = match dump.bytes() {
        0 => String::new(),
        bytes => format!(", {:.1} MiB", bytes as f64 / f64::from(1 << 20)),
    };
    let mut why = match from {
        From::ListAlone { why } => return ("list", why.clone()),
        From::List { as_new: true } => {
            format!(
                "the Source offers a Resource Dump{at} ({count}{size}); its Resource List is as new, and says what there is"
            )
        }
        From::List { as_new: false } if dump.at().is_none() => format!(
            "the Source offers a Resource Dump ({count}{size}) that does not say of when it is; what its Resource List says otherwise comes from the resources' own URLs"
        ),
        From::List { as_new: false } => format!(
            "the Source offers a Resource Dump{at} ({count}{size}); its Resource List is newer, so what differs comes from the resources' own URLs"
        ),
        From::Dump { why } => format!("the Source offers a Resource Dump{at} ({count}{size}); {why}"),
    };
    match fit {
        Fit::All => {}
        Fit::TooLargeForCache(limit) => {
            why.push_str(&format!(
                "; it is larger than cache_size={limit}, so members are read from it as they are wanted"
            ));
        }
        Fit::TooLargeForDisk(total) => {
            why.push_str(&format!(
                "; it is larger than the {total} bytes of the cache's file system, so members are read from it as they are wanted"
            ));
        }
    }
    ("dump", why)
}

async fn note(context: &Context, set: &SetRow, from: &str, why: String) -> Result<(), SyncError> {
    tracing::info!(set = set.key, from, why, "seed");
    let (id, seed) = (set.id, Seed { from: from.to_owned(), why });
    context.write_queue.write(move |transaction| transaction.set_seed(id, &seed)).await
}
