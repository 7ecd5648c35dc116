//! Logging in (RFC 6120, 6; RFC 5802): the password is proved rather than sent where the server lets us, and the server
//! proves that it knows it, too.
//!
//! What a server asks for is bounded: each round of the function that a password goes through is work.

use std::collections::BTreeSet;

use futures_util::{SinkExt as _, StreamExt as _};
use sasl::client::Mechanism;
use sasl::client::mechanisms::{Plain, Scram};
use sasl::common::scram::{Sha1, Sha256};
use sasl::common::{ChannelBinding, Credentials};
use tokio_xmpp::parsers::sasl::{Auth, DefinedCondition, Nonza, Response};
use tokio_xmpp::xmlstream::{FallibleStreamElement, InitiatingStream, XmppStreamElement};

use super::Ended;
use super::stream::{Stream, broken};
use crate::source::Account;

/// Fewer rounds than these protect no password (RFC 7677, 4), more are none that a server needs.
const ROUNDS: std::ops::RangeInclusive<u64> = 4_096..=1_000_000;

type Boxed = Box<dyn Mechanism + Send + Sync>;

/// The best way of logging in that a server offers; the password itself is sent only where it is `secure`.
fn mechanism(offered: &BTreeSet<String>, account: &Account, secure: bool) -> Result<Boxed, Ended> {
    let name = account.jid.split_once('@').map(|(name, _)| name.to_owned()).unwrap_or_default();
    let credentials = Credentials::default()
        .with_username(name)
        .with_password(account.password.clone())
        .with_channel_binding(ChannelBinding::None);
    let offers = |name: &str| offered.contains(name);
    let made: Result<Boxed, _> = match () {
        () if offers("SCRAM-SHA-256") => {
            Scram::<Sha256>::from_credentials(credentials).map(|one| Box::new(one) as Boxed)
        }
        () if offers("SCRAM-SHA-1") => Scram::<Sha1>::from_credentials(credentials).map(|one| Box::new(one) as Boxed),
        () if offers("PLAIN") && secure => Plain::from_credentials(credentials).map(|one| Box::new(one) as Boxed),
        () => return Err(Ended::Denied("the server offers no way of logging in that is safe here".to_owned())),
    };
    made.map_err(|error| Ended::Denied(error.to_string()))
}

/// What a challenge of SCRAM has under a letter.
fn part<'c>(challenge: &'c str, letter: &str) -> Option<&'c str> {
    challenge.split(',').find_map(|part| part.strip_prefix(letter)?.strip_prefix('='))
}

/// Why a challenge is not answered.
fn unfit(initial: &[u8], challenge: &[u8]) -> Option<&'static str> {
    let (initial, challenge) = (String::from_utf8_lossy(initial), String::from_utf8_lossy(challenge));
    let ours = initial.rsplit_once(",r=").map(|(_, nonce)| nonce.to_owned()).unwrap_or_default();
    let theirs = part(&challenge, "r").unwrap_or_default();
    let rounds = part(&challenge, "i").and_then(|rounds| rounds.parse::<u64>().ok());
    match () {
        () if ours.is_empty() || !theirs.starts_with(&ours) || theirs == ours => {
            Some("the server does not answer what it was asked")
        }
        () if !rounds.is_some_and(|rounds| ROUNDS.contains(&rounds)) => {
            Some("the server wants the password to be hashed less often than is safe, or more often than anybody needs")
        }
        () => None,
    }
}

/// Logs in; the stream begins anew after that.
pub(super) async fn login(
    mut stream: Stream,
    offered: &BTreeSet<String>,
    account: &Account,
    secure: bool,
) -> Result<InitiatingStream<tokio::io::BufStream<super::guarded::Guarded>>, Ended> {
    let mut mechanism = mechanism(offered, account, secure)?;
    let initial = mechanism.initial();
    let name = mechanism.name().parse().map_err(|_| broken("no name of a mechanism"))?;
    let auth = Auth { mechanism: name, data: initial.clone() };
    stream.send(&XmppStreamElement::Sasl(Nonza::Auth(auth))).await.map_err(broken)?;
    let mut asked = false;
    loop {
        let answer = match stream.next().await {
            Some(Ok(FallibleStreamElement::Ok(XmppStreamElement::Sasl(answer)))) => answer,
            _ => return Err(broken("the server broke off the login")),
        };
        match answer {
            Nonza::Challenge(challenge) => {
                if let Some(why) = unfit(&initial, &challenge.data) {
                    return Err(Ended::Denied(why.to_owned()));
                }
                if std::mem::replace(&mut asked, true) {
                    return Err(broken("the server asks more than once"));
                }
                // That takes a processor for a while.
                let answered = tokio::task::spawn_blocking(move || {
                    let answered = mechanism.response(&challenge.data);
                    (mechanism, answered)
                });
                let (back, answered) = answered.await.map_err(broken)?;
                mechanism = back;
                let data = answered.map_err(|error| broken(format_args!("login: {error}")))?;
                stream.send(&XmppStreamElement::Sasl(Nonza::Response(Response { data }))).await.map_err(broken)?;
            }
            Nonza::Success(success) => {
                let proved = mechanism.success(&success.data);
                proved.map_err(|_| Ended::Denied("the server does not prove that it knows the password".to_owned()))?;
                return Ok(stream.initiate_reset());
            }
            Nonza::Failure(failure) => {
                return Err(match failure.defined_condition {
                    DefinedCondition::TemporaryAuthFailure => broken("the server cannot log anybody in just now"),
                    _ => Ended::Denied("the server does not take the account and its password".to_owned()),
                });
            }
            _ => return Err(broken("the server broke off the login")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_is_held_to_what_was_asked() {
        let initial = b"n,,n=me,r=abc";
        for (challenge, fits) in [
            ("r=abcdef,s=c2FsdA==,i=4096", true),
            ("r=abcdef,s=c2FsdA==,i=1000000", true),
            ("r=abcdef,s=c2FsdA==,i=4294967295", false),
            ("r=abcdef,s=c2FsdA==,i=1", false),
            ("r=abcdef,s=c2FsdA==", false),
            ("r=abc,s=c2FsdA==,i=4096", false),
            ("r=xyz,s=c2FsdA==,i=4096", false),
        ] {
            assert_eq!(unfit(initial, challenge.as_bytes()).is_none(), fits, "{challenge}");
        }
    }

    #[test]
    fn what_is_said_in_a_login_is_logged_by_nobody() {
        // What is sent and received is logged by the library at a level that is not compiled.
        assert!(log::STATIC_MAX_LEVEL < log::LevelFilter::Trace);
    }

    #[test]
    fn what_is_not_proved_is_sent_over_tls_alone() {
        let account = Account { jid: "me@a.example".to_owned(), password: "p".to_owned(), server: None };
        let offered = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect::<BTreeSet<_>>();
        let name =
            |all: &[&str], secure| mechanism(&offered(all), &account, secure).ok().map(|one| one.name().to_owned());
        assert_eq!(name(&["PLAIN", "SCRAM-SHA-1", "SCRAM-SHA-256"], true).as_deref(), Some("SCRAM-SHA-256"));
        assert_eq!(name(&["PLAIN", "SCRAM-SHA-1"], false).as_deref(), Some("SCRAM-SHA-1"));
        assert_eq!(name(&["PLAIN"], true).as_deref(), Some("PLAIN"));
        assert_eq!(name(&["PLAIN"], false), None);
        assert_eq!(name(&["ANONYMOUS", "EXTERNAL"], true), None);
    }
}
