//! Objects made of blocks, changed only inside a transaction.
//!
//! An [`Objset`] is a tree of numbered objects; an [`Object`] is a tree of blocks with a bonus.
//! Blocks come from a [`zio::Source`]; a block that contradicts its dnode is an error and never
//! data. A live object set can be changed ([`Objset::to_writable`]): each txg's changes are in a dirty
//! overlay, visible at once, and [`Objset::sync`] writes them to a [`zio::Sink`].
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

mod dirty;
mod error;
pub mod memory;
mod object;
mod object_iter;
mod objset;
mod recent_blocks;
mod segments;
mod sync;
mod tree;
mod tree_shape;
mod walk;

pub use dirty::{LogWrite, LongWrite, NewObject, PendingWrite, RawShape, WriteThrough};
pub use error::Error;
pub use object::{Object, SPILL_BLOCK};
pub use object_iter::ObjectIter;
pub(crate) use objset::dnode_zbookmark;
pub use objset::{Objset, SpecialObject};
pub use recent_blocks::RecentBlocks;
pub use segments::{BlockSegment, BlockSegments};
pub use sync::{BlockLedger, DnodeChange, Form, PolicyQuery, SyncContext, SyncOutput};
pub use walk::{BlockVisit, WalkControl, WalkOptions};

/// The result of an operation on an object set.
pub type Result<T> = std::result::Result<T, Error>;
