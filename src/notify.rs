//! Channels of notifications: WebSub and WebSocket (Change Notification 4; the draft 0.8, 6), and the HTTP callback of 2012
//! and XMPP PubSub of 2012 (0.1, 5.2; the latter only if the feature `xmpp` was built in).
//!
//! **Owns** which of the channels that a Source offers are joined, the subscriptions at hubs and their leases, the
//! callback server, the connections of WebSockets, and whom to believe.
//!
//! **Assumes** that whoever knows a callback's path may send anything there, that hubs and Sources come and go, and that
//! what is delivered may be late, twice, or missing.
//!
//! **Promises** that nothing reaches the engine that is not from whom it is expected, as far as the transport can tell;
//! that a delivery is answered well only after the engine has kept it; that a channel that ends is joined again, ever
//! later, and that the engine is told that it may have missed something; that no secret and no callback's path is shown
//! or logged.
//!
//! **Never knows** what is in the mirror: it hands over what it hears, and asks the engine for the rest.
//!
//! Layout, each line uses only those above it:
//! - `board`, `signature`
//! - `listener`, `websocket`
//! - `websub`
//! - `callback`, `xmpp`

mod board;
mod callback;
mod listener;
mod signature;
mod websocket;
mod websub;
#[cfg(feature = "xmpp")]
mod xmpp;

use crate::catalog::SetId;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use url::Url;

use crate::bounds::{self, Bounds};
use crate::document::Capability;
use crate::source::Client;
use crate::sync::{Engine, Heard, OfferedChannel};

pub use board::{Phase, Refused, Standing};

use board::Board;
use listener::Registry;

/// How channels are to be joined.
#[derive(Debug, Default)]
pub struct Options {
    /// Whether no channel is joined at all.
    pub off: bool,
    /// Where hubs are listened to; none if no hub can reach us. It is bound already: the daemon may have no right to bind it.
    pub listener: Option<std::net::TcpListener>,
    /// The URL below which hubs reach that address; its own, if not given.
    pub callback: Option<Url>,
    /// The most bytes of a delivery, and callers at once.
    pub bounds: Bounds,
}

/// How long the end of a mount waits for hubs to let go of it.
const FAREWELL: Duration = Duration::from_secs(3);
/// How long a channel may be down before another that tells the same takes its place.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is looked whether one is.
const LOOK: Duration = Duration::from_secs(10);

/// What the channels of one mount share.
#[derive(Debug)]
struct Context {
    engine: Arc<Engine>,
    client: Arc<Client>,
    board: Board,
    registry: Registry,
    /// The URL below which hubs reach us.
    callback: Option<Url>,
    /// For one delivery at a time whose signature is verified.
    verifying: tokio::sync::Semaphore,
    bounds: Bounds,
}

impl Context {
    /// How many WebSocket channels are joined at once at most.
    fn sockets(&self) -> u64 {
        let offered = self.board.offered().iter().filter(|one| scheme(one) == Scheme::WebSocket).count() as u64;
        offered.min(self.bounds.channels).min(self.bounds.connections / 2)
    }
}

/// What is known of one channel.
#[derive(Clone, Debug)]
pub struct Report {
    /// The channel, and its set.
    pub offered: OfferedChannel,
    /// How it stands.
    pub standing: Standing,
    /// What came on it.
    pub heard: Heard,
}

/// Joins the channels of a mount, and stays with them.
#[derive(Debug)]
pub struct Notifier {
    context: Arc<Context>,
    off: bool,
    listener: Option<JoinHandle<()>>,
    supervisor: Mutex<Option<JoinHandle<()>>>,
    joined: Arc<Mutex<HashMap<i64, JoinHandle<()>>>>,
}

impl Notifier {
    /// Begins to listen, where that is asked for.
    ///
    /// # Errors
    /// If the listener cannot be used.
    pub fn new(engine: Arc<Engine>, client: Arc<Client>, options: Options) -> std::io::Result<Self> {
        let listener = match options.listener.filter(|_| !options.off) {
            Some(listener) => {
                listener.set_nonblocking(true)?;
                Some(TcpListener::from_std(listener)?)
            }
            None => None,
        };
        let callback = match &listener {
            None => None,
            Some(listener) => {
                let own = format!("http://{}/", listener.local_addr()?);
                options.callback.or_else(|| Url::parse(&own).ok())
            }
        };
        let registry = Registry::default();
        let context = Arc::new(Context {
            engine,
            client,
            board: Board::default(),
            registry,
            callback,
            verifying: tokio::sync::Semaphore::new(1),
            bounds: options.bounds,
        });
        let listener = listener.map(|listener| tokio::spawn(listener::serve(Arc::clone(&context), listener)));
        Ok(Self { context, off: options.off, listener, supervisor: Mutex::default(), joined: Arc::default() })
    }

    /// Joins the channels that the Source offers, now and later.
    pub fn start(&self) {
        if self.off {
            return;
        }
        let supervisor = Supervisor {
            context: Arc::clone(&self.context),
            joined: Arc::clone(&self.joined),
            leaving: HashMap::new(),
            down: HashMap::new(),
            up: HashMap::new(),
        };
        let task = tokio::spawn(supervisor.run());
        *self.supervisor.lock() = Some(task);
    }

    /// How all channels stand that the Source offers.
    #[must_use]
    pub fn channels(&self) -> Vec<Report> {
        let reports = self.context.board.offered().into_iter().map(|offered| Report {
            standing: self.context.board.standing(offered.channel.id),
            heard: self.context.engine.inbox().heard(offered.channel.id),
            offered,
        });
        reports.collect()
    }

    /// The URL below which hubs reach this mount, if they can.
    #[must_use]
    pub fn callback(&self) -> Option<&Url> {
        self.context.callback.as_ref()
    }

    /// Deliveries that were refused since the mount, on all channels that ever were.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.context.board.refused()
    }

    /// Takes leave of all hubs. What does not answer within moments keeps its lease: that ends by itself.
    pub async fn close(&self) {
        // The supervisor would join them again.
        if let Some(supervisor) = self.supervisor.lock().take() {
            supervisor.abort();
        }
        let joined = std::mem::take(&mut *self.joined.lock());
        joined.into_values().for_each(|task| task.abort());
        if tokio::time::timeout(FAREWELL, websub::leave_all(&self.context)).await.is_err() {
            tracing::info!(
                "not every hub has confirmed within {} s that nobody listens; leases end by themselves",
                FAREWELL.as_secs()
            );
        }
        self.listener.iter().for_each(JoinHandle::abort);
    }
}

/// Sees to it that the right channels are joined.
struct Supervisor {
    context: Arc<Context>,
    joined: Arc<Mutex<HashMap<i64, JoinHandle<()>>>>,
    /// Channels that are being left.
    leaving: HashMap<i64, JoinHandle<()>>,
    /// Channels that should tell something, and since when they do not.
    down: HashMap<i64, Instant>,
    /// Since when those do that are joined.
    up: HashMap<i64, Instant>,
}

impl Supervisor {
    async fn run(mut self) {
        let mut synced = self.context.engine.synced();
        let mut changed = self.context.board.changed();
        let mut look = tokio::time::interval(LOOK);
        loop {
            synced.mark_unchanged();
            changed.mark_unchanged();
            match self.context.engine.inbox().channels().await {
                Ok(offered) => self.arrange(offered),
                Err(error) => self.context.engine.status().error(&format!("channels: {error}")),
            }
            tokio::select! {
                _ = synced.changed() => {}
                _ = changed.changed() => {}
                _ = look.tick() => {}
            }
        }
    }

    /// Joins what is to be joined, and leaves what is not.
    fn arrange(&mut self, offered: Vec<OfferedChannel>) {
        self.context.board.offer(&offered);
        let wanted = self.wanted(&offered);
        self.leave_others(&wanted);
        self.join_missing(&wanted);
        let mut live: HashMap<SetId, bool> = HashMap::new();
        for (id, one) in &wanted {
            let is_live = self.note_standing(*id);
            if one.channel.capability == Capability::ChangeNotification {
                *live.entry(one.channel.rset).or_default() |= is_live;
            }
        }
        let known = self.context.engine.sets().unwrap_or_default();
        let all_live = !known.is_empty() && known.iter().all(|set| live.get(&set.id) == Some(&true));
        self.context.engine.inbox().live(all_live);
    }

    /// The channels that are to be joined. Why the others are not is noted.
    fn wanted<'o>(&self, offered: &'o [OfferedChannel]) -> HashMap<i64, &'o OfferedChannel> {
        let Context { board, bounds, .. } = &*self.context;
        let mut wanted: HashMap<i64, &OfferedChannel> = HashMap::new();
        // Half of the connections are left for documents and content.
        let most_sockets = bounds::count(bounds.channels.min(bounds.connections / 2));
        let mut sockets = 0;
        for one in offered {
            let id = one.channel.id;
            if let Some(why) = self.unfit(one) {
                board.set(id, Phase::Unused(why));
                continue;
            }
            // Those before it, if all have been down for a while, give it their place.
            let mut before = ranked(offered, one)
                .filter(|rival| self.unfit(rival).is_none())
                .take_while(|rival| rival.channel.id != id);
            if !before.all(|rival| self.is_down(rival.channel.id)) {
                board.set(id, Phase::Unused("another channel tells the same".to_owned()));
                continue;
            }
            let stays_open = scheme(one) == Scheme::WebSocket;
            if stays_open && sockets >= most_sockets {
                let why = format!(
                    "{sockets} channels are joined, as many as {}={} and half of {}={} allow; this set is polled",
                    bounds::CHANNELS,
                    bounds.channels,
                    bounds::CONNECTIONS,
                    bounds.connections
                );
                board.set(id, Phase::Unused(why));
                continue;
            }
            sockets += usize::from(stays_open);
            wanted.insert(id, one);
        }
        wanted
    }

    /// Whether a channel has been down for a while, or is denied.
    fn is_down(&self, id: i64) -> bool {
        matches!(self.context.board.standing(id).phase, Phase::Denied(_))
            || self.down.get(&id).is_some_and(|since| since.elapsed() >= PATIENCE)
    }

    fn leave_others(&mut self, wanted: &HashMap<i64, &OfferedChannel>) {
        let Self { context, joined, leaving, .. } = self;
        leaving.retain(|_, task| !task.is_finished());
        joined.lock().retain(|id, task| {
            let stays = wanted.contains_key(id) && !task.is_finished();
            if !stays {
                task.abort();
                let (context, id) = (Arc::clone(context), *id);
                leaving.insert(id, tokio::spawn(async move { websub::leave(&context, id).await }));
            }
            stays
        });
    }

    /// Joins what is not joined yet. Whoever is being left is joined again when that is done.
    fn join_missing(&mut self, wanted: &HashMap<i64, &OfferedChannel>) {
        let Self { context, joined, leaving, .. } = self;
        let mut joined = joined.lock();
        for (id, one) in wanted.iter().filter(|(id, _)| !leaving.contains_key(id)) {
            joined.entry(*id).or_insert_with(|| {
                context.board.set(*id, Phase::Joining);
                join(context, one)
            });
        }
    }

    /// Notes since when a channel is live, or is not. Returns whether it is.
    fn note_standing(&mut self, id: i64) -> bool {
        let live = self.context.board.standing(id).is_live();
        if !live {
            self.up.remove(&id);
            self.down.entry(id).or_insert_with(Instant::now);
        } else if self.up.entry(id).or_insert_with(Instant::now).elapsed() >= LOOK {
            // One that comes and goes is not there.
            self.down.remove(&id);
        }
        live
    }

    /// Why a channel cannot be joined at all.
    fn unfit(&self, one: &OfferedChannel) -> Option<String> {
        match scheme(one) {
            Scheme::WebSocket => None,
            Scheme::WebSub | Scheme::Callback if self.context.callback.is_some() => None,
            Scheme::WebSub => Some("hubs cannot reach this mount; say how with listen=".to_owned()),
            Scheme::Callback => Some("the Source cannot reach this mount; say how with listen=".to_owned()),
            #[cfg(feature = "xmpp")]
            Scheme::Xmpp => match xmpp::Node::of(&one.channel.url) {
                Some(node) if self.context.client.account(&node.service).is_some() => None,
                Some(node) => Some(no_account(&node.service)),
                None => Some("its URL names no node of a PubSub service".to_owned()),
            },
            #[cfg(not(feature = "xmpp"))]
            Scheme::Xmpp => Some("this program was built without XMPP; build it with --features xmpp".to_owned()),
            Scheme::Other => Some("a transport that is not known".to_owned()),
        }
    }
}

#[cfg(feature = "xmpp")]
fn no_account(service: &str) -> String {
    format!("an account is needed: say which in credentials=FILE, as in: {service} xmpp USER@DOMAIN:PASSWORD")
}

/// How a channel is joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Scheme {
    WebSub,
    WebSocket,
    Callback,
    Xmpp,
    Other,
}

fn scheme(one: &OfferedChannel) -> Scheme {
    let scheme = one.channel.url.split(':').next().unwrap_or_default().to_ascii_lowercase();
    match scheme.as_str() {
        "http" | "https" => Scheme::WebSub,
        "ws" | "wss" => Scheme::WebSocket,
        other if other.starts_with(callback::SCHEME) => Scheme::Callback,
        "xmpp" => Scheme::Xmpp,
        _ => Scheme::Other,
    }
}

/// How a channel is joined, for people.
#[must_use]
pub fn transport(one: &OfferedChannel) -> &'static str {
    match scheme(one) {
        Scheme::WebSub => "websub",
        Scheme::WebSocket => "websocket",
        Scheme::Callback => "callback",
        Scheme::Xmpp => "xmpp",
        Scheme::Other => "other",
    }
}

/// The channels that tell the same as one does, that included, the best first: what WebSub delivers, hubs sign, and
/// try again to deliver.
fn ranked<'o>(offered: &'o [OfferedChannel], one: &OfferedChannel) -> impl Iterator<Item = &'o OfferedChannel> {
    let (rset, capability) = (one.channel.rset, one.channel.capability);
    let mut same: Vec<&OfferedChannel> =
        offered.iter().filter(|other| other.channel.rset == rset && other.channel.capability == capability).collect();
    same.sort_by_key(|other| (scheme(other), other.channel.id));
    same.into_iter()
}

fn join(context: &Arc<Context>, one: &OfferedChannel) -> JoinHandle<()> {
    let (context, one) = (Arc::clone(context), one.clone());
    match scheme(&one) {
        Scheme::WebSocket => tokio::spawn(websocket::stay(context, one)),
        Scheme::Callback => tokio::spawn(callback::stay(context, one)),
        #[cfg(feature = "xmpp")]
        Scheme::Xmpp => tokio::spawn(xmpp::stay(context, one)),
        _ => tokio::spawn(websub::stay(context, one)),
    }
}

/// How long to wait before the next try, after so many that failed: ever longer, and not as long as others.
fn backoff(tries: u32, longest: Duration) -> Duration {
    let wait = Duration::from_millis(500 << tries.min(12)).min(longest);
    wait.mul_f64(0.5 + fastrand::f64())
}
