//! Where archives that rewrite pages keep their bytes.

/// Where an archive that rewrites what it serves has the bytes as they were captured, if the URL of a
/// memento shows the pattern of such archives (Wayback, pywb, OpenWayback): a segment of 14 digits, perhaps
/// with a modifier, before the URL of the original. `None` if it does not, or names the bytes already.
#[must_use]
pub fn original_bytes(url: &str) -> Option<String> {
    let scheme = absolute(url)?;
    // A query of the archive's own is no path; one of the original follows the segment.
    let end = url.find(['?', '#']).unwrap_or(url.len());
    let mut at = scheme + url[scheme..end].find('/')? + 1;
    while let Some(length) = url[at..end].find('/') {
        let (segment, original) = (&url[at..at + length], &url[at + length + 1..]);
        if let Some(modifier) = modifier(segment).filter(|_| absolute(original).is_some()) {
            let digits = &segment[..DIGITS];
            return (modifier != "id_").then(|| format!("{}{digits}id_/{original}", &url[..at]));
        }
        at += length + 1;
    }
    None
}

/// The digits of a moment to the second.
const DIGITS: usize = 14;

/// What follows the digits of a segment that is a moment: nothing, or letters and `_`.
fn modifier(segment: &str) -> Option<&str> {
    let (digits, modifier) = segment.split_at_checked(DIGITS)?;
    let letters = modifier.strip_suffix('_').unwrap_or(modifier);
    let fits = modifier.is_empty() || modifier.ends_with('_') && !letters.is_empty();
    let known = letters.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    (fits && known && digits.bytes().all(|byte| byte.is_ascii_digit())).then_some(modifier)
}

/// The length of the scheme and the slashes before a host. Servers on the way make one slash of two.
fn absolute(url: &str) -> Option<usize> {
    let (scheme, rest) = url.split_once(":/")?;
    let known = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    let host = rest.strip_prefix('/').unwrap_or(rest);
    (known && host.starts_with(|first: char| !matches!(first, '/' | '?' | '#'))).then(|| url.len() - host.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_pattern_of_rewriting_archives() {
        for (url, bytes) in [
            ("http://a/rs/20130103090000/http://e.com/r", Some("http://a/rs/20130103090000id_/http://e.com/r")),
            ("https://a/web/20130103090000mp_/https://e.com/", Some("https://a/web/20130103090000id_/https://e.com/")),
            ("http://a/20130103090000if_/http://e.com/r", Some("http://a/20130103090000id_/http://e.com/r")),
            ("http://a/20130103090000js_/http:/e.com/r?x=/", Some("http://a/20130103090000id_/http:/e.com/r?x=/")),
            ("http://a/20130103090000/HTTP://e.com?q", Some("http://a/20130103090000id_/HTTP://e.com?q")),
            (
                "http://a/20130103090000/http://b/20140103090000/http://c/",
                Some("http://a/20130103090000id_/http://b/20140103090000/http://c/"),
            ),
            (
                "http://a/20130103070000/x/20140103090000im_/http://c",
                Some("http://a/20130103070000/x/20140103090000id_/http://c"),
            ),
            ("http://a/rs/20130103090000id_/http://e.com/r", None),
            ("http://a/20130103070000/res1", None),
            ("http://a/view?u=/20130103090000/http://e.com/r", None),
            ("http://a/view#/20130103090000/http://e.com/r", None),
            ("http://a?/20130103090000/http://e.com/r", None),
            ("http://20130103090000/http://e.com/r", None),
            ("http://a/2013010309000/http://e.com/r", None),
            ("http://a/201301030900000/http://e.com/r", None),
            ("http://a/20130103090000mp/http://e.com/r", None),
            ("http://a/20130103090000_/http://e.com/r", None),
            ("http://a/20130103090000m%70_/http://e.com/r", None),
            ("http://a/20130103090000/ftp://e.com/r", None),
            ("http://a/20130103090000/http://", None),
            ("http://a/20130103090000/?http://e.com", None),
            ("ftp://a/20130103090000/http://e.com/r", None),
            ("/20130103090000/http://e.com/r", None),
            ("http://é/2013010309000é/http://e.com/r", None),
            ("", None),
        ] {
            assert_eq!(original_bytes(url).as_deref(), bytes, "{url}");
        }
    }

    proptest! {
        #[test]
        fn once_is_enough(url in "https?://a/([0-9]{13,15}|[a-z_]{0,3}|/|http:/|é|\\?){0,12}") {
            if let Some(bytes) = original_bytes(&url) {
                prop_assert!(bytes.contains("id_/http:/"));
                prop_assert_eq!(original_bytes(&bytes), None);
            }
        }

        #[test]
        fn nothing_panics(url in "(http://)?\\PC*") {
            let _ = original_bytes(&url);
        }
    }
}
