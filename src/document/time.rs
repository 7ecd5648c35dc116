//! W3C datetimes (core 7), in every precision and with every offset.

use std::fmt;
use std::time::Duration;

use jiff::{Timestamp, civil, tz};
use thiserror::Error;

/// A moment: nanoseconds since 1970-01-01T00:00:00Z, between the years 1678 and 2261.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Datetime(i64);

/// Why a text is no W3C datetime.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{0:?} is not a W3C datetime (YYYY-MM-DDThh:mm:ss[.s]Z is recommended)")]
pub struct NotADatetime(String);

/// What was forgiven while reading a datetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgiven {
    /// Nothing: the text is as the specification wants it.
    Nothing,
    /// A time of day without a zone, taken as UTC.
    NoZone,
    /// A spelling that is not W3C's: a blank for the `T`, lower case, an offset without its colon.
    Spelling,
}

impl Datetime {
    /// Before all others.
    pub const MIN: Self = Self(i64::MIN);
    /// After all others.
    pub const MAX: Self = Self(i64::MAX);
    /// 1970-01-01T00:00:00Z.
    pub const EPOCH: Self = Self(0);

    /// The moment that lies `nanos` nanoseconds after the epoch.
    #[must_use]
    pub fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the epoch.
    #[must_use]
    pub fn nanos(self) -> i64 {
        self.0
    }

    /// So many nanoseconds later, or the last time that there is.
    #[must_use]
    pub fn plus_nanos(self, nanos: i64) -> Self {
        Self(self.0.saturating_add(nanos))
    }

    /// Whether it lies more than so much after another.
    #[must_use]
    pub fn is_later_by(self, margin: Duration, other: Self) -> bool {
        u64::try_from(self.0.saturating_sub(other.0)).is_ok_and(|nanos| Duration::from_nanos(nanos) > margin)
    }

    /// Now, by the clock of this machine.
    #[must_use]
    pub fn now() -> Self {
        Self::from_timestamp(Timestamp::now()).unwrap_or(Self(0))
    }

    /// A time of the system's clock.
    #[must_use]
    pub fn from_system(time: std::time::SystemTime) -> Self {
        Timestamp::try_from(time).ok().and_then(Self::from_timestamp).unwrap_or(Self(0))
    }

    fn from_timestamp(timestamp: Timestamp) -> Option<Self> {
        i64::try_from(timestamp.as_nanosecond()).ok().map(Self)
    }

    /// Reads a W3C datetime. What is left out of a date or a time is its beginning: `2013` is the
    /// first moment of that year.
    ///
    /// # Errors
    /// If the text is none, or names a day or an hour that does not exist.
    pub fn parse(text: &str) -> Result<(Self, Forgiven), NotADatetime> {
        if let Some(moment) = canonical(text.as_bytes()) {
            return Ok((moment, Forgiven::Nothing));
        }
        let text = text.trim();
        read(text.as_bytes()).ok_or_else(|| NotADatetime(text.chars().take(40).collect()))
    }

    /// Reads a moment in any spelling that names one: a W3C datetime, basic ISO 8601 (`20130102T180000.25Z`), or
    /// the 14 digits of a memento (RFC 7089 archives write `20130102180000`), or the first 8 or 12 of them.
    ///
    /// # Errors
    /// If the text is none of these, or names a day or an hour that does not exist.
    pub fn parse_spelled(text: &str) -> Result<Self, NotADatetime> {
        let number = text.strip_suffix('Z').unwrap_or(text);
        let (whole, fraction) = number.split_once('.').map_or((number, None), |(whole, rest)| (whole, Some(rest)));
        let digits = match whole.split_once('T') {
            Some((date, time)) if date.len() == 8 && matches!(time.len(), 4 | 6) => format!("{date}{time}"),
            None if matches!(whole.len(), 8 | 12 | 14) => whole.to_owned(),
            _ => String::new(),
        };
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Self::parse(text).map(|(moment, _)| moment);
        }
        let part = |at: usize| digits.get(at..at + 2).unwrap_or("00");
        let fraction = fraction.map(|digits| format!(".{digits}")).unwrap_or_default();
        let (year, month, day) = (&digits[..4], part(4), part(6));
        let spelled = format!("{year}-{month}-{day}T{}:{}:{}{fraction}Z", part(8), part(10), part(12));
        Self::parse(&spelled).map(|(moment, _)| moment)
    }

    /// Whether [`fmt::Display`] writes the moment as this text.
    #[must_use]
    pub fn is_written(self, text: &str) -> bool {
        canonical(text.as_bytes()).map_or_else(|| self.to_string() == text, |moment| moment == self)
    }

    /// Basic ISO 8601 in UTC: `20130102T180000Z`; with as many digits of a second as are needed, if `fraction`
    /// says so.
    #[must_use]
    pub fn basic(self, fraction: bool) -> String {
        let shown = if fraction { self } else { Self(self.0 - self.0.rem_euclid(SECOND)) };
        shown.to_string().replace(['-', ':'], "")
    }

    /// The second that the moment lies in.
    #[must_use]
    pub fn second(self) -> i64 {
        self.0.div_euclid(SECOND)
    }
}

/// In nanoseconds.
const SECOND: i64 = 1_000_000_000;

/// RFC 3339 in UTC, with as many digits of a second as are needed.
impl fmt::Display for Datetime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Timestamp::from_nanosecond(i128::from(self.0)) {
            Ok(timestamp) => write!(f, "{timestamp}"),
            Err(_) => write!(f, "{}ns", self.0),
        }
    }
}

/// Reads `YYYY-MM-DDThh:mm:ssZ`, the form that [`fmt::Display`] gives to every moment of a whole second. Lists have
/// hardly any other, and this needs no calendar. What is none of these is for [`read`] to decide.
fn canonical(text: &[u8]) -> Option<Datetime> {
    let text: &[u8; 20] = text.try_into().ok()?;
    if [text[4], text[7], text[10], text[13], text[16], text[19]] != *b"--T::Z" {
        return None;
    }
    let mut wrong = false;
    let mut two = |at: usize| {
        let (tens, ones) = (text[at].wrapping_sub(b'0'), text[at + 1].wrapping_sub(b'0'));
        wrong |= tens > 9 || ones > 9;
        i64::from(tens) * 10 + i64::from(ones)
    };
    let (year, month, day) = (two(0) * 100 + two(2), two(5), two(8));
    let (hour, minute, second) = (two(11), two(14), two(17));
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    let exists = (1..=12).contains(&month) && (1..=days).contains(&day) && hour < 24 && minute < 60 && second < 60;
    // All moments of the years between the first and the last, which are not whole, can be told in nanoseconds.
    if wrong || !exists || !(1678..=2261).contains(&year) {
        return None;
    }
    // A year that begins in March has its odd day at its end.
    let (year, month) = if month < 3 { (year - 1, month + 9) } else { (year, month - 3) };
    let day = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468;
    Some(Datetime((((day * 24 + hour) * 60 + minute) * 60 + second) * SECOND))
}

fn digits(bytes: &[u8], at: usize, count: usize) -> Option<i16> {
    let mut value = 0;
    for byte in bytes.get(at..at + count)? {
        if !byte.is_ascii_digit() {
            return None;
        }
        value = value * 10 + i16::from(byte - b'0');
    }
    Some(value)
}

fn read(bytes: &[u8]) -> Option<(Datetime, Forgiven)> {
    let year = digits(bytes, 0, 4)?;
    let (mut month, mut day) = (1, 1);
    let mut at = 4;
    if bytes.get(at) == Some(&b'-') {
        month = digits(bytes, at + 1, 2)?;
        at += 3;
        if bytes.get(at) == Some(&b'-') {
            day = digits(bytes, at + 1, 2)?;
            at += 3;
        }
    }
    let date = civil::Date::new(year, i8::try_from(month).ok()?, i8::try_from(day).ok()?).ok()?;
    let mut forgiven = Forgiven::Nothing;
    let rest = &bytes[at..];
    let (time, offset) = match rest.first() {
        None => (civil::Time::midnight(), 0),
        Some(b'T' | b't' | b' ') if at == 10 => {
            if rest[0] != b'T' {
                forgiven = Forgiven::Spelling;
            }
            clock(&rest[1..], &mut forgiven)?
        }
        Some(_) => return None,
    };
    let local = tz::Offset::UTC.to_timestamp(civil::DateTime::from_parts(date, time)).ok()?;
    let moment = Datetime::from_timestamp(local)?.0.checked_sub(offset * 1_000_000_000)?;
    Some((Datetime(moment), forgiven))
}

/// `hh:mm[:ss[.s]]` and the zone: the time of day, and the offset from UTC in seconds.
fn clock(bytes: &[u8], forgiven: &mut Forgiven) -> Option<(civil::Time, i64)> {
    let hour = digits(bytes, 0, 2)?;
    if bytes.get(2) != Some(&b':') {
        return None;
    }
    let minute = digits(bytes, 3, 2)?;
    let (mut second, mut nanos, mut at) = (0, 0_i32, 5);
    if bytes.get(at) == Some(&b':') {
        second = digits(bytes, at + 1, 2)?;
        at += 3;
        if matches!(bytes.get(at), Some(b'.' | b',')) {
            if bytes[at] == b',' {
                *forgiven = Forgiven::Spelling;
            }
            let fraction = bytes[at + 1..].iter().take_while(|b| b.is_ascii_digit()).count();
            if fraction == 0 {
                return None;
            }
            for place in 0..9 {
                let digit = if place < fraction { bytes[at + 1 + place] - b'0' } else { 0 };
                nanos = nanos * 10 + i32::from(digit);
            }
            at += 1 + fraction;
        }
    }
    // A leap second has no place of its own in POSIX time.
    let second = if second == 60 { 59 } else { second };
    let time =
        civil::Time::new(i8::try_from(hour).ok()?, i8::try_from(minute).ok()?, i8::try_from(second).ok()?, nanos)
            .ok()?;
    Some((time, zone(&bytes[at..], forgiven)?))
}

fn zone(bytes: &[u8], forgiven: &mut Forgiven) -> Option<i64> {
    let sign = match bytes.first() {
        None => {
            *forgiven = Forgiven::NoZone;
            return Some(0);
        }
        Some(b'Z') if bytes.len() == 1 => return Some(0),
        Some(b'z') if bytes.len() == 1 => {
            *forgiven = Forgiven::Spelling;
            return Some(0);
        }
        Some(b'+') => 1,
        Some(b'-') => -1,
        Some(_) => return None,
    };
    let hours = digits(bytes, 1, 2)?;
    let minutes = match bytes.len() {
        6 if bytes[3] == b':' => digits(bytes, 4, 2)?,
        5 => digits(bytes, 3, 2)?,
        3 => 0,
        _ => return None,
    };
    if bytes.len() != 6 {
        *forgiven = Forgiven::Spelling;
    }
    (hours <= 23 && minutes <= 59).then(|| sign * (i64::from(hours) * 3600 + i64::from(minutes) * 60))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_canonical_form_reads_as_any_other_does(
            date in (1670..2270_u32, 0..14_u32, 0..33_u32),
            time in (0..26_u32, 0..62_u32, 0..62_u32),
            odd in prop::option::of((0..20_usize, any::<char>())),
            before in "[ \n\u{a0}]?",
        ) {
            let mut text: Vec<char> =
                format!("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", date.0, date.1, date.2, time.0, time.1, time.2)
                    .chars()
                    .collect();
            if let Some((at, character)) = odd {
                text[at] = character;
            }
            let text: String = text.into_iter().collect();
            let slow = read(text.trim().as_bytes());
            if let Some(moment) = canonical(text.as_bytes()) {
                prop_assert_eq!(slow, Some((moment, Forgiven::Nothing)));
                prop_assert_eq!(moment.to_string(), text.clone());
            }
            let padded = format!("{before}{text}");
            prop_assert_eq!(Datetime::parse(&padded).ok(), slow);
            if let Some((moment, _)) = slow {
                prop_assert_eq!(moment.is_written(&padded), moment.to_string() == padded);
                prop_assert!(!Datetime(moment.0 + 1).is_written(&text));
            }
        }
    }

    #[test]
    fn every_day_has_the_canonical_form() {
        let mut day = civil::date(1678, 1, 1);
        while day.year() < 2262 {
            let text = format!("{day}T23:59:59Z");
            assert_eq!(canonical(text.as_bytes()), read(text.as_bytes()).map(|(moment, _)| moment), "{text}");
            assert!(canonical(text.as_bytes()).is_some_and(|moment| moment.to_string() == text), "{text}");
            day = day.tomorrow().unwrap_or_else(|error| panic!("{error}"));
        }
    }

    #[test]
    fn every_precision_and_offset() {
        for (text, expected, forgiven) in [
            ("2013", "2013-01-01T00:00:00Z", Forgiven::Nothing),
            ("2013-02", "2013-02-01T00:00:00Z", Forgiven::Nothing),
            ("2013-02-03", "2013-02-03T00:00:00Z", Forgiven::Nothing),
            ("2013-02-03T04:05Z", "2013-02-03T04:05:00Z", Forgiven::Nothing),
            ("2013-02-03T04:05:06Z", "2013-02-03T04:05:06Z", Forgiven::Nothing),
            ("2013-02-03T04:05:06.7Z", "2013-02-03T04:05:06.7Z", Forgiven::Nothing),
            ("2013-02-03T04:05:06.123456789Z", "2013-02-03T04:05:06.123456789Z", Forgiven::Nothing),
            ("2013-02-03T04:05:06.1234567891234Z", "2013-02-03T04:05:06.123456789Z", Forgiven::Nothing),
            ("2013-02-03T04:05:06+01:00", "2013-02-03T03:05:06Z", Forgiven::Nothing),
            ("2013-02-03T04:05:06-05:30", "2013-02-03T09:35:06Z", Forgiven::Nothing),
            ("2013-02-03T04:05-05:30", "2013-02-03T09:35:00Z", Forgiven::Nothing),
            ("2013-02-03T04:05:06", "2013-02-03T04:05:06Z", Forgiven::NoZone),
            ("2013-02-03 04:05:06Z", "2013-02-03T04:05:06Z", Forgiven::Spelling),
            ("2013-02-03t04:05:06z", "2013-02-03T04:05:06Z", Forgiven::Spelling),
            ("2013-02-03T04:05:06+0100", "2013-02-03T03:05:06Z", Forgiven::Spelling),
            ("2012-06-30T23:59:60Z", "2012-06-30T23:59:59Z", Forgiven::Nothing),
            (" 2013-02-03\n", "2013-02-03T00:00:00Z", Forgiven::Nothing),
        ] {
            let (moment, how) = Datetime::parse(text).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!((moment.to_string().as_str(), how), (expected, forgiven), "{text}");
        }
    }

    #[test]
    fn what_is_none_is_refused() {
        for text in [
            "",
            "x",
            "13",
            "2013-13-01",
            "2013-02-30",
            "2013-02-03T",
            "2013-02-03T25:00Z",
            "2013-02-03T04:05:06.Z",
            "2013T04:05Z",
            "2013-02-03T04:05:06+25:00",
            "2013-02-03X",
            "2013-02-03T04:05:06ZZ",
            "yesterday",
            "0001-01-01",
            "9999-12-31",
        ] {
            assert!(Datetime::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_moment_has_many_spellings() {
        for text in [
            "2013-01-02T18:00:00Z",
            "2013-01-02T19:00:00+01:00",
            "20130102T180000Z",
            "20130102T180000",
            "20130102T1800Z",
            "20130102180000",
            "201301021800",
            "20130102T180000.000Z",
            "2013-01-02T18:00Z",
        ] {
            let moment = Datetime::parse_spelled(text).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(moment.basic(true), "20130102T180000Z", "{text}");
        }
        let moment = Datetime::parse_spelled("20130102T180000.25Z").unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(
            (moment.basic(true).as_str(), moment.basic(false).as_str()),
            ("20130102T180000.25Z", "20130102T180000Z")
        );
        assert_eq!(Datetime::parse_spelled("20130102"), Datetime::parse_spelled("2013-01-02"));
        let early = Datetime::parse_spelled("1969-12-31T23:59:59.5Z").unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((early.basic(false).as_str(), early.second()), ("19691231T235959Z", -1));
        for text in [
            "",
            "T",
            "2013T",
            "20131302",
            "20130102T250000Z",
            "20130102T180000.Z",
            "201301",
            "20130102T18000a",
            "+2013",
            "2013010218000\u{660}",
        ] {
            assert!(Datetime::parse_spelled(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_written_form_reads_back() {
        let (moment, _) = Datetime::parse("2013-02-03T04:05:06.070Z").unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(moment.to_string(), "2013-02-03T04:05:06.07Z");
        assert_eq!(Datetime::parse(&moment.to_string()), Ok((moment, Forgiven::Nothing)));
    }
}
