//! Datetimes in HTTP.

use std::time::{Duration, SystemTime};

use reqwest::header::HeaderMap;

use crate::document::Datetime;

const SECOND: i64 = 1_000_000_000;

/// A moment as `Accept-Datetime` wants it (RFC 7089, 2.1.1): in whole seconds, rounded down. There is no
/// form for moments before 1970: for them it is the first second of that year.
#[must_use]
pub fn http_date(moment: Datetime) -> String {
    let seconds = u64::try_from(moment.nanos().div_euclid(SECOND)).unwrap_or(0);
    httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

/// The `Memento-Datetime` of an answer.
#[must_use]
pub fn memento_datetime(headers: &HeaderMap) -> Option<Datetime> {
    read(headers.get("memento-datetime")?.to_str().ok()?)
}

/// Reads a datetime in a form of HTTP (RFC 9110, 5.6.7), or of mail, whose zones and short days are met in
/// TimeMaps.
pub(super) fn read(text: &str) -> Option<Datetime> {
    let text = text.trim();
    let nanos = match httpdate::parse_http_date(text) {
        Ok(time) => i128::try_from(time.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_nanos()).ok()?,
        Err(_) => jiff::fmt::rfc2822::parse(text).ok()?.timestamp().as_nanosecond(),
    };
    i64::try_from(nanos).ok().map(Datetime::from_nanos)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> Datetime {
        Datetime::parse(text).unwrap().0
    }

    #[test]
    fn a_date_is_rounded_down_and_never_out_of_range() {
        for (moment, date) in [
            (at("2013-01-03T09:00:00Z"), "Thu, 03 Jan 2013 09:00:00 GMT"),
            (at("2013-01-03T09:00:00.999999999Z"), "Thu, 03 Jan 2013 09:00:00 GMT"),
            (at("1969-12-31T23:59:59.5Z"), "Thu, 01 Jan 1970 00:00:00 GMT"),
            (Datetime::from_nanos(i64::MIN), "Thu, 01 Jan 1970 00:00:00 GMT"),
            (Datetime::from_nanos(i64::MAX), "Fri, 11 Apr 2262 23:47:16 GMT"),
        ] {
            assert_eq!(http_date(moment), date);
        }
    }

    #[test]
    fn datetimes_of_the_wild() {
        for (text, moment) in [
            ("Thu, 03 Jan 2013 09:00:00 GMT", Some("2013-01-03T09:00:00Z")),
            (" Thu, 03 Jan 2013 09:00:00 GMT\n", Some("2013-01-03T09:00:00Z")),
            ("Thursday, 03-Jan-13 09:00:00 GMT", Some("2013-01-03T09:00:00Z")),
            ("Thu, 3 Jan 2013 09:00:00 GMT", Some("2013-01-03T09:00:00Z")),
            ("Thu, 03 Jan 2013 10:00:00 +0100", Some("2013-01-03T09:00:00Z")),
            ("Fri, 31 Dec 9999 23:59:59 GMT", None),
            ("Thu, 32 Jan 2013 09:00:00 GMT", None),
            ("2013-01-03T09:00:00Z", None),
            ("yesterday", None),
            ("", None),
        ] {
            assert_eq!(read(text), moment.map(at), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(nanos in any::<i64>()) {
            let moment = Datetime::from_nanos(nanos);
            let back = read(&http_date(moment)).unwrap();
            prop_assert_eq!(back.nanos(), nanos.max(0) / SECOND * SECOND);
        }

        #[test]
        fn nothing_panics(text in "\\PC*") {
            let _ = read(&text);
        }
    }
}
