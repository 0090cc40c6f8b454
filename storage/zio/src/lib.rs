//! One block's journey down to the drives and back.
//!
//! [`Reader`] takes a block pointer and returns the block's bytes: from the first readable copy
//! with a right checksum, decrypted, decompressed. Bytes with a wrong checksum never
//! leave this crate. Upper crates read through the trait [`Source`], so that a cache can be
//! placed in between.
//!
//! [`Writer`] takes a block and returns the pointer to it: a hole, an embedded block, or one that
//! is compressed, encrypted, checksummed, allocated by [`metaslab`] and written. Upper crates write
//! through the trait [`Sink`].
#![forbid(unsafe_code)]

mod batch;
mod block;
mod decode;
mod encode;
mod error;
mod gang;
mod gang_write;
mod log;
pub mod memory;
mod memory_part;
mod protect;
mod reader;
mod rebuild;
mod repair;
mod secondary_cache;
mod self_healer;
mod shared_blocks;
mod sink;
mod source;
mod stored;
mod suspend_gate;
mod trimmed;
mod writer;

pub use block::Block;
pub use encode::SizeRounding;
pub use error::{CopyError, Error};
pub use log::{LogAllocation, LogBlock};
pub use memory_part::{MemoryPart, MemoryParts};
pub use metaslab::Class;
pub use protect::Random;
pub use reader::{Reader, VerifiedBlock};
pub use repair::BlockRepair;
pub use secondary_cache::SecondaryCache;
pub use self_healer::SelfHealer;
pub use shared_blocks::{DedupLookup, DedupMatch, FreeOutcome, SharedBlocks};
pub use sink::{RawBlock, Sink, WritePolicy, WriteRequest};
pub use source::{BlockRead, Key, Source};
pub use stored::{BlockStore, StoredReader};
pub use suspend_gate::{SuspendGate, is_syncing_thread, while_syncing};
pub use trimmed::Trimmed;
pub use writer::{MetaslabLoader, Writer};
