//! Packages of dumps: brought here as a whole, or in the parts that somebody wants.
//!
//! Each package is one sparse file. A download fills it from the front; whoever needs a part that is
//! not there yet waits where the download will be soon, and else fetches that part aside, so that the
//! directory of a package and any member can be read long before all of it is here. A server without
//! ranges makes everybody wait for the download.
//!
//! Layout, each line uses only those above it:
//! - `members`, `opened`, `recast`
//! - `download`
//! - `needed`, `parts`

mod download;
pub(super) mod members;
mod needed;
mod opened;
mod parts;
mod recast;

pub(super) use download::{count, note_all, start};
pub(super) use needed::{complete_what_is_needed, tidy};
pub(super) use opened::{failure, forget, get, settled, take, touch};
pub(super) use parts::{bring_member, find_one};
