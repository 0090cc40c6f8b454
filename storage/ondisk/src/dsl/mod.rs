//! Directories, datasets, bookmarks, deadlists: the layer of datasets and snapshots.
//!
//! All of these lie in the MOS. A *directory* ([`Dir`]) is what has a name in the pool's tree,
//! properties and space accounting; its *datasets* ([`Dataset`]) are its present content (the
//! head) and its snapshots, a list from the newest to the oldest. What a dataset once had and
//! its next no longer has is in a *deadlist* ([`Deadlist`]), which is made of lists of block
//! pointers ([`Bpobj`]).

mod bookmark;
mod bpobj;
mod dataset;
mod deadlist;
mod delegation;
mod dir;

pub use bookmark::{Bookmark, RedactedBlocks, RedactionList};
pub use bpobj::{Bpobj, Bptree, BptreeEntry, is_freed};
pub use dataset::Dataset;
pub use deadlist::Deadlist;
pub use delegation::{DelegationKey, DelegationScope, Grantee};
pub use dir::{Dir, UsedBreakdown};

#[cfg(test)]
mod tests;
