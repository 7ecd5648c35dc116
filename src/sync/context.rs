//! What all parts of the engine work with.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedMutexGuard, mpsc};

use super::config::Config;
use super::error::SyncError;
use super::status::Status;
use super::transfer::package::{Downloads, NewMembers};
use super::writer::open_files::OpenFiles;
use super::writer::write_queue::WriteQueue;
use crate::catalog::{Pool, SetRow};
use crate::path::Mapper;
use crate::source::{Client, Discovery};
use crate::store::Store;

/// New members of a package, and the turn of going through it.
pub(super) type Unchecked = (NewMembers, OwnedMutexGuard<()>);

/// What all parts of the engine work with: what was asked for, the way to the Source, the cache, and what is being done.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) config: Config,
    pub(super) client: Arc<Client>,
    pub(super) store: Arc<Store>,
    pub(super) readers: Arc<Pool>,
    pub(super) mapper: Arc<Mapper>,
    pub(super) write_queue: WriteQueue,
    pub(super) status: Arc<Status>,
    pub(super) files: OpenFiles,
    pub(super) downloads: Downloads,
    /// Members that the background is to check.
    pub(super) unchecked: mpsc::UnboundedSender<Unchecked>,
}

impl Context {
    /// The sets that are mirrored.
    pub(super) fn sets(&self) -> Result<Vec<SetRow>, SyncError> {
        Ok(self.readers.ask(|reader| reader.sets())?)
    }

    /// Whether all history is kept, also that which archives have.
    pub(super) fn keeps_all(&self) -> bool {
        self.config.keep == Duration::MAX
    }

    /// Finds out what the Source offers.
    pub(super) async fn discover(&self) -> Result<Discovery, SyncError> {
        Ok(crate::source::discover(&self.client, &self.config.source).await?)
    }

    /// Has the background check members that versions were just given.
    pub(super) fn check_members(&self, new: NewMembers) {
        // Taken here: the background's pass over the package comes after this.
        let Ok(turn) = Arc::clone(&new.package.looking).try_lock_owned() else { return };
        // Without a background, the first pass of the next one checks them.
        let _ = self.unchecked.send((new, turn));
    }
}
