//! A list, read on a thread of its own while what was read before is written.
//!
//! Reading an entry, with all that is asked of a document from outside, costs as much as writing its rows. With
//! both on one thread, 3.77 million entries took 20 s after they were here; side by side, as long as the
//! slower of the two. Reading is the slower, and the next list is begun while one is written: what both threads leave of the
//! processors is used, and writing need not wait where one list ends. Batches go back to be dropped where they were made: memory that one thread takes and
//! another frees makes both wait.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::thread::Scope;

use super::fetch;
use super::fetch::{Budget, Described};
use super::spooled::Spooled;
use crate::bounds::Beyond;
use crate::catalog::{CatalogError, Record};
use crate::document::{Datetime, Entry, Facts, Warnings};
use crate::path::Mapper;
use crate::sync::status::Status;

/// How many entries go over at once.
const BATCH: usize = 256;
/// How many bytes of a list: entries may be large.
const BATCH_BYTES: u64 = 256 << 10;
/// How many batches the reading of a list may be ahead of the writing: 8,192 entries, some 4 MB.
const AHEAD: usize = 32;

/// What some entries of a list say of resources, in its order.
#[derive(Default)]
pub(in crate::sync) struct Batch {
    pub(in crate::sync) records: Vec<Record>,
    /// The line of each.
    pub(in crate::sync) lines: Vec<u64>,
    /// The entries themselves, if they are wanted.
    pub(in crate::sync) entries: Vec<Entry>,
}

impl Batch {
    /// Makes room for others.
    fn clear(&mut self) {
        let Self { records, lines, entries } = self;
        records.clear();
        lines.clear();
        entries.clear();
    }
}

/// How a list was read.
#[derive(Default)]
pub(in crate::sync) struct Read {
    /// The number of entries, of those passed over too.
    pub(in crate::sync) entries: u64,
    /// Whether it was read to its end.
    pub(in crate::sync) whole: bool,
    /// What ended the reading of all lists.
    beyond: Option<Beyond>,
    /// What was tolerated.
    pub(in crate::sync) warnings: Warnings,
}

/// A list to be read, and where it goes.
struct Job {
    document: Arc<Spooled>,
    whole_entries: bool,
    batches: SyncSender<Batch>,
    spent: Receiver<Batch>,
    read: Sender<Read>,
}

/// Two threads that read lists: one that is written now, and the next.
///
/// As many for all lists of a step: with a thread for each list, the memory that each of them had stayed with the allocator,
/// 229 MiB at worst.
pub(in crate::sync) struct Readers {
    jobs: [Sender<Job>; 2],
    /// Whose turn it is.
    next: usize,
}

impl Readers {
    /// Starts the threads. They end when this is gone.
    pub(in crate::sync) fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        mapper: &'scope Mapper,
        status: &'scope Status,
        budget: &'scope Budget,
    ) -> std::io::Result<Self> {
        let start = || {
            let (jobs, coming) = mpsc::channel::<Job>();
            std::thread::Builder::new().name("list".to_owned()).spawn_scoped(scope, move || {
                for job in coming {
                    let parse = std::panic::AssertUnwindSafe(|| parse(&job, mapper, status, budget));
                    if let Ok(read) = std::panic::catch_unwind(parse) {
                        // Whoever writes may have failed, and says so.
                        let _ = job.read.send(read);
                    }
                }
            })?;
            Ok::<_, std::io::Error>(jobs)
        };
        Ok(Self { jobs: [start()?, start()?], next: 0 })
    }

    /// Begins to read a list, with the entries themselves if `whole_entries` says so. What is wrong with the list is told to
    /// the status.
    pub(in crate::sync) fn begin(
        &mut self,
        document: Arc<Spooled>,
        whole_entries: bool,
    ) -> Result<Reading, CatalogError> {
        let (batches, coming) = mpsc::sync_channel(AHEAD);
        let (give_back, spent) = mpsc::channel();
        let (read, whole) = mpsc::channel();
        let job = Job { document: Arc::clone(&document), whole_entries, batches, spent, read };
        // The threads take jobs as long as this is there.
        let _ = self.jobs[self.next].send(job);
        self.next = 1 - self.next;
        Ok(Reading { document, coming, give_back, whole })
    }
}

/// A list that is being read.
pub(in crate::sync) struct Reading {
    document: Arc<Spooled>,
    coming: Receiver<Batch>,
    give_back: Sender<Batch>,
    whole: Receiver<Read>,
}

impl Reading {
    /// Gives the list away in batches, until `take` fails.
    ///
    /// # Errors
    /// As `take`, or if all lists together have more entries than are read.
    pub(in crate::sync) fn give(
        self,
        status: &Status,
        mut take: impl FnMut(&Batch) -> Result<(), CatalogError>,
    ) -> Result<Read, CatalogError> {
        let Self { document, coming, give_back, whole } = self;
        for batch in coming {
            take(&batch)?;
            // Whoever read the list may be done with it.
            let _ = give_back.send(batch);
        }
        let mut read = whole.recv().unwrap_or_else(|_| {
            // Nothing that it left out is taken for gone.
            let url = &document.row.url;
            status.error(&format!("{url}: a mistake of ours ended the reading of this list; see the log"));
            Read::default()
        });
        read.beyond.take().map_or(Ok(read), |beyond| Err(beyond.into()))
    }
}

fn parse(job: &Job, mapper: &Mapper, status: &Status, budget: &Budget) -> Read {
    let Job { document, batches, spent, .. } = job;
    let row = &document.row;
    let mut read = Read::default();
    let reader = document.entries(&row.url).inspect_err(|error| status.error(&error.to_string()));
    let Ok(mut reader) = reader else { return read };
    let at = document.at().unwrap_or_else(Datetime::now);
    if document.at().is_none() {
        reader.warnings_mut().push(0, "the list has no `at`; when its snapshot began is not known");
    }
    let mut batch = Batch::default();
    let mut begun = 0;
    loop {
        let entry = match reader.next() {
            Ok(Some(entry)) => entry,
            Ok(None) => {
                read.whole = true;
                break;
            }
            Err(error) => {
                status.error(&format!("{error}; what it lists before that is kept, and nothing is deleted"));
                break;
            }
        };
        if let Err(beyond) = budget.take() {
            read.beyond = Some(beyond);
            break;
        }
        read.entries += 1;
        let facts = Facts::of_entry(&entry, reader.warnings_mut());
        let described = Described { entry: &entry, facts: &facts };
        if let Some(record) = fetch::resource(mapper, document, described, at, reader.warnings_mut()) {
            batch.records.push(record);
            batch.lines.push(entry.line);
            if job.whole_entries {
                batch.entries.push(entry);
            }
        }
        if batch.records.len() == BATCH || reader.consumed() - begun > BATCH_BYTES && !batch.records.is_empty() {
            begun = reader.consumed();
            if batches.send(batch).is_err() {
                // Whoever writes has failed, and says so.
                return read;
            }
            batch = spent.try_recv().unwrap_or_default();
            spent.try_iter().for_each(drop);
            batch.clear();
        }
    }
    if !batch.records.is_empty() && batches.send(batch).is_err() {
        read.whole = false;
    }
    read.warnings = std::mem::take(reader.warnings_mut());
    read
}
