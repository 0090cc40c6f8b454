//! Objects made of blocks, changed only inside a transaction.
//!
//! An [`Objset`] is a tree of numbered objects; an [`Object`] is a tree of blocks with a bonus.
//! Blocks come from a [`zio::Source`]; a block that contradicts the dnode it hangs from is an error
//! and never data. A live object set can be changed ([`Objset::to_live`]): each group's changes
//! are laid over it, seen at once, and written to a [`zio::Sink`] by [`Objset::sync`].
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)
)]

mod error;
mod live;
pub mod memory;
mod object;
mod objects;
mod objset;
mod pieces;
mod recent;
mod shape;
mod sync;
mod tree;
mod walk;

pub use error::Error;
pub use live::{Early, LongWrite, NewObject, Underway};
pub use object::{Object, SPILL};
pub use objects::Objects;
pub(crate) use objset::live_place;
pub use objset::{Objset, Special};
pub use pieces::{Piece, Pieces};
pub use recent::Recent;
pub use sync::{Changed, Form, Ledger, Synced, Syncing, Wanted};
pub use walk::{Found, Next, Plan};

/// What asking for something of an object set gives.
pub type Result<T> = std::result::Result<T, Error>;
