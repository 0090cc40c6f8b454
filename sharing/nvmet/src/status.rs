//! The state of a server, for the status of services.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The state of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerStatus {
    /// The addresses that it listens on.
    pub listening: Vec<SocketAddr>,
    /// The names of the subsystems, sorted.
    pub subsystems: Vec<String>,
    /// The controllers of connected hosts, the oldest first.
    pub controllers: Vec<ControllerStatus>,
    /// Authentications that failed since the start of the server.
    pub failed_logins: u64,
}

/// The controller of one connected host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControllerStatus {
    /// The address of the host.
    pub address: SocketAddr,
    /// The name of the host.
    pub host: String,
    /// The name of the subsystem; none: discovery.
    pub subsystem: Option<String>,
    /// I/O queues that are connected.
    pub queues: usize,
    /// The time since it connected.
    pub connected: Duration,
    /// Commands that are being carried out.
    pub in_flight: u64,
    /// Sums since it connected.
    pub counters: Counters,
}

/// Sums of commands on I/O queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Commands that were answered.
    pub commands: u64,
    /// Commands that were answered with an error.
    pub errors: u64,
    /// Bytes that the host read.
    pub read_bytes: u64,
    /// Bytes that the host wrote, without zeros and freed ranges.
    pub written_bytes: u64,
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
