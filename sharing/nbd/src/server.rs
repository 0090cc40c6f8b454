//! The server: listeners, the table of exports, the table of clients.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use lun::{EventCallback, LunEvent};
use parking_lot::{Mutex, RwLock};
use tcp::{ConnectionTable, Listener, ListenerError, MemoryBudget};

use crate::connection::{self, Client};
use crate::encryption::{Encryption, EncryptionState};
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

/// The state that the threads of a server share.
pub(crate) struct Shared {
    pub(crate) options: ServerOptions,
    pub(crate) exports: RwLock<ExportTable>,
    pub(crate) budget: MemoryBudget,
    pub(crate) totals: SharedCounters,
    /// None: connections are not encrypted.
    pub(crate) encryption: Option<Encryption>,
    clients: Arc<ConnectionTable<Client>>,
}

impl Server {
    /// Starts to listen, and serves the exports, with TLS or without.
    ///
    /// # Errors
    /// If an address or a limit cannot be used, or two exports have one name.
    pub fn start(
        options: &ServerOptions,
        exports: Vec<Export>,
        encryption: Option<Encryption>,
    ) -> Result<Self> {
        options.check()?;
        let shared = Arc::new(Shared {
            options: options.clone(),
            exports: RwLock::default(),
            budget: MemoryBudget::new(options.max_buffered_bytes),
            totals: SharedCounters::default(),
            encryption,
            clients: Arc::new(ConnectionTable::new(options.max_connections)),
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
        let shared = Arc::clone(&self.shared);
        let on_connect = move |peer, stream| start_client(&shared, peer, stream);
        let listener =
            Listener::start(address, "nbd-listen", on_connect).map_err(|error| match error {
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
        let callback: EventCallback = Arc::new(move |event| {
            let Some(shared) = shared.upgrade() else { return };
            let is_watched = |export: &Export| Arc::ptr_eq(&export.unit, &watched.unit);
            match event {
                LunEvent::Resized { size } => {
                    shared.end_clients(|_, export, known| is_watched(export) && known > size);
                }
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
        ServerStatus {
            listening: self.addresses(),
            exports: self.shared.exports.read().iter().map(|export| export.name.clone()).collect(),
            clients: self.shared.clients.list().iter().map(|client| client.status()).collect(),
            totals: self.shared.totals.load(),
        }
    }

    /// Stops listening and ends all connections, after their requests are answered or after a time. Returns the
    /// number of connections whose threads still run, since the pool does not finish their requests.
    pub fn stop(&self) -> usize {
        self.shared.clients.close();
        self.listeners.iter().for_each(Listener::stop);
        let (clients, timeout) = (&self.shared.clients, self.shared.options.stop_timeout);
        clients.list().iter().for_each(|client| client.end());
        if clients.wait_until_empty(timeout) > 0 {
            clients.list().iter().for_each(|client| client.abort());
        }
        clients.wait_until_empty(timeout)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    /// The encryption of a connection that begins.
    pub(crate) fn encryption_state(&self) -> EncryptionState {
        match &self.encryption {
            None => EncryptionState::Unavailable,
            Some(Encryption { is_required: false, .. }) => EncryptionState::Offered,
            Some(Encryption { is_required: true, .. }) => EncryptionState::Required,
        }
    }

    /// The largest request, as it is announced.
    pub(crate) fn max_request_bytes(&self) -> u32 {
        u32::try_from(self.options.max_request_bytes).expect("the options were checked")
    }

    /// Ends the clients that fulfil a condition, with their export and its size as they know it.
    fn end_clients(&self, condition: impl Fn(&Client, &Export, u64) -> bool) {
        for client in self.clients.list() {
            if client.serving().is_some_and(|(export, size)| condition(&client, &export, size)) {
                client.end();
            }
        }
    }
}

/// Starts the thread of a client. The connection is closed if that is not possible.
fn start_client(shared: &Arc<Shared>, address: SocketAddr, stream: TcpStream) {
    let client = Arc::new(Client::new(address, stream));
    let Some(membership) = shared.clients.add(Arc::clone(&client)) else { return };
    let thread = std::thread::Builder::new().name("nbd".to_owned());
    let shared = Arc::clone(shared);
    // the closure, and the membership in it, is dropped if there is no thread
    let _ = thread.spawn(move || {
        connection::serve(&shared, &client);
        drop(membership);
    });
}
