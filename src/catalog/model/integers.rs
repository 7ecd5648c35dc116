//! Numbers as SQLite has them.

/// A number as SQLite keeps it.
pub(in crate::catalog) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
