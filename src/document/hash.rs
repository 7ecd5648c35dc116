//! Fixity information (core 7, `hash`): several digests in one attribute.

use std::fmt::{self, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};

/// The hash algorithms that content is verified with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Algorithm {
    /// RFC 1321.
    Md5,
    /// FIPS 180.
    Sha1,
    /// FIPS 180.
    Sha256,
    /// FIPS 180.
    Sha512,
}

impl Algorithm {
    /// All of them, weakest first.
    pub const ALL: [Self; 4] = [Self::Md5, Self::Sha1, Self::Sha256, Self::Sha512];

    /// The token that core 7 puts before the digest.
    #[must_use]
    pub fn token(self) -> &'static str {
        match self {
            Self::Md5 => "md5",
            Self::Sha1 => "sha-1",
            Self::Sha256 => "sha-256",
            Self::Sha512 => "sha-512",
        }
    }

    /// The length of a digest in bytes.
    #[must_use]
    pub fn length(self) -> usize {
        match self {
            Self::Md5 => 16,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }

    fn from_token(token: &str) -> Option<Self> {
        let spellings: [(Self, &[&str]); 4] = [
            (Self::Md5, &["md5", "md-5"]),
            (Self::Sha1, &["sha-1", "sha1", "sha"]),
            (Self::Sha256, &["sha-256", "sha256"]),
            (Self::Sha512, &["sha-512", "sha512"]),
        ];
        let is = |spellings: &[&str]| spellings.iter().any(|spelling| token.eq_ignore_ascii_case(spelling));
        spellings.into_iter().find(|(_, spellings)| is(spellings)).map(|(algorithm, _)| algorithm)
    }
}

/// One digest.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Digest {
    algorithm: Algorithm,
    bytes: [u8; 64],
}

impl Digest {
    /// The digest of `algorithm` with these bytes; none if their number is not the algorithm's.
    #[must_use]
    pub fn new(algorithm: Algorithm, digest: &[u8]) -> Option<Self> {
        let mut bytes = [0; 64];
        if digest.len() != algorithm.length() {
            return None;
        }
        bytes[..digest.len()].copy_from_slice(digest);
        Some(Self { algorithm, bytes })
    }

    /// How it was made.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The digest itself.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.algorithm.length()]
    }
}

/// `md5:` and so on, then hexadecimal, as core 7 writes it.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.algorithm.token())?;
        f.write_char(':')?;
        self.bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The digests of one representation, at most one for each algorithm, in the order of [`Algorithm::ALL`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hashes(Vec<Digest>);

impl Hashes {
    /// Reads a `hash` attribute. Digests are hexadecimal, or base64 as some Sources write them.
    /// What cannot be used is passed over with a line in `complaints`.
    pub fn parse(value: &str, complaints: &mut Vec<String>) -> Self {
        let mut hashes = Self::default();
        let mut rest = value.trim_ascii_start();
        while !rest.is_empty() {
            if let Some((digest, after)) = canonical(rest) {
                hashes.insert(digest);
                rest = after.trim_ascii_start();
                continue;
            }
            let end = rest.find(|c: char| c.is_ascii_whitespace()).unwrap_or(rest.len());
            let item = &rest[..end];
            rest = rest[end..].trim_ascii_start();
            let Some((token, digest)) = item.split_once(':') else {
                complaints.push(format!("hash {item:?} names no algorithm; passed over"));
                continue;
            };
            let Some(algorithm) = Algorithm::from_token(token) else {
                complaints.push(format!("hash algorithm {token:?} is not known; passed over"));
                continue;
            };
            match decode(algorithm, digest) {
                Some((digest, hexadecimal)) => {
                    if !hexadecimal {
                        complaints.push(format!("hash {item:?} is base64, not hexadecimal"));
                    }
                    hashes.insert(digest);
                }
                None => complaints.push(format!(
                    "hash {item:?} is neither hexadecimal nor base64 of {} bytes; passed over",
                    algorithm.length()
                )),
            }
        }
        hashes
    }

    /// Adds a digest, unless there is one of its algorithm.
    pub fn insert(&mut self, digest: Digest) {
        let at = self.0.partition_point(|other| other.algorithm < digest.algorithm);
        if self.0.get(at).is_none_or(|other| other.algorithm != digest.algorithm) {
            self.0.insert(at, digest);
        }
    }

    /// The digest by this algorithm.
    #[must_use]
    pub fn get(&self, algorithm: Algorithm) -> Option<&Digest> {
        self.0.iter().find(|digest| digest.algorithm == algorithm)
    }

    /// The digest by the strongest algorithm there is.
    #[must_use]
    pub fn strongest(&self) -> Option<&Digest> {
        self.0.last()
    }

    /// Whether they can be of the same bytes as others: no algorithm says otherwise.
    #[must_use]
    pub fn agree(&self, others: &Self) -> bool {
        self.iter().all(|hash| others.get(hash.algorithm()).is_none_or(|other| other == hash))
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The digests, weakest algorithm first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Digest> {
        self.0.iter()
    }

    /// A compact form for storage: for each digest its algorithm's number and its bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.0.iter().map(|d| 1 + d.bytes().len()).sum());
        self.append_to(&mut out);
        out
    }

    /// Appends what [`Hashes::to_bytes`] gives.
    pub fn append_to(&self, out: &mut Vec<u8>) {
        for digest in &self.0 {
            out.push(digest.algorithm as u8);
            out.extend_from_slice(digest.bytes());
        }
    }

    /// Reads what [`Hashes::to_bytes`] wrote; stops at what it does not know.
    #[must_use]
    pub fn from_bytes(mut bytes: &[u8]) -> Self {
        let mut hashes = Self::default();
        while let Some((&number, rest)) = bytes.split_first() {
            let Some(algorithm) = Algorithm::ALL.get(usize::from(number)).copied() else { break };
            let Some(digest) = rest.get(..algorithm.length()).and_then(|d| Digest::new(algorithm, d)) else {
                break;
            };
            hashes.insert(digest);
            bytes = &rest[algorithm.length()..];
        }
        hashes
    }
}

/// The digests separated by blanks, as a `hash` attribute holds them.
impl fmt::Display for Hashes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, digest) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_char(' ')?;
            }
            write!(f, "{digest}")?;
        }
        Ok(())
    }
}

/// The digest that a text begins with, if it is spelled as core 7 has it, and what comes after it. Where it ends is
/// known from its algorithm, so nothing is searched: a list's are read in a third of the time.
fn canonical(text: &str) -> Option<(Digest, &str)> {
    let (algorithm, rest) = match text.as_bytes() {
        [b'm', b'd', b'5', b':', ..] => (Algorithm::Md5, &text[4..]),
        [b's', b'h', b'a', b'-', b'1', b':', ..] => (Algorithm::Sha1, &text[6..]),
        [b's', b'h', b'a', b'-', b'2', b'5', b'6', b':', ..] => (Algorithm::Sha256, &text[8..]),
        [b's', b'h', b'a', b'-', b'5', b'1', b'2', b':', ..] => (Algorithm::Sha512, &text[8..]),
        _ => return None,
    };
    let (digits, after) = rest.split_at_checked(2 * algorithm.length())?;
    let ends = after.is_empty() || after.starts_with(' ');
    ends.then(|| hexadecimal(digits.as_bytes())).flatten().map(|bytes| (Digest { algorithm, bytes }, after))
}

fn decode(algorithm: Algorithm, text: &str) -> Option<(Digest, bool)> {
    if text.len() == 2 * algorithm.length() {
        return Some((Digest { algorithm, bytes: hexadecimal(text.as_bytes())? }, true));
    }
    let bytes = STANDARD
        .decode(text)
        .or_else(|_| STANDARD_NO_PAD.decode(text))
        .or_else(|_| URL_SAFE_NO_PAD.decode(text))
        .ok()?;
    Some((Digest::new(algorithm, &bytes)?, false))
}

/// The bytes that at most 128 hexadecimal digits stand for. No step depends on a digit, so that the compiler takes
/// sixteen at a time.
fn hexadecimal(text: &[u8]) -> Option<[u8; 64]> {
    let mut nibbles = [0_u8; 128];
    let mut wrong = false;
    for (nibble, digit) in nibbles.iter_mut().zip(text) {
        let (number, letter) = (digit.wrapping_sub(b'0'), (digit | 0x20).wrapping_sub(b'a'));
        *nibble = if number < 10 { number } else { letter.wrapping_add(10) };
        wrong |= (number > 9) & (letter > 5);
    }
    let mut bytes = [0; 64];
    for (byte, pair) in bytes.iter_mut().zip(nibbles.chunks_exact(2)).take(text.len() / 2) {
        let pair = u16::from_le_bytes([pair[0], pair[1]]);
        *byte = (pair << 4 | pair >> 8).to_le_bytes()[0];
    }
    (!wrong).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_hashes_across_lines() {
        let mut complaints = Vec::new();
        let hashes = Hashes::parse(
            "md5:1e0d5cb8ef6ba40c99b14c0237be735e \n  sha-256:854f61290e2e197a11bc91063afce22e43f8ccc655237050ace766adc68dc784",
            &mut complaints,
        );
        assert!(complaints.is_empty());
        assert_eq!(hashes.iter().count(), 2);
        assert_eq!(hashes.strongest().map(Digest::algorithm), Some(Algorithm::Sha256));
        assert_eq!(Hashes::from_bytes(&hashes.to_bytes()), hashes);
        assert_eq!(Hashes::parse(&hashes.to_string(), &mut complaints), hashes);
    }

    #[test]
    fn hexadecimal_is_of_its_digits_alone() {
        for byte in 0..=255 {
            let expected = char::from(byte).to_digit(16).map(|value| value as u8);
            assert_eq!(hexadecimal(&[b'7', byte]).map(|bytes| bytes[0]), expected.map(|value| 0x70 | value), "{byte}");
            assert_eq!(
                hexadecimal(&[byte, b'7']).map(|bytes| bytes[0]),
                expected.map(|value| value << 4 | 7),
                "{byte}"
            );
            let mut long = [b'0'; 128];
            long[127] = byte;
            assert_eq!(hexadecimal(&long).map(|bytes| bytes[63]), expected, "{byte}");
        }
    }

    #[test]
    fn an_algorithm_has_many_spellings() {
        for (token, expected) in [
            ("md5", Some(Algorithm::Md5)),
            ("MD-5", Some(Algorithm::Md5)),
            ("Sha", Some(Algorithm::Sha1)),
            ("sha-1", Some(Algorithm::Sha1)),
            ("SHA1", Some(Algorithm::Sha1)),
            ("SHA-256", Some(Algorithm::Sha256)),
            ("sha256", Some(Algorithm::Sha256)),
            ("sHA512", Some(Algorithm::Sha512)),
            ("sha-512", Some(Algorithm::Sha512)),
            ("sha-384", None),
            ("", None),
            ("md\u{ff15}", None),
        ] {
            assert_eq!(Algorithm::from_token(token), expected, "{token}");
        }
    }

    #[test]
    fn where_a_digest_ends_is_where_its_item_does() {
        let md5 = "1e0d5cb8ef6ba40c99b14c0237be735e";
        for (text, digests, complaints) in [
            (format!("md5:{md5}"), 1, 0),
            (format!(" md5:{md5} "), 1, 0),
            (format!("md5:{md5}\tsha-1:{md5}01234567"), 2, 0),
            (format!("\u{c}md5:{md5}\r\nMD5:{md5}"), 1, 0),
            (format!("md5:{md5}sha-1:{md5}01234567"), 0, 1),
            (format!("md5:{md5}0"), 0, 1),
            (format!("md5:{md5}\u{a0}"), 0, 1),
            (format!("md5:{}é", &md5[1..]), 0, 1),
            (format!("md5:{}g", &md5[1..]), 0, 1),
            (format!("md5:{}\u{0}", &md5[1..]), 0, 1),
            (format!("md5::{md5}"), 0, 1),
            ("md5:".to_owned(), 0, 1),
            (" \n ".to_owned(), 0, 0),
            (String::new(), 0, 0),
        ] {
            let mut told = Vec::new();
            let hashes = Hashes::parse(&text, &mut told);
            assert_eq!((hashes.iter().count(), told.len()), (digests, complaints), "{text:?}: {told:?}");
        }
    }

    #[test]
    fn digests_are_kept_in_order_and_once() {
        let digest = |algorithm: Algorithm, byte| Digest::new(algorithm, &[byte; 64][..algorithm.length()]);
        let mut hashes = Hashes::default();
        for (algorithm, byte) in Algorithm::ALL.into_iter().rev().chain(Algorithm::ALL).zip(0..) {
            hashes.insert(digest(algorithm, byte).unwrap_or_else(|| panic!("{algorithm:?}")));
        }
        assert!(hashes.iter().map(Digest::algorithm).eq(Algorithm::ALL));
        assert!(hashes.iter().map(|digest| digest.bytes()[0]).eq([3, 2, 1, 0]));
    }

    #[test]
    fn base64_is_read_and_reported() {
        let mut complaints = Vec::new();
        let hashes = Hashes::parse("md5:1B2M2Y8AsgTpgAmY7PhCfg==", &mut complaints);
        assert_eq!(hashes.to_string(), "md5:d41d8cd98f00b204e9800998ecf8427e");
        assert_eq!(complaints.len(), 1);
    }

    #[test]
    fn what_is_no_hash_is_passed_over() {
        let mut complaints = Vec::new();
        let text =
            "md5:zz crc32:00 1e0d5cb8ef6ba40c99b14c0237be735e sha-256:f4OxZX_x_DFGFDgghgdfb6rtSx-iosjf6735432nklj";
        assert!(Hashes::parse(text, &mut complaints).is_empty());
        assert_eq!(complaints.len(), 4, "{complaints:?}");
    }
}
