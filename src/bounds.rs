//! How much of anything is taken from a Source.
//!
//! **Owns** the table of bounds: for each its option, what holds without it, its least and its greatest value, its unit, and
//! what it is of. The struct of values, the parser of `limit_NAME=`, help, the man page and the README are made from it, or
//! held to it.
//!
//! **Assumes** nothing of what comes: a Source may send documents without end, heads without end, and bombs.
//!
//! **Promises** that a value of [`Bounds`] is within what the table says, if it was made by [`Bounds::set`]; that what
//! is beyond a bound is said in the name of its option, so that who means it knows what to raise.
//!
//! **Never knows** what is counted, nor where: each room that takes something from a Source is given the bounds, and
//! holds it to them. They are plain numbers, and every room may use them.

use std::fmt;
use std::num::NonZeroUsize;
use std::time::Duration;

/// What a bound counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things.
    Count,
    /// Bytes: K, M, G and T are powers of 1024.
    Bytes,
    /// Seconds.
    Seconds,
}

impl Unit {
    /// As people read of it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Bytes => "bytes",
            Self::Seconds => "seconds",
        }
    }

    /// A number of these, as the option takes it: the shortest that is exact.
    #[must_use]
    pub fn show(self, value: u64) -> String {
        if value == NONE {
            return "none".to_owned();
        }
        let units = [(1 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];
        match units.into_iter().find(|(size, _)| self == Self::Bytes && value > 0 && value.is_multiple_of(*size)) {
            Some((size, letter)) => format!("{}{letter}", value / size),
            None => value.to_string(),
        }
    }
}

/// The value of a bound that does not hold.
pub const NONE: u64 = u64::MAX;

/// One bound, as the table has it.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// The option: `limit_NAME`.
    pub name: &'static str,
    /// What holds without it; [`NONE`] if nothing does.
    pub default: u64,
    /// The least that it can be set to.
    pub least: u64,
    /// The greatest that it can be set to.
    pub greatest: u64,
    /// What it counts.
    pub unit: Unit,
    /// What it is of, in one line.
    pub help: &'static str,
    get: fn(&Bounds) -> u64,
    set: fn(&mut Bounds, u64),
}

impl Bound {
    /// Its value.
    #[must_use]
    pub fn of(&self, bounds: &Bounds) -> u64 {
        (self.get)(bounds)
    }

    /// What is said where `what` passes it.
    #[must_use]
    pub fn passed(&self, what: &'static str, bounds: &Bounds) -> Beyond {
        Beyond { what, name: self.name, most: self.unit.show(self.of(bounds)) }
    }
}

/// Something that is beyond a bound.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} is more than {name}={most} allows")]
pub struct Beyond {
    /// What is.
    what: &'static str,
    /// The option that would allow it.
    name: &'static str,
    /// Its value.
    most: String,
}

/// Why a bound could not be set.
#[derive(Clone, Copy, Debug)]
pub enum Unfit {
    /// There is none of this name.
    Unknown,
    /// The text is no number of its unit, or is out of its range.
    Value(&'static Bound),
}

impl Bound {
    /// What values it takes.
    #[must_use]
    pub fn range(&self) -> String {
        let Self { least, greatest, unit, .. } = self;
        let what = match unit {
            Unit::Count => "a number",
            Unit::Bytes => "a number of bytes (K, M, G, T are understood)",
            Unit::Seconds => "a duration, such as 90, 90s, 15m or 1h,",
        };
        format!("{what} from {} to {}", unit.show(*least), unit.show(*greatest))
    }
}

macro_rules! bounds {
    ($($field:ident $constant:ident = $default:expr, $least:expr => $greatest:expr, $unit:ident, $help:literal;)*) => {
        /// What holds for one mount. Each field is in the unit that [`TABLE`] says.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Bounds {
            $(#[doc = $help] pub $field: u64,)*
        }

        $(
            #[doc = $help]
            pub const $constant: Bound = Bound {
                name: concat!("limit_", stringify!($field)),
                default: $default,
                least: $least,
                greatest: $greatest,
                unit: Unit::$unit,
                help: $help,
                get: |bounds| bounds.$field,
                set: |bounds, value| bounds.$field = value,
            };
        )*

        /// All bounds, in the order in which help shows them.
        pub const TABLE: &[Bound] = &[$($constant),*];

        impl Default for Bounds {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }
    };
}

const K: u64 = 1 << 10;
const M: u64 = 1 << 20;
const G: u64 = 1 << 30;
const T: u64 = 1 << 40;

bounds! {
    document DOCUMENT = 8 * G, K => 1024 * T, Bytes, "a document, after decompression; where one is larger, nothing is deleted";
    entries ENTRIES = 200_000_000, 1 => 1_000_000_000_000, Count, "entries of all documents of a set that one sync reads; with more, the sync fails and nothing changes";
    changes CHANGES = 5_000_000, 1 => 1_000_000_000, Count, "changes of one list or package; with more, the sync fails and nothing changes";
    documents DOCUMENTS = 200_000, 1 => 10_000_000, Count, "documents of a set, packages of a dump among them; more are not asked for, and nothing is deleted";
    depth DEPTH = 5, 1 => 32, Count, "how deep indexes may lie in one another; what lies deeper is not asked for, and nothing is deleted";
    uri URI = 8 * K, 64 => 8 * K, Bytes, "the URI of a resource; those with longer ones are reported and passed over";
    segments SEGMENTS = 255, 8 => 4096, Count, "segments of the path of a resource's URI; resources with more are reported and passed over";
    names NAMES = 500_000_000, 1000 => 1_000_000_000_000, Count, "files and directories of the mirror, those of its history included; with more, the sync fails and nothing changes";
    links LINKS = 1000, 1 => 100_000, Count, "links of an entry; more are reported and passed over";
    header HEADER = 64 * K, K => 256 * K, Bytes, "the head of an answer, all its lines together; with a larger one, the request fails";
    redirects REDIRECTS = 10, 0 => 100, Count, "redirects that one request follows";
    resource RESOURCE = T, K => 1024 * T, Bytes, "a resource whose length is not listed, or that is coded, after decompression, and a package whose length is not listed; what is larger is given up";
    unfolded UNFOLDED = 1100, 1 => 1_000_000, Count, "how many times its compressed size content may become; of a coded body, 64M are free";
    members MEMBERS = 1_500_000, 1 => 100_000_000, Count, "members of a package; one with more is not used";
    patch PATCH = 16 * M, K => G, Bytes, "a patch, what it changes, and what it makes; what is larger is fetched whole";
    patch_time PATCH_TIME = 4, 1 => 3600, Seconds, "the work of one patch; where it takes longer, the resource is fetched whole";
    mementos MEMENTOS = 100_000, 1 => 100_000, Count, "mementos of one resource that are read from its TimeMaps; more are reported and passed over";
    delivery DELIVERY = 16 * M, K => G, Bytes, "a notification; a larger one is refused, and what it tells is looked for with the next poll";
    messages MESSAGES = 1000, 1 => 1_000_000, Count, "messages and pings a second on one WebSocket channel; more are read later, and a channel that sends more for half a minute is closed for a while";
    channels CHANNELS = 32, 0 => 2048, Count, "WebSocket channels joined at once, and no more than half of limit_connections, in which they count; sets beyond that are polled";
    callers CALLERS = 1024, 1 => 65_536, Count, "connections to listen= at once; others wait until one ends";
    snapshots SNAPSHOTS = 32 * M, M => G, Bytes, "open copies of status.json and metrics, kept until they are closed; beyond that the oldest can no longer be read";
    speed SPEED = K, 0 => G, Bytes, "how much of a transfer has to arrive in a second, on average over timeout=; a slower one is given up (with rate=, half of that if it is less)";
    sync SYNC = 86_400, 10 => 31_536_000, Seconds, "a whole sync; a longer one is given up, and the state is partial";
    files FILES = 1024, 16 => 1_000_000, Count, "files of the cache that are kept open for the next read";
    connections CONNECTIONS = 64, 1 => 4096, Count, "connections to all hosts together; connections= is for each host";
    free FREE = 64 * M, 0 => 1024 * T, Bytes, "the space left on the disk of the cache; with less, nothing more is fetched and no sync writes to the catalog";
    log LOG = 64 * M, M => T, Bytes, "the catalog's write-ahead log between two transactions; a longer one is written back before the next transaction begins";
    memory MEMORY = NONE, 256 * M => 1024 * T, Bytes, "the memory of the daemon's data: the last resort, for the daemon ends when it needs more";
}

impl Bounds {
    /// Sets a bound by the name and the text of its option.
    ///
    /// # Errors
    /// If there is no such bound, or the text is not within its range; then nothing is set.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), Unfit> {
        let bound = TABLE.iter().find(|bound| bound.name == name).ok_or(Unfit::Unknown)?;
        let value = match bound.unit {
            Unit::Bytes => bytes(text),
            Unit::Seconds => duration(text).map(|duration| duration.as_secs()),
            Unit::Count => text.parse().ok(),
        };
        let value = value.filter(|value| (bound.least..=bound.greatest).contains(value)).ok_or(Unfit::Value(bound))?;
        (bound.set)(self, value);
        Ok(())
    }
}

/// A number of bytes, with K, M, G or T for powers of 1024.
#[must_use]
pub fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_uppercase().trim_end_matches("IB").trim_end_matches('B') {
        "" => 1,
        "K" => K,
        "M" => M,
        "G" => G,
        "T" => T,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// A duration: a number of seconds, or of what its unit says (`90s`, `15m`, `2h`, `3d`, `1w`, `2 hours`, `1y`).
#[must_use]
pub fn duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic()).trim_end();
    let seconds = match text[number.len()..].trim_start() {
        "" | "s" | "second" | "seconds" => 1,
        "m" | "minute" | "minutes" => 60,
        "h" | "hour" | "hours" => 3600,
        "d" | "day" | "days" => 86_400,
        "w" | "week" | "weeks" => 604_800,
        "y" | "year" | "years" => 31_557_600,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(seconds).map(Duration::from_secs)
}

/// A bound of what is held in memory, as a number of things there.
#[must_use]
pub fn count(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// A number of entries that a cache in memory may have; at least one.
#[must_use]
pub fn capacity(entries: usize) -> NonZeroUsize {
    NonZeroUsize::new(entries).unwrap_or(NonZeroUsize::MIN)
}

/// All bounds, a line each, as help shows them.
#[must_use]
pub fn help() -> String {
    let line = |bound: &Bound| {
        let Bound { name, default, help, .. } = bound;
        format!("\n  {name}={}\n      {help}\n", bound.unit.show(*default))
    };
    TABLE.iter().map(line).collect()
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bound_takes_what_is_within_its_range_and_nothing_else() {
        for bound in TABLE {
            assert!(bound.least <= bound.greatest && bound.greatest < NONE, "{bound}");
            assert!(bound.default == NONE || (bound.least..=bound.greatest).contains(&bound.default), "{bound}");
            for value in [bound.least, bound.greatest] {
                let mut bounds = Bounds::default();
                assert_eq!(bound.of(&bounds), bound.default, "{bound}");
                bounds.set(bound.name, &bound.unit.show(value)).unwrap();
                assert_eq!(bound.of(&bounds), value, "{bound}");
            }
            let beyond = [bound.least.checked_sub(1), Some(bound.greatest + 1)];
            let beyond = beyond.into_iter().flatten().map(|value| value.to_string());
            for text in beyond.chain(["", "x", "-1", "1.5", "99999999999999999999", "9999999999T"].map(str::to_owned)) {
                let mut bounds = Bounds::default();
                let refused = bounds.set(bound.name, &text);
                assert!(matches!(refused, Err(Unfit::Value(named)) if named.name == bound.name), "{bound}={text}");
                assert_eq!(bounds, Bounds::default(), "{bound}={text}");
            }
        }
        assert!(matches!(Bounds::default().set("limit_documnet", "1"), Err(Unfit::Unknown)));
    }

    #[test]
    fn the_readme_has_the_table() {
        let readme = include_str!("../README.md");
        let mut table = "| option | default | from | to | unit | what is bounded |\n".to_owned();
        table.push_str("| --- | --- | --- | --- | --- | --- |\n");
        for bound in TABLE {
            let Bound { name, default, least, greatest, unit, help, .. } = bound;
            let [default, least, greatest] = [default, least, greatest].map(|value| unit.show(*value));
            table.push_str(&format!("| `{name}` | {default} | {least} | {greatest} | {} | {help} |\n", unit.name()));
        }
        assert!(readme.contains(&table), "README.md is to have this:\n{table}");
    }
}
