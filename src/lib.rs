//! A remote ResourceSync Source (ANSI/NISO Z39.99) as an ordinary read-only directory.
//!
//! Data flows one way: a Source's documents and bytes come in, become rows and objects, and go out
//! through FUSE. Each room opens with what it owns, assumes, promises and must never know; who may use
//! whom:
//!
//! | room | may use |
//! | --- | --- |
//! | [`bounds`] | nothing of ours; every room may use it |
//! | [`printable`] | nothing of ours; every room may use it |
//! | [`document`] | nothing of ours |
//! | [`path`] | nothing of ours |
//! | [`patch`] | nothing of ours |
//! | [`catalog`] | [`document`], [`path`] |
//! | [`store`] | nothing of ours |
//! | [`source`] | [`document`] |
//! | [`versions`] | [`source`], [`document`] |
//! | [`sync`] | all above |
//! | [`notify`] | [`source`], [`document`] for times, and the engine's door |
//! | [`fs`] | [`catalog`], [`document`] for times, [`path`] for names, and "bring me this version"; not HTTP |
//! | [`demo`] | [`document`] |
//! | [`users`] | nothing of ours |
//! | [`options`] | [`users`], and the types of what it sets |
//! | [`mirror`] | all above |
//! | [`cli`] | all |
//!
//! # Four walks
//!
//! One resource of a Change List, from bytes to a row:
//! 1. `sync::schedule` decides that changes are followed; `sync::apply::changes` begins.
//! 2. `sync::documents::follow` chooses the documents; `fetch` has [`source`] request them and spools them in [`store`].
//! 3. `sync::documents::order` reads every entry once with [`document`], and finds the order of time.
//! 4. `sync::apply::step` reads the entries in that order; [`path`] maps each URI to a path.
//! 5. `catalog::write::changes` writes the version, in one transaction that `sync::writer::write_queue` runs.
//!
//! One read, from the kernel to the byte:
//! 1. `fs::adapter` takes the request, and `fs::tree` answers it at once if the content is here.
//! 2. Otherwise `mirror::contents` hands it to `Engine::read`, so that the dispatch thread does not wait.
//! 3. `sync::content::fetch` joins or starts the flight of this version, and chooses its locations.
//! 4. `sync::content::download` and `sync::transfer::sparse` write what [`source`] receives to a file of [`store`], and verify it.
//! 5. The object is noted by `sync::writer::write_queue`; `fs::adapter` replies from the file.
//!
//! One notification, from the socket to the kernel:
//! 1. `notify::listener` (WebSub), `notify::websocket` or `notify::xmpp` receives the body and verifies who sent it.
//! 2. `Inbox::deliver` of `sync::notifications::queue` writes it to the catalog before the hub gets its answer.
//! 3. `Inbox::attend` takes what joins (`sync::notifications::coverage`), and `sync::apply::changes` applies it.
//! 4. The commit returns what changed; the write queue announces it as [`catalog::News`].
//! 5. `fs::invalidate` tells the kernel which names and directories to forget.
//!
//! One option, from the command line to its effect (`verify=`):
//! 1. [`options`] defines its name, default and help, and parses it.
//! 2. `cli::mount` passes it to the daemon with the other options.
//! 3. [`mirror`] builds [`sync::Config`] and `source::Options` from them.
//! 4. The engine keeps it in its context, where `sync::content::download` reads it.
//!
//! Everything but [`fs`] and [`cli`] is tested without a mount.
//!
//! Layout, each line uses only those above it:
//! - `bounds`, `path`, `printable`, `users`
//! - `document`, `patch`, `store`
//! - `catalog`, `source`
//! - `demo`, `fs`, `versions`
//! - `sync`
//! - `notify`, `options`
//! - `mirror`
//! - `cli`

// Tests state what must hold; there a panic is the point.
// What is written for a person goes through one printer (`cli::show`), which makes foreign text harmless.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod bounds;
pub mod catalog;
pub mod cli;
pub mod demo;
pub mod document;
pub mod fs;
pub mod mirror;
pub mod notify;
pub mod options;
pub mod patch;
pub mod path;
pub mod printable;
pub mod source;
pub mod store;
pub mod sync;
pub mod users;
pub mod versions;
