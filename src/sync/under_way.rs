//! Work that is done once for a version, however many want it at the same time.

use crate::catalog::VersionId;
use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OnceCell;

/// What is being done for versions. Cheap to clone. The lock is held for a look or an assignment.
#[derive(Clone, Debug)]
pub(super) struct UnderWay<T>(Arc<Mutex<HashMap<VersionId, Arc<OnceCell<T>>>>>);

impl<T> Default for UnderWay<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T: Clone + Send + Sync + 'static> UnderWay<T> {
    /// Does `work` for a version, or waits for whoever does it already. It goes on if nobody waits any more. `None` if it panics.
    pub(super) async fn once(&self, version: VersionId, work: impl Future<Output = T> + Send + 'static) -> Option<T> {
        let own = self.clone();
        let cell = Arc::clone(own.0.lock().entry(version).or_default());
        let task = tokio::spawn(async move {
            let done = cell.get_or_init(|| work).await.clone();
            let mut known = own.0.lock();
            // Another may have begun since.
            if known.get(&version).is_some_and(|known| Arc::ptr_eq(known, &cell)) {
                known.remove(&version);
            }
            done
        });
        task.await.ok()
    }
}
