//! What a Source has to tell of the versions of one resource: its TimeMap when they are listed, its TimeGate for a
//! moment that nothing else covers (core 14.6, RFC 7089).
//!
//! One asking at a time for a resource; who waits, waits no longer than `timeout`, and the asking goes on for the
//! next who looks. What was asked is not asked again for a while, be it that the answer was no.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lru::LruCache;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::catalog::{Memento, NameId, TimeMapRow};
use crate::document::Datetime;
use crate::source::{SourceError, Trouble, Validators};
use crate::sync::context::Context;
use crate::sync::error::SyncError;
use crate::versions::{self, Limits, OwnLinks, Timeline};

/// How long an answer holds.
const FRESH: Duration = Duration::from_secs(300);
/// How long a failure does.
const AGAIN: Duration = Duration::from_secs(60);
/// How long what a resource's own `Link` header said holds.
const LEARNT: Duration = Duration::from_secs(86_400);
/// How much longer than whoever waits an asking may go on.
const PATIENCE: u32 = 5;
/// The part of `timeout` that somebody waits.
const SHARE: f32 = 0.9;
/// The most TimeMaps and TimeGates of one resource that are asked.
const MOST_LINKS: usize = 4;
/// The most resources, and moments, of which it is remembered what was asked.
const MOST_REMEMBERED: usize = 20_000;

/// What came of asking for the versions of a resource.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// When what is known was had, or ceased to be fresh, in nanoseconds; 0 if nothing was asked.
    pub as_of: Datetime,
    /// When it was had last.
    pub when: Option<Datetime>,
    /// Why it could not be had last.
    pub trouble: Option<String>,
}

/// What came of the last asking.
#[derive(Clone, Debug)]
struct Outcome {
    at: Datetime,
    /// When it went well last.
    well: Option<Datetime>,
    trouble: Option<Failed>,
}

/// Why versions were not had.
#[derive(Clone, Debug)]
struct Failed {
    why: String,
    /// Whether that was an answer: there is no such list.
    answered: bool,
}

impl Failed {
    fn all(troubles: Vec<Self>) -> Result<(), Self> {
        let why: Vec<&str> = troubles.iter().map(|trouble| trouble.why.as_str()).collect();
        match troubles.is_empty() {
            true => Ok(()),
            false => Err(Self { why: why.join("; "), answered: troubles.iter().all(|trouble| trouble.answered) }),
        }
    }
}

impl From<String> for Failed {
    fn from(why: String) -> Self {
        Self { why, answered: false }
    }
}

impl From<SourceError> for Failed {
    fn from(error: SourceError) -> Self {
        let answered = matches!(error.trouble, Trouble::Status { code: 404 | 410, .. });
        Self { why: error.to_string(), answered }
    }
}

impl Outcome {
    fn holds_until(&self) -> i64 {
        let span = if self.trouble.is_some() { AGAIN } else { FRESH };
        self.at.nanos().saturating_add(i64::try_from(span.as_nanos()).unwrap_or(i64::MAX))
    }
}

/// What is asked for: all versions of a resource, or the one of a moment.
type Question = (NameId, Option<i64>);

/// Asks for versions.
#[derive(Debug)]
pub(in crate::sync) struct History {
    context: Arc<Context>,
    outcomes: Mutex<LruCache<Question, Outcome>>,
    under_way: Mutex<HashMap<Question, watch::Receiver<()>>>,
    /// What the heads of resources said of their versions, and until when that holds.
    learnt: Mutex<LruCache<NameId, (Instant, OwnLinks)>>,
    silent: Silent,
}

/// Takes a question off the list, however its asking ends.
struct UnderWay(Arc<History>, Question, #[allow(dead_code, reason = "who waits is told by its end")] watch::Sender<()>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.lock().remove(&self.1);
    }
}

impl History {
    pub(in crate::sync) fn new(context: Arc<Context>) -> Arc<Self> {
        let most = NonZeroUsize::new(MOST_REMEMBERED).unwrap_or(NonZeroUsize::MIN);
        Arc::new(Self {
            context,
            outcomes: Mutex::new(LruCache::new(most)),
            under_way: Mutex::default(),
            learnt: Mutex::new(LruCache::new(most)),
            silent: Silent::new(),
        })
    }

    fn outcome(&self, question: Question) -> Option<Outcome> {
        let known = self.outcomes.lock().get(&question).cloned();
        // What an earlier process read is in the catalog.
        known.or_else(|| match question {
            (resource, None) => {
                let found = self.context.readers.ask(|reader| reader.timemap(resource));
                let row = found.unwrap_or_else(|error| {
                    self.context.status.error(&error.to_string());
                    None
                })?;
                let at = Datetime::from_nanos(row.read);
                Some(Outcome { at, well: Some(at), trouble: None })
            }
            _ => None,
        })
    }

    pub(in crate::sync) fn asked(&self, resource: NameId) -> Asked {
        let Some(outcome) = self.outcome((resource, None)) else {
            let trouble = self.context.config.offline.then(|| "the mount is offline".to_owned());
            return Asked { trouble, ..Asked::default() };
        };
        let until = outcome.holds_until();
        let fresh = self.context.config.offline || Datetime::now().nanos() < until;
        Asked {
            as_of: if fresh { outcome.at } else { Datetime::from_nanos(until) },
            when: outcome.well,
            trouble: outcome.trouble.map(|failed| failed.why),
        }
    }

    /// Brings what the Source has to tell of the versions of a resource into the catalog: all that it lists, and
    /// the one that was in force at a moment, if that is not known then. Where the Source names no archive, the resource
    /// itself is asked, if this `learns`. Returns within the timeout; false if the Source could not be asked.
    pub(in crate::sync) async fn bring(
        self: &Arc<Self>,
        resource: NameId,
        moment: Option<Datetime>,
        learns: bool,
    ) -> bool {
        if self.context.config.offline {
            return true;
        }
        let deadline = tokio::time::Instant::now() + self.context.client.timeout().mul_f32(SHARE);
        let mut questions = vec![(resource, None)];
        self.wait((resource, None), deadline, learns).await;
        if let Some(moment) = moment
            && !self.covers(resource, moment)
        {
            questions.push((resource, Some(moment.nanos())));
            self.wait((resource, Some(moment.nanos())), deadline, learns).await;
        }
        let outcomes = questions.into_iter().filter_map(|question| self.outcome(question));
        !outcomes.filter_map(|outcome| outcome.trouble).any(|failed| !failed.answered)
    }

    /// What failed is asked again when somebody looks.
    pub(in crate::sync) fn try_again(&self) {
        let mut outcomes = self.outcomes.lock();
        let failed = outcomes.iter().filter(|(_, outcome)| outcome.trouble.is_some());
        let failed: Vec<Question> = failed.map(|(question, _)| *question).collect();
        failed.iter().for_each(|question| drop(outcomes.pop(question)));
        self.learnt.lock().clear();
        self.silent.clear();
    }

    /// Whether a version is known that was in force at a moment.
    fn covers(&self, resource: NameId, moment: Datetime) -> bool {
        let known = self.context.readers.ask(|reader| {
            let Some(version) = reader.version_at(resource, moment)? else { return Ok(false) };
            let versions = reader.versions_of(resource)?;
            Ok(versions.iter().any(|known| known.id == version && !known.places.is_empty()))
        });
        // What cannot be asked of the catalog need not be asked of the Source.
        known.unwrap_or_else(|error| {
            self.context.status.error(&error.to_string());
            true
        })
    }

    async fn wait(self: &Arc<Self>, question: Question, deadline: tokio::time::Instant, learns: bool) {
        if self.outcome(question).is_some_and(|outcome| Datetime::now().nanos() < outcome.holds_until()) {
            return;
        }
        let links = match self.links(question.0) {
            Ok(links) if links.lead_somewhere(question) || learns && self.may_learn(question, &links) => links,
            Ok(_) => return,
            Err(error) => return self.context.status.error(&error.to_string()),
        };
        // Who walks through many resources does not wait for each.
        if let Some(url) = links.all().next().filter(|_| links.all().all(|url| self.silent.contains(url))) {
            return self.came(question, Some(format!("{url}: its server did not answer a moment ago").into()));
        }
        // Where no archive is named, that its server does not answer is no trouble of its versions.
        let is_named = !links.is_empty();
        let mut done = {
            let mut under_way = self.under_way.lock();
            match under_way.get(&question) {
                Some(done) => done.clone(),
                None => {
                    let (end, done) = watch::channel(());
                    under_way.insert(question, done.clone());
                    let own = UnderWay(Arc::clone(self), question, end);
                    tokio::spawn(async move { own.0.ask(own.1, links).await });
                    done
                }
            }
        };
        // The end of the sender is the end of the asking.
        let ended = tokio::time::timeout_at(deadline, async { while done.changed().await.is_ok() {} }).await;
        if ended.is_err() && is_named {
            let waited = self.context.client.timeout().mul_f32(SHARE).as_secs_f32();
            self.came(question, Some(format!("no answer within {waited:.1} s; asking goes on").into()));
        }
    }

    /// Notes what came of asking, where people look for it.
    fn came(&self, question: Question, trouble: Option<Failed>) {
        if let Some(Failed { why: trouble, .. }) = &trouble {
            let uri = self.context.readers.ask(|reader| reader.resource_uri(question.0)).unwrap_or_default();
            self.context.status.warning(&format!("{uri}: its versions could not be asked for: {trouble}"));
        }
        let at = Datetime::now();
        let before = self.outcome(question).and_then(|outcome| outcome.well);
        let outcome = Outcome { at, well: if trouble.is_none() { Some(at) } else { before }, trouble };
        self.outcomes.lock().put(question, outcome);
    }

    fn links(&self, resource: NameId) -> Result<Links, SyncError> {
        let (uri, maps, gates) = self.context.readers.ask(|reader| {
            let maps = reader.linked_from(resource, "timemap")?;
            Ok((reader.resource_uri(resource)?, maps, reader.linked_from(resource, "timegate")?))
        })?;
        let resolve = |hrefs: Vec<String>| -> Vec<String> {
            let base = url::Url::parse(&uri).ok();
            let resolved = hrefs.iter().filter_map(|href| base.as_ref()?.join(href).ok());
            resolved.filter(|url| matches!(url.scheme(), "http" | "https")).map(String::from).take(MOST_LINKS).collect()
        };
        let mut links = Links { maps: resolve(maps), gates: resolve(gates), uri: None };
        if links.is_empty() {
            links.uri = Some(uri).filter(|uri| uri.starts_with("http"));
            let learnt = self.learnt.lock().get(&resource).cloned();
            if let Some((_, own)) = learnt.filter(|(until, _)| Instant::now() < *until) {
                (links.maps, links.gates) = (own.timemaps, own.timegates);
            }
        }
        Ok(links)
    }

    /// Whether the head of a resource may say where its versions are, which its Source does not.
    fn may_learn(&self, (resource, moment): Question, links: &Links) -> bool {
        let mut learnt = self.learnt.lock();
        let is_known = learnt.get(&resource).is_some_and(|(until, _)| Instant::now() < *until);
        moment.is_none() && links.is_empty() && links.uri.is_some() && !is_known
    }

    /// Learns from the head of a resource where its versions are.
    async fn learn(&self, resource: NameId, uri: &str, within: Duration) -> Result<OwnLinks, Failed> {
        let asked = self.silent.ask(uri, versions::own_links(&self.context.client, uri, within)).await;
        let (holds, mut own) = match &asked {
            Ok(own) => (LEARNT, own.clone()),
            Err(_) => (AGAIN, OwnLinks::default()),
        };
        own.timemaps.truncate(MOST_LINKS);
        own.timegates.truncate(MOST_LINKS);
        let until = Instant::now() + holds;
        self.learnt.lock().put(resource, (until, own.clone()));
        asked.map(|_| own)
    }

    async fn ask(&self, question: Question, mut links: Links) {
        let within = self.context.client.timeout() * PATIENCE;
        if let Some(uri) = links.uri.take().filter(|_| links.is_empty()) {
            match self.learn(question.0, &uri, within).await {
                Ok(own) => (links.maps, links.gates) = (own.timemaps, own.timegates),
                // The Source names no archive: that its server says nothing either is no fault of the listing.
                Err(Failed { why, .. }) => tracing::debug!(uri, why, "the resource's own links are not known"),
            }
            if !links.lead_somewhere(question) {
                return;
            }
        }
        let result = match question {
            (resource, None) => self.ask_maps(resource, &links, within).await,
            (resource, Some(moment)) => self.ask_gates(resource, &links, Datetime::from_nanos(moment), within).await,
        };
        self.came(question, result.err());
    }

    /// Reads the TimeMaps of a resource; where it has none but a TimeGate, those that this one names.
    async fn ask_maps(&self, resource: NameId, links: &Links, within: Duration) -> Result<(), Failed> {
        let mut maps = links.maps.clone();
        let mut troubles = Vec::new();
        if maps.is_empty() {
            for gate in &links.gates {
                let asking = versions::ask_timegate(&self.context.client, gate, None, within);
                match self.silent.ask(gate, asking).await {
                    Ok(said) => {
                        maps.extend(said.timemap);
                        let told = said.others.into_iter().chain(said.memento.filter(|_| !said.negotiated));
                        self.keep(resource, told.map(seen_at_its_time).collect(), None).await?;
                    }
                    Err(trouble) => troubles.push(trouble),
                }
            }
        }
        let known = self.context.readers.ask(|reader| reader.timemap(resource)).map_err(|error| error.to_string())?;
        for url in maps.iter().take(MOST_LINKS) {
            let known = known.as_ref().filter(|known| known.url == *url);
            if let Err(trouble) = self.read_map(resource, url, known, within).await {
                troubles.push(trouble);
            }
        }
        Failed::all(troubles)
    }

    async fn read_map(
        &self,
        resource: NameId,
        url: &str,
        known: Option<&TimeMapRow>,
        within: Duration,
    ) -> Result<(), Failed> {
        let validators = known.map(|known| Validators {
            etag: known.etag.clone(),
            last_modified: known.last_modified.clone(),
            settled: false,
        });
        let limits = Limits::of(&self.context.config.bounds);
        let read = versions::read_timemap(&self.context.client, url, validators.as_ref(), &limits, within);
        let (mementos, validators, trouble) = match self.silent.ask(url, read).await? {
            Timeline::NotModified => (Vec::new(), validators.unwrap_or_default(), None),
            Timeline::Map(map) => {
                for note in &map.notes {
                    self.context.status.warning(&format!("{url}: {note}"));
                }
                let trouble = (!map.complete).then(|| format!("{url}: not all of it could be read"));
                // What was cut short is read again, whether or not it changed.
                let validators = if map.complete { map.validators } else { Validators::default() };
                let told = |memento: versions::Memento| Memento::archived(memento.url, memento.datetime);
                (map.mementos.into_iter().map(told).collect(), validators, trouble)
            }
        };
        let row = TimeMapRow {
            url: url.to_owned(),
            etag: validators.etag,
            last_modified: validators.last_modified,
            read: Datetime::now().nanos(),
        };
        self.keep(resource, mementos, Some(row)).await?;
        trouble.map_or(Ok(()), |trouble| Err(trouble.into()))
    }

    /// Asks the TimeGates of a resource what was in force at a moment.
    async fn ask_gates(
        &self,
        resource: NameId,
        links: &Links,
        moment: Datetime,
        within: Duration,
    ) -> Result<(), Failed> {
        let mut troubles = Vec::new();
        for gate in &links.gates {
            let asking = versions::ask_timegate(&self.context.client, gate, Some(moment), within);
            match self.silent.ask(gate, asking).await {
                Ok(said) => {
                    let mut told: Vec<Memento> = said.others.into_iter().map(seen_at_its_time).collect();
                    let found = said.memento.map(|memento| Memento {
                        negotiated: said.negotiated,
                        sure: Some(moment),
                        ..Memento::archived(memento.url, memento.datetime)
                    });
                    let answered = found.is_some();
                    // Last: of one URL, what is known of the moment asked counts.
                    told.extend(found);
                    self.keep(resource, told, None).await?;
                    if answered {
                        return Ok(());
                    }
                    // Some answer with the nearest, which may be later: what they list tells of the one before.
                    if let Some(url) = said.timemap.filter(|url| !links.maps.contains(url)) {
                        troubles.extend(self.read_map(resource, &url, None, within).await.err());
                    }
                }
                Err(trouble) => troubles.push(trouble),
            }
        }
        Failed::all(troubles)
    }

    async fn keep(&self, resource: NameId, told: Vec<Memento>, row: Option<TimeMapRow>) -> Result<(), String> {
        if told.is_empty() && row.is_none() {
            return Ok(());
        }
        let kept = self.context.write_queue.write(move |transaction| {
            if !told.is_empty() {
                transaction.put_mementos(resource, &told)?;
            }
            row.map_or(Ok(()), |row| transaction.put_timemap(resource, &row))
        });
        kept.await.map_err(|error| error.to_string())
    }
}

/// A memento that is named on the way: it is not known what was in force after it.
fn seen_at_its_time(memento: versions::Memento) -> Memento {
    Memento { sure: Some(memento.datetime), ..Memento::archived(memento.url, memento.datetime) }
}

/// Servers that did not answer somebody who waited: for a while, others do not wait for them, too.
#[derive(Debug)]
pub(in crate::sync) struct Silent(Mutex<LruCache<String, Instant>>);

impl Silent {
    pub(in crate::sync) fn new() -> Self {
        Self(Mutex::new(LruCache::new(NonZeroUsize::new(1000).unwrap_or(NonZeroUsize::MIN))))
    }

    /// Asks, unless the server was silent a moment ago, and notes whether it is.
    async fn ask<T>(&self, url: &str, asking: impl Future<Output = Result<T, SourceError>>) -> Result<T, Failed> {
        if self.contains(url) {
            return Err(format!("{url}: its server did not answer a moment ago").into());
        }
        let answer = asking.await;
        match &answer {
            Err(error) if error.trouble.is_away() => self.add(url),
            _ => self.remove(url),
        }
        answer.map_err(Failed::from)
    }

    fn with<T>(&self, url: &str, look: impl FnOnce(&mut LruCache<String, Instant>, String) -> T) -> T {
        let host = url::Url::parse(url).map(|url| url.authority().to_owned()).unwrap_or_default();
        look(&mut self.0.lock(), host)
    }

    pub(in crate::sync) fn contains(&self, url: &str) -> bool {
        self.with(url, |hosts, host| hosts.get(&host).is_some_and(|when| when.elapsed() < AGAIN))
    }

    pub(in crate::sync) fn add(&self, url: &str) {
        self.with(url, |hosts, host| hosts.put(host, Instant::now()));
    }

    fn clear(&self) {
        self.0.lock().clear();
    }

    pub(in crate::sync) fn remove(&self, url: &str) {
        self.with(url, |hosts, host| hosts.pop(&host));
    }
}

/// Where a resource's versions are asked for.
struct Links {
    maps: Vec<String>,
    gates: Vec<String>,
    /// The resource itself, if its Source names neither.
    uri: Option<String>,
}

impl Links {
    fn all(&self) -> impl Iterator<Item = &String> {
        self.maps.iter().chain(&self.gates)
    }

    fn is_empty(&self) -> bool {
        self.maps.is_empty() && self.gates.is_empty()
    }

    fn lead_somewhere(&self, (_, moment): Question) -> bool {
        !self.gates.is_empty() || moment.is_none() && !self.maps.is_empty()
    }
}
