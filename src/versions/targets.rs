//! What links lead to.

use url::Url;

use super::{Memento, time};
use crate::document::Datetime;
use crate::source::LinkValue;

/// The longest URL that is taken: none longer can be asked for, and a relative one can be far shorter.
const LONGEST: usize = 8 << 10;

/// The absolute URL of a target that HTTP can be asked for, without its fragment. User and password have no
/// place in one.
pub(super) fn resolve(base: &Url, href: &str) -> Option<Url> {
    let href = href.trim();
    let mut url = base.join(href).ok().filter(|_| !href.is_empty())?;
    url.set_fragment(None);
    let fit = url.username().is_empty() && url.password().is_none() && url.as_str().len() <= LONGEST;
    (fit && matches!(url.scheme(), "http" | "https")).then_some(url)
}

/// The URL of a page itself, as [`resolve`] gives it.
pub(super) fn itself(url: &Url) -> Url {
    let mut url = url.clone();
    url.set_fragment(None);
    url
}

/// Whether a link leads to what is in link format, as far as it says.
pub(super) fn is_link_format(link: &LinkValue) -> bool {
    link.parameter("type").is_none_or(names_link_format)
}

/// Whether a media type is that of TimeMaps.
pub(super) fn names_link_format(media_type: &str) -> bool {
    let name = media_type.split(';').next().unwrap_or_default();
    name.trim().eq_ignore_ascii_case("application/link-format")
}

/// When the memento was that a link leads to, if it leads to one and tells.
pub(super) fn datetime(link: &LinkValue) -> Option<Datetime> {
    link.parameter("datetime").filter(|_| link.is("memento")).and_then(time::read)
}

/// Puts mementos in order: by datetime, then by URL.
pub(super) fn sort(mementos: &mut [Memento]) {
    mementos.sort_by(|one, other| (one.datetime, &one.url).cmp(&(other.datetime, &other.url)));
}
