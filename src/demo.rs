//! The embedded Source: a small ResourceSync Source on loopback, which keeps changing.
//!
//! **Owns** its resources, made from their numbers alone, the versions of those that change, and the documents
//! that describe them.
//!
//! **Promises** to be a correct Source by the specification in force: Source Description, Capability
//! List, Resource List and Resource Dump with lengths and hashes; an open Change List, closed ones in an
//! index, Change Dumps of those, and JSON and XML patches; validators, ranges and HEAD for every
//! resource and package. The same numbers always give the same bytes. It answers Memento (RFC 7089): what
//! changes has a TimeGate and a TimeMap, also once it is deleted, and its recent versions stay. It notifies of
//! every change, and of the documents it publishes, on channels of their own: it is its own WebSub hub, and offers
//! them as WebSockets too. What a notification speaks of is served already.
//!
//! **Never knows** who mirrors it, nor contacts any host but its own. It writes the dialect in force and no other.

mod answers;
mod changes;
mod hub;
mod intent;
mod life;
mod lists;
mod mementos;
mod notifications;
mod sockets;
#[cfg(test)]
mod tests;
mod versions;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use bytes::Bytes;
use data_encoding::HEXLOWER;
use parking_lot::RwLock;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

use crate::document::Datetime;

/// How many small resources there are.
const TEXTS: u64 = 2000;
/// How many of them lie in one directory.
const TEXTS_EACH: u64 = 100;
/// How many records there are that keep changing, in JSON and in XML each.
const RECORDS: u64 = 10;
/// How often something changes.
const EVERY: Duration = Duration::from_secs(1);
/// How many large resources there are, and how large they are.
const LARGE: u64 = 3;
const LARGE_SIZE: u64 = 12 << 20;
/// The largest form the hub reads.
const FORM: usize = 16 << 10;

#[derive(Clone)]
struct Resource {
    media: &'static str,
    modified: Datetime,
    sha256: String,
    make: Make,
    length: u64,
}

#[derive(Clone)]
enum Make {
    Text(u64),
    Large(u64),
    /// What changes is kept as it is.
    Bytes(Bytes),
}

impl Resource {
    fn new(media: &'static str, modified: Datetime, make: Make) -> Self {
        let bytes = make.bytes();
        Self { media, modified, sha256: hexadecimal(&bytes), make, length: bytes.len() as u64 }
    }
}

/// The Source while it runs.
pub struct Source {
    port: u16,
    resources: u64,
    /// All that the Source does ends with this.
    _end: watch::Sender<()>,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "demo::Source at {}", self.url())
    }
}

struct Content {
    base: String,
    resources: HashMap<String, Resource>,
    versions: versions::Versions,
    documents: HashMap<String, String>,
    packages: HashMap<String, Package>,
    /// Patches, and when they may go.
    patches: HashMap<String, (&'static str, Bytes)>,
    history: changes::History,
    notifications: notifications::Notifications,
}

/// A package of a dump.
struct Package {
    bytes: Bytes,
    sha256: String,
    manifest: &'static str,
}

impl Source {
    /// Starts a Source on a free port of loopback.
    ///
    /// # Errors
    /// If no port can be had, or HTTP cannot be set up.
    pub async fn start() -> std::io::Result<Self> {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let content =
            tokio::task::spawn_blocking(move || Content::new(format!("http://127.0.0.1:{port}"), beginning()))
                .await
                .map_err(std::io::Error::other)?;
        let resources = content.resources.len() as u64;
        let content = Arc::new(RwLock::new(content));
        let (end, life) = life::Life::begin();
        let hub = hub::Hub::new(Arc::clone(&content), life.clone()).map_err(std::io::Error::other)?;
        let router = router(&content, Arc::new(hub), &life);
        life.spawn(async move {
            let mut tick = tokio::time::interval(EVERY);
            tick.tick().await;
            loop {
                tick.tick().await;
                content.write().change(Datetime::now());
            }
        });
        tokio::spawn(serve(listener, router, life));
        Ok(Self { port, resources, _end: end })
    }

    /// Its origin.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    /// How many resources it had when it started.
    #[must_use]
    pub fn resources(&self) -> u64 {
        self.resources
    }
}

fn router(content: &Arc<RwLock<Content>>, hub: Arc<hub::Hub>, life: &life::Life) -> Router {
    let sockets = sockets::Sockets::new(Arc::clone(content), life.clone());
    Router::new()
        .route(notifications::HUB, post(hub::request).layer(DefaultBodyLimit::max(FORM)).with_state(hub))
        .route("/channels/{channel}", get(sockets::open).with_state(Arc::new(sockets)))
        .fallback(answers::answer)
        .with_state(Arc::clone(content))
}

/// Answers requests while the Source lives, and then those that came before.
async fn serve(listener: tokio::net::TcpListener, router: Router, life: life::Life) {
    if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(life.over()).await {
        tracing::error!(%error, "the demo Source ended");
    }
}

/// Numbers that look random, from a number.
fn scramble(seed: u64) -> u64 {
    let mut value = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

const WORDS: [&str; 24] = [
    "river", "archive", "of", "the", "and", "letter", "stone", "under", "harbour", "seven", "quiet", "map", "winter",
    "press", "copper", "lantern", "field", "notes", "on", "a", "garden", "by", "unknown", "hand",
];

fn hexadecimal(bytes: &[u8]) -> String {
    HEXLOWER.encode(&Sha256::digest(bytes))
}

impl Make {
    fn bytes(&self) -> Bytes {
        let bytes = match *self {
            Self::Bytes(ref bytes) => return bytes.clone(),
            Self::Text(number) => {
                let mut text = format!("Text {number} of the demo Source\n\n");
                for at in 0..40 + scramble(number) % 300 {
                    let word = WORDS[usize::try_from(scramble(number << 20 | at) % WORDS.len() as u64).unwrap_or(0)];
                    text.push_str(word);
                    text.push(if at % 11 == 10 { '\n' } else { ' ' });
                }
                text.push('\n');
                text.into_bytes()
            }
            Self::Large(number) => {
                (0..LARGE_SIZE / 8).flat_map(|at| scramble(number << 40 | at).to_le_bytes()).collect()
            }
        };
        bytes.into()
    }
}

/// The resources there are before anything changes.
fn beginning() -> HashMap<String, Resource> {
    let start = 1_700_000_000_i64;
    let mut resources = HashMap::new();
    let mut add = |path: String, media, make: Make, age: u64| {
        let seconds = start + i64::try_from(age).unwrap_or(0) * 3600;
        let modified = Datetime::from_nanos(seconds * 1_000_000_000);
        resources.insert(path, Resource::new(media, modified, make));
    };
    for number in 0..TEXTS {
        let path = format!("/texts/{:02}/text-{number:04}.txt", number / TEXTS_EACH);
        add(path, "text/plain", Make::Text(number), number);
    }
    for number in 0..LARGE {
        add(format!("/scans/scan-{number}.bin"), "application/octet-stream", Make::Large(number), number);
    }
    for number in 0..RECORDS {
        add(changes::json_path(number), changes::JSON, changes::json(number, 0), number);
        add(changes::xml_path(number), changes::XML, changes::xml(number, 0), number);
    }
    resources
}

impl Content {
    fn new(base: String, resources: HashMap<String, Resource>) -> Self {
        let now = Datetime::now();
        let mut content = Self {
            base,
            versions: versions::Versions::of_all(&resources),
            resources,
            documents: HashMap::new(),
            packages: HashMap::new(),
            patches: HashMap::new(),
            history: changes::History { since: now, open: Vec::new(), closed: VecDeque::new(), made: 0 },
            notifications: notifications::Notifications::since(now),
        };
        content.describe(now);
        content.tell();
        content
    }
}
