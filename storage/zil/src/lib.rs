//! The intent log: what was promised before the txg closed.
//!
//! A dataset's log is a chain of blocks. Each is found by a pointer that the one before it has,
//! and was written without a word to anything above it; so nothing says where the chain ends but
//! a block that is not what its pointer promises. [`LogReader`] walks the chain and gives, in order,
//! the records that are not part of the dataset yet, with the data of writes whose data lies in a
//! block of its own.
//!
//! ```text
//! header -> block 1 -> block 2 -> block 3 -> (never written: the end)
//!           records    records    records
//! ```
//!
//! [`IntentLog`] writes it while the dataset is changed. After a power cut [`claim_log`] sees to it that
//! nothing takes the place of what it holds, [`LogReader`] tells what is to be done again, and [`free_log`]
//! gives it up.
//!
//! What is left out, as an import that replays the log would leave it out:
//!
//! * records of txgs that are on disk: up to the pool's last, or before the txg of the claim;
//! * records that a replay that did not come to its end has replayed (`replay_seq`);
//! * what comes after the last block or record that was claimed.
#![forbid(unsafe_code)]

mod block_packer;
mod chain;
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
