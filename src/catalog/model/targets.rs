//! Targets of links by which resources are found.

/// A relation by whose target resources are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// The resource's canonical URI, which is not its own.
    Canonical = 1,
    /// A collection that it is a member of.
    Collection = 2,
}

/// The target of such a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// How the resource is related to it.
    pub relation: Relation,
    /// Absolute.
    pub uri: String,
}
