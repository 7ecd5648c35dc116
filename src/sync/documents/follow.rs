//! Which documents tell what has changed since the last time (core 12.1, 12.2, 13.1).
//!
//! An open list is polled, and its index, if it links to one: a second list may begin while the first stays open. A list or an
//! index that is closed, or gone, leads to its index, else to its Capability List, and so to what follows it. Of an index only
//! those lists are read that cover what is missing. What is between two lists is noticed, and so is a list that does not reach
//! back to where we are.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::StreamExt as _;

use super::fetch::{DocumentFetcher, Got, MOST_LOOKS, Part, WRITING};
use super::spooled::{About, OF_THE_REQUEST, Spooled, ended_before};
use crate::bounds;
use crate::catalog::{Beside, DocumentRow, Feed};
use crate::document::Datetime;
use crate::source::{FoundSet, Route, SourceError, Trouble};
use crate::sync::context::Context;

/// How often a closed or missing document leads on to another, in one sync.
const MOST_HOPS: usize = 12;
/// How many lists of an index are asked for at once.
const AT_ONCE: usize = 4;
/// The consequence where a document of changes that ended before the lists cannot be read.
pub(in crate::sync) const NOT_IN_HISTORY: &str =
    "newer lists include the result of its changes, but the versions between are missing from the history";

/// What has to be read to be in step.
#[derive(Debug)]
pub(in crate::sync) struct Chain {
    /// Lists, or documents that list packages, from the oldest to the newest.
    pub(in crate::sync) documents: Vec<Spooled>,
    /// Where to go on the next time, once all of them are in the tree.
    pub(in crate::sync) feed: Feed,
    /// Why it ends before it should.
    pub(in crate::sync) failure: Option<SourceError>,
    /// Between what is in the tree and the first document, or between two of them, changes may be missing:
    /// from then, until then.
    pub(in crate::sync) hole: Option<(Option<Datetime>, Datetime)>,
}

/// What following a feed came to.
#[derive(Debug)]
pub(in crate::sync) enum Followed {
    /// There is nothing new.
    Unchanged,
    /// This is to be read.
    Changed(Box<Chain>),
}

/// How closely a feed is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::sync) enum FollowDepth {
    /// Whether what was polled last has changed.
    Poll,
    /// And whether what is above it leads elsewhere: what was polled may have been left as it was.
    Wide,
    /// All of it is read, whether it has changed or not.
    Again,
}

/// What else a set offers of the same kind.
#[derive(Clone, Copy, Debug)]
pub(in crate::sync) struct OtherFeeds<'e> {
    /// Archives, where a feed may not reach back far enough.
    pub(in crate::sync) archives: &'e [String],
    /// Where the feeds of the set are that are followed by themselves.
    pub(in crate::sync) roots: &'e [String],
}

/// Follows one feed from where it was left. All changes up to `covered` are in the tree; what the feed does not reach back to,
/// archives may.
pub(in crate::sync) async fn follow(
    context: &Arc<Context>,
    feed: &Feed,
    others: OtherFeeds<'_>,
    covered: Option<Datetime>,
    look: FollowDepth,
) -> Result<Followed, SourceError> {
    let mut walk = Walk {
        context,
        fetcher: DocumentFetcher::new(context, feed.capability),
        covered: feed.cursor.max(covered),
        read_from: feed.read_from(feed.cursor.max(covered)),
        feed: feed.clone(),
        others,
        documents: Vec::new(),
        visited: HashSet::new(),
        aside: None,
        looked_beside: false,
        optional: None,
        up: None,
        failure: None,
    };
    match walk.run(look).await? {
        false => Ok(Followed::Unchanged),
        true => {
            if walk.failure.is_some() {
                // That an index beside the list was there is remembered until it is there again.
                walk.feed.beside.clone_from(&feed.beside);
            }
            Ok(Followed::Changed(Box::new(walk.finish())))
        }
    }
}

struct Walk<'e> {
    context: &'e Arc<Context>,
    fetcher: DocumentFetcher,
    covered: Option<Datetime>,
    /// Changes before that are in the history, too. A list that ended between this time and `covered` is read for the history only.
    read_from: Option<Datetime>,
    feed: Feed,
    others: OtherFeeds<'e>,
    documents: Vec<Spooled>,
    visited: HashSet<String>,
    /// A list that begins after our cursor, kept while the lists before it are searched.
    aside: Option<(String, Spooled)>,
    /// Whether the index beside the list was asked for.
    looked_beside: bool,
    /// The index that an open list links to: without it, the list is followed all the same.
    optional: Option<String>,
    /// What the last list says that is above it.
    up: Option<String>,
    failure: Option<SourceError>,
}

/// Where a document leads.
#[derive(Debug)]
enum Lead {
    /// To a list of changes, or an index of such.
    Feed(String),
    /// To an index, or to the Capability List.
    Above(String),
}

/// What follows after a document.
#[derive(Debug)]
enum Hop {
    /// This one.
    To(String),
    /// Nothing: all that is to be read was.
    End,
    /// Nothing; and if nothing was read before it, nothing is new.
    NothingNew,
}

impl From<Option<String>> for Hop {
    fn from(next: Option<String>) -> Self {
        next.map_or(Self::End, Self::To)
    }
}

/// An index of changes.
#[derive(Debug)]
struct Index {
    row: DocumentRow,
    /// The lists that it names, in the order of time.
    parts: Vec<Part>,
    /// The end of its interval, if it is closed.
    until: Option<Datetime>,
    /// What it links to.
    above: Option<String>,
}

impl Index {
    fn new(row: DocumentRow, mut parts: Vec<Part>, until: Option<Datetime>, above: Option<String>) -> Self {
        if parts.iter().all(|part| part.from.is_some()) {
            // They should be in this order (core 12.2).
            parts.sort_by_key(|part| part.from);
        }
        Self { row, parts, until, above }
    }

    fn place(&self, url: &str) -> Option<usize> {
        self.parts.iter().position(|part| part.url == url)
    }

    /// When the list at a place ends, as far as its index tells.
    fn end(&self, place: usize) -> Option<Datetime> {
        let part = self.parts.get(place)?;
        // Lists may stay open and all have the `from` of the first one; then the next `from` is not the end of this list.
        let next = self.parts.get(place + 1).and_then(|next| next.from).filter(|next| part.from < Some(*next));
        part.until.or(next)
    }

    fn is_dated(&self) -> bool {
        self.parts.iter().all(|part| part.from.is_some())
    }

    /// Whether no list comes after the one at this place, as far as its index tells.
    fn is_last(&self, place: usize) -> bool {
        !self.is_dated() || place + 1 == self.parts.len()
    }
}

/// What is asked for, with the validators that are known of it.
fn conditional(url: &str, etag: Option<&String>, last_modified: Option<&String>) -> DocumentRow {
    DocumentRow {
        url: url.to_owned(),
        etag: etag.cloned(),
        last_modified: last_modified.cloned(),
        ..DocumentRow::default()
    }
}

/// Whether what is asked for is not there, or something else is in its place, rather than that the server is ill.
pub(in crate::sync) fn is_gone(error: &SourceError) -> bool {
    error.trouble.is_missing() || matches!(error.trouble, Trouble::Nowhere(_))
}

/// Whether a document may be there again a moment later.
fn may_pass(error: &SourceError) -> bool {
    error.trouble.passes() || error.trouble.is_away()
}

/// Whether a list is open, where its index says that it is not.
fn is_older(document: &Spooled, part: &Part) -> bool {
    document.about.announced.is_none() && part.until.is_some()
}

/// Brings a list of an index. One that is open, and that the index names as ended, may come from a cache; or its end is still
/// being written, if it is the last that ended; or its Source never says of lists that they ended: then it is the same a moment
/// later. The second part of the answer is why it is not yet all that it will be.
async fn settled(
    fetcher: &DocumentFetcher,
    part: &Part,
    last: bool,
) -> Result<(Got, Option<SourceError>), SourceError> {
    let mut got = fetcher.get(&part.url, 1, None).await?;
    let mut before = None;
    for look in 0..=MOST_LOOKS {
        match &got {
            Got::List(document) if is_older(document, part) => {
                // The first may be a cache's.
                let now = (look > 0).then(|| document.digest_of_entries());
                if look > 0 && (!last || now == before) {
                    return Ok((got, None));
                }
                before = now;
            }
            _ => return Ok((got, None)),
        }
        if look == MOST_LOOKS {
            break;
        }
        if look > 0 {
            tokio::time::sleep(WRITING).await;
        }
        got = fetcher.afresh(&part.url, 1).await?;
    }
    let problem = "its index says that it has ended, and it goes on; it is read again with the next poll".to_owned();
    Ok((got, Some(SourceError::new(&part.url, Trouble::Broken(problem)))))
}

impl Walk<'_> {
    /// Reads what is to be read; false if nothing has changed.
    async fn run(&mut self, look: FollowDepth) -> Result<bool, SourceError> {
        let is_known = |beside: &&Beside| beside.etag.is_some() || beside.last_modified.is_some();
        let read_before = self.feed.beside.as_ref().filter(is_known).map(|beside| beside.url.clone());
        let mut url = self.feed.url.clone();
        let mut known = Some(conditional(&url, self.feed.etag.as_ref(), self.feed.last_modified.as_ref()))
            .filter(|_| look < FollowDepth::Again);
        for _ in 0..MOST_HOPS {
            self.visited.insert(url.clone());
            let hop = match self.fetcher.get(&url, 0, known.take()).await {
                Ok(Got::Unchanged(_)) => self.unchanged(look, &mut known).await.map_or(Hop::NothingNew, Hop::To),
                Ok(Got::List(document)) => match self.list(url, *document).await? {
                    None if look >= FollowDepth::Wide => self.lead(self.above()).await.into(),
                    next => next.into(),
                },
                Ok(Got::Index { row, parts, about, .. }) => {
                    let until = about.until.filter(|until| self.is_past(*until, Datetime::now()));
                    self.index(Index::new(row, parts, until, about.index.or(about.up))).await.into()
                }
                Err(error) => self.failed(&url, error, look, read_before.as_deref()).await?,
            };
            match hop {
                Hop::To(next) => url = next,
                Hop::End => return Ok(true),
                Hop::NothingNew => return Ok(!self.documents.is_empty()),
            }
        }
        Ok(true)
    }

    /// Where to go on from a document that cannot be had. `read_before` is the index beside a list that was read before.
    async fn failed(
        &mut self,
        url: &str,
        error: SourceError,
        look: FollowDepth,
        read_before: Option<&str>,
    ) -> Result<Hop, SourceError> {
        let is_optional = self.optional.as_deref() == Some(url);
        // One that was read before may have told of a list that has begun since.
        if is_optional && !may_pass(&error) && read_before != Some(url) {
            self.context.status.warning(&format!("{error}; the Change List that links to it is open, and followed"));
            let root = Some(self.feed.root.clone()).filter(|_| look >= FollowDepth::Wide);
            return Ok(self.lead(root.map(Lead::Feed)).await.map_or(Hop::NothingNew, Hop::To));
        }
        if is_gone(&error) {
            return match self.lead(self.above()).await {
                None => Ok(self.without(error).await?.into()),
                next => {
                    tracing::info!(%error, ?next, "a document of changes is gone; looking above it");
                    Ok(next.into())
                }
            };
        }
        // What is missing until it answers, lists tell.
        if self.aside.is_some() && self.others.archives.iter().any(|archive| archive == url) {
            return Ok(self.without(error).await?.into());
        }
        if self.documents.is_empty() && !is_optional {
            return Err(error);
        }
        self.failure = Some(error);
        Ok(Hop::End)
    }

    /// What leads on from a document of changes, besides what it links to.
    fn above(&self) -> impl Iterator<Item = Lead> + use<> {
        let above = self.feed.above.clone().map(Lead::Above);
        above.into_iter().chain([Lead::Feed(self.feed.root.clone())])
    }

    /// Where to go on from a document that has not changed.
    async fn unchanged(&mut self, look: FollowDepth, known: &mut Option<DocumentRow>) -> Option<String> {
        let closed = self.feed.until.filter(|until| self.is_past(*until, Datetime::now()));
        self.covered = self.covered.max(closed);
        self.read_from = self.read_from.max(closed);
        if let Some(beside) = self.feed.beside.clone().filter(|_| closed.is_none() && !self.looked_beside)
            && !self.visited.contains(&beside.url)
        {
            self.looked_beside = true;
            self.optional = Some(beside.url.clone());
            *known = Some(conditional(&beside.url, beside.etag.as_ref(), beside.last_modified.as_ref()));
            return Some(beside.url);
        }
        // It is closed, or may have been left as it is: what is above it knows.
        let above = self.feed.above.clone().filter(|_| closed.is_some() || look == FollowDepth::Wide);
        let root = Some(self.feed.root.clone()).filter(|_| look == FollowDepth::Wide);
        self.lead(above.map(Lead::Above).into_iter().chain(root.map(Lead::Feed))).await
    }

    /// Whether an interval that ends then closes its list: one that ends with the request is that of an open list whose interval
    /// moves with the time.
    fn is_past(&self, until: Datetime, request: Datetime) -> bool {
        let margin = self.context.config.poll.unwrap_or_default().max(OF_THE_REQUEST);
        until.nanos().saturating_add(i64::try_from(margin.as_nanos()).unwrap_or(i64::MAX)) < request.nanos()
    }

    /// Goes on without a document that is gone, and that what was read leads to: an index, above all. Returns where to.
    async fn without(&mut self, error: SourceError) -> Result<Option<String>, SourceError> {
        if let Some((url, document)) = self.aside.take() {
            // What came before it is missing, and it says so itself.
            self.context.status.warning(&error.to_string());
            let about = self.take(url, document);
            return Ok(self.lead(about.up.filter(|_| about.until.is_some()).map(Lead::Above)).await);
        }
        if self.documents.is_empty() {
            return Err(error);
        }
        let up = self.up.take();
        let named = match &up {
            Some(up) => self.named_by(up.clone()).await,
            None => Vec::new(),
        };
        if named.is_empty() {
            self.failure = Some(error);
        } else {
            self.feed.above = up;
            self.context.status.warning(&format!("{error}; what follows is where the Capability List says"));
        }
        Ok(named.into_iter().find(|url| !self.visited.contains(url)))
    }

    /// Whether a list reaches back to what is in the tree.
    fn reaches_back(&self, about: &About) -> bool {
        if about.by_lastmod && about.from.is_none() && about.oldest.is_none() && about.prev.is_some() {
            // It tells of nothing; what is before it may.
            return self.covered.is_none();
        }
        about.from.or(about.oldest).is_none_or(|from| self.covered.is_none_or(|covered| from <= covered))
    }

    /// Takes a list; returns where to go on if it is done.
    async fn list(&mut self, url: String, document: Spooled) -> Result<Option<String>, SourceError> {
        let reaches_back = self.reaches_back(&document.about);
        if !reaches_back && self.documents.is_empty() {
            // What came before it lies in the lists beside it.
            let beside =
                document.about.index.iter().chain(self.others.archives).find(|index| !self.visited.contains(*index));
            if let Some(index) = beside.cloned() {
                self.aside = Some((url, document));
                return Ok(Some(index));
            }
        }
        let about = self.take(url, document);
        if !reaches_back && about.by_lastmod {
            self.back(about.prev).await?;
        }
        if about.until.is_none() {
            // A second list may have begun while this one stays open, or because it was closed just now.
            self.optional.clone_from(&about.index);
            let up = about.up.filter(|_| about.announced.is_some());
            return Ok(self.lead(about.index.map(Lead::Feed).into_iter().chain(up.map(Lead::Above))).await);
        }
        Ok(self.lead(about.index.map(Lead::Feed).into_iter().chain(about.up.map(Lead::Above))).await)
    }

    /// An archive to go on with, where what was read does not reach back far enough.
    fn farther_back(&self) -> Option<String> {
        let first = self.documents.first().filter(|first| self.failure.is_none() && !self.reaches_back(&first.about));
        first.and_then(|_| self.others.archives.iter().find(|archive| !self.visited.contains(*archive)).cloned())
    }

    /// Reads the documents of the changes before those of the first that was read, back to one that tells of something that is
    /// known (0.1, 6.1).
    async fn back(&mut self, mut prev: Option<String>) -> Result<(), SourceError> {
        let most = self.context.config.bounds.documents as usize;
        while let Some(url) = prev.take().filter(|url| self.visited.insert(url.clone())) {
            if self.documents.len() >= most {
                let beyond = bounds::DOCUMENTS.passed("the number of its documents", &self.context.config.bounds);
                self.context.status.warning(&format!("{url}: {beyond}; the changes before that are not read"));
                break;
            }
            match self.fetcher.get(&url, 1, None).await {
                Ok(Got::List(document)) => {
                    let reaches = document.about.oldest.is_some_and(|first| self.covered.is_none_or(|at| first <= at));
                    prev = document.about.prev.clone().filter(|_| !reaches);
                    self.documents.insert(0, *document);
                    if reaches {
                        return Ok(());
                    }
                }
                Ok(_) => break,
                // Without what came before, nothing that came after is in its order.
                Err(error) if !is_gone(&error) => return Err(error),
                Err(error) => {
                    self.context
                        .status
                        .warning(&format!("{error}; changes before those that were read may be missing"));
                    break;
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, url: String, mut document: Spooled) -> About {
        let until = document.about.announced;
        document.about.until = until.filter(|until| self.is_past(*until, document.date));
        let about = document.about.clone();
        self.up.clone_from(&about.up);
        self.feed = Feed {
            etag: document.row.etag.clone(),
            last_modified: document.row.last_modified.clone(),
            above: about.index.clone().or_else(|| about.up.clone()).or_else(|| self.feed.above.clone()),
            url,
            until,
            beside: about.index.clone().map(|url| Beside { url, etag: None, last_modified: None }),
            ..self.feed.clone()
        };
        self.documents.push(document);
        about
    }

    /// The first of these that leads to a document that was not looked at yet.
    async fn lead(&mut self, leads: impl IntoIterator<Item = Lead>) -> Option<String> {
        for lead in leads {
            let named = match lead {
                Lead::Feed(url) => vec![url],
                Lead::Above(url) if self.visited.contains(&url) => continue,
                Lead::Above(url) => self.named_by(url).await,
            };
            let next = named.into_iter().find(|url| !self.visited.contains(url));
            if next.is_some() {
                return next;
            }
        }
        None
    }

    /// The feeds that lie behind a document above: itself if it is an index, else those of our capability
    /// that it names as a Capability List.
    async fn named_by(&self, url: String) -> Vec<String> {
        let head = self.fetcher.head(&url).await;
        if head.is_ok_and(|(head, _)| head.capability() == Some(self.feed.capability)) {
            return vec![url];
        }
        match crate::source::discover(&self.context.client, &url).await {
            Ok(found) => {
                // A Source Description, or the Source of a page, has other sets, too.
                let is_own = |set: &&FoundSet| {
                    let urls = set.urls(self.feed.capability);
                    found.route == Route::Document && found.sets.len() == 1 || urls.contains(&self.feed.root)
                };
                let named = found.sets.iter().filter(is_own).flat_map(|set| set.urls(self.feed.capability));
                named.filter(|url| *url == self.feed.root || !self.others.roots.contains(url)).collect()
            }
            Err(error) => {
                self.context.status.warning(&format!("{error}; what follows the changes that were read is not known"));
                Vec::new()
            }
        }
    }

    /// Reads those lists of an index that cover what is missing. Returns where to go on.
    async fn index(&mut self, index: Index) -> Option<String> {
        // What was taken as an open list is asked for again if it has ended since.
        self.documents.retain(|document| {
            !index.parts.iter().any(|part| part.url == document.row.url && is_older(document, part))
        });
        let wanted: Vec<usize> = (0..index.parts.len()).filter(|place| self.is_wanted(&index, *place)).collect();
        self.read_parts(&index, wanted).await;
        let begins = |document: &Spooled| document.about.from.or(document.about.oldest);
        let place = |document: &Spooled| index.place(&document.row.url).unwrap_or(usize::MAX);
        match self.documents.iter().all(|document| begins(document).is_some()) {
            true => self.documents.sort_by_key(|document| (begins(document), place(document))),
            // One that the index does not name yet is the newest.
            false => self.documents.sort_by_key(place),
        }
        match self.aside.take() {
            // The index is an archive of others.
            Some((url, document))
                if self.failure.is_none() && !self.documents.iter().any(|other| other.row.url == url) =>
            {
                drop(self.take(url, document));
            }
            _ if self.others.archives.contains(&index.row.url) => {}
            _ => self.poll_next(&index),
        }
        match self.farther_back() {
            None if index.until.is_some() && self.failure.is_none() => {
                let root = Lead::Feed(self.feed.root.clone());
                self.lead(index.above.map(Lead::Above).into_iter().chain([root])).await
            }
            next => next,
        }
    }

    /// Whether a list of an index is to be read.
    fn is_wanted(&self, index: &Index, place: usize) -> bool {
        let part = &index.parts[place];
        // One that was found unchanged just now, unless the index says that it has been closed since.
        let is_unchanged = self.looked_beside && part.url == self.feed.url && part.until.is_none();
        // Changes before a list that was read already are in the history, if that list reaches back so far.
        let first = self.documents.first().and_then(|document| document.about.from);
        let first = first.filter(|first| self.read_from.is_none_or(|read_from| *first <= read_from));
        !ended_before(index.end(place), self.read_from)
            && !self.documents.iter().any(|document| document.row.url == part.url)
            && !is_unchanged
            && part.from.zip(first).is_none_or(|(from, first)| from >= first)
    }

    /// Reads the lists at these places of an index, up to the first that cannot be read.
    async fn read_parts(&mut self, index: &Index, wanted: Vec<usize>) {
        self.visited.extend(wanted.iter().map(|place| index.parts[*place].url.clone()));
        let last_closed = wanted.iter().copied().rfind(|place| index.parts[*place].until.is_some());
        let fetcher = self.fetcher.clone();
        let mut coming = futures_util::stream::iter(wanted)
            .map(|place| {
                let (fetcher, part) = (fetcher.clone(), index.parts[place].clone());
                // Of one that was closed before another was, nobody is still writing the end.
                async move { (settled(&fetcher, &part, Some(place) == last_closed).await, place) }
            })
            .buffered(AT_ONCE);
        while let Some((got, place)) = coming.next().await {
            let part = &index.parts[place];
            let is_past = ended_before(index.end(place), self.covered);
            let failure = match got {
                Ok((Got::List(mut document), goes_on)) => {
                    document.about.from = document.about.from.or(part.from);
                    if goes_on.is_none() {
                        let until = document.about.announced.or(part.until);
                        document.about.announced = until;
                        document.about.until = until.filter(|until| self.is_past(*until, document.date));
                    }
                    document.about.until = document.about.until.or(index.end(place).filter(|_| is_past));
                    self.documents.push(*document);
                    goes_on
                }
                Ok(_) => {
                    let trouble = Trouble::Nowhere("an index within an index of changes".to_owned());
                    Some(SourceError::new(&part.url, trouble))
                }
                Err(error) => Some(error),
            };
            match failure {
                Some(error) if is_past => {
                    self.context.status.warning(&format!("{error}; {NOT_IN_HISTORY}"));
                }
                Some(error) => {
                    // What comes after it comes after it.
                    self.failure = Some(error);
                    return;
                }
                None => {}
            }
        }
    }

    /// An open list is polled, and its index beside it; else the index alone. The list that was polled, and was found unchanged,
    /// goes on to be, unless the index closes it or names a newer one that was read.
    fn poll_next(&mut self, index: &Index) {
        let whole = self.failure.is_none();
        let url = index.row.url.clone();
        let (etag, last_modified) = (index.row.etag.clone(), index.row.last_modified.clone());
        let beside = match whole {
            true => Beside { url, etag, last_modified },
            false => Beside { url, etag: None, last_modified: None },
        };
        let polled = index.place(&self.feed.url);
        let polled = polled.filter(|at| self.looked_beside && index.parts[*at].until.is_none());
        let open = self.documents.last().filter(|document| {
            let is_newest = match index.place(&document.row.url) {
                None => true,
                Some(at) => polled.is_none_or(|polled| at > polled) && index.is_last(at),
            };
            whole && index.until.is_none() && document.about.until.is_none() && is_newest
        });
        self.feed = match open {
            Some(open) => Feed {
                url: open.row.url.clone(),
                etag: open.row.etag.clone(),
                last_modified: open.row.last_modified.clone(),
                above: Some(beside.url.clone()),
                until: None,
                beside: Some(beside),
                ..self.feed.clone()
            },
            // The index names no newer list than the one that is polled.
            None if index.until.is_none() && polled.is_some_and(|polled| index.is_last(polled)) => {
                Feed { beside: Some(beside), ..self.feed.clone() }
            }
            None => Feed {
                url: beside.url,
                etag: beside.etag,
                last_modified: beside.last_modified,
                above: index.above.clone().or_else(|| Some(self.feed.root.clone())),
                until: index.until,
                beside: None,
                ..self.feed.clone()
            },
        };
    }

    fn finish(mut self) -> Chain {
        // The first time, all that happened since the list may be told; later, the change that was read last should be.
        let covered = self.covered;
        let present = self.documents.iter().filter(|document| !document.ended_before(covered));
        let oldest = present.filter_map(|document| document.about.oldest).min();
        let mut present = self.documents.iter_mut().filter(|document| !document.ended_before(covered));
        if let Some(first) = present.next().filter(|_| self.feed.cursor.is_some()) {
            first.about.from = first.about.from.or(oldest);
        }
        // Only the last one can be that of an interval that moves with the request.
        if let Some((_, before)) = self.documents.split_last_mut() {
            before
                .iter_mut()
                .for_each(|document| document.about.until = document.about.announced.or(document.about.until));
        }
        let mut covered = self.covered;
        let mut hole = None;
        for document in &self.documents {
            if let Some(from) = document.about.from
                && covered.is_some_and(|covered| from > covered)
                && hole.is_none()
            {
                hole = Some((covered, from));
            }
            covered = match document.about.until {
                Some(until) => covered.max(Some(until)),
                // An open one tells of all there is.
                None => Some(Datetime::from_nanos(i64::MAX)),
            };
        }
        Chain { documents: self.documents, feed: self.feed, failure: self.failure, hole }
    }
}
