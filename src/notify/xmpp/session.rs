//! A session with an XMPP server (RFC 6120): a connection that nobody listens to, an account, and stanzas.
//!
//! A password is sent over TLS alone, but to this very machine. What is sent to us is bounded, stanza by stanza; a server that is
//! silent is asked whether it is there.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use rustls::pki_types::ServerName;
use sasl::common::{ChannelBinding, Credentials};
use tokio::io::{AsyncRead, AsyncWrite, BufStream, ReadBuf};
use tokio::time::timeout;
use tokio_xmpp::connect::DnsConfig;
use tokio_xmpp::error::{AuthError, Error};
use tokio_xmpp::jid::{BareJid, Jid};
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
    FallibleStreamElement, PendingFeaturesRecv, ReadError, StreamHeader, Timeouts, XmppStream, XmppStreamElement,
    initiate_stream,
};

use super::Ended;
use crate::source::{Account, Client};

/// After how much silence the server is asked whether it is there.
const SILENCE: Duration = Duration::from_secs(60);
/// What a stanza may have beside what it delivers.
const BESIDE: u64 = 64 << 10;
/// The most notifications that wait while something is asked.
const MOST_WAITING: usize = 10_000;

trait Io: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

/// A connection from which no more is taken than is left.
struct Bounded {
    io: Box<dyn Io>,
    left: Arc<AtomicU64>,
}

impl AsyncRead for Bounded {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = to.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(context, to);
        let came = (to.filled().len() - before) as u64;
        let taken = self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(came));
        match taken {
            Ok(_) => polled,
            Err(_) => Poll::Ready(Err(io::Error::other("a stanza is larger than limit_delivery allows"))),
        }
    }
}

impl AsyncWrite for Bounded {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

type Stream = XmppStream<BufStream<Bounded>>;

/// A session that was begun.
pub(super) struct Session {
    stream: Stream,
    left: Arc<AtomicU64>,
    /// The most bytes of a stanza.
    most: u64,
    /// How long an answer may take.
    patience: Duration,
    /// How often something was asked.
    asked: u64,
    waiting: VecDeque<Message>,
}

fn broken(error: impl std::fmt::Display) -> Ended {
    Ended::Broken(error.to_string())
}

/// What a library says of an error, for people.
fn failed(error: Error) -> Ended {
    match error {
        Error::Auth(AuthError::NoMechanism) => {
            Ended::Denied("the server knows no way of logging in that is known here".to_owned())
        }
        Error::Auth(_) => Ended::Denied("the server does not take the account and its password".to_owned()),
        other => broken(other),
    }
}

impl Session {
    /// Connects, logs in, and says that we are there.
    pub(super) async fn begin(client: &Client, account: &Account, most: u64) -> Result<Self, Ended> {
        let (patience, most) = (client.timeout(), most.saturating_add(BESIDE));
        let jid: BareJid = account.jid.parse().map_err(|error| Ended::Denied(format!("{}: {error}", account.jid)))?;
        let left = Arc::new(AtomicU64::new(most));
        let begun = timeout(patience.saturating_mul(2), begin(client, account, &jid, &left)).await;
        let stream = begun.map_err(|_| broken(format_args!("no session within {} s", 2 * patience.as_secs())))??;
        let mut session = Self { stream, left, most, patience, asked: 0, waiting: VecDeque::new() };
        let bound = session.ask(None, BindQuery::new(None).into()).await?;
        let bound = bound.ok_or_else(|| broken("the server gives no address"))?;
        BindResponse::try_from(bound).map_err(broken)?;
        session.send(Presence::new(Type::None).into()).await?;
        Ok(session)
    }

    async fn send(&mut self, stanza: Stanza) -> Result<(), Ended> {
        let sent = timeout(self.patience, self.stream.send(&stanza)).await;
        sent.map_err(|_| broken("the server takes nothing"))?.map_err(broken)
    }

    /// Asks for something to be done; returns what is answered.
    pub(super) async fn ask(&mut self, to: Option<Jid>, payload: Element) -> Result<Option<Element>, Ended> {
        self.asked += 1;
        let own = format!("resourcesync-{}", self.asked);
        self.send(Iq::Set { from: None, to, id: own.clone(), payload }.into()).await?;
        let patience = self.patience;
        let answered = timeout(patience, async {
            loop {
                match self.stanza().await? {
                    Stanza::Iq(Iq::Result { id, payload, .. }) if id == own => return Ok(payload),
                    Stanza::Iq(Iq::Error { id, error, .. }) if id == own => {
                        let condition = error.defined_condition;
                        let text = error.texts.into_values().next().unwrap_or_default();
                        return Err(Ended::Denied(format!("it answers {condition:?} {text}").trim_end().to_owned()));
                    }
                    Stanza::Message(message) if self.waiting.len() < MOST_WAITING => self.waiting.push_back(message),
                    _ => {}
                }
            }
        });
        answered.await.map_err(|_| broken("no answer"))?
    }

    /// The next message.
    pub(super) async fn message(&mut self) -> Result<Message, Ended> {
        if let Some(message) = self.waiting.pop_front() {
            return Ok(message);
        }
        loop {
            if let Stanza::Message(message) = self.stanza().await? {
                return Ok(message);
            }
        }
    }

    /// The next stanza that wants no answer.
    async fn stanza(&mut self) -> Result<Stanza, Ended> {
        loop {
            let next = self.stream.next().await;
            self.left.store(self.most, Ordering::Release);
            match next {
                Some(Ok(FallibleStreamElement::Ok(XmppStreamElement::Stanza(stanza)))) => match stanza {
                    Stanza::Iq(Iq::Get { from, id, payload, .. } | Iq::Set { from, id, payload, .. }) => {
                        let answer = match payload.is("ping", ns::PING) {
                            true => Iq::Result { from: None, to: from, id, payload: None },
                            false => {
                                let error =
                                    StanzaError::new(ErrorType::Cancel, DefinedCondition::ServiceUnavailable, "en", "");
                                Iq::Error { from: None, to: from, id, error, payload: None }
                            }
                        };
                        self.send(answer.into()).await?;
                    }
                    stanza => return Ok(stanza),
                },
                Some(Ok(FallibleStreamElement::Ok(XmppStreamElement::StreamError(error)))) => {
                    return Err(broken(format_args!("the server ends the session: {error}")));
                }
                Some(Ok(other)) => tracing::debug!(?other, "something that is no stanza that is known"),
                Some(Err(ReadError::ParseError(error))) => tracing::debug!(%error, "a stanza cannot be read"),
                Some(Err(ReadError::SoftTimeout)) => {
                    self.asked += 1;
                    let id = format!("resourcesync-{}", self.asked);
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

async fn features(pending: PendingFeaturesRecv<BufStream<Bounded>>) -> Result<(StreamFeatures, Stream), Ended> {
    pending.recv_features().await.map_err(|error| failed(error.into()))
}

/// A stream that is logged in.
async fn begin(client: &Client, account: &Account, jid: &BareJid, left: &Arc<AtomicU64>) -> Result<Stream, Ended> {
    let connection = match &account.server {
        Some((host, port)) => tokio::net::TcpStream::connect((host.as_str(), *port)).await.map_err(broken)?,
        None => DnsConfig::srv_default_client(jid.domain().as_str()).resolve().await.map_err(failed)?,
    };
    let is_here = connection.peer_addr().map_err(broken)?.ip().is_loopback();
    let timeouts = Timeouts { read_timeout: SILENCE, response_timeout: client.timeout() };
    let bounded = |io: Box<dyn Io>| BufStream::new(Bounded { io, left: Arc::clone(left) });
    let open = |io: Box<dyn Io>| initiate_stream(bounded(io), ns::JABBER_CLIENT, header(jid), timeouts);
    let (mut offered, mut stream) = features(open(Box::new(connection)).await.map_err(broken)?).await?;
    if offered.can_starttls() {
        let request = XmppStreamElement::Starttls(starttls::Nonza::Request(starttls::Request));
        stream.send(&request).await.map_err(broken)?;
        loop {
            match stream.next().await {
                Some(Ok(FallibleStreamElement::Ok(XmppStreamElement::Starttls(starttls::Nonza::Proceed(_))))) => break,
                Some(Ok(_) | Err(ReadError::SoftTimeout)) => {}
                _ => return Err(broken("the server broke off before TLS was begun")),
            }
        }
        let plain = stream.into_inner().into_inner().io;
        let name = ServerName::try_from(jid.domain().as_str().to_owned()).map_err(broken)?;
        let config = client.tls().map_err(broken)?;
        let secure = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, plain).await.map_err(broken)?;
        (offered, stream) = features(open(Box::new(secure)).await.map_err(broken)?).await?;
    } else if !is_here {
        return Err(Ended::Denied("the server offers no TLS, and a password is not sent in the clear".to_owned()));
    }
    let name = jid.node().map(|node| node.as_str().to_owned()).unwrap_or_default();
    let credentials = Credentials::default()
        .with_username(name)
        .with_password(account.password.clone())
        .with_channel_binding(ChannelBinding::None);
    let reset = tokio_xmpp::client_login(stream, offered.sasl_mechanisms, credentials).await.map_err(failed)?;
    let (_, stream) = features(reset.send_header(header(jid)).await.map_err(broken)?).await?;
    Ok(stream)
}
