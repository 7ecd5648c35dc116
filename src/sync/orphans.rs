//! What a process that did not come to its end left in the store: content that came there, and of which nobody wrote down
//! that it did. Nothing ever reads it, and nothing but this lets it go.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::context::Context;
use super::error::SyncError;
use crate::store::Object;

/// How much older content must be than this process: what is told of files is in whole seconds.
const MARGIN: Duration = Duration::from_secs(2);

/// Lets content go that is nobody's, and came before this process was `opened`. What this process brought is left alone: it may
/// be on its way into the catalog.
pub(super) async fn delete_orphans(context: Arc<Context>, opened: SystemTime) {
    if !context.write_queue.was_cut_off() {
        return;
    }
    let (mut files, mut bytes) = (0_u64, 0_u64);
    for folder in 0..=u8::MAX {
        match leftovers(&context, folder, opened - MARGIN).await {
            Ok((more, larger)) => (files, bytes) = (files + more, bytes + larger),
            Err(error) => {
                return context.status.error(&format!("cannot let go of what was left in the cache: {error}"));
            }
        }
    }
    if files > 0 {
        tracing::info!(files, bytes, "let content go that was nobody's");
    }
}

/// The same of one folder; returns how many files and bytes it was.
async fn leftovers(context: &Context, folder: u8, since: SystemTime) -> Result<(u64, u64), SyncError> {
    let (store, readers) = (Arc::clone(&context.store), Arc::clone(&context.readers));
    let look = tokio::task::spawn_blocking(move || -> Result<Vec<Object>, SyncError> {
        let all = store.objects(folder)?;
        let mut nobodys = Vec::new();
        for object in all.into_iter().filter(|object| object.came < since) {
            if !readers.ask(|reader| reader.has_object(&object.sha256))? {
                nobodys.push(object);
            }
        }
        Ok(nobodys)
    });
    let nobodys = look.await??;
    match nobodys.is_empty() {
        true => Ok((0, 0)),
        // The same content may come anew meanwhile.
        false => context.write_queue.delete_orphans(nobodys).await,
    }
}
