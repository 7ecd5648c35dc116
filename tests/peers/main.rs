//! Mirrors of what third-party programs serve and write.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that panics has failed")]

#[path = "../support/mod.rs"]
mod support;

mod channels;
mod nginx;
mod patches;
mod pywb;
mod warcs;
mod websocket;
mod websub;
