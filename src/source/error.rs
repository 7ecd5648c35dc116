//! What can go wrong between a Source and us.

use std::net::IpAddr;
use std::time::Duration;

use thiserror::Error;

use crate::bounds::Beyond;

/// A request that failed: where, why, and what to do.
#[derive(Clone, Debug, Error)]
#[error("{url}: {trouble}")]
pub struct SourceError {
    /// What was asked for.
    pub url: String,
    /// Why it failed.
    pub trouble: Trouble,
}

impl SourceError {
    pub(crate) fn new(url: impl ToString, trouble: Trouble) -> Self {
        Self { url: url.to_string(), trouble }
    }
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Trouble {
    /// It is no URL that may be asked.
    #[error("cannot be fetched: {0}")]
    BadUrl(String),
    /// It is on a private address, and the Source is not.
    #[error(
        "{host} is at {address}, a private address, {}; if that is meant, mount with -o allow_private",
        if *.moved { "and was at a public one before" } else { "where a Source on a public one may not lead" }
    )]
    Private {
        /// The host of the URL.
        host: String,
        /// Where it is.
        address: IpAddr,
        /// It is the Source itself.
        moved: bool,
    },
    /// It is http, and the Source is https.
    #[error("it is http, where a Source on https may not lead; if that is meant, mount with -o allow_http")]
    Downgrade,
    /// No connection came about.
    #[error("cannot connect: {0}; is the server up, and the address right?")]
    Connect(String),
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// The server was silent.
    #[error("no {what} for {:.1} s; a longer timeout= may help", .after.as_secs_f32())]
    Stalled {
        /// What was waited for.
        what: &'static str,
        /// How long.
        after: Duration,
    },
    /// The body came slower than is worth waiting for.
    #[error("the server sends less than {floor} bytes a second")]
    TooSlow {
        /// Bytes a second.
        floor: u64,
    },
    /// The server refuses.
    #[error("the server answers {code}{}{}", reason(*.code), hint(*.code, *.retry_after))]
    Status {
        /// The status code.
        code: u16,
        /// What the server asks us to wait.
        retry_after: Option<Duration>,
    },
    /// A page for people came, to tell programs from people or to ask for a login.
    #[error(
        "the server answers {code} with a page for people{}: a bot wall or a login; ask the Source's operator to admit this client, or give it an entry in credentials=FILE",
        if *.challenge { " (a challenge of Cloudflare)" } else { "" }
    )]
    Walled {
        /// The status code.
        code: u16,
        /// Whether the server says that it is a challenge (`cf-mitigated`).
        challenge: bool,
    },
    /// An HTML page came in place of something else.
    #[error(
        "the server sends an HTML page where {listed} is listed: a bot wall, a login or an error page; refused (verify=warn would serve it)"
    )]
    Page {
        /// What is listed: a media type, or a file name's extension.
        listed: String,
    },
    /// The same body came for a file of another format.
    #[error(
        "the server sends the same bytes as for {0}, a file of another format: a bot wall, a login or an error page; refused (verify=warn would serve it)"
    )]
    SameBody(String),
    /// An archive holds an answer without content.
    #[error("the archive holds an answer {0} of that time, and no content")]
    Archived(u16),
    /// Redirects led back to where they began.
    #[error("redirects go in a circle ({0})")]
    RedirectLoop(String),
    /// It is more than a bound of the mount allows.
    #[error(transparent)]
    Beyond(#[from] Beyond),
    /// The body ended too soon.
    #[error("the answer is cut short: {got} of {expected} bytes")]
    Truncated {
        /// Bytes.
        got: u64,
        /// Bytes.
        expected: u64,
    },
    /// The body is not as long as the Source says.
    #[error("wrong length: {got} bytes where the Source lists {expected}; refused (verify=warn would serve it)")]
    WrongLength {
        /// Bytes.
        got: u64,
        /// Bytes.
        expected: u64,
    },
    /// The body is not what the Source says.
    #[error(
        "wrong content: its {algorithm} is {got} where the Source lists {expected}; refused (verify=warn would serve it)"
    )]
    WrongHash {
        /// The token of the algorithm.
        algorithm: &'static str,
        /// Hexadecimal.
        got: String,
        /// Hexadecimal.
        expected: String,
    },
    /// The body cannot be decoded.
    #[error("the content coding {coding:?} cannot be undone: {problem}")]
    BadCoding {
        /// Its name.
        coding: String,
        /// Why.
        problem: String,
    },
    /// The body is larger than allowed.
    #[error("larger than the {0} bytes allowed")]
    TooLarge(u64),
    /// A part was asked for, and something else came.
    #[error("the server does not give ranges of what was begun")]
    NoRanges,
    /// The resource changed while it was fetched.
    #[error("the resource changed while it was fetched; the next sync will know the new version")]
    Changed,
    /// The bytes could not be kept.
    #[error("cannot keep it in the cache: {0}")]
    Disk(String),
    /// It is of another edition than the documents that it belongs to.
    #[error("{0}; nothing is deleted until all documents are of one edition")]
    Mixed(String),
    /// There is nowhere to get it.
    #[error("{0}")]
    Nowhere(String),
}

impl Trouble {
    /// Whether the same request may go well a moment later.
    #[must_use]
    pub fn passes(&self) -> bool {
        match self {
            Self::Connect(_) | Self::Broken(_) | Self::Truncated { .. } => true,
            Self::Status { code, .. } => matches!(code, 408 | 429 | 500 | 502 | 503 | 504),
            _ => false,
        }
    }

    /// Whether what is there is something else than what was listed: the listing may be out of date.
    #[must_use]
    pub fn is_doubt(&self) -> bool {
        matches!(self, Self::WrongLength { .. } | Self::WrongHash { .. } | Self::Status { code: 404 | 410, .. })
    }

    /// Whether the server says that there is no such thing.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Status { code: 404 | 410, .. })
    }

    /// Whether the Source as a whole is away, rather than this one thing.
    #[must_use]
    pub fn is_away(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::Stalled { .. })
    }
}

fn reason(code: u16) -> String {
    match reqwest::StatusCode::from_u16(code).ok().and_then(|status| status.canonical_reason()) {
        Some(reason) => format!(" {reason}"),
        None => String::new(),
    }
}

fn hint(code: u16, retry_after: Option<Duration>) -> String {
    match (code, retry_after) {
        (401 | 403, _) => "; a credentials=FILE with an entry for this host may help".to_owned(),
        (404 | 410, _) => "; there is no such thing there".to_owned(),
        (_, Some(wait)) => format!(" and asks to wait {} s", wait.as_secs()),
        _ => String::new(),
    }
}
