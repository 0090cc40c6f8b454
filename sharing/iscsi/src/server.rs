//! The server: listeners, the table of targets, the table of connections.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use tcp::{ConnectionTable, Incoming, Listener, ListenerError, MemoryBudget};

use crate::connection::Connection;
use crate::handshake::Handshake;
use crate::login::NewSession;
use crate::notices::Notice;
use crate::scsi::LogicalUnit;
use crate::session::{Client, Session};
use crate::status::{ServerStatus, SharedCounters};
use crate::target::{Discovery, Target, TargetTable};
use crate::wire::response::LoginStatus;
use crate::{Error, Result, ServerOptions};

/// A running server. It stops when it is dropped.
pub struct Server {
    shared: Arc<Shared>,
    listeners: Vec<Listener>,
}

/// A login that was refused for its proof or its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailedLogin {
    /// The address of the initiator.
    pub address: SocketAddr,
    /// The name that it gave.
    pub initiator: String,
    /// The target; none: discovery.
    pub target: Option<String>,
    /// Whether the initiator did not prove itself by CHAP; else its name is not admitted.
    pub lacks_proof: bool,
}

/// A function that is called for each login that was refused. It must not wait.
pub type FailedLoginCallback = Arc<dyn Fn(&FailedLogin) + Send + Sync>;

/// The state that the threads of a server share.
pub(crate) struct Shared {
    pub(crate) options: ServerOptions,
    pub(crate) targets: RwLock<TargetTable>,
    /// In percent; see [`ServerOptions::space_warning`].
    space_warning: AtomicU8,
    pub(crate) budget: MemoryBudget,
    pub(crate) totals: SharedCounters,
    /// Locked while a failed login is delayed.
    pub(crate) failed_logins_turn: Mutex<()>,
    failed_logins: AtomicU64,
    on_failed_login: FailedLoginCallback,
    pub(crate) discovery: RwLock<Discovery>,
    clients: Arc<ConnectionTable<Client>>,
    next_session: AtomicU64,
    /// Locked while a session begins, so that one of the same nexus ends before.
    beginning: Mutex<()>,
}

/// The time between two looks at a session that is to end.
const LOOK_PAUSE: Duration = Duration::from_millis(5);

impl Server {
    /// Starts to listen, and serves the targets.
    pub fn start(
        options: &ServerOptions,
        targets: Vec<Target>,
        discovery: Discovery,
        on_failed_login: FailedLoginCallback,
    ) -> Result<Self> {
        options.check()?;
        let shared = Arc::new(Shared {
            options: options.clone(),
            targets: RwLock::default(),
            space_warning: AtomicU8::new(options.space_warning),
            budget: MemoryBudget::new(options.max_read_bytes),
            totals: SharedCounters::default(),
            failed_logins_turn: Mutex::default(),
            failed_logins: AtomicU64::new(0),
            on_failed_login,
            discovery: RwLock::new(discovery),
            clients: Arc::new(ConnectionTable::new(options.max_connections)),
            next_session: AtomicU64::new(1),
            beginning: Mutex::default(),
        });
        let mut server = Self { shared, listeners: Vec::new() };
        server.set_targets(targets)?;
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
            Listener::start(address, "iscsi-listen", on_connect).map_err(|error| match error {
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

    /// Replaces the targets. Sessions continue with a target whose name is as before and which
    /// admits them, and are notified if its units changed; sessions with other targets end after
    /// their commands are finished.
    pub fn set_targets(&self, targets: Vec<Target>) -> Result<()> {
        let mut table = self.shared.targets.write();
        *table = table.update(targets)?;
        let table = table.clone();
        self.shared.end_sessions(|session, client| match &session.target {
            Some(target) => !table.serves(target, &session.initiator, client.address()),
            None => false,
        });
        Ok(())
    }

    /// Changes who may ask for the names of targets. Sessions continue.
    pub fn set_discovery(&self, discovery: Discovery) {
        *self.shared.discovery.write() = discovery;
    }

    /// Changes the space below which initiators are warned, in percent of a unit's size. Sessions continue.
    pub fn set_space_warning(&self, percent: u8) {
        self.shared.space_warning.store(percent, SeqCst);
    }

    /// The state of the server and of its sessions.
    pub fn status(&self) -> ServerStatus {
        ServerStatus {
            listening: self.addresses(),
            targets: self.shared.targets.read().names(),
            sessions: self
                .shared
                .clients
                .list()
                .iter()
                .filter_map(|client| client.status())
                .collect(),
            failed_logins: self.shared.failed_logins.load(SeqCst),
            totals: self.shared.totals.load(),
        }
    }

    /// Stops listening and ends all sessions, after their commands are answered or after a time. Returns the number
    /// of connections whose threads still run, since the pool does not finish their commands.
    pub fn stop(&self) -> usize {
        self.shared.clients.close();
        self.listeners.iter().for_each(Listener::stop);
        let (clients, timeout) = (&self.shared.clients, self.shared.options.stop_timeout);
        for client in clients.list() {
            if let Some(session) = client.session() {
                session.notices.push(Notice::Shutdown);
            }
            client.end();
        }
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
    /// Ends the sessions that fulfil a condition.
    pub(crate) fn end_sessions(&self, condition: impl Fn(&Session, &Client) -> bool) {
        for client in self.clients.list() {
            if client.session().is_some_and(|session| condition(session, &client)) {
                client.end();
            }
        }
    }

    /// Aborts the tasks that the sessions of a condition have on a unit. Returns when they do nothing any more.
    pub(crate) fn abort_tasks(&self, condition: impl Fn(&Session) -> bool, unit: &LogicalUnit) {
        for client in self.clients.list() {
            if let Some(session) = client.session().filter(|session| condition(session)) {
                session.tasks.abort(|_, logical| {
                    logical.is_some_and(|logical| std::ptr::eq(&raw const **logical, unit))
                });
            }
        }
    }

    pub(crate) fn space_warning(&self) -> u8 {
        self.space_warning.load(SeqCst)
    }

    pub(crate) fn count_failed_login(&self) {
        self.failed_logins.fetch_add(1, SeqCst);
    }

    pub(crate) fn report_failed_login(&self, failed: &FailedLogin) {
        (self.on_failed_login)(failed);
    }

    /// Begins the session of a login. An older one of the same initiator port ends before: its initiator has lost it.
    pub(crate) fn start_session(
        &self,
        client: &Client,
        new: NewSession,
        first_cmd_sn: u32,
    ) -> std::result::Result<Arc<Session>, LoginStatus> {
        let _beginning = self.beginning.lock();
        let id = self.next_session.fetch_add(1, SeqCst);
        let session = Arc::new(Session::new(id, new, first_cmd_sn, &self.options));
        let deadline = Instant::now() + self.options.stop_timeout;
        loop {
            let older = self.clients.list().into_iter().filter(|client| {
                client.session().is_some_and(|older| older.is_same_nexus(&session))
            });
            let older: Vec<_> = older.collect();
            if older.is_empty() {
                break;
            }
            if Instant::now() >= deadline {
                return Err(LoginStatus::OutOfResources);
            }
            for client in &older {
                client.abort();
            }
            std::thread::sleep(LOOK_PAUSE);
        }
        // the targets may have changed since the login began
        let targets = self.targets.read();
        let is_served = session
            .target
            .as_ref()
            .is_none_or(|target| targets.serves(target, &session.initiator, client.address()));
        if !is_served {
            return Err(LoginStatus::NotFound);
        }
        client.set_session(&session);
        Ok(session)
    }
}

/// Starts the thread of a connection. The connection is closed if that is not possible.
fn start_client(shared: &Arc<Shared>, address: SocketAddr, stream: TcpStream) {
    let client = Arc::new(Client::new(address, stream));
    let Some(membership) = shared.clients.add(Arc::clone(&client)) else { return };
    let thread = std::thread::Builder::new().name("iscsi".to_owned());
    let shared = Arc::clone(shared);
    // the closure, and the membership in it, is dropped if there is no thread
    let _ = thread.spawn(move || {
        serve(&shared, &client);
        drop(membership);
    });
}

/// Serves an initiator until its connection ends.
fn serve(shared: &Shared, client: &Client) {
    let mut incoming = Incoming::new(Arc::clone(&client.stream));
    let configured = tcp::configure(&client.stream, shared.options.stall_timeout);
    let login = configured.and_then(|()| Handshake::new(shared, client, &mut incoming).run());
    if let Ok(Some((session, stat_sn))) = login {
        Connection::new(shared, client, &session, (incoming, stat_sn)).run();
    }
    if let Some(session) = client.session() {
        session.leave_units();
    }
    client.abort();
}
