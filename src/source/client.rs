//! HTTP, with a deadline on everything.

use std::borrow::Cow;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Response, StatusCode};
use url::Url;

use super::credentials::Credentials;
use super::error::{SourceError, Trouble};
use super::pace::{Pace, Permit};
use super::pages::Memory;
use super::reach::Reach;
use super::validators::{Validators, text};
use crate::bounds::{self, Bounds};

type Result<T> = std::result::Result<T, SourceError>;

/// How a [`Client`] behaves.
#[derive(Debug)]
pub struct Options {
    /// The longest wait for the head of an answer, and for each next stretch of its body.
    pub timeout: Duration,
    /// The most connections to one host.
    pub connections: usize,
    /// The most bytes a second, in all.
    pub rate: Option<u64>,
    /// Certificates to trust beside the system's, in PEM.
    pub ca: Option<PathBuf>,
    /// Who we are, to whom.
    pub credentials: Credentials,
    /// Where connections may lead.
    pub reach: Reach,
    /// How much is taken of what servers send, and asked of them.
    pub bounds: Bounds,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30),
            connections: 12,
            rate: None,
            ca: None,
            credentials: Credentials::default(),
            reach: Reach::anywhere(),
            bounds: Bounds::default(),
        }
    }
}

/// A request.
#[derive(Clone, Debug, Default)]
pub struct Asked<'a> {
    /// Whether only the head of the answer is wanted.
    pub head: bool,
    /// To be told only of a change.
    pub validators: Option<&'a Validators>,
    /// First byte, and the last or none for all that follow.
    pub range: Option<(u64, Option<u64>)>,
    /// What the range must be a part of.
    pub if_range: Option<&'a str>,
    /// The content codings that are understood; identity alone, if not given.
    pub accept_encoding: Option<&'a str>,
    /// It is not what the host is there for: that it is not answered says nothing of others.
    pub aside: bool,
    /// The media types that are preferred (`Accept`).
    pub accept: Option<&'a str>,
    /// It is a document: its bytes count for the rate, but do not queue behind those of content.
    pub document: bool,
    /// Caches on the way are to ask the server itself (RFC 9111, 5.2.1.4).
    pub fresh: bool,
    /// Somebody waits: nothing, retries included, goes on longer than this without progress.
    pub patience: Option<Duration>,
    /// The moment that a TimeGate is asked about, as `Accept-Datetime` wants it (RFC 7089, 2.1.1).
    pub accept_datetime: Option<&'a str>,
    /// A memento (RFC 7089, 4.5) is an answer whatever its status: a redirect that was archived is not followed.
    pub memento: bool,
}

/// HTTP to Sources.
#[derive(Debug)]
pub struct Client {
    http: reqwest::Client,
    /// For connections that become something else, which HTTP/2 does not have.
    upgrading: OnceLock<reqwest::Client>,
    options: Options,
    /// What `ca` has: its file may be out of reach later.
    authorities: Vec<reqwest::Certificate>,
    /// The same, for other protocols.
    #[cfg(feature = "xmpp")]
    trusted: Vec<rustls::pki_types::CertificateDer<'static>>,
    timeout_millis: AtomicU64,
    pace: Pace,
    memory: Memory,
}

/// An answer whose body has not been read yet.
#[derive(Debug)]
pub struct Answer {
    /// Where it came from, after redirects.
    pub url: Url,
    /// The status: 200, 206 or 304; another only as [`Asked::memento`] says.
    pub status: u16,
    /// The head.
    pub headers: HeaderMap,
    /// The redirects that led here, first to last: where each was met, and its head.
    pub passed: Vec<(Url, HeaderMap)>,
    response: Response,
    client: Arc<Client>,
    patience: Duration,
    document: bool,
    got: u64,
    window: (Instant, u64),
    /// When it was noted last that its host answers.
    noted: Instant,
    _permit: Option<Permit>,
}

/// The longest media type that is taken (RFC 6838, 4.2: twice 127, and a slash).
const LONGEST_TYPE: usize = 255;
/// How often it is noted of a host that the body of an answer goes on.
const NOTED_EVERY: Duration = Duration::from_secs(1);

/// The most that a server's wish to be left alone counts for.
const LONGEST_HOLD: Duration = Duration::from_secs(86_400);

/// How often a connection is tried that a user waits for: a server that is started again is there within seconds.
const MOST_CONNECTS: u32 = 4;
/// How often a request is tried again that nobody waits for.
const MOST_TRIES: u32 = 5;
/// The longest that such a request waits because a server asked for it; then it fails, and is made again
/// with the next sync.
const MOST_PATIENCE: Duration = Duration::from_secs(60);

impl Client {
    /// Makes a client.
    ///
    /// # Errors
    /// If the certificates cannot be read, or TLS cannot be set up.
    pub fn new(options: Options) -> std::result::Result<Arc<Self>, String> {
        // Fails only if it was set before, to the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let authorities = options.ca.as_deref().map(read_authorities).transpose()?.unwrap_or_default();
        let http = build(&options, &authorities, false)?;
        let pace = Pace::new(options.connections, bounds::count(options.bounds.connections), options.rate);
        let timeout_millis = AtomicU64::new(millis(options.timeout));
        let upgrading = OnceLock::new();
        if ["SSL_CERT_FILE", "SSL_CERT_DIR"].iter().any(|name| std::env::var_os(name).is_some()) {
            // As those of `ca`, these files may be out of reach when it is first wanted.
            let built = build(&options, &authorities, true)?;
            upgrading.get_or_init(|| built);
        }
        #[cfg(feature = "xmpp")]
        let trusted = options.ca.as_deref().map(super::tls::trusted).transpose()?.unwrap_or_default();
        Ok(Arc::new(Self {
            http,
            upgrading,
            options,
            authorities,
            #[cfg(feature = "xmpp")]
            trusted,
            timeout_millis,
            pace,
            memory: Memory::default(),
        }))
    }

    /// The longest wait for progress.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_millis.load(Ordering::Relaxed))
    }

    /// The most connections to one host.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.pace.connections()
    }

    /// Where connections may lead.
    #[must_use]
    pub fn reach(&self) -> &Reach {
        &self.options.reach
    }

    /// How long bytes that came already are held back to keep to the rate.
    #[must_use]
    pub fn backlog(&self) -> Duration {
        self.pace.backlog()
    }

    /// Changes the longest wait for progress.
    pub fn set_timeout(&self, timeout: Duration) {
        self.timeout_millis.store(millis(timeout), Ordering::Relaxed);
    }

    /// Changes the most connections to one host.
    pub fn set_connections(&self, connections: usize) {
        self.pace.set_connections(connections);
    }

    /// Changes the most bytes a second.
    pub fn set_rate(&self, rate: Option<u64>) {
        self.pace.set_rate(rate);
    }

    /// Asks for a URL, follows redirects, and tries again what may pass.
    ///
    /// # Errors
    /// If there is no answer, or one that is neither 200, 206 nor 304.
    pub async fn ask(self: &Arc<Self>, url: &str, asked: &Asked<'_>) -> Result<Answer> {
        let first = self.checked(url)?;
        let begun = Instant::now();
        let mut tries = 0;
        // A host that did not answer a moment ago gets one request; none for content that a user waits for, if it was silent.
        let is_remembered = !asked.aside && (asked.document || asked.patience.is_some());
        let down = self.pace.down(&host_of(&first)).filter(|_| is_remembered);
        if let Some(trouble @ Trouble::Stalled { .. }) = &down
            && !asked.document
        {
            return Err(SourceError::new(&first, trouble.clone()));
        }
        let most_tries = match (&down, asked.patience) {
            (Some(_), _) => 1,
            (None, Some(_)) => MOST_CONNECTS,
            (None, None) => MOST_TRIES,
        };
        loop {
            let error = match self.follow(first.clone(), asked).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            tries += 1;
            if error.trouble.is_away() && tries >= most_tries {
                return Err(error);
            }
            let asked_wait = match &error.trouble {
                Trouble::Status { retry_after, .. } => *retry_after,
                _ => None,
            };
            let wait = asked_wait.unwrap_or_else(|| Duration::from_millis(250 << tries.min(5)));
            let late = asked.patience.is_some_and(|patience| begun.elapsed() + wait >= patience);
            let hopeless = asked.patience.is_none() && (tries >= MOST_TRIES || wait > MOST_PATIENCE);
            if !error.trouble.passes() || late || hopeless {
                return Err(error);
            }
            tracing::debug!(url, tries, wait_ms = wait.as_millis(), cause = %error.trouble, "trying again");
            tokio::time::sleep(wait).await;
        }
    }

    pub(super) fn checked(&self, url: &str) -> Result<Url> {
        let bad = |why: String| SourceError::new(url, Trouble::BadUrl(why));
        if has_dot_segment(url) {
            return Err(bad("its path has a . or .. segment, which would be resolved on the way".to_owned()));
        }
        let parsed = Url::parse(&with_escapes(url)).map_err(|error| bad(error.to_string()))?;
        if !matches!(parsed.scheme(), "http" | "https") {
            return Err(bad(format!("{} is neither http nor https", parsed.scheme())));
        }
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err(bad("user and password have no place in a URL; use credentials=FILE".to_owned()));
        }
        Ok(parsed)
    }

    async fn follow(self: &Arc<Self>, first: Url, asked: &Asked<'_>) -> Result<Answer> {
        let mut url = first.clone();
        let mut visited = HashSet::new();
        let mut passed = Vec::new();
        loop {
            if !visited.insert(url.clone()) {
                return Err(SourceError::new(&first, Trouble::RedirectLoop(format!("back at {url}"))));
            }
            if passed.len() as u64 > self.options.bounds.redirects {
                return Err(self.too_many_redirects(&first));
            }
            let mut answer = self.once(url.clone(), asked).await?;
            if !redirects(answer.status) || is_wanted_memento(&answer, asked) {
                answer.passed = passed;
                return judge(answer, asked);
            }
            let target = text(&answer.headers, &header::LOCATION)
                .ok_or_else(|| SourceError::new(&url, Trouble::Broken("a redirect without a Location".to_owned())))?;
            let target = url
                .join(&target)
                .map_err(|error| SourceError::new(&url, Trouble::BadUrl(format!("redirect to {target:?}: {error}"))))?;
            passed.push((url, std::mem::take(&mut answer.headers)));
            url = self.checked(target.as_str())?;
        }
    }

    async fn once(self: &Arc<Self>, url: Url, asked: &Asked<'_>) -> Result<Answer> {
        self.reach().permits(&url).await?;
        let host = host_of(&url);
        let timeout = asked.patience.unwrap_or_else(|| self.timeout());
        let aside = asked.aside || asked.memento;
        // Somebody who waits tries all the same: the server may have meant one resource only.
        if asked.patience.is_none()
            && let Some(wait) = self.pace.held(&host, aside)
        {
            if wait > MOST_PATIENCE {
                return Err(SourceError::new(&url, Trouble::Status { code: 503, retry_after: Some(wait) }));
            }
            tokio::time::sleep(wait).await;
        }
        let stalled = |what| SourceError::new(&url, Trouble::Stalled { what, after: timeout });
        let entering = self.pace.enter(&host, asked.patience.is_some());
        let permit = match asked.patience {
            Some(_) => tokio::time::timeout(timeout, entering).await.map_err(|_| stalled("free connection"))?,
            None => entering.await,
        };
        let request = self.request(&url, asked);
        let began = Instant::now();
        let response = match tokio::time::timeout(timeout, request.send()).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(SourceError::new(&url, self.trouble(&error, timeout))),
            Err(_) => Err(stalled("answer")),
        };
        match &response {
            Ok(_) => self.pace.answered(&host),
            Err(error) if error.trouble.is_away() && !aside => self.pace.failed(&host, began, &error.trouble),
            Err(_) => {}
        }
        let response = response?;
        self.check_head(&url, response.headers())?;
        // What was archived says nothing of the archive.
        let is_archived = asked.memento && response.headers().contains_key("memento-datetime");
        let is_busy = matches!(response.status().as_u16(), 429 | 503) && !is_archived;
        if let Some(wait) = retry_after(response.headers()).filter(|_| is_busy) {
            self.pace.hold(&host, aside, wait);
        }
        Ok(Answer {
            url,
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            passed: Vec::new(),
            response,
            client: Arc::clone(self),
            patience: timeout,
            document: asked.document,
            got: 0,
            window: (Instant::now(), 0),
            noted: Instant::now(),
            _permit: permit,
        })
    }

    /// Forgets what was read of pages that say what a Source has: they are asked for anew, whatever their validators.
    pub fn forget_pages(&self) {
        self.memory.clear();
    }

    /// The documents that discovery has read.
    pub(super) fn memory(&self) -> &Memory {
        &self.memory
    }

    pub(super) fn pace(&self) -> &Pace {
        &self.pace
    }

    pub(super) fn http(&self) -> &reqwest::Client {
        &self.http
    }

    pub(super) fn upgrading(&self) -> Result<&reqwest::Client> {
        if let Some(known) = self.upgrading.get() {
            return Ok(known);
        }
        let built = build(&self.options, &self.authorities, true)
            .map_err(|error| SourceError::new("WebSocket", Trouble::Broken(error)))?;
        Ok(self.upgrading.get_or_init(|| built))
    }

    /// How much is taken of what servers send.
    #[must_use]
    pub fn bounds(&self) -> &Bounds {
        &self.options.bounds
    }

    pub(super) fn too_many_redirects(&self, first: &Url) -> SourceError {
        SourceError::new(first, bounds::REDIRECTS.passed("the number of redirects", self.bounds()).into())
    }

    /// Holds the head of an answer to its bound.
    pub(super) fn check_head(&self, url: &Url, headers: &HeaderMap) -> Result<()> {
        // Each line has a colon, a blank and two bytes for its end.
        let size: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
        match size as u64 > self.bounds().header {
            true => Err(SourceError::new(url, self.head_too_large())),
            false => Ok(()),
        }
    }

    fn head_too_large(&self) -> Trouble {
        bounds::HEADER.passed("the head of its answer", self.bounds()).into()
    }

    /// What went wrong below HTTP.
    pub(super) fn trouble(&self, error: &reqwest::Error, timeout: Duration) -> Trouble {
        let causes = || std::iter::successors(std::error::Error::source(error), |cause| cause.source());
        let is_too_large = |cause: &hyper::Error| cause.is_parse_too_large();
        if let Some(refused) = causes().find_map(|cause| cause.downcast_ref::<Trouble>()) {
            refused.clone()
        } else if causes().filter_map(|cause| cause.downcast_ref()).any(is_too_large) {
            self.head_too_large()
        } else if error.is_timeout() {
            Trouble::Stalled { what: "connection", after: timeout.min(Duration::from_secs(10)) }
        } else if error.is_connect() {
            Trouble::Connect(deepest(error))
        } else {
            Trouble::Broken(deepest(error))
        }
    }

    /// The account that is subscribed at a PubSub service, if there is one.
    #[cfg(feature = "xmpp")]
    pub(crate) fn account(&self, service: &str) -> Option<&super::Account> {
        self.options.credentials.account(service)
    }

    /// How other protocols than HTTP do TLS: with the same authorities.
    #[cfg(feature = "xmpp")]
    pub(crate) fn tls(&self) -> std::result::Result<rustls::ClientConfig, String> {
        super::tls::config(&self.trusted)
    }

    /// Who we are, for this URL.
    pub(super) fn identity(&self, url: &Url) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Some(secret) = self.options.credentials.header(url)
            && let Ok(mut value) = HeaderValue::from_str(secret)
        {
            value.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, value);
        }
        headers
    }

    fn request(&self, url: &Url, asked: &Asked<'_>) -> reqwest::RequestBuilder {
        let method = if asked.head { Method::HEAD } else { Method::GET };
        let mut headers = HeaderMap::new();
        let mut put = |name: HeaderName, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        };
        put(header::ACCEPT_ENCODING, asked.accept_encoding.unwrap_or("identity"));
        if let Some(accept) = asked.accept {
            put(header::ACCEPT, accept);
        }
        if let Some(validators) = asked.validators {
            if let Some(etag) = &validators.etag {
                put(header::IF_NONE_MATCH, etag);
            }
            if let Some(time) = &validators.last_modified {
                put(header::IF_MODIFIED_SINCE, time);
            }
        }
        if asked.fresh {
            put(header::CACHE_CONTROL, "no-cache");
        }
        if let Some((first, last)) = asked.range {
            let last = last.map(|last| last.to_string()).unwrap_or_default();
            put(header::RANGE, &format!("bytes={first}-{last}"));
            if let Some(validator) = asked.if_range {
                put(header::IF_RANGE, validator);
            }
        }
        if let Some(moment) = asked.accept_datetime {
            put(HeaderName::from_static("accept-datetime"), moment);
        }
        headers.extend(self.identity(url));
        self.http.request(method, url.clone()).headers(headers)
    }
}

/// The certificates in a file, in PEM.
fn read_authorities(path: &Path) -> std::result::Result<Vec<reqwest::Certificate>, String> {
    let pem = std::fs::read(path).map_err(|error| format!("ca={}: {error}", path.display()))?;
    let certificates =
        reqwest::Certificate::from_pem_bundle(&pem).map_err(|error| format!("ca={}: {error}", path.display()))?;
    if certificates.is_empty() {
        return Err(format!("ca={}: there is no certificate in it", path.display()));
    }
    Ok(certificates)
}

fn build(
    options: &Options,
    authorities: &[reqwest::Certificate],
    http1: bool,
) -> std::result::Result<reqwest::Client, String> {
    let mut builder = reqwest::Client::builder()
        .user_agent(concat!("resourcesync/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .dns_resolver(options.reach.clone())
        .http2_max_header_list_size(u32::try_from(options.bounds.header).unwrap_or(u32::MAX))
        .connect_timeout(options.timeout.min(Duration::from_secs(10)))
        .pool_idle_timeout(Duration::from_secs(60))
        .pool_max_idle_per_host(options.connections);
    if http1 {
        builder = builder.http1_only();
    }
    if !authorities.is_empty() {
        builder = builder.tls_certs_merge(authorities.iter().cloned());
    }
    builder.build().map_err(|error| format!("cannot set up HTTP: {}", deepest(&error)))
}

/// Whether a media type is that of HTML pages.
pub(super) fn is_html(media: &str) -> bool {
    let essence = media.split(';').next().unwrap_or_default().trim();
    ["text/html", "application/xhtml+xml"].iter().any(|html| essence.eq_ignore_ascii_case(html))
}

/// Host and port, as connections are counted.
pub(super) fn host_of(url: &Url) -> String {
    let host = url.host_str().map(|host| format!("{host}:{}", url.port_or_known_default().unwrap_or(0)));
    host.unwrap_or_default()
}

/// Whether a status says that the answer is elsewhere.
pub(super) fn redirects(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

fn is_wanted_memento(answer: &Answer, asked: &Asked<'_>) -> bool {
    asked.memento && answer.headers.contains_key("memento-datetime")
}

/// Lets through the answers that say something.
fn judge(answer: Answer, asked: &Asked<'_>) -> Result<Answer> {
    let status = answer.response.status();
    let wanted = match status {
        StatusCode::OK => true,
        StatusCode::PARTIAL_CONTENT => asked.range.is_some(),
        StatusCode::NOT_MODIFIED if asked.validators.is_some_and(|known| !known.is_empty()) => true,
        _ => is_wanted_memento(&answer, asked),
    };
    if wanted {
        return Ok(answer);
    }
    let challenge = answer.headers.contains_key("cf-mitigated");
    if challenge || status == StatusCode::FORBIDDEN && answer.is_html() {
        return Err(SourceError::new(&answer.url, Trouble::Walled { code: status.as_u16(), challenge }));
    }
    let retry_after = retry_after(&answer.headers);
    Err(SourceError::new(&answer.url, Trouble::Status { code: status.as_u16(), retry_after }))
}

impl Answer {
    /// The validators of the body.
    #[must_use]
    pub fn validators(&self) -> Validators {
        Validators::of(&self.headers)
    }

    /// The length of the body in bytes, as announced.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        text(&self.headers, &header::CONTENT_LENGTH)?.trim().parse().ok()
    }

    /// The media type of the body, without parameters, in lower case (RFC 9110, 8.3); `None` if there is none that can be one.
    #[must_use]
    pub fn media_type(&self) -> Option<String> {
        let media = text(&self.headers, &header::CONTENT_TYPE)?;
        let essence = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let is_one = essence.len() <= LONGEST_TYPE && essence.contains('/') && !essence.contains(char::is_whitespace);
        is_one.then_some(essence)
    }

    /// Whether the body is said to be an HTML page.
    #[must_use]
    pub fn is_html(&self) -> bool {
        text(&self.headers, &header::CONTENT_TYPE).is_some_and(|media| is_html(&media))
    }

    /// The encoding of a text, where the server names it (RFC 9110, 8.3.2).
    #[must_use]
    pub fn charset(&self) -> Option<String> {
        let media = text(&self.headers, &header::CONTENT_TYPE)?;
        media.split(';').skip(1).find_map(|parameter| {
            let (name, value) = parameter.split_once('=')?;
            let value = value.trim().trim_matches('"');
            (name.trim().eq_ignore_ascii_case("charset") && !value.is_empty()).then(|| value.to_owned())
        })
    }

    /// When the server answered, by its clock; by ours where it does not say.
    #[must_use]
    pub fn date(&self) -> SystemTime {
        let date = text(&self.headers, &header::DATE);
        date.and_then(|text| httpdate::parse_http_date(text.trim()).ok()).unwrap_or_else(SystemTime::now)
    }

    /// The content codings that the server says it applied, `identity` left out.
    #[must_use]
    pub fn coding(&self) -> Option<String> {
        text(&self.headers, &header::CONTENT_ENCODING)
            .map(|coding| coding.trim().to_ascii_lowercase())
            .filter(|coding| !coding.is_empty() && coding != "identity")
    }

    /// Of a 206: the first byte of the part, and the length of the whole if it is told.
    #[must_use]
    pub fn content_range(&self) -> Option<(u64, Option<u64>)> {
        let value = text(&self.headers, &header::CONTENT_RANGE)?;
        let (range, whole) = value.trim().strip_prefix("bytes")?.trim().split_once('/')?;
        let (first, _) = range.split_once('-')?;
        Some((first.trim().parse().ok()?, whole.trim().parse().ok()))
    }

    /// The values of a header field.
    pub fn header_values<'h>(&'h self, name: &'h str) -> impl Iterator<Item = &'h str> {
        self.headers.get_all(name).iter().filter_map(|value| value.to_str().ok())
    }

    /// The next stretch of the body; `None` at its end.
    ///
    /// # Errors
    /// If the server is silent or crawls, or the body ends before its announced length.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>> {
        let timeout = self.patience;
        let chunk = tokio::time::timeout(timeout, self.response.chunk()).await;
        let failed = |trouble| SourceError::new(&self.url, trouble);
        let chunk = match chunk {
            Err(_) => return Err(failed(Trouble::Stalled { what: "more of the answer", after: timeout })),
            Ok(Err(error)) => {
                return Err(failed(match self.length() {
                    Some(expected) if self.got < expected => Trouble::Truncated { got: self.got, expected },
                    _ => Trouble::Broken(deepest(&error)),
                }));
            }
            Ok(Ok(chunk)) => chunk,
        };
        match &chunk {
            Some(bytes) => {
                if self.noted.elapsed() >= NOTED_EVERY {
                    self.client.pace.answered(&host_of(&self.url));
                    self.noted = Instant::now();
                }
                self.got += bytes.len() as u64;
                self.check_speed()?;
                match self.document {
                    true => drop(self.client.pace.book(bytes.len())),
                    false => self.client.pace.spend(bytes.len()).await,
                }
            }
            None => {
                if let Some(expected) = self.length().filter(|expected| self.got < *expected) {
                    return Err(failed(Trouble::Truncated { got: self.got, expected }));
                }
            }
        }
        Ok(chunk)
    }

    fn check_speed(&mut self) -> Result<()> {
        let options = &self.client.options;
        let (begun, before) = self.window;
        let elapsed = begun.elapsed();
        if elapsed < self.patience {
            return Ok(());
        }
        let floor = options.bounds.speed.min(self.client.pace.rate().unwrap_or(u64::MAX) / 2);
        if self.got - before < floor.saturating_mul(elapsed.as_secs()) {
            return Err(SourceError::new(&self.url, Trouble::TooSlow { floor }));
        }
        self.window = (Instant::now(), self.got);
        Ok(())
    }

    /// The whole body, if it is no larger than `most`.
    ///
    /// # Errors
    /// If it is larger, or as [`Answer::chunk`].
    pub async fn bytes(mut self, most: u64) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            if body.len() as u64 + chunk.len() as u64 > most {
                return Err(SourceError::new(&self.url, Trouble::TooLarge(most)));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }
}

/// A URL with escapes for characters that no URI may hold and that the parser of WHATWG would take for something else: a backslash for a
/// slash, line breaks and tabs for nothing, a `%` that begins no escape for itself.
fn with_escapes(url: &str) -> Cow<'_, str> {
    let is_escape =
        |rest: &str| rest.as_bytes().get(1..3).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
    let needs = |(at, c): (usize, char)| match c {
        '\\' | '\t' | '\n' | '\r' => true,
        '%' => !is_escape(&url[at..]),
        _ => false,
    };
    if !url.char_indices().any(needs) {
        return Cow::Borrowed(url);
    }
    let mut text = String::with_capacity(url.len() + 8);
    for (at, c) in url.char_indices() {
        match needs((at, c)) {
            true => text.push_str(&format!("%{:02X}", u32::from(c))),
            false => text.push(c),
        }
    }
    Cow::Owned(text)
}

/// Whether a path segment is `.` or `..`, in any spelling.
fn has_dot_segment(url: &str) -> bool {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    let dots = |segment: &str| matches!(segment.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..");
    path.split(['/', '\\']).skip(3).any(dots)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// `Retry-After`, in seconds or as a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = text(headers, &header::RETRY_AFTER)?;
    let wait = match value.trim().parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let date = httpdate::parse_http_date(value.trim()).ok()?;
            date.duration_since(SystemTime::now()).unwrap_or_default()
        }
    };
    Some(wait.min(LONGEST_HOLD))
}

/// The innermost cause, which says most.
fn deepest(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
