//! A TimeMap as it comes, one link after the other.

use crate::source::{LinkValue, parse_link_header};

/// The longest link that is understood.
const LONGEST: usize = 64 << 10;

/// Cuts a stream of links in link format (RFC 6690) where one ends, and holds no more than one. It does
/// not matter how the stream comes in pieces.
#[derive(Debug, Default)]
pub struct Splitter {
    state: State,
    link: Vec<u8>,
    /// The last byte of the link that is not blank.
    last: u8,
    /// Links that were too long.
    pub lost: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Before the target of the next link.
    #[default]
    Between,
    Target,
    Parameters,
    Quoted(u8),
    Escaped(u8),
    /// In a link that is too long. It may have lost its closing quote, so a line or a comma before a
    /// target is taken for its end.
    Lost,
}

impl Splitter {
    /// Takes in more bytes, and gives the links that end in them.
    #[must_use]
    pub fn push(&mut self, bytes: &[u8]) -> Vec<LinkValue> {
        let mut links = Vec::new();
        for byte in bytes {
            links.extend(self.take(*byte));
        }
        links
    }

    /// At the end of the stream: its last link, and whether nothing of it was left open.
    #[must_use]
    pub fn finish(mut self) -> (Option<LinkValue>, bool) {
        let whole = matches!(self.state, State::Between | State::Parameters);
        (self.cut().filter(|_| whole), whole)
    }

    fn take(&mut self, byte: u8) -> Option<LinkValue> {
        let ended = match (self.state, byte) {
            // The comma is forgotten in the wild.
            (State::Parameters, b',' | b'<') => self.cut(),
            _ => None,
        };
        self.state = match (self.state, byte) {
            (State::Between | State::Parameters, b'<') => State::Target,
            (State::Between, _) | (State::Parameters, b',') => State::Between,
            (State::Target, b'>') => State::Parameters,
            (State::Parameters, b'"' | b'\'') if self.last == b'=' => State::Quoted(byte),
            (State::Quoted(quote), b'\\') => State::Escaped(quote),
            (State::Quoted(quote), _) if byte == quote => State::Parameters,
            (State::Escaped(quote), _) => State::Quoted(quote),
            (State::Lost, b'<') if matches!(self.last, b',' | b'\n') => State::Target,
            (state, _) => state,
        };
        match self.state {
            State::Between => self.last = 0,
            State::Lost if byte == b'\n' => self.last = byte,
            _ if !byte.is_ascii_whitespace() => self.last = byte,
            _ => {}
        }
        if !matches!(self.state, State::Between | State::Lost) {
            self.link.push(byte);
        }
        if self.link.len() > LONGEST {
            self.link.clear();
            self.lost += 1;
            self.state = State::Lost;
        }
        ended
    }

    fn cut(&mut self) -> Option<LinkValue> {
        let link = parse_link_header(&String::from_utf8_lossy(&self.link)).into_iter().next();
        self.link.clear();
        link
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(text: &[u8], piece: usize) -> (Vec<LinkValue>, usize, bool) {
        let mut splitter = Splitter::default();
        let mut links: Vec<_> = text.chunks(piece).flat_map(|piece| splitter.push(piece)).collect();
        let lost = splitter.lost;
        let (last, whole) = splitter.finish();
        links.extend(last);
        (links, lost, whole)
    }

    fn hrefs(text: &str) -> Vec<String> {
        split(text.as_bytes(), 7).0.into_iter().map(|link| link.href).collect()
    }

    #[test]
    fn links_end_where_they_end() {
        for (text, expected) in [
            ("<a>;rel=\"x, <y>\",<b,c>\n\n<d> ; rel = 'e, f'\n,\n <g>", &["a", "b,c", "d", "g"][..]),
            ("\u{feff}junk <a>", &["a"]),
            ("<a>;t=\"\\\",<b>\",<c>;t='\",<d>'", &["a", "c"]),
            ("<a>;t=it's,<b>", &["a", "b"]),
            (",,,", &[]),
            ("", &[]),
            ("<a>;rel=memento<b>;rel=memento", &["a", "b"]),
        ] {
            assert_eq!(hrefs(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_left_open_is_not_whole() {
        for (text, whole) in [("<a>", true), ("<a>,\n", true), ("<a>,<b", false), ("<a>,<b>;rel=\"x", false)] {
            let (links, _, found) = split(text.as_bytes(), 3);
            assert_eq!((links.len(), found), (1, whole), "{text}");
        }
    }

    #[test]
    fn a_link_too_long_is_lost_alone() {
        let long = "x".repeat(LONGEST);
        for text in [
            format!("<a>,<{long}>,\n<b>"),
            format!("<a>,<l>;t=\"{long}\"\n<b>"),
            format!("<a>,<l>;t=\"{long},\n <b>"),
            format!("<a>,<l>;t={long}, <b>"),
        ] {
            for piece in [1, 1000, 1 << 20] {
                let (links, lost, whole) = split(text.as_bytes(), piece);
                let hrefs: Vec<_> = links.iter().map(|link| link.href.as_str()).collect();
                assert!(hrefs == ["a", "b"] && lost == 1 && whole, "{hrefs:?} {lost} {whole}");
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_however_it_is_cut(
            written in prop::collection::vec(("[a-z/:?,;= '\"]{1,12}", "[a-zé ,;<>=']{0,12}", "[ \n\t]{0,3}"), 0..20),
            piece in 1_usize..40,
        ) {
            let text: Vec<_> = written
                .iter()
                .map(|(href, title, blank)| format!("{blank}<x{href}x>{blank};{blank}title{blank}={blank}\"{title}\"{blank};{blank}rel=memento{blank}"))
                .collect();
            let (links, lost, whole) = split(text.join(",").as_bytes(), piece);
            prop_assert!(lost == 0 && whole);
            let found: Vec<_> = links
                .iter()
                .map(|link| (link.href.as_str(), link.parameter("title"), link.is("memento")))
                .collect();
            let targets: Vec<_> = written.iter().map(|(href, ..)| format!("x{href}x")).collect();
            let expected: Vec<_> = written
                .iter()
                .zip(&targets)
                .map(|((_, title, _), target)| (target.as_str(), Some(title.as_str()), true))
                .collect();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn any_bytes_are_cut_the_same_however_they_come(
            bytes in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(b"<>;,=\"'\\\n x".to_vec())], 0..300),
            piece in 1_usize..300,
        ) {
            prop_assert_eq!(split(&bytes, piece), split(&bytes, 300));
        }
    }
}
