//! The state that all requests of a server share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::RwLock;
use posix::Time;
use vfs::HandleKey;

use crate::ServerOptions;
use crate::clock;
use crate::export::ExportTable;
use crate::hosts::HostCache;
use crate::log_wait::LogWait;
use crate::nlm::LockGrace;
use crate::open_cache::OpenCache;
use crate::status::SharedCounters;
use crate::wire::status::Status;

/// The state that all requests of a server share.
pub(crate) struct Core {
    pub(crate) options: ServerOptions,
    pub(crate) handle_key: HandleKey,
    /// The identity of the server: clients that see it at two addresses know that it is one server.
    pub(crate) server_id: [u8; 16],
    /// Differs from one start of the server to the next.
    pub(crate) boot_id: u64,
    /// The time of the start.
    pub(crate) started: Time,
    started_at: Instant,
    pub(crate) table: RwLock<Arc<ExportTable>>,
    table_version: AtomicU64,
    /// The host names in the rules of exports.
    pub(crate) hosts: Arc<HostCache>,
    pub(crate) opens: OpenCache,
    pub(crate) totals: SharedCounters,
    pub(crate) log_wait: LogWait,
    /// The time in which clients of the lock manager reclaim their locks.
    pub(crate) lock_grace: Arc<LockGrace>,
    pub(crate) is_stopping: AtomicBool,
}

impl Core {
    pub(crate) fn new(options: &ServerOptions) -> Self {
        let started = clock::now();
        let id = options.secret.derive("Poolhouse NFS 2026 server identity");
        let boot_id = clock::nanoseconds(started);
        Self {
            options: options.clone(),
            handle_key: HandleKey::new(options.secret.derive("Poolhouse NFS 2026 file handles")),
            server_id: *id.first_chunk().expect("a key has 32 bytes"),
            boot_id,
            started,
            started_at: Instant::now(),
            table: RwLock::default(),
            table_version: AtomicU64::new(boot_id),
            hosts: Arc::default(),
            opens: OpenCache::default(),
            totals: SharedCounters::default(),
            log_wait: LogWait::default(),
            lock_grace: Arc::default(),
            is_stopping: AtomicBool::new(false),
        }
    }

    /// A number for the next table of exports.
    pub(crate) fn next_table_version(&self) -> u64 {
        self.table_version.fetch_add(1, Ordering::Relaxed)
    }

    /// The status of a handle whose file system is not exported. Pools are imported one after the
    /// other when the server starts: a client must not conclude that a file is gone while its pool
    /// is not imported yet.
    pub(crate) fn unexported_status(&self) -> Status {
        let is_starting = self.started_at.elapsed() < self.options.lease;
        if is_starting { Status::DELAY } else { Status::STALE }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::SeqCst)
    }
}
