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
}

impl Capability {
    /// All of them.
    pub const ALL: [Self; 14] = [
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

    /// The capability of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|capability| capability.name() == name.trim())
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Attributes in document order, values normalised as XML asks and otherwise as written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes(pub(super) Vec<(Cow<'static, str>, String)>);

impl Attributes {
    /// The value of the attribute of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Name and value of each, in document order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), value.as_str()))
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The `capability` attribute, if its value is a known one.
    #[must_use]
    pub fn capability(&self) -> Option<Capability> {
        self.get("capability").and_then(Capability::from_name)
    }
}

impl Serialize for Attributes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
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
                let mut pairs = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, String>()? {
                    pairs.push((Cow::Owned(name), value));
                }
                Ok(Attributes(pairs))
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
        self.rel().split_ascii_whitespace().any(|one| one.eq_ignore_ascii_case(rel))
    }

    /// The target as written: it may be relative.
    #[must_use]
    pub fn href(&self) -> Option<&str> {
        self.0.get("href").map(str::trim).filter(|href| !href.is_empty())
    }

    /// The priority (core 7): lower is better, 999,999 where none is given.
    #[must_use]
    pub fn priority(&self) -> u32 {
        self.0.get("pri").and_then(|pri| pri.trim().parse().ok()).unwrap_or(999_999)
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
}

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
