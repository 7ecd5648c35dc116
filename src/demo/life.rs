//! How long what the demo Source began goes on.

use tokio::sync::watch;

/// The life of the Source, as its tasks know it: it is over when the sender is dropped, which never sends anything.
#[derive(Clone)]
pub(super) struct Life(watch::Receiver<()>);

impl Life {
    /// A life, and what ends it when dropped.
    pub(super) fn begin() -> (watch::Sender<()>, Self) {
        let (end, life) = watch::channel(());
        (end, Self(life))
    }

    /// Waits for the end.
    pub(super) async fn over(mut self) {
        let _ = self.0.changed().await;
    }

    /// Begins a task that goes on no longer than the Source.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let over = self.clone().over();
        tokio::spawn(async move {
            tokio::select! {
                () = over => {}
                () = task => {}
            }
        });
    }
}
