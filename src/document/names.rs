//! Namespaces and element names, with the spellings that the field uses for them.

use std::borrow::Cow;

/// A namespace as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Namespace {
    /// No namespace at all.
    None,
    /// Sitemaps.
    Sitemap,
    /// `http://www.openarchives.org/rs/terms/`.
    Terms,
    /// `http://www.openarchives.org/rs/`, of the D-Lib article.
    DLib,
    /// XHTML, which dialect 0.1 takes its links from.
    Xhtml,
    /// Atom, which the D-Lib article considers.
    Atom,
    /// Something else: passed over.
    Foreign,
}

/// The namespace of this name, and whether it is spelled as its specification has it.
pub(super) fn namespace(uri: &str) -> (Namespace, bool) {
    match uri {
        "http://www.sitemaps.org/schemas/sitemap/0.9" => return (Namespace::Sitemap, true),
        "http://www.openarchives.org/rs/terms/" => return (Namespace::Terms, true),
        "http://www.openarchives.org/rs/" => return (Namespace::DLib, true),
        "http://www.w3.org/1999/xhtml" => return (Namespace::Xhtml, true),
        "http://www.w3.org/2005/Atom" => return (Namespace::Atom, true),
        "" => return (Namespace::None, true),
        _ => {}
    }
    let plain = uri.trim().to_ascii_lowercase();
    let plain = plain.trim_start_matches("http://").trim_start_matches("https://");
    let plain = plain.trim_start_matches("www.").trim_end_matches('/');
    let namespace = match plain {
        "openarchives.org/rs/terms" => Namespace::Terms,
        "openarchives.org/rs" => Namespace::DLib,
        "google.com/schemas/sitemap/0.84" => Namespace::Sitemap,
        _ if plain.starts_with("sitemaps.org/schemas/sitemap") => Namespace::Sitemap,
        _ => Namespace::Foreign,
    };
    (namespace, namespace == Namespace::Foreign)
}

/// Gives a name as one that costs no allocation, if it is among these. Each is compared as a constant: a list of them
/// would be gone through by calls to `memcmp`.
macro_rules! known {
    ($name:expr, $($known:literal),+) => {
        match $name {
            $($known => Some($known),)+
            _ => None,
        }
    };
}

/// The name of an attribute; those of the specifications cost no allocation.
pub(super) fn attribute(name: &str) -> Cow<'static, str> {
    let known = known!(
        name,
        "hash",
        "length",
        "type",
        "path",
        "change",
        "datetime",
        "rel",
        "href",
        "modified",
        "pri",
        "at",
        "completed",
        "capability",
        "from",
        "until",
        "encoding",
        "etag",
        "hreflang",
        "media",
        "title",
        "content"
    );
    known.map_or_else(|| Cow::Owned(name.to_owned()), Cow::Borrowed)
}
