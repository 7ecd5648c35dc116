//! Which notifications join those before them (Change Notification 3), and what becomes of those that do not.

use std::time::Duration;

use crate::catalog::{Reading, Waiting};
use crate::document::Datetime;

/// How long a notification waits for those before it to come, too.
pub(in crate::sync) const GRACE: Duration = Duration::from_secs(1);
/// So far the Source's clock may be before ours, in nanoseconds: from an interval that ends later, nothing follows for
/// what comes after that.
const AHEAD: i64 = 900_000_000_000;

/// What is known of a set, as far as its notifications are concerned.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::sync) struct Standing {
    /// The notifications of the channel are in the tree up to then.
    pub(in crate::sync) cursor: Option<Datetime>,
    /// All changes up to then are in the tree, by the lists.
    pub(in crate::sync) covered: Option<Datetime>,
    /// The newest Resource List is of then.
    pub(in crate::sync) listed: Option<Datetime>,
    /// Whether the Source has lists of changes.
    pub(in crate::sync) follows: bool,
    /// Deliveries up to this number had come before the lists were read.
    pub(in crate::sync) caught_up: i64,
}

/// What is to be done with what waits on a channel.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::sync) struct Plan {
    /// To be applied, in this order; and whether the lists were read after it came.
    pub(in crate::sync) take: Vec<(Waiting, bool)>,
    /// Of no more use: the lists have told it.
    pub(in crate::sync) settled: Vec<i64>,
    /// Up to when the notifications are in the tree then.
    pub(in crate::sync) cursor: Option<Datetime>,
    /// When the lists are to be read for the sake of what is left, and whether an interval is missing.
    pub(in crate::sync) lists: Option<(Datetime, bool)>,
}

/// Decides. What tells of intervals comes first, in their order; then the rest, as it came.
pub(in crate::sync) fn plan(waiting: &[Waiting], standing: Standing) -> Plan {
    let mut plan = Plan { cursor: standing.cursor, ..Plan::default() };
    let mut hole = false;
    for one in waiting {
        let caught = one.id <= standing.caught_up;
        let mut wants = |moment: Datetime, missing: bool| {
            let (sooner, before) = plan.lists.unwrap_or((moment, false));
            plan.lists = Some((sooner.min(moment), before || missing));
        };
        match one.reading {
            Reading::Whole { from, until, dated } => {
                let joins = match plan.cursor {
                    Some(cursor) => from <= cursor,
                    None => standing.covered.is_some_and(|covered| from <= covered),
                };
                let late = plan.cursor.is_some_and(|cursor| from < cursor);
                // What has no time counts in its order alone, which the lists know.
                let told = !dated && (standing.follows || late);
                let old = !dated && standing.listed.is_some_and(|listed| until <= listed);
                if hole && !caught {
                    continue;
                }
                if !joins && !caught {
                    hole = true;
                    let patience = if plan.cursor.is_some() { GRACE } else { Duration::ZERO };
                    wants(
                        Datetime::from_nanos(
                            one.came.nanos().saturating_add(i64::try_from(patience.as_nanos()).unwrap_or(i64::MAX)),
                        ),
                        true,
                    );
                } else if told && !caught && !old {
                    wants(one.came, false);
                } else {
                    match (told && caught) || old {
                        true => plan.settled.push(one.id),
                        false => plan.take.push((*one, caught)),
                    }
                    // A mistaken end, far ahead, must not make everything after it look as if it joined.
                    let latest = Datetime::from_nanos(one.came.nanos().saturating_add(AHEAD));
                    plan.cursor = plan.cursor.max(Some(until.min(latest)));
                }
            }
            Reading::Loose { .. } if !standing.follows => plan.take.push((*one, caught)),
            Reading::Loose { .. } | Reading::Ping if caught => plan.settled.push(one.id),
            Reading::Loose { .. } | Reading::Ping => wants(one.came, false),
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Datetime {
        Datetime::from_nanos(second * 1_000_000_000)
    }

    fn waits(id: i64, reading: Reading) -> Waiting {
        Waiting { id, came: at(1000 + id), reading }
    }

    fn whole(id: i64, from: i64, until: i64) -> Waiting {
        waits(id, Reading::Whole { from: at(from), until: at(until), dated: true })
    }

    fn undated(id: i64, from: i64, until: i64) -> Waiting {
        waits(id, Reading::Whole { from: at(from), until: at(until), dated: false })
    }

    fn loose(id: i64) -> Waiting {
        waits(id, Reading::Loose { from: at(1), until: at(2), dated: true })
    }

    /// What is taken, what is settled, where the cursor is then, and when lists are wanted, in seconds.
    type Outcome = (Vec<i64>, Vec<i64>, Option<i64>, Option<(i64, bool)>);

    fn decide(waiting: &[Waiting], standing: Standing) -> Outcome {
        let plan = plan(waiting, standing);
        let seconds = |moment: Datetime| moment.nanos() / 1_000_000_000;
        (
            plan.take.iter().map(|(one, _)| one.id).collect(),
            plan.settled,
            plan.cursor.map(seconds),
            plan.lists.map(|(moment, missing)| (seconds(moment), missing)),
        )
    }

    fn joined() -> Standing {
        Standing { cursor: Some(at(10)), follows: true, ..Standing::default() }
    }

    fn caught(id: i64, standing: Standing) -> Standing {
        Standing { caught_up: id, ..standing }
    }

    #[test]
    fn what_joins_is_taken_and_what_does_not_waits_for_the_lists() {
        let joined = joined();
        let fresh = Standing { covered: Some(at(10)), follows: true, ..Standing::default() };
        for (what, waiting, standing, expected) in [
            (
                "intervals that join",
                vec![whole(1, 10, 20), whole(2, 20, 30)],
                joined,
                (vec![1, 2], vec![], Some(30), None),
            ),
            ("one that overlaps", vec![whole(1, 5, 20)], joined, (vec![1], vec![], Some(20), None)),
            ("a late one", vec![whole(7, 1, 5), whole(6, 10, 11)], joined, (vec![7, 6], vec![], Some(11), None)),
            ("a gap waits a second", vec![whole(1, 11, 20)], joined, (vec![], vec![], Some(10), Some((1002, true)))),
            (
                "behind a gap",
                vec![whole(1, 10, 20), whole(2, 21, 30), whole(3, 30, 40)],
                joined,
                (vec![1], vec![], Some(20), Some((1003, true))),
            ),
            (
                "a gap that the lists closed",
                vec![whole(2, 21, 30), whole(3, 30, 40), whole(4, 41, 50)],
                caught(3, joined),
                (vec![2, 3], vec![], Some(40), Some((1005, true))),
            ),
            ("the first one", vec![whole(1, 10, 20)], fresh, (vec![1], vec![], Some(20), None)),
            ("a first one after the cursor", vec![whole(1, 11, 20)], fresh, (vec![], vec![], None, Some((1001, true)))),
            ("that, after the lists", vec![whole(1, 11, 20)], caught(1, fresh), (vec![1], vec![], Some(20), None)),
            (
                "nothing is known",
                vec![whole(1, 10, 20)],
                Standing::default(),
                (vec![], vec![], None, Some((1001, true))),
            ),
            ("one that ends far in the future", vec![whole(1, 10, 9999)], joined, (vec![1], vec![], Some(1901), None)),
        ] {
            assert_eq!(decide(&waiting, standing), expected, "{what}");
        }
    }

    #[test]
    fn what_tells_no_interval_or_no_times_waits_for_the_lists_where_there_are_any() {
        let joined = joined();
        let alone = |standing| Standing { follows: false, ..standing };
        let ping = |id| waits(id, Reading::Ping);
        for (what, waiting, standing, expected) in [
            ("a ping", vec![ping(1)], joined, (vec![], vec![], Some(10), Some((1001, false)))),
            (
                "a ping, after the lists",
                vec![ping(1), ping(2)],
                caught(1, joined),
                (vec![], vec![1], Some(10), Some((1002, false))),
            ),
            (
                "a message without an interval is confirmed",
                vec![loose(1)],
                joined,
                (vec![], vec![], Some(10), Some((1001, false))),
            ),
            ("where there is something that can", vec![loose(1)], alone(joined), (vec![1], vec![], Some(10), None)),
            (
                "without times, the lists tell",
                vec![undated(1, 10, 20)],
                joined,
                (vec![], vec![], Some(10), Some((1001, false))),
            ),
            ("and have told", vec![undated(1, 10, 20)], caught(1, joined), (vec![], vec![1], Some(20), None)),
            ("where there are any", vec![undated(1, 10, 20)], alone(joined), (vec![1], vec![], Some(20), None)),
            (
                "a late one without times, and no lists of changes",
                vec![undated(1, 5, 8)],
                alone(joined),
                (vec![], vec![], Some(10), Some((1001, false))),
            ),
            (
                "older than the newest Resource List",
                vec![undated(1, 10, 20)],
                alone(Standing { listed: Some(at(20)), ..joined }),
                (vec![], vec![1], Some(20), None),
            ),
        ] {
            assert_eq!(decide(&waiting, standing), expected, "{what}");
        }
    }
}
