//! The embedded Source: a small ResourceSync Source on loopback, which keeps changing.
//!
//! **Owns** its resources, made from their numbers alone, and the documents that describe them.
//!
//! **Promises** to be a correct Source by the specification in force: Source Description, Capability
//! List, Resource List and Resource Dump with lengths and hashes; an open Change List, closed ones in an
//! index, Change Dumps of those, and JSON and XML patches; validators, ranges and HEAD for every
//! resource and package. The same numbers always give the same bytes.
//!
//! **Never knows** who mirrors it. It writes the dialect in force and no other.

mod changes;

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Method, Response, StatusCode, Uri, header};
use bytes::Bytes;
use quick_xml::escape::escape;
use sha2::{Digest as _, Sha256};
use zip::CompressionMethod;
use zip::write::{SimpleFileOptions, ZipWriter};

use crate::document::{Capability, Datetime};

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

/// The packages of the dump: where they are, where copies of their manifests are, and what is in them.
const PACKAGES: [(&str, &str, &str); 2] = [
    ("/dump/texts.zip", "/dump/texts-manifest.xml", "/texts/"),
    ("/dump/scans.zip", "/dump/scans-manifest.xml", "/scans/"),
];

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
    server: tokio::task::JoinHandle<()>,
    changing: tokio::task::JoinHandle<()>,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "demo::Source at {}", self.url())
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.server.abort();
        self.changing.abort();
    }
}

struct Content {
    base: String,
    resources: HashMap<String, Resource>,
    documents: HashMap<String, String>,
    packages: HashMap<String, Package>,
    /// Patches, and when they may go.
    patches: HashMap<String, (&'static str, Bytes)>,
    history: changes::History,
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
    /// If no port can be had.
    pub async fn start() -> std::io::Result<Self> {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let content = tokio::task::spawn_blocking(move || Content::make(format!("http://127.0.0.1:{port}")))
            .await
            .map_err(std::io::Error::other)?;
        let resources = content.resources.len() as u64;
        let content = Arc::new(RwLock::new(content));
        let changing = tokio::spawn({
            let content = Arc::clone(&content);
            async move {
                let mut tick = tokio::time::interval(EVERY);
                tick.tick().await;
                loop {
                    tick.tick().await;
                    content.write().unwrap_or_else(PoisonError::into_inner).change();
                }
            }
        });
        let router = Router::new().fallback(answer).with_state(content);
        let server = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::error!(%error, "the demo Source ended");
            }
        });
        Ok(Self { port, resources, server, changing })
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
    Sha256::digest(bytes).iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
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

impl Content {
    fn make(base: String) -> Self {
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
        let now = Datetime::now();
        let mut content = Self {
            base,
            resources,
            documents: HashMap::new(),
            packages: HashMap::new(),
            patches: HashMap::new(),
            history: changes::History { since: now, open: Vec::new(), closed: VecDeque::new(), made: 0 },
        };
        content.describe(now);
        content.tell();
        content
    }

    fn describe(&mut self, now: Datetime) {
        let description =
            self.document(Capability::Description, "", None, &[("/capabilitylist.xml", Capability::CapabilityList)]);
        let capabilities = self.document(
            Capability::CapabilityList,
            "",
            Some("/.well-known/resourcesync"),
            &[
                ("/resourcelist.xml", Capability::ResourceList),
                ("/resourcedump.xml", Capability::ResourceDump),
                ("/changelist.xml", Capability::ChangeList),
                ("/changedump.xml", Capability::ChangeDump),
            ],
        );
        let list = self.list(Capability::ResourceList, now, "/");
        self.documents.insert("/.well-known/resourcesync".to_owned(), description);
        self.documents.insert("/capabilitylist.xml".to_owned(), capabilities);
        self.documents.insert("/resourcelist.xml".to_owned(), list);
        for (path, manifest, below) in PACKAGES {
            let described = self.list(Capability::ResourceDumpManifest, now, below);
            match self.pack(&described, below) {
                Ok(bytes) => {
                    let sha256 = hexadecimal(&bytes);
                    self.packages.insert(path.to_owned(), Package { bytes: bytes.into(), sha256, manifest });
                    self.documents.insert(manifest.to_owned(), described);
                }
                Err(error) => tracing::error!(%error, path, "the demo Source goes without this package"),
            }
        }
        let dump = self.dump(now);
        self.documents.insert("/resourcedump.xml".to_owned(), dump);
    }

    fn head(&self, capability: Capability, attributes: &str, up: Option<&str>) -> String {
        let mut text = String::from(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\"\n        \
             xmlns:rs=\"http://www.openarchives.org/rs/terms/\">\n",
        );
        if let Some(up) = up {
            let _ = writeln!(text, "  <rs:ln rel=\"up\" href=\"{}{up}\"/>", self.base);
        }
        let _ = writeln!(text, "  <rs:md capability=\"{capability}\"{attributes}/>");
        text
    }

    fn document(
        &self,
        capability: Capability,
        attributes: &str,
        up: Option<&str>,
        entries: &[(&str, Capability)],
    ) -> String {
        let mut text = self.head(capability, attributes, up);
        for (path, capability) in entries {
            let _ = writeln!(text, "  <url><loc>{}{path}</loc><rs:md capability=\"{capability}\"/></url>", self.base);
        }
        text.push_str("</urlset>\n");
        text
    }

    /// The paths of the resources below one, in order.
    fn below(&self, prefix: &str) -> Vec<&String> {
        let mut paths: Vec<&String> = self.resources.keys().filter(|path| path.starts_with(prefix)).collect();
        paths.sort();
        paths
    }

    /// A Resource List, or the manifest of a package.
    fn list(&self, capability: Capability, at: Datetime, prefix: &str) -> String {
        let mut text = self.head(capability, &format!(" at=\"{at}\""), Some("/capabilitylist.xml"));
        for path in self.below(prefix) {
            let Resource { media, modified, sha256, length, .. } = &self.resources[path];
            let loc = format!("{}{path}", self.base);
            let place = match capability {
                Capability::ResourceDumpManifest => format!(" path=\"/resources{path}\""),
                _ => String::new(),
            };
            let _ = writeln!(
                text,
                "  <url><loc>{}</loc><lastmod>{modified}</lastmod><rs:md hash=\"sha-256:{sha256}\" length=\"{length}\" type=\"{media}\"{place}/></url>",
                escape(loc.as_str()),
            );
        }
        text.push_str("</urlset>\n");
        text
    }

    fn pack(&self, manifest: &str, prefix: &str) -> zip::result::ZipResult<Vec<u8>> {
        let deflated = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
        let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
        let mut package = ZipWriter::new(std::io::Cursor::new(Vec::new()));
        package.start_file("manifest.xml", deflated)?;
        package.write_all(manifest.as_bytes())?;
        for path in self.below(prefix) {
            let make = &self.resources[path].make;
            let options = if matches!(make, Make::Text(_)) { deflated } else { stored };
            package.start_file(format!("resources{path}"), options)?;
            package.write_all(&make.bytes())?;
        }
        Ok(package.finish()?.into_inner())
    }

    fn dump(&self, at: Datetime) -> String {
        let mut text = self.head(Capability::ResourceDump, &format!(" at=\"{at}\""), Some("/capabilitylist.xml"));
        for (path, _, _) in PACKAGES {
            let Some(Package { bytes, sha256, manifest }) = self.packages.get(path) else { continue };
            let (base, length) = (&self.base, bytes.len());
            let _ = writeln!(
                text,
                "  <url><loc>{base}{path}</loc><rs:md hash=\"sha-256:{sha256}\" length=\"{length}\" type=\"application/zip\" at=\"{at}\"/>\
                 <rs:ln rel=\"contents\" href=\"{base}{manifest}\" type=\"application/xml\"/></url>",
            );
        }
        text.push_str("</urlset>\n");
        text
    }
}

async fn answer(
    State(content): State<Arc<RwLock<Content>>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Response<Body> {
    if method != Method::GET && method != Method::HEAD {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered here\n");
    }
    let path = uri.path();
    let content = content.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(document) = content.documents.get(path) {
        let tag = format!("\"{}\"", &hexadecimal(document.as_bytes())[..16]);
        return send(&method, &headers, "application/xml", &tag, document.clone().into());
    }
    if let Some(package) = content.packages.get(path) {
        let tag = format!("\"{}\"", &package.sha256[..16]);
        return send(&method, &headers, "application/zip", &tag, package.bytes.clone());
    }
    if let Some((media, patch)) = content.patches.get(path) {
        let tag = format!("\"{}\"", &hexadecimal(patch)[..16]);
        return send(&method, &headers, media, &tag, patch.clone());
    }
    match content.resources.get(path).cloned() {
        Some(Resource { media, make, sha256, .. }) => {
            // Large ones take a moment to make.
            drop(content);
            send(&method, &headers, media, &format!("\"{}\"", &sha256[..16]), make.bytes())
        }
        None => plain(StatusCode::NOT_FOUND, "there is no such resource\n"),
    }
}

fn plain(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response
}

/// A body with its validator: whole, a part of it, or the word that it did not change.
fn send(method: &Method, headers: &HeaderMap, media: &str, tag: &str, bytes: Bytes) -> Response<Body> {
    let field = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let mut builder = Response::builder()
        .header(header::CONTENT_TYPE, media)
        .header(header::ETAG, tag)
        .header(header::ACCEPT_RANGES, "bytes");
    if field(header::IF_NONE_MATCH).is_some_and(|tags| tags.split(',').any(|one| one.trim() == tag)) {
        builder = builder.status(StatusCode::NOT_MODIFIED);
        return builder.body(Body::empty()).unwrap_or_default();
    }
    let total = bytes.len();
    let same = field(header::IF_RANGE).is_none_or(|known| known == tag);
    let range = field(header::RANGE).filter(|_| same).and_then(|range| parse_range(range, total));
    let part = match range {
        Some((begin, end)) => {
            builder = builder
                .status(StatusCode::PARTIAL_CONTENT)
                .header(header::CONTENT_RANGE, format!("bytes {begin}-{}/{total}", end - 1));
            bytes.slice(begin..end)
        }
        None => bytes,
    };
    builder = builder.header(header::CONTENT_LENGTH, part.len());
    let body = if *method == Method::HEAD { Body::empty() } else { Body::from(part) };
    builder.body(body).unwrap_or_default()
}

/// `bytes=first-last`, as a range without its end; none where it cannot be satisfied.
fn parse_range(text: &str, total: usize) -> Option<(usize, usize)> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let begin: usize = first.parse().ok()?;
    let end = if last.is_empty() { total } else { last.parse::<usize>().ok()?.checked_add(1)?.min(total) };
    (begin < end).then_some((begin, end))
}
