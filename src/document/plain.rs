//! What needs no second look: text and attributes in which nothing is written in another way than it is meant.
//!
//! Nearly all of a list is such, and what tells so takes sixteen bytes at a time. What it does not know it leaves to
//! the general way, which reads the plain ones alike: two ways, one result.

use super::names;
use super::record::Attributes;

/// Whether XML allows each character of the text, and it has no line end that is not a line feed.
pub(super) fn is_text(text: &str) -> bool {
    // U+FFFE and U+FFFF, which XML does not allow, begin with EF.
    !any(text, |byte| (byte < b' ') & (byte != b'\n') & (byte != b'\t') | (byte == 0xef))
}

/// The attributes of an element, given what follows its name: none unless each is ` name="value"`, none has the name
/// of another or a prefix (and so declares a namespace, or needs one that is declared), no value holds a character
/// that XML does not allow or reads as another, and there are no more than `most`.
pub(super) fn attributes(written: &str, most: usize) -> Option<Attributes> {
    if any(written, |byte| (byte < b' ') | (byte == b'<') | (byte == b'&') | (byte == 0xef)) {
        return None;
    }
    let mut attributes = Attributes::with_capacity(4, written.len());
    let mut rest = written;
    loop {
        let next = rest.trim_ascii_start();
        if next.is_empty() {
            return Some(attributes);
        }
        let equals = next.bytes().position(|byte| matches!(byte, b'=' | b' ' | b':'))?;
        let (name, value) = next.split_at(equals);
        let value = value.strip_prefix("=\"")?;
        let end = memchr::memchr(b'"', value.as_bytes())?;
        let plain = !name.is_empty() && !name.starts_with("xmlns") && next.len() < rest.len();
        if !plain || attributes.len() == most.min(SEARCHED) || attributes.iter().any(|(other, _)| other == name) {
            return None;
        }
        attributes.push(names::attribute(name), &value[..end]);
        rest = &value[end + 1..];
    }
}

/// To hold each name against all others is no way for many of them.
const SEARCHED: usize = 16;

/// Whether a byte is of a kind. It looks at all of them, as the compiler then takes sixteen in one step.
fn any(text: &str, kind: impl Fn(u8) -> bool) -> bool {
    text.bytes().fold(false, |found, byte| found | kind(byte))
}
