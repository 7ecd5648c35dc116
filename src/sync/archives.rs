//! Archives of lists, dumps and changes (Archives, 3 to 6): what a Source keeps of its past becomes history here, so that
//! `.versions` reaches back as far as it does.
//!
//! **Owns** what is to be read of archives, and in which order: from the oldest to the newest, lists and changes side by side.
//! A list says what was in force at its moment, changes say what happened in between; what is offered of changes today is an
//! archive, too, of what happened before the mirror was first made.
//!
//! **Promises** that nothing that is in force today changes by it, but for when it began; that what cannot be read is said, is
//! tried again, and keeps nothing else from being read; that it goes on where it was.
//!
//! **Never knows** how versions lie in time: that is the catalog's.
//!
//! Layout, each line uses only those above it:
//! - `plan`, `read`
//! - `import`

mod import;
mod plan;
mod read;

use std::sync::Arc;
use std::time::Duration;

use import::ArchiveImporter;
use plan::Plan;
use tokio::sync::watch;
use tokio::time::Instant;

use super::context::Context;
use super::error::SyncError;
use super::waits::{AGAIN, until};
use crate::catalog::{Past, SetRow};
use crate::document::Datetime;

/// How often it is looked for what has come to archives.
const LOOKED: Duration = Duration::from_secs(86_400);

/// What came of reading archives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Came {
    documents: u64,
    failed: u64,
    versions: u64,
    /// Whether there is a set that nothing is known of yet, or one whose archives could not be looked at.
    early: bool,
}

/// Brings what archives have into the history, where all of that is kept: when it is mounted, when somebody asks for a
/// sync, and once a day; what failed is tried again, ever later. Runs until it is dropped.
pub(super) async fn reach_back(context: Arc<Context>, mut asked: watch::Receiver<()>) {
    if !context.keeps_all() || context.config.offline {
        return;
    }
    let mut retry = AGAIN;
    loop {
        asked.mark_unchanged();
        let again = match read_archives(&context).await {
            Ok(Came { failed: 0, early: false, .. }) => {
                retry = AGAIN;
                LOOKED
            }
            Ok(_) => retry,
            Err(error) => {
                context.status.error(&format!("archives: {error}"));
                retry
            }
        };
        tokio::select! {
            () = until(Some(Instant::now() + again)) => retry = (retry * 2).min(LOOKED),
            _ = asked.changed() => retry = AGAIN,
        }
    }
}

async fn read_archives(context: &Arc<Context>) -> Result<Came, SyncError> {
    let mut all = Came::default();
    context.status.read_archives(|archives| archives.left = 0);
    for set in context.sets()? {
        match of_set(context, &set).await {
            Ok(came) => {
                all.documents += came.documents;
                all.failed += came.failed;
                all.versions += came.versions;
                all.early |= came.early;
            }
            Err(error) => {
                context.status.error(&format!("archives of {}: {error}", set.key));
                all.early = true;
            }
        }
    }
    if all.documents > 0 {
        let Came { documents, versions, failed, .. } = all;
        tracing::info!(documents, versions, failed, "archives were read");
    }
    context.status.read_archives(|archives| {
        archives.left = 0;
        archives.looked = Some(Datetime::now()).filter(|_| !all.early).or(archives.looked);
    });
    Ok(all)
}

/// Brings what the archives of one set have into its history.
async fn of_set(context: &Arc<Context>, set: &SetRow) -> Result<Came, SyncError> {
    let reach = context.readers.ask(|reader| reader.reach(set.id))?;
    let Some(plan) = Plan::of(context, set, &reach).await? else { return Ok(Came { early: true, ..Came::default() }) };
    plan.failed.iter().for_each(|error| context.status.error(&error.to_string()));
    let total = (plan.snapshots.len() + plan.changes.len()) as u64;
    context.status.read_archives(|archives| archives.left += total);
    let mut past = Past::new(set.id, set.directory, &reach);
    past.expect(plan.snapshots.iter().filter_map(|planned| planned.begin));
    let mut came = Came { documents: total, failed: plan.failed.len() as u64, ..Came::default() };
    let indexes = plan.indexes.clone();
    let mut weaver = ArchiveImporter::new(context, set, past, plan);
    let read = weaver.read().await;
    // Whatever came of it, what is in the history is seen.
    weaver.tell(|_| Ok(())).await?;
    read?;
    came.failed += weaver.failed;
    came.versions = weaver.versions();
    if came.failed == 0 {
        let set = set.id;
        context
            .write_queue
            .write(move |transaction| indexes.iter().try_for_each(|row| transaction.put_archived(set, row)))
            .await?;
    }
    Ok(came)
}
