//! The WebSub hub of flask-websub, on a free port.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::peer::Script;

/// How a hub behaves.
#[derive(Clone, Debug)]
pub struct HubOptions {
    /// What it signs deliveries with: `sha1`, `sha256`, `sha384` or `sha512`.
    pub algorithm: &'static str,
    /// The least lease it grants, in seconds; who asks for less gets this.
    pub least_lease: u32,
    /// The most it grants. Equal to the least it is what everyone gets.
    pub most_lease: u32,
    /// Topics to which it lets nobody subscribe.
    pub denied: Vec<String>,
    /// How many deliveries to one callback it makes at once. One keeps them in the order in which they were
    /// published, also where one fails and is tried again; more may overtake one another.
    pub workers: u32,
    /// How often it tries again where a delivery fails.
    pub retries: u32,
    /// The most it waits before the first of these; before each next one, twice that.
    pub backoff: Duration,
}

impl Default for HubOptions {
    /// As the package has it, with SHA-256, one worker, and retries that are soon over.
    fn default() -> Self {
        Self {
            algorithm: "sha256",
            least_lease: 60,
            most_lease: 31 * 24 * 60 * 60,
            denied: Vec::new(),
            workers: 1,
            retries: 3,
            backoff: Duration::from_millis(100),
        }
    }
}

impl HubOptions {
    /// With leases of so many seconds, whatever is asked for.
    pub fn with_lease(seconds: u32) -> Self {
        Self { least_lease: seconds, most_lease: seconds, ..Self::default() }
    }
}

/// What a hub knows of a subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    pub callback: String,
    pub topic: String,
    pub secret: Option<String>,
    /// In seconds since 1970. What has expired stays in the list.
    pub expires: i64,
}

/// A running hub, or one that is stopped. Dropping it stops it.
pub struct Hub {
    pub port: u16,
    options: HubOptions,
    script: Option<Script>,
    folder: tempfile::TempDir,
}

impl Hub {
    pub fn start(options: &HubOptions) -> Self {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let mut hub = Self { port: 0, options: options.clone(), script: None, folder };
        // Port 0 is one that nobody else can take meanwhile.
        assert!(hub.launch(), "the hub does not start: {}", hub.log());
        hub
    }

    /// The hub endpoint.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hub", self.port)
    }

    /// Says that a topic has changed: the hub fetches it, and delivers what it gets with all its headers. The answer
    /// must have a `Link` header with `rel="hub"` and `rel="self"`, else it is not delivered (the log says so).
    pub fn ping(&self, topic: &str) {
        let form = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("hub.mode", "publish")
            .append_pair("hub.topic", topic)
            .finish();
        self.post("/hub", "Content-Type: application/x-www-form-urlencoded\r\n", form.as_bytes());
    }

    /// Has these bytes delivered to the subscribers of a topic, without a fetch. Returns when the hub has taken them.
    pub fn push(&self, topic: &str, body: &[u8]) {
        self.post("/fat", &format!("Content-Type: application/xml\r\nLink: <{topic}>; rel=\"self\"\r\n"), body);
    }

    /// Kills it. What it has not delivered yet is lost; subscriptions are not.
    pub fn stop(&mut self) {
        self.script = None;
    }

    /// Starts it where it was, with the subscriptions it had.
    pub fn start_again(&mut self) {
        assert!(self.script.is_none(), "the hub runs already");
        // The port was free for all meanwhile: a connection from it ends sometime.
        let began = Instant::now();
        while !self.launch() {
            assert!(began.elapsed() < Duration::from_secs(120), "the hub does not start again: {}", self.log());
        }
    }

    /// What its file says, also while it is stopped. Who renewed last comes last.
    pub fn subscriptions(&self) -> Vec<Subscription> {
        let database = rusqlite::Connection::open(self.folder.path().join("hub.db")).expect("its file");
        database.busy_timeout(Duration::from_secs(10)).expect("patience");
        let mut question = database
            .prepare("SELECT callback_url, topic_url, secret, expiration_time FROM hub ORDER BY rowid")
            .expect("its table");
        let subscription = |row: &rusqlite::Row<'_>| {
            Ok(Subscription { callback: row.get(0)?, topic: row.get(1)?, secret: row.get(2)?, expires: row.get(3)? })
        };
        let found = question.query_map([], subscription).expect("its rows");
        found.collect::<Result<_, _>>().expect("subscriptions")
    }

    /// Waits until it has so many subscriptions: it says that it has taken a request before it verifies it.
    pub fn wait_for_subscriptions(&self, count: usize) -> Vec<Subscription> {
        let began = Instant::now();
        loop {
            let found = self.subscriptions();
            if found.len() == count {
                return found;
            }
            assert!(began.elapsed() < Duration::from_secs(120), "{count} subscriptions do not come: {found:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What it has said so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("websub_hub.py.log")).unwrap_or_default()
    }

    fn launch(&mut self) -> bool {
        let HubOptions { algorithm, least_lease, most_lease, denied, workers, retries, backoff } = &self.options;
        let mut arguments = vec![self.port.to_string(), "hub.db".to_owned()];
        for (name, value) in [
            ("--algorithm", (*algorithm).to_owned()),
            ("--least-lease", least_lease.to_string()),
            ("--most-lease", most_lease.to_string()),
            ("--workers", workers.to_string()),
            ("--retries", retries.to_string()),
            ("--backoff", backoff.as_secs_f64().to_string()),
        ] {
            arguments.extend([name.to_owned(), value]);
        }
        arguments.extend(denied.iter().flat_map(|topic| ["--deny".to_owned(), topic.clone()]));
        self.script = Script::start("websub_hub.py", &arguments, self.folder.path());
        let started = self.script.is_some();
        self.port = self.script.as_ref().map_or(self.port, |script| script.port);
        started
    }

    /// Sends it something that it must accept. It keeps no connections.
    fn post(&self, path: &str, headers: &str, body: &[u8]) {
        let mut request = format!(
            "POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Length: {}\r\n{headers}\r\n",
            self.port,
            body.len()
        )
        .into_bytes();
        request.extend_from_slice(body);
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("the hub runs");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        stream.write_all(&request).expect("the hub listens");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("the hub answers");
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.split(' ').nth(1) == Some("202"), "the hub does not accept {path}: {answer}");
    }
}
