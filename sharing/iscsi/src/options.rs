//! Addresses and limits of a server.

use std::net::SocketAddr;
use std::time::Duration;

use crate::scsi::MAX_TRANSFER_BYTES;
use crate::{Error, Result};

/// Addresses and limits of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerOptions {
    /// The addresses that the server listens on. The port of iSCSI is 3260; port 0 is a free one.
    pub listen: Vec<SocketAddr>,
    /// The most connections at a time; each has one session. Further ones are closed at once.
    pub max_connections: usize,
    /// Threads of one connection: commands that run in parallel.
    pub threads_per_connection: usize,
    /// The most commands of one session in progress (the window of CmdSN).
    pub max_commands: usize,
    /// Bytes of data of the writes of one session that are in memory. The target asks for no more data above it;
    /// the first burst of each command, 64 KiB at most, comes in addition.
    pub max_write_bytes: usize,
    /// Bytes of data of the reads of all sessions that are in memory. One session takes at most a quarter.
    pub max_read_bytes: usize,
    /// The time that an initiator has for the login, and for each MiB of a PDU once it has begun. A connection that
    /// takes longer is closed. Between PDUs an initiator may wait for as long as it likes.
    pub stall_timeout: Duration,
    /// The time between two logins that failed.
    pub failed_login_pause: Duration,
    /// The time between two looks at the space of the pool, which follow writes.
    pub space_check_interval: Duration,
    /// Initiators are warned when the pool has less space for a unit than this part of its size, in percent. 0: never.
    pub space_warning: u8,
    /// The time that the server waits for commands to end when it stops.
    pub stop_timeout: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            max_connections: 64,
            threads_per_connection: 16,
            max_commands: 128,
            max_write_bytes: 16 << 20,
            max_read_bytes: 128 << 20,
            stall_timeout: Duration::from_secs(30),
            failed_login_pause: Duration::from_secs(1),
            space_check_interval: Duration::from_secs(5),
            space_warning: 10,
            stop_timeout: Duration::from_secs(5),
        }
    }
}

impl ServerOptions {
    pub(crate) fn check(&self) -> Result<()> {
        let transfer = usize::try_from(MAX_TRANSFER_BYTES).expect("the engine runs on 64 bits");
        let limits = [
            ("max_connections", self.max_connections, 1, 1 << 16),
            // one reads the socket while the others work
            ("threads_per_connection", self.threads_per_connection, 2, 256),
            ("max_commands", self.max_commands, 2, 4096),
            ("max_write_bytes", self.max_write_bytes, transfer, usize::MAX),
            ("max_read_bytes", self.max_read_bytes, transfer, usize::MAX),
        ];
        for (limit, found, least, most) in limits {
            if !(least..=most).contains(&found) {
                return Err(Error::Limit { limit, found, least, most });
            }
        }
        Ok(())
    }
}
