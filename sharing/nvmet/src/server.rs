//! The server: listeners, the table of subsystems, the tables of controllers and of connections.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use lun::{LunEvent, Nexus, ReservationLoss};
use parking_lot::{Mutex, RwLock};
use tcp::{ConnectionTable, Listener, ListenerError, MemoryBudget};

use crate::client::Client;
use crate::connection;
use crate::controller::{Controller, NewController, NotificationKind};
use crate::namespace::{Namespace, UnitWatcher};
use crate::status::ServerStatus;
use crate::subsystem::{Subsystem, SubsystemTable};
use crate::{Error, Result, ServerOptions};

/// A running server. It stops when it is dropped.
pub struct Server {
    shared: Arc<Shared>,
    listeners: Vec<Listener>,
}

/// An authentication that failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailedLogin {
    /// The address of the host.
    pub address: SocketAddr,
    /// The name that it gave.
    pub host: String,
    /// The subsystem.
    pub subsystem: String,
}

/// A function that is called for each authentication that failed.
pub type FailedLoginCallback = Arc<dyn Fn(&FailedLogin) + Send + Sync>;

/// The state that the threads of a server share.
pub(crate) struct Shared {
    pub(crate) options: ServerOptions,
    pub(crate) subsystems: RwLock<SubsystemTable>,
    pub(crate) budget: MemoryBudget,
    /// How often the discovery log has changed.
    pub(crate) discovery_generation: AtomicU64,
    failed_logins: AtomicU64,
    on_failed_login: FailedLoginCallback,
    /// Locked while a failed login is delayed.
    failed_logins_turn: Mutex<()>,
    controllers: Mutex<Controllers>,
    clients: Arc<ConnectionTable<Client>>,
}

/// The controllers by their numbers.
#[derive(Default)]
struct Controllers {
    by_id: BTreeMap<u16, Arc<Controller>>,
    last_id: u16,
}

/// The largest number of a controller.
const MAX_CONTROLLER_ID: u16 = 0xffef;
/// The time between two looks at a controller that is to end.
const LOOK_PAUSE: Duration = Duration::from_millis(5);

impl Server {
    /// Starts to listen, and serves the subsystems.
    pub fn start(
        options: &ServerOptions,
        subsystems: Vec<Subsystem>,
        on_failed_login: FailedLoginCallback,
    ) -> Result<Self> {
        options.check()?;
        let shared = Arc::new(Shared {
            options: options.clone(),
            subsystems: RwLock::default(),
            budget: MemoryBudget::new(options.max_read_bytes),
            discovery_generation: AtomicU64::new(1),
            failed_logins: AtomicU64::new(0),
            on_failed_login,
            failed_logins_turn: Mutex::default(),
            controllers: Mutex::default(),
            clients: Arc::new(ConnectionTable::new(options.max_connections)),
        });
        let mut server = Self { shared, listeners: Vec::new() };
        server.set_subsystems(subsystems)?;
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
            Listener::start(address, "nvme-listen", on_connect).map_err(|error| match error {
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

    /// Replaces the subsystems. Controllers go on with a subsystem whose name is as before and which admits their host,
    /// and are told if its namespaces are others; other controllers end after their commands are answered.
    pub fn set_subsystems(&self, subsystems: Vec<Subsystem>) -> Result<()> {
        let shared = &self.shared;
        let watcher = shared.unit_watcher();
        let changed = {
            let mut table = shared.subsystems.write();
            let update = table.update(subsystems, &watcher)?;
            if table.names() != update.table.names() {
                shared.discovery_generation.fetch_add(1, SeqCst);
            }
            *table = update.table;
            update.changed
        };
        let table = shared.subsystems.read().clone();
        for controller in shared.controllers() {
            let Some(subsystem) = &controller.subsystem else {
                controller.report_discovery_change();
                continue;
            };
            if !table.serves(subsystem, &controller.host, controller.address()) {
                controller.end();
            } else if let Some(numbers) = changed.get(&subsystem.name) {
                controller.report_changed_namespaces(numbers);
            }
        }
        Ok(())
    }

    /// The state of the server and of its controllers.
    pub fn status(&self) -> ServerStatus {
        let controllers = self.shared.controllers();
        ServerStatus {
            listening: self.addresses(),
            subsystems: self.shared.subsystems.read().names(),
            controllers: controllers.iter().map(|controller| controller.status()).collect(),
            failed_logins: self.shared.failed_logins.load(SeqCst),
        }
    }

    /// Stops listening and ends all connections, after their commands are answered or after a time. Returns the number
    /// of connections whose threads still run, since the pool does not finish their commands.
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
    /// The keep-alive timeout of a host that asks for some milliseconds, or for none (0).
    pub(crate) fn keep_alive(&self, milliseconds: u32) -> Option<Duration> {
        let asked = Some(Duration::from_millis(milliseconds.into())).filter(|time| !time.is_zero());
        match (asked, self.options.max_keep_alive) {
            (Some(asked), Some(most)) => Some(asked.min(most)),
            (asked, most) => asked.or(most),
        }
    }

    /// Counts an authentication that failed, and delays its answer. One fails at a time, and each takes a while, so
    /// that secrets are not tried quickly.
    pub(crate) fn delay_failed_login(&self, client: &Client, host: &str, subsystem: &str) {
        self.failed_logins.fetch_add(1, SeqCst);
        let (host, subsystem) = (host.to_owned(), subsystem.to_owned());
        (self.on_failed_login)(&FailedLogin { address: client.address, host, subsystem });
        let turn = loop {
            match self.failed_logins_turn.try_lock_for(LOOK_PAUSE) {
                Some(turn) => break turn,
                None if client.is_ended() => return,
                None => {}
            }
        };
        tcp::wait_for_hangup(&client.stream, self.options.failed_login_pause);
        drop(turn);
    }

    /// The controllers, the oldest first.
    pub(crate) fn controllers(&self) -> Vec<Arc<Controller>> {
        self.controllers.lock().by_id.values().cloned().collect()
    }

    /// The controller of a number.
    pub(crate) fn controller(&self, id: u16) -> Option<Arc<Controller>> {
        self.controllers.lock().by_id.get(&id).cloned()
    }

    /// Makes a controller. None: all numbers are used.
    pub(crate) fn add_controller(&self, new: NewController) -> Option<Arc<Controller>> {
        let mut controllers = self.controllers.lock();
        // a number is used again as late as possible: a host may still use the old one
        let last = controllers.last_id;
        let mut numbers = (last..MAX_CONTROLLER_ID).map(|id| id + 1).chain(1..=last);
        let id = numbers.find(|id| !controllers.by_id.contains_key(id))?;
        controllers.last_id = id;
        let controller = Arc::new(Controller::new(id, new));
        controllers.by_id.insert(id, Arc::clone(&controller));
        Some(controller)
    }

    /// Removes a queue from its controller, and the controller with its last queue.
    pub(crate) fn leave(&self, controller: &Arc<Controller>, queue: u16) {
        let mut controllers = self.controllers.lock();
        if controller.remove_queue(queue) {
            controllers.by_id.remove(&controller.id);
        }
    }

    /// Waits until the commands of controllers of a host that have ended are done: those of its new controller come
    /// after them. False: they are not done in time.
    pub(crate) fn wait_for_ended(&self, is_of_host: impl Fn(&Controller) -> bool) -> bool {
        let deadline = Instant::now() + self.options.stop_timeout;
        loop {
            let controllers = self.controllers();
            if !controllers.iter().any(|found| found.is_ended() && is_of_host(found)) {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(LOOK_PAUSE);
        }
    }

    /// The functions by which units notify the controllers of this server.
    fn unit_watcher(self: &Arc<Self>) -> UnitWatcher {
        let (for_events, for_losses) = (Arc::downgrade(self), Arc::downgrade(self));
        UnitWatcher {
            on_event: Arc::new(move |namespace, event| {
                if let Some(shared) = for_events.upgrade() {
                    shared.report_event(namespace, event);
                }
            }),
            on_loss: Arc::new(move |namespace, loss, hosts| {
                if let Some(shared) = for_losses.upgrade() {
                    shared.report_reservations(namespace, loss, hosts);
                }
            }),
        }
    }

    /// Notifies the controllers of a namespace that it has another size or content.
    fn report_event(&self, namespace: &Arc<Namespace>, _event: LunEvent) {
        for controller in self.controllers() {
            let namespaces = controller.namespaces();
            let is_it = |found: &&Arc<Namespace>| Arc::ptr_eq(found, namespace);
            let numbers: Vec<u32> = namespaces
                .iter()
                .filter(|(_, found)| is_it(found))
                .map(|(number, _)| *number)
                .collect();
            if !numbers.is_empty() {
                controller.report_changed_namespaces(&numbers);
            }
        }
    }

    /// Notifies the controllers of some hosts that they have lost a registration, or a reservation that let them in.
    fn report_reservations(
        &self,
        namespace: &Arc<Namespace>,
        loss: ReservationLoss,
        hosts: &[Nexus],
    ) {
        let kind = match loss {
            ReservationLoss::RegistrationPreempted | ReservationLoss::Cleared => {
                NotificationKind::RegistrationPreempted
            }
            ReservationLoss::Released => NotificationKind::ReservationReleased,
        };
        for controller in self.controllers() {
            if !hosts.contains(&controller.nexus()) {
                continue;
            }
            for (number, found) in &*controller.namespaces() {
                if Arc::ptr_eq(found, namespace) {
                    controller.report_reservation(*number, kind);
                }
            }
        }
    }
}

/// Starts the thread of a connection. The connection is closed if that is not possible.
fn start_client(shared: &Arc<Shared>, address: SocketAddr, stream: TcpStream) {
    let client = Arc::new(Client::new(address, stream));
    let Some(membership) = shared.clients.add(Arc::clone(&client)) else { return };
    let thread = std::thread::Builder::new().name("nvme".to_owned());
    let shared = Arc::clone(shared);
    // the closure, and the membership in it, is dropped if there is no thread
    let _ = thread.spawn(move || {
        connection::serve(&shared, &client);
        drop(membership);
    });
}
