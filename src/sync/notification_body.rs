//! What the bodies of notifications are good for (Change Notification 3; the draft 0.8, 4 and 5).

use std::time::Duration;

use crate::bounds::Bounds;
use crate::catalog::Reading;
use crate::document::{Capability, Datetime, Facts, Kind, Limits, Reader, Warnings};

/// An interval that ends so much later than now is a mistake.
const FUTURE: Duration = Duration::from_secs(26 * 3600);

/// What is read of a body: a notification is no larger where it came compressed.
fn limits(bounds: &Bounds) -> Limits {
    Limits { document: bounds.document.min(bounds.delivery), ..Limits::of(bounds) }
}

/// What a body is good for. `came` is our clock.
pub(super) fn read(capability: Capability, body: &[u8], came: Datetime, bounds: &Bounds) -> Reading {
    if capability == Capability::FrameworkNotification {
        return Reading::Ping;
    }
    changes_of(body, came, bounds).unwrap_or(Reading::Ping)
}

/// The changes that a body tells; none if it is not a document of changes that can be read to its end.
fn changes_of(body: &[u8], came: Datetime, bounds: &Bounds) -> Option<Reading> {
    let mut reader = Reader::open(body, "notification", limits(bounds)).ok()?;
    let head = reader.head().clone();
    let fits = matches!(head.capability(), None | Some(Capability::ChangeNotification | Capability::ChangeList));
    if !fits || head.kind != Kind::UrlSet {
        return None;
    }
    let mut warnings = Warnings::default();
    let about = Facts::of_attributes(&head.md, 0, &mut warnings);
    let (mut entries, mut dated) = (0_u64, true);
    let (mut first, mut last) = (Some(came), came);
    while let Some(entry) = reader.next().ok()? {
        let facts = Facts::of_entry(&entry, &mut warnings);
        facts.change?;
        entries += 1;
        dated &= facts.datetime.is_some();
        let moment = facts.datetime.or(facts.lastmod);
        first = first.zip(moment).map(|(first, moment)| first.min(moment));
        last = last.max(moment.unwrap_or(came));
    }
    let latest =
        Datetime::from_nanos(came.nanos().saturating_add(i64::try_from(FUTURE.as_nanos()).unwrap_or(i64::MAX)));
    match about.from.zip(about.until) {
        Some((from, until)) => (from <= until && until <= latest).then_some(Reading::Whole { from, until, dated }),
        // Without an interval, it is to tell of something at least.
        None => (entries > 0 && last <= latest).then_some(Reading::Loose {
            from: first.unwrap_or(came),
            until: last,
            dated: first.is_some(),
        }),
    }
}

/// What framework notifications name as changed, beside the changes that are looked at in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Announced {
    /// The Source Description or a Capability List.
    pub offers: bool,
    /// A Resource List or a Resource Dump.
    pub lists: bool,
    /// A Change List or a Change Dump: what is above it may lead elsewhere now.
    pub named: bool,
}

impl Announced {
    /// Reads a framework notification. What cannot be read may have said anything.
    pub(super) fn of(body: &[u8], bounds: &Bounds) -> Self {
        let mut announced = Self::default();
        let everything = Self { offers: true, lists: true, named: true };
        let Ok(mut reader) = Reader::open(body, "notification", limits(bounds)) else { return everything };
        loop {
            match reader.next() {
                Ok(None) if announced == Self::default() => return everything,
                Ok(None) => return announced,
                Err(_) => return everything,
                Ok(Some(entry)) => match entry.md.capability() {
                    Some(Capability::Description | Capability::CapabilityList) => announced.offers = true,
                    Some(Capability::ResourceList | Capability::ResourceDump) => announced.lists = true,
                    Some(Capability::ChangeList | Capability::ChangeDump) => announced.named = true,
                    Some(_) => {}
                    None => return everything,
                },
            }
        }
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self { offers: self.offers || other.offers, lists: self.lists || other.lists, named: self.named || other.named }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Datetime {
        Datetime::from_nanos(second * 1_000_000_000)
    }

    #[test]
    fn a_body_is_worth_what_it_says() {
        let document = |md: &str, entries: &str| {
            format!(
                "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" xmlns:rs=\"http://www.openarchives.org/rs/terms/\">\
                 <rs:md {md}/>{entries}</urlset>"
            )
        };
        let entry = |md: &str| {
            format!("<url><loc>http://example.com/a</loc><lastmod>2013-01-01T00:00:05Z</lastmod><rs:md {md}/></url>")
        };
        let own = "capability=\"change-notification\"";
        let interval = "from=\"2013-01-01T00:00:00Z\" until=\"2013-01-01T00:00:09Z\"";
        let dated = entry("change=\"updated\" datetime=\"2013-01-01T00:00:04Z\"");
        let start = 1_356_998_400;
        let read =
            |body: &str| read(Capability::ChangeNotification, body.as_bytes(), at(start + 100), &Bounds::default());
        let whole = |dated| Reading::Whole { from: at(start), until: at(start + 9), dated };
        for (what, body, expected) in [
            ("as the specification says", document(&format!("{own} {interval}"), &dated), whole(true)),
            ("nothing happened", document(&format!("{own} {interval}"), ""), whole(true)),
            (
                "a change without a time",
                document(&format!("{own} {interval}"), &entry("change=\"updated\"")),
                whole(false),
            ),
            (
                "the draft's",
                document("", &dated),
                Reading::Loose { from: at(start + 4), until: at(start + 100), dated: true },
            ),
            ("the draft's, of nothing", document("", ""), Reading::Ping),
            ("a change of no nature", document(&format!("{own} {interval}"), &entry("")), Reading::Ping),
            ("a Resource List", document("capability=\"resourcelist\"", &dated), Reading::Ping),
            ("broken off", document(&format!("{own} {interval}"), &dated).replace("</urlset>", ""), Reading::Ping),
            ("empty", String::new(), Reading::Ping),
            ("a page", "<html><body>503</body></html>".to_owned(), Reading::Ping),
            (
                "ends before it begins",
                document(&format!("{own} until=\"2012-01-01T00:00:00Z\" from=\"2013-01-01T00:00:00Z\""), &dated),
                Reading::Ping,
            ),
            (
                "in the far future",
                document(&format!("{own} from=\"2013-01-01T00:00:00Z\" until=\"2113-01-01T00:00:00Z\""), &dated),
                Reading::Ping,
            ),
        ] {
            assert_eq!(read(&body), expected, "{what}");
        }
    }

    #[test]
    fn framework_notifications_name_what_to_look_at() {
        let body = |capability: &str| {
            format!(
                "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" xmlns:rs=\"http://www.openarchives.org/rs/terms/\">\
                 <url><loc>http://example.com/a</loc><rs:md change=\"updated\" {capability}/></url></urlset>"
            )
        };
        let everything = Announced { offers: true, lists: true, named: true };
        for (capability, expected) in [
            ("capability=\"changelist\"", Announced { named: true, ..Announced::default() }),
            ("capability=\"resourcedump\"", Announced { lists: true, ..Announced::default() }),
            ("capability=\"capabilitylist\"", Announced { offers: true, ..Announced::default() }),
            ("capability=\"description\"", Announced { offers: true, ..Announced::default() }),
            ("", everything),
        ] {
            assert_eq!(Announced::of(body(capability).as_bytes(), &Bounds::default()), expected, "{capability}");
        }
        assert_eq!(Announced::of(b"what", &Bounds::default()), everything);
    }
}
