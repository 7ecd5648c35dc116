//! Directory streams as the kernel reads them, with attributes or without.

use std::time::Duration;

use fuser::{Errno, FileAttr, Generation, ReplyDirectory, ReplyDirectoryPlus};

/// A listing that is being answered.
pub(super) enum Stream {
    Plain(ReplyDirectory),
    /// Names come with attributes, and count as looked up.
    Plus(ReplyDirectoryPlus, Generation),
}

impl Stream {
    /// Adds an entry; false if there was no room for it. Its name holds for ever.
    pub(super) fn add(&mut self, cookie: u64, name: &str, attributes: &FileAttr, ttl: &Duration) -> bool {
        match self {
            Self::Plain(reply) => !reply.add(attributes.ino, cookie, attributes.kind, name),
            Self::Plus(reply, generation) => !reply.add(attributes.ino, cookie, name, ttl, attributes, *generation),
        }
    }

    /// Whether an entry that was added counts as looked up.
    pub(super) fn looks_up(&self) -> bool {
        matches!(self, Self::Plus(..))
    }

    pub(super) fn end(self, result: Result<(), Errno>) {
        match (self, result) {
            (Self::Plain(reply), Ok(())) => reply.ok(),
            (Self::Plus(reply, _), Ok(())) => reply.ok(),
            (Self::Plain(reply), Err(errno)) => reply.error(errno),
            (Self::Plus(reply, _), Err(errno)) => reply.error(errno),
        }
    }
}
