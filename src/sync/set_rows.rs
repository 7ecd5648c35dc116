//! The row of a set as it is now.

use super::SyncError;
use super::context::Context;
use crate::catalog::SetRow;
use crate::document::Datetime;

/// When the lists of a set were read or found unchanged last.
pub(super) fn listed_at(context: &Context, row: &SetRow) -> Result<Option<Datetime>, SyncError> {
    Ok(context.readers.ask(|reader| reader.listed(row.id))?.flatten())
}

pub(super) fn reload(context: &Context, row: SetRow) -> Result<SetRow, SyncError> {
    Ok(context.sets()?.into_iter().find(|set| set.id == row.id).unwrap_or(row))
}
