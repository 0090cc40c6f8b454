//! The state of a server, for the status of services.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The state of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerStatus {
    /// The addresses that it listens on.
    pub listening: Vec<SocketAddr>,
    /// The names of the targets, sorted.
    pub targets: Vec<String>,
    /// The sessions, the oldest first; connections that have not logged in are not among them.
    pub sessions: Vec<SessionStatus>,
    /// Logins that were refused since the start of the server.
    pub failed_logins: u64,
    /// Sums over all sessions since the start of the server.
    pub totals: Counters,
}

/// One session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionStatus {
    /// The address of the initiator.
    pub address: SocketAddr,
    /// The name of the initiator.
    pub initiator: String,
    /// The name of the target; none: a discovery session.
    pub target: Option<String>,
    /// The volumes of the target, in the order of their LUNs.
    pub volumes: Vec<String>,
    /// Whether headers and data are protected by CRC32C.
    pub digests: (bool, bool),
    /// The time since the connection was made.
    pub connected: Duration,
    /// Commands in progress.
    pub in_flight: u64,
    /// Sums since the login.
    pub counters: Counters,
}

/// Sums of commands. A rate is the difference of two ([`Counters::since`]) by the time between them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Finished commands.
    pub commands: u64,
    /// Commands finished with another status than GOOD.
    pub errors: u64,
    /// Bytes that initiators read.
    pub read_bytes: u64,
    /// Bytes that initiators wrote, without zeros and freed ranges.
    pub written_bytes: u64,
}

impl Counters {
    /// The sums since an earlier state. None: that state is of another session or server, or it is the later one.
    pub fn since(&self, earlier: &Self) -> Option<Self> {
        Some(Self {
            commands: self.commands.checked_sub(earlier.commands)?,
            errors: self.errors.checked_sub(earlier.errors)?,
            read_bytes: self.read_bytes.checked_sub(earlier.read_bytes)?,
            written_bytes: self.written_bytes.checked_sub(earlier.written_bytes)?,
        })
    }
}

/// Counters that several threads add to.
#[derive(Default)]
pub(crate) struct SharedCounters {
    commands: AtomicU64,
    errors: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
}

impl SharedCounters {
    pub(crate) fn add(&self, more: &Counters) {
        self.commands.fetch_add(more.commands, Relaxed);
        self.errors.fetch_add(more.errors, Relaxed);
        self.read_bytes.fetch_add(more.read_bytes, Relaxed);
        self.written_bytes.fetch_add(more.written_bytes, Relaxed);
    }

    pub(crate) fn load(&self) -> Counters {
        Counters {
            commands: self.commands.load(Relaxed),
            errors: self.errors.load(Relaxed),
            read_bytes: self.read_bytes.load(Relaxed),
            written_bytes: self.written_bytes.load(Relaxed),
        }
    }
}
