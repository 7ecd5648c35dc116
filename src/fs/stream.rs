//! Directory streams as the kernel reads them, with attributes or without.

use std::time::Duration;

use fuser::{Errno, FileAttr, Generation, ReplyDirectory, ReplyDirectoryPlus};

/// A listing that is being answered.
pub(super) struct Stream {
    reply: Listing,
    has_entries: bool,
}

enum Listing {
    Plain(ReplyDirectory),
    /// Names come with attributes, and count as looked up.
    Plus(ReplyDirectoryPlus, Generation),
}

impl Stream {
    pub(super) fn plain(reply: ReplyDirectory) -> Self {
        Self { reply: Listing::Plain(reply), has_entries: false }
    }

    pub(super) fn plus(reply: ReplyDirectoryPlus, generation: Generation) -> Self {
        Self { reply: Listing::Plus(reply, generation), has_entries: false }
    }

    /// Adds an entry; false if there was no room for it. Its name holds for ever.
    pub(super) fn add(&mut self, cookie: u64, name: &str, attributes: &FileAttr, ttl: &Duration) -> bool {
        let has_room = match &mut self.reply {
            Listing::Plain(reply) => !reply.add(attributes.ino, cookie, attributes.kind, name),
            Listing::Plus(reply, generation) => !reply.add(attributes.ino, cookie, name, ttl, attributes, *generation),
        };
        self.has_entries |= has_room;
        has_room
    }

    /// Whether an entry that was added counts as looked up.
    pub(super) fn looks_up(&self) -> bool {
        matches!(self.reply, Listing::Plus(..))
    }

    /// Answers. What was added before an error is listed: the next request goes on after it, and meets the error if it lasts.
    pub(super) fn end(self, result: Result<(), Errno>) {
        match (self.reply, result.err().filter(|_| !self.has_entries)) {
            (Listing::Plain(reply), None) => reply.ok(),
            (Listing::Plus(reply, _), None) => reply.ok(),
            (Listing::Plain(reply), Some(errno)) => reply.error(errno),
            (Listing::Plus(reply, _), Some(errno)) => reply.error(errno),
        }
    }
}
