//! Mirrors of what other programs serve and write, and those programs by themselves: they do what these tests count on.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that panics has failed")]

#[path = "../support/mod.rs"]
mod support;

mod channels;
mod nginx;
mod patches;
mod pywb;
mod servers;
mod warcs;
mod websocket;
mod websub;
