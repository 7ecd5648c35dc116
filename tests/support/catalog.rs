//! What the catalog of a mirror has. Its readers are asked; where two rows must not be one, rows of its tables are counted, as
//! `src/docs/cache-format.md` describes them.

use std::collections::BTreeMap;
use std::path::Path;

use resourcesync::catalog::{CatalogError, NameId, ROOT, Reader, VersionLog};
use rusqlite::{Connection, OpenFlags};

/// A connection of its own, which reads.
pub fn open(cache: &Path) -> Connection {
    Connection::open_with_flags(cache.join("catalog.db"), OpenFlags::SQLITE_OPEN_READ_ONLY).expect("the catalog")
}

/// The number of versions of all resources, those included that `log` shows as one with another.
pub fn versions(cache: &Path) -> usize {
    count(cache, "TRUE", &[])
}

/// The number of versions of the resources with this file name.
pub fn versions_of(cache: &Path, name: &str) -> usize {
    count(cache, "name IN (SELECT id FROM name WHERE name.name = ?1)", &[name])
}

/// The number of versions that lists and changes told of, not archives alone.
pub fn told_versions(cache: &Path) -> usize {
    count(cache, "name != 0 AND COALESCE(change, 0) < 16", &[])
}

fn count(cache: &Path, which: &str, of: &[&str]) -> usize {
    let question = format!("SELECT count(*) FROM version WHERE {which}");
    let number = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
    let count = open(cache).query_row(&question, rusqlite::params_from_iter(of), number).expect("a number");
    count.try_into().expect("no less than none")
}

/// All resources that there are, or were, by their paths.
pub fn resources(reader: &Reader) -> Result<BTreeMap<String, NameId>, CatalogError> {
    let mut all = BTreeMap::new();
    walk(reader, (ROOT, ""), &mut all)?;
    Ok(all)
}

fn walk(
    reader: &Reader,
    (directory, path): (NameId, &str),
    all: &mut BTreeMap<String, NameId>,
) -> Result<(), CatalogError> {
    let mut names = Vec::new();
    reader.list_ever(directory, None, |id, name| {
        names.push((id, format!("{path}{name}")));
        true
    })?;
    for (id, name) in names {
        let ever = reader.ever(id)?;
        match ever.is_directory {
            true => walk(reader, (id, &format!("{name}/")), all)?,
            false => drop(all.insert(name, ever.resource)),
        }
    }
    Ok(())
}

/// The versions of all resources, by their paths; the newest first. The Source is not asked for more, as it is by `log`.
pub fn histories(reader: &Reader) -> Result<BTreeMap<String, Vec<VersionLog>>, CatalogError> {
    let resources = resources(reader)?;
    resources.into_iter().map(|(path, resource)| Ok((path, reader.versions_of(resource)?))).collect()
}

/// The number of deliveries that are still to be dealt with.
pub fn deliveries_left(reader: &Reader) -> Result<u64, CatalogError> {
    reader.channels()?.iter().map(|channel| Ok(reader.backlog(channel.id)?.deliveries)).sum()
}
