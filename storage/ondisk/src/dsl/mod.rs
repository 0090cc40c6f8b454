//! Directories, datasets, bookmarks, deadlists: the layer of datasets and snapshots.
//!
//! All of these are in the MOS. A *directory* ([`Dir`]) has a name in the pool's tree,
//! properties and space accounting. Its *datasets* ([`Dataset`]) are its present content (the
//! head) and its snapshots, a list from the newest to the oldest. A *deadlist* ([`Deadlist`]) holds
//! the blocks that a dataset has and its successor no longer has. It is made of lists of block
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
