//! What the kernel and the commands make of a mirror, on mounts of the program under test.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that panics has failed")]

#[path = "../support/mod.rs"]
mod support;

mod archives;
mod attacks;
mod audit;
mod bounds;
mod channels;
mod confined;
mod content;
mod contract;
mod drafts;
mod dumps;
mod faults;
mod filters;
mod hang;
mod histories;
mod inspect;
mod instep;
mod listing;
mod log;
mod mirror;
mod moments;
mod mounting;
mod pushed;
mod reach;
mod related;
mod requests;
mod trees;
mod versions;
