//! Numbers of rows, a type for each table.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(i64);

        impl $name {
            /// The row of this number.
            #[must_use]
            pub const fn new(number: i64) -> Self {
                Self(number)
            }

            /// The row after it.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0 + 1)
            }

            /// The number of the row.
            #[must_use]
            pub const fn number(self) -> i64 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// A version of a resource.
    VersionId
}

id! {
    /// A set of resources.
    SetId
}

id! {
    /// A document that the tree was made from.
    DocumentId
}

id! {
    /// A package of a dump.
    PackageId
}

id! {
    /// A name in a directory.
    NameId
}
