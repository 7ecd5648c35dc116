//! The numbers that statements compare columns with: `version.change` ([`How`](crate::catalog::How)) and `member.state`
//! ([`MemberState`](crate::catalog::MemberState)).

/// Whether a version is one of the Source's own, and not known from an archive alone; given the column `change`.
macro_rules! own {
    ($change:literal) => {
        concat!("COALESCE(", $change, ", 0) < 16")
    };
}
pub(in crate::catalog) use own;

/// Whether a version came by a change without a time; given the column `change`.
macro_rules! undated {
    ($change:literal) => {
        concat!($change, " < 4")
    };
}
pub(in crate::catalog) use undated;

/// Whether a change took a resource away, rather than a list that leaves it out; given the column `gone`.
macro_rules! deleted {
    ($gone:literal) => {
        concat!($gone, " IN (3, 7)")
    };
}
pub(in crate::catalog) use deleted;

/// Nobody has looked at a member yet.
macro_rules! unseen {
    () => {
        "0"
    };
}
pub(in crate::catalog) use unseen;

/// A member is not what is listed.
macro_rules! damaged {
    () => {
        "2"
    };
}
pub(in crate::catalog) use damaged;

/// Whether a member was found to be here and whole; given the column `state`.
macro_rules! here {
    ($state:literal) => {
        concat!($state, " IN (1, 3)")
    };
}
pub(in crate::catalog) use here;

/// The contrary of [`here`].
macro_rules! not_here {
    ($state:literal) => {
        concat!($state, " NOT IN (1, 3)")
    };
}
pub(in crate::catalog) use not_here;

#[cfg(test)]
mod tests {
    use crate::catalog::model::members::MemberState;
    use crate::catalog::model::origin::How;
    use crate::document::Change;

    #[test]
    fn numbers_are_those_of_their_types() {
        assert_eq!(own!("change"), format!("COALESCE(change, 0) < {}", How::ARCHIVED.number()));
        assert_eq!(undated!("change"), format!("change < {}", How::DATED));
        let deletion = |exact| How::change(Change::Deleted, exact).number();
        assert_eq!(deleted!("gone"), format!("gone IN ({}, {})", deletion(false), deletion(true)));
        assert_eq!(unseen!(), (MemberState::Unseen as i64).to_string());
        assert_eq!(damaged!(), (MemberState::Damaged as i64).to_string());
        let (verified, intact) = (MemberState::Verified as i64, MemberState::Intact as i64);
        assert_eq!(here!("state"), format!("state IN ({verified}, {intact})"));
        assert_eq!(not_here!("state"), format!("state NOT IN ({verified}, {intact})"));
    }
}
