//! What a mount is doing, as `.resourcesync/status.json` and `status --json` show it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;

use crate::catalog::{Channel, Feed, MemberTotals, Reach, SetRow, SetState, Totals};
use crate::document::Datetime;
use crate::fs::{Io, Requests};
use crate::notify::{self, Notifier, Refused};
use crate::printable;
use crate::sync::{self, Engine};

/// The state of one mount.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) source: String,
    pub(crate) directory: PathBuf,
    pub(crate) cache: PathBuf,
    pub(crate) pid: u32,
    pub(crate) version: String,
    /// `complete`, `partial`, `held`, `gap`, `empty`, `syncing` (for the first time), `away` or `offline`.
    pub(crate) state: String,
    /// Why the last sync failed, if it did.
    #[serde(default)]
    pub(crate) reason: Option<String>,
    /// What is being done just now.
    pub(crate) activity: String,
    pub(crate) sets: Vec<SetReport>,
    /// Files in the tree.
    pub(crate) resources: u64,
    pub(crate) cached: Cached,
    /// When the last sync ended.
    pub(crate) last_sync: Option<String>,
    /// Seconds since then: how far the tree may be behind the Source.
    pub(crate) lag: Option<u64>,
    /// The channels of notifications that the Source offers.
    #[serde(default)]
    pub(crate) channels: Vec<ChannelReport>,
    #[serde(default)]
    pub(crate) notifications: Notifications,
    pub(crate) progress: sync::Progress,
    pub(crate) content: String,
    /// `kernel` or `passthrough`; `auto` as long as nothing is known to choose by.
    pub(crate) io: String,
    /// Why.
    #[serde(default)]
    pub(crate) io_why: String,
    /// What the kernel asked since the mount, by kind: what it answers itself is not in it.
    #[serde(default)]
    pub(crate) requests: BTreeMap<String, u64>,
    pub(crate) seed: Seed,
    pub(crate) packages: Packages,
    /// What of archives is history here; none if that is not kept for good.
    #[serde(default)]
    pub(crate) archives: Option<Archives>,
    pub(crate) error_count: u64,
    /// The last ones, oldest first.
    pub(crate) errors: Vec<Trouble>,
    pub(crate) warnings: Vec<String>,
}

/// What the mirror is filled from, and why.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Seed {
    pub(crate) from: String,
    pub(crate) why: String,
}

impl Seed {
    fn of(sets: &[SetRow]) -> Self {
        let mut seeds = sets.iter().filter_map(|set| set.seed.as_ref());
        let Some(first) = seeds.next() else {
            let why = "nothing else was looked for when this cache was made";
            return Self { from: "list".to_owned(), why: why.to_owned() };
        };
        let from = std::iter::once(first).chain(seeds).find(|seed| seed.from == "dump").unwrap_or(first);
        Self { from: from.from.clone(), why: first.why.clone() }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Cached {
    /// Files in the tree whose content is here.
    pub(crate) resources: u64,
    /// Bytes of all content that is here.
    pub(crate) bytes: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Trouble {
    pub(crate) time: String,
    pub(crate) error: String,
}

/// The packages that the mirror was seeded from.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Packages {
    pub(crate) known: u64,
    /// That are here as a whole.
    pub(crate) whole: u64,
    /// Bytes of those that are here as a whole.
    pub(crate) bytes: u64,
    /// Files in the tree whose content lies in a package.
    pub(crate) members: u64,
    /// Those of them that were held to what is listed, and are here.
    pub(crate) verified: u64,
    /// Those of them that are not what is listed, and are had from their own URLs.
    pub(crate) damaged: u64,
}

/// What the Source archives of its past.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Archives {
    /// Documents that are in the history.
    pub(crate) read: u64,
    /// Documents that are not, or not with all that they tell.
    pub(crate) failed: u64,
    /// Documents that are being read.
    pub(crate) left: u64,
    /// When archives were last gone through.
    pub(crate) looked: Option<String>,
    /// How far history reaches back.
    pub(crate) since: Option<String>,
}

impl Archives {
    fn of(engine: &Engine, sets: &[SetRow]) -> Option<Self> {
        let reaches = sets.iter().map(|set| engine.readers().ask(|reader| reader.reach(set.id)).unwrap_or_default());
        let progress = engine.status().archives();
        let mut all = Self {
            read: 0,
            failed: 0,
            left: progress.left,
            looked: progress.looked.map(|time| time.to_string()),
            since: None,
        };
        let mut since = None;
        for Reach { snapshots, archived, .. } in reaches.filter(|_| engine.keeps_all()) {
            let (read, failed): (Vec<_>, Vec<_>) = archived.into_iter().partition(|row| row.failure.is_none());
            (all.read, all.failed) = (all.read + read.len() as u64, all.failed + failed.len() as u64);
            since = read.iter().filter_map(|row| row.begin).chain(snapshots).chain(since).min();
        }
        all.since = since.map(|time| time.to_string());
        engine.keeps_all().then_some(all)
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SetReport {
    pub(crate) name: String,
    pub(crate) capability_list: String,
    pub(crate) state: String,
    pub(crate) resources: u64,
    /// What the filter leaves out.
    #[serde(default)]
    pub(crate) left_out: u64,
    pub(crate) at: Option<String>,
    pub(crate) cursor: Option<String>,
    pub(crate) last_sync: Option<String>,
    pub(crate) held_deletions: Option<u64>,
    /// What its changes came from last, and why from that; none if it is followed by its lists alone.
    pub(crate) changes: Option<Seed>,
}

impl SetReport {
    fn of(set: &SetRow, feeds: &[Feed], channels: &[Channel], behind: Option<&str>) -> Self {
        let text = |time: Option<Datetime>| time.map(|time| time.to_string());
        // What one feed has not told yet may be missing.
        let followed = feeds.iter().map(|feed| feed.cursor).min().flatten();
        let notified = channels.iter().filter(|one| one.rset == set.id).filter_map(|one| one.cursor).max();
        let followed = followed.max(notified);
        let is_partial =
            set.state == SetState::Complete && (behind.is_some() || feeds.iter().any(|feed| feed.failure.is_some()));
        let state = if is_partial { SetState::Partial } else { set.state };
        Self {
            name: set.label.clone(),
            capability_list: set.key.clone(),
            state: state.name().to_owned(),
            resources: set.shown(),
            left_out: set.left_out,
            at: text(set.at),
            cursor: text(set.cursor.max(followed)),
            last_sync: text(set.synced),
            held_deletions: set.held,
            changes: set.follows.as_ref().map(|seed| Seed { from: seed.from.clone(), why: seed.why.clone() }),
        }
    }
}

/// A channel of notifications.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ChannelReport {
    /// The set that it tells of.
    pub(crate) set: String,
    /// `change-notification` or `framework-notification`.
    pub(crate) capability: String,
    /// `websub`, `websocket` or `callback`.
    pub(crate) transport: String,
    /// The topic, or the URL of the WebSocket.
    pub(crate) url: String,
    /// `live`, `joining`, `failing`, `denied` or `unused`.
    pub(crate) state: String,
    /// Since when.
    pub(crate) since: Option<String>,
    /// Why it is not live, what is wrong all the same, or what is waited for.
    pub(crate) reason: Option<String>,
    pub(crate) hub: Option<String>,
    /// When the hub's lease ends.
    pub(crate) lease_until: Option<String>,
    /// When the last notification came.
    pub(crate) last_notification: Option<String>,
    /// Up to when its notifications are in the tree without a gap, by the Source's clock.
    pub(crate) until: Option<String>,
    /// From the end of the last interval, by the Source's clock, to when it was in the tree, in seconds.
    pub(crate) lag_seconds: Option<f64>,
    /// Notifications since the mount.
    pub(crate) received: u64,
    /// That had come before.
    pub(crate) repeated: u64,
    /// That told no more than that something has changed.
    pub(crate) pings: u64,
    /// Intervals that did not join: the lists were read.
    pub(crate) gaps: u64,
    /// Deliveries that were not believed.
    pub(crate) refused: RefusedReport,
}

/// What came on all channels since the mount, also on those that are no longer offered.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Notifications {
    pub(crate) received: u64,
    pub(crate) refused: u64,
    pub(crate) gaps: u64,
    /// Changes that polls found and no notification had told of, while all channels looked live.
    pub(crate) missed: u64,
    /// The URL below which hubs reach this mount.
    pub(crate) callback: Option<String>,
}

/// Deliveries that were not believed, and changed nothing.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RefusedReport {
    /// Without the signature of our secret.
    pub(crate) forged: u64,
    /// Of another topic.
    pub(crate) foreign: u64,
    /// Larger than is taken.
    pub(crate) too_large: u64,
}

impl RefusedReport {
    pub(crate) fn all(&self) -> u64 {
        self.forged + self.foreign + self.too_large
    }
}

impl ChannelReport {
    fn of(report: notify::Report) -> Self {
        let notify::Report { offered, standing, heard } = report;
        let Refused { forged, foreign, too_large } = standing.refused;
        let transport = notify::transport(&offered).to_owned();
        Self {
            set: offered.set,
            capability: offered.channel.capability.name().to_owned(),
            transport,
            url: offered.channel.url,
            state: standing.state().to_owned(),
            since: standing.since.map(|time| time.to_string()),
            reason: standing.reason().map(|reason| printable::line(reason).into_owned()),
            hub: standing.hub,
            lease_until: standing.expires.map(|time| time.to_string()),
            last_notification: heard.last.map(|time| time.to_string()),
            until: heard.until.map(|time| time.to_string()),
            lag_seconds: heard.lag.map(|lag| (lag.as_secs_f64() * 1000.0).round() / 1000.0),
            received: heard.received,
            repeated: heard.repeated,
            pings: heard.pings,
            gaps: heard.gaps,
            refused: RefusedReport { forged, foreign, too_large },
        }
    }
}

/// Makes reports.
pub(crate) struct Reporter {
    pub(crate) engine: Arc<Engine>,
    pub(crate) notifier: Arc<Notifier>,
    pub(crate) io: Arc<Io>,
    pub(crate) requests: Arc<Requests>,
    pub(crate) source: String,
    pub(crate) directory: PathBuf,
    pub(crate) offline: bool,
    pub(crate) content_all: bool,
    pub(crate) runtime: Handle,
    pub(crate) totals: Arc<LastTotals>,
}

/// Sums that took longer are made while nobody waits.
const QUICK: Duration = Duration::from_millis(20);

type Sums = (Totals, MemberTotals);

/// Sums that take a while: the last ones, and whether newer ones are being made.
#[derive(Default)]
pub(crate) struct LastTotals {
    last: Mutex<Option<(Sums, Duration)>>,
    under_way: AtomicBool,
}

impl Reporter {
    /// The sums; where they take long, the last ones, and new ones are made for who asks next.
    fn totals(&self) -> Sums {
        let last = *self.totals.last.lock();
        let (engine, totals) = (Arc::clone(&self.engine), Arc::clone(&self.totals));
        let make = move || {
            let began = Instant::now();
            let made =
                engine.readers().ask(|reader| Ok((reader.totals()?, reader.member_totals()?))).unwrap_or_default();
            *totals.last.lock() = Some((made, began.elapsed()));
            totals.under_way.store(false, Ordering::Release);
            made
        };
        if self.totals.under_way.swap(true, Ordering::AcqRel) {
            return last.unwrap_or_default().0;
        }
        match last {
            Some((last, took)) if took > QUICK => {
                // Begun by one of the runtime's threads: a new thread is as urgent as the one that starts it.
                self.runtime.spawn(async move { drop(tokio::task::spawn_blocking(make)) });
                last
            }
            _ => make(),
        }
    }

    /// How the mount is doing now.
    pub(crate) fn report(&self) -> Report {
        let engine = &self.engine;
        let status = engine.status();
        let sets = engine.sets().unwrap_or_default();
        let (totals, members) = self.totals();
        let progress = status.progress();
        let (errors, error_count) = status.errors();
        // A sync that found nothing new is not written down.
        let synced = sets.iter().filter_map(|set| set.synced).min().max(status.synced());
        let shown = self.sets(&sets);
        // A mount that was not looked at since it began lacks them all the same.
        let lacking = engine.lacking();
        let mut warnings = status.warnings();
        let unknown: Vec<String> = lacking.iter().filter(|text| !warnings.contains(text)).cloned().collect();
        warnings.extend(unknown);
        let lag = synced.map(|synced| (Datetime::now().nanos() - synced.nanos()).max(0).unsigned_abs() / 1_000_000_000);
        let (io, io_why) = match self.io.choice(engine.readers()) {
            Some(choice) => (choice.way.name().to_owned(), choice.why),
            None => ("auto".to_owned(), "no sizes are known yet".to_owned()),
        };
        Report {
            source: self.source.clone(),
            directory: self.directory.clone(),
            cache: engine.store().root().to_owned(),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            state: self.state(&shown, !lacking.is_empty()),
            reason: status.failure().or_else(|| sets.iter().find_map(|set| self.behind(set))),
            activity: if progress.phase.is_empty() { "idle" } else { progress.phase }.to_owned(),
            resources: sets.iter().map(SetRow::shown).sum(),
            sets: shown,
            cached: Cached { resources: totals.cached, bytes: engine.stored_bytes() },
            last_sync: synced.map(|time| time.to_string()),
            lag,
            channels: self.notifier.channels().into_iter().map(ChannelReport::of).collect(),
            notifications: self.notifications(),
            progress,
            content: if self.content_all { "all" } else { "lazy" }.to_owned(),
            io,
            io_why,
            requests: self.requests.all().map(|(kind, count)| (kind.name().to_owned(), count)).collect(),
            seed: Seed::of(&sets),
            packages: self.packages(members),
            archives: Archives::of(engine, &sets),
            error_count,
            errors: errors.into_iter().map(|one| Trouble { time: one.time, error: one.error }).collect(),
            warnings,
        }
    }

    fn packages(&self, members: MemberTotals) -> Packages {
        let rows = self.engine.readers().ask(|reader| reader.packages()).unwrap_or_default();
        Packages {
            known: rows.len() as u64,
            whole: rows.iter().filter(|row| row.whole).count() as u64,
            bytes: rows.iter().filter(|row| row.whole).filter_map(|row| row.size).sum(),
            members: members.members,
            verified: members.verified,
            damaged: members.damaged,
        }
    }

    fn sets(&self, sets: &[SetRow]) -> Vec<SetReport> {
        let readers = self.engine.readers();
        let channels = readers.ask(|reader| reader.channels()).unwrap_or_default();
        let report = |set: &SetRow| {
            let feeds = readers.ask(|reader| reader.feeds(set.id)).unwrap_or_default();
            SetReport::of(set, &feeds, &channels, self.behind(set).as_deref())
        };
        sets.iter().map(report).collect()
    }

    /// Why a set is not up to date.
    fn behind(&self, set: &SetRow) -> Option<String> {
        self.engine.readers().ask(|reader| reader.behind(set.id)).ok().flatten()
    }

    fn notifications(&self) -> Notifications {
        let (received, gaps) = self.engine.inbox().heard_in_all();
        Notifications {
            received,
            refused: self.notifier.refused(),
            gaps,
            missed: self.engine.inbox().not_notified(),
            callback: self.notifier.callback().map(|url| url.as_str().to_owned()),
        }
    }

    fn state(&self, sets: &[SetReport], lacks_sets: bool) -> String {
        let status = self.engine.status();
        let worst = [SetState::Empty, SetState::Held, SetState::Partial, SetState::Gap, SetState::Complete]
            .into_iter()
            .find(|state| sets.iter().any(|set| set.state == state.name()))
            .unwrap_or(SetState::Empty);
        let state = match worst {
            _ if self.offline => "offline",
            SetState::Empty if status.syncing() => "syncing",
            _ if status.away() => "away",
            // What the Source published since the sync before may be missing.
            SetState::Complete if status.failure().is_some() || lacks_sets => SetState::Partial.name(),
            worst => worst.name(),
        };
        state.to_owned()
    }
}

impl Report {
    /// The same as OpenMetrics text.
    pub(crate) fn metrics(&self) -> String {
        let mut text = String::new();
        let mut gauge = |name: &str, unit: &str, help: &str, value: u64| {
            text.push_str(&format!("# TYPE resourcesync_{name} gauge\n"));
            if !unit.is_empty() {
                text.push_str(&format!("# UNIT resourcesync_{name} {unit}\n"));
            }
            text.push_str(&format!("# HELP resourcesync_{name} {help}\nresourcesync_{name} {value}\n"));
        };
        gauge("complete", "", "1 if all that the Source lists is in the tree.", u64::from(self.state == "complete"));
        gauge("resources", "", "Files in the tree.", self.resources);
        gauge(
            "left_out_resources",
            "",
            "Resources that the filter leaves out of the tree.",
            self.sets.iter().map(|set| set.left_out).sum(),
        );
        gauge("cached_resources", "", "Files in the tree whose content is in the cache.", self.cached.resources);
        gauge("cached_bytes", "bytes", "Content in the cache.", self.cached.bytes);
        gauge("packages", "", "Packages of dumps that content lies in.", self.packages.known);
        gauge("packages_whole", "", "Packages of which all is in the cache.", self.packages.whole);
        gauge("members_damaged", "", "Members of packages that are not what is listed.", self.packages.damaged);
        let live = self.channels.iter().filter(|channel| channel.state == "live").count() as u64;
        gauge("channels", "", "Channels of notifications that the Source offers.", self.channels.len() as u64);
        gauge("channels_live", "", "Channels on which notifications come here.", live);
        if let Some(lag) = self.lag {
            gauge("lag_seconds", "seconds", "Time since the last sync.", lag);
        }
        text.push_str(
            "# TYPE resourcesync_errors counter\n# HELP resourcesync_errors What went wrong since the mount.\n",
        );
        text.push_str(&format!("resourcesync_errors_total {}\n", self.error_count));
        let mut counter = |name: &str, help: &str, value: u64| {
            text.push_str(&format!("# TYPE resourcesync_{name} counter\n# HELP resourcesync_{name} {help}\n"));
            text.push_str(&format!("resourcesync_{name}_total {value}\n"));
        };
        let Notifications { received, refused, gaps, missed, .. } = self.notifications;
        counter("notifications", "Notifications that came since the mount.", received);
        counter("notifications_refused", "Deliveries that were not believed.", refused);
        counter("notification_gaps", "Gaps between notifications that lists had to close.", gaps);
        counter("changes_not_notified", "Changes that polls found while all channels looked live.", missed);
        text.push_str("# TYPE resourcesync_requests counter\n");
        text.push_str("# HELP resourcesync_requests What the kernel asked; warm work never leaves it.\n");
        for (kind, count) in &self.requests {
            text.push_str(&format!("resourcesync_requests_total{{kind=\"{kind}\"}} {count}\n"));
        }
        text.push_str("# TYPE resourcesync_fetched_bytes counter\n# UNIT resourcesync_fetched_bytes bytes\n");
        text.push_str("# HELP resourcesync_fetched_bytes Content fetched since the mount.\n");
        text.push_str(&format!("resourcesync_fetched_bytes_total {}\n# EOF\n", self.progress.fetched_bytes));
        text
    }
}
