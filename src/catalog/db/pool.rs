//! Connections that read, and the gate that they pass.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;

use crate::catalog::db::schema;
use crate::catalog::error::CatalogError;
use crate::path::Mapper;

type Result<T> = std::result::Result<T, CatalogError>;

/// One connection's view of the catalog.
#[derive(Debug)]
pub struct Reader {
    connection: Connection,
    mapper: Arc<Mapper>,
}

impl Reader {
    pub(in crate::catalog) fn open(path: &Path, mapper: Arc<Mapper>) -> Result<Self> {
        Ok(Self { connection: schema::open_reader(path)?, mapper })
    }

    pub(in crate::catalog) fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(in crate::catalog) fn mapper(&self) -> &Mapper {
        &self.mapper
    }
}

/// Readers that threads borrow, as many as there are threads that ask at once.
#[derive(Debug)]
pub struct Pool {
    path: PathBuf,
    mapper: Arc<Mapper>,
    idle: Mutex<Vec<Reader>>,
    gate: Arc<Gate>,
}

/// What readers pass before they begin. It is closed while the writer empties the write-ahead log, which it can do only when
/// no one is reading. The lock is held for an assignment.
#[derive(Debug, Default)]
pub(in crate::catalog) struct Gate {
    is_closed: AtomicBool,
    lock: Mutex<()>,
    opened: Condvar,
    /// The number of transactions committed since the catalog was opened.
    commits: AtomicU64,
}

/// After so many steps of SQLite's machine the time of a question is checked. They take some tens of µs for pages in memory;
/// from a slow disk, a question can take longer than its limit.
pub(in crate::catalog) const STEPS: i32 = 1000;

/// The longest that a reader waits there: one who asks while another of his questions is being answered must get through.
const AT_GATE: Duration = Duration::from_millis(250);

impl Gate {
    /// Closes it until what is returned is dropped.
    pub(in crate::catalog) fn close(&self) -> impl Drop + '_ {
        self.is_closed.store(true, Ordering::Release);
        Closed(self)
    }

    /// Counts a committed transaction.
    pub(in crate::catalog) fn committed(&self) {
        self.commits.fetch_add(1, Ordering::Release);
    }

    fn pass(&self) {
        if !self.is_closed.load(Ordering::Acquire) {
            return;
        }
        let is_closed = |_: &mut ()| self.is_closed.load(Ordering::Acquire);
        self.opened.wait_while_for(&mut self.lock.lock(), is_closed, AT_GATE);
    }
}

/// A gate that is closed as long as this lives.
struct Closed<'g>(&'g Gate);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        let _lock = self.0.lock.lock();
        self.0.is_closed.store(false, Ordering::Release);
        self.0.opened.notify_all();
    }
}

impl Pool {
    pub(in crate::catalog) fn new(path: PathBuf, mapper: Arc<Mapper>, gate: Arc<Gate>) -> Self {
        Self { path, mapper, idle: Mutex::new(Vec::new()), gate }
    }

    /// The number of transactions committed since the catalog was opened. As long as it is the same, names and versions are.
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.gate.commits.load(Ordering::Acquire)
    }

    /// Asks the catalog something.
    ///
    /// # Errors
    /// If a connection cannot be opened, or what `question` returns.
    pub fn ask<T>(&self, question: impl FnOnce(&Reader) -> Result<T>) -> Result<T> {
        let reader = self.borrow()?;
        let answer = question(&reader);
        self.give_back(reader);
        answer
    }

    /// Asks the catalog something that any user may ask, and gives up after so long.
    ///
    /// # Errors
    /// As [`Self::ask`]; `Slow` if it took longer.
    pub fn ask_within<T>(&self, limit: Duration, question: impl FnOnce(&Reader) -> Result<T>) -> Result<T> {
        let mut reader = self.borrow()?;
        let end = Instant::now() + limit;
        reader.connection.progress_handler(STEPS, Some(move || Instant::now() > end))?;
        let answer = question(&reader);
        reader.connection.progress_handler(0, None::<fn() -> bool>)?;
        self.give_back(reader);
        answer.map_err(|error| match error {
            CatalogError::Sqlite(rusqlite::Error::SqliteFailure(cause, _))
                if cause.code == rusqlite::ErrorCode::OperationInterrupted =>
            {
                CatalogError::Slow(limit)
            }
            other => other,
        })
    }

    fn borrow(&self) -> Result<Reader> {
        self.gate.pass();
        let idle = self.idle.lock().pop();
        match idle {
            Some(reader) => Ok(reader),
            None => Reader::open(&self.path, Arc::clone(&self.mapper)),
        }
    }

    fn give_back(&self, reader: Reader) {
        self.idle.lock().push(reader);
    }
}
