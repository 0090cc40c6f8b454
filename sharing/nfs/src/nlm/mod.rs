//! The lock manager: locks of clients of NFSv3, which these request by the protocols NLM and NSM.
//!
//! ```text
//! mod          the manager; its start with a grace period, its end
//! procedures   the calls of clients
//! state        clients, their locked files and their waits
//! callbacks    the queue of calls to clients
//! granted      the call that ends a wait
//! monitor      restarts of the server and of clients
//! client_list  the clients to notify after a restart, in a file
//! ```
//!
//! A client is known by its address and its name. It has no lease: its locks end when it says so, or when it tells that
//! it has restarted (NOTIFY). After a restart of the server, the clients of the list are notified and reclaim their locks.
//! For the time of a lease nobody else gets a lock by NLM or NFSv4.

mod callbacks;
mod client_list;
mod granted;
mod monitor;
mod procedures;
mod state;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::ServerOptions;
use crate::core::Core;
use crate::export::{ExportTable, ServedExport};
use crate::status::LockClientStatus;
use callbacks::CallbackQueue;
use client_list::ClientList;
pub(crate) use state::Peer;
use state::{ClientKey, Removed, Tables};

/// The time after a start of the server in which clients only reclaim locks.
#[derive(Default)]
pub(crate) struct LockGrace(Mutex<Option<Instant>>);

impl LockGrace {
    /// The time that is left; none: it is over.
    pub(crate) fn left(&self) -> Option<Duration> {
        let ends = *self.0.lock();
        ends.and_then(|ends| ends.checked_duration_since(Instant::now()))
            .filter(|left| !left.is_zero())
    }

    pub(crate) fn is_active(&self) -> bool {
        self.left().is_some()
    }
}

/// The lock manager.
pub(crate) struct LockManager(Arc<Inner>);

/// The state that requests, callbacks and the threads of calls share.
struct Inner {
    tables: Mutex<Tables>,
    callbacks: CallbackQueue,
    grace: Arc<LockGrace>,
    is_stopping: AtomicBool,
    max_clients: usize,
    max_states: usize,
    /// The name of this machine in NOTIFY.
    host_name: String,
    client_portmapper: u16,
}

impl LockManager {
    /// The manager of a server that starts, with the clients from before.
    pub(crate) fn load(core: &Core) -> crate::Result<Self> {
        let options: &ServerOptions = &core.options;
        let list = ClientList::load(options.lock_client_list.as_deref())?;
        if !list.entries().is_empty() {
            *core.lock_grace.0.lock() = Some(Instant::now() + options.lease);
        }
        Ok(Self(Arc::new(Inner {
            tables: Mutex::new(Tables::new(list)),
            callbacks: CallbackQueue::default(),
            grace: Arc::clone(&core.lock_grace),
            is_stopping: AtomicBool::new(false),
            max_clients: options.max_clients,
            max_states: options.max_states_per_client,
            host_name: options.host_name.clone(),
            client_portmapper: options.client_portmapper,
        })))
    }

    /// Does what is due: repeats calls, and forgets clients without locks.
    pub(crate) fn keep_house(&self) {
        self.0.retry_granted_calls();
        let mut tables = self.0.tables.lock();
        if !self.0.grace.is_active() {
            tables.forget_idle_clients();
            // clients from before that have not reclaimed anything
            tables.update_list();
        }
    }

    /// Ends the locks in file systems that are no longer exported, or are others under the same path.
    pub(crate) fn release_unexported(&self, table: &ExportTable) {
        let is_gone = |export: &ServedExport| {
            let now = table.by_handle(&export.root_handle);
            now.is_none_or(|now| now.door != export.door)
        };
        let removed = self.0.tables.lock().release_exports(is_gone);
        drop(removed);
    }

    /// Makes no further calls to clients, as the server stops.
    pub(crate) fn stop_calls(&self) {
        self.0.is_stopping.store(true, SeqCst);
    }

    /// Ends all locks, as the server stops. The list of clients stays for the next start.
    pub(crate) fn release_all(&self) {
        let mut removed = Removed::default();
        let mut tables = self.0.tables.lock();
        tables.list.freeze();
        let clients: Vec<u64> = tables.clients.keys().copied().collect();
        for client in clients {
            tables.remove_client(client, &mut removed);
        }
        drop(tables);
        drop(removed);
    }

    /// The clients that have locks or wait for some.
    pub(crate) fn status(&self) -> Vec<LockClientStatus> {
        self.0.tables.lock().status()
    }

    /// The files of an export that clients have locked.
    pub(crate) fn count_files(&self, export: &ServedExport) -> usize {
        self.0.tables.lock().count_files(export)
    }
}

impl Inner {
    fn is_stopping(&self) -> bool {
        self.is_stopping.load(SeqCst)
    }
}
