//! One location's bytes of one version: small ones in memory, large ones into a file that a later try
//! goes on with.

use std::fs::File;
use std::io::{Read, Seek};
use std::sync::Arc;
use std::time::Duration;

use super::flight::Flight;
use super::location::Location;
use crate::bounds::{self, Bounds};
use crate::catalog::{Content, VersionId};
use crate::source::{
    Answer, Asked, Client, Expected, Form, Hasher, SourceError, Sums, Trouble, Validators, decode, verify,
};
use crate::store::Store;
use crate::store::boot::boot_id;
use crate::sync::config::Verify;
use crate::sync::status::Status;
use crate::sync::transfer::sparse::{Fill, MOST_BREAKS, Notes, Result, is_same, whole};

/// Up to this size a body is held in memory until it is verified.
const SMALL: u64 = 1 << 20;
/// From this size on, `verify=stream` serves a file before the whole is there.
pub(in crate::sync) const STREAM_FROM: u64 = 8 << 20;
/// The largest decoded body that is taken however small the coded one is.
const UNFOLDED_FREE: u64 = 64 << 20;

/// Bytes that are in the store now.
#[derive(Debug)]
pub(in crate::sync) struct Served {
    pub(in crate::sync) content: Content,
    /// What `verify=warn` let pass.
    pub(in crate::sync) forgiven: Option<Trouble>,
    /// What the server said of them.
    pub(in crate::sync) validators: Validators,
    /// Their media type, as the server has it.
    pub(in crate::sync) media: Option<String>,
}

impl Served {
    pub(in crate::sync) fn new(content: Content, forgiven: Option<Trouble>) -> Self {
        Self { content, forgiven, validators: Validators::default(), media: None }
    }
}

/// The location whose bytes readers of a version have seen, before the whole was verified.
pub(in crate::sync) fn streamed_from(store: &Store, version: VersionId) -> Option<String> {
    let notes = Notes::read(&store.partial_notes(version.number()))?;
    notes.streamed.then_some(notes.url)
}

/// The task: these bytes, from there.
pub(in crate::sync) struct Job<'j> {
    pub(in crate::sync) client: &'j Arc<Client>,
    pub(in crate::sync) store: &'j Arc<Store>,
    pub(in crate::sync) status: &'j Arc<Status>,
    pub(in crate::sync) flight: &'j Arc<Flight>,
    pub(in crate::sync) version: VersionId,
    pub(in crate::sync) place: &'j Location,
    pub(in crate::sync) expected: &'j Expected,
    pub(in crate::sync) verify: Verify,
    pub(in crate::sync) bounds: &'j Bounds,
    /// What is here already, to be told only of a change.
    pub(in crate::sync) known: Option<&'j Validators>,
    pub(in crate::sync) patience: Option<Duration>,
    /// Whether parts that readers of a stream want may be fetched aside.
    pub(in crate::sync) aside: bool,
}

/// The most bytes of a resource, and what is wrong with more. What is listed to be longer is meant to be.
fn most(bounds: &Bounds, expected: &Expected) -> (u64, Trouble) {
    let most = bounds.resource.max(expected.length.unwrap_or(0));
    (most, bounds::RESOURCE.passed("its size", bounds).into())
}

impl Job<'_> {
    fn error(&self, trouble: Trouble) -> SourceError {
        SourceError::new(&self.place.url, trouble)
    }

    fn disk(&self, error: &std::io::Error) -> SourceError {
        self.error(Trouble::Disk(error.to_string()))
    }

    fn strict(&self) -> bool {
        matches!(self.verify, Verify::Strict | Verify::Stream)
    }

    /// Fetches, verifies and stores; `None` if what is known has not changed.
    pub(in crate::sync) async fn run(&self) -> Result<Option<Served>> {
        let notes = self.notes();
        let accept = self.expected.encoding.as_ref().map(|coding| format!("{coding}, identity;q=0.5"));
        let moment = self.place.accept_datetime();
        let mut asked = Asked {
            accept_encoding: accept.as_deref(),
            accept_datetime: moment.as_deref(),
            memento: self.place.memento.is_some(),
            validators: self.known,
            patience: self.patience,
            ..Asked::default()
        };
        if let Some(notes) = &notes
            && let Some((begin, _)) = notes.ranges.gap(0, notes.total.unwrap_or(u64::MAX))
        {
            asked.range = Some((begin, None));
            asked.if_range = notes.validator.as_deref();
        }
        if let Some(notes) = &notes
            && notes.total.is_some_and(|total| notes.ranges.contains(0, total))
        {
            // All of it came, and the process ended before it was judged.
            let total = notes.total.unwrap_or(0);
            return self.judge_file(total, None).await.map(Some);
        }
        let mut breaks = 0;
        loop {
            let answer = self.client.ask(&self.place.url, &asked).await?;
            // An archived 304 is the answer to a request of the archive, not to this one.
            if answer.status == 304 && self.place.memento.is_none() {
                return Ok(None);
            }
            let (validators, media) = (answer.validators(), answer.media_type());
            let with_validators = |served| Some(Served { validators, media, ..served });
            self.admit(&answer, notes.as_ref())?;
            let (resumed, coding) = (answer.status == 206, answer.coding());
            if !resumed && answer.length().is_some_and(|length| length <= SMALL) {
                match self.small(answer).await {
                    Ok(body) => return self.judge_bytes(body, coding).await.map(with_validators),
                    Err(error) if error.trouble.passes() && breaks + 1 < MOST_BREAKS => {
                        breaks += 1;
                        continue;
                    }
                    Err(error) => return Err(error),
                }
            }
            return self.large(answer, coding, if resumed { notes } else { None }).await.map(with_validators);
        }
    }

    /// Refuses an answer that cannot be what is wanted, before its body is read.
    fn admit(&self, answer: &Answer, notes: Option<&Notes>) -> Result<()> {
        self.place.check(answer, !self.expected.hashes.is_empty() && self.strict())?;
        if self.strict() {
            self.expected.check_page(&self.place.url, answer).map_err(|trouble| self.error(trouble))?;
        }
        self.flight.parts.progress();
        let resumed = answer.status == 206;
        if !resumed && streamed_from(self.store, self.version).is_some() {
            return Err(self.error(Trouble::Changed));
        }
        if resumed && notes.is_some_and(|notes| !self.is_same(answer, notes)) {
            self.store.forget_partial(self.version.number()).map_err(|error| self.disk(&error))?;
            return Err(self.error(Trouble::Changed));
        }
        let announced = answer.length();
        if !resumed && answer.coding().is_none() && self.expected.encoding.is_none() && self.strict() {
            self.check_announced(announced)?;
        }
        let (most, trouble) = most(self.bounds, self.expected);
        match announced.is_some_and(|length| length > most) {
            true => Err(self.error(trouble)),
            false => Ok(()),
        }
    }

    /// A small body, whole.
    async fn small(&self, mut answer: Answer) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await? {
            self.flight.parts.progress();
            body.extend_from_slice(&chunk);
            if body.len() as u64 > SMALL {
                return Err(self.error(Trouble::Broken("more bytes came than were announced".to_owned())));
            }
        }
        Ok(body)
    }

    fn check_announced(&self, announced: Option<u64>) -> Result<()> {
        match (self.expected.length, announced) {
            (Some(expected), Some(got)) if expected != got => Err(self.error(Trouble::WrongLength { got, expected })),
            _ => Ok(()),
        }
    }

    /// What an earlier try left, if it can be trusted to be a part of what is there now.
    fn notes(&self) -> Option<Notes> {
        let notes = Notes::read(&self.store.partial_notes(self.version.number()))?;
        let held_to_a_hash = !self.expected.hashes.is_empty() && self.strict();
        let trusted = notes.validator.is_some() && (notes.boot == boot_id() || held_to_a_hash);
        (notes.url == self.place.url && trusted && notes.ranges.len() > 0).then_some(notes)
    }

    /// Whether a part is of the representation that was begun.
    fn is_same(&self, answer: &Answer, notes: &Notes) -> bool {
        is_same(answer, notes.validator.as_deref(), self.held_to_a_hash())
    }

    fn held_to_a_hash(&self) -> bool {
        !self.expected.hashes.is_empty() && self.verify == Verify::Strict
    }

    /// Fetches a large body into a file.
    async fn large(&self, answer: Answer, coding: Option<String>, earlier: Option<Notes>) -> Result<Served> {
        let file = Arc::new(self.store.partial(self.version.number()).map_err(|error| self.disk(&error))?);
        let goes_on = |notes: &Notes| notes.total == whole(&answer) && coding.is_none();
        let mut notes = match earlier.filter(goes_on) {
            Some(notes) => notes,
            None => self.begin_anew(&file, &answer)?,
        };
        self.check_room(notes.total.unwrap_or(0).saturating_sub(notes.ranges.len()))?;
        *self.flight.parts.ranges() = notes.ranges.clone();
        if let Some(total) = notes.total.filter(|total| self.can_be_streamed(*total, coding.as_deref())) {
            // Set once: a second location goes on serving the same file.
            let _ = self.flight.stream.set((Arc::clone(&file), total));
            notes.streamed = true;
            self.flight.parts.progress();
        }
        let coded = self.expected.encoding.is_some();
        let fill = Fill {
            client: self.client,
            store: self.store,
            status: self.status,
            url: &self.place.url,
            file: &file,
            notes_path: self.store.partial_notes(self.version.number()),
            parts: &self.flight.parts,
            patience: self.patience,
            listed: self.expected.length.filter(|_| self.strict() && !coded),
            most: most(self.bounds, self.expected),
            held_to_a_hash: self.held_to_a_hash(),
            aside: self.aside && self.flight.stream.get().is_some(),
            gone: None,
            at: &|_, _| (),
        };
        let result = fill.run(Some(answer), &mut notes, None).await;
        notes.ranges = self.flight.parts.ranges().clone();
        // A later try goes on only with what is known to be a part of the same.
        let resumable = coding.is_none() && notes.validator.is_some();
        match result {
            Ok(total) => {
                notes.total = Some(total);
                if resumable {
                    fill.write_notes(&notes)?;
                }
                self.judge_file(total, coding).await
            }
            Err(error) => {
                if resumable && notes.total.is_some() && !matches!(error.trouble, Trouble::Changed) {
                    fill.write_notes(&notes)?;
                } else {
                    self.store.forget_partial(self.version.number()).map_err(|error| self.disk(&error))?;
                }
                Err(error)
            }
        }
    }

    /// What is begun with an answer in a file that may have something else.
    fn begin_anew(&self, file: &File, answer: &Answer) -> Result<Notes> {
        file.set_len(0).map_err(|error| self.disk(&error))?;
        if answer.status == 206 {
            // The part is of something else than what was begun.
            self.store.forget_partial(self.version.number()).map_err(|error| self.disk(&error))?;
            return Err(self.error(Trouble::Changed));
        }
        Ok(Notes::of(&self.place.url, answer))
    }

    /// Whether a body of this length is served while it comes.
    fn can_be_streamed(&self, total: u64, coding: Option<&str>) -> bool {
        let plain = coding.is_none() && self.expected.encoding.is_none();
        let fits = self.expected.length.is_none_or(|length| total == length);
        self.verify == Verify::Stream && plain && fits && total >= STREAM_FROM
    }

    fn check_room(&self, needed: u64) -> Result<()> {
        self.store.check_room(needed).map_err(|error| self.disk(&error))
    }

    async fn judge_bytes(&self, body: Vec<u8>, coding: Option<String>) -> Result<Served> {
        let store = Arc::clone(self.store);
        let judge = self.judge(coding);
        let job = move || -> std::result::Result<Served, Trouble> {
            let disk = |error: std::io::Error| Trouble::Disk(error.to_string());
            let sums = Hasher::read(&judge.expected.hashes, body.as_slice()).map_err(disk)?;
            let (form, served) = judge.form(&sums, || Ok(body.as_slice()), &store)?;
            match form {
                Form::Plain => store.put(&served.content.sha256, &body).map_err(disk)?,
                Form::Decoded(_) => {}
            }
            Ok(served)
        };
        self.blocking(job).await
    }

    async fn judge_file(&self, size: u64, coding: Option<String>) -> Result<Served> {
        let store = Arc::clone(self.store);
        let judge = self.judge(coding);
        let version = self.version;
        let flight = Arc::clone(self.flight);
        let job = move || -> std::result::Result<Served, Trouble> {
            let disk = |error: std::io::Error| Trouble::Disk(error.to_string());
            let open = || -> std::result::Result<File, Trouble> {
                let mut file = store.partial(version.number()).map_err(disk)?;
                file.rewind().map_err(disk)?;
                Ok(file)
            };
            open()?.set_len(size).map_err(disk)?;
            // Hashing takes its time for what is large, and is progress too.
            let source = Watched { source: open()?, flight: &flight, left: 0 };
            let sums = Hasher::read(&judge.expected.hashes, source).map_err(disk)?;
            let judged = judge.form(&sums, open, &store);
            match judged {
                Ok((Form::Plain, served)) => {
                    let path = tempfile::TempPath::try_from_path(store.partial_path(version.number())).map_err(disk)?;
                    store.adopt(&served.content.sha256, path).map_err(disk)?;
                    store.forget_partial(version.number()).map_err(disk)?;
                    Ok(served)
                }
                Ok((Form::Decoded(_), served)) => {
                    store.forget_partial(version.number()).map_err(disk)?;
                    Ok(served)
                }
                Err(trouble) => {
                    store.forget_partial(version.number()).map_err(disk)?;
                    Err(trouble)
                }
            }
        };
        self.blocking(job).await
    }

    fn judge(&self, coding: Option<String>) -> Judge {
        let url = self.place.url.clone();
        Judge { expected: self.expected.clone(), verify: self.verify, bounds: *self.bounds, coding, url }
    }

    async fn blocking(
        &self,
        job: impl FnOnce() -> std::result::Result<Served, Trouble> + Send + 'static,
    ) -> Result<Served> {
        match tokio::task::spawn_blocking(job).await {
            Ok(result) => result.map_err(|trouble| self.error(trouble)),
            Err(error) => Err(self.error(Trouble::Broken(error.to_string()))),
        }
    }
}

/// Reports progress while a file is read.
struct Watched<'f> {
    source: File,
    flight: &'f Flight,
    left: usize,
}

impl Read for Watched<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let count = self.source.read(out)?;
        match self.left.checked_sub(count) {
            Some(left) => self.left = left,
            None => {
                self.left = 64 << 20;
                self.flight.parts.progress();
            }
        }
        Ok(count)
    }
}

/// Decides in which form a body is what the Source lists.
pub(in crate::sync) struct Judge {
    pub(in crate::sync) expected: Expected,
    pub(in crate::sync) verify: Verify,
    pub(in crate::sync) bounds: Bounds,
    /// What the server said it applied.
    pub(in crate::sync) coding: Option<String>,
    pub(in crate::sync) url: String,
}

impl Judge {
    /// Chooses the form, and stores it if it is a decoded one.
    pub(in crate::sync) fn form<R: Read>(
        &self,
        raw: &Sums,
        open: impl Fn() -> std::result::Result<R, Trouble>,
        store: &Store,
    ) -> std::result::Result<(Form, Served), Trouble> {
        let facts = self.expected.length.is_some() || !self.expected.hashes.is_empty();
        let verdict = if self.verify == Verify::Off { Ok(()) } else { verify(raw, &self.expected) };
        let verified = facts && verdict.is_ok() && self.verify != Verify::Off;
        let plain = |verified, forgiven| {
            (Form::Plain, Served::new(Content { sha256: raw.sha256, size: raw.length, verified }, forgiven))
        };
        let declared = self.expected.encoding.as_deref();
        let Some(coding) = declared.or(self.coding.as_deref()) else {
            return match verdict {
                Ok(()) => Ok(plain(verified, None)),
                Err(trouble) if self.verify == Verify::Warn => Ok(plain(false, Some(trouble))),
                Err(trouble) => Err(trouble),
            };
        };
        if verified && declared.is_none() || !facts && declared.is_none() && self.is_archive() {
            return Ok(plain(verified, None));
        }
        let mut out = store.spool().map_err(|error| Trouble::Disk(error.to_string()))?;
        let room = store.room().map(|room| room.available / 2).map_err(|error| Trouble::Disk(error.to_string()))?;
        let unfolded = raw.length.saturating_mul(self.bounds.unfolded).max(UNFOLDED_FREE);
        let bomb = bounds::UNFOLDED.passed("how much its content unfolds", &self.bounds);
        let full = "what it unfolds to is more than half of the room that is free".to_owned();
        let all = [(unfolded, bomb.into()), most(&self.bounds, &self.expected), (room, Trouble::Disk(full))];
        let (most, beyond) = all.into_iter().min_by_key(|(most, _)| *most).unwrap_or((0, Trouble::TooLarge(0)));
        let unfolded = match decode(coding, open()?, &mut out, &self.expected.hashes, most) {
            Ok(unfolded) => unfolded,
            Err(Trouble::TooLarge(_)) => return Err(beyond),
            // The server may have sent it as it is, whatever was declared.
            Err(Trouble::BadCoding { .. }) if self.coding.is_none() && verdict.is_ok() => {
                return Ok(plain(verified, None));
            }
            Err(trouble) => return Err(trouble),
        };
        let by_hash = Expected { length: None, ..self.expected.clone() };
        let whole = if self.expected.hashes.is_empty() { &self.expected } else { &by_hash };
        let decoded_verified = facts && verify(&unfolded, whole).is_ok();
        let forgiven = match verdict {
            Ok(()) => None,
            Err(_) if decoded_verified => None,
            Err(trouble) if self.verify == Verify::Warn => Some(trouble),
            Err(trouble) => return Err(trouble),
        };
        store.adopt(&unfolded.sha256, out.into_temp_path()).map_err(|error| Trouble::Disk(error.to_string()))?;
        let verified = (verified || decoded_verified) && forgiven.is_none();
        let content = Content { sha256: unfolded.sha256, size: unfolded.length, verified };
        let served = Served::new(content, forgiven);
        Ok((Form::Decoded(coding.to_owned()), served))
    }

    /// Whether the name says that the resource is the compressed file itself: some servers label that
    /// with a content coding.
    fn is_archive(&self) -> bool {
        let path = self.url.split(['?', '#']).next().unwrap_or_default().to_ascii_lowercase();
        [".gz", ".tgz", ".z"].iter().any(|extension| path.ends_with(extension))
    }
}
