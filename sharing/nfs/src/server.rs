//! The server: listeners, the table of exports, the table of connections.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, RwLock};
use tcp::{ConnectionTable, IdleConnections, Listener, ListenerError, MemoryBudget};

use crate::connection::Connection;
use crate::core::Core;
use crate::export::{Export, ExportTable, ServedExport};
use crate::nlm::LockManager;
use crate::portmapper::PortmapperService;
use crate::service;
use crate::status::{PortmapperStatus, ServerStatus};
use crate::udp::Datagrams;
use crate::v3::ReplayCache;
use crate::v4::StateTable;
use crate::{Error, Result, ServerOptions};

/// A running server. It stops when it is dropped.
pub struct Server {
    shared: Arc<Shared>,
    listeners: Vec<Listener>,
    datagrams: Vec<Datagrams>,
    portmapper: Option<PortmapperService>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// The state that the threads of a server share.
pub(crate) struct Shared {
    pub(crate) core: Core,
    pub(crate) v4: StateTable,
    pub(crate) nlm: LockManager,
    /// The addresses that the server listens on.
    pub(crate) listening: RwLock<Vec<SocketAddr>>,
    /// The addresses on which it answers as portmapper.
    pub(crate) portmappers: RwLock<Vec<SocketAddr>>,
    pub(crate) replays: ReplayCache,
    pub(crate) budget: MemoryBudget,
    connections: Arc<ConnectionTable<Connection>>,
    /// The connections without threads.
    pub(crate) idle: IdleConnections,
    /// Wakes the housekeeper when the server stops.
    stopped: Condvar,
    stop_lock: Mutex<()>,
}

/// How often idle files are closed and silent clients are looked for.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_secs(1);

impl Server {
    /// Starts to listen, and serves the exports.
    pub fn start(options: &ServerOptions, exports: Vec<Export>) -> Result<Self> {
        options.check()?;
        let core = Core::new(options);
        let shared = Arc::new(Shared {
            v4: StateTable::load(&core)?,
            nlm: LockManager::load(&core)?,
            listening: RwLock::default(),
            portmappers: RwLock::default(),
            core,
            replays: ReplayCache::default(),
            budget: MemoryBudget::new(options.max_buffered_bytes),
            connections: Arc::new(ConnectionTable::new(options.max_connections)),
            idle: IdleConnections::start("nfs-idle").map_err(|why| Error::Thread { why })?,
            stopped: Condvar::new(),
            stop_lock: Mutex::default(),
        });
        let (listeners, datagrams, threads) = Default::default();
        let mut server = Self { shared, listeners, datagrams, portmapper: None, threads };
        server.set_exports(exports)?;
        server.spawn("nfs-lease", |shared| shared.keep_house())?;
        // on an error, the threads that were started stop with the server
        for address in &options.listen {
            server.listen(*address)?;
        }
        let addresses = server.addresses();
        server.shared.listening.write().clone_from(&addresses);
        let portmapper = PortmapperService::start(&server.shared, &options.portmapper, &addresses)?;
        server.portmapper = Some(portmapper);
        if let Some(notify) = server.shared.nlm.restart_notices() {
            server.spawn("nfs-notify", move |shared| notify(&|time| shared.pause(time)))?;
        }
        Ok(server)
    }

    fn spawn(&self, name: &str, work: impl FnOnce(&Arc<Shared>) + Send + 'static) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(move || work(&shared)).map_err(|why| Error::Thread { why })?;
        self.threads.lock().push(thread);
        Ok(())
    }

    fn listen(&mut self, address: SocketAddr) -> Result<()> {
        let listener = start_listener(&self.shared, address)?;
        let datagrams = Datagrams::start(&self.shared, listener.address());
        self.listeners.push(listener);
        self.datagrams.push(datagrams.map_err(|why| Error::Listen { address, why })?);
        Ok(())
    }

    /// The addresses that the server listens on, with the ports that the system chose.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().map(Listener::address).collect()
    }

    /// Replaces the exports. Opens and locks in file systems that are exported by the same door as before stay; those
    /// in others end, and their clients get ESTALE. When this returns, no request but those under way uses a file
    /// system that is no longer exported.
    pub fn set_exports(&self, exports: Vec<Export>) -> Result<()> {
        let core = &self.shared.core;
        let table = ExportTable::new(exports, core.next_table_version(), &core.hosts)?;
        let table = Arc::new(table);
        *core.table.write() = Arc::clone(&table);
        core.hosts.update()?;
        core.opens.close_all();
        self.shared.v4.release_unexported(&table);
        self.shared.nlm.release_unexported(&table);
        Ok(())
    }

    /// The state of the server and of its clients.
    pub fn status(&self) -> ServerStatus {
        let Shared { core, v4, nlm, connections, idle, .. } = &*self.shared;
        let table = core.table.read();
        let (clients, grace) = v4.status();
        let export_status = |export: &Arc<ServedExport>| {
            let mut status = v4.export_status(export);
            status.opens += nlm.count_files(export);
            status
        };
        let portmapper = self.portmapper.as_ref().map(|service| service.status.clone());
        ServerStatus {
            listening: self.addresses(),
            exports: table.exports().map(export_status).collect(),
            connections: connections.list().iter().map(|each| each.status()).collect(),
            idle_connections: idle.count(),
            clients,
            lock_clients: nlm.status(),
            portmapper: portmapper.unwrap_or(PortmapperStatus::Off),
            grace: grace.max(core.lock_grace.left()),
            log_wait: core.log_wait.status(),
            totals: core.totals.load(),
        }
    }

    /// Stops listening and ends all connections, after their requests are answered or after a time. Opens and locks
    /// end; clients reclaim them from the next server. Returns the number of connections whose threads still run,
    /// since the pool does not finish their requests.
    pub fn stop(&self) -> usize {
        self.shared.core.is_stopping.store(true, SeqCst);
        drop(self.shared.stop_lock.lock());
        self.shared.stopped.notify_all();
        self.shared.core.hosts.stop();
        let (connections, timeout) =
            (&self.shared.connections, self.shared.core.options.stop_timeout);
        connections.close();
        self.listeners.iter().for_each(Listener::stop);
        self.datagrams.iter().for_each(Datagrams::stop);
        self.portmapper.iter().for_each(PortmapperService::stop);
        self.shared.nlm.stop_calls();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            // a thread that panicked has printed why
            let _ = thread.join();
        }
        connections.list().iter().for_each(|connection| connection.end());
        if connections.wait_until_empty(timeout) > 0 {
            connections.list().iter().for_each(|connection| connection.abort());
        }
        let left = connections.wait_until_empty(timeout);
        self.shared.idle.stop();
        self.shared.core.opens.close_all();
        self.shared.v4.release_all();
        self.shared.nlm.release_all();
        left
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    /// Closes idle files and frees the state of silent clients, until the server stops.
    fn keep_house(&self) {
        let mut lock = self.stop_lock.lock();
        while !self.core.is_stopping() {
            self.stopped.wait_for(&mut lock, HOUSEKEEPING_INTERVAL);
            self.core.opens.close_idle();
            self.v4.expire_silent_clients();
            self.nlm.keep_house();
        }
    }

    /// Waits for a time, or until the server stops. Returns whether it still runs.
    fn pause(&self, time: Duration) -> bool {
        let mut lock = self.stop_lock.lock();
        if !self.core.is_stopping() {
            self.stopped.wait_for(&mut lock, time);
        }
        !self.core.is_stopping()
    }
}

/// Listens on an address for connections of all programs.
pub(crate) fn start_listener(shared: &Arc<Shared>, address: SocketAddr) -> Result<Listener> {
    let shared = Arc::clone(shared);
    let on_connect = move |peer, stream| start_connection(&shared, peer, stream);
    Listener::start(address, "nfs-listen", on_connect).map_err(|error| match error {
        ListenerError::Listen(why) => Error::Listen { address, why },
        ListenerError::Thread(why) => Error::Thread { why },
    })
}

/// Starts to serve a connection. It is closed if there are too many.
fn start_connection(shared: &Arc<Shared>, address: SocketAddr, stream: TcpStream) {
    let connection = Arc::new(Connection::new(address, stream));
    let Some(membership) = shared.connections.add(Arc::clone(&connection)) else { return };
    service::start(shared, connection, membership);
}
