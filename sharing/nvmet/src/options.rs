//! Addresses and limits of a server.

use std::net::SocketAddr;
use std::time::Duration;

use crate::io::MAX_TRANSFER_BYTES;
use crate::{Error, Result};

/// Addresses and limits of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerOptions {
    /// The addresses that the server listens on. The port of NVMe/TCP is 4420; port 0 is a free one.
    pub listen: Vec<SocketAddr>,
    /// Connections at the same time, of which each has one queue. Further ones are closed at once.
    pub max_connections: usize,
    /// I/O queues of one controller.
    pub max_queues: u16,
    /// Entries of one queue: commands that are accepted and not answered.
    pub queue_entries: u16,
    /// Threads of one I/O queue: commands that run in parallel.
    pub threads_per_queue: usize,
    /// Bytes of data of the writes of one queue that are in memory. The controller asks for no more data above it; data
    /// in capsules, at most 16 KiB each, come in addition.
    pub max_write_bytes: usize,
    /// Bytes of data of the reads of all queues that are in memory. One queue takes at most a quarter.
    pub max_read_bytes: usize,
    /// The time that a host has from its connection to the end of Connect, and for each MiB of a PDU once it has begun.
    /// A connection that takes longer is closed. Between PDUs a host may wait for as long as its keep-alive timeout
    /// allows.
    pub stall_timeout: Duration,
    /// The longest keep-alive timeout, which a host has that asks for none or for a longer one. None: such hosts may be
    /// silent for as long as TCP finds them.
    pub max_keep_alive: Option<Duration>,
    /// The time between two authentications that failed.
    pub failed_login_pause: Duration,
    /// The time that the server waits for commands to end when it stops.
    pub stop_timeout: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            max_connections: 256,
            max_queues: 16,
            queue_entries: 128,
            threads_per_queue: 16,
            max_write_bytes: 2 << 20,
            max_read_bytes: 128 << 20,
            stall_timeout: Duration::from_secs(30),
            max_keep_alive: None,
            failed_login_pause: Duration::from_secs(1),
            stop_timeout: Duration::from_secs(5),
        }
    }
}

impl ServerOptions {
    pub(crate) fn check(&self) -> Result<()> {
        let limits = [
            ("max_connections", self.max_connections, 1, 1 << 16),
            ("max_queues", self.max_queues.into(), 1, 1024),
            ("queue_entries", self.queue_entries.into(), 2, 4096),
            ("threads_per_queue", self.threads_per_queue, 1, 256),
            ("max_write_bytes", self.max_write_bytes, MAX_TRANSFER_BYTES, usize::MAX),
            ("max_read_bytes", self.max_read_bytes, MAX_TRANSFER_BYTES, usize::MAX),
        ];
        for (limit, found, least, most) in limits {
            if !(least..=most).contains(&found) {
                return Err(Error::Limit { limit, found, least, most });
            }
        }
        Ok(())
    }
}
