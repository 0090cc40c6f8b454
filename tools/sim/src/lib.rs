//! Drives whose power fails, and which fail themselves, all from one seed.
//!
//! A [`DiskArray`] is a set of drives in memory that write down everything that is asked of them in
//! one [`Journal`]. Whatever ran on them, a pool or a part of one, can then be looked at as if the
//! power had failed at any point: [`Journal::cut_power`] gives the drives as they could be found after.
//!
//! # The fault model
//!
//! When the power fails after request `n`:
//!
//! * What was written to a drive before its last flush that returned within the first `n` requests
//!   is there. Flushes are a drive's own: they say nothing about the other drives.
//! * Of what was written to a drive later, any subset is there. So a later write may be there and
//!   an earlier one not, even where they belong to one structure.
//! * A write that is there may be so in part: any subset of its sectors of 512 bytes. A sector is
//!   there whole or not at all. (Real drives are as good as that; what writes larger units must
//!   carry a checksum over them.)
//! * Of two writes to one sector the earlier is never seen once the later is there.
//! * Nothing else changes: no sector that was not written since the last flush.
//!
//! While the power is on a drive may, when a test says so:
//!
//! * fail to read or to write in a range, or fail every flush ([`Fault::Read`], [`Fault::Write`],
//!   [`Fault::Flush`]); what a failed write had to say may be there in part, and what was written
//!   before a failed flush counts as not flushed, even if a later flush succeeds;
//! * vanish, with or without its later return ([`Fault::Removed`]); end too early ([`Fault::Truncated`]);
//! * lose writes in a range while it says that all is well ([`Fault::LostWrite`]); put them elsewhere
//!   ([`Fault::MisdirectedWrite`]);
//! * rot: bits change on the medium ([`Disk::flip_bits`]).
//!
//! Not in the model, because no file system on these drives could survive it: a drive that says a
//! flush was done when it was not.
//!
//! What must survive any cut: everything that the last finished commit holds. What must survive
//! faults: the same, as long as no more drives of a vdev are hit than it has redundancy for; and
//! whatever is hit, nothing may be returned as data that is not.
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
