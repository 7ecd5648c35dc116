//! What ResourceSync documents say: records, a streaming reader, the dialects.
//!
//! **Owns** the vocabulary (sitemap elements, `rs:md`, `rs:ln`, W3C datetimes, hashes) and the rules
//! by which a document that is not quite right is still read.
//!
//! **Assumes** nothing of its input: any bytes, from anyone.
//!
//! **Promises** constant memory whatever the document's size, no panic, a place (URL, line, column)
//! for every error, and a warning for each thing that was tolerated. Values are kept as written; the
//! typed reading of them is [`Facts`]. A document is known to be whole only when [`Reader::next`] has
//! returned `Ok(None)`: whoever infers a deletion from absence must have seen that.
//!
//! **Never knows** where the bytes came from, what a file system is, or what was synced before.
//!
//! Layout, each line uses only those above it:
//! - `hash`, `input`, `names`, `record`, `time`
//! - `facts`, `plain`
//! - `reader`

mod facts;
mod hash;
mod input;
mod names;
mod plain;
mod reader;
mod record;
mod time;

pub use facts::{Change, Facts};
pub use hash::{Algorithm, Digest, Hashes};
pub use input::{Limits, looks_like_html};
pub use reader::{DocumentError, Reader};
pub use record::{Attributes, Capability, Dialect, Entry, Head, Kind, Link, Warnings, relation};
pub use time::Datetime;
