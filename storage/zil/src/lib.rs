//! The intent log: changes that were acknowledged before their txg was synced.
//!
//! A dataset's log is a chain of blocks. Each block has a pointer to the next one, and writing a
//! block changes nothing above it. So the chain ends at a block that does not match its pointer.
//! [`LogReader`] walks the chain. It returns the records that are not yet part of the dataset, in
//! order. It also reads the data of writes that are in blocks of their own.
//!
//! ```text
//! header -> block 1 -> block 2 -> block 3 -> (never written: the end)
//!           records    records    records
//! ```
//!
//! [`IntentLog`] writes the log while the dataset is changed. After a power cut [`claim_log`] marks
//! its blocks as allocated, [`LogReader`] returns the records to replay, and [`free_log`] frees the
//! blocks.
//!
//! The reader skips records that an import would not replay:
//!
//! * records of txgs that are on disk: up to the pool's last, or before the txg of the claim;
//! * records that a replay that did not come to its end has replayed (`replay_seq`);
//! * records after the last block or record that was claimed.
#![forbid(unsafe_code)]

mod block_packer;
mod chain;
mod commit;
mod error;
pub mod extents;
mod itxs;
mod log;
mod log_reader;

pub use chain::{can_defer_replay, claim_log, free_log, free_unreplayed};
pub use error::Error;
pub use itxs::Itx;
pub use log::IntentLog;
pub use log_reader::{LogEnd, LogReader, ReplayEntry, WrittenBlock};

#[cfg(test)]
mod tests;
