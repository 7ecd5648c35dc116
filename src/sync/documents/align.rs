//! Which changes without a time are known: one edition of a list is aligned with the next.
//!
//! A change without a time is told from others by its entry, and by how many of the same entry came before it in its list. A
//! list grows at its end, or is a window that slides: what the end of the edition before and the beginning of this one share is
//! known. A list that keeps the newest change of each resource loses entries in its middle: then each entry that the edition
//! before had as often is known. What follows the last known entry is new. A list of what is different from an earlier state
//! withdraws what has become as it was: an entry that older ones outlive, of a resource that it does not name any more.

use std::collections::{HashMap, HashSet};

/// How a list continues its edition before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sync) enum Continues {
    /// There was no edition, or this one cannot be compared with it.
    Unknown,
    /// They share entries.
    Known,
    /// They share no entry.
    Nothing,
}

/// Which entries of an edition are known.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::sync) struct Alignment {
    /// So many from its beginning are, without one between them that is not.
    pub(in crate::sync) done: u64,
    /// From here on, all are new.
    pub(in crate::sync) new_from: u64,
    pub(in crate::sync) continues: Continues,
    /// Whether an entry was withdrawn.
    pub(in crate::sync) withdrawn: bool,
}

/// The digest of an entry, from that of its URI and that of all of it: half of each.
pub(in crate::sync) fn digest(uri: [u8; 32], entry: [u8; 32]) -> u64 {
    let [a, b, c, d, ..] = uri;
    let [e, f, g, h, ..] = entry;
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// What of a digest is that of the URI.
fn resource(digest: u64) -> u64 {
    digest >> 32
}

/// Aligns the digests of the entries of two editions, each from the oldest change to the newest.
pub(in crate::sync) fn align(before: &[u64], now: &[u64]) -> Alignment {
    if before.is_empty() || now.is_empty() {
        return Alignment { done: 0, new_from: u64::MAX, continues: Continues::Unknown, withdrawn: false };
    }
    let overlap = overlap(before, now);
    let mut left: HashMap<u64, u64> = HashMap::new();
    for digest in before {
        *left.entry(*digest).or_default() += 1;
    }
    let is_known: Vec<bool> = now
        .iter()
        .map(|digest| match left.get_mut(digest) {
            Some(count) if *count > 0 => {
                *count -= 1;
                true
            }
            _ => false,
        })
        .collect();
    let known = is_known.iter().filter(|known| **known).count();
    if known == 0 {
        return Alignment { done: 0, new_from: u64::MAX, continues: Continues::Nothing, withdrawn: false };
    }
    let (done, new_from) = match overlap == known || overlap > 0 && is_window(before, now, overlap) {
        true => (overlap, overlap),
        false => {
            let first_unknown = is_known.iter().position(|known| !known).unwrap_or(now.len());
            let last_known = is_known.iter().rposition(|known| *known).map_or(0, |last| last + 1);
            (first_unknown, last_known)
        }
    };
    let withdrawn = is_any_withdrawn(before, now);
    Alignment { done: done as u64, new_from: new_from as u64, continues: Continues::Known, withdrawn }
}

/// Whether an entry has gone that came after one that is still there, of a resource that is not named any more.
fn is_any_withdrawn(before: &[u64], now: &[u64]) -> bool {
    let entries: HashSet<u64> = now.iter().copied().collect();
    let resources: HashSet<u64> = now.iter().copied().map(resource).collect();
    let mut rest = before.iter().skip_while(|digest| !entries.contains(digest));
    rest.any(|digest| !resources.contains(&resource(*digest)))
}

/// Whether the overlap alone is known, rather than all entries that the edition before had, too: where this edition is as long
/// as that, those that left it came again; or none that left it did.
fn is_window(before: &[u64], now: &[u64], overlap: usize) -> bool {
    let left = &before[..before.len() - overlap];
    now.len() >= before.len() || now[overlap..].iter().all(|digest| !left.contains(digest))
}

/// The length of the longest end of `before` that is a beginning of `now` (Knuth, Morris and Pratt).
pub(in crate::sync) fn overlap(before: &[u64], now: &[u64]) -> usize {
    let mut borders = vec![0; now.len()];
    let mut border = 0;
    for at in 1..now.len() {
        while border > 0 && now[at] != now[border] {
            border = borders[border - 1];
        }
        border += usize::from(now[at] == now[border]);
        borders[at] = border;
    }
    let mut matched = 0;
    for digest in before {
        while matched == now.len() || matched > 0 && *digest != now[matched] {
            matched = borders[matched - 1];
        }
        matched += usize::from(*digest == now[matched]);
    }
    matched
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letters(text: &str) -> Vec<u64> {
        // A letter is an entry, of the resource that is its small one.
        text.bytes().map(|byte| u64::from(byte.to_ascii_lowercase()) << 32 | u64::from(byte)).collect()
    }

    #[test]
    fn what_older_entries_outlive_is_withdrawn() {
        for (before, now, withdrawn) in [
            ("abc", "ac", true),
            ("abc", "ab", true),
            ("abc", "abcd", false),
            // It has changed again.
            ("abc", "acB", false),
            // A window that slides.
            ("abc", "bcd", false),
            ("abc", "c", false),
            ("abcd", "bd", true),
        ] {
            assert_eq!(align(&letters(before), &letters(now)).withdrawn, withdrawn, "{before} {now}");
        }
    }

    /// The entries of `now` that are not known, and those of them that are new.
    fn unknown(before: &str, now: &str) -> (String, String, Continues) {
        let Alignment { done, new_from, continues, .. } = align(&letters(before), &letters(now));
        let from = |place: u64| now.chars().skip(usize::try_from(place).unwrap_or(usize::MAX)).collect();
        (from(done), from(new_from), continues)
    }

    #[test]
    fn what_two_editions_share_is_known() {
        for (before, now, unknown_from, new) in [
            ("abc", "abcd", "d", "d"),
            ("abc", "bcd", "d", "d"),
            ("abc", "cde", "de", "de"),
            ("abc", "abc", "", ""),
            // The same entries once more.
            ("abab", "baba", "a", "a"),
            ("ab", "abab", "ab", "ab"),
            ("aaa", "aaaa", "a", "a"),
            // Of each resource the newest change alone.
            ("abc", "acB", "B", "B"),
            ("abcd", "bdAC", "AC", "AC"),
            // A list that begins earlier than the edition before, and one that has its entries in the order of their names.
            ("xyz", "abcxyzw", "abcxyzw", "w"),
            ("abd", "abcd", "cd", ""),
            // Fewer than before: the window has become smaller.
            ("abcdef", "ef", "", ""),
        ] {
            let expected = (unknown_from.to_owned(), new.to_owned(), Continues::Known);
            assert_eq!(unknown(before, now), expected, "{before} {now}");
        }
        assert_eq!(unknown("abc", "xyz"), ("xyz".to_owned(), String::new(), Continues::Nothing));
        assert_eq!(unknown("", "abc"), ("abc".to_owned(), String::new(), Continues::Unknown));
    }
}
