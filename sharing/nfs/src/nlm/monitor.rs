//! Restarts: the server notifies its clients of its own, and ends the locks of clients that have restarted.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::{ClientKey, Inner, LockManager, Removed};
use crate::rpc_client::{Host, Outcome};
use crate::wire::nsm::{self, Procedure};
use crate::wire::portmap::Transport;
use crate::wire::xdr::Writer;

/// The pause between two rounds of notices to clients that were not reached.
const ROUND_PAUSE: Duration = Duration::from_secs(5);
/// Rounds of notices.
const ROUNDS: usize = 60;
/// Clients that are notified at the same time.
const CLIENTS_AT_A_TIME: usize = 8;

impl LockManager {
    /// Notifies the clients of the list that the server has restarted. Returns a task to run in a thread; none: there are
    /// no clients.
    pub(crate) fn restart_notices(&self) -> Option<impl FnOnce(&dyn Fn(Duration) -> bool) + use<>> {
        let tables = self.0.tables.lock();
        let entries = tables.list.entries();
        let clients: Vec<(ClientKey, Option<IpAddr>)> =
            entries.iter().map(|(key, server)| (key.clone(), *server)).collect();
        let (state, inner) = (tables.list.state, Arc::clone(&self.0));
        let is_needed = !clients.is_empty();
        let notify =
            move |pause: &dyn Fn(Duration) -> bool| inner.notify_clients(clients, state, pause);
        is_needed.then_some(notify)
    }

    /// Carries out a procedure of the status monitor, and writes its result. `source` is the address of the caller.
    pub(crate) fn execute_monitor(
        &self,
        source: IpAddr,
        procedure: &Procedure<'_>,
        writer: &mut Writer,
    ) {
        if let Procedure::Notify { name, .. } = procedure {
            self.0.end_restarted_client(source.to_canonical(), name);
        }
        procedure.write_result(writer, self.0.tables.lock().list.state);
    }
}

/// The name up to the first dot: machines name themselves with their domain or without.
fn host_part(name: &[u8]) -> &[u8] {
    name.split(|byte| *byte == b'.').next().unwrap_or(name)
}

impl Inner {
    /// Ends the locks of a client that has restarted. `name` may be another name than that of its locks: then the address
    /// tells which client it is.
    fn end_restarted_client(&self, source: IpAddr, name: &[u8]) {
        let mut tables = self.tables.lock();
        let is_named = |key: &ClientKey| host_part(&key.name).eq_ignore_ascii_case(host_part(name));
        let keys = tables.clients.iter().map(|(number, client)| (*number, &client.key));
        let (here, elsewhere): (Vec<_>, Vec<_>) = keys.partition(|(_, key)| key.address == source);
        let named = |clients: &[(u64, &ClientKey)]| -> Vec<u64> {
            let named = clients.iter().filter(|(_, key)| is_named(key));
            named.map(|(number, _)| *number).collect()
        };
        let mut gone = named(&here);
        if gone.is_empty() {
            gone = here.iter().map(|(number, _)| *number).collect();
        }
        if gone.is_empty() {
            // a machine that gets another address when it restarts
            gone = named(&elsewhere);
        }
        let mut removed = Removed::default();
        for client in gone {
            tables.remove_client(client, &mut removed);
        }
        drop(tables);
        drop(removed);
    }

    /// Notifies clients in rounds, until each has replied. `pause` waits, and returns whether the server still runs.
    fn notify_clients(
        &self,
        mut clients: Vec<(ClientKey, Option<IpAddr>)>,
        state: u32,
        pause: &dyn Fn(Duration) -> bool,
    ) {
        for _ in 0..ROUNDS {
            let mut left = Vec::new();
            for some in clients.chunks(CLIENTS_AT_A_TIME) {
                if self.is_stopping() {
                    return;
                }
                let notified = std::thread::scope(|scope| {
                    let notify = |client| scope.spawn(move || self.notify_client(client, state));
                    let threads: Vec<_> = some.iter().map(notify).collect();
                    let ends = threads.into_iter().map(|thread| thread.join().unwrap_or(false));
                    ends.collect::<Vec<bool>>()
                });
                let not_reached = some.iter().zip(notified).filter(|(_, is_notified)| !is_notified);
                left.extend(not_reached.map(|(client, _)| client.clone()));
            }
            clients = left;
            if clients.is_empty() || !pause(ROUND_PAUSE) {
                return;
            }
        }
    }

    /// Notifies one client, under each name by which it may know this machine. Returns whether it has replied.
    fn notify_client(&self, (key, server): &(ClientKey, Option<IpAddr>), state: u32) -> bool {
        let host = Host { address: key.address, portmapper: self.client_portmapper };
        let address = server.map(|address| address.to_string());
        let names = [Some(&self.host_name), address.as_ref()];
        names.into_iter().flatten().all(|name| {
            let mut arguments = Writer::default();
            nsm::write_notify(&mut arguments, name.as_bytes(), state);
            let procedure = (nsm::PROGRAM, nsm::VERSION, nsm::NOTIFY);
            // a second copy has the same number, and changes nothing
            let mut transports = [Transport::Tcp, Transport::Udp].into_iter();
            transports.any(|transport| {
                let outcome = host.call(transport, procedure, (arguments.as_bytes(), true));
                matches!(outcome, Outcome::Reply(_))
            })
        })
    }
}
