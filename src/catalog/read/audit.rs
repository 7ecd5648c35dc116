//! Whether the rows agree with each other: what holds after every commit, whatever came before it.

use rusqlite::Connection;

use crate::catalog::db::numbers::own;
use crate::catalog::db::pool::Reader;
use crate::catalog::error::CatalogError;

type Result<T> = std::result::Result<T, CatalogError>;

/// The invariants of `src/docs/cache-format.md` (section 5): each with its number there, in words, and a query for the numbers of
/// the rows that violate it.
///
/// Of versions, only the Source's own (`change` below 16) have an order; `name = 0` is no resource's any more.
const RULES: [(&str, &str, &str); 19] = [
    (
        "N1",
        "a name lies in a directory that there is",
        "SELECT n.id FROM name n LEFT JOIN name p ON p.id = n.parent WHERE p.id IS NULL AND n.parent != 0",
    ),
    ("N2", "the root alone lies in none", "SELECT id FROM name WHERE parent = 0 AND id != 1"),
    (
        "N3",
        "a file's version is its own, and in force",
        "SELECT n.id FROM name n LEFT JOIN version v ON v.id = n.version
         WHERE n.version IS NOT NULL AND (v.id IS NULL OR v.name != n.id OR v.until IS NOT NULL)",
    ),
    (
        "V1",
        "a version that is in force is its file's",
        concat!("SELECT v.id FROM version v LEFT JOIN name n ON n.id = v.name
         WHERE v.until IS NULL AND v.name != 0 AND ", own!("v.change"), " AND n.version IS NOT v.id"),
    ),
    ("V2", "a version is a name's", "SELECT v.id FROM version v WHERE v.name != 0 AND NOT EXISTS (SELECT 1 FROM name WHERE id = v.name)"),
    ("N4", "a name is a file or a directory", "SELECT id FROM name WHERE version IS NOT NULL AND live != 0"),
    (
        "N5",
        "a directory counts its live names",
        "SELECT p.id FROM name p LEFT JOIN
             (SELECT parent, count(*) AS live FROM name WHERE version IS NOT NULL OR live > 0 GROUP BY parent) c ON c.parent = p.id
         WHERE p.live != COALESCE(c.live, 0)",
    ),
    (
        "N6",
        "a directory counts what is not shown of it",
        "SELECT p.id FROM name p LEFT JOIN
             (SELECT parent, count(*) AS hidden FROM name
              WHERE (version IS NOT NULL OR live > 0) AND (version IS NOT NULL) + live <= hidden GROUP BY parent) c
             ON c.parent = p.id
         WHERE p.hidden != COALESCE(c.hidden, 0) AND (p.live > 0 OR c.hidden > 0)",
    ),
    (
        "N7",
        "a directory is as old as what is in it",
        "SELECT n.id FROM name n JOIN name p ON p.id = n.parent WHERE n.born < COALESCE(p.born, 9223372036854775807)
         UNION ALL SELECT n.id FROM version v JOIN name n ON n.id = v.name JOIN name p ON p.id = n.parent
             WHERE v.begin < COALESCE(p.born, 9223372036854775807)",
    ),
    (
        "V3",
        "a version ends after it begins",
        concat!("SELECT id FROM version WHERE until < begin AND name != 0 AND ", own!("change")),
    ),
    (
        "V4",
        "a version begins when the one before it has ended",
        concat!("SELECT id FROM (SELECT id, begin, lag(until) OVER (PARTITION BY name ORDER BY begin, id) AS before FROM version
             WHERE name != 0 AND ", own!("change"), " AND until IS NOT begin) WHERE before > begin"),
    ),
    (
        "C1",
        "content is in the store, and as large as its version says",
        "SELECT v.id FROM version v LEFT JOIN object o ON o.id = v.object
         WHERE v.object IS NOT NULL AND (o.id IS NULL OR v.size IS NOT o.size)",
    ),
    (
        "C2",
        "an inode has the content that it ever had",
        "SELECT v.id FROM version v JOIN object o ON o.id = v.object WHERE v.served != o.sha256",
    ),
    (
        "C3",
        "content is somebody's",
        "SELECT o.id FROM object o WHERE NOT EXISTS (SELECT 1 FROM version v WHERE v.object = o.id)",
    ),
    (
        "C4",
        "a member is a version's, in a package that there is",
        "SELECT m.version FROM member m LEFT JOIN version v ON v.id = m.version LEFT JOIN package p ON p.id = m.package
         WHERE v.id IS NULL OR p.id IS NULL",
    ),
    (
        "C5",
        "a patch or a memento is a version's",
        "SELECT version FROM (SELECT version FROM patch UNION ALL SELECT version FROM memento) w
         WHERE NOT EXISTS (SELECT 1 FROM version v WHERE v.id = w.version)",
    ),
    (
        "L1",
        "a link that is looked up is of a current version, to a target that there is",
        "SELECT l.version FROM link l LEFT JOIN version v ON v.id = l.version LEFT JOIN target t ON t.id = l.target
         WHERE v.id IS NULL OR v.until IS NOT NULL OR v.name = 0 OR t.id IS NULL",
    ),
    (
        "S1",
        "what is of a set is of one that there is",
        "SELECT rset FROM (SELECT rset FROM document UNION SELECT rset FROM package UNION SELECT rset FROM offer
             UNION SELECT rset FROM feed UNION SELECT rset FROM feed_replaced UNION SELECT rset FROM channel) w
         WHERE NOT EXISTS (SELECT 1 FROM rset s WHERE s.id = w.rset)",
    ),
    (
        "I1",
        "numbers are given once",
        "SELECT max(id) AS most FROM name HAVING most >= (SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'next_name')
         UNION ALL SELECT max(id) AS most FROM version
             HAVING most >= (SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'next_version')",
    ),
];

/// The most numbers that are told of one rule, and the most lines of what SQLite itself finds.
pub(in crate::catalog) const MOST: usize = 5;

impl Reader {
    /// Looks at all rows, and tells what is wrong with them, a line for each rule that is broken. Reads the whole
    /// database, in one snapshot.
    ///
    /// # Errors
    /// If SQLite cannot read it.
    pub fn check(&self) -> Result<Vec<String>> {
        let snapshot = self.connection().unchecked_transaction()?;
        let mut found = own_check(&snapshot)?;
        for (number, rule, question) in RULES {
            let mut statement = snapshot.prepare(question)?;
            let mut rows = statement.query([])?;
            let (mut numbers, mut count) = (Vec::new(), 0_u64);
            while let Some(row) = rows.next()? {
                count += 1;
                if numbers.len() < MOST {
                    numbers.push(row.get::<_, i64>(0)?.to_string());
                }
            }
            if count > 0 {
                let more = if count > MOST as u64 { ", ..." } else { "" };
                found.push(format!("catalog: rule {number}: not so of {count}: {rule} ({}{more})", numbers.join(", ")));
            }
        }
        Ok(found)
    }
}

/// What SQLite finds.
fn own_check(connection: &Connection) -> Result<Vec<String>> {
    let mut statement = connection.prepare(&format!("PRAGMA integrity_check({MOST})"))?;
    let lines = statement.query_map([], |row| row.get::<_, String>(0))?;
    let lines: std::result::Result<Vec<String>, _> = lines.collect();
    Ok(lines?.into_iter().filter(|line| line != "ok").map(|line| format!("catalog: {line}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_specified() {
        let specification = include_str!("../../docs/cache-format.md");
        let specified: Vec<&str> = specification
            .lines()
            .skip_while(|line| !line.starts_with("## 5."))
            .filter_map(|line| line.strip_prefix("| ")?.split_once(" |"))
            .map(|(number, _)| number)
            .filter(|number| number.ends_with(|last: char| last.is_ascii_digit()))
            .collect();
        let mut checked = RULES.map(|(number, ..)| number).to_vec();
        checked.sort_unstable();
        let mut wanted = specified.clone();
        wanted.sort_unstable();
        assert_eq!(checked, wanted);
    }
}
