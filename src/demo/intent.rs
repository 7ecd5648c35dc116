//! What the hub of the demo Source is asked for (WebSub, 5.1), as far as a form tells.

use std::borrow::Cow;
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode, header};
use hmac::{Hmac, KeyInit as _};
use sha2::Sha256;
use url::{Host, Url, form_urlencoded};

/// The leases that are granted, in seconds, and that of those who do not ask for one.
const SHORTEST: u64 = 10;
const LONGEST: u64 = 10 * 24 * 60 * 60;
const USUAL: u64 = 24 * 60 * 60;
/// A secret has to be shorter than this.
const SECRET: usize = 200;

/// Whether a subscription is to begin or to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Subscribe,
    Unsubscribe,
}

impl Mode {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Subscribe => "subscribe",
            Self::Unsubscribe => "unsubscribe",
        }
    }
}

/// What somebody wants, if it is verified that they do.
pub(super) struct Intent {
    pub(super) mode: Mode,
    /// On loopback.
    pub(super) callback: Url,
    pub(super) topic: String,
    /// What is granted.
    pub(super) lease: Duration,
    /// With the secret as its key.
    pub(super) signer: Option<Hmac<Sha256>>,
}

/// Why a request is refused.
type Refusal = (StatusCode, &'static str);

fn bad(reason: &'static str) -> Refusal {
    (StatusCode::BAD_REQUEST, reason)
}

impl Intent {
    /// Reads a form.
    pub(super) fn read(headers: &HeaderMap, form: &[u8]) -> Result<Self, Refusal> {
        let media = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let media = media.split(';').next().unwrap_or_default().trim();
        if !media.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, "a form is wanted: application/x-www-form-urlencoded\n"));
        }
        let field = |name: &str| form_urlencoded::parse(form).find(|(key, _)| key == name).map(|(_, value)| value);
        let mode = match field("hub.mode").as_deref() {
            Some("subscribe") => Mode::Subscribe,
            Some("unsubscribe") => Mode::Unsubscribe,
            _ => return Err(bad("hub.mode has to be subscribe or unsubscribe\n")),
        };
        let topic = field("hub.topic").map(Cow::into_owned).ok_or(bad("hub.topic is missing\n"))?;
        let callback = field("hub.callback").ok_or(bad("hub.callback is missing\n"))?;
        let callback = Url::parse(&callback).map_err(|_| bad("hub.callback is no URL\n"))?;
        if callback.scheme() != "http" || !is_loopback(&callback) {
            return Err((StatusCode::FORBIDDEN, "hub.callback has to be http on a loopback host\n"));
        }
        let lease = match field("hub.lease_seconds") {
            Some(seconds) => seconds.parse::<u64>().map_err(|_| bad("hub.lease_seconds is no number\n"))?,
            None => USUAL,
        };
        let secret = field("hub.secret").filter(|secret| !secret.is_empty());
        if secret.as_ref().is_some_and(|secret| secret.len() >= SECRET) {
            return Err(bad("hub.secret has to be less than 200 bytes\n"));
        }
        let signer = secret.map(|secret| Hmac::new_from_slice(secret.as_bytes())).transpose();
        Ok(Self {
            mode,
            callback,
            topic,
            lease: Duration::from_secs(lease.clamp(SHORTEST, LONGEST)),
            signer: signer.map_err(|_| bad("hub.secret is of no use\n"))?,
        })
    }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}
