//! What the tree is filtered by.

use crate::catalog::db::meta::{KEY, selected_key};
use crate::catalog::db::names::LEFT_OUT;
use crate::catalog::db::pool::Reader;
use crate::catalog::error::CatalogError;
use crate::catalog::model::ids::{SetId, VersionId};

type Result<T> = std::result::Result<T, CatalogError>;

impl Reader {
    /// The collections and categories that are selected, in order; none if all are.
    pub fn selected(&self) -> Result<Vec<String>> {
        let text = self.meta(KEY)?.unwrap_or_default();
        Ok(text.lines().filter_map(|line| line.strip_prefix("collection=")).map(str::to_owned).collect())
    }

    /// Whether the lists of a set were read for a selection that is not that of now, so that some were left alone.
    pub fn was_selected_otherwise(&self, rset: SetId) -> Result<bool> {
        let noted = self.meta(&selected_key(rset))?.filter(|noted| !noted.is_empty());
        Ok(noted.is_some() && noted != Some(self.selected()?.join("\n")))
    }
}

impl Reader {
    /// What else has to be true of a version `v` for its content to be wanted, as SQL: nothing, where nothing is left out.
    pub(in crate::catalog) fn wanted(&self) -> Result<&'static str> {
        let filtered = self.meta(KEY)?.is_some_and(|filter| !filter.is_empty());
        Ok(if filtered { " AND NOT EXISTS (SELECT 1 FROM name n WHERE n.id = v.name AND n.hidden > 0)" } else { "" })
    }
}

impl Reader {
    /// Whether a version is of a resource that is left out.
    pub fn is_left_out(&self, version: VersionId) -> Result<bool> {
        let mut statement = self.connection().prepare_cached(&format!(
            "SELECT EXISTS (SELECT 1 FROM version v JOIN name n ON n.id = v.name WHERE v.id = ?1 AND {LEFT_OUT})"
        ))?;
        Ok(statement.query_row([version], |row| row.get(0))?)
    }
}
