//! Talking to a Source: discovery, HTTP, mirrors, limits.
//!
//! **Owns** every connection that is made to a Source: which URLs may be asked, with which credentials,
//! how often, how fast, for how long, and how much of an answer is taken.
//!
//! **Assumes** that servers lie, stall, redirect for ever and send what nobody asked for.
//!
//! **Promises** that each request ends: connecting, the head of the answer and each stretch of its body
//! have a deadline, and a body that crawls is given up; that credentials reach the host they are for
//! and no other, through no redirect; that a Source on a public address leads to no private one; that no more connections are made to a host, and in all, than allowed; that an
//! error says which URL, what was wrong, and what can be done.
//!
//! **Never knows** names, versions, or what is in the mirror.
//!
//! Layout, each line uses only those above it:
//! - `compress`, `credentials`, `error`, `html`, `links`, `tls`, `validators`
//! - `pace`, `pages`, `reach`
//! - `client`
//! - `content`, `discovery`, `push`

mod client;
mod compress;
mod content;
mod credentials;
mod discovery;
mod error;
mod html;
mod links;
mod pace;
mod pages;
mod push;
mod reach;
#[cfg(feature = "xmpp")]
mod tls;
mod validators;

pub use client::{Answer, Asked, Client, Options};
pub use content::{Expected, Form, Hasher, Sums, decode, locations, verify};
pub use credentials::{Account, Credentials};
pub use discovery::{CapabilityDocument, Discovery, FoundSet, discover};
pub use error::{SourceError, Trouble};
pub use links::{LinkValue, parse_link_header};
pub use pages::Route;
pub use push::Posted;
pub use reach::{Allowed, Reach};
pub use validators::Validators;
