//! The row of a set as it is now.

use super::{Engine, SyncError};
use crate::catalog::SetRow;
use crate::document::Datetime;

/// When the lists of a set were read or found unchanged last.
pub(super) fn listed_at(engine: &Engine, row: &SetRow) -> Result<Option<Datetime>, SyncError> {
    Ok(engine.readers.ask(|reader| reader.listed(row.id))?.flatten())
}

pub(super) fn reload(engine: &Engine, row: SetRow) -> Result<SetRow, SyncError> {
    Ok(engine.sets()?.into_iter().find(|set| set.id == row.id).unwrap_or(row))
}
