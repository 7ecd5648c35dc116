//! What the engine is to do.

use std::sync::Arc;
use std::time::Duration;

use crate::bounds::Bounds;
use crate::catalog::Wish;

/// How strictly bytes are held to what the Source lists of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// A file is verified whole before its first byte is served.
    #[default]
    Strict,
    /// Large files are served in ranges before the whole is verified.
    Stream,
    /// What does not verify is served, with a warning.
    Warn,
    /// Nothing is verified.
    Off,
}

/// What a mirror is first filled from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SeedFrom {
    /// What the Source offers that serves best.
    #[default]
    Auto,
    /// A Resource Dump, where there is one, and later ones too.
    Dump,
    /// Resource Lists alone.
    List,
}

/// What the engine is to do.
#[derive(Clone, Debug)]
pub struct Config {
    /// The Source, as the user named it.
    pub source: String,
    /// One of several sets.
    pub set: Option<String>,
    /// What lies at the root, where that is not the Source's own origin.
    pub base: Option<String>,
    /// What resources are called whose URI ends in `/`, if not [`crate::path::INDEX`].
    pub index: Option<String>,
    /// Whether all content is fetched ahead and kept.
    pub content_all: bool,
    /// What the mirror is first filled from.
    pub seed: SeedFrom,
    /// How strictly bytes are held to what is listed.
    pub verify: Verify,
    /// Whether the Source is left alone.
    pub offline: bool,
    /// The most bytes of content that are kept, where it can be fetched again.
    pub cache_size: Option<u64>,
    /// How often the Source is asked whether something has changed; never, if `None`.
    pub poll: Option<Duration>,
    /// How often the lists of a set are read though its changes are followed; `None`: only where those leave something open.
    pub relist: Option<Duration>,
    /// How old content may be when it is opened, where the Source lists neither a hash nor a time of modification of it;
    /// `None`: of any age.
    pub revalidate: Option<Duration>,
    /// How long content is kept that was superseded; the last three versions of a resource are in any case.
    pub keep: Duration,
    /// Which resources are shown, and their content fetched.
    pub filter: Wish,
    /// The media type of alternates that are taken for their resources (core 14.3).
    pub prefer: Option<Arc<str>>,
    /// How much is taken from the Source.
    pub bounds: Bounds,
}

/// What can be changed while the engine runs; `None` leaves a thing as it is.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "as in Config and source::Options")]
pub struct Adjustment {
    pub timeout: Option<Duration>,
    pub connections: Option<usize>,
    pub rate: Option<Option<u64>>,
    pub poll: Option<Option<Duration>>,
}
