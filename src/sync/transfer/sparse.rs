//! One URL's bytes into one file, in whatever order they are wanted, and on where an earlier try broke.
//!
//! What is there is known to all who wait for it ([`Parts`]), and noted beside the file now and then
//! ([`Notes`]), so that the next process goes on from there. No two representations ever mix: a part
//! counts only if its validator is that of what was begun, or if a hash will tell.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::ranges::Ranges;
use crate::source::{Answer, Asked, Client, SourceError, Trouble};
use crate::store::Store;
use crate::store::boot::boot_id;
use crate::sync::status::Status;

/// How much is fetched at once around a part that a reader waits for.
pub(in crate::sync) const PART: u64 = 4 << 20;
/// How many parts are fetched aside at once.
const MOST_PARTS: usize = 3;
/// How often notes on what is there are written.
const NOTE_EVERY: u64 = 8 << 20;
/// How long the main stream waits for a write of a part that is fetched aside.
const WRITE_PAUSE: Duration = Duration::from_millis(20);
/// Breaks without progress after which a location is given up.
pub(in crate::sync) const MOST_BREAKS: u32 = 3;

pub(in crate::sync) type Result<T> = std::result::Result<T, SourceError>;

/// Which parts of a file are there, for all who wait for them. Each byte is written once: readers may have seen it.
///
/// Lock order: `ranges`, then `under_way`. Neither is held over I/O.
#[derive(Debug)]
pub(in crate::sync) struct Parts {
    ranges: Mutex<Ranges>,
    /// Parts that are being written, and are not in `ranges` yet.
    under_way: Mutex<Ranges>,
    /// Parts that readers wait for, for the filler to fetch aside.
    wanted: Mutex<Vec<(u64, u64)>>,
    moved: watch::Sender<Instant>,
}

impl Parts {
    pub(in crate::sync) fn new(ranges: Ranges) -> Self {
        Self {
            ranges: Mutex::new(ranges),
            under_way: Mutex::default(),
            wanted: Mutex::new(Vec::new()),
            moved: watch::Sender::new(Instant::now()),
        }
    }

    pub(in crate::sync) fn ranges(&self) -> MutexGuard<'_, Ranges> {
        self.ranges.lock()
    }

    /// Writes those of these bytes that are neither there nor being written by another task.
    ///
    /// # Errors
    /// If the file cannot be written; what could not be written counts as missing.
    pub(in crate::sync) fn write(&self, file: &File, bytes: &[u8], at: u64) -> std::io::Result<()> {
        let end = at + bytes.len() as u64;
        let mut from = at;
        while let Some((begin, end)) = self.claim(from, end) {
            let part = |offset: u64| usize::try_from(offset - at).unwrap_or(usize::MAX);
            let written = file.write_all_at(&bytes[part(begin)..part(end)], begin);
            let mut ranges = self.ranges();
            self.under_way.lock().remove(begin, end);
            written?;
            ranges.add(begin, end);
            from = end;
        }
        Ok(())
    }

    /// Claims the first part between these offsets that is neither there nor being written: it counts as being written.
    fn claim(&self, from: u64, end: u64) -> Option<(u64, u64)> {
        let ranges = self.ranges();
        let mut under_way = self.under_way.lock();
        let mut from = from;
        loop {
            let (begin, missing_until) = ranges.gap(from, end)?;
            if let Some((begin, end)) = under_way.gap(begin, missing_until) {
                under_way.add(begin, end);
                return Some((begin, end));
            }
            from = missing_until;
        }
    }

    /// Whether some of this part is being written.
    fn is_under_way(&self, begin: u64, end: u64) -> bool {
        self.under_way.lock().gap(begin, end) != Some((begin, end))
    }

    /// A reader waits for this part.
    pub(in crate::sync) fn want(&self, begin: u64, end: u64) {
        self.wanted.lock().push((begin, end));
    }

    /// There was progress.
    pub(in crate::sync) fn progress(&self) {
        self.moved.send_replace(Instant::now());
    }

    /// When there was progress last, and how to hear of the next.
    pub(in crate::sync) fn moved(&self) -> watch::Receiver<Instant> {
        self.moved.subscribe()
    }
}

/// What is known of a file that is not complete.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(in crate::sync) struct Notes {
    pub(in crate::sync) url: String,
    pub(in crate::sync) validator: Option<String>,
    pub(in crate::sync) total: Option<u64>,
    pub(in crate::sync) ranges: Ranges,
    pub(in crate::sync) boot: String,
    /// Whether readers have seen bytes of it: then nothing else may take its place under them.
    #[serde(default)]
    pub(in crate::sync) streamed: bool,
}

impl Notes {
    /// On a body whose answer has just come.
    pub(in crate::sync) fn of(url: &str, answer: &Answer) -> Self {
        Self {
            url: url.to_owned(),
            validator: answer.validators().strong().map(str::to_owned),
            total: whole(answer),
            boot: boot_id(),
            ..Self::default()
        }
    }

    pub(in crate::sync) fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }

    pub(in crate::sync) fn write(&self, path: &Path) -> std::io::Result<()> {
        let text = serde_json::to_vec(self).unwrap_or_default();
        let new = path.with_extension("new");
        fs::write(&new, text).and_then(|()| fs::rename(&new, path))
    }
}

/// The length of the whole, as an answer tells it.
pub(in crate::sync) fn whole(answer: &Answer) -> Option<u64> {
    match answer.content_range() {
        Some((_, whole)) if answer.status == 206 => whole,
        _ => answer.length(),
    }
}

/// Whether a part is of the representation that was begun. A server that ignores `If-Range` sends parts
/// of whatever it has now; one that sends no validator is believed only if a hash will tell.
pub(in crate::sync) fn is_same(answer: &Answer, begun: Option<&str>, held_to_a_hash: bool) -> bool {
    match answer.validators().strong() {
        None => held_to_a_hash,
        now => now == begun,
    }
}

/// The task: these bytes, into that file.
pub(in crate::sync) struct Fill<'f> {
    pub(in crate::sync) client: &'f Arc<Client>,
    pub(in crate::sync) store: &'f Arc<Store>,
    pub(in crate::sync) status: &'f Arc<Status>,
    pub(in crate::sync) url: &'f str,
    pub(in crate::sync) file: &'f Arc<File>,
    pub(in crate::sync) notes_path: PathBuf,
    pub(in crate::sync) parts: &'f Arc<Parts>,
    pub(in crate::sync) patience: Option<Duration>,
    /// The length that the Source lists.
    pub(in crate::sync) listed: Option<u64>,
    /// The most bytes that are taken, whatever is announced, and what is wrong with more.
    pub(in crate::sync) most: (u64, Trouble),
    /// Whether a hash will tell if parts do not belong together.
    pub(in crate::sync) held_to_a_hash: bool,
    /// Whether parts that readers want are fetched aside.
    pub(in crate::sync) aside: bool,
    /// Set when the file has left the store.
    pub(in crate::sync) gone: Option<&'f AtomicBool>,
    /// Told of the offset up to which the main stream has come, and of bytes that came.
    pub(in crate::sync) at: &'f (dyn Fn(u64, u64) + Sync),
}

impl Fill<'_> {
    fn error(&self, trouble: Trouble) -> SourceError {
        SourceError::new(self.url, trouble)
    }

    fn disk(&self, error: &std::io::Error) -> SourceError {
        self.error(Trouble::Disk(error.to_string()))
    }

    pub(in crate::sync) fn write_notes(&self, notes: &Notes) -> Result<()> {
        notes.write(&self.notes_path).map_err(|error| self.disk(&error))
    }

    /// Reads bodies until no gap is left of what is needed: all, or these parts; returns the size of the
    /// whole.
    pub(in crate::sync) async fn run(
        &self,
        first: Option<Answer>,
        notes: &mut Notes,
        needed: Option<&[(u64, u64)]>,
    ) -> Result<u64> {
        let mut aside = tokio::task::JoinSet::new();
        let filled = self.fill(first, notes, needed, &mut aside).await;
        // The next task may begin the file again: none of this one writes to it then.
        aside.shutdown().await;
        filled
    }

    async fn fill(
        &self,
        first: Option<Answer>,
        notes: &mut Notes,
        needed: Option<&[(u64, u64)]>,
        aside: &mut tokio::task::JoinSet<()>,
    ) -> Result<u64> {
        let mut answer = first;
        let mut breaks = 0;
        let mut noted = self.parts.ranges().len();
        loop {
            let total = notes.total.unwrap_or(u64::MAX);
            // What is announced need not come to be too much.
            self.check_most(notes.total.unwrap_or(0))?;
            let Some((begin, end)) = self.gap(total, needed) else { return Ok(total) };
            let body = match answer.take() {
                Some(body) => body,
                None => {
                    let end = (end < total).then(|| end - 1);
                    self.part_of(notes, begin, end).await?
                }
            };
            let at = body.content_range().map_or(0, |(at, _)| at);
            let before = self.parts.ranges().len();
            let ended = self.pour(body, at, (notes, &mut noted), aside).await;
            let grew = self.parts.ranges().len() > before;
            match ended {
                Ok(at) if notes.total.is_none() => {
                    notes.total = Some(at);
                    return Ok(at);
                }
                Ok(_) if grew => {}
                // A part that is fetched aside is about to fill the gap.
                Ok(_) if self.parts.is_under_way(begin, end.min(total)) => tokio::time::sleep(WRITE_PAUSE).await,
                Ok(_) => {
                    // An answer without what was asked for is no answer.
                    breaks += 1;
                    if breaks >= MOST_BREAKS {
                        return Err(
                            self.error(Trouble::Broken("the server sends nothing of what is missing".to_owned()))
                        );
                    }
                }
                Err(error) if !error.trouble.passes() || notes.validator.is_none() || notes.total.is_none() => {
                    return Err(error);
                }
                Err(error) => {
                    breaks = if grew { 0 } else { breaks + 1 };
                    if breaks >= MOST_BREAKS {
                        return Err(error);
                    }
                    tracing::debug!(url = self.url, %error, "going on where it broke");
                }
            }
        }
    }

    fn gap(&self, total: u64, needed: Option<&[(u64, u64)]>) -> Option<(u64, u64)> {
        let ranges = self.parts.ranges();
        match needed {
            None => ranges.gap(0, total),
            Some(needed) => needed.iter().find_map(|(begin, end)| ranges.gap(*begin, (*end).min(total))),
        }
    }

    /// Asks for a part of what was begun.
    async fn part_of(&self, notes: &Notes, begin: u64, end: Option<u64>) -> Result<Answer> {
        let asked = Asked {
            range: Some((begin, end)),
            if_range: notes.validator.as_deref(),
            patience: self.patience,
            ..Asked::default()
        };
        let answer = self.client.ask(self.url, &asked).await.map_err(shorter_now)?;
        match answer.content_range() {
            Some((at, whole))
                if answer.status == 206
                    && at == begin
                    && whole.is_none_or(|whole| Some(whole) == notes.total)
                    && is_same(&answer, notes.validator.as_deref(), self.held_to_a_hash) =>
            {
                Ok(answer)
            }
            // Without ranges, the whole comes again from its beginning: what is there stays.
            None if answer.status == 200 && answer.validators().strong() == notes.validator.as_deref() => Ok(answer),
            _ => Err(self.error(Trouble::Changed)),
        }
    }

    /// Writes a body into the file, from `at` on, until it ends or meets what is there already.
    async fn pour(
        &self,
        mut body: Answer,
        mut at: u64,
        (notes, noted): (&mut Notes, &mut u64),
        parts: &mut tokio::task::JoinSet<()>,
    ) -> Result<u64> {
        // A server without ranges sends the whole again; it is read to its end, or it would come for ever.
        let is_part = body.status == 206;
        while let Some(chunk) = body.chunk().await? {
            let next = at + chunk.len() as u64;
            self.check_length(next, notes.total)?;
            self.parts.write(self.file, &chunk, at).map_err(|error| self.disk(&error))?;
            if self.gone.is_some_and(|gone| gone.load(Ordering::Acquire)) {
                return Err(self.error(Trouble::Changed));
            }
            let (there, met) = {
                let ranges = self.parts.ranges();
                let total = notes.total.unwrap_or(u64::MAX);
                let gap = ranges.gap(next, total).map_or(total, |(begin, _)| begin);
                (ranges.len(), is_part && gap > next + PART / 4 && notes.total.is_some())
            };
            at = next;
            (self.at)(at, chunk.len() as u64);
            self.parts.progress();
            if there >= *noted + NOTE_EVERY {
                *noted = there;
                self.store.check_room(0).map_err(|error| self.disk(&error))?;
                if notes.total.is_some() && notes.validator.is_some() {
                    notes.ranges = self.parts.ranges().clone();
                    self.write_notes(notes)?;
                }
            }
            if self.aside {
                self.fetch_parts(at, notes, parts);
            }
            if met {
                break;
            }
        }
        Ok(at)
    }

    fn check_length(&self, got: u64, total: Option<u64>) -> Result<()> {
        if let Some(expected) = total.filter(|total| got > *total) {
            return Err(self.error(Trouble::Broken(format!("more bytes came than the {expected} announced"))));
        }
        if let Some(expected) = self.listed.filter(|length| got > *length) {
            return Err(self.error(Trouble::WrongLength { got, expected }));
        }
        self.check_most(got)
    }

    fn check_most(&self, got: u64) -> Result<()> {
        let (most, trouble) = &self.most;
        if got > *most { Err(self.error(trouble.clone())) } else { Ok(()) }
    }

    /// Fetches aside what readers wait for, where the main stream will not be soon.
    fn fetch_parts(&self, at: u64, notes: &Notes, parts: &mut tokio::task::JoinSet<()>) {
        while parts.try_join_next().is_some() {}
        let Some(total) = notes.total else { return };
        let mut wanted = self.parts.wanted.lock();
        while parts.len() < MOST_PARTS
            && let Some((begin, end)) = wanted.pop()
        {
            let soon = begin >= at && begin < at + PART;
            if soon || self.parts.ranges().contains(begin, end) {
                continue;
            }
            let end = end.max((begin + PART).min(total));
            let (client, own, file) = (Arc::clone(self.client), Arc::clone(self.parts), Arc::clone(self.file));
            let (url, validator, patience) = (self.url.to_owned(), notes.validator.clone(), self.patience);
            let status = Arc::clone(self.status);
            parts.spawn(async move {
                let wanted = Wanted { url: &url, validator: validator.as_deref(), patience, begin, end, total };
                if let Err(error) = part(&client, &own, &file, &wanted).await {
                    status.warning(&format!("a part could not be fetched ahead of the rest: {error}"));
                }
            });
        }
    }
}

/// A part of what was begun that the server says there is not: it has something else now.
fn shorter_now(error: SourceError) -> SourceError {
    match error.trouble {
        Trouble::Status { code: 416, .. } => SourceError { trouble: Trouble::Changed, ..error },
        _ => error,
    }
}

/// A part that is fetched aside.
pub(in crate::sync) struct Wanted<'w> {
    pub(in crate::sync) url: &'w str,
    pub(in crate::sync) validator: Option<&'w str>,
    pub(in crate::sync) patience: Option<Duration>,
    pub(in crate::sync) begin: u64,
    pub(in crate::sync) end: u64,
    pub(in crate::sync) total: u64,
}

/// Fetches one part of a file that is being filled.
pub(in crate::sync) async fn part(client: &Arc<Client>, parts: &Parts, file: &File, wanted: &Wanted<'_>) -> Result<()> {
    let Wanted { url, validator, patience, begin, end, total } = *wanted;
    let asked = Asked { range: Some((begin, Some(end - 1))), if_range: validator, patience, ..Asked::default() };
    let mut answer = client.ask(url, &asked).await.map_err(shorter_now)?;
    let mut at = begin;
    let same = validator.is_none() || answer.validators().strong() == validator;
    if !same && (answer.status == 206 || answer.validators().strong().is_some()) {
        return Err(SourceError::new(url, Trouble::Changed));
    }
    if answer.status != 206 || answer.content_range() != Some((begin, Some(total))) {
        return Err(SourceError::new(url, Trouble::NoRanges));
    }
    while let Some(chunk) = answer.chunk().await? {
        let next = at + chunk.len() as u64;
        if next > end {
            return Err(SourceError::new(url, Trouble::Broken("more bytes came than were asked for".to_owned())));
        }
        parts.write(file, &chunk, at).map_err(|error| SourceError::new(url, Trouble::Disk(error.to_string())))?;
        at = next;
        parts.progress();
    }
    match at < end {
        true => Err(SourceError::new(url, Trouble::Truncated { got: at - begin, expected: end - begin })),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(file: &File, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    #[test]
    fn what_is_there_is_not_written_over() {
        let file = tempfile::tempfile().unwrap();
        let parts = Parts::new(Ranges::default());
        parts.write(&file, b"cd", 2).unwrap();
        parts.write(&file, b"ABCDEF", 0).unwrap();
        assert_eq!(read(&file, 6), b"ABcdEF");
        assert!(parts.ranges().contains(0, 6));
    }

    #[test]
    fn what_another_writes_is_left_to_it() {
        let file = tempfile::tempfile().unwrap();
        let parts = Parts::new(Ranges::default());
        assert_eq!(parts.claim(2, 4), Some((2, 4)));
        parts.write(&file, b"ABCDEF", 0).unwrap();
        assert!(parts.ranges().contains(0, 2) && parts.ranges().contains(4, 6) && !parts.ranges().contains(2, 4));
        assert_eq!(parts.claim(0, 6), None);
        assert!(parts.is_under_way(2, 4) && parts.is_under_way(0, 3) && !parts.is_under_way(4, 6));
    }

    #[test]
    fn what_could_not_be_written_is_missing_as_before() {
        let read_only = File::open("/dev/null").unwrap();
        let file = tempfile::tempfile().unwrap();
        let parts = Parts::new(Ranges::default());
        assert!(parts.write(&read_only, b"ab", 0).is_err());
        assert_eq!(parts.ranges().len(), 0);
        parts.write(&file, b"ab", 0).unwrap();
        assert_eq!(read(&file, 2), b"ab");
    }
}
