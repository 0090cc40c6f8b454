//! The server: listeners, the table of exports, the table of connections.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tcp::{ConnectionTable, Listener, ListenerError, MemoryBudget};

use crate::connection::{self, Connection};
use crate::core::Core;
use crate::export::{Export, ExportTable};
use crate::status::ServerStatus;
use crate::v3::ReplayCache;
use crate::v4::StateTable;
use crate::{Error, Result, ServerOptions};

/// A running server. It stops when it is dropped.
pub struct Server {
    shared: Arc<Shared>,
    listeners: Vec<Listener>,
    housekeeper: Mutex<Option<JoinHandle<()>>>,
}

/// The state that the threads of a server share.
pub(crate) struct Shared {
    pub(crate) core: Core,
    pub(crate) v4: StateTable,
    pub(crate) replays: ReplayCache,
    pub(crate) budget: MemoryBudget,
    connections: Arc<ConnectionTable<Connection>>,
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
            core,
            replays: ReplayCache::default(),
            budget: MemoryBudget::new(options.max_buffered_bytes),
            connections: Arc::new(ConnectionTable::new(options.max_connections)),
            stopped: Condvar::new(),
            stop_lock: Mutex::default(),
        });
        let mut server = Self { shared, listeners: Vec::new(), housekeeper: Mutex::default() };
        server.set_exports(exports)?;
        *server.housekeeper.lock() = Some(server.spawn("nfs-lease", |shared| shared.keep_house())?);
        // on an error, the threads that were started stop with the server
        for address in &options.listen {
            server.listen(*address)?;
        }
        Ok(server)
    }

    fn spawn(
        &self,
        name: &str,
        work: impl FnOnce(&Arc<Shared>) + Send + 'static,
    ) -> Result<JoinHandle<()>> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name(name.to_owned());
        thread.spawn(move || work(&shared)).map_err(|why| Error::Thread { why })
    }

    fn listen(&mut self, address: SocketAddr) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let on_connect = move |peer, stream| start_connection(&shared, peer, stream);
        let listener =
            Listener::start(address, "nfs-listen", on_connect).map_err(|error| match error {
                ListenerError::Listen(why) => Error::Listen { address, why },
                ListenerError::Thread(why) => Error::Thread { why },
            })?;
        self.listeners.push(listener);
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
        let table = Arc::new(ExportTable::new(exports, core.next_table_version())?);
        *core.table.write() = Arc::clone(&table);
        core.opens.close_all();
        self.shared.v4.release_unexported(&table);
        Ok(())
    }

    /// The state of the server and of its clients.
    pub fn status(&self) -> ServerStatus {
        let Shared { core, v4, connections, .. } = &*self.shared;
        let table = core.table.read();
        let (clients, grace) = v4.status();
        ServerStatus {
            listening: self.addresses(),
            exports: table.exports().map(|export| v4.export_status(export)).collect(),
            connections: connections.list().iter().map(|each| each.status()).collect(),
            clients,
            grace,
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
        let (connections, timeout) =
            (&self.shared.connections, self.shared.core.options.stop_timeout);
        connections.close();
        self.listeners.iter().for_each(Listener::stop);
        let _ = self.housekeeper.lock().take().map(JoinHandle::join);
        connections.list().iter().for_each(|connection| connection.end());
        if connections.wait_until_empty(timeout) > 0 {
            connections.list().iter().for_each(|connection| connection.abort());
        }
        let left = connections.wait_until_empty(timeout);
        self.shared.core.opens.close_all();
        self.shared.v4.release_all();
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
        }
    }
}

/// Starts the thread of a connection. The connection is closed if that is not possible.
fn start_connection(shared: &Arc<Shared>, address: SocketAddr, stream: TcpStream) {
    let connection = Arc::new(Connection::new(address, stream));
    let Some(membership) = shared.connections.add(Arc::clone(&connection)) else { return };
    let shared = Arc::clone(shared);
    let thread = std::thread::Builder::new().name("nfs".to_owned());
    // the closure, and the membership in it, is dropped if there is no thread
    let _ = thread.spawn(move || {
        connection::serve(&shared, &connection);
        drop(membership);
    });
}
