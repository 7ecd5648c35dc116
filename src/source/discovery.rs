//! From what a user types to the sets of resources of a Source (core 6.3).

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use url::Url;

use super::client::{Answer, Asked, Client};
use super::error::{SourceError, Trouble};
use super::html::resourcesync_links;
use super::links::parse_link_header;
use crate::bounds::{self, Bounds};
use crate::document::{Capability, Dialect, Entry, Head, Kind, Limits, Link, Reader, looks_like_html, relation};

/// How a Source was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// `/.well-known/resourcesync` (core 6.3.2).
    WellKnown,
    /// The URL is that of a document.
    Document,
    /// A `Link` header field of the page (core 6.3.3).
    LinkHeader,
    /// A `<link>` of the page (core 6.3.3).
    HtmlLink,
    /// `robots.txt` (core 6.3.4).
    Robots,
}

impl Route {
    /// A short name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::WellKnown => "well-known",
            Self::Document => "document",
            Self::LinkHeader => "link-header",
            Self::HtmlLink => "html-link",
            Self::Robots => "robots.txt",
        }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What discovery found.
#[derive(Clone, Debug)]
pub struct Discovery {
    /// How.
    pub route: Route,
    /// The URL of the Source Description, if there is one.
    pub description: Option<String>,
    /// At least one.
    pub sets: Vec<FoundSet>,
    /// Whether everything that was named could be read: if not, there may be more sets.
    pub complete: bool,
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

/// A document as far as discovery needs it.
struct Seen {
    /// What was asked for: it stands for the document, wherever redirects led this time.
    asked: Url,
    /// Where it came from: the base of its relative references.
    url: Url,
    head: Head,
    entries: Vec<Entry>,
}

struct Explorer<'c> {
    client: &'c Arc<Client>,
    warnings: Vec<String>,
    failed: bool,
}

/// What a page is.
enum Page {
    Document(Box<Seen>),
    Links(Route, Vec<Url>),
}

/// Finds the sets of resources of a Source. `source` is an origin, or the URL of a document, of a plain
/// sitemap, or of a page that links to a Capability List.
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
    // A Source that is ill for a moment is not one without this route.
    let is_ill = |error: &SourceError| error.trouble.is_away() || error.trouble.passes();
    let mut explorer = Explorer { client, warnings: Vec::new(), failed: false };
    let mut tried: Vec<SourceError> = Vec::new();
    let is_origin = matches!(url.path(), "" | "/") && url.query().is_none();
    if is_origin && let Ok(well_known) = url.join("/.well-known/resourcesync") {
        match explorer.document(&well_known).await {
            Ok(seen) => match explorer.sets(Route::WellKnown, seen).await {
                Ok(found) => return Ok(found),
                Err(error) if is_ill(&error) => return Err(error),
                Err(error) => tried.push(error),
            },
            Err(error) if is_ill(&error) => return Err(error),
            Err(error) => tried.push(error),
        }
    }
    match explorer.page(&url).await {
        Ok(Page::Document(seen)) => return explorer.sets(Route::Document, *seen).await,
        Ok(Page::Links(route, links)) => match explorer.linked(route, &links).await {
            Ok(found) => return Ok(found),
            Err(error) if is_ill(&error) => return Err(error),
            Err(error) => tried.push(error),
        },
        Err(error) if is_ill(&error) => return Err(error),
        Err(error) => tried.push(error),
    }
    if is_origin {
        match explorer.robots(&url).await {
            Ok(found) => return Ok(found),
            Err(error) if is_ill(&error) => return Err(error),
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

impl Explorer<'_> {
    async fn get(&self, url: &Url) -> Result<Answer> {
        let asked = Asked {
            accept_encoding: Some("gzip, identity;q=0.5"),
            document: true,
            patience: Some(self.client.timeout()),
            ..Asked::default()
        };
        self.client.ask(url.as_str(), &asked).await
    }

    /// Reads a document: whole if it says what a Source has, else its head.
    async fn document(&self, url: &Url) -> Result<Seen> {
        let answer = self.get(url).await?;
        let seen = self.read(answer).await?;
        Ok(Seen { asked: url.clone(), ..seen })
    }

    fn bounds(&self) -> &Bounds {
        self.client.bounds()
    }

    async fn read(&self, mut answer: Answer) -> Result<Seen> {
        let url = answer.url.clone();
        let (mut body, mut whole) = prefix(&mut answer, Vec::new(), PEEK.min(self.bounds().document)).await?;
        if !whole {
            let wanted = open(&url, &body, self.bounds()).is_ok_and(|head| {
                matches!(head.capability(), Some(Capability::Description | Capability::CapabilityList))
            });
            if wanted {
                (body, whole) = prefix(&mut answer, body, WHOLE.min(self.bounds().document)).await?;
                if !whole {
                    let beyond = || bounds::DOCUMENT.passed("its size", self.bounds()).into();
                    let trouble = if self.bounds().document < WHOLE { beyond() } else { Trouble::TooLarge(WHOLE) };
                    return Err(SourceError::new(&url, trouble));
                }
            }
        }
        see(&url, &body, whole, self.bounds())
    }

    /// Looks at what a user named: a document, or a page that links to one.
    async fn page(&self, url: &Url) -> Result<Page> {
        let mut answer = self.get(url).await?;
        let base = answer.url.clone();
        let links: Vec<Url> = answer
            .header_values("link")
            .flat_map(parse_link_header)
            .filter(|link| link.is("resourcesync"))
            .filter_map(|link| base.join(&link.href).ok())
            .collect();
        let (body, whole) = prefix(&mut answer, Vec::new(), PEEK.min(self.bounds().document)).await?;
        drop(answer);
        let seen = match (looks_like_html(&body), whole) {
            (true, _) => None,
            (false, true) => Some(see(&base, &body, true, self.bounds())),
            (false, false) if open(&base, &body, self.bounds()).is_ok() => Some(self.document(&base).await),
            (false, false) => Some(see(&base, &body, false, self.bounds())),
        };
        match seen {
            Some(Ok(seen)) => Ok(Page::Document(Box::new(Seen { asked: url.clone(), ..seen }))),
            _ if !links.is_empty() => Ok(Page::Links(Route::LinkHeader, links)),
            Some(Err(error)) => Err(error),
            None => html_links(&base, &body),
        }
    }

    async fn linked(&mut self, route: Route, links: &[Url]) -> Result<Discovery> {
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
                    sets.extend(found.sets);
                }
                Err(error) => {
                    self.warnings.push(error.to_string());
                    self.failed = true;
                    failed = Some(error);
                }
            }
        }
        match failed {
            Some(error) if sets.is_empty() => Err(error),
            _ => Ok(self.result(route, description, sets)),
        }
    }

    async fn robots(&mut self, origin: &Url) -> Result<Discovery> {
        let url =
            origin.join("/robots.txt").map_err(|error| SourceError::new(origin, Trouble::BadUrl(error.to_string())))?;
        let text = self.get(&url).await?.bytes(PEEK.min(self.bounds().document)).await?;
        let text = String::from_utf8_lossy(&text);
        let mut plain = Vec::new();
        let mut lists = Vec::new();
        for line in text.lines().filter_map(sitemap_line).take(MOST_LOOKS) {
            let Ok(target) = url.join(line) else { continue };
            match self.document(&target).await {
                Ok(seen) if seen.head.capability().is_some() => lists.push(seen),
                Ok(seen) => plain.push(seen),
                Err(error) => {
                    self.failed = true;
                    self.warnings.push(error.to_string());
                }
            }
        }
        let chosen = if lists.is_empty() { plain } else { lists };
        let mut sets: Vec<FoundSet> = Vec::new();
        let mut description = None;
        for seen in chosen {
            let found = self.sets(Route::Robots, seen).await?;
            description = description.or(found.description);
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

    fn result(&mut self, route: Route, description: Option<String>, sets: Vec<FoundSet>) -> Discovery {
        Discovery { route, description, sets, complete: !self.failed, warnings: std::mem::take(&mut self.warnings) }
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
                    self.warnings.push(error.to_string());
                    self.failed = true;
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
                Some(known) => known,
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

fn open(url: &Url, body: &[u8], bounds: &Bounds) -> Result<Head> {
    let reader = Reader::open(body, url.as_str(), limits(bounds)).map_err(|error| unreadable(url, &error))?;
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

fn see(url: &Url, body: &[u8], whole: bool, bounds: &Bounds) -> Result<Seen> {
    if looks_like_html(body) {
        return Err(SourceError::new(
            url,
            Trouble::Nowhere("it is an HTML page, not a ResourceSync document".to_owned()),
        ));
    }
    let mut reader = Reader::open(body, url.as_str(), limits(bounds)).map_err(|error| unreadable(url, &error))?;
    let mut entries = Vec::new();
    while entries.len() as u64 <= bounds.documents {
        match reader.next() {
            Ok(Some(entry)) => entries.push(entry),
            Ok(None) => break,
            Err(error) if whole => return Err(unreadable(url, &error)),
            Err(_) => break,
        }
    }
    Ok(Seen { asked: url.clone(), url: url.clone(), head: reader.head().clone(), entries })
}

fn html_links(base: &Url, body: &[u8]) -> Result<Page> {
    let links: Vec<Url> = resourcesync_links(body).iter().filter_map(|href| base.join(href).ok()).collect();
    if links.is_empty() {
        let trouble = "it is an HTML page without a link to a Capability List (rel=\"resourcesync\")".to_owned();
        return Err(SourceError::new(base, Trouble::Nowhere(trouble)));
    }
    Ok(Page::Links(Route::HtmlLink, links))
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
