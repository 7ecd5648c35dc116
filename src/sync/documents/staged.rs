//! The entries of a list of changes on the disk, as they were parsed: a list is parsed once, however often, and in whatever
//! order, its entries are read after that.

use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Seek as _, SeekFrom, Write as _};

use serde::{Deserialize, Serialize};
use tempfile::{NamedTempFile, TempPath};

use crate::document::{DocumentError, Entry};
use crate::store::Store;

/// An entry as it is written, a JSON text a line.
#[derive(Serialize, Deserialize)]
struct Line<E> {
    /// The line of the document in which it begins.
    line: u64,
    entry: E,
}

/// After how many entries the room on the disk is looked at.
const CHECK_EVERY: u32 = 10_000;

/// Entries that are being written.
pub(super) struct Staging<'s> {
    store: &'s Store,
    out: BufWriter<NamedTempFile>,
    /// How many were written since the room was looked at.
    unchecked: u32,
}

impl<'s> Staging<'s> {
    /// # Errors
    /// If the spool cannot be written.
    pub(super) fn new(store: &'s Store) -> std::io::Result<Self> {
        Ok(Self { store, out: BufWriter::new(store.spool()?), unchecked: 0 })
    }

    /// Appends an entry.
    ///
    /// # Errors
    /// If the spool cannot be written, or what is to stay free would not.
    pub(super) fn add(&mut self, entry: &Entry) -> std::io::Result<()> {
        self.unchecked += 1;
        if self.unchecked >= CHECK_EVERY {
            self.unchecked = 0;
            self.store.check_room(0)?;
        }
        serde_json::to_writer(&mut self.out, &Line { line: entry.line, entry })?;
        self.out.write_all(b"\n")
    }

    /// Ends it; `broken` is where the document breaks off.
    ///
    /// # Errors
    /// If the spool cannot be written.
    pub(super) fn finish(self, broken: Option<DocumentError>) -> std::io::Result<Staged> {
        let file = self.out.into_inner().map_err(std::io::IntoInnerError::into_error)?;
        Ok(Staged { path: file.into_temp_path(), broken })
    }
}

/// Entries that were written. Their file is deleted with this.
#[derive(Debug)]
pub(in crate::sync) struct Staged {
    path: TempPath,
    /// Where the document breaks off.
    pub(super) broken: Option<DocumentError>,
}

impl Staged {
    /// All entries in the order in which they are written.
    ///
    /// # Errors
    /// If the spool cannot be read.
    pub(super) fn entries(&self) -> std::io::Result<impl Iterator<Item = std::io::Result<Entry>>> {
        Ok(BufReader::new(File::open(&self.path)?).lines().map(|line| parse(&line?)))
    }

    /// The entries at these places, in this order.
    ///
    /// # Errors
    /// If the spool cannot be read.
    pub(super) fn at_places(
        &self,
        places: impl Iterator<Item = u32>,
    ) -> std::io::Result<impl Iterator<Item = std::io::Result<Entry>>> {
        let mut lines = BufReader::new(File::open(&self.path)?);
        let mut offsets = Vec::new();
        let mut offset = 0;
        loop {
            let length = lines.skip_until(b'\n')?;
            if length == 0 {
                break;
            }
            offsets.push(offset);
            offset += length as u64;
        }
        let offsets = places.filter_map(move |place| offsets.get(place as usize).copied());
        Ok(offsets.map(move |offset| {
            lines.seek(SeekFrom::Start(offset))?;
            let mut line = String::new();
            lines.read_line(&mut line)?;
            parse(&line)
        }))
    }
}

fn parse(line: &str) -> std::io::Result<Entry> {
    let Line { line, entry }: Line<Entry> = serde_json::from_str(line)?;
    Ok(Entry { line, ..entry })
}
