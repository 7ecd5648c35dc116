//! TimeMaps (RFC 7089, 5), page by page: in link format, or as JSON, as archives write it.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flate2::write::MultiGzDecoder;
use url::Url;

use super::splitter::Splitter;
use super::{Limits, Memento, TimeMap, Timeline, json, targets};
use crate::bounds;
use crate::document::Datetime;
use crate::source::{Answer, Asked, Client, LinkValue, SourceError, Trouble, Validators};

type Result<T> = std::result::Result<T, SourceError>;

/// Reads a TimeMap and the pages it names, as far as the limits and the time allow. What came of its first
/// page is kept when a later one fails.
///
/// A TimeMap is taken for unchanged if its first page is. Pages that changed while the page that names them
/// did not are not seen: there is nothing to ask for all of them at once.
///
/// # Errors
/// If the first page cannot be had in the time, or is no TimeMap in link format.
pub async fn read_timemap(
    client: &Arc<Client>,
    url: &str,
    known: Option<&Validators>,
    limits: &Limits,
    within: Duration,
) -> Result<Timeline> {
    let mut reading = Reading::new(client, *limits, within);
    let first = tokio::time::timeout(within, reading.first(url, known)).await;
    let stalled = || SourceError::new(url, Trouble::Stalled { what: "whole TimeMap", after: within });
    let Some(validators) = first.map_err(|_| stalled())?? else { return Ok(Timeline::NotModified) };
    while let Some(next) = reading.next() {
        let left = reading.left();
        let failed = match tokio::time::timeout(left, reading.later(&next)).await {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => error,
            Err(_) => SourceError::new(&next, Trouble::Stalled { what: "whole page of a TimeMap", after: left }),
        };
        reading.failed.push(failed);
    }
    Ok(Timeline::Map(reading.finish(validators)))
}

#[derive(Debug)]
struct Reading<'a> {
    client: &'a Arc<Client>,
    limits: Limits,
    begun: Instant,
    within: Duration,
    /// Bytes of bodies that may still be read.
    bytes: u64,
    /// Bytes of URLs that may still be kept: relative ones can be far longer than they are written.
    room: u64,
    found: HashMap<String, Datetime>,
    timegate: Option<String>,
    /// The resource whose mementos these are, as the TimeMap names it.
    original: Option<Url>,
    /// Pages that are known of, read or not.
    seen: HashSet<Url>,
    queue: VecDeque<Url>,
    pages: usize,
    cuts: HashSet<Cut>,
    failed: Vec<SourceError>,
    undated: usize,
    foreign: usize,
    lost: usize,
    open: usize,
}

/// The most bytes of a TimeMap as JSON, which is read whole.
const MOST_JSON: usize = 4 << 20;

/// What a limit cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Cut {
    Pages,
    Bytes,
    Mementos,
    Time,
}

/// What a page turned out to be.
#[derive(Debug, Default)]
struct Seen {
    /// It has a link that TimeMaps have.
    link: bool,
    /// The first byte that is not blank.
    first: Option<u8>,
    /// Links to TimeMaps without an interval: pages, if this one has no memento and no page with one.
    timemaps: Vec<LinkValue>,
    /// Whether it has mementos, or names pages.
    has_more: bool,
}

impl<'a> Reading<'a> {
    fn new(client: &'a Arc<Client>, limits: Limits, within: Duration) -> Self {
        Self {
            client,
            limits,
            begun: Instant::now(),
            within,
            bytes: limits.bytes,
            room: limits.bytes,
            found: HashMap::new(),
            timegate: None,
            original: None,
            seen: HashSet::new(),
            queue: VecDeque::new(),
            pages: 0,
            cuts: HashSet::new(),
            failed: Vec::new(),
            undated: 0,
            foreign: 0,
            lost: 0,
            open: 0,
        }
    }

    fn left(&self) -> Duration {
        self.within.saturating_sub(self.begun.elapsed())
    }

    async fn ask(&mut self, url: &str, validators: Option<&Validators>) -> Result<Answer> {
        self.pages += 1;
        let patience = Some(self.left().min(self.client.timeout()));
        let accept = Some("application/link-format, application/json;q=0.5, */*;q=0.1");
        self.client
            .ask(url, &Asked { validators, accept, aside: true, document: true, patience, ..Asked::default() })
            .await
    }

    /// The validators of the first page; `None` if it is as it was.
    async fn first(&mut self, url: &str, known: Option<&Validators>) -> Result<Option<Validators>> {
        let answer = self.ask(url, known).await?;
        if answer.status == 304 {
            return Ok(None);
        }
        self.seen.extend(Url::parse(url).ok().map(|url| targets::itself(&url)));
        self.seen.insert(targets::itself(&answer.url));
        let validators = answer.validators();
        self.page(answer).await?;
        Ok(Some(validators))
    }

    /// The next page to read, if there is one that limits and time allow.
    fn next(&mut self) -> Option<Url> {
        let next = self.queue.pop_front()?;
        for (spent, cut) in [(self.bytes == 0, Cut::Bytes), (self.left().is_zero(), Cut::Time)] {
            if spent {
                self.cuts.insert(cut);
            }
        }
        let full = [Cut::Bytes, Cut::Mementos, Cut::Time].iter().any(|cut| self.cuts.contains(cut));
        (!full).then_some(next)
    }

    async fn later(&mut self, url: &Url) -> Result<()> {
        let answer = self.ask(url.as_str(), None).await?;
        let arrived = targets::itself(&answer.url);
        if arrived == *url || self.seen.insert(arrived) { self.page(answer).await } else { Ok(()) }
    }

    async fn page(&mut self, mut answer: Answer) -> Result<()> {
        let mut unzip = match answer.coding().as_deref() {
            None => None,
            Some("gzip" | "x-gzip") => Some(MultiGzDecoder::new(Vec::new())),
            Some(coding) => {
                let (coding, problem) = (coding.to_owned(), "it was not asked for".to_owned());
                return Err(SourceError::new(&answer.url, Trouble::BadCoding { coding, problem }));
            }
        };
        let base = targets::itself(&answer.url);
        let mut seen = Seen::default();
        let (mut splitter, mut json) = (Splitter::default(), Vec::new());
        while let Some(chunk) = answer.chunk().await? {
            // Small pieces, so that few links are held at once; a kilobyte unfolds to a megabyte at most.
            for coded in chunk.chunks(1 << 10) {
                let unzipped = unzip.as_mut().map(|unzip| decoded(unzip, coded)).transpose();
                let bad = |error: std::io::Error| {
                    let trouble = Trouble::BadCoding { coding: "gzip".to_owned(), problem: error.to_string() };
                    SourceError::new(&answer.url, trouble)
                };
                let unzipped = unzipped.map_err(bad)?;
                let piece = unzipped.as_deref().unwrap_or(coded);
                let most = usize::try_from(self.bytes).unwrap_or(usize::MAX).min(piece.len());
                self.bytes -= most as u64;
                if most < piece.len() {
                    self.cuts.insert(Cut::Bytes);
                }
                let piece = &piece[..most];
                seen.look(piece);
                match seen.is_json() {
                    true if json.len() + piece.len() > MOST_JSON => {
                        return Err(SourceError::new(&answer.url, Trouble::TooLarge(MOST_JSON as u64)));
                    }
                    true => json.extend_from_slice(piece),
                    false => self.links(&base, splitter.push(piece), &mut seen),
                }
            }
            if self.cuts.contains(&Cut::Bytes) || self.cuts.contains(&Cut::Mementos) {
                self.lost += splitter.lost;
                return seen.check(&answer);
            }
        }
        if seen.is_json() {
            self.links(&base, json::links(&json), &mut seen);
            self.follow(&base, &mut seen);
            return seen.check(&answer);
        }
        self.lost += splitter.lost;
        let (last, whole) = splitter.finish();
        self.links(&base, last, &mut seen);
        self.follow(&base, &mut seen);
        seen.check(&answer)?;
        self.open += usize::from(!whole);
        Ok(())
    }

    /// Follows an index of TimeMaps that gives no intervals.
    fn follow(&mut self, base: &Url, seen: &mut Seen) {
        for link in std::mem::take(&mut seen.timemaps).iter().filter(|_| !seen.has_more) {
            self.enqueue(base, link);
        }
    }

    /// Whether a link is of another resource than the one whose mementos these are (RFC 8288, 3.2).
    fn is_of_another(&self, base: &Url, link: &LinkValue) -> bool {
        let anchor = link.parameter("anchor").and_then(|anchor| targets::resolve(base, anchor));
        anchor.is_some_and(|anchor| {
            let is_this = |own: &Url| *own == anchor;
            !self.original.as_ref().is_none_or(is_this) && anchor != *base
        })
    }

    fn links(&mut self, base: &Url, links: impl IntoIterator<Item = LinkValue>, seen: &mut Seen) {
        for link in links {
            seen.link |= ["memento", "self", "original", "timegate", "timemap"].iter().any(|rel| link.is(rel));
            if link.is("original") && self.original.is_none() {
                self.original = targets::resolve(base, &link.href);
            }
            if self.is_of_another(base, &link) {
                continue;
            }
            if link.is("memento") {
                seen.has_more = true;
                self.memento(base, &link);
            }
            if link.is("timegate") && self.timegate.is_none() {
                self.timegate = targets::resolve(base, &link.href).map(String::from);
            }
            if names_page(&link) {
                seen.has_more = true;
                self.enqueue(base, &link);
            } else if link.is("timemap") && !link.is("self") && targets::is_link_format(&link) {
                match seen.timemaps.len() < self.limits.pages {
                    true => seen.timemaps.push(link),
                    false => drop(self.cuts.insert(Cut::Pages)),
                }
            }
        }
    }

    fn memento(&mut self, base: &Url, link: &LinkValue) {
        let Some(url) = targets::resolve(base, &link.href) else {
            self.foreign += 1;
            return;
        };
        let Some(datetime) = targets::datetime(link) else {
            self.undated += 1;
            return;
        };
        let full = self.found.len() >= self.limits.mementos;
        let url = String::from(url);
        let length = url.len() as u64;
        match self.found.entry(url) {
            Entry::Occupied(_) => {}
            Entry::Vacant(_) if full => drop(self.cuts.insert(Cut::Mementos)),
            Entry::Vacant(_) if length > self.room => drop(self.cuts.insert(Cut::Bytes)),
            Entry::Vacant(place) => {
                self.room -= length;
                place.insert(datetime);
            }
        }
    }

    fn enqueue(&mut self, base: &Url, link: &LinkValue) {
        let Some(url) = targets::resolve(base, &link.href) else {
            self.foreign += 1;
            return;
        };
        if self.seen.contains(&url) {
            return;
        }
        if self.pages + self.queue.len() >= self.limits.pages {
            self.cuts.insert(Cut::Pages);
            return;
        }
        self.seen.insert(url.clone());
        self.queue.push_back(url);
    }

    fn finish(self, validators: Validators) -> TimeMap {
        let complete = self.cuts.is_empty() && self.failed.is_empty() && self.lost == 0 && self.open == 0;
        let notes = self.notes();
        let mut mementos: Vec<Memento> =
            self.found.into_iter().map(|(url, datetime)| Memento { url, datetime }).collect();
        targets::sort(&mut mementos);
        TimeMap { timegate: self.timegate, mementos, complete, notes, validators }
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let [first, others @ ..] = self.failed.as_slice() {
            notes.push(format!("a page cannot be read ({} more): {first}", others.len()));
        }
        let limits = &self.limits;
        for (cut, most) in [
            (Cut::Pages, format!("{} pages", limits.pages)),
            (Cut::Bytes, format!("{} bytes", limits.bytes)),
            (Cut::Mementos, format!("{} mementos ({})", limits.mementos, bounds::MEMENTOS)),
            (Cut::Time, format!("{:.1} s", self.within.as_secs_f32())),
        ] {
            if self.cuts.contains(&cut) {
                notes.push(format!("the rest is not read: it takes more than {most}"));
            }
        }
        for (count, what) in [
            (self.undated, "mementos without a datetime that can be read"),
            (self.foreign, "targets that cannot be asked for by http or https"),
            (self.lost, "links that are too long"),
            (self.open, "pages that end within a link"),
        ] {
            if count > 0 {
                notes.push(format!("passed over: {count} {what}"));
            }
        }
        notes
    }
}

/// What some more bytes of a gzip stream unfold to.
fn decoded(unzip: &mut MultiGzDecoder<Vec<u8>>, coded: &[u8]) -> std::io::Result<Vec<u8>> {
    unzip.write_all(coded)?;
    unzip.flush()?;
    Ok(std::mem::take(unzip.get_mut()))
}

/// Whether a link leads to another page of the TimeMap. A TimeMap without a time of its own may be the
/// same in another format, or that of another archive.
fn names_page(link: &LinkValue) -> bool {
    let (timemap, next) = (link.is("timemap"), link.is("next"));
    let dated = link.parameter("from").or(link.parameter("until")).is_some();
    let page = timemap && (dated || next) || next && !link.is("memento") && link.parameter("type").is_some();
    page && !link.is("self") && targets::is_link_format(link)
}

impl Seen {
    fn look(&mut self, piece: &[u8]) {
        // The bytes of a mark of the byte order are blank, too.
        let blank = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, 0xef | 0xbb | 0xbf);
        self.first = self.first.or_else(|| piece.iter().find(|byte| !blank(byte)).copied());
    }

    fn is_json(&self) -> bool {
        self.first == Some(b'{')
    }

    /// Refuses what is no TimeMap.
    fn check(&self, answer: &Answer) -> Result<()> {
        let media_type = answer.header_values("content-type").next();
        let right = media_type.is_some_and(targets::names_link_format);
        // An archive may know of no memento at all.
        if self.link || right && self.first.is_none() {
            return Ok(());
        }
        let named = match media_type {
            Some(name) => format!("{:?}", name.chars().take(100).collect::<String>()),
            None => "what has no Content-Type".to_owned(),
        };
        let why = format!("{named} is no TimeMap, neither in link format (application/link-format) nor as JSON");
        Err(SourceError::new(&answer.url, Trouble::Nowhere(why)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::parse_link_header;

    #[test]
    fn which_links_lead_to_pages() {
        for (parameters, page) in [
            ("rel=timemap; from=\"x\"", true),
            ("rel=timemap; until=\"x\"; type=\"application/link-format\"", true),
            ("rel=\"timemap next\"", true),
            ("rel=next; type=\"application/link-format; charset=utf-8\"", true),
            ("rel=timemap", false),
            ("rel=next", false),
            ("rel=\"next memento\"; type=\"application/link-format\"", false),
            ("rel=\"self timemap\"; from=\"x\"", false),
            ("rel=self; from=\"x\"", false),
            ("rel=timemap; from=\"x\"; type=\"application/json\"", false),
        ] {
            let link = parse_link_header(&format!("<a>; {parameters}")).remove(0);
            assert_eq!(names_page(&link), page, "{parameters}");
        }
    }
}
