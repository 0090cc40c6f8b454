//! Volumes as SCSI disks over TCP: an iSCSI target over logical units (RFC 7143).
//!
//! ```text
//! server        listeners, the table of targets, the table of connections; start, reload, stop, status
//!  └ handshake    the login of one connection
//!     └ login       stages, CHAP and keys, without a socket
//!  └ connection   one session: threads that read PDUs and carry out commands
//!    ├ tasks        the tasks of the session: numbers, order, memory, aborts
//!    ├ transfer     the data of a write
//!    ├ management   task management, SendTargets
//!    ├ notices      asynchronous messages
//!    ├ sender       responses to PDUs
//!    ├ scsi         one command on a unit, without a session or a socket
//!    └ wire         bytes to PDUs and back
//! ```
//!
//! A session has one connection and error recovery level 0: when a connection breaks, the initiator logs in again and
//! repeats its commands. A connection has a few threads that take turns at reading, so that commands run in parallel.
//! The window of CmdSN bounds the commands of a session, and R2Ts bound the data of its writes in memory.
//!
//! Units report a volatile write cache. A write is in it until SYNCHRONIZE CACHE, FUA, or the end of the cache by
//! MODE SELECT commits it to the intent log.
//!
//! While the pool is suspended, commands wait (failmode=wait) or fail with NOT READY, MANUAL INTERVENTION REQUIRED
//! (failmode=continue). Initiators learn of a new size, a rollback, other units of a target, and a pool
//! that fills by unit attentions and by asynchronous messages, and of the end of the server by the latter.
#![forbid(unsafe_code)]

mod connection;
mod error;
mod handshake;
mod login;
mod management;
mod memory_reads;
mod notices;
mod options;
mod scsi;
mod sender;
mod server;
mod session;
mod status;
mod target;
mod tasks;
mod transfer;
pub mod wire;

pub use error::{Error, Result};
pub use options::ServerOptions;
pub use server::{FailedLogin, FailedLoginCallback, Server};
pub use status::{Counters, ServerStatus, SessionStatus};
pub use target::{Chap, ChapUser, Discovery, Target, UnitId};
