//! Host names in the rules of exports, and their addresses.
//!
//! A thread looks the names up: when the exports change, when an unknown client connects, and once a minute. Requests
//! compare the address of their client with what was found, and never wait for a lookup. A name is looked up forwards
//! only, so that a client cannot choose its name by its own reverse zone.
//!
//! A name whose lookup fails keeps its addresses for ten minutes, so that clients outlast a short failure of DNS.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use parking_lot::{Condvar, Mutex, RwLock};

use crate::{Error, Result};

/// The time between two lookups of a name.
const LOOKUP_INTERVAL: Duration = Duration::from_mins(1);
/// The least time between two rounds of lookups, however many unknown clients connect.
const MIN_PAUSE: Duration = Duration::from_secs(1);
/// The time for which a name keeps its addresses after its last lookup that succeeded.
const MAX_AGE: Duration = Duration::from_mins(10);

/// The clients that a rule is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Clients {
    /// Those of a network.
    Network(IpNet),
    /// The host of a name.
    Host(String),
}

impl fmt::Display for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(network) => network.fmt(f),
            Self::Host(name) => f.write_str(name),
        }
    }
}

/// A name with the addresses that were found.
pub(crate) struct Host {
    name: String,
    found: RwLock<Found>,
}

#[derive(Default)]
struct Found {
    addresses: Vec<IpAddr>,
    /// The time of the last lookup that succeeded.
    at: Option<Instant>,
}

impl Host {
    pub(crate) fn has_address(&self, address: IpAddr) -> bool {
        self.found.read().addresses.contains(&address)
    }

    fn look_up(&self) {
        let found = (self.name.as_str(), 0).to_socket_addrs();
        let addresses: Vec<IpAddr> =
            found.into_iter().flatten().map(|found| found.ip().to_canonical()).collect();
        let mut known = self.found.write();
        if !addresses.is_empty() {
            *known = Found { addresses, at: Some(Instant::now()) };
        } else if known.at.is_some_and(|at| at.elapsed() > MAX_AGE) {
            *known = Found::default();
        }
    }
}

/// The names of all exports.
#[derive(Default)]
pub(crate) struct HostCache {
    hosts: Mutex<BTreeMap<String, Arc<Host>>>,
    rounds: Mutex<Rounds>,
    /// Wakes the thread, and those that wait for a round.
    changed: Condvar,
    is_stopping: AtomicBool,
}

#[derive(Default)]
struct Rounds {
    has_thread: bool,
    is_requested: bool,
    /// No round is under way.
    is_idle: bool,
    /// Rounds of lookups that have ended.
    ended: u64,
}

impl HostCache {
    /// The host of a name, new or known.
    pub(crate) fn host(&self, name: &str) -> Arc<Host> {
        let mut hosts = self.hosts.lock();
        let new = || Arc::new(Host { name: name.to_owned(), found: RwLock::default() });
        Arc::clone(hosts.entry(name.to_owned()).or_insert_with(new))
    }

    /// Forgets the names that no export has, and looks the others up.
    pub(crate) fn update(self: &Arc<Self>) -> Result<()> {
        let mut hosts = self.hosts.lock();
        hosts.retain(|_, host| Arc::strong_count(host) > 1);
        let is_empty = hosts.is_empty();
        drop(hosts);
        let mut rounds = self.rounds.lock();
        rounds.is_requested = true;
        self.changed.notify_all();
        if is_empty || rounds.has_thread {
            return Ok(());
        }
        let cache = Arc::clone(self);
        let thread = std::thread::Builder::new().name("nfs-names".to_owned());
        // the resolver of the system may take half a minute: the stop of the server does not wait for it
        thread.spawn(move || cache.run()).map_err(|why| Error::Thread { why })?;
        rounds.has_thread = true;
        Ok(())
    }

    /// Waits for a round of lookups that begins now, at most for a time. Returns at once if there are no names.
    pub(crate) fn look_up_again(&self, time: Duration) {
        if self.hosts.lock().is_empty() {
            return;
        }
        let deadline = Instant::now() + time;
        let mut rounds = self.rounds.lock();
        rounds.is_requested = true;
        // the round that is under way may have passed the name already
        let wanted = rounds.ended + 2 - u64::from(rounds.is_idle);
        self.changed.notify_all();
        while rounds.ended < wanted {
            let is_over = self.is_stopping.load(SeqCst);
            if is_over || self.changed.wait_until(&mut rounds, deadline).timed_out() {
                return;
            }
        }
    }

    /// Ends the thread. Does not wait for it.
    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, SeqCst);
        drop(self.rounds.lock());
        self.changed.notify_all();
    }

    fn run(&self) {
        loop {
            let hosts: Vec<Arc<Host>> = self.hosts.lock().values().cloned().collect();
            for host in &hosts {
                host.look_up();
            }
            let begun = Instant::now();
            let mut rounds = self.rounds.lock();
            (rounds.ended, rounds.is_idle) = (rounds.ended + 1, true);
            self.changed.notify_all();
            while !self.is_stopping.load(SeqCst)
                && begun.elapsed() < if rounds.is_requested { MIN_PAUSE } else { LOOKUP_INTERVAL }
            {
                let pause = if rounds.is_requested { MIN_PAUSE } else { LOOKUP_INTERVAL };
                self.changed.wait_until(&mut rounds, begun + pause);
            }
            if self.is_stopping.load(SeqCst) {
                return;
            }
            (rounds.is_requested, rounds.is_idle) = (false, false);
        }
    }
}
