//! How long tasks in the background wait.

use std::time::Duration;

use tokio::time::Instant;

/// When to try again what failed because the Source was away.
pub(super) const AGAIN: Duration = Duration::from_secs(60);

/// Waits until a moment, or for ever.
pub(super) async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
