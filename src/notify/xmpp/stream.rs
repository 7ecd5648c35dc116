//! The XML stream of a session, and how it breaks.

use tokio::io::BufStream;
use tokio_xmpp::xmlstream::XmppStream;

use super::guarded::Guarded;
use super::{Ended, told};

pub(super) type Stream = XmppStream<BufStream<Guarded>>;

pub(super) fn broken(error: impl std::fmt::Display) -> Ended {
    Ended::Broken(told(&error.to_string()))
}
