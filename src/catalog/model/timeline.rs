//! The versions of one resource in time, and what an archive adds to them: which was in force when a list was made, and what
//! a change that happened long ago began or ended.
//!
//! **Owns** the rules alone: it is given what is known, and says what is to be known then.
//!
//! What is known of a time is either *exact* (a change told it) or a guess (a list told of a version, which began at its
//! `lastmod`, at the latest when the list was made). A guess gives way: whoever was not in a list was not in force then, whatever
//! its `lastmod` says. Nothing that is exact does, nor what two lists agree on; and nothing that an archive tells ends what is
//! in force today.
//!
//! What is told is best told from the oldest to the newest, but need not be: between two moments of which complete lists are
//! known, only what changes tell can have happened.

use crate::catalog::model::ids::VersionId;
use crate::catalog::model::origin::How;
use crate::catalog::model::same_bytes::{Listed, Sameness};
use crate::document::{Change, Datetime, Hashes};

/// What is known of the bytes of a version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::catalog) struct Facts {
    /// In nanoseconds, if a `lastmod` says so.
    pub(in crate::catalog) modified: Option<Datetime>,
    /// Bytes.
    pub(in crate::catalog) size: Option<u64>,
    pub(in crate::catalog) hashes: Hashes,
}

impl Facts {
    fn listed(&self) -> Listed<'_> {
        Listed { modified: self.modified, size: self.size, hashes: &self.hashes }
    }

    /// Whether two are not known to be of the same bytes.
    fn differ(&self, other: &Self) -> bool {
        self.listed().compared_with(&other.listed()) != Sameness::Same
    }
}

/// What a span is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::catalog) enum Origin {
    /// This version.
    Row(VersionId),
    /// The same as this version, at another time.
    Copy(VersionId),
    /// What is being told of.
    Told,
}

/// A version, and when it was in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::catalog) struct Span {
    pub(in crate::catalog) origin: Origin,
    pub(in crate::catalog) begin: Datetime,
    /// None: it is.
    pub(in crate::catalog) until: Option<Datetime>,
    /// How it came, if anything tells.
    pub(in crate::catalog) how: Option<How>,
    /// How its resource went when it ended, if it did.
    pub(in crate::catalog) gone: Option<How>,
    pub(in crate::catalog) facts: Facts,
}

impl Span {
    fn is_exact(&self) -> bool {
        self.how.is_some_and(How::is_exact)
    }

    fn end(&self) -> Datetime {
        self.until.unwrap_or(Datetime::MAX)
    }

    fn was_in_force(&self) -> bool {
        self.end() > self.begin
    }
}

/// The versions of one resource.
#[derive(Debug)]
pub(in crate::catalog) struct Timeline<'s> {
    /// By their beginning.
    pub(in crate::catalog) spans: Vec<Span>,
    /// The moments at which complete lists were made that are known here, ascending.
    snapshots: &'s [Datetime],
}

impl<'s> Timeline<'s> {
    /// `spans` are in their order.
    pub(in crate::catalog) fn new(spans: Vec<Span>, snapshots: &'s [Datetime]) -> Self {
        Self { spans, snapshots }
    }

    pub(in crate::catalog) fn in_force(&self, moment: Datetime) -> Option<usize> {
        self.spans.iter().rposition(|span| span.begin <= moment && moment < span.end())
    }

    fn next(&self, moment: Datetime) -> Option<usize> {
        self.spans.iter().position(|span| span.begin > moment && span.was_in_force())
    }

    /// The last one that ended when another began, at this moment, without its resource having gone.
    fn before(&self, begin: Datetime, other: usize) -> Option<usize> {
        let ends = |(index, span): (usize, &Span)| {
            index != other && span.until == Some(begin) && span.gone.is_none() && span.was_in_force()
        };
        (0..self.spans.len()).rev().find(|index| ends((*index, &self.spans[*index])))
    }

    /// The last list of a time.
    fn last_list(&self, from: Datetime, until: Datetime) -> Option<Datetime> {
        let end = self.snapshots.partition_point(|at| *at < until);
        self.snapshots[..end].last().copied().filter(|at| *at >= from)
    }

    /// The first list after a moment, and before another one.
    fn next_list(&self, after: Datetime, until: Datetime) -> Option<Datetime> {
        let begin = self.snapshots.partition_point(|at| *at <= after);
        self.snapshots.get(begin).copied().filter(|at| *at < until)
    }

    /// Whether it is known that a version was in force before a moment: it came then, or was listed.
    fn was_before(&self, index: usize, moment: Datetime) -> bool {
        let span = &self.spans[index];
        span.is_exact() || self.last_list(span.begin, moment).is_some()
    }

    /// When a version began which is listed at `at`, and says that it did so at `claim`: it was not there when the last list
    /// before that was made, nor while others were, but for one that gives way to it.
    fn began(&self, at: Datetime, claim: Datetime, after: Datetime, gives_way: Option<usize>) -> Datetime {
        let listed_before = self.last_list(Datetime::MIN, at).map_or(Datetime::MIN, |list| list.plus_nanos(1));
        let others = self.spans.iter().enumerate().filter(|(index, _)| Some(*index) != gives_way);
        let ended_before = others.map(|(_, span)| span.end()).filter(|end| *end <= at).max().unwrap_or(Datetime::MIN);
        if claim <= at && claim >= listed_before.max(ended_before).max(after) { claim } else { at }
    }

    fn put(&mut self, span: Span) {
        let place = self.spans.partition_point(|one| one.begin <= span.begin);
        self.spans.insert(place, span);
    }

    /// Adds a version that was not known, and when and how it ended.
    fn told(
        &mut self,
        begin: Datetime,
        (until, gone): (Option<Datetime>, Option<How>),
        how: Option<How>,
        facts: &Facts,
    ) {
        self.put(Span { origin: Origin::Told, begin, until, how, gone, facts: facts.clone() });
    }

    /// What is in force twice, and was not in between: until `until`, and again from `begin` on.
    fn split(&mut self, index: usize, until: Datetime, gone: Option<How>, begin: Datetime) {
        let span = &mut self.spans[index];
        let Origin::Row(row) = span.origin else { return };
        let again = Some(How::listed(if gone.is_some() { Change::Created } else { Change::Updated }));
        let mut other = span.clone();
        other.origin = Origin::Copy(row);
        if span.until.is_none() {
            // What is in force today stays what it is.
            (span.begin, span.how) = (begin, again);
            (other.until, other.gone) = (Some(until), gone);
        } else {
            (other.begin, other.how) = (begin, again);
            (span.until, span.gone) = (Some(until), gone);
        }
        self.spans.sort_by_key(|span| span.begin);
        self.put(other);
    }

    /// It began later than was thought; the one before it ended at `ended`.
    fn begins_later(&mut self, index: usize, begin: Datetime, ended: Datetime, gone: Option<How>) {
        let before = self.before(self.spans[index].begin, index);
        if let Some(before) = before {
            (self.spans[before].until, self.spans[before].gone) = (Some(ended), gone);
        }
        let span = &mut self.spans[index];
        (span.begin, span.how) = (begin, Some(How::listed(Change::Created)));
        self.spans.sort_by_key(|span| span.begin);
    }

    /// It began earlier, or as a change tells.
    fn begins(&mut self, index: usize, begin: Datetime, how: Option<How>) {
        if let Some(before) = self.before(self.spans[index].begin, index) {
            self.spans[before].until = Some(begin.max(self.spans[before].begin));
        }
        let span = &mut self.spans[index];
        span.begin = begin;
        span.how = how.or(span.how);
        self.spans.sort_by_key(|span| span.begin);
    }

    /// A list of the moment `at` has the resource, as of `claim`.
    pub(in crate::catalog) fn listed(&mut self, at: Datetime, claim: Datetime, facts: &Facts) {
        match self.in_force(at) {
            Some(index) => self.listed_within(index, at, claim, facts),
            None => self.listed_between(at, claim, facts),
        }
    }

    /// The same, where nothing was in force.
    fn listed_between(&mut self, at: Datetime, claim: Datetime, facts: &Facts) {
        let next = self.next(at);
        let end = next.map_or(Datetime::MAX, |next| self.spans[next].begin);
        let list = self.next_list(at, end);
        let begin = self.began(at, claim, Datetime::MIN, None);
        match next {
            Some(next) if list.is_none() && !self.spans[next].is_exact() && !self.spans[next].facts.differ(facts) => {
                self.begins(next, begin, None);
            }
            None if list.is_none() => {}
            // It was not in the next list any more.
            _ => {
                let gone = list.map(|_| How::listed(Change::Deleted));
                let created = Some(How::listed(Change::Created));
                self.told(begin, (Some(list.unwrap_or(end)), gone), created, facts);
            }
        }
    }

    /// The same, where this one was in force.
    fn listed_within(&mut self, index: usize, at: Datetime, claim: Datetime, facts: &Facts) {
        let (created, updated) = (Some(How::listed(Change::Created)), Some(How::listed(Change::Updated)));
        let span = &self.spans[index];
        let (old, was_listed_later) = (span.begin, self.next_list(at, span.end()));
        if !span.facts.differ(facts) || span.until.is_none() && was_listed_later.is_none() {
            return;
        }
        match was_listed_later {
            Some(later) if !self.was_before(index, at) => {
                match self.before(old, index).filter(|before| !self.spans[*before].facts.differ(facts)) {
                    Some(_) => self.begins_later(index, later, later, None),
                    None => {
                        let before = self.before(old, index);
                        // The one before it gives way to what is listed.
                        let floor = before.map_or(Datetime::MIN, |before| self.spans[before].begin.plus_nanos(1));
                        let begin = self.began(at, claim, floor, before);
                        self.begins_later(index, later, begin, None);
                        let how = if before.is_some() { updated } else { created };
                        self.told(begin, (Some(later), None), how, facts);
                    }
                }
            }
            later => {
                let begin = self.began(at, claim, old.plus_nanos(1), None);
                if begin <= old {
                    return;
                }
                let (until, gone) = (span.until, span.gone);
                match later {
                    Some(later) => {
                        self.split(index, begin, None, later);
                        self.told(begin, (Some(later), None), updated, facts);
                    }
                    None => {
                        (self.spans[index].until, self.spans[index].gone) = (Some(begin), None);
                        self.told(begin, (until, gone), updated, facts);
                    }
                }
            }
        }
    }

    /// A complete list of the moment `at` has no such resource.
    pub(in crate::catalog) fn absent(&mut self, at: Datetime) {
        let Some(index) =
            self.in_force(at).filter(|index| self.spans[*index].begin < at || !self.spans[*index].is_exact())
        else {
            return;
        };
        self.ends(index, at, How::listed(Change::Deleted));
    }

    /// A change took the resource away. What `came_then`, at that very moment, did so before it.
    pub(in crate::catalog) fn deleted(&mut self, moment: Datetime, how: How, came_then: bool) {
        let ended = |span: &Span| span.until == Some(moment) && span.gone.is_some();
        if let Some(span) = self.spans.iter_mut().rev().find(|span| ended(span)) {
            // A list told of it before the change did.
            if !span.gone.is_some_and(How::is_exact) {
                span.gone = Some(how);
            }
            return;
        }
        let Some(index) = self.in_force(moment) else { return };
        if came_then || self.spans[index].begin < moment {
            self.ends(index, moment, how);
        } else if let Some(before) = self.before(moment, index) {
            // What is there again since that moment, be it by its `lastmod` alone, came after that.
            self.spans[before].gone = Some(how);
        }
    }

    /// What is in force was taken away, and is there again in the next list that has it.
    fn ends(&mut self, index: usize, moment: Datetime, how: How) {
        let span = &self.spans[index];
        match self.next_list(moment, span.end()) {
            Some(later) if self.was_before(index, moment) && span.begin < moment => {
                self.split(index, moment, Some(how), later);
            }
            Some(later) => self.begins_later(index, later, moment, Some(how)),
            None if span.until.is_none() => {}
            None => (self.spans[index].until, self.spans[index].gone) = (Some(moment), Some(how)),
        }
    }

    /// A change made a version. Says whether it has its place now, be it that it had it before.
    pub(in crate::catalog) fn changed(&mut self, moment: Datetime, how: How, facts: &Facts) -> bool {
        let same_moment = |span: &&mut Span| span.begin == moment && span.facts.hashes.agree(&facts.hashes);
        if let Some(span) = self
            .spans
            .iter_mut()
            .filter(same_moment)
            .find(|span| span.how == Some(how) || !span.is_exact() && !span.facts.differ(facts))
        {
            span.how = Some(how);
            return true;
        }
        let may_be = |timeline: &Self, index: usize, from: Datetime, until: Datetime| {
            let span = &timeline.spans[index];
            !span.is_exact() && !span.facts.differ(facts) && timeline.last_list(from, until).is_none()
        };
        let (index, next) = (self.in_force(moment), self.next(moment));
        if let Some(index) = index.filter(|index| may_be(self, *index, self.spans[*index].begin, moment)) {
            self.begins(index, moment, Some(how));
            return true;
        }
        if let Some(next) = next.filter(|next| may_be(self, *next, moment, self.spans[*next].begin)) {
            let begin = self.spans[next].begin;
            let until_then = index.is_none_or(|index| self.spans[index].until == Some(begin));
            let went = index.is_some_and(|index| self.spans[index].gone.is_some_and(How::is_exact));
            if until_then && !went {
                if let Some(index) = index {
                    (self.spans[index].until, self.spans[index].gone) = (Some(moment), None);
                }
                self.begins(next, moment, Some(how));
                return true;
            }
        }
        match index {
            Some(index) => self.changed_within(index, moment, how, facts),
            None => self.changed_between(next, moment, how, facts),
        }
    }

    /// A change made a version when none was in force; `next` is the one after that.
    fn changed_between(&mut self, next: Option<usize>, moment: Datetime, how: How, facts: &Facts) -> bool {
        let end = next.map_or(Datetime::MAX, |next| self.spans[next].begin);
        let list = self.next_list(moment, end);
        if next.is_none() && list.is_none() {
            return false;
        }
        let gone = list.map(|_| How::listed(Change::Deleted));
        self.told(moment, (Some(list.unwrap_or(end)), gone), Some(how), facts);
        true
    }

    /// A change made a version while this one was in force.
    fn changed_within(&mut self, index: usize, moment: Datetime, how: How, facts: &Facts) -> bool {
        let span = self.spans[index].clone();
        let (is_current, same) = (span.until.is_none(), !span.facts.differ(facts));
        match self.next_list(moment, span.end()) {
            _ if same && is_current && span.begin < moment => {
                self.split(index, moment, None, moment);
                if let Some(span) = self.spans.iter_mut().find(|span| span.until.is_none()) {
                    span.how = Some(how);
                }
            }
            _ if same && is_current => return false,
            Some(later) if !same => {
                if span.begin == moment || !self.was_before(index, moment) {
                    self.begins_later(index, later, moment, None);
                } else {
                    self.split(index, moment, None, later);
                }
                self.told(moment, (Some(later), None), Some(how), facts);
            }
            None if is_current => return false,
            _ => {
                (self.spans[index].until, self.spans[index].gone) = (Some(moment), None);
                self.told(moment, (span.until, span.gone), Some(how), facts);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Something that happened to a resource.
    #[derive(Clone, Copy, Debug)]
    enum Event {
        /// It is this from then on; its `lastmod` is then, or is so much older.
        Is(u8, i64),
        Gone,
    }

    /// All that happened, by its moment.
    type History = std::collections::BTreeMap<i64, Event>;

    const FIRST: i64 = 1000;

    fn time(nanos: i64) -> Datetime {
        Datetime::from_nanos(nanos)
    }

    fn facts(content: u8, lastmod: i64) -> Facts {
        let hashes = Hashes::parse(&format!("md5:{:032x}", u32::from(content) + 1), &mut Vec::new());
        Facts { modified: Some(time(lastmod)), size: Some(5), hashes }
    }

    /// What was in force: the content, when it came, and its `lastmod`.
    fn truth(history: &History, moment: i64) -> Option<(u8, i64)> {
        match history.range(..=moment).next_back() {
            Some((begin, Event::Is(content, older))) => Some((*content, begin - older)),
            _ => None,
        }
    }

    fn history() -> impl Strategy<Value = History> {
        let content =
            (0_u8..4, prop_oneof![3 => Just(0_i64), 1 => 0_i64..800]).prop_map(|(one, older)| Event::Is(one, older));
        let event = prop_oneof![3 => content, 1 => Just(Event::Gone)];
        proptest::collection::btree_map(1_i64..FIRST, event, 0..9)
    }

    /// What a mirror knows that was made from the list of the moment [`FIRST`].
    fn mounted(history: &History) -> Vec<Span> {
        let now = truth(history, FIRST);
        let span = now.map(|(content, lastmod)| Span {
            origin: Origin::Row(VersionId::new(8)),
            begin: time(lastmod),
            until: None,
            how: None,
            gone: None,
            facts: facts(content, lastmod),
        });
        span.into_iter().collect()
    }

    /// Each with a number of its own, as they would be when they are written.
    fn written(timeline: Timeline<'_>, next: &mut i64) -> Vec<Span> {
        let mut spans = timeline.spans;
        for span in &mut spans {
            if !matches!(span.origin, Origin::Row(_)) {
                span.origin = Origin::Row(VersionId::new(*next));
                *next += 1;
            }
        }
        let mut sorted = spans.clone();
        sorted.sort_by_key(|span| span.begin);
        assert_eq!(spans, sorted, "not by their beginning");
        let mut last = Datetime::MIN;
        for span in spans.iter().filter(|span| span.was_in_force()) {
            assert!(span.begin >= last, "two at once: {spans:#?}");
            last = span.end();
        }
        assert!(spans.iter().all(|span| span.begin <= span.end()), "{spans:#?}");
        assert!(spans.iter().all(|span| span.until.is_some() || span.gone.is_none()), "{spans:#?}");
        spans
    }

    fn shown(spans: &[Span], moment: i64) -> Option<Hashes> {
        Timeline::new(spans.to_vec(), &[]).in_force(time(moment)).map(|index| spans[index].facts.hashes.clone())
    }

    fn hashes(history: &History, moment: i64) -> Option<Hashes> {
        truth(history, moment).map(|(content, lastmod)| facts(content, lastmod).hashes)
    }

    fn list(spans: Vec<Span>, snapshots: &[i64], history: &History, at: i64, next: &mut i64) -> Vec<Span> {
        let snapshots: Vec<Datetime> = snapshots.iter().copied().map(time).collect();
        let mut timeline = Timeline::new(spans, &snapshots);
        match truth(history, at) {
            Some((content, lastmod)) => timeline.listed(time(at), time(lastmod.min(at)), &facts(content, lastmod)),
            None => timeline.absent(time(at)),
        }
        written(timeline, next)
    }

    fn change(spans: Vec<Span>, snapshots: &[i64], history: &History, at: i64, next: &mut i64) -> Vec<Span> {
        let snapshots: Vec<Datetime> = snapshots.iter().copied().map(time).collect();
        let mut timeline = Timeline::new(spans, &snapshots);
        let before = truth(history, at - 1).is_some();
        match history[&at] {
            Event::Is(content, older) => {
                let kind = if before { Change::Updated } else { Change::Created };
                timeline.changed(time(at), How::change(kind, true), &facts(content, at - older));
            }
            Event::Gone if before => timeline.deleted(time(at), How::change(Change::Deleted, true), false),
            Event::Gone => {}
        }
        written(timeline, next)
    }

    #[test]
    fn what_is_older_than_its_creation_does_not_hide_a_deletion() {
        let history = History::from([(1, Event::Is(1, 0)), (634, Event::Gone), (884, Event::Is(0, 250))]);
        let (mut spans, mut next) = (mounted(&history), 100);
        for at in history.keys() {
            spans = change(spans, &[FIRST], &history, *at, &mut next);
        }
        for at in [1, 633, 634, 883, 884] {
            assert_eq!(shown(&spans, at), hashes(&history, at), "at {at}: {spans:#?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

        /// Whatever comes first: what a list says of its moment is so, for good.
        #[test]
        fn lists_are_believed_of_their_moment(
            history in history(),
            order in proptest::collection::hash_set(1_i64..FIRST, 0..6).prop_map(|all| all.into_iter().collect::<Vec<_>>()),
        ) {
            let (mut snapshots, mut next) = (vec![FIRST], 100);
            let mut spans = mounted(&history);
            for at in order {
                spans = list(spans, &snapshots, &history, at, &mut next);
                snapshots.push(at);
                snapshots.sort_unstable();
                for at in &snapshots {
                    prop_assert_eq!(shown(&spans, *at), hashes(&history, *at), "at {}: {:#?}", at, &spans);
                }
            }
        }

        /// Lists and changes, from the oldest to the newest: since the first list, or since the resource came, all is as it was.
        #[test]
        fn changes_tell_all_between_lists(
            history in history(),
            lists in proptest::collection::btree_set(1_i64..FIRST, 0..5),
            from in prop_oneof![Just(0_i64), 0_i64..FIRST],
            twice in any::<bool>(),
        ) {
            let (mut snapshots, mut next) = (vec![FIRST], 100);
            let mut spans = mounted(&history);
            for round in 0..=usize::from(twice) {
                for at in 0..FIRST {
                    if round == 0 && lists.contains(&at) {
                        // What happens at the moment of a list may be in it.
                        spans = list(spans, &snapshots, &history, at, &mut next);
                        snapshots.push(at);
                        snapshots.sort_unstable();
                    }
                    if at >= from && history.contains_key(&at) {
                        spans = change(spans, &snapshots, &history, at, &mut next);
                    }
                }
                for at in &snapshots {
                    prop_assert_eq!(shown(&spans, *at), hashes(&history, *at), "at {}: {:#?}", at, &spans);
                }
                // From the first list on after which all changes are told, or from the beginning.
                let known = lists.range(from..).next().copied().filter(|_| from > 0).or((from == 0).then_some(0));
                for at in known.unwrap_or(FIRST)..FIRST {
                    prop_assert_eq!(shown(&spans, at), hashes(&history, at), "at {}: {:#?}", at, &spans);
                }
            }
        }

        /// The lists first, all their changes much later: nothing is worse than it was, and what happened is there.
        #[test]
        fn changes_that_come_late_find_their_place(
            history in history(),
            lists in proptest::collection::btree_set(1_i64..FIRST, 0..5),
        ) {
            let (mut snapshots, mut next) = (vec![FIRST], 100);
            let mut spans = mounted(&history);
            for at in &lists {
                spans = list(spans, &snapshots, &history, *at, &mut next);
                snapshots.push(*at);
                snapshots.sort_unstable();
            }
            for at in history.keys() {
                spans = change(spans, &snapshots, &history, *at, &mut next);
            }
            for at in 0..=FIRST {
                prop_assert_eq!(shown(&spans, at), hashes(&history, at), "at {}: {:#?}", at, &spans);
            }
        }
    }
}
