//! The coding `compress` (RFC 9110, 8.4.1.1): the format of the program of that name, LZW with codes of 9 to 16 bits.
//!
//! After three bytes (`1f 9d`, and a byte whose lower five bits are the longest code in bits, whose highest is set if the code 256
//! empties the table) follow codes, lowest bit first, in groups of eight. Where codes become longer, and where the table is emptied, what is
//! left of a group is without meaning.

use std::io::{self, Read};

/// The code that empties the table, in streams that have one.
const CLEAR: u16 = 256;
const SHORTEST: usize = 9;
const LONGEST: usize = 16;

/// Undoes the coding while it is read.
pub(super) struct Decoder<R> {
    source: R,
    /// The length of the longest code in bits.
    longest: usize,
    has_clear: bool,
    codes: Codes,
    /// What stands for each code from 256 on: the code of all but its last byte, and that byte.
    table: Vec<(u16, u8)>,
    /// The code before, and the first byte of what it stands for.
    before: Option<(u16, u8)>,
    /// What is decoded and not given out yet, last byte first.
    ready: Vec<u8>,
}

/// The group of codes that is read.
#[derive(Default)]
struct Codes {
    /// The length of a code in bits.
    width: usize,
    bytes: Vec<u8>,
    /// The bit at which the next code begins.
    at: usize,
}

fn corrupt(problem: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem.to_owned())
}

impl Codes {
    /// From here on, codes have this length, and a new group begins.
    fn restart(&mut self, width: usize) {
        *self = Self { width, ..Self::default() };
    }

    /// The next code; none at the end.
    fn next(&mut self, source: &mut impl Read) -> io::Result<Option<u16>> {
        if self.at + self.width > 8 * self.bytes.len() {
            // A group of eight codes is as many bytes long as a code has bits.
            self.bytes.clear();
            source.take(self.width as u64).read_to_end(&mut self.bytes)?;
            self.at = 0;
            if self.width > 8 * self.bytes.len() {
                return Ok(None);
            }
        }
        let bit = |at: usize| u16::from(self.bytes[at / 8] >> (at % 8) & 1);
        let code = (0..self.width).fold(0, |code, place| code | bit(self.at + place) << place);
        self.at += self.width;
        Ok(Some(code))
    }
}

impl<R: Read> Decoder<R> {
    /// Reads the first three bytes.
    ///
    /// # Errors
    /// If they are not those of the format.
    pub(super) fn new(mut source: R) -> io::Result<Self> {
        let mut start = Vec::new();
        source.by_ref().take(3).read_to_end(&mut start)?;
        let [0x1f, 0x9d, kind] = *start else {
            return Err(corrupt("it does not begin as the program compress writes"));
        };
        let longest = usize::from(kind & 0x1f);
        if kind & 0x60 != 0 || !(SHORTEST..=LONGEST).contains(&longest) {
            return Err(corrupt("its codes are of a kind that is not known"));
        }
        // The program makes codes longer once before it looks whether they may be.
        let longest = longest.max(SHORTEST + 1);
        let has_clear = kind & 0x80 != 0;
        let mut codes = Codes::default();
        codes.restart(SHORTEST);
        let mut decoder =
            Self { source, longest, has_clear, codes, table: Vec::new(), before: None, ready: Vec::new() };
        if has_clear {
            decoder.table.push((0, 0));
        }
        Ok(decoder)
    }

    /// How many codes mean something.
    fn known(&self) -> usize {
        256 + self.table.len()
    }

    /// Decodes one code. Returns false at the end.
    fn step(&mut self) -> io::Result<bool> {
        if self.known() >= 1 << self.codes.width && self.codes.width < self.longest {
            self.codes.restart(self.codes.width + 1);
        }
        let Some(code) = self.codes.next(&mut self.source)? else { return Ok(false) };
        if code == CLEAR && self.has_clear {
            // The next code adds what stands for 256, which no code can ask for.
            self.table.clear();
            self.codes.restart(SHORTEST);
            return Ok(true);
        }
        let Some((before, first_before)) = self.before else {
            let byte = u8::try_from(code).map_err(|_| corrupt("its first code stands for nothing"))?;
            self.before = Some((code, byte));
            self.ready.push(byte);
            return Ok(true);
        };
        let known = self.known();
        let mut at = code;
        if usize::from(code) >= known {
            if usize::from(code) > known {
                return Err(corrupt("a code stands for nothing"));
            }
            self.ready.push(first_before);
            at = before;
        }
        while let Some((prefix, byte)) = usize::from(at).checked_sub(256).and_then(|row| self.table.get(row)) {
            self.ready.push(*byte);
            at = *prefix;
        }
        let first = u8::try_from(at).map_err(|_| corrupt("a code stands for nothing"))?;
        self.ready.push(first);
        if known < 1 << self.longest {
            self.table.push((before, first));
        }
        self.before = Some((code, first));
        Ok(true)
    }
}

impl<R: Read> Read for Decoder<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.ready.is_empty() && !buffer.is_empty() {
            if !self.step()? {
                return Ok(0);
            }
        }
        let count = buffer.len().min(self.ready.len());
        let rest = self.ready.len() - count;
        for (place, byte) in buffer.iter_mut().zip(self.ready.drain(rest..).rev()) {
            *place = byte;
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use proptest::prelude::*;

    use super::*;

    /// Writes codes in groups of eight.
    struct Groups {
        out: Vec<u8>,
        group: Vec<(u16, usize)>,
    }

    impl Groups {
        fn put(&mut self, code: u16, width: usize) {
            self.group.push((code, width));
            if self.group.len() == 8 {
                self.flush(true);
            }
        }

        fn flush(&mut self, whole: bool) {
            let Some((_, width)) = self.group.first().copied() else { return };
            let mut bytes = vec![0_u8; width];
            for (number, (code, _)) in self.group.iter().enumerate() {
                for place in 0..width {
                    let at = number * width + place;
                    bytes[at / 8] |= u8::try_from(code >> place & 1).unwrap() << (at % 8);
                }
            }
            let used = (self.group.len() * width).div_ceil(8);
            self.out.extend(&bytes[..if whole { bytes.len() } else { used }]);
            self.group.clear();
        }
    }

    /// What `compress -b longest` would write, the table emptied whenever it is full.
    fn compress(text: &[u8], longest: usize) -> Vec<u8> {
        let mut groups = Groups { out: vec![0x1f, 0x9d, 0x80 | u8::try_from(longest).unwrap()], group: Vec::new() };
        let mut table: HashMap<(u16, u8), u16> = HashMap::new();
        let (mut next, mut width, mut prefix) = (257_u32, SHORTEST, None);
        for byte in text {
            let Some(so_far) = prefix else {
                prefix = Some(u16::from(*byte));
                continue;
            };
            if let Some(code) = table.get(&(so_far, *byte)) {
                prefix = Some(*code);
                continue;
            }
            groups.put(so_far, width);
            prefix = Some(u16::from(*byte));
            if next < 1 << longest {
                table.insert((so_far, *byte), u16::try_from(next).unwrap());
                next += 1;
                // The decoder is one entry behind.
                if next > 1 << width && width < longest {
                    groups.flush(true);
                    width += 1;
                }
            } else {
                groups.put(CLEAR, width);
                groups.flush(true);
                table.clear();
                (next, width) = (257, SHORTEST);
            }
        }
        prefix.into_iter().for_each(|code| groups.put(code, width));
        groups.flush(false);
        groups.out
    }

    fn decode(coded: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        Decoder::new(coded)?.read_to_end(&mut out)?;
        Ok(out)
    }

    /// What gzip, which reads the format, makes of it.
    fn by_gzip(coded: &[u8]) -> Vec<u8> {
        let mut gzip = Command::new("gzip")
            .arg("-dc")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("gzip is needed");
        let mut input = gzip.stdin.take().unwrap();
        let coded = coded.to_vec();
        let writing = std::thread::spawn(move || input.write_all(&coded));
        let out = gzip.wait_with_output().unwrap();
        writing.join().unwrap().unwrap();
        assert!(out.status.success(), "gzip refuses it");
        out.stdout
    }

    #[test]
    fn what_gzip_reads_is_read_the_same() {
        let words: String = (0..60_000_u32).map(|n| format!("{} ", n.wrapping_mul(2_654_435_761) % 9973)).collect();
        for (text, longest) in [("hello, hello, hello", 16), (words.as_str(), 16), (&words, 12), (&words, 10), ("", 16)]
        {
            let coded = compress(text.as_bytes(), longest);
            assert!(by_gzip(&coded) == text.as_bytes(), "the test's own coding, {longest} bits");
            assert!(decode(&coded).unwrap() == text.as_bytes(), "{longest} bits");
        }
    }

    #[test]
    fn what_is_no_such_stream_is_an_error() {
        for coded in [&b""[..], b"\x1f\x9d", b"\x1f\x8b\x90", b"\x1f\x9d\x88", b"\x1f\x9d\xf0", b"\x1f\x9d\x90\xff\xff"]
        {
            assert!(decode(coded).is_err(), "{coded:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_come_back(text in prop::collection::vec(0_u8..4, 0..5000), longest in SHORTEST + 1..=LONGEST) {
            prop_assert_eq!(decode(&compress(&text, longest)).unwrap(), text);
        }

        #[test]
        fn any_stream_ends(bytes in prop::collection::vec(any::<u8>(), 0..2000), longest in SHORTEST..=LONGEST) {
            let coded = [&[0x1f, 0x9d, 0x80 | u8::try_from(longest).unwrap()], bytes.as_slice()].concat();
            let _ = decode(&coded);
        }
    }
}
