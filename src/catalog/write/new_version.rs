//! A version to be inserted.

use crate::catalog::model::record::Record;

/// A version to be written.
pub(in crate::catalog) struct NewVersion<'r> {
    pub(in crate::catalog) id: i64,
    pub(in crate::catalog) name: i64,
    pub(in crate::catalog) record: &'r Record,
    pub(in crate::catalog) media: Option<i64>,
    /// The content of the version before it, and its size, where the bytes are the same.
    pub(in crate::catalog) object: Option<i64>,
    pub(in crate::catalog) size: Option<i64>,
}
