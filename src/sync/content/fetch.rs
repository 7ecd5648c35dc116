//! Content on demand: "bring me this version".
//!
//! All who want one version share one flight. A flight asks the locations of the version one after the
//! other, until one gives bytes that are what the Source lists; those become an object of the store.
//! A reader waits no longer than `timeout` for the next byte of progress; the flight goes on without
//! it, so that the next try finds more.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::{Duration, Instant};

use lru::LruCache;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::download;
use super::flight::{Failure, Flight, Kept};
use super::freshness::{Freshness, is_timeless};
use super::location::{Location, expected, represented};
use super::mementos::{History, Silent};
use crate::bounds::capacity;
use crate::catalog::{Content, MemberRow, MemberState, Place, Pool, Stored, VersionId, VersionRow};
use crate::document::{Algorithm, Datetime};
use crate::source::{Asked, Expected, SourceError, Trouble};
use crate::store::{Body, Store};
use crate::sync::config::Verify;
use crate::sync::context::Context;
use crate::sync::error::SyncError;
use crate::sync::packages;
use crate::sync::under_way::UnderWay;
use crate::sync::writer::open_files::Ready;

/// How long a failure is answered from memory, so that a reader that insists does not become a storm.
const FAILURE_KEPT: Duration = Duration::from_secs(3);
/// How far in nanoseconds it may be behind when content was read last: each note of it is a row written, and makes the
/// catalog's readers read their pages anew.
const TOUCH_EVERY: i64 = 600 * 1_000_000_000;
/// The most sizes that wait to be asked for because somebody lists a directory.
const MOST_EXPECTED: usize = 20_000;

/// Bytes are not what they should be. Whoever looks into it says so when it is done.
#[derive(Debug)]
pub(in crate::sync) struct StaleHint(pub(in crate::sync) oneshot::Sender<()>);

/// Why a version that was seen is no more.
const REPLACED: &str = "it was not what had been said of it, and another has taken its place; open the file anew";

/// Streams that failed verification after readers had seen bytes of them.
#[derive(Debug)]
struct RefusedStreams {
    /// These versions get no other content: the kernel keeps what readers have seen of their inodes. The writer replaces them,
    /// which may take as long as the transaction that it is in.
    versions: LruCache<VersionId, ()>,
    /// Of these, no parts are fetched aside: a server whose ranges are damaged may send the whole intact.
    urls: LruCache<String, ()>,
}

/// What a flight asks for.
#[derive(Clone, Copy)]
struct Wanted<'f> {
    row: &'f VersionRow,
    expected: &'f Expected,
    flight: &'f Arc<Flight>,
    /// Whether a reader waits for it.
    waited_for: bool,
    /// How long a place may keep silent, where a reader waits and others may have it.
    patience: Option<Duration>,
    /// Whether readers have seen bytes of the only place.
    streamed: bool,
}

/// Content on demand.
#[derive(Debug)]
pub(in crate::sync) struct Contents {
    pub(in crate::sync) context: Arc<Context>,
    /// Archives that do not answer. The Source itself is always asked.
    silent: Silent,
    pub(in crate::sync) history: Arc<History>,
    stale_hints: mpsc::UnboundedSender<StaleHint>,
    /// Versions that no patch made.
    pub(in crate::sync) unpatchable: Mutex<LruCache<VersionId, ()>>,
    /// How far the fetching of what is missing has come.
    pub(in crate::sync) reached: AtomicI64,
    /// The turn of applying a patch.
    pub(in crate::sync) patching: Arc<Semaphore>,
    flights: Mutex<HashMap<VersionId, Arc<Flight>>>,
    /// Sizes that are being looked for.
    sizing: UnderWay<Result<u64, Failure>>,
    failures: Mutex<LruCache<VersionId, (Instant, Failure)>>,
    refused: Mutex<RefusedStreams>,
    /// When content was looked at that only its server can tell to be current.
    pub(in crate::sync) freshness: Freshness,
    /// Bodies that came for files of several formats, and the URIs of two of those.
    pub(in crate::sync) impostors: Mutex<LruCache<[u8; 32], [String; 2]>>,
    expected: Arc<Semaphore>,
    expected_slots: Arc<Semaphore>,
}

impl Contents {
    pub(in crate::sync) fn new(
        context: Arc<Context>,
        stale_hints: mpsc::UnboundedSender<StaleHint>,
        history: &Arc<History>,
    ) -> Arc<Self> {
        let ahead = context.client.connections().saturating_sub(1).max(1);
        Arc::new(Self {
            freshness: Freshness::new(context.config.revalidate),
            context,
            silent: Silent::new(),
            history: Arc::clone(history),
            stale_hints,
            unpatchable: Mutex::new(LruCache::new(capacity(10_000))),
            reached: AtomicI64::new(0),
            patching: Arc::new(Semaphore::new(1)),
            flights: Mutex::new(HashMap::new()),
            sizing: UnderWay::default(),
            failures: Mutex::new(LruCache::new(capacity(10_000))),
            refused: Mutex::new(RefusedStreams {
                versions: LruCache::new(capacity(10_000)),
                urls: LruCache::new(capacity(1000)),
            }),
            impostors: Mutex::new(LruCache::new(capacity(1000))),
            expected: Arc::new(Semaphore::new(MOST_EXPECTED)),
            expected_slots: Arc::new(Semaphore::new(ahead)),
        })
    }

    pub(in crate::sync) fn ready(&self, version: VersionId) -> Option<Ready> {
        if let Some(ready) = self.context.files.get(version) {
            return Some(ready);
        }
        if let Some(content) = self.context.write_queue.pending(version) {
            return self.open(version, content);
        }
        // A failure shows again where the version is asked for whole.
        match self.context.readers.ask(|reader| reader.place(version)).ok()?? {
            Place::Object(content, used) => {
                let ready = self.open(version, content);
                if ready.is_some() && Datetime::now().nanos().saturating_sub(used.nanos()) > TOUCH_EVERY {
                    self.context.write_queue.touched(content.sha256);
                }
                ready
            }
            Place::Member(member) => self.packed(version, &member),
        }
    }

    pub(in crate::sync) fn open(&self, version: VersionId, content: Content) -> Option<Ready> {
        match self.context.store.object(&content.sha256) {
            Ok(file) => {
                let body = Body::whole(Arc::new(file), content.size);
                let ready = Ready { body, size: content.size, verified: content.verified };
                self.context.files.put(version, Stored::Object(content.sha256), ready.clone());
                Some(ready)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                self.context.status.warning("content is missing from the cache and will be fetched again");
                self.context.write_queue.lost(content.sha256);
                None
            }
            Err(error) => {
                self.context.status.error(&format!("cache: {error}"));
                None
            }
        }
    }

    pub(in crate::sync) fn row(&self, version: VersionId) -> Result<Option<VersionRow>, Failure> {
        // Before the catalog is asked: what is pending then may be in the catalog a moment later.
        let pending = self.context.write_queue.pending_size(version);
        let found = self.context.readers.ask(|reader| reader.version(version));
        let mut row = found.map_err(|error| self.failed(version, error.to_string()))?;
        if let Some(row) = row.as_mut()
            && let Some(size) = pending.filter(|_| row.size.is_none())
        {
            row.size = Some(size);
            row.settled = true;
        }
        Ok(row)
    }

    /// Whether a member is not known to be damaged.
    fn is_sound(&self, version: VersionId, member: &MemberRow) -> bool {
        let package = packages::get(&self.context, member.package);
        package.is_some_and(|package| self.state_of(&package, version, member) != MemberState::Damaged)
    }

    /// Notes a failure where people look for it.
    pub(in crate::sync) fn failed(&self, version: VersionId, reason: String) -> Failure {
        self.context.status.error(&reason);
        let failure = Failure::new(reason);
        self.failures.lock().put(version, (Instant::now(), failure.clone()));
        failure
    }

    /// Forgets what failed a moment ago, and what was found to be current: who asks now gets a new answer.
    pub(in crate::sync) fn try_again(&self) {
        self.freshness.check_again();
        self.failures.lock().clear();
    }

    pub(in crate::sync) fn streaming(&self, version: VersionId) -> bool {
        self.flights.lock().get(&version).is_some_and(|flight| flight.stream.get().is_some())
    }

    pub(in crate::sync) async fn read(
        self: &Arc<Self>,
        version: VersionId,
        offset: u64,
        len: u64,
    ) -> Result<Ready, Failure> {
        if let Some(ready) = self.ready(version) {
            return Ok(ready);
        }
        if let Some((when, failure)) = self.failures.lock().get(&version)
            && when.elapsed() < FAILURE_KEPT
        {
            return Err(failure.clone());
        }
        let flight = self.flight(version, true);
        self.wait(version, &flight, Some((offset, len))).await
    }

    /// Waits for a flight to land, or for a part of its bytes, as long as there is progress.
    async fn wait(&self, version: VersionId, flight: &Flight, part: Option<(u64, u64)>) -> Result<Ready, Failure> {
        let (mut done, mut moved) = (flight.done.subscribe(), flight.parts.moved());
        let mut asked = false;
        let begun = Instant::now();
        loop {
            if let Some(result) = &*done.borrow_and_update() {
                return result.clone();
            }
            // Bytes that came before this reader did are no progress for it.
            let last = (*moved.borrow_and_update()).max(begun);
            if let (Some((offset, len)), Some((file, size))) = (part, flight.stream.get()) {
                let end = (offset + len).min(*size);
                if flight.parts.ranges().contains(offset, end) {
                    let body = Body::whole(Arc::clone(file), *size);
                    return Ok(Ready { body, size: *size, verified: false });
                }
                if !asked {
                    flight.parts.want(offset, end);
                    asked = true;
                }
            }
            // What `rate=` makes us wait is no fault of the Source's.
            let deadline =
                tokio::time::Instant::from_std(last + self.context.client.timeout() + self.context.client.backlog());
            let news = async {
                tokio::select! {
                    _ = done.changed() => {}
                    _ = moved.changed() => {}
                }
            };
            if tokio::time::timeout_at(deadline, news).await.is_err() {
                let what = self.row(version).ok().flatten().map(|row| row.uri).unwrap_or_default();
                return Err(self.failed(
                    version,
                    format!(
                        "{what}: no byte for {} s; what came so far is kept for the next try, and a longer timeout= may help",
                        self.context.client.timeout().as_secs()
                    ),
                ));
            }
        }
    }

    /// The flight of a version: the one under way, or a new one.
    pub(in crate::sync) fn flight(self: &Arc<Self>, version: VersionId, waited_for: bool) -> Arc<Flight> {
        let mut flights = self.flights.lock();
        if let Some(flight) = flights.get(&version) {
            return Arc::clone(flight);
        }
        let flight = Arc::new(Flight::new());
        flights.insert(version, Arc::clone(&flight));
        let (this, own) = (Arc::clone(self), Arc::clone(&flight));
        tokio::spawn(async move {
            let fetch = std::panic::AssertUnwindSafe(this.fetch(version, &own, waited_for));
            let result = futures_util::FutureExt::catch_unwind(fetch).await;
            let result =
                result.unwrap_or_else(|_| Err(this.failed(version, "a bug ended the fetch; see the log".to_owned())));
            this.flights.lock().remove(&version);
            own.done.send_replace(Some(result));
        });
        flight
    }

    async fn fetch(
        self: &Arc<Self>,
        version: VersionId,
        flight: &Arc<Flight>,
        waited_for: bool,
    ) -> Result<Ready, Failure> {
        let row = self.row(version)?.filter(|_| !self.refused.lock().versions.contains(&version));
        let Some(row) = row else {
            return Err(self.failed(version, REPLACED.to_owned()));
        };
        // It may have landed between the look and the start.
        if let Some(ready) = row.content.and_then(|content| self.open(version, content)) {
            return Ok(ready);
        }
        let expected = expected(&row);
        if let Some(content) = self.same_content(&expected) {
            return self.land(&row, content);
        }
        let mut errors: Vec<SourceError> = Vec::new();
        if let Some(member) = &row.member
            && self.is_sound(version, member)
        {
            match self.unpack(&row, member, flight).await {
                Ok(ready) => return Ok(ready),
                Err(error) => errors.push(error),
            }
        }
        if download::streamed_from(&self.context.store, version).is_none()
            && let Some(content) = self.patched(&row, flight).await
        {
            return self.land(&row, content);
        }
        if let Some(failure) = self.not_here(&row) {
            return Err(failure);
        }
        let bound = download::streamed_from(&self.context.store, version);
        let streamed = bound.is_some();
        let places = self.places_to_ask(&row, bound, waited_for).await?;
        let share = u32::try_from(places.len()).unwrap_or(1).clamp(1, 4);
        let patience = waited_for.then(|| self.context.client.timeout().mul_f32(0.9) / share);
        let wanted = Wanted { row: &row, expected: &expected, flight, waited_for, patience, streamed };
        if let Some(ready) = self.ask(&wanted, &places, &mut errors).await {
            return ready;
        }
        let mut why = reason(&row, &errors);
        let is_doubtful = errors.iter().any(|error| error.trouble.is_doubt());
        if row.current && waited_for && is_doubtful && self.is_behind(version, flight).await {
            why.push_str("; there is a newer version of it now: open the file anew");
        }
        Err(self.failed(version, why))
    }

    /// Where a version may be had; or the one place that it was begun at, and readers have seen bytes of.
    async fn places_to_ask(
        &self,
        row: &VersionRow,
        begun_at: Option<String>,
        waited_for: bool,
    ) -> Result<Vec<Location>, Failure> {
        if let Some(url) = begun_at {
            // Asked for as it was.
            let known = self.locations_of(row)?.into_iter().find(|place| place.url == url);
            return Ok(vec![known.unwrap_or_else(|| Location::plain(url))]);
        }
        let places = self.places_of(row, waited_for).await?;
        if places.is_empty() {
            let reason = "this version was superseded before it was fetched, the Source has only the newest, and no memento of it is known";
            return Err(self.failed(row.id, format!("{}: {reason}; open the file anew", row.uri)));
        }
        Ok(places)
    }

    /// Asks the places of a version one after the other. `None` if none of them gives what is wanted: the reasons are added to
    /// `errors` then.
    async fn ask(
        self: &Arc<Self>,
        wanted: &Wanted<'_>,
        places: &[Location],
        errors: &mut Vec<SourceError>,
    ) -> Option<Result<Ready, Failure>> {
        let Wanted { row, flight, .. } = *wanted;
        let mut kept_from: Option<(&Location, SourceError)> = None;
        for place in places {
            if kept_from.take().is_some_and(|(before, error)| before.keeps_from(place, &error)) {
                continue;
            }
            if !row.current && wanted.waited_for && self.silent.contains(&place.url) {
                let what = "its server did not answer a moment ago".to_owned();
                errors.push(SourceError::new(&place.url, Trouble::Nowhere(what)));
                continue;
            }
            match self.download(wanted, place).await {
                Ok(served) => return Some(self.served(row, place, served)),
                Err(error) if wanted.streamed || flight.stream.get().is_some() => {
                    self.refuse_stream(row.id, place, &error);
                    errors.push(error);
                    return None;
                }
                Err(error) => {
                    if !row.current && matches!(error.trouble, Trouble::Stalled { .. }) {
                        self.silent.add(&place.url);
                    }
                    if places.len() > 1 {
                        self.context.status.warning(&format!("{error}; trying the next location"));
                    }
                    kept_from = Some((place, error.clone()));
                    errors.push(error);
                }
            }
        }
        None
    }

    /// Downloads a version from one place.
    async fn download(
        self: &Arc<Self>,
        wanted: &Wanted<'_>,
        place: &Location,
    ) -> Result<download::Served, SourceError> {
        let job = download::Job {
            bounds: &self.context.config.bounds,
            client: &self.context.client,
            store: &self.context.store,
            status: &self.context.status,
            flight: wanted.flight,
            version: wanted.row.id,
            place,
            expected: wanted.expected,
            verify: self.context.config.verify,
            known: None,
            patience: wanted.patience,
            aside: !self.refused.lock().urls.contains(&place.url),
        };
        let result = job.run().await.and_then(|served| {
            let unasked = || Trouble::Broken("304 where nothing was asked conditionally".to_owned());
            served.ok_or_else(|| SourceError::new(&place.url, unasked()))
        });
        let result = match result {
            Ok(served) => self.hold_to_its_format(wanted.row, place, served).await,
            error => error,
        };
        self.place_told(wanted.row.id, place, result.as_ref().map(|_| ())).await;
        result
    }

    /// What a place served becomes the content of a version.
    fn served(&self, row: &VersionRow, place: &Location, served: download::Served) -> Result<Ready, Failure> {
        self.silent.remove(&place.url);
        if let Some(trouble) = &served.forgiven {
            self.context.status.warning(&format!("{}: {trouble}", row.uri));
        }
        self.context.status.update(|progress| progress.fetched_bytes += served.content.size);
        let ready = self.land(row, served.content);
        if ready.is_ok() && (is_timeless(row) || row.current && row.media.is_none()) {
            self.freshness.note(&self.context.write_queue, row.id, served.validators, served.media);
        }
        ready
    }

    /// Readers have seen bytes of this place: nothing else may go on under them. What cannot be gone on with where it broke stays
    /// with the old inode.
    fn refuse_stream(&self, version: VersionId, place: &Location, error: &SourceError) {
        let goes_on = error.trouble.passes() || error.trouble.is_away();
        if goes_on && download::streamed_from(&self.context.store, version).is_some() {
            return;
        }
        self.context.write_queue.superseded(version, None);
        if let Err(error) = self.context.store.forget_partial(version.number()) {
            self.context.status.warning(&format!("cache: {error}"));
        }
        let mut refused = self.refused.lock();
        refused.versions.put(version, ());
        refused.urls.put(place.url.clone(), ());
    }

    /// Looks whether the Source tells of a newer version; says whether this one was superseded.
    async fn is_behind(&self, version: VersionId, flight: &Flight) -> bool {
        let (done, wait) = oneshot::channel();
        if self.stale_hints.send(StaleHint(done)).is_err() {
            return false;
        }
        // Whoever waits for the bytes waits for this, too, but no longer than for the next byte.
        flight.parts.progress();
        let looked = tokio::time::timeout(self.context.client.timeout().mul_f32(0.8), wait).await;
        looked.is_ok() && matches!(self.row(version), Ok(Some(row)) if !row.current)
    }

    /// Content that another version brought already is this one's too, if the Source says so by a hash
    /// that objects are named by.
    fn same_content(&self, expected: &Expected) -> Option<Content> {
        let sha256: [u8; 32] = expected.hashes.get(Algorithm::Sha256)?.bytes().try_into().ok()?;
        if expected.encoding.is_some() || self.context.config.verify == Verify::Off {
            return None;
        }
        let size = self.context.store.object(&sha256).ok()?.metadata().ok()?.len();
        expected.length.is_none_or(|length| length == size).then_some(Content { sha256, size, verified: true })
    }

    /// Content has come: it becomes the version's, unless `stat` has shown another size. Then it becomes
    /// that of a successor, so that no reader sees the one contradict the other.
    fn land(&self, row: &VersionRow, content: Content) -> Result<Ready, Failure> {
        let reason = match self.keep(row, content)? {
            Kept::Yes => {
                let lost = || self.failed(row.id, format!("{}: the cache has lost it", row.uri));
                return self.open(row.id, content).ok_or_else(lost);
            }
            Kept::OtherSize(shown) => {
                format!("{}: it has {} bytes, not {shown} as was said; open the file anew", row.uri, content.size)
            }
            Kept::OtherBytes => {
                format!("{}: the Source has other content now than was read before; open the file anew", row.uri)
            }
        };
        self.context.write_queue.superseded(row.id, Some(content));
        Err(self.failed(row.id, reason))
    }

    /// Makes content that has come a version's, if it is what readers were shown of that, up to now.
    pub(in crate::sync) fn keep(&self, before: &VersionRow, content: Content) -> Result<Kept, Failure> {
        // One whose place another has taken meanwhile is what it was.
        let now = self.row(before.id)?;
        let row = now.as_ref().unwrap_or(before);
        if row.served.is_some_and(|served| served != content.sha256) {
            return Ok(Kept::OtherBytes);
        }
        let shown = match row.size {
            Some(shown) if shown != content.size => Err(shown),
            _ => self.context.write_queue.stored(row.id, content),
        };
        Ok(shown.map_or_else(Kept::OtherSize, |()| Kept::Yes))
    }

    /// The size of a version, within the timeout.
    pub(in crate::sync) async fn size(self: &Arc<Self>, version: VersionId) -> Result<u64, Failure> {
        let timeout = self.context.client.timeout();
        match tokio::time::timeout(timeout, self.find_size(version)).await {
            Ok(found) => found,
            Err(_) => {
                Err(self
                    .failed(version, format!("version {version}: its size was not had within {} s", timeout.as_secs())))
            }
        }
    }

    /// The size of a version, which is looked for once however many ask: a listing expects it, and `stat` waits for it.
    async fn find_size(self: &Arc<Self>, version: VersionId) -> Result<u64, Failure> {
        let looking = Arc::clone(self);
        let found = self.sizing.once(version, async move { looking.look_for_size(version).await });
        found.await.unwrap_or_else(|| Err(self.failed(version, "a bug ended the request; see the log".to_owned())))
    }

    /// By HEAD where that tells it, else by fetching.
    async fn look_for_size(self: &Arc<Self>, version: VersionId) -> Result<u64, Failure> {
        let Some(row) = self.row(version)? else {
            return Err(self.failed(version, REPLACED.to_owned()));
        };
        if let Some(size) = row.size {
            return Ok(size);
        }
        if let Some(ready) = self.ready(version) {
            return Ok(ready.size);
        }
        if row.extra.encoding.is_none()
            && !self.context.config.offline
            && let Some(size) = self.head(&row).await
        {
            // It may have been read while this was asked.
            let said = self.context.write_queue.size(version, size);
            return Ok(self.row(version)?.and_then(|row| row.size).unwrap_or(said));
        }
        self.read(version, 0, u64::MAX / 2).await.map(|ready| ready.size)
    }

    pub(in crate::sync) fn is_strict(&self) -> bool {
        matches!(self.context.config.verify, Verify::Strict | Verify::Stream)
    }

    async fn head(&self, row: &VersionRow) -> Option<u64> {
        let place = match row.current {
            true => Location::plain(represented(row).unwrap_or_else(|| row.uri.clone())),
            false => self.locations_of(row).ok()?.into_iter().next()?,
        };
        let moment = place.accept_datetime();
        let asked = Asked {
            head: true,
            patience: Some(self.context.client.timeout().mul_f32(0.4)),
            accept_datetime: moment.as_deref(),
            memento: place.memento.is_some(),
            ..Asked::default()
        };
        let answer = self.context.client.ask(&place.url, &asked).await.ok()?;
        place.check(&answer, !row.hashes.is_empty() && self.is_strict()).ok()?;
        if self.is_strict() {
            expected(row).check_page(&row.uri, &answer).ok()?;
        }
        // What a coded body unfolds to, only reading it tells; and a 0 is too often said for "not known".
        if answer.coding().is_some() { None } else { answer.length().filter(|length| *length > 0) }
    }

    /// Asks for the sizes of versions that somebody lists, a few at a time.
    pub(in crate::sync) fn expect_sizes(self: &Arc<Self>, versions: Vec<VersionId>) {
        for version in versions {
            let Ok(place) = Arc::clone(&self.expected).try_acquire_owned() else { return };
            let this = Arc::clone(self);
            tokio::spawn(async move {
                let _place = place;
                let Ok(_slot) = this.expected_slots.acquire().await else { return };
                // Whoever asks for this size itself is told of a failure.
                let _ = this.size(version).await;
            });
        }
    }
}

/// Forgets parts of versions that nobody will go on with.
pub(in crate::sync) fn tidy(store: &Store, readers: &Pool) -> Result<(), SyncError> {
    for number in store.partials()? {
        let version = VersionId::new(number);
        let row = readers.ask(|reader| reader.version(version))?;
        let goes_on = match &row {
            Some(row) if row.content.is_none() => row.current || readers.ask(|reader| reader.can_be_had(row.id))?,
            _ => false,
        };
        if !goes_on {
            store.forget_partial(number)?;
        }
    }
    Ok(())
}

fn reason(row: &VersionRow, errors: &[SourceError]) -> String {
    match errors {
        [] => SourceError::new(&row.uri, Trouble::Nowhere("there is no location that can be asked".to_owned()))
            .to_string(),
        [only] => only.to_string(),
        all => {
            let parts: Vec<String> = all.iter().map(ToString::to_string).collect();
            format!("{}: no location has it: {}", row.uri, parts.join("; "))
        }
    }
}
