//! From the file system's questions to the engine's answers.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::report::Reporter;
use crate::document::Datetime;
use crate::fs::{Asked, Contents, Then};
use crate::store::Body;
use crate::sync::{self, Engine};

/// The engine, as the file system sees it.
pub(super) struct Bridge {
    pub(super) engine: Arc<Engine>,
    pub(super) reporter: Arc<Reporter>,
    pub(super) runtime: Handle,
}

impl Contents for Bridge {
    fn ready(&self, version: i64) -> Option<Body> {
        self.engine.reading(version, &self.runtime).map(|ready| ready.body)
    }

    fn read(&self, version: i64, offset: u64, len: u64, then: Then<Body>) {
        let engine = Arc::clone(&self.engine);
        self.runtime.spawn(async move {
            let found = engine.read(version, offset, len).await.map(|ready| ready.body).map_err(|_| ());
            // Replying reads the file.
            tokio::task::spawn_blocking(move || then(found));
        });
    }

    fn size(&self, version: i64, then: Then<u64>) {
        let engine = Arc::clone(&self.engine);
        self.runtime.spawn(async move { then(engine.size(version).await.map_err(|_| ())) });
    }

    fn expect_sizes(&self, versions: Vec<i64>) {
        let _runtime = self.runtime.enter();
        self.engine.expect_sizes(versions);
    }

    fn verified(&self, version: i64) -> Option<bool> {
        if self.engine.streaming(version) {
            return Some(false);
        }
        self.engine.ready(version).map(|ready| ready.verified)
    }

    fn history(&self, resource: i64, moment: Option<Datetime>, then: Box<dyn FnOnce(bool) + Send>) {
        let engine = Arc::clone(&self.engine);
        self.runtime.spawn(async move {
            let asked = engine.history(resource, moment).await;
            // The answer asks the catalog.
            tokio::task::spawn_blocking(move || then(asked));
        });
    }

    fn aside(&self, what: Box<dyn FnOnce() + Send>) {
        self.runtime.spawn_blocking(what);
    }

    fn asked(&self, resource: i64) -> Asked {
        let sync::Asked { as_of, when, trouble } = self.engine.asked(resource);
        Asked { as_of, when, trouble }
    }

    fn control(&self, name: &str) -> Option<Vec<u8>> {
        match name {
            "status.json" => {
                let mut text = serde_json::to_vec_pretty(&self.reporter.report()).unwrap_or_default();
                text.push(b'\n');
                Some(text)
            }
            "metrics" => Some(self.reporter.report().metrics().into_bytes()),
            _ => None,
        }
    }

    fn room(&self) -> (u64, u64) {
        let available = self.engine.store().room().map(|room| room.available).unwrap_or(0);
        (self.engine.stored_bytes(), available)
    }
}
