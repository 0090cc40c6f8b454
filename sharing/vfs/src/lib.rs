//! What a file protocol needs of a pool: one tree of all its datasets.
//!
//! A [`Tree`] shows a dataset and those below it at their names, as OpenZFS would mount them, with
//! `.zfs/snapshot` (and `.zfs/volume`) in the root of each. What is in it has a number
//! (`number.rs`) and [`Attributes`]; a directory has a [`Listing`] that goes on where it stopped;
//! a file or volume has a [`Reader`] that reads ahead. Nothing here knows of a protocol, a socket
//! or the kernel, and nothing is ever written.
#![forbid(unsafe_code)]

mod ahead;
mod attributes;
mod control;
mod dataset;
mod error;
mod listing;
mod names;
mod number;
mod reader;
mod tree;
mod workers;

pub use attributes::Attributes;
pub use engine::files::{Kind, Room, Time};
pub use error::{Error, Result};
pub use listing::{Item, Listing};
pub use reader::Reader;
pub use tree::Tree;
