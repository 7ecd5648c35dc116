//! A session with an XMPP server (RFC 6120): a connection that nobody listens to, an account, and stanzas.
//!
//! Nobody logs in without TLS, but on this very machine. What is sent to us is bounded, stanza by stanza; a server that is silent is
//! asked whether it is there.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use rustls::pki_types::ServerName;
use tokio::io::BufStream;
use tokio::time::timeout;
use tokio_xmpp::connect::DnsConfig;
use tokio_xmpp::error::Error;
use tokio_xmpp::jid::{BareJid, FullJid, Jid};
use tokio_xmpp::minidom::Element;
use tokio_xmpp::parsers::bind::{BindQuery, BindResponse};
use tokio_xmpp::parsers::iq::Iq;
use tokio_xmpp::parsers::message::Message;
use tokio_xmpp::parsers::ping::Ping;
use tokio_xmpp::parsers::presence::{Presence, Type};
use tokio_xmpp::parsers::stanza::Stanza;
use tokio_xmpp::parsers::stanza_error::{DefinedCondition, ErrorType, StanzaError};
use tokio_xmpp::parsers::stream_features::StreamFeatures;
use tokio_xmpp::parsers::{ns, starttls};
use tokio_xmpp::xmlstream::{
    FallibleStreamElement, PendingFeaturesRecv, ReadError, StreamHeader, Timeouts, XmppStreamElement, initiate_stream,
};

use super::guarded::{Allowance, Guarded, Io};
use super::login::login;
use super::stream::{Stream, broken};
use super::{Ended, told};
use crate::notify::websub::unguessable;
use crate::source::{Account, Client};

/// After how much silence the server is asked whether it is there.
const SILENCE: Duration = Duration::from_secs(60);
/// What a stanza may have beside what it delivers.
const BESIDE: u64 = 64 << 10;

/// A session that was begun.
pub(super) struct Session {
    stream: Stream,
    allowance: Arc<Allowance>,
    /// The most bytes of a stanza.
    most: u64,
    /// How long an answer may take.
    patience: Duration,
    own: BareJid,
    /// Messages that came while something was asked, and bytes of them.
    waiting: VecDeque<Message>,
    waiting_bytes: u64,
    /// Whether something came that could not be read, or not be kept.
    missed: bool,
}

/// What comes on a session.
pub(super) enum Came {
    Message(Box<Message>),
    /// Something that could not be read, or not be kept.
    Unreadable,
}

/// Whether an answer says that somebody does not want us, rather than that something is wrong just now.
fn denies(error: &StanzaError) -> bool {
    use DefinedCondition as Why;
    let lasting = matches!(
        error.defined_condition,
        Why::Forbidden
            | Why::NotAuthorized
            | Why::NotAllowed
            | Why::ItemNotFound
            | Why::RegistrationRequired
            | Why::SubscriptionRequired
            | Why::FeatureNotImplemented
            | Why::JidMalformed
            | Why::BadRequest
    );
    lasting && error.type_ != ErrorType::Wait
}

impl Session {
    /// Connects, logs in, and says that we are there.
    pub(super) async fn begin(client: &Client, account: &Account, most: u64) -> Result<Self, Ended> {
        let (patience, most) = (client.timeout(), most.saturating_add(BESIDE));
        let own: BareJid = account.jid.parse().map_err(|error| Ended::Denied(format!("{}: {error}", account.jid)))?;
        let allowance = Allowance::new(most);
        let begun = timeout(patience.saturating_mul(2), begin(client, account, &own, &allowance)).await;
        let stream = begun.map_err(|_| broken(format_args!("no session within {} s", 2 * patience.as_secs())))??;
        let waiting = VecDeque::new();
        let mut session = Self { stream, allowance, most, patience, own, waiting, waiting_bytes: 0, missed: false };
        let bound = session.ask(None, BindQuery::new(None).into()).await?;
        let bound = bound.ok_or_else(|| broken("the server gives no address"))?;
        let bound = FullJid::from(BindResponse::try_from(bound).map_err(broken)?);
        if bound.to_bare() != session.own {
            return Err(Ended::Denied(format!("the server takes us for {}", told(bound.to_bare().as_str()))));
        }
        session.send(Presence::new(Type::None).into()).await?;
        Ok(session)
    }

    async fn send(&mut self, stanza: Stanza) -> Result<(), Ended> {
        let sent = timeout(self.patience, self.stream.send(&stanza)).await;
        sent.map_err(|_| broken("the server takes nothing"))?.map_err(broken)
    }

    /// Asks for something to be done; returns what is answered.
    pub(super) async fn ask(&mut self, to: Option<Jid>, payload: Element) -> Result<Option<Element>, Ended> {
        let asked = unguessable::<12>().map_err(broken)?;
        let whom = to.as_ref().map_or("the server".to_owned(), Jid::to_string);
        self.send(Iq::Set { from: None, to: to.clone(), id: asked.clone(), payload }.into()).await?;
        let own = self.own.clone();
        // Only who was asked answers: our own server may leave out who it is.
        let answers = |from: &Option<Jid>| match (&to, from) {
            (Some(to), Some(from)) => to == from,
            (Some(_), None) => false,
            (None, None) => true,
            (None, Some(from)) => from.to_bare() == own || from.to_string() == own.domain().as_str(),
        };
        let patience = self.patience;
        let answered = timeout(patience, async {
            loop {
                match self.stanza().await? {
                    Some(Stanza::Iq(Iq::Result { id, from, payload, .. })) if id == asked && answers(&from) => {
                        return Ok(payload);
                    }
                    Some(Stanza::Iq(Iq::Error { id, from, error, .. })) if id == asked && answers(&from) => {
                        let text = error.texts.values().next().map(String::as_str).unwrap_or_default();
                        let why = told(&format!("{whom} answers {:?} {text}", error.defined_condition));
                        return Err(if denies(&error) { Ended::Denied(why) } else { Ended::Broken(why) });
                    }
                    Some(Stanza::Message(message)) if self.waiting_bytes <= self.most => {
                        self.waiting.push_back(message)
                    }
                    Some(Stanza::Message(_)) | None => self.missed = true,
                    Some(_) => {}
                }
            }
        });
        answered.await.map_err(|_| broken(format_args!("{} does not answer", told(&whom))))?
    }

    /// The next message.
    pub(super) async fn next(&mut self) -> Result<Came, Ended> {
        if let Some(message) = self.waiting.pop_front() {
            return Ok(Came::Message(Box::new(message)));
        }
        self.waiting_bytes = 0;
        if std::mem::take(&mut self.missed) {
            return Ok(Came::Unreadable);
        }
        loop {
            match self.stanza().await? {
                Some(Stanza::Message(message)) => return Ok(Came::Message(Box::new(message))),
                Some(_) => {}
                None => return Ok(Came::Unreadable),
            }
        }
    }

    /// The next stanza that wants no answer; none for one that cannot be read.
    async fn stanza(&mut self) -> Result<Option<Stanza>, Ended> {
        loop {
            let next = self.stream.next().await;
            self.waiting_bytes = self.waiting_bytes.saturating_add(self.allowance.renew());
            match next {
                Some(Ok(FallibleStreamElement::Ok(XmppStreamElement::Stanza(stanza)))) => match stanza {
                    Stanza::Iq(Iq::Get { from, id, payload, .. } | Iq::Set { from, id, payload, .. }) => {
                        let answer = match payload.is("ping", ns::PING) {
                            true => Iq::Result { from: None, to: from, id, payload: None },
                            false => {
                                let kind = DefinedCondition::ServiceUnavailable;
                                let error = StanzaError::new(ErrorType::Cancel, kind, "en", "");
                                Iq::Error { from: None, to: from, id, error, payload: None }
                            }
                        };
                        self.send(answer.into()).await?;
                    }
                    stanza => return Ok(Some(stanza)),
                },
                Some(Ok(FallibleStreamElement::Ok(XmppStreamElement::StreamError(error)))) => {
                    return Err(broken(format_args!("the server ends the session: {error}")));
                }
                Some(Ok(_) | Err(ReadError::ParseError(_))) => return Ok(None),
                Some(Err(ReadError::SoftTimeout)) => {
                    let id = unguessable::<12>().map_err(broken)?;
                    self.send(Iq::Get { from: None, to: None, id, payload: Ping.into() }.into()).await?;
                }
                Some(Err(ReadError::HardError(error))) => {
                    return Err(broken(format_args!("the session broke off: {error}")));
                }
                Some(Err(ReadError::StreamFooterReceived)) | None => {
                    return Err(broken("the server closed the session"));
                }
            }
        }
    }
}

fn header(jid: &BareJid) -> StreamHeader<'_> {
    StreamHeader { to: Some(Cow::Borrowed(jid.domain().as_str())), from: None, id: None }
}

async fn features(pending: PendingFeaturesRecv<BufStream<Guarded>>) -> Result<(StreamFeatures, Stream), Ended> {
    pending.recv_features().await.map_err(|error| broken(Error::from(error)))
}

/// Whether a server is said to be on this very machine, in numbers: nobody else can have said so.
fn is_here(account: &Account) -> bool {
    let address = account.server.as_ref().and_then(|(host, _)| host.parse::<std::net::IpAddr>().ok());
    address.is_some_and(|address| address.is_loopback())
}

/// A stream that is logged in.
async fn begin(client: &Client, account: &Account, own: &BareJid, allowance: &Arc<Allowance>) -> Result<Stream, Ended> {
    let connection = match &account.server {
        Some((host, port)) => tokio::net::TcpStream::connect((host.as_str(), *port)).await.map_err(broken)?,
        None => DnsConfig::srv_default_client(own.domain().as_str()).resolve().await.map_err(broken)?,
    };
    let timeouts = Timeouts { read_timeout: SILENCE, response_timeout: client.timeout() };
    let guarded = |io: Box<dyn Io>| BufStream::new(Guarded::new(io, allowance));
    let open = |io: Box<dyn Io>| initiate_stream(guarded(io), ns::JABBER_CLIENT, header(own), timeouts);
    let (mut offered, mut stream) = features(open(Box::new(connection)).await.map_err(broken)?).await?;
    let secure = offered.can_starttls();
    if secure {
        let request = XmppStreamElement::Starttls(starttls::Nonza::Request(starttls::Request));
        stream.send(&request).await.map_err(broken)?;
        match stream.next().await {
            Some(Ok(FallibleStreamElement::Ok(XmppStreamElement::Starttls(starttls::Nonza::Proceed(_))))) => {}
            _ => return Err(broken("the server broke off before TLS was begun")),
        }
        let plain = stream.into_inner().into_inner().io;
        // As certificates have it.
        let name = url::Host::parse(own.domain().as_str()).map_err(broken)?.to_string();
        let name = ServerName::try_from(name).map_err(broken)?;
        let config = client.tls().map_err(broken)?;
        let secured = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, plain).await.map_err(broken)?;
        allowance.renew();
        (offered, stream) = features(open(Box::new(secured)).await.map_err(broken)?).await?;
    } else if !is_here(account) {
        return Err(Ended::Denied(
            "the server offers no TLS; without it, nobody logs in but on this very machine".to_owned(),
        ));
    }
    allowance.renew();
    let reset = login(stream, &offered.sasl_mechanisms, account, secure).await?;
    allowance.renew();
    let (_, stream) = features(reset.send_header(header(own)).await.map_err(broken)?).await?;
    Ok(stream)
}
