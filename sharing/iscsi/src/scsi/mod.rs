//! SCSI commands on logical units (SPC-4, SBC-3), without a session or a socket.
//!
//! ```text
//! cdb           the bytes of a command to a `Command`
//! unit          a logical unit with its state: unit attentions, mode, reservations
//! execute       which command may run now, and what it does
//!  ├ blocks        reads, writes, verifies, compare and write
//!  ├ provisioning  UNMAP, WRITE SAME, GET LBA STATUS
//!  ├ copy          EXTENDED COPY, RECEIVE COPY RESULTS
//!  ├ inquiry       INQUIRY and its pages, READ CAPACITY, REPORT LUNS
//!  ├ mode          MODE SENSE, MODE SELECT
//!  ├ reservation   PERSISTENT RESERVE IN and OUT, RESERVE, RELEASE
//!  └ opcodes       the table of commands, REPORT SUPPORTED OPERATION CODES
//! thin_threshold  when a pool that fills is reported
//! sense         why a command failed
//! ```

mod blocks;
mod cdb;
mod copy;
mod execute;
mod inquiry;
mod mode;
mod opcodes;
mod provisioning;
mod reservation;
mod sense;
mod thin_threshold;
mod unit;

pub(crate) use cdb::{Command, MAX_TRANSFER_BYTES};
pub(crate) use execute::{AbortTasks, Failure, Path};
pub(crate) use inquiry::parse_unit_number;
pub(crate) use sense::Sense;
pub(crate) use unit::{LogicalUnit, SessionId};
