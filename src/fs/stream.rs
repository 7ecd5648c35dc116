//! Directory listings as the kernel reads them, with attributes or without.

use std::time::Duration;

use fuser::{Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};

use super::attributes::Attributes;
use super::error::FsError;
use super::listing::Sink;
use super::owner::{Owner, fuse_type};
use super::reply::errno;

/// A listing that is being answered.
pub(super) struct Stream {
    reply: Reply,
    has_entries: bool,
}

enum Reply {
    Plain(ReplyDirectory),
    /// Names come with attributes, and count as looked up.
    Plus(ReplyDirectoryPlus, Owner, Generation),
}

impl Stream {
    pub(super) fn plain(reply: ReplyDirectory) -> Self {
        Self { reply: Reply::Plain(reply), has_entries: false }
    }

    pub(super) fn plus(reply: ReplyDirectoryPlus, owner: Owner, generation: Generation) -> Self {
        Self { reply: Reply::Plus(reply, owner, generation), has_entries: false }
    }
}

impl Sink for Stream {
    fn add(&mut self, cookie: u64, name: &str, attributes: &Attributes, ttl: Duration) -> bool {
        let is_full = match &mut self.reply {
            Reply::Plain(reply) => reply.add(INodeNo(attributes.ino), cookie, fuse_type(attributes.kind), name),
            Reply::Plus(reply, owner, generation) => {
                reply.add(INodeNo(attributes.ino), cookie, name, &ttl, &owner.attributes(attributes), *generation)
            }
        };
        self.has_entries |= !is_full;
        !is_full
    }

    fn looks_up(&self) -> bool {
        matches!(self.reply, Reply::Plus(..))
    }

    /// What was added before an error is listed: the next request continues after it, and meets the error if it lasts.
    fn end(self, result: Result<(), FsError>) {
        let errno = result.err().map(|error| errno(&error)).filter(|_| !self.has_entries);
        match (self.reply, errno) {
            (Reply::Plain(reply), None) => reply.ok(),
            (Reply::Plus(reply, ..), None) => reply.ok(),
            (Reply::Plain(reply), Some(errno)) => reply.error(errno),
            (Reply::Plus(reply, ..), Some(errno)) => reply.error(errno),
        }
    }
}
