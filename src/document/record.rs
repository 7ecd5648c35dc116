//! The records that a document consists of, with values as written.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::Deserializer;
use serde::ser::{Serialize, SerializeMap, Serializer};

/// The root element (core 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `urlset`: a list.
    UrlSet,
    /// `sitemapindex`: a list of lists.
    SitemapIndex,
}

impl Kind {
    /// The element's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::UrlSet => "urlset",
            Self::SitemapIndex => "sitemapindex",
        }
    }
}

/// Relations of links that older drafts have other names for.
pub mod relation {
    /// Another place for the same bytes (core 14.1; 0.1, 4.3.1).
    pub const DUPLICATE: [&str; 2] = ["duplicate", "http://www.openarchives.org/rs/mirror"];
    /// What has changed, as a patch (core 14.4; 0.1, 4.3.2).
    pub const PATCH: [&str; 2] =
        ["http://www.openarchives.org/rs/terms/patch", "http://www.openarchives.org/rs/partial"];
    /// A Change Set, which is a Change List (0.1, 5.1).
    pub const CHANGE_SET: &str = "http://www.openarchives.org/rs/changeset";
    /// A package of all there is (0.1, 4.2).
    pub const DUMP: &str = "http://www.openarchives.org/rs/dump";
    /// The protocol of XMPP PubSub (0.1, 5.2.1).
    pub const XMPP: &str = "http://xmpp.org/extensions/xep-0060.html";

    /// Whether a protocol is that of HTTP callback, for which the draft has an example and no name (0.1, 5.2.2).
    #[must_use]
    pub fn is_callback(protocol: &str) -> bool {
        protocol.trim().trim_end_matches('/').rsplit('/').next() == Some("callback")
    }

    /// Whether one of the relation types of a link is one of these.
    #[must_use]
    pub fn is_any(rels: &str, of: &[&str]) -> bool {
        rels.split_ascii_whitespace().any(|one| of.iter().any(|other| one.eq_ignore_ascii_case(other)))
    }
}

/// Which specification a document follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// ANSI/NISO Z39.99 and Change Notification: the specifications in force.
    V1_1,
    /// ResourceSync 0.1 of 2012.
    V0_1,
    /// The framework as the D-Lib article of 2013 has it.
    DLib2013,
    /// A plain sitemap.
    Sitemap,
}

impl Dialect {
    /// The name that `inspect --json` gives.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::V1_1 => "1.1",
            Self::V0_1 => "0.1",
            Self::DLib2013 => "dlib-2013",
            Self::Sitemap => "sitemap",
        }
    }
}

/// The nature of a document (core 7, Change Notification 3; Archives).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each is named as its attribute value")]
pub enum Capability {
    Description,
    CapabilityList,
    ResourceList,
    ResourceDump,
    ResourceDumpManifest,
    ChangeList,
    ChangeDump,
    ChangeDumpManifest,
    ChangeNotification,
    FrameworkNotification,
    ResourceListArchive,
    ResourceDumpArchive,
    ChangeListArchive,
    ChangeDumpArchive,
    /// A package that no dump lists, but a Sitemap links to (0.1, 4.2).
    Dump,
}

impl Capability {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::Description,
        Self::CapabilityList,
        Self::ResourceList,
        Self::ResourceDump,
        Self::ResourceDumpManifest,
        Self::ChangeList,
        Self::ChangeDump,
        Self::ChangeDumpManifest,
        Self::ChangeNotification,
        Self::FrameworkNotification,
        Self::ResourceListArchive,
        Self::ResourceDumpArchive,
        Self::ChangeListArchive,
        Self::ChangeDumpArchive,
        Self::Dump,
    ];

    /// The value of the `capability` attribute.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Description => "description",
            Self::CapabilityList => "capabilitylist",
            Self::ResourceList => "resourcelist",
            Self::ResourceDump => "resourcedump",
            Self::ResourceDumpManifest => "resourcedump-manifest",
            Self::ChangeList => "changelist",
            Self::ChangeDump => "changedump",
            Self::ChangeDumpManifest => "changedump-manifest",
            Self::ChangeNotification => "change-notification",
            Self::FrameworkNotification => "framework-notification",
            Self::ResourceListArchive => "resourcelist-archive",
            Self::ResourceDumpArchive => "resourcedump-archive",
            Self::ChangeListArchive => "changelist-archive",
            Self::ChangeDumpArchive => "changedump-archive",
            Self::Dump => "dump",
        }
    }

    /// Whether it is a channel of notifications, and no document.
    #[must_use]
    pub fn is_channel(self) -> bool {
        matches!(self, Self::ChangeNotification | Self::FrameworkNotification)
    }

    /// Whether it is a list of changes, or of packages of them.
    #[must_use]
    pub fn tells_changes(self) -> bool {
        matches!(self, Self::ChangeList | Self::ChangeDump)
    }

    /// What lists the earlier ones of its kind (Archives, 3 to 6).
    #[must_use]
    pub fn archive(self) -> Option<Self> {
        match self {
            Self::ResourceList => Some(Self::ResourceListArchive),
            Self::ResourceDump => Some(Self::ResourceDumpArchive),
            Self::ChangeList => Some(Self::ChangeListArchive),
            Self::ChangeDump => Some(Self::ChangeDumpArchive),
            _ => None,
        }
    }

    /// The capability of this name, compared case-insensitively: `resourceList` is published, too.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|capability| capability.name().eq_ignore_ascii_case(name.trim()))
    }

    /// A warning for a value of the `capability` attribute that is not spelled as the specification spells it.
    #[must_use]
    pub fn spelling(value: &str) -> Option<String> {
        let known = Self::from_name(value)?;
        (known.name() != value.trim()).then(|| format!("capability {value:?} is spelled {known}; taken as that"))
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Attributes in document order, values normalised as XML asks and otherwise as written.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Each name, and where its value ends; it begins where the one before ends.
    names: Vec<(Cow<'static, str>, usize)>,
    /// The values without anything between them: a text of its own for each would be an allocation for every attribute
    /// of every entry.
    values: String,
}

impl Attributes {
    /// With room for as many attributes, and as many bytes of values.
    pub(super) fn with_capacity(names: usize, values: usize) -> Self {
        Self { names: Vec::with_capacity(names), values: String::with_capacity(values) }
    }

    /// Adds one after the others.
    pub(super) fn push(&mut self, name: Cow<'static, str>, value: &str) {
        self.values.push_str(value);
        self.names.push((name, self.values.len()));
    }

    /// Adds one, or what is said by this name as well, after the separator.
    pub(super) fn add(&mut self, name: Cow<'static, str>, value: &str, separator: char) {
        if self.get(&name).is_none() {
            self.push(name, value);
            return;
        }
        let before = std::mem::take(self);
        for (other, text) in before.iter() {
            match *other == *name {
                true => self.push(name.clone(), &format!("{text}{separator}{value}")),
                false => self.push(Cow::Owned(other.to_owned()), text),
            }
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    /// The value of the attribute of this name.
    #[must_use]
    #[inline]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// Name and value of each, in document order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut begin = 0;
        self.names.iter().map(move |(name, end)| {
            let value = &self.values[begin..*end];
            begin = *end;
            (name.as_ref(), value)
        })
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The `capability` attribute, if its value is a known one.
    #[must_use]
    pub fn capability(&self) -> Option<Capability> {
        self.get("capability").and_then(Capability::from_name)
    }
}

impl fmt::Debug for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Serialize for Attributes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.len()))?;
        for (name, value) in self.iter() {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Attributes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> serde::de::Visitor<'de> for Pairs {
            type Value = Attributes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("attributes")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Attributes, A::Error> {
                let mut attributes = Attributes::default();
                while let Some((name, value)) = map.next_entry::<String, String>()? {
                    attributes.push(Cow::Owned(name), &value);
                }
                Ok(attributes)
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

/// An `rs:ln` element: its attributes, among them `rel` and `href`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Link(pub Attributes);

impl Link {
    /// The relation types, separated by blanks; empty where the Source gave none.
    #[must_use]
    pub fn rel(&self) -> &str {
        self.0.get("rel").unwrap_or_default()
    }

    /// Whether one of the relation types is this.
    #[must_use]
    pub fn is(&self, rel: &str) -> bool {
        relation::is_any(self.rel(), &[rel])
    }

    /// The target as written: it may be relative.
    #[must_use]
    pub fn href(&self) -> Option<&str> {
        self.0.get("href").map(str::trim).filter(|href| !href.is_empty())
    }

    /// The priority (core 7): lower is better, 999,999 where none is given.
    #[must_use]
    pub fn priority(&self) -> u32 {
        Self::priority_of(self.0.get("pri"))
    }

    /// The priority that the text of a `pri` gives.
    #[must_use]
    pub fn priority_of(pri: Option<&str>) -> u32 {
        pri.and_then(|pri| pri.trim().parse().ok()).unwrap_or(999_999)
    }
}

impl Serialize for Link {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// What a document says of itself: the root element and its own `rs:md` and `rs:ln`.
#[derive(Clone, Debug)]
pub struct Head {
    /// The root element.
    pub kind: Kind,
    /// The specification it follows.
    pub dialect: Dialect,
    /// The attributes of the root's `rs:md`.
    pub md: Attributes,
    /// The root's links.
    pub links: Vec<Link>,
}

impl Head {
    /// The document's capability, if it names a known one.
    #[must_use]
    pub fn capability(&self) -> Option<Capability> {
        self.md.capability()
    }

    /// The target of the first link with this relation.
    #[must_use]
    pub fn link(&self, rel: &str) -> Option<&str> {
        self.links.iter().find(|link| link.is(rel)).and_then(Link::href)
    }

    /// The document that lists the capabilities of its set: its Capability List, or, of that, the Source Description (core 8;
    /// `top` and, in an Atom feed, the relation of its own of the D-Lib article, 5).
    #[must_use]
    pub fn above(&self) -> Option<&str> {
        match self.dialect {
            Dialect::DLib2013 => {
                self.link("top").or_else(|| self.link("http://www.openarchives.org/rs/capabilitylist"))
            }
            _ => self.link("up"),
        }
    }

    /// The index that it is a part of (core 12.1; `up` of the D-Lib article, 5).
    #[must_use]
    pub fn index(&self) -> Option<&str> {
        self.link("index").or_else(|| if self.dialect == Dialect::DLib2013 { self.link("up") } else { None })
    }

    /// The document of the changes before those of this one (0.1, 6.1).
    #[must_use]
    pub fn before(&self) -> Option<&str> {
        if self.dialect == Dialect::V0_1 { self.link("prev") } else { None }
    }

    /// Whether `lastmod` is when a change happened (0.1, 5.1; D-Lib article, 5).
    #[must_use]
    pub fn changes_by_lastmod(&self) -> bool {
        matches!(self.dialect, Dialect::V0_1 | Dialect::DLib2013)
    }
}

/// The attributes that describe the bytes of a representation.
const OF_BYTES: [&str; 4] = ["hash", "length", "type", "encoding"];

/// A `url` or `sitemap` element.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Entry {
    /// The URI as written, without the blanks around it.
    pub loc: String,
    /// As written.
    pub lastmod: Option<String>,
    /// As written.
    pub changefreq: Option<String>,
    /// The attributes of its `rs:md`.
    pub md: Attributes,
    /// Its links, in document order.
    pub links: Vec<Link>,
    /// The line in which the element begins; not written where the entry is.
    #[serde(skip)]
    pub line: u64,
}

impl Entry {
    /// Whether `loc` begins with a scheme (RFC 3986, 3.1), as it should.
    #[must_use]
    pub fn is_absolute(&self) -> bool {
        is_absolute(&self.loc)
    }

    /// The entry with `loc`, and the `href` of each link, made absolute.
    #[must_use]
    pub fn resolved(mut self, base: &url::Url) -> Self {
        if !self.is_absolute()
            && let Ok(absolute) = base.join(&self.loc)
        {
            self.loc = absolute.into();
        }
        for link in &mut self.links {
            let Some(href) = link.href().filter(|href| !is_absolute(href)) else { continue };
            let Ok(absolute) = base.join(href) else { continue };
            let mut attributes = Attributes::default();
            for (name, value) in link.0.iter() {
                let value = if name == "href" { absolute.as_str() } else { value };
                attributes.push(Cow::Owned(name.to_owned()), value);
            }
            link.0 = attributes;
        }
        self
    }

    /// The entry without what it says of bytes, and of where in a package they are.
    #[must_use]
    pub fn without_bytes(mut self) -> Self {
        let mut md = Attributes::default();
        for (name, value) in self.md.iter().filter(|(name, _)| !OF_BYTES.contains(name) && *name != "path") {
            md.push(Cow::Owned(name.to_owned()), value);
        }
        self.md = md;
        self
    }

    /// The entry as if its resource were represented by the alternate of this media type alone (core 14.3), if it has one, that
    /// of the best `pri`: its length and hashes are those of the link, and `preferred` is where its bytes are.
    #[must_use]
    pub fn preferring(&self, media: &str) -> Option<Self> {
        let essence = |text: &str| text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let is_wanted =
            |link: &&Link| link.is("alternate") && link.0.get("type").is_some_and(|own| essence(own) == essence(media));
        let link = self.links.iter().filter(is_wanted).min_by_key(|link| link.priority())?;
        let mut md = Attributes::default();
        for (name, value) in self.md.iter().filter(|(name, _)| !OF_BYTES.contains(name) && *name != Self::PREFERRED) {
            md.push(Cow::Owned(name.to_owned()), value);
        }
        for (name, value) in link.0.iter().filter(|(name, _)| OF_BYTES.contains(name)) {
            md.push(Cow::Owned(name.to_owned()), value);
        }
        md.push(Cow::Borrowed(Self::PREFERRED), link.href()?);
        Some(Self { md, ..self.clone() })
    }

    /// The attribute that says where an alternate is that is taken for its resource.
    pub const PREFERRED: &str = "preferred";
}

/// Whether a reference begins with a scheme (RFC 3986, 3.1).
pub(super) fn is_absolute(reference: &str) -> bool {
    reference.split_once(':').is_some_and(|(scheme, _)| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
    })
}

impl Serialize for Entry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(5))?;
        map.serialize_entry("loc", &self.loc)?;
        map.serialize_entry("lastmod", &self.lastmod)?;
        map.serialize_entry("changefreq", &self.changefreq)?;
        map.serialize_entry("md", &self.md)?;
        map.serialize_entry("links", &self.links)?;
        map.end()
    }
}

/// What was tolerated, a line each. Bounded: a document with a fault in every entry is reported by
/// its first faults and their number.
#[derive(Clone, Debug, Default)]
pub struct Warnings {
    lines: Vec<String>,
    count: u64,
}

impl Warnings {
    const KEPT: usize = 100;

    /// Notes one thing tolerated in this line of the document (0: in the document as such).
    pub fn push(&mut self, line: u64, text: impl fmt::Display) {
        self.count += 1;
        if self.lines.len() < Self::KEPT {
            self.lines.push(match line {
                0 => text.to_string(),
                line => format!("line {line}: {text}"),
            });
        }
    }

    /// Adds those of `other` after these.
    pub fn append(&mut self, other: Self) {
        self.count += other.count;
        self.lines.extend(other.lines);
        self.lines.truncate(Self::KEPT);
    }

    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The first of them, and a last line that says how many more there were.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = self.lines.clone();
        let more = self.count - lines.len() as u64;
        if more > 0 {
            lines.push(format!("and {more} more warnings"));
        }
        lines
    }
}
