//! Pages that come in place of files: a bot wall, a login or an error page that its server sends as if it were the file. Where
//! neither a hash nor a length is listed, the bytes themselves show it: they are HTML, or came for files of other formats, too.

use std::io::Read as _;

use super::download::Served;
use super::fetch::Contents;
use super::location::{Location, expected};
use crate::catalog::VersionRow;
use crate::source::{Expected, SourceError, Trouble};

/// How many versions of the same content are looked at.
const MOST_ALIKE: usize = 20;

impl Contents {
    /// Refuses what came in place of a file, and lets it go.
    pub(in crate::sync) async fn hold_to_its_format(
        &self,
        row: &VersionRow,
        place: &Location,
        served: Served,
    ) -> Result<Served, SourceError> {
        let sha256 = served.content.sha256;
        let trouble = match self.is_strict() {
            true => self.in_place_of(row, &expected(row), &sha256),
            false => None,
        };
        let Some(trouble) = trouble else { return Ok(served) };
        // Nor is it the content of any other, but where a hash says so, or it was served before.
        let is_others = self.context.readers.ask(|reader| reader.is_kept(&sha256)).unwrap_or(true);
        if !is_others && let Err(error) = self.context.write_queue.discard(sha256).await {
            self.context.status.error(&error.to_string());
        }
        Err(SourceError::new(&place.url, trouble))
    }

    /// Why this is not what was listed. What cannot be read of the cache or the catalog now is reported where it is read.
    fn in_place_of(&self, row: &VersionRow, listed: &Expected, sha256: &[u8; 32]) -> Option<Trouble> {
        let mut start = Vec::new();
        self.context.store.object(sha256).ok()?.take(1024).read_to_end(&mut start).ok()?;
        if let Err(trouble) = listed.check_start(&row.uri, &start) {
            return Some(trouble);
        }
        // A picture under the name of another format is one all the same.
        let format = listed.format(&row.uri).filter(|_| Expected::has_no_format(&start))?;
        if let Some([one, other]) = self.impostors.lock().get(sha256) {
            return Some(Trouble::SameBody(if *one == row.uri { other } else { one }.clone()));
        }
        let alike = self.context.readers.ask(|reader| {
            let versions = reader.current_with(sha256, MOST_ALIKE)?;
            versions.into_iter().map(|version| reader.version(version)).collect::<Result<Vec<_>, _>>()
        });
        let is_other = |other: &VersionRow| expected(other).format(&other.uri).is_some_and(|one| one != format);
        let other = alike.ok()?.into_iter().flatten().find(is_other)?;
        self.impostors.lock().put(*sha256, [other.uri.clone(), row.uri.clone()]);
        Some(Trouble::SameBody(other.uri))
    }
}
