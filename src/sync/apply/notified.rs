//! One step of the writer that applies what notifications tell (notifications 4), as a Change List is.

use std::sync::Arc;

use super::step::{Step, note_changes_over_lists};
use super::step_context::StepContext;
use crate::bounds::Bounds;
use crate::catalog::{CatalogError, Changes, DocumentRow, Feed, SetId, Writer};
use crate::document::{Capability, Datetime, Limits, Reader};
use crate::store::Store;
use crate::sync::documents::fetch::Budget;
use crate::sync::documents::order::{self, Unsurveyed};
use crate::sync::documents::spooled::{About, Spooled};
use crate::sync::summary::Summary;

/// Notifications that are to be applied in one step.
pub(in crate::sync) struct Told {
    pub(in crate::sync) set: SetId,
    pub(in crate::sync) channel: i64,
    pub(in crate::sync) url: String,
    /// Up to when its notifications are in the tree then.
    pub(in crate::sync) cursor: Option<Datetime>,
    pub(in crate::sync) deliveries: Vec<Delivered>,
    /// The deliveries that are dealt with then.
    pub(in crate::sync) done: Vec<i64>,
    /// What of them is read.
    pub(in crate::sync) bounds: Bounds,
    pub(in crate::sync) prefer: Option<Arc<str>>,
}

/// What was delivered on a channel.
pub(in crate::sync) struct Delivered {
    pub(in crate::sync) body: Vec<u8>,
    pub(in crate::sync) from: Datetime,
    pub(in crate::sync) until: Datetime,
    /// Whether what looks as if it had happened before is no reason to think that it happened again: each change has
    /// its time, or the lists were read after it came.
    pub(in crate::sync) sure: bool,
}

impl Delivered {
    /// As a document that was brought here.
    fn spooled(
        &self,
        url: &str,
        store: &Store,
        bounds: &Bounds,
        prefer: Option<Arc<str>>,
    ) -> Result<Spooled, CatalogError> {
        let failed = |error: std::io::Error| CatalogError::Io { path: store.root().display().to_string(), error };
        let mut file = store.spool().map_err(failed)?;
        std::io::Write::write_all(&mut file, &self.body).map_err(failed)?;
        // Relative references are to what the Source serves, not to what it sends frames from.
        let base = url.strip_prefix("ws").map(|rest| format!("http{rest}"));
        let base = url::Url::parse(base.as_deref().unwrap_or(url))
            .map_err(|error| failed(std::io::Error::other(format!("{url}: {error}"))))?;
        let row = DocumentRow { url: url.to_owned(), ..DocumentRow::default() };
        let limits = Limits::of(bounds);
        let by_lastmod =
            Reader::open(self.body.as_slice(), url, limits).is_ok_and(|one| one.head().changes_by_lastmod());
        let about = About { from: Some(self.from), until: Some(self.until), by_lastmod, ..About::default() };
        Ok(Spooled::new(row, base, file.into_temp_path(), about, (*bounds, prefer)))
    }
}

/// Applies notifications in one step, as a Change List is. Returns, too, whether something was told of that is known, and is
/// not what the tree shows: of changes within one moment only a list knows the order.
pub(in crate::sync) fn tell(
    writer: &mut Writer,
    context: &StepContext,
    told: Told,
) -> Result<((Summary, bool), Changes), CatalogError> {
    let StepContext { status, store, .. } = context;
    // As it is in this step: a sync may have been under way.
    let Some(set) = &writer.sets()?.into_iter().find(|set| set.id == told.set) else {
        return Ok(((Summary::default(), false), Changes::default()));
    };
    let mut transaction = writer.begin(true)?;
    transaction.begin_sync()?;
    let mut step = Step::new(&mut transaction, context, set);
    step.ordered = false;
    let mut doubtful = false;
    let feed = Feed::new(&told.url, Capability::ChangeNotification);
    for delivered in &told.deliveries {
        let document = delivered.spooled(&told.url, store, &told.bounds, told.prefer.clone())?;
        let survey = match order::survey(&document, &feed, set.cursor, &Budget::new(&told.bounds), store) {
            Ok(survey) => survey,
            Err(Unsurveyed::Disk(error)) => {
                return Err(CatalogError::Io { path: store.root().display().to_string(), error });
            }
            Err(Unsurveyed::Beyond(beyond)) => {
                status
                    .warning(&format!("{}: {beyond}; what the notification tells, the lists are asked for", told.url));
                doubtful = true;
                continue;
            }
        };
        step.document(&document, &survey)?;
        if delivered.sure {
            doubtful |= !step.stale.is_empty();
            step.stale.clear();
        }
    }
    step.settle()?;
    let Step { tally, forgot, oldest, .. } = step;
    doubtful |= forgot;
    transaction.channel_joins(told.channel, told.cursor)?;
    transaction.delivered(told.channel, &told.done)?;
    if !told.deliveries.is_empty() {
        transaction.followed(set.id, set.state, "notification", &format!("delivered on {}", told.url))?;
    }
    if tally.changed() {
        note_changes_over_lists(&transaction, set, oldest)?;
        transaction.end_sync(set.id, "notification", &tally)?;
    }
    let changes = transaction.commit()?;
    Ok(((Summary::of(&tally), doubtful), changes))
}
