//! The tables, their versions, and how one becomes the next.

use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::catalog::error::CatalogError;
use crate::catalog::model::inode::ROOT;

/// The file name of the database in the cache directory.
pub const DATABASE: &str = "catalog.db";

/// Each step brings a database of that number to the next; a new one goes through all of them.
const STEPS: [&str; 15] = ["
    CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

    -- A set of resources: one Capability List, or one list where there is none.
    CREATE TABLE rset (
        id INTEGER PRIMARY KEY,
        key TEXT NOT NULL UNIQUE,       -- the URL of what describes it
        label TEXT NOT NULL,            -- its directory's name, where there are several
        directory INTEGER NOT NULL,     -- the name below which its resources lie
        state TEXT NOT NULL,
        cursor INTEGER,                 -- the smallest `at` of what the baseline was made from
        at INTEGER,                     -- the `at` of the newest list that was applied
        synced INTEGER,                 -- when the last sync ended, by our clock
        resources INTEGER NOT NULL DEFAULT 0,
        held INTEGER,                   -- deletions held back until another complete list agrees
        held_edition TEXT               -- the edition of the list that left them out
    );

    -- A document that the tree was made from, with its validators.
    CREATE TABLE document (
        id INTEGER PRIMARY KEY,
        rset INTEGER NOT NULL,
        url TEXT NOT NULL,
        etag TEXT,
        last_modified TEXT,
        at INTEGER,
        part INTEGER NOT NULL,          -- whether an index named it
        entries INTEGER NOT NULL,
        UNIQUE (rset, url)
    );

    -- A name in a directory. Rows stay when they are no longer live: directory cookies are their ids.
    CREATE TABLE name (
        id INTEGER PRIMARY KEY,
        parent INTEGER NOT NULL,
        name TEXT NOT NULL,
        rset INTEGER NOT NULL,
        uri TEXT,                       -- where the path does not determine it
        version INTEGER,                -- the current version, of a live file
        live INTEGER NOT NULL DEFAULT 0,-- the number of live names in it, of a directory
        changed INTEGER NOT NULL DEFAULT 0,
        UNIQUE (parent, name)
    );

    -- One version of one resource, in force from `begin` until `until`.
    CREATE TABLE version (
        id INTEGER PRIMARY KEY,
        name INTEGER NOT NULL,
        document INTEGER NOT NULL,      -- that listed it last
        begin INTEGER NOT NULL,
        until INTEGER,                  -- NULL: in force
        mtime INTEGER NOT NULL,
        dated INTEGER NOT NULL,         -- where mtime is from: 0 the list, 1 lastmod, 2 the change
        size INTEGER,                   -- of what a reader gets; NULL: not known yet
        settled INTEGER NOT NULL DEFAULT 0, -- whether the size is what we found, not what the Source lists
        hashes BLOB,
        media INTEGER,
        extra TEXT,
        object INTEGER,                 -- the content, where it is in the store
        served BLOB                     -- the SHA-256 of the content that it ever had
    );

    CREATE TABLE media (id INTEGER PRIMARY KEY, type TEXT NOT NULL UNIQUE);

    -- Content in the store.
    CREATE TABLE object (
        id INTEGER PRIMARY KEY,
        sha256 BLOB NOT NULL UNIQUE,
        size INTEGER NOT NULL,
        used INTEGER NOT NULL,
        verified INTEGER NOT NULL,      -- whether a hash or a length of the Source agreed
        durable INTEGER NOT NULL        -- whether it is known to have reached the disk
    );
    CREATE INDEX object_used ON object (used);
    CREATE INDEX version_object ON version (object) WHERE object IS NOT NULL;

    -- Names whose content, and that of all below, is kept.
    CREATE TABLE pin (name INTEGER PRIMARY KEY);
", "
    ALTER TABLE rset ADD COLUMN seed TEXT;      -- what it was first filled from
    ALTER TABLE rset ADD COLUMN why TEXT;       -- why from that
    ALTER TABLE document ADD COLUMN package INTEGER; -- of which it is the manifest

    -- A package of a dump. Numbers are never used twice: files are named by them.
    CREATE TABLE package (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        rset INTEGER NOT NULL,
        url TEXT NOT NULL,
        edition TEXT NOT NULL,          -- what its dump says of it
        validator TEXT,                 -- of the bytes that are here
        length INTEGER,                 -- as listed
        hashes BLOB,
        at INTEGER,
        size INTEGER,                   -- as found
        bytes INTEGER NOT NULL DEFAULT 0,   -- that are here
        whole INTEGER NOT NULL DEFAULT 0,   -- whether all of it is here
        indexed INTEGER NOT NULL DEFAULT 0, -- whether versions were given its members
        wanted INTEGER NOT NULL DEFAULT 0,  -- whether it is to be brought here ahead of use
        doubtful INTEGER NOT NULL DEFAULT 0,-- whether it is not what its dump says
        epoch INTEGER NOT NULL DEFAULT 0,   -- how often its bytes were begun anew
        durable INTEGER NOT NULL DEFAULT 0, -- whether it is known to have reached the disk
        used INTEGER NOT NULL DEFAULT 0,
        UNIQUE (rset, url, edition)
    );

    -- Where in a package the content of a version lies.
    CREATE TABLE member (
        version INTEGER PRIMARY KEY,
        package INTEGER NOT NULL,
        header INTEGER NOT NULL,        -- the offset of its local header
        compressed INTEGER NOT NULL,
        size INTEGER NOT NULL,
        crc INTEGER NOT NULL,
        name_length INTEGER NOT NULL,
        deflated INTEGER NOT NULL,
        hashes BLOB,                    -- as the manifest has them, where the version's are others
        coded INTEGER NOT NULL,         -- whether a content coding is to be undone
        state INTEGER NOT NULL          -- 0 nobody looked, 1 here and verified, 2 damaged, 3 here, and nothing to hold it to
    );
    CREATE INDEX member_package ON member (package, header);
", "
    -- How a version came: 1 created, 2 updated; plus 4 if the change had a time of its own; plus 8 if no
    -- change said so, but the next edition of a list. NULL: with the first lists, or made by ourselves.
    ALTER TABLE version ADD COLUMN change INTEGER;
    -- How its resource went: 3 deleted, with the same bits. NULL: it is in force, or was superseded.
    ALTER TABLE version ADD COLUMN gone INTEGER;
    ALTER TABLE version ADD COLUMN came INTEGER;    -- the sync that brought it, but for a set's first
    ALTER TABLE version ADD COLUMN went INTEGER;    -- the sync in which its resource went
    CREATE INDEX version_past ON version (name, begin, id) WHERE until IS NOT NULL;
    CREATE INDEX version_gone ON version (name, until) WHERE gone IS NOT NULL;
    CREATE INDEX version_came ON version (came) WHERE came IS NOT NULL;
    CREATE INDEX version_went ON version (went) WHERE went IS NOT NULL;

    ALTER TABLE package ADD COLUMN changes INTEGER NOT NULL DEFAULT 0; -- whether it is of a Change Dump
    ALTER TABLE rset ADD COLUMN follows TEXT;       -- what its changes came from last
    ALTER TABLE rset ADD COLUMN follows_why TEXT;   -- and why from that

    -- Where in a package a patch lies that makes a version of the one before it.
    CREATE TABLE patch (
        version INTEGER NOT NULL,
        package INTEGER NOT NULL,
        header INTEGER NOT NULL,
        compressed INTEGER NOT NULL,
        size INTEGER NOT NULL,
        crc INTEGER NOT NULL,
        name_length INTEGER NOT NULL,
        deflated INTEGER NOT NULL,
        type TEXT NOT NULL,
        PRIMARY KEY (version, package, header)
    ) WITHOUT ROWID;
    CREATE INDEX patch_package ON patch (package);

    -- Syncs that changed something, each a step.
    CREATE TABLE sync (
        id INTEGER PRIMARY KEY,
        rset INTEGER NOT NULL,
        time INTEGER NOT NULL,          -- when, by our clock
        how TEXT NOT NULL,              -- from what
        added INTEGER NOT NULL,
        updated INTEGER NOT NULL,
        deleted INTEGER NOT NULL
    );

    -- What a set offers, as discovery found it last.
    CREATE TABLE offer (
        rset INTEGER NOT NULL,
        capability TEXT NOT NULL,
        url TEXT NOT NULL,
        PRIMARY KEY (rset, capability, url)
    ) WITHOUT ROWID;

    -- A Change List or Change Dump that is followed.
    CREATE TABLE feed (
        rset INTEGER NOT NULL,
        root TEXT NOT NULL,             -- where the Capability List says it is
        capability TEXT NOT NULL,
        url TEXT NOT NULL,              -- what is asked for now: an open list, an index, a dump
        etag TEXT,
        last_modified TEXT,
        above TEXT,                     -- where to look when that is done or gone
        closed INTEGER NOT NULL DEFAULT 0,  -- whether it is done
        cursor INTEGER,                 -- all changes up to then are in the tree
        read BLOB NOT NULL DEFAULT x'', -- of the last lists, how many entries are in the tree, and their digest
        failure TEXT,                   -- why it could not be followed to its end
        PRIMARY KEY (rset, root)
    ) WITHOUT ROWID;
", "
    -- Of a directory: no version at or below it began earlier, and where nothing is live, none was in force from
    -- `died` on. Of a name that never was a directory, NULL, or the last and the first moment there are.
    ALTER TABLE name ADD COLUMN born INTEGER;
    ALTER TABLE name ADD COLUMN died INTEGER;
    ALTER TABLE version ADD COLUMN ended INTEGER;   -- when it was superseded or went, by our clock
    ALTER TABLE version ADD COLUMN rank INTEGER;    -- whose turn it has for a name among versions; NULL: its own
    UPDATE version SET ended = unixepoch() * 1000000000 WHERE until IS NOT NULL;
    -- What only archives tell of: `change` is 16 and more.
    CREATE INDEX version_archived ON version (name, begin) WHERE change >= 16;

    -- Where a version can be had under a URL that is its alone (RFC 7089).
    CREATE TABLE memento (
        version INTEGER NOT NULL,
        url TEXT NOT NULL,
        datetime INTEGER,               -- its Memento-Datetime, if it is known
        negotiated INTEGER NOT NULL,    -- whether the URL gives it only if asked with that time
        sure INTEGER,                   -- known to be the one in force at this moment, not longer; NULL: until the next
        gone INTEGER NOT NULL DEFAULT 0,-- when the server said that it is no more, by our clock
        original INTEGER NOT NULL DEFAULT 0, -- whether the bytes came from where an archive has the original ones
        PRIMARY KEY (version, url)
    ) WITHOUT ROWID;

    -- What a Source was asked of the versions of a resource.
    CREATE TABLE timemap (
        name INTEGER PRIMARY KEY,
        url TEXT NOT NULL,
        etag TEXT,
        last_modified TEXT,
        read INTEGER NOT NULL           -- when, by our clock
    );
", "
    ALTER TABLE offer ADD COLUMN hubs TEXT;     -- of a channel: the URLs of its hubs, a JSON text
    DELETE FROM meta WHERE key = 'discovered';  -- what is offered is looked at anew: it may have hubs

    -- A channel of notifications.
    CREATE TABLE channel (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        rset INTEGER NOT NULL,
        url TEXT NOT NULL,              -- the topic, or where the WebSocket is
        capability TEXT NOT NULL,
        cursor INTEGER,                 -- its notifications are in the tree up to then, without a gap
        callback TEXT,                  -- the URL that the hub delivers to
        token TEXT,                     -- its path's last segment
        secret TEXT,                    -- what the hub signs deliveries with
        hub TEXT,
        topic TEXT,                     -- as the hub knows it
        expires INTEGER,                -- when the lease ends, by our clock
        UNIQUE (rset, url, capability)
    );

    -- What was delivered on a channel.
    CREATE TABLE delivery (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        channel INTEGER NOT NULL,
        came INTEGER NOT NULL,          -- when, by our clock
        kind INTEGER NOT NULL,          -- 0 a ping, 1 all changes of an interval, 2 changes
        since INTEGER,                  -- the interval
        until INTEGER,
        dated INTEGER NOT NULL,         -- whether each change has a time of its own
        digest BLOB NOT NULL,           -- the SHA-256 of the body
        body BLOB NOT NULL,             -- as long as it is not in the tree
        done INTEGER NOT NULL DEFAULT 0 -- whether it is
    );
    CREATE INDEX delivery_digest ON delivery (channel, digest);
    CREATE INDEX delivery_waiting ON delivery (channel, id) WHERE NOT done;
", "
    -- From here on, `born` and `died` of a name that never was a directory are NULL: programs before this one cannot read that.
", "
    -- Whether a package is no ZIP file where it comes from, and is written as one here.
    ALTER TABLE package ADD COLUMN recast INTEGER NOT NULL DEFAULT 0;
    -- Of a file 1, if the filter leaves it out; of a directory, how many live names in it are not shown.
    ALTER TABLE name ADD COLUMN hidden INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE rset ADD COLUMN left_out INTEGER NOT NULL DEFAULT 0; -- how many of its resources are not shown
", "
    -- When a complete list was made that is known.
    CREATE TABLE snapshot (
        rset INTEGER NOT NULL,
        at INTEGER NOT NULL,
        own INTEGER NOT NULL,           -- whether the tree was made from it, or held to it
        PRIMARY KEY (rset, at)
    ) WITHOUT ROWID;
    INSERT INTO snapshot SELECT id, at, 1 FROM rset WHERE at IS NOT NULL;

    -- A document of an archive that is in the history.
    CREATE TABLE archived (
        rset INTEGER NOT NULL,
        url TEXT NOT NULL,
        capability TEXT NOT NULL,
        begin INTEGER NOT NULL,         -- when its snapshot, or its interval, began; the first moment there is, if that is not told
        failure TEXT,                   -- why not all of it is
        PRIMARY KEY (rset, url, capability, begin)
    ) WITHOUT ROWID;

    -- What was not followed, until a newer list told what had come of it.
    CREATE TABLE gap (rset INTEGER NOT NULL, begin INTEGER NOT NULL, until INTEGER NOT NULL, PRIMARY KEY (rset, begin)) WITHOUT ROWID;
    ALTER TABLE package ADD COLUMN archived INTEGER NOT NULL DEFAULT 0; -- whether an archive has it
", "
    -- However many versions a resource has, a change of it looks at few of them. All but the last one are of superseded
    -- versions alone, so that resources that never changed cost nothing.
    CREATE INDEX version_ended ON version (name, until) WHERE until IS NOT NULL AND COALESCE(change, 0) < 16;
    CREATE INDEX version_lived ON version (name, begin) WHERE until > begin AND COALESCE(change, 0) < 16;
    CREATE INDEX version_bytes ON version (name, hashes, change) WHERE until IS NOT NULL AND hashes IS NOT NULL;
    CREATE INDEX version_at_once ON version (name, begin, change, hashes) WHERE until = begin;
    DROP INDEX version_gone;
    CREATE INDEX version_gone ON version (name, gone, until) WHERE gone IS NOT NULL;
    CREATE INDEX delivery_done ON delivery (channel, id) WHERE done;

    -- What resources link to by relations that are looked up: 1 the canonical URI, where that is not its own; 2 a collection
    -- that it is a member of. `id` is a part of the URI's SHA-256, or the next number that is free.
    CREATE TABLE target (
        id INTEGER PRIMARY KEY,
        uri TEXT NOT NULL UNIQUE,
        label TEXT,                     -- what a collection is called by the last part of its URI,
        long_label TEXT                 -- and where that is another's, too
    );
    CREATE INDEX target_collection ON target (id) WHERE label IS NOT NULL;
    CREATE INDEX target_label ON target (label);
    CREATE INDEX target_long_label ON target (long_label);
    -- Of the current version of a resource.
    CREATE TABLE link (
        version INTEGER NOT NULL,
        relation INTEGER NOT NULL,
        target INTEGER NOT NULL,
        PRIMARY KEY (version, relation, target)
    ) WITHOUT ROWID;
    CREATE INDEX link_target ON link (target, relation, version);
    CREATE TRIGGER link_superseded AFTER UPDATE OF until ON version WHEN OLD.until IS NULL AND NEW.until IS NOT NULL
        BEGIN DELETE FROM link WHERE version = OLD.id; END;
    CREATE TRIGGER target_unused AFTER DELETE ON link WHEN NOT EXISTS (SELECT 1 FROM link WHERE target = OLD.target)
        BEGIN DELETE FROM target WHERE id = OLD.target; END;
", "
    -- Inserts into an index by digest touch random pages: with millions of versions of one resource, 60,000 more wrote 340 MiB
    -- to the write-ahead log. Only versions that are searched by digest are indexed: those of changes without a time, and
    -- those whose content is in the store.
    DROP INDEX version_bytes;
    CREATE INDEX version_undated ON version (name, hashes, change)
        WHERE until IS NOT NULL AND hashes IS NOT NULL AND change < 4;
    CREATE INDEX version_here ON version (name, hashes) WHERE until IS NOT NULL AND object IS NOT NULL;
", "
    ALTER TABLE document ADD COLUMN next TEXT;      -- the page that continues it
    -- The documents are read again: they may have further pages.
    UPDATE document SET etag = NULL, last_modified = NULL;
    -- A feed that was closed is read again, and found to be.
    UPDATE feed SET etag = NULL, last_modified = NULL WHERE closed;
    -- Beginnings of lists have other digests from here on.
    UPDATE feed SET read = x'';
    ALTER TABLE feed DROP COLUMN closed;
    ALTER TABLE feed ADD COLUMN until INTEGER;      -- the end of the interval of what is asked for, as it gives it
    ALTER TABLE feed ADD COLUMN beside TEXT;        -- the index of an open list
    ALTER TABLE feed ADD COLUMN beside_etag TEXT;
    ALTER TABLE feed ADD COLUMN beside_last_modified TEXT;
    ALTER TABLE feed ADD COLUMN lost INTEGER;       -- since then changes may be missing before those that it lists
    ALTER TABLE feed ADD COLUMN edition_url TEXT;   -- the list that the edition is of
    ALTER TABLE feed ADD COLUMN edition BLOB NOT NULL DEFAULT x''; -- of a list with undated changes: a digest of each entry
", "
    -- What the server said of the content of a current version of which neither a hash nor a time of modification is listed, or no
    -- media type.
    CREATE TABLE validators (
        version INTEGER PRIMARY KEY,
        etag TEXT,
        last_modified TEXT,
        media INTEGER,
        checked INTEGER NOT NULL        -- when it came, or was found unchanged, by our clock
    );
    CREATE TRIGGER validators_superseded AFTER UPDATE OF until ON version WHEN OLD.until IS NULL AND NEW.until IS NOT NULL
        BEGIN DELETE FROM validators WHERE version = OLD.id; END;
    INSERT INTO meta (key, value) SELECT 'timeless', 'yes'
        WHERE EXISTS (SELECT 1 FROM version WHERE until IS NULL AND dated != 1 AND hashes IS NULL);
", "
    ALTER TABLE feed ADD COLUMN missed INTEGER;     -- since when it has been gone, by our clock
", "
    -- Changes from then until the lists that were read since are not in the history.
    ALTER TABLE feed ADD COLUMN history_from INTEGER;
    -- Feeds that disappeared, and that newer lists replaced.
    CREATE TABLE feed_replaced (
        rset INTEGER NOT NULL,
        root TEXT NOT NULL,
        capability TEXT NOT NULL,
        history_from INTEGER NOT NULL,
        PRIMARY KEY (rset, root)
    ) WITHOUT ROWID;
", "
    ALTER TABLE feed ADD COLUMN edition_from INTEGER; -- the beginning of that edition's interval
"];

/// The size of a page in bytes. With 4 KiB, 3.77 million rows took a tenth longer to write; with 16 KiB a twentieth less,
/// and a change of one row writes a page of each table that it touches.
const PAGE: i64 = 8192;
/// How many pages a commit leaves in the write-ahead log before it brings them into the database.
pub(in crate::catalog) const CHECKPOINT_AFTER: i64 = 500;

/// How long the writer waits for a lock.
pub(in crate::catalog) const BUSY_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);
/// How much of the write-ahead log's file is kept for reuse when all of it is in the database, in bytes.
const LOG_KEPT: i64 = 16 << 20;

/// Opens the database for writing, and makes or migrates it.
pub(in crate::catalog) fn open(path: &Path) -> Result<Connection, CatalogError> {
    open_or_migrate(path).map_err(|error| match error {
        CatalogError::Sqlite(error)
            if matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)) =>
        {
            CatalogError::Damaged { path: path.display().to_string(), error: error.to_string() }
        }
        error => error,
    })
}

fn open_or_migrate(path: &Path) -> Result<Connection, CatalogError> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    keep_plans(&connection)?;
    // Of a new database; one that is there keeps its own.
    connection.pragma_update(None, "page_size", PAGE)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_AFTER)?;
    connection.pragma_update(None, "journal_size_limit", LOG_KEPT)?;
    connection.pragma_update(None, "cache_size", -32_768)?;
    connection.pragma_update(None, "temp_store", "FILE")?;
    // What does not fit into memory goes where all else does: a daemon reaches no other directory.
    let cache = path.parent().map(|cache| cache.display().to_string());
    connection.pragma_update(None, "temp_store_directory", cache.unwrap_or_default())?;
    connection.set_prepared_statement_cache_capacity(64);
    let found: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let known = i64::try_from(STEPS.len()).unwrap_or(i64::MAX);
    if found > known {
        return Err(CatalogError::Newer { path: path.display().to_string(), found, known });
    }
    for (number, step) in STEPS.iter().enumerate().skip(usize::try_from(found).unwrap_or(0)) {
        let transaction = connection.unchecked_transaction()?;
        transaction.execute_batch(step)?;
        match number {
            0 => seed(&transaction)?,
            3 => spans(&transaction)?,
            _ => {}
        }
        transaction.pragma_update(None, "user_version", i64::try_from(number + 1).unwrap_or(i64::MAX))?;
        transaction.commit()?;
    }
    Ok(connection)
}

/// Says of each directory since when, and until when, there were versions in it.
fn spans(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute("UPDATE name SET born = ?1, died = ?2", [i64::MAX, i64::MIN])?;
    let mut own = connection.prepare(
        "SELECT n.parent, min(v.begin), max(COALESCE(v.until, v.begin)) FROM version v JOIN name n ON n.id = v.name GROUP BY n.parent",
    )?;
    let mut rows = own.query([])?;
    while let Some(row) = rows.next()? {
        crate::catalog::db::tree::widen(connection, row.get(0)?, row.get(1)?, row.get(2)?)?;
    }
    // Of a resource that went, and whose name became a directory, the versions lie with that name.
    connection.execute(
        "INSERT INTO name (id, parent, name, rset, born, died)
         SELECT (SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'next_name') + row_number() OVER () - 1, n.id, ?1, n.rset, ?2, ?3
         FROM name n WHERE n.born != ?2 AND n.id != ?4 AND EXISTS (SELECT 1 FROM version v WHERE v.name = n.id AND v.until IS NOT NULL)
           AND NOT EXISTS (SELECT 1 FROM name s WHERE s.parent = n.id AND s.name = ?1)",
        rusqlite::params![crate::path::SELF, i64::MAX, i64::MIN, ROOT],
    )?;
    connection.execute(
        "UPDATE meta SET value = CAST(max(CAST(value AS INTEGER), (SELECT max(id) + 1 FROM name)) AS TEXT) WHERE key = 'next_name'",
        [],
    )?;
    Ok(())
}

fn seed(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute("INSERT INTO name (id, parent, name, rset) VALUES (?1, 0, '', 0)", [ROOT])?;
    let mut random = [0_u8; 4];
    connection.query_row("SELECT randomblob(4)", [], |row| {
        let blob: Vec<u8> = row.get(0)?;
        random.copy_from_slice(&blob[..4]);
        Ok(())
    })?;
    let generation = u32::from_le_bytes(random);
    for (key, value) in
        [("generation", generation.to_string()), ("next_name", "8".into()), ("next_version", "8".into())]
    {
        connection.execute("INSERT INTO meta (key, value) VALUES (?1, ?2)", [key, &value])?;
    }
    Ok(())
}

/// Keeps plans whatever values are bound. Without, SQLite looks at a value while it plans an outer join over a table with
/// partial indexes, and a cached statement, whose bindings are cleared each time, is planned anew for each value: 11 µs for a
/// lookup that takes 2, and 30 % of the work of reading small files.
fn keep_plans(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

/// Opens the database for reading only.
pub(in crate::catalog) fn open_reader(path: &Path) -> Result<Connection, CatalogError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    keep_plans(&connection)?;
    connection.pragma_update(None, "cache_size", -2_048)?;
    connection.set_prepared_statement_cache_capacity(32);
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::model::ids::{NameId, SetId, VersionId};

    #[test]
    fn a_cache_of_the_first_schema_is_brought_to_the_newest_and_keeps_what_it_has() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("catalog.db");
        let first = Connection::open(&path).unwrap();
        first.execute_batch(STEPS[0]).unwrap();
        seed(&first).unwrap();
        first
            .execute_batch(
                "INSERT INTO rset (key, label, directory, state, resources) VALUES ('k', 'l', 1, 'complete', 1);
                 INSERT INTO document (rset, url, part, entries) VALUES (1, 'u', 0, 1);
                 INSERT INTO name (id, parent, name, rset, version) VALUES (8, 1, 'n', 1, 8);
                 INSERT INTO version (id, name, document, begin, mtime, dated) VALUES (8, 8, 1, 0, 0, 0);",
            )
            .unwrap();
        first.pragma_update(None, "user_version", 1).unwrap();
        drop(first);
        let mapper = std::sync::Arc::new(crate::path::Mapper::new("http://example.com/", false).unwrap());
        let mut writer = crate::catalog::Writer::open(folder.path(), mapper).unwrap();
        let sets = writer.sets().unwrap();
        assert_eq!((sets.len(), sets[0].resources, sets[0].seed.as_ref()), (1, 1, None));
        assert_eq!(writer.documents(SetId::new(1)).unwrap()[0].package, None);
        let transaction = writer.begin(true).unwrap();
        let row = crate::catalog::PackageRow { rset: SetId::new(1), url: "p".to_owned(), ..Default::default() };
        assert_eq!(transaction.put_package(&row).unwrap(), transaction.put_package(&row).unwrap());
        transaction.commit().unwrap();
        assert!(writer.readers().ask(|reader| reader.version(VersionId::new(8))).unwrap().is_some());
    }

    #[test]
    fn the_past_of_an_older_cache_can_be_walked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("catalog.db");
        let old = Connection::open(&path).unwrap();
        STEPS[..3].iter().for_each(|step| old.execute_batch(step).unwrap());
        seed(&old).unwrap();
        // `/gone` was deleted at 50; below its name there is `/gone/new` since 60. `/d/e/f` is since 70 what it was not before.
        old.execute_batch(
            "INSERT INTO rset (key, label, directory, state) VALUES ('k', 'l', 1, 'complete');
             INSERT INTO name (id, parent, name, rset, version, live) VALUES
                 (8, 1, 'gone', 1, NULL, 1), (9, 8, 'new', 1, 9, 0), (10, 1, 'd', 1, NULL, 1), (11, 10, 'e', 1, NULL, 1),
                 (12, 11, 'f', 1, 11, 0);
             INSERT INTO version (id, name, document, begin, until, mtime, dated, gone) VALUES
                 (8, 8, 1, 10, 50, 0, 0, 7), (9, 9, 1, 60, NULL, 0, 0, NULL), (10, 12, 1, 30, 70, 0, 0, NULL),
                 (11, 12, 1, 70, NULL, 0, 0, NULL);
             UPDATE meta SET value = '13' WHERE key IN ('next_name', 'next_version');
             PRAGMA user_version = 3;",
        )
        .unwrap();
        drop(old);
        let mapper = std::sync::Arc::new(crate::path::Mapper::new("http://example.com/", false).unwrap());
        let writer = crate::catalog::Writer::open(folder.path(), mapper).unwrap();
        assert_eq!(writer.meta("next_name").unwrap().as_deref(), Some("14"));
        let readers = writer.readers();
        let names = |directory: NameId, moment: i64| {
            let mut names = Vec::new();
            readers
                .ask(|reader| {
                    reader.list_at(directory, crate::document::Datetime::from_nanos(moment), None, |entry| {
                        names.push(entry.name);
                        true
                    })
                })
                .unwrap();
            names
        };
        assert_eq!([names(ROOT, 5), names(ROOT, 20)], [Vec::<String>::new(), vec!["gone".to_owned()]]);
        assert_eq!([names(ROOT, 40), names(ROOT, 55)], [vec!["d".to_owned(), "gone".to_owned()], vec!["d".to_owned()]]);
        assert_eq!(
            [names(NameId::new(8), 65), names(NameId::new(11), 40)],
            [vec!["new".to_owned()], vec!["f".to_owned()]]
        );
        let spans: Vec<(i64, i64)> = [1, 8, 9, 10, 11, 12]
            .map(|name| {
                let question = "SELECT born, died FROM name WHERE id = ?1";
                readers
                    .ask(|reader| {
                        Ok(reader.connection().query_row(question, [name], |row| Ok((row.get(0)?, row.get(1)?)))?)
                    })
                    .unwrap()
            })
            .to_vec();
        let file = (i64::MAX, i64::MIN);
        assert_eq!(spans, [(10, 70), (60, 60), file, (30, 70), (30, 70), file]);
        // The history of what is a directory now is found.
        let found = readers.ask(|reader| reader.lookup_ever(NameId::new(8), crate::path::SELF)).unwrap().unwrap();
        let versions = readers.ask(|reader| reader.versions_of(reader.ever(found)?.resource)).unwrap();
        assert_eq!(versions.iter().map(|version| version.id).collect::<Vec<_>>(), [VersionId::new(8)]);
    }
}
