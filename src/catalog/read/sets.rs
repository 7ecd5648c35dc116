//! Sets.

use crate::catalog::db::meta::{behind_key, listed_key};
use crate::catalog::db::pool::Reader;
use crate::catalog::error::CatalogError;
use crate::catalog::model::ids::SetId;
use crate::document::Datetime;

type Result<T> = std::result::Result<T, CatalogError>;

impl Reader {
    /// When the lists of a set were read or found unchanged last: `Some(None)` if they are to be now.
    pub fn listed(&self, rset: SetId) -> Result<Option<Option<Datetime>>> {
        Ok(self.meta(&listed_key(rset))?.map(|text| text.parse().ok().map(Datetime::from_nanos)))
    }

    /// Why not all that the Source publishes of a set is in the tree, whatever its state.
    pub fn behind(&self, rset: SetId) -> Result<Option<String>> {
        if self.was_selected_otherwise(rset)? {
            return Ok(Some("lists of what is selected now have not been read yet".to_owned()));
        }
        Ok(self.meta(&behind_key(rset))?.filter(|why| !why.is_empty()))
    }
}
