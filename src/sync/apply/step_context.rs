//! What the steps of the writer work with besides the catalog.

use std::sync::Arc;

use crate::path::Mapper;
use crate::store::Store;
use crate::sync::context::Context;
use crate::sync::status::Status;

/// What a step works with besides the catalog.
#[derive(Clone, Debug)]
pub(in crate::sync) struct StepContext {
    pub(super) mapper: Arc<Mapper>,
    pub(super) status: Arc<Status>,
    pub(super) store: Arc<Store>,
}

impl StepContext {
    pub(in crate::sync) fn of(context: &Context) -> Self {
        Self {
            mapper: Arc::clone(&context.mapper),
            status: Arc::clone(&context.status),
            store: Arc::clone(&context.store),
        }
    }
}
