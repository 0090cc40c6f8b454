//! The calls of the lock manager to its clients, in threads of their own.
//!
//! Each host has its own queue, and one thread at a time: a host that does not reply holds up no other.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Inner, granted};
use crate::rpc_client::Host;
use crate::wire::nlm;
use crate::wire::portmap::Transport;

/// Threads for all hosts.
const MAX_THREADS: usize = 32;
/// Results that wait for one host. Further ones are dropped: their client asks again.
const MAX_RESULTS: usize = 256;

/// A call to a client.
pub(super) enum Job {
    /// GRANTED for a wait of a client.
    Granted { client: u64, wait: u64 },
    /// The result of a procedure with the suffix MSG.
    Result { procedure: u32, results: Vec<u8>, transport: Transport },
}

/// The calls that are to be made, by host.
#[derive(Default)]
pub(super) struct CallbackQueue(Mutex<Queues>);

#[derive(Default)]
struct Queues {
    by_host: HashMap<IpAddr, VecDeque<Job>>,
    /// The hosts that have a thread.
    active: HashSet<IpAddr>,
}

impl Queues {
    /// A host that has calls and no thread.
    fn waiting_host(&self) -> Option<IpAddr> {
        let mut hosts = self.by_host.keys();
        hosts.find(|host| !self.active.contains(host)).copied()
    }
}

impl Inner {
    /// Makes a call to a host soon.
    pub(super) fn queue_call(self: &Arc<Self>, host: IpAddr, job: Job) {
        let mut queues = self.callbacks.0.lock();
        let queue = queues.by_host.entry(host).or_default();
        if matches!(job, Job::Result { .. }) && queue.len() >= MAX_RESULTS {
            return;
        }
        queue.push_back(job);
        drop(queues);
        self.start_callback_thread();
    }

    /// Starts a thread for a host that has none.
    pub(super) fn start_callback_thread(self: &Arc<Self>) {
        let mut queues = self.callbacks.0.lock();
        if self.is_stopping() || queues.active.len() >= MAX_THREADS {
            return;
        }
        let Some(host) = queues.waiting_host() else { return };
        queues.active.insert(host);
        drop(queues);
        let inner = Arc::clone(self);
        let thread = std::thread::Builder::new().name("nfs-lock-call".to_owned());
        if thread.spawn(move || inner.call_hosts(host)).is_err() {
            // the housekeeper tries again
            self.callbacks.0.lock().active.remove(&host);
        }
    }

    /// The loop of a thread: makes the calls of a host, then those of others that have no thread.
    fn call_hosts(self: &Arc<Self>, mut host: IpAddr) {
        while !self.is_stopping() {
            let mut queues = self.callbacks.0.lock();
            if let Some(job) = queues.by_host.get_mut(&host).and_then(VecDeque::pop_front) {
                drop(queues);
                self.make_call(host, job);
                continue;
            }
            queues.by_host.remove(&host);
            queues.active.remove(&host);
            let Some(next) = queues.waiting_host() else { return };
            queues.active.insert(next);
            host = next;
        }
    }

    fn make_call(self: &Arc<Self>, address: IpAddr, job: Job) {
        let host = Host { address, portmapper: self.client_portmapper };
        match job {
            Job::Granted { client, wait } => granted::call_granted(self, host, (client, wait)),
            Job::Result { procedure, results, transport } => {
                // a client that does not get the result asks again
                let _ =
                    host.call(transport, (nlm::PROGRAM, nlm::VERSION, procedure), (&results, true));
            }
        }
    }
}
