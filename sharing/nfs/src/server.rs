//! The server: listeners, the table of exports, the table of connections.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::budget::MemoryBudget;
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

struct Listener {
    address: SocketAddr,
    socket: Arc<TcpListener>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The state that the threads of a server share.
pub(crate) struct Shared {
    pub(crate) core: Core,
    pub(crate) v4: StateTable,
    pub(crate) replays: ReplayCache,
    pub(crate) budget: MemoryBudget,
    connections: Mutex<ConnectionTable>,
    connection_ended: Condvar,
    /// Wakes the housekeeper when the server stops.
    stopped: Condvar,
    stop_lock: Mutex<()>,
}

/// The open connections, by numbers in the order of their arrival.
#[derive(Default)]
struct ConnectionTable {
    by_number: BTreeMap<u64, Arc<Connection>>,
    next: u64,
}

/// The pause after a connection could not be accepted, as when the process has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
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
            connections: Mutex::default(),
            connection_ended: Condvar::new(),
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
        let failed = |why| Error::Listen { address, why };
        let socket = Arc::new(TcpListener::bind(address).map_err(failed)?);
        let address = socket.local_addr().map_err(failed)?;
        let accepting = Arc::clone(&socket);
        let thread =
            self.spawn("nfs-listen", move |shared| accept_connections(shared, &accepting))?;
        self.listeners.push(Listener { address, socket, thread: Mutex::new(Some(thread)) });
        Ok(())
    }

    /// The addresses that the server listens on, with the ports that the system chose.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().map(|listener| listener.address).collect()
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
            connections: connections.lock().by_number.values().map(|each| each.status()).collect(),
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
        for listener in &self.listeners {
            // wakes the thread that waits for a connection
            let _ = rustix::net::shutdown(&*listener.socket, rustix::net::Shutdown::Both);
            let thread = listener.thread.lock().take();
            // a thread that panicked has printed why
            let _ = thread.map(JoinHandle::join);
        }
        let _ = self.housekeeper.lock().take().map(JoinHandle::join);
        self.shared.for_each_connection(Connection::end);
        if self.shared.wait_for_connections() > 0 {
            self.shared.for_each_connection(Connection::abort);
        }
        let left = self.shared.wait_for_connections();
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
    fn for_each_connection(&self, work: impl Fn(&Connection)) {
        self.connections.lock().by_number.values().for_each(|connection| work(connection));
    }

    /// Waits until all connections ended, for the time of the options. Returns how many are there.
    fn wait_for_connections(&self) -> usize {
        let deadline = Instant::now() + self.core.options.stop_timeout;
        let mut connections = self.connections.lock();
        while !connections.by_number.is_empty() {
            if self.connection_ended.wait_until(&mut connections, deadline).timed_out() {
                break;
            }
        }
        connections.by_number.len()
    }

    /// Adds a connection, if there is room for it and the server is not stopping.
    fn add_connection(self: &Arc<Self>, connection: Arc<Connection>) -> Option<Membership> {
        let mut connections = self.connections.lock();
        let limit = self.core.options.max_connections;
        if connections.by_number.len() >= limit || self.core.is_stopping() {
            return None;
        }
        let number = connections.next;
        connections.next += 1;
        connections.by_number.insert(number, connection);
        Some(Membership { shared: Arc::clone(self), number })
    }

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

/// A connection's row in the table of connections, which is removed when this is dropped.
struct Membership {
    shared: Arc<Shared>,
    number: u64,
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.shared.connections.lock().by_number.remove(&self.number);
        self.shared.connection_ended.notify_all();
    }
}

fn accept_connections(shared: &Arc<Shared>, socket: &TcpListener) {
    while !shared.core.is_stopping() {
        match socket.accept() {
            Ok((stream, address)) => start_connection(shared, address, stream),
            Err(_) if shared.core.is_stopping() => return,
            Err(_) => std::thread::sleep(ACCEPT_PAUSE),
        }
    }
}

/// Starts the thread of a connection. The connection is closed if that is not possible.
fn start_connection(shared: &Arc<Shared>, address: SocketAddr, stream: TcpStream) {
    let connection = Arc::new(Connection::new(address, stream));
    let Some(membership) = shared.add_connection(Arc::clone(&connection)) else { return };
    let thread = std::thread::Builder::new().name("nfs".to_owned());
    // the closure, and the membership in it, is dropped if there is no thread
    let _ = thread.spawn(move || {
        connection::serve(&membership.shared, &connection);
        drop(membership);
    });
}
