//! The server: listeners, the table of exports, the table of clients.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lun::{EventCallback, LunEvent};
use parking_lot::{Condvar, Mutex, RwLock};

use crate::budget::MemoryBudget;
use crate::connection::{self, Client};
use crate::export::{Export, ExportTable};
use crate::status::{ServerStatus, SharedCounters};
use crate::{Error, Result, ServerOptions};

/// A running server. It stops when it is dropped.
pub struct Server {
    shared: Arc<Shared>,
    listeners: Vec<Listener>,
    /// The functions that the units call, kept for as long as the exports are served.
    subscriptions: Mutex<Vec<EventCallback>>,
}

struct Listener {
    address: SocketAddr,
    socket: Arc<TcpListener>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The state that the threads of a server share.
pub(crate) struct Shared {
    pub(crate) options: ServerOptions,
    pub(crate) exports: RwLock<ExportTable>,
    pub(crate) budget: MemoryBudget,
    pub(crate) totals: SharedCounters,
    clients: Mutex<ClientTable>,
    client_left: Condvar,
    is_stopping: AtomicBool,
}

/// The connected clients, by numbers in the order of their arrival.
#[derive(Default)]
struct ClientTable {
    by_number: BTreeMap<u64, Arc<Client>>,
    next: u64,
}

/// The pause after a connection could not be accepted, as when the process has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

impl Server {
    /// Starts to listen, and serves the exports.
    pub fn start(options: &ServerOptions, exports: Vec<Export>) -> Result<Self> {
        options.check()?;
        let shared = Arc::new(Shared {
            options: options.clone(),
            exports: RwLock::default(),
            budget: MemoryBudget::new(options.max_buffered_bytes),
            totals: SharedCounters::default(),
            clients: Mutex::default(),
            client_left: Condvar::new(),
            is_stopping: AtomicBool::new(false),
        });
        let mut server = Self { shared, listeners: Vec::new(), subscriptions: Mutex::default() };
        server.set_exports(exports)?;
        // on an error, the listeners that were started stop with the server
        for address in &options.listen {
            server.listen(*address)?;
        }
        Ok(server)
    }

    fn listen(&mut self, address: SocketAddr) -> Result<()> {
        let failed = |why| Error::Listen { address, why };
        let socket = Arc::new(TcpListener::bind(address).map_err(failed)?);
        let address = socket.local_addr().map_err(failed)?;
        let (shared, accepting) = (Arc::clone(&self.shared), Arc::clone(&socket));
        let thread = std::thread::Builder::new().name("nbd-listen".to_owned());
        let thread = thread
            .spawn(move || accept_clients(&shared, &accepting))
            .map_err(|why| Error::Thread { why })?;
        self.listeners.push(Listener { address, socket, thread: Mutex::new(Some(thread)) });
        Ok(())
    }

    /// The addresses that the server listens on, with the ports that the system chose.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().map(|listener| listener.address).collect()
    }

    /// Replaces the exports. Clients stay connected to an export whose name and unit are as before and which admits
    /// them; other connections end after their requests are answered.
    pub fn set_exports(&self, exports: Vec<Export>) -> Result<()> {
        let table = ExportTable::new(exports)?;
        let mut subscriptions = self.subscriptions.lock();
        let new: Vec<EventCallback> = table.iter().map(|export| self.watch(export)).collect();
        *self.shared.exports.write() = table;
        *subscriptions = new;
        let table = self.shared.exports.read().clone();
        self.shared.end_clients(|client, export, _| !table.serves(export, client.address()));
        Ok(())
    }

    /// Ends the connections to an export when its unit is not any more what clients know.
    fn watch(&self, export: &Arc<Export>) -> EventCallback {
        let (shared, watched) = (Arc::downgrade(&self.shared), Arc::clone(export));
        let block_size = u64::from(export.unit.geometry().block_size);
        let callback: EventCallback = Arc::new(move |event| {
            let Some(shared) = shared.upgrade() else { return };
            let is_watched = |export: &Export| Arc::ptr_eq(&export.unit, &watched.unit);
            match event {
                LunEvent::Resized { blocks } => shared.end_clients(|_, export, size| {
                    is_watched(export) && size > blocks * block_size
                }),
                LunEvent::Reverted | LunEvent::Gone => {
                    shared.end_clients(|_, export, _| is_watched(export));
                }
            }
        });
        export.unit.subscribe(&callback);
        callback
    }

    /// The state of the server and of its clients.
    pub fn status(&self) -> ServerStatus {
        let clients = self.shared.clients.lock();
        ServerStatus {
            listening: self.addresses(),
            exports: self.shared.exports.read().iter().map(|export| export.name.clone()).collect(),
            clients: clients.by_number.values().map(|client| client.status()).collect(),
            totals: self.shared.totals.load(),
        }
    }

    /// Stops listening and ends all connections, after their requests are answered or after a time. Returns the
    /// number of connections whose threads still run, since the pool does not finish their requests.
    pub fn stop(&self) -> usize {
        self.shared.is_stopping.store(true, SeqCst);
        for listener in &self.listeners {
            // wakes the thread that waits for a connection
            let _ = rustix::net::shutdown(&*listener.socket, rustix::net::Shutdown::Both);
            let thread = listener.thread.lock().take();
            // a thread that panicked has printed why
            let _ = thread.map(JoinHandle::join);
        }
        self.shared.for_each_client(Client::end);
        if self.shared.wait_for_clients() > 0 {
            self.shared.for_each_client(Client::abort);
        }
        self.shared.wait_for_clients()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    /// The largest request, as it is announced.
    pub(crate) fn max_request_bytes(&self) -> u32 {
        u32::try_from(self.options.max_request_bytes).expect("the options were checked")
    }

    fn for_each_client(&self, work: impl Fn(&Client)) {
        self.clients.lock().by_number.values().for_each(|client| work(client));
    }

    /// Ends the clients that fulfil a condition, with their export and its size as they know it.
    fn end_clients(&self, condition: impl Fn(&Client, &Export, u64) -> bool) {
        self.for_each_client(|client| {
            if client.serving().is_some_and(|(export, size)| condition(client, &export, size)) {
                client.end();
            }
        });
    }

    /// Waits until all clients left, for the time of the options. Returns how many are there.
    fn wait_for_clients(&self) -> usize {
        let deadline = Instant::now() + self.options.stop_timeout;
        let mut clients = self.clients.lock();
        while !clients.by_number.is_empty() {
            if self.client_left.wait_until(&mut clients, deadline).timed_out() {
                break;
            }
        }
        clients.by_number.len()
    }

    /// Adds a client, if there is room for it and the server is not stopping.
    fn add_client(self: &Arc<Self>, client: Arc<Client>) -> Option<Membership> {
        let mut clients = self.clients.lock();
        if clients.by_number.len() >= self.options.max_connections || self.is_stopping.load(SeqCst)
        {
            return None;
        }
        let number = clients.next;
        clients.next += 1;
        clients.by_number.insert(number, client);
        Some(Membership { shared: Arc::clone(self), number })
    }
}

/// A client's row in the table of clients, which is removed when this is dropped.
struct Membership {
    shared: Arc<Shared>,
    number: u64,
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.shared.clients.lock().by_number.remove(&self.number);
        self.shared.client_left.notify_all();
    }
}

fn accept_clients(shared: &Arc<Shared>, socket: &TcpListener) {
    while !shared.is_stopping.load(SeqCst) {
        match socket.accept() {
            Ok((stream, address)) => start_client(shared, address, stream),
            Err(_) if shared.is_stopping.load(SeqCst) => return,
            Err(_) => std::thread::sleep(ACCEPT_PAUSE),
        }
    }
}

/// Starts the thread of a client. The connection is closed if that is not possible.
fn start_client(shared: &Arc<Shared>, address: SocketAddr, stream: TcpStream) {
    let client = Arc::new(Client::new(address, stream));
    let Some(membership) = shared.add_client(Arc::clone(&client)) else { return };
    let thread = std::thread::Builder::new().name("nbd".to_owned());
    // the closure, and the membership in it, is dropped if there is no thread
    let _ = thread.spawn(move || {
        connection::serve(&membership.shared, &client);
        drop(membership);
    });
}
