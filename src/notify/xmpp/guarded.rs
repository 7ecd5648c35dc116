//! A connection from which no more is taken than can be borne: whoever reads XML into a tree needs memory for each element, and
//! room on the stack for each level, before anybody sees what it is.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The most levels of elements: stanzas have few, Change Sets, too.
const DEEPEST: u32 = 64;
/// So many bytes of a stanza may have an element.
const BYTES_PER_ELEMENT: u64 = 24;

/// What may still come of a stanza.
#[derive(Debug)]
pub(super) struct Allowance {
    most: u64,
    bytes: AtomicU64,
    elements: AtomicU64,
}

impl Allowance {
    /// Stanzas of so many bytes.
    pub(super) fn new(most: u64) -> Arc<Self> {
        let all = Self { most, bytes: AtomicU64::new(0), elements: AtomicU64::new(0) };
        Arc::new(all)
    }

    /// A stanza has come. Returns its bytes, as far as they are known: those after it may be counted.
    pub(super) fn renew(&self) -> u64 {
        self.elements.store(0, Ordering::Release);
        self.bytes.swap(0, Ordering::AcqRel)
    }

    fn take(&self, bytes: u64, elements: u64) -> Result<(), &'static str> {
        let bytes = self.bytes.fetch_add(bytes, Ordering::AcqRel).saturating_add(bytes);
        let elements = self.elements.fetch_add(elements, Ordering::AcqRel).saturating_add(elements);
        match () {
            () if bytes > self.most => Err("a stanza is larger than limit_delivery allows"),
            () if elements > self.most / BYTES_PER_ELEMENT => {
                Err("a stanza has more elements than limit_delivery allows")
            }
            () => Ok(()),
        }
    }
}

/// Where in XML a byte is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Text,
    /// After `<`.
    Opened,
    /// In a tag: within a value, the quote that ends it; and whether the last byte was `/`.
    Tag { quote: Option<u8>, slash: bool, ends: bool },
    /// In `<!...`, which XMPP has for CDATA alone: so many bytes of `]]>` in a row.
    Marked(u8),
    /// In `<?...`.
    Instruction,
}

/// How deep XML is, byte by byte.
#[derive(Debug, Default)]
struct Depth {
    place: Place,
    now: u32,
    elements: u64,
}

impl Depth {
    /// Goes on; an error where it is too deep.
    fn take(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
        for byte in bytes {
            self.place = match (self.place, *byte) {
                (Place::Text, b'<') => Place::Opened,
                (Place::Text, _) => Place::Text,
                (Place::Opened, b'/') => Place::Tag { quote: None, slash: false, ends: true },
                (Place::Opened, b'!') => Place::Marked(0),
                (Place::Opened, b'?') => Place::Instruction,
                (Place::Opened, _) => {
                    self.now += 1;
                    self.elements += 1;
                    if self.now > DEEPEST {
                        return Err("it nests elements deeper than anything that is read here");
                    }
                    Place::Tag { quote: None, slash: false, ends: false }
                }
                (Place::Tag { quote: Some(quote), ends, .. }, byte) => {
                    let quote = Some(quote).filter(|quote| *quote != byte);
                    Place::Tag { quote, slash: false, ends }
                }
                (Place::Tag { slash, ends, .. }, b'>') => {
                    if slash || ends {
                        self.now = self.now.saturating_sub(1);
                    }
                    Place::Text
                }
                (Place::Tag { ends, .. }, quote @ (b'"' | b'\'')) => {
                    Place::Tag { quote: Some(quote), slash: false, ends }
                }
                (Place::Tag { ends, .. }, byte) => Place::Tag { quote: None, slash: byte == b'/', ends },
                (Place::Marked(2), b'>') => Place::Text,
                (Place::Marked(seen), b']') => Place::Marked((seen + 1).min(2)),
                (Place::Marked(_), _) => Place::Marked(0),
                (Place::Instruction, b'>') => Place::Text,
                (Place::Instruction, _) => Place::Instruction,
            };
        }
        Ok(())
    }
}

/// A connection, of whatever kind.
pub(super) trait Io: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

/// A connection that is looked at.
pub(super) struct Guarded {
    pub(super) io: Box<dyn Io>,
    allowance: Arc<Allowance>,
    depth: Depth,
}

impl Guarded {
    pub(super) fn new(io: Box<dyn Io>, allowance: &Arc<Allowance>) -> Self {
        Self { io, allowance: Arc::clone(allowance), depth: Depth::default() }
    }
}

impl AsyncRead for Guarded {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = to.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(context, to);
        let came = &to.filled()[before..];
        let counted = self.depth.elements;
        let taken = self.depth.take(came);
        let taken = taken.and_then(|()| self.allowance.take(came.len() as u64, self.depth.elements - counted));
        match taken {
            Ok(()) => polled,
            Err(why) => Poll::Ready(Err(io::Error::other(why))),
        }
    }
}

impl AsyncWrite for Guarded {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_is_what_a_parser_would_say() {
        for (text, now, elements) in [
            ("<?xml version='1.0'?><stream:stream a='>' b=\"'</x>\">", 1, 1),
            ("<a><b/><c></c>", 1, 3),
            ("<a/><a b='/'><c d=\"/>\"/>text/></a>", 0, 3),
            ("<a><![CDATA[<b><c>]]]]>]]]><b>", 2, 2),
            ("<a><b / ><c/></b ><d a = '/' >", 2, 4),
        ] {
            let mut whole = Depth::default();
            whole.take(text.as_bytes()).unwrap();
            let mut pieces = Depth::default();
            text.as_bytes().chunks(1).for_each(|byte| pieces.take(byte).unwrap());
            let found = |depth: &Depth| (depth.now, depth.elements);
            assert_eq!((found(&whole), found(&pieces)), ((now, elements), (now, elements)), "{text}");
        }
        let deep = "<a>".repeat(DEEPEST as usize + 1);
        assert!(Depth::default().take(deep.as_bytes()).is_err());
        assert!(Depth::default().take("<a></a>".repeat(10_000).as_bytes()).is_ok());
    }

    #[test]
    fn a_stanza_has_so_many_bytes_and_elements() {
        let allowance = Allowance::new(1000);
        assert!(allowance.take(900, 10).is_ok());
        assert_eq!(allowance.renew(), 900);
        assert!(allowance.take(900, 41).is_ok());
        assert!(allowance.take(10, 1).is_err());
        allowance.renew();
        assert!(allowance.take(1001, 0).is_err());
    }
}
