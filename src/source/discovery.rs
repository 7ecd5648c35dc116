//! From what a user types to the sets of resources of a Source (core 6.3).

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use url::Url;

use super::client::{Answer, Asked, Client};
use super::error::{SourceError, Trouble};
use super::html::resourcesync_links;
use super::links::parse_link_header;
use super::pages::{Page, Route, Seen};
use super::validators::Validators;
use crate::bounds::{self, Bounds};
use crate::document::{Capability, Dialect, Head, Kind, Limits, Link, Reader, looks_like_html, relation};

/// What discovery found.
#[derive(Clone, Debug)]
pub struct Discovery {
    /// How.
    pub route: Route,
    /// The URL of the Source Description, if there is one.
    pub description: Option<String>,
    /// At least one.
    pub sets: Vec<FoundSet>,
    /// Whether everything that was named could be read, or is known to be gone: if not, there may be more sets.
    pub complete: bool,
    /// Why sets that a Source Description names are missing: their Capability Lists are gone, or unreadable.
    pub lacking: Vec<String>,
    /// What was odd on the way.
    pub warnings: Vec<String>,
}

/// A set of resources.
#[derive(Clone, Debug)]
pub struct FoundSet {
    /// The URL that stands for it: its Capability List's, or its list's where there is none.
    pub key: String,
    /// The URL of its Capability List, if there is one.
    pub capability_list: Option<String>,
    /// Its documents, by capability.
    pub capabilities: Vec<CapabilityDocument>,
}

impl FoundSet {
    /// The URLs of the documents of a capability, without repetition.
    #[must_use]
    pub fn urls(&self, capability: Capability) -> Vec<String> {
        let mut urls: Vec<String> = Vec::new();
        for document in self.capabilities.iter().filter(|document| document.capability == capability) {
            if !urls.contains(&document.url) {
                urls.push(document.url.clone());
            }
        }
        urls
    }

    /// Of a set of several sitemaps, the one of this URL as a set of its own: caches that are older have it as such.
    #[must_use]
    pub fn part(&self, url: &str) -> Option<Self> {
        let is_part = self.capability_list.is_none() && self.key != url;
        let own: Vec<_> = self.capabilities.iter().filter(|document| is_part && document.url == url).cloned().collect();
        (!own.is_empty()).then(|| Self { key: url.to_owned(), capability_list: None, capabilities: own })
    }
}

/// A document that a Capability List names.
#[derive(Clone, Debug)]
pub struct CapabilityDocument {
    /// What it is.
    pub capability: Capability,
    /// Where it is.
    pub url: String,
    /// Of a channel of notifications: the hubs that deliver it (Change Notification 5).
    pub hubs: Vec<String>,
}

type Result<T> = std::result::Result<T, SourceError>;

/// The most of a document that is read to see what it is.
const PEEK: u64 = 1 << 20;
/// The most of a Source Description or Capability List that is read.
const WHOLE: u64 = 64 << 20;
/// The most lists in `robots.txt`, and the most unnamed entries of a Capability List, that are looked at.
const MOST_LOOKS: usize = 50;

struct Explorer<'c> {
    client: &'c Arc<Client>,
    warnings: Vec<String>,
    lacking: Vec<String>,
    failed: bool,
}

/// Finds the sets of resources of a Source. `source` is an origin, or the URL of a document, of a plain sitemap, or of any page of
/// the Source. In this order: the document itself, the well-known URI of an origin, links of the page, the well-known URI below
/// its path and that of its origin, `robots.txt`, and `/sitemap.xml`.
///
/// # Errors
/// If every route fails; the error says what each came to.
pub async fn discover(client: &Arc<Client>, source: &str) -> Result<Discovery> {
    let url = Url::parse(source).map_err(|error| {
        SourceError::new(
            source,
            Trouble::BadUrl(format!("{error}; a Source is named by its URL, https://source.example/")),
        )
    })?;
    let mut explorer = Explorer { client, warnings: Vec::new(), lacking: Vec::new(), failed: false };
    let mut tried: Vec<SourceError> = Vec::new();
    let mut steps = first_steps(&url);
    while let Some(step) = steps.pop_front() {
        let found = match &step {
            Step::WellKnown(url) => explorer.well_known(url).await,
            Step::Page => match explorer.page(&url).await {
                Ok(Page::Document(seen)) => return explorer.sets(Route::Document, *seen).await,
                Ok(Page::Links(route, links)) => {
                    // It is a page of the Source: what the Source has lies elsewhere.
                    steps.extend(further_steps(&url));
                    explorer.linked(route, &url, &links).await
                }
                Err(error) => Err(error),
            },
            Step::Robots => explorer.robots(&url).await,
            Step::Sitemap(url) => explorer.sitemap(url).await,
        };
        match found {
            Ok(mut found) => {
                explorer.warn_of_further_sets(&mut found).await;
                return Ok(found);
            }
            // A Source that fails for a moment is not one without this route.
            Err(error) if error.trouble.is_away() || error.trouble.passes() => return Err(error),
            Err(error) => tried.push(error),
        }
    }
    if let [only] = tried.as_slice() {
        return Err(only.clone());
    }
    let routes: Vec<String> = tried.iter().map(|error| format!("\n  {error}")).collect();
    Err(SourceError::new(
        source,
        Trouble::Nowhere(format!(
            "no ResourceSync Source was found there; give the URL of one of its documents, if you know one. Tried:{}",
            routes.concat()
        )),
    ))
}

/// A place to look for a Source.
enum Step {
    /// A well-known URI.
    WellKnown(Url),
    /// What was named itself.
    Page,
    Robots,
    Sitemap(Url),
}

fn first_steps(url: &Url) -> VecDeque<Step> {
    let below = below(url).map(Step::WellKnown);
    match is_origin(url) {
        true => {
            let sitemap = url.join("/sitemap.xml").ok().map(Step::Sitemap);
            below.into_iter().chain([Step::Page, Step::Robots]).chain(sitemap).collect()
        }
        false => [Step::Page].into_iter().chain(below).collect(),
    }
}

/// Where else the Source of a page may be that is no origin.
fn further_steps(url: &Url) -> Vec<Step> {
    if is_origin(url) {
        return Vec::new();
    }
    let origin = url.join("/.well-known/resourcesync").ok().map(Step::WellKnown);
    let sitemap = url.join("/sitemap.xml").ok().map(Step::Sitemap);
    origin.into_iter().chain([Step::Robots]).chain(sitemap).collect()
}

fn is_origin(url: &Url) -> bool {
    matches!(url.path(), "" | "/") && url.query().is_none()
}

/// The well-known URI below the path of a URL.
fn below(url: &Url) -> Option<Url> {
    let mut below = url.clone();
    below.set_query(None);
    below.set_fragment(None);
    below.path_segments_mut().ok()?.pop_if_empty().extend([".well-known", "resourcesync"]);
    Some(below)
}

impl Explorer<'_> {
    async fn get(&self, url: &Url, validators: Option<&Validators>) -> Result<Answer> {
        let asked = Asked {
            accept_encoding: Some("gzip, identity;q=0.5"),
            validators,
            document: true,
            patience: Some(self.client.timeout()),
            ..Asked::default()
        };
        self.client.ask(url.as_str(), &asked).await
    }

    /// Reads a document: whole if it says what a Source has, else its head.
    async fn document(&self, url: &Url) -> Result<Seen> {
        match self.page(url).await? {
            Page::Document(seen) => Ok(*seen),
            Page::Links(..) => Err(SourceError::new(
                url,
                Trouble::Nowhere("it is an HTML page, not a ResourceSync document".to_owned()),
            )),
        }
    }

    fn bounds(&self) -> &Bounds {
        self.client.bounds()
    }

    /// Reads a page: a document, or HTML that may link to one.
    async fn page(&self, url: &Url) -> Result<Page> {
        let known = self.client.memory().get(url);
        let mut answer = self.get(url, known.as_ref().map(|(validators, _)| validators)).await?;
        if let Some((_, page)) = known.filter(|_| answer.status == 304) {
            return Ok(page);
        }
        let validators = answer.validators();
        let page = self.read(url, &mut answer).await?;
        self.client.memory().put(url, validators, &page);
        Ok(page)
    }

    async fn read(&self, asked: &Url, answer: &mut Answer) -> Result<Page> {
        let (base, charset) = (answer.url.clone(), answer.charset());
        let links: Vec<Url> = answer
            .header_values("link")
            .flat_map(parse_link_header)
            .filter(|link| link.is("resourcesync"))
            .filter_map(|link| base.join(&link.href).ok())
            .collect();
        let (mut body, mut whole) = prefix(answer, Vec::new(), PEEK.min(self.bounds().document)).await?;
        if looks_like_html(&body) {
            return Ok(match links.is_empty() {
                false => Page::Links(Route::LinkHeader, links),
                true => Page::Links(Route::HtmlLink, resourcesync_links(&base, &body)),
            });
        }
        if !whole {
            let wanted = open(&base, charset.as_deref(), &body, self.bounds()).is_ok_and(|head| {
                matches!(head.capability(), Some(Capability::Description | Capability::CapabilityList))
            });
            if wanted {
                (body, whole) = prefix(answer, body, WHOLE.min(self.bounds().document)).await?;
                if !whole {
                    let beyond = || bounds::DOCUMENT.passed("its size", self.bounds()).into();
                    let trouble = if self.bounds().document < WHOLE { beyond() } else { Trouble::TooLarge(WHOLE) };
                    return Err(SourceError::new(&base, trouble));
                }
            }
        }
        match see(&base, charset.as_deref(), &body, whole, self.bounds()) {
            Ok(mut seen) => {
                seen.asked = asked.clone();
                if matches!(shape(&seen), Shape::List(_)) {
                    seen.entries.clear();
                }
                Ok(Page::Document(Box::new(seen)))
            }
            Err(_) if !links.is_empty() => Ok(Page::Links(Route::LinkHeader, links)),
            Err(error) => Err(error),
        }
    }

    async fn well_known(&mut self, url: &Url) -> Result<Discovery> {
        let seen = self.document(url).await?;
        self.sets(Route::WellKnown, seen).await
    }

    async fn sitemap(&mut self, url: &Url) -> Result<Discovery> {
        let seen = self.document(url).await?;
        self.sets(Route::Sitemap, seen).await
    }

    async fn linked(&mut self, route: Route, page: &Url, links: &[Url]) -> Result<Discovery> {
        let mut sets = Vec::new();
        let mut description = None;
        let mut failed = None;
        for link in links {
            let found = match self.document(link).await {
                Ok(seen) => self.sets(route, seen).await,
                Err(error) => Err(error),
            };
            match found {
                Ok(found) => {
                    description = description.or(found.description);
                    self.warnings.extend(found.warnings);
                    sets.extend(found.sets);
                }
                Err(error) => {
                    self.lacks(&error);
                    failed = Some(error);
                }
            }
        }
        match failed {
            Some(error) if sets.is_empty() => Err(error),
            None if sets.is_empty() => {
                let trouble =
                    "it is an HTML page without a link to a Capability List (rel=\"resourcesync\")".to_owned();
                Err(SourceError::new(page, Trouble::Nowhere(trouble)))
            }
            _ => Ok(self.result(route, description, sets)),
        }
    }

    /// A document that leads to sets cannot be read: for now, or because it is not there.
    fn lacks(&mut self, error: &SourceError) {
        if error.trouble.passes() || error.trouble.is_away() {
            self.failed = true;
            self.warnings.push(error.to_string());
        } else {
            self.lacking.push(error.to_string());
        }
    }

    /// The sitemaps of a `robots.txt`. Those that are no ResourceSync documents are one set.
    async fn robots(&mut self, origin: &Url) -> Result<Discovery> {
        let url =
            origin.join("/robots.txt").map_err(|error| SourceError::new(origin, Trouble::BadUrl(error.to_string())))?;
        let text = self.get(&url, None).await?.bytes(PEEK.min(self.bounds().document)).await?;
        let text = String::from_utf8_lossy(&text);
        let (mut plain, mut lists, mut dead) = (Vec::new(), Vec::new(), Vec::new());
        for line in text.lines().filter_map(sitemap_line).take(MOST_LOOKS) {
            let Ok(target) = url.join(line) else { continue };
            match self.document(&target).await {
                Ok(seen) if seen.head.capability().is_some() => lists.push(seen),
                Ok(seen) => plain.push(seen),
                Err(error) => dead.push((target, error)),
            }
        }
        if lists.is_empty() && plain.is_empty() {
            let error = dead.into_iter().map(|(_, error)| error).next();
            let nothing =
                || SourceError::new(&url, Trouble::Nowhere("it names no sitemap that can be read".to_owned()));
            return Err(error.unwrap_or_else(nothing));
        }
        if lists.is_empty() && plain.len() + dead.len() > 1 {
            // A sitemap that cannot be read is one of the lists of the set: the set is incomplete until it can.
            let urls = plain.into_iter().map(|seen| seen.asked).chain(dead.into_iter().map(|(target, _)| target));
            let list = |url: Url| CapabilityDocument {
                capability: Capability::ResourceList,
                url: url.into(),
                hubs: Vec::new(),
            };
            let capabilities = urls.map(list).collect();
            let set = FoundSet { key: url.to_string(), capability_list: None, capabilities };
            return Ok(self.result(Route::Robots, None, vec![set]));
        }
        dead.iter().for_each(|(_, error)| self.lacks(error));
        let mut sets: Vec<FoundSet> = Vec::new();
        let mut description = None;
        for seen in if lists.is_empty() { plain } else { lists } {
            let found = match self.sets(Route::Robots, seen).await {
                Ok(found) => found,
                Err(error) => {
                    self.lacks(&error);
                    continue;
                }
            };
            description = description.or(found.description);
            self.warnings.extend(found.warnings);
            for set in found.sets {
                if !sets.iter().any(|known| known.key == set.key) {
                    sets.push(set);
                }
            }
        }
        if sets.is_empty() {
            return Err(SourceError::new(&url, Trouble::Nowhere("it names no sitemap that can be read".to_owned())));
        }
        Ok(self.result(Route::Robots, description, sets))
    }

    /// Warns if a Source Description above what was found lists further sets.
    async fn warn_of_further_sets(&mut self, found: &mut Discovery) {
        let Some(description) = found.description.clone().filter(|_| found.route != Route::WellKnown) else { return };
        let Ok(url) = Url::parse(&description) else { return };
        let Ok(seen) = self.document(&url).await else { return };
        if !matches!(shape(&seen), Shape::Description) {
            return;
        }
        let lists = seen.entries.iter().filter_map(|entry| seen.url.join(&entry.loc).ok());
        let known = |list: &Url| found.sets.iter().any(|set| set.capability_list.as_deref() == Some(list.as_str()));
        let further = lists.filter(|list| !known(list)).count();
        if further > 0 {
            found.warnings.push(format!(
                "{description} lists {further} further set{}; mount that URL to have them, too",
                if further == 1 { "" } else { "s" }
            ));
        }
    }

    fn result(&mut self, route: Route, description: Option<String>, sets: Vec<FoundSet>) -> Discovery {
        Discovery {
            route,
            description,
            sets,
            complete: !self.failed,
            lacking: std::mem::take(&mut self.lacking),
            warnings: std::mem::take(&mut self.warnings),
        }
    }

    /// The sets that a document leads to.
    async fn sets(&mut self, route: Route, seen: Seen) -> Result<Discovery> {
        match shape(&seen) {
            Shape::Description => {
                let description = Some(seen.url.to_string());
                let sets = self.described(seen).await?;
                Ok(self.result(route, description, sets))
            }
            Shape::CapabilityList => {
                let description = seen.head.link("up").and_then(|up| seen.url.join(up).ok()).map(String::from);
                let set = self.capability_list(seen).await;
                Ok(self.result(route, description, vec![set]))
            }
            Shape::List(capability) => {
                let (set, description) = self.listed(seen, capability).await;
                Ok(self.result(route, description, vec![set]))
            }
        }
    }

    /// The sets of a Source Description, or of the Descriptions that its index names.
    async fn described(&mut self, first: Seen) -> Result<Vec<FoundSet>> {
        let mut sets: Vec<FoundSet> = Vec::new();
        let mut failed = None;
        let mut asked = HashSet::new();
        // From the first down to the one that is gone through, each with its next entry: no more of them are held at once.
        let mut path = vec![(first, 0)];
        while let Some((seen, at)) = path.last_mut() {
            let Some(entry) = seen.entries.get(*at) else {
                path.pop();
                continue;
            };
            *at += 1;
            let (above, target) = (seen.url.clone(), seen.url.join(&entry.loc));
            let Ok(target) = target else { continue };
            if !asked.insert(target.clone()) {
                continue;
            }
            if asked.len() as u64 > self.bounds().documents {
                let beyond = bounds::DOCUMENTS.passed("the number of Capability Lists", self.bounds());
                self.warnings.push(format!("{above}: {beyond}"));
                self.failed = true;
                break;
            }
            match self.document(&target).await {
                Ok(next) if matches!(shape(&next), Shape::Description) && path.len() as u64 > self.bounds().depth => {
                    let beyond = bounds::DEPTH.passed("the depth of its indexes", self.bounds());
                    self.warnings.push(format!("{above}: {beyond}"));
                    self.failed = true;
                }
                Ok(next) if matches!(shape(&next), Shape::Description) => {
                    if next.url != above {
                        path.push((next, 0));
                    }
                }
                Ok(next) if matches!(shape(&next), Shape::CapabilityList) => {
                    let set = self.capability_list(next).await;
                    if !sets.iter().any(|known| known.key == set.key) {
                        sets.push(set);
                    }
                }
                Ok(next) => {
                    self.warnings.push(format!("{above} lists {}, which is no Capability List", next.url));
                }
                Err(error) => {
                    self.lacks(&error);
                    failed = Some(error);
                }
            }
        }
        match (sets.is_empty(), failed) {
            (false, _) => Ok(sets),
            (true, Some(error)) => Err(error),
            (true, None) => {
                Err(SourceError::new("Source Description", Trouble::Nowhere("it lists no Capability List".to_owned())))
            }
        }
    }

    async fn capability_list(&mut self, seen: Seen) -> FoundSet {
        let mut capabilities = Vec::new();
        let mut unnamed = 0;
        for entry in &seen.entries {
            let Ok(target) = seen.url.join(&entry.loc) else { continue };
            let capability = match entry.md.capability() {
                Some(known) => {
                    let spelling = entry.md.get("capability").and_then(Capability::spelling);
                    let warning = |text| format!("{}, line {}: {text}", seen.url, entry.line);
                    self.warnings.extend(spelling.map(warning));
                    known
                }
                None if entry.md.get("capability").is_some() => {
                    self.warnings.push(format!(
                        "{}, line {}: a capability that is not known; passed over",
                        seen.url, entry.line
                    ));
                    continue;
                }
                None if unnamed < MOST_LOOKS => {
                    unnamed += 1;
                    match self.document(&target).await {
                        Ok(next) => match shape(&next) {
                            Shape::List(capability) => {
                                self.warnings.push(format!(
                                    "{}, line {}: an entry without capability; {target} is a {capability}",
                                    seen.url, entry.line
                                ));
                                capability
                            }
                            _ => continue,
                        },
                        Err(error) => {
                            self.warnings.push(format!(
                                "{}, line {}: an entry without capability; {error}",
                                seen.url, entry.line
                            ));
                            continue;
                        }
                    }
                }
                None => continue,
            };
            let hubs = entry.links.iter().filter(|link| link.is("hub")).filter_map(Link::href);
            let hubs = hubs.filter_map(|hub| seen.url.join(hub).ok()).map(String::from).collect();
            capabilities.push(CapabilityDocument { capability, url: target.into(), hubs });
        }
        FoundSet { key: seen.asked.to_string(), capability_list: Some(seen.asked.to_string()), capabilities }
    }

    /// The set that a list belongs to: that of the Capability List it points up to, if there is one.
    async fn listed(&mut self, seen: Seen, capability: Capability) -> (FoundSet, Option<String>) {
        let list = match seen.head.index().and_then(|index| seen.url.join(index).ok()) {
            Some(index) if index != seen.url => index,
            _ => seen.asked.clone(),
        };
        let own = CapabilityDocument { capability, url: list.to_string(), hubs: Vec::new() };
        if let Some(up) = seen.head.above().and_then(|up| seen.url.join(up).ok()).filter(|up| *up != seen.url) {
            match self.document(&up).await {
                Ok(above) if matches!(shape(&above), Shape::CapabilityList) => {
                    let description = above.head.link("up").and_then(|up| above.url.join(up).ok()).map(String::from);
                    let mut set = self.capability_list(above).await;
                    if set.urls(capability).is_empty() {
                        self.warnings.push(format!("{up} does not list {list}; taken with it"));
                        set.capabilities.push(own);
                    }
                    return (set, description);
                }
                Ok(above) => {
                    self.warnings.push(format!("{} points up to {}, which is no Capability List", seen.url, above.url))
                }
                Err(error) => self.warnings.push(format!("{} points up to what cannot be read: {error}", seen.url)),
            }
        }
        let capabilities = std::iter::once(own).chain(linked_from(&seen)).collect();
        (FoundSet { key: list.to_string(), capability_list: None, capabilities }, None)
    }
}

/// What a Sitemap of 2012 links to, where there were no Capability Lists yet (0.1, 4.2 and 5).
fn linked_from(seen: &Seen) -> impl Iterator<Item = CapabilityDocument> {
    let is_older = seen.head.dialect == Dialect::V0_1;
    seen.head.links.iter().filter(move |_| is_older).filter_map(|link| {
        if let Some(protocol) = link.0.get("protocol") {
            let url = channel(protocol, link, &seen.url)?;
            return Some(CapabilityDocument { capability: Capability::ChangeNotification, url, hubs: Vec::new() });
        }
        let capability = match () {
            () if link.is(relation::CHANGE_SET) && !link.is("prev") => Capability::ChangeList,
            () if link.is(relation::DUMP) => Capability::Dump,
            () => return None,
        };
        let url = seen.url.join(link.href()?).ok()?;
        Some(CapabilityDocument { capability, url: url.into(), hubs: Vec::new() })
    })
}

/// The channel that a protocol and a link stand for (0.1, 5.2), as a URL that says how it is joined.
fn channel(protocol: &str, link: &Link, base: &Url) -> Option<String> {
    if relation::is_callback(protocol) {
        return Some(format!("callback+{}", base.join(link.href()?).ok()?));
    }
    let node = link.0.get("pubsubnode").filter(|_| protocol.trim() == relation::XMPP)?;
    let node: String = url::form_urlencoded::byte_serialize(node.as_bytes()).collect();
    let service = link.href()?.split('?').next().unwrap_or_default();
    service.starts_with("xmpp:").then(|| format!("{service}?pubsub;node={node}"))
}

enum Shape {
    Description,
    CapabilityList,
    List(Capability),
}

/// What a document is: what it says, or else what it looks like.
fn shape(seen: &Seen) -> Shape {
    let names =
        |wanted: fn(Capability) -> bool| seen.entries.iter().any(|entry| entry.md.capability().is_some_and(wanted));
    match seen.head.capability() {
        Some(Capability::Description) => Shape::Description,
        // The index of Capability Lists of the D-Lib article (5).
        Some(Capability::CapabilityList) if seen.head.kind == Kind::SitemapIndex => Shape::Description,
        Some(Capability::CapabilityList) => Shape::CapabilityList,
        Some(list) => Shape::List(list),
        None if seen.head.kind == Kind::UrlSet && names(|one| one == Capability::CapabilityList) => Shape::Description,
        None if seen.head.kind == Kind::UrlSet && names(|one| one != Capability::CapabilityList) => {
            Shape::CapabilityList
        }
        None => Shape::List(Capability::ResourceList),
    }
}

/// Adds to `body` up to `most` bytes in all; says whether that is all there is.
async fn prefix(answer: &mut Answer, mut body: Vec<u8>, most: u64) -> Result<(Vec<u8>, bool)> {
    while (body.len() as u64) < most {
        match answer.chunk().await? {
            Some(chunk) => body.extend_from_slice(&chunk),
            None => return Ok((body, true)),
        }
    }
    Ok((body, false))
}

fn open(url: &Url, charset: Option<&str>, body: &[u8], bounds: &Bounds) -> Result<Head> {
    let reader =
        Reader::open_in(charset, body, url.as_str(), limits(bounds)).map_err(|error| unreadable(url, &error))?;
    Ok(reader.head().clone())
}

fn limits(bounds: &Bounds) -> Limits {
    Limits { document: WHOLE.min(bounds.document), ..Limits::of(bounds) }
}

fn unreadable(url: &Url, error: &crate::document::DocumentError) -> SourceError {
    let trouble = format!(
        "it cannot be read as a ResourceSync document: line {}, column {}: {}",
        error.line, error.column, error.problem
    );
    SourceError::new(url, Trouble::Nowhere(trouble))
}

fn see(url: &Url, charset: Option<&str>, body: &[u8], whole: bool, bounds: &Bounds) -> Result<Seen> {
    let mut reader =
        Reader::open_in(charset, body, url.as_str(), limits(bounds)).map_err(|error| unreadable(url, &error))?;
    let mut entries = Vec::new();
    while entries.len() as u64 <= bounds.documents {
        match reader.next() {
            Ok(Some(entry)) => entries.push(entry),
            Ok(None) => break,
            Err(error) if whole => return Err(unreadable(url, &error)),
            Err(_) => break,
        }
    }
    Ok(Seen { asked: url.clone(), url: url.clone(), head: reader.head().clone(), entries, size: body.len() })
}

fn sitemap_line(line: &str) -> Option<&str> {
    let (field, value) = line.trim_start_matches('\u{feff}').split_once(':')?;
    field.trim().eq_ignore_ascii_case("sitemap").then(|| value.split('#').next().unwrap_or_default().trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn robots_lines() {
        for (line, expected) in [
            ("Sitemap: http://example.com/a.xml", Some("http://example.com/a.xml")),
            ("SITEMAP:http://example.com/a.xml # mine", Some("http://example.com/a.xml")),
            ("Disallow: /x", None),
            ("", None),
        ] {
            assert_eq!(sitemap_line(line), expected, "{line}");
        }
    }
}
