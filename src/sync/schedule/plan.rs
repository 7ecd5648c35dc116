//! What a set needs, as values: decided here, executed by [`set`](super::set).

use crate::catalog::SetState;
use crate::sync::apply::changes::Outcome;
use crate::sync::apply::lost_feeds::LostFeeds;
use crate::sync::documents::follow::FollowDepth;

/// What is known of a set before the Source is asked for anything of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) state: SetState,
    /// Whether the Source offers Change Lists or Change Dumps of it.
    pub(super) offers_changes: bool,
    /// Whether such were followed before.
    pub(super) has_feeds: bool,
    /// Whether lists are read even where changes tell enough.
    pub(super) lists_requested: bool,
    /// Whether its lists were read for another selection of what is shown.
    pub(super) selected_otherwise: bool,
    /// Whether its lists are due, `relist=` after they were read last.
    pub(super) lists_due: bool,
    /// Whether what is above the documents of changes is looked at, too.
    pub(super) wide: bool,
}

/// Why the lists of a set are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WhyLists {
    Requested,
    SelectedOtherwise,
    /// Nothing else tells what has changed.
    NoChanges,
    /// The tree is not what the lists had.
    NotComplete,
    /// Where changes were read up to is not known.
    NeverFollowed,
    /// Publishers omit deletions from their Change Lists.
    Due,
}

/// What a set needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// Why its lists are read first, if they are.
    pub(super) lists: Option<WhyLists>,
    /// How closely its changes are followed then, if there are any.
    pub(super) follow: Option<FollowDepth>,
}

/// What is done once the changes of a set were followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Done,
    /// What the set is remembered to offer is not there: the Source is discovered again.
    Discover,
    /// A newer list, by difference, makes up for changes that are missing; what changed since that list is applied again.
    Lists {
        /// Whether the set cannot be brought in step without it.
        required: bool,
    },
}

impl Plan {
    pub(super) fn of(known: &Known) -> Self {
        let lists = match known {
            Known { lists_requested: true, .. } => Some(WhyLists::Requested),
            Known { selected_otherwise: true, .. } => Some(WhyLists::SelectedOtherwise),
            Known { offers_changes: false, .. } => Some(WhyLists::NoChanges),
            Known { state, .. } if *state != SetState::Complete => Some(WhyLists::NotComplete),
            Known { has_feeds: false, .. } => Some(WhyLists::NeverFollowed),
            Known { lists_due: true, .. } => Some(WhyLists::Due),
            _ => None,
        };
        let depth = match lists {
            None | Some(WhyLists::Due) if known.wide => FollowDepth::Wide,
            None | Some(WhyLists::Due) => FollowDepth::Poll,
            Some(_) => FollowDepth::Again,
        };
        Self { lists, follow: known.offers_changes.then_some(depth) }
    }

    /// Whether changes go on from where they were read up to the last time.
    pub(super) fn goes_on(self) -> bool {
        self.follow.is_some_and(|depth| depth < FollowDepth::Again)
    }

    /// Whether changes are followed although the lists of a set in this state could not be read. If the Source is `away`, following
    /// those fails, too.
    pub(super) fn follows_without_lists(self, state: SetState, away: bool) -> bool {
        self.goes_on() || self.follow.is_some() && state != SetState::Empty && !away
    }

    /// What is done once changes were followed with this outcome; `remembered`: what the set offers was not looked for just now.
    pub(super) fn after(self, outcome: &Outcome, remembered: bool) -> Next {
        match outcome {
            Outcome::NoFeed if self.lists.is_none() && remembered => Next::Discover,
            Outcome::Gap(_) if self.lists.is_none() => Next::Lists { required: true },
            Outcome::Doubtful(_) if self.lists.is_none() => Next::Lists { required: false },
            _ => Next::Done,
        }
    }

    /// Whether lists are read because changes cannot be. The caller knows whether they were read in this sync already.
    pub(super) fn replaces_changes(self, outcome: &Outcome, lost: &LostFeeds) -> bool {
        let nothing_to_follow = matches!(outcome, Outcome::NoFeed) && lost.is_empty();
        self.lists.is_none() && (nothing_to_follow || lost.wants_lists())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Capability;
    use crate::source::{SourceError, Trouble};
    use crate::sync::summary::Summary;

    const FOLLOWED: Known = Known {
        state: SetState::Complete,
        offers_changes: true,
        has_feeds: true,
        lists_requested: false,
        selected_otherwise: false,
        lists_due: false,
        wide: false,
    };

    #[test]
    fn lists_are_read_where_changes_do_not_tell_enough() {
        let followed = |lists, depth| Plan { lists, follow: Some(depth) };
        let cases = [
            (FOLLOWED, followed(None, FollowDepth::Poll)),
            (Known { wide: true, ..FOLLOWED }, followed(None, FollowDepth::Wide)),
            (Known { lists_due: true, ..FOLLOWED }, followed(Some(WhyLists::Due), FollowDepth::Poll)),
            (Known { lists_requested: true, ..FOLLOWED }, followed(Some(WhyLists::Requested), FollowDepth::Again)),
            (
                Known { selected_otherwise: true, ..FOLLOWED },
                followed(Some(WhyLists::SelectedOtherwise), FollowDepth::Again),
            ),
            (Known { state: SetState::Gap, ..FOLLOWED }, followed(Some(WhyLists::NotComplete), FollowDepth::Again)),
            (
                Known { has_feeds: false, wide: true, ..FOLLOWED },
                followed(Some(WhyLists::NeverFollowed), FollowDepth::Again),
            ),
            (
                Known { offers_changes: false, lists_due: true, ..FOLLOWED },
                Plan { lists: Some(WhyLists::NoChanges), follow: None },
            ),
        ];
        for (known, expected) in cases {
            assert_eq!(Plan::of(&known), expected, "{known:?}");
        }
    }

    #[test]
    fn changes_are_followed_without_lists_unless_nothing_is_known_or_the_source_is_away() {
        let due = Plan::of(&Known { lists_due: true, ..FOLLOWED });
        assert!(due.follows_without_lists(SetState::Complete, true));
        let gap = Plan::of(&Known { state: SetState::Gap, ..FOLLOWED });
        assert!(gap.follows_without_lists(SetState::Gap, false));
        assert!(!gap.follows_without_lists(SetState::Gap, true));
        let new = Plan::of(&Known { state: SetState::Empty, ..FOLLOWED });
        assert!(!new.follows_without_lists(SetState::Empty, false));
        let lists_alone = Plan::of(&Known { offers_changes: false, ..FOLLOWED });
        assert!(!lists_alone.follows_without_lists(SetState::Complete, false));
    }

    #[test]
    fn lists_make_up_for_changes_that_are_missing_once_a_sync() {
        let (poll, read) = (Plan::of(&FOLLOWED), Plan::of(&Known { lists_requested: true, ..FOLLOWED }));
        let (gap, doubtful) = (Outcome::Gap(Summary::default()), Outcome::Doubtful(Summary::default()));
        assert_eq!(poll.after(&gap, true), Next::Lists { required: true });
        assert_eq!(poll.after(&doubtful, true), Next::Lists { required: false });
        assert_eq!(poll.after(&Outcome::Unchanged, true), Next::Done);
        assert_eq!(poll.after(&Outcome::NoFeed, true), Next::Discover);
        assert_eq!(poll.after(&Outcome::NoFeed, false), Next::Done);
        for outcome in [gap, doubtful, Outcome::NoFeed] {
            assert_eq!(read.after(&outcome, true), Next::Done, "the lists were read already");
        }
    }

    #[test]
    fn lists_replace_changes_that_cannot_be_read_for_the_second_time() {
        let plan = Plan::of(&FOLLOWED);
        let feed = crate::catalog::Feed::new("https://source.example/changes.xml", Capability::ChangeList);
        let gone = Trouble::Status { code: 404, retry_after: None };
        let unreadable = |failure: Option<&str>| LostFeeds {
            unreadable: vec![(
                crate::catalog::Feed { failure: failure.map(str::to_owned), ..feed.clone() },
                SourceError::new("https://source.example/changes.xml", gone.clone()),
            )],
            ..LostFeeds::default()
        };
        assert!(plan.replaces_changes(&Outcome::NoFeed, &LostFeeds::default()));
        assert!(!plan.replaces_changes(&Outcome::NoFeed, &unreadable(None)), "it may be there the next time");
        assert!(plan.replaces_changes(&Outcome::NoFeed, &unreadable(Some("404"))));
        assert!(plan.replaces_changes(&Outcome::Unchanged, &LostFeeds { unknown: true, ..LostFeeds::default() }));
        assert!(!plan.replaces_changes(&Outcome::Unchanged, &LostFeeds::default()));
        let read = Plan::of(&Known { lists_requested: true, ..FOLLOWED });
        assert!(!read.replaces_changes(&Outcome::NoFeed, &LostFeeds::default()));
    }
}
