//! The Network Status Monitor, version 1 (X/Open XNFS, chapter 11): machines tell each other that they have restarted.
//!
//! ```text
//! STAT        name<1024>                                        result: 0 or 1, state (4)
//! MON         name<1024>, my name<1024>, my call (12), private (16)   result: 0 or 1, state (4)
//! UNMON       name<1024>, my name<1024>, my call (12)           result: state (4)
//! UNMON_ALL   my name<1024>, my call (12)                       result: state (4)
//! NOTIFY      name<1024>, state (4)                             no result
//! ```
//!
//! The state of a machine is a number that grows with each restart, and is odd while the machine runs.
//!
//! MON has the monitor call a program of the caller's choice. It is meant for programs of the same machine. The server
//! watches its own clients only, so it refuses MON.

use super::Result;
use super::xdr::{Reader, Writer};

/// The number of the program.
pub const PROGRAM: u32 = 100_024;
/// The only version.
pub const VERSION: u32 = 1;
/// NOTIFY, which the server calls at clients.
pub const NOTIFY: u32 = 6;
/// Bytes of the longest name of a machine.
pub const MAX_NAME: usize = 1024;

/// A call to the status monitor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Procedure<'a> {
    /// NULL and SIMU_CRASH: nothing happens.
    Null,
    /// STAT: whether the monitor can watch a machine.
    Stat,
    /// MON: requests a call when a machine restarts.
    Monitor,
    /// UNMON and UNMON_ALL: end such requests.
    Unmonitor,
    /// NOTIFY: a machine has restarted.
    Notify {
        /// The name of the machine.
        name: &'a [u8],
        /// Its new state.
        state: u32,
    },
}

impl<'a> Procedure<'a> {
    /// The procedure of a number; none if it does not exist.
    pub fn parse(number: u32, arguments: &'a [u8]) -> Result<Option<Self>> {
        let mut reader = Reader::new(arguments);
        Ok(Some(match number {
            0 | 5 => Self::Null,
            1 => {
                reader.opaque(MAX_NAME)?;
                Self::Stat
            }
            2 => Self::Monitor,
            3 | 4 => Self::Unmonitor,
            NOTIFY => Self::Notify { name: reader.opaque(MAX_NAME)?, state: reader.u32()? },
            _ => return Ok(None),
        }))
    }

    /// Writes the result, which has the server's own state.
    pub fn write_result(&self, writer: &mut Writer, state: u32) {
        match self {
            Self::Null | Self::Notify { .. } => {}
            // 0: it can watch; 1: it does not
            Self::Stat | Self::Monitor => {
                writer.u32(u32::from(matches!(self, Self::Monitor)));
                writer.u32(state);
            }
            Self::Unmonitor => writer.u32(state),
        }
    }
}

/// Writes the arguments of NOTIFY.
pub fn write_notify(writer: &mut Writer, name: &[u8], state: u32) {
    writer.opaque(name);
    writer.u32(state);
}
