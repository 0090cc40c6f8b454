//! Drives whose power fails, and which fail themselves, all from one seed.
//!
//! A [`DiskArray`] is a set of drives in memory that record every request in one [`Journal`]. A
//! pool, or a part of one, that ran on them can then be examined as if the power had failed at any
//! point: [`Journal::cut_power`] returns the drives as they could be afterwards.
//!
//! # The fault model
//!
//! When the power fails after request `n`:
//!
//! * A write that was followed by a flush of its drive within the first `n` requests survives.
//!   Flushes are a drive's own: they do not affect the other drives.
//! * Of the later writes to a drive, any subset survives. So a later write may survive without an
//!   earlier one, even if they belong to one structure.
//! * A write may survive in part: any subset of its sectors of 512 bytes. A sector survives whole
//!   or not at all. (Real drives do that; structures of larger units must carry a checksum.)
//! * Of two writes to one sector the earlier is never seen once the later survived.
//! * Nothing else changes: no sector without a write since the last flush.
//!
//! While the power is on a test may make a drive:
//!
//! * fail reads or writes in a range, or every flush ([`Fault::Read`], [`Fault::Write`],
//!   [`Fault::Flush`]); a failed write may survive in part, and writes before a failed flush count
//!   as not flushed, even if a later flush succeeds;
//! * vanish, with or without its later return ([`Fault::Removed`]); end too early ([`Fault::Truncated`]);
//! * answer slowly ([`Fault::Slow`]);
//! * lose writes in a range without an error ([`Fault::LostWrite`]); store them elsewhere
//!   ([`Fault::MisdirectedWrite`]);
//! * rot: bits change on the medium ([`Disk::flip_bits`]).
//!
//! Not in the model, because no file system on these drives could survive it: a drive that reports
//! a flush as done when it was not.
//!
//! Requirements after any cut: the content of the last finished commit. After faults: the same, as
//! long as no more drives of a vdev are affected than its redundancy allows; and in every case no
//! wrong data may be returned.
#![forbid(unsafe_code)]

mod disk;
mod fault;
mod journal;
mod power_cut;
mod random;

pub use disk::{Disk, DiskArray};
pub use fault::Fault;
pub use journal::{Event, EventKind, Journal};
pub use random::Random;

/// The unit in which a write is torn, in bytes.
pub const SECTOR: usize = 512;
