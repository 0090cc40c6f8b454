//! Host names in the rules of exports, and their addresses.
//!
//! A thread looks the names up: when the exports change, when an unknown client connects, and once a minute. Requests
//! compare the address of their client with what was found, and never wait for a lookup. A name is looked up forwards,
//! from the name to its addresses.
//!
//! Patterns of names need the other direction: `getent hosts` tells the names of a client's address. A name counts only if it
//! leads to that address in turn, so that a client cannot choose its name by its own reverse zone.
//!
//! A netgroup is a list of hosts that the system's name service has (`getent netgroup`): each is looked up like a name.
//!
//! A name whose lookup fails keeps its addresses for ten minutes, so that clients outlast a short failure of DNS.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, ToSocketAddrs};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use parking_lot::{Condvar, Mutex, RwLock};

use crate::name_pattern::fits;
use crate::{Error, Result};

/// The time between two lookups of a name.
const LOOKUP_INTERVAL: Duration = Duration::from_mins(1);
/// The least time between two rounds of lookups, however many unknown clients connect.
const MIN_PAUSE: Duration = Duration::from_secs(1);
/// The time for which a name keeps its addresses after its last lookup that succeeded.
const MAX_AGE: Duration = Duration::from_mins(10);
/// Hosts of a netgroup that are looked up.
const MAX_MEMBERS: usize = 4096;
/// Clients whose names one round finds out. Others connect again.
const MAX_UNKNOWN: usize = 256;

/// The clients that a rule is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Clients {
    /// Those of a network.
    Network(IpNet),
    /// The host of a name.
    Host(String),
    /// The hosts whose names fit a pattern: `*` stands for any characters, `?` for one, `[a-f]` for one of a list.
    Pattern(String),
    /// The hosts of a netgroup, without `@`.
    Netgroup(String),
}

impl fmt::Display for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(network) => network.fmt(f),
            Self::Host(name) | Self::Pattern(name) => f.write_str(name),
            Self::Netgroup(name) => write!(f, "@{name}"),
        }
    }
}

/// Clients that have names, with the addresses that were found.
pub(crate) struct Host {
    clients: Clients,
    /// By address, the time of the last lookup that led to it.
    found: RwLock<BTreeMap<IpAddr, Instant>>,
}

impl Host {
    pub(crate) fn has_address(&self, address: IpAddr) -> bool {
        self.found.read().contains_key(&address)
    }

    /// Looks the addresses up. A name that has new ones loses the others.
    fn look_up(&self, names: &mut NamesOfAddresses) {
        let (addresses, is_complete) = match &self.clients {
            Clients::Network(_) => (Vec::new(), false),
            Clients::Pattern(pattern) => {
                let known = self.found.read().keys().copied().collect();
                (names.addresses_of_pattern(pattern, known), false)
            }
            Clients::Host(name) => {
                let addresses = addresses_of(name);
                let is_complete = !addresses.is_empty();
                (addresses, is_complete)
            }
            Clients::Netgroup(group) => addresses_of_netgroup(group),
        };
        let now = Instant::now();
        let mut found = self.found.write();
        if is_complete {
            found.clear();
        }
        found.retain(|_, at| now.duration_since(*at) <= MAX_AGE);
        found.extend(addresses.into_iter().map(|address| (address, now)));
    }
}

/// The addresses of a name.
fn addresses_of(name: &str) -> Vec<IpAddr> {
    let found = (name, 0).to_socket_addrs();
    found.into_iter().flatten().map(|found| found.ip().to_canonical()).collect()
}

/// The addresses of the hosts of a netgroup, and whether all of them were found.
fn addresses_of_netgroup(group: &str) -> (Vec<IpAddr>, bool) {
    // a group that the system does not know, or cannot ask for now, prints nothing
    let Some(text) = run_getent("netgroup", group) else { return (Vec::new(), false) };
    let hosts: BTreeSet<String> = hosts_in(&text).into_iter().collect();
    let found: Vec<Vec<IpAddr>> =
        hosts.iter().take(MAX_MEMBERS).map(|host| addresses_of(host)).collect();
    let is_complete = found.iter().all(|addresses| !addresses.is_empty());
    (found.concat(), is_complete)
}

/// The hosts of the triples of a netgroup: `group (host,user,domain) (host,user,domain)`. A triple without a host is about
/// users alone.
fn hosts_in(text: &str) -> Vec<String> {
    let triples = text.split('(').skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
    let hosts = triples.filter_map(|triple| triple.split(',').next()).map(str::trim);
    hosts.filter(|host| !["", "-"].contains(host)).map(str::to_owned).collect()
}

/// The output of `getent` for a key of a database; none: it fails, or the database has no such key.
fn run_getent(database: &str, key: &str) -> Option<String> {
    let mut command = Command::new("getent");
    command.args([database, key]).stdin(Stdio::null()).stderr(Stdio::null());
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The names of clients' addresses, during one round of lookups.
struct NamesOfAddresses {
    /// The clients that no rule has admitted yet.
    unknown: BTreeSet<IpAddr>,
    names: BTreeMap<IpAddr, Vec<String>>,
}

impl NamesOfAddresses {
    /// The addresses, of the clients that are unknown or known, that have a name which fits.
    fn addresses_of_pattern(&mut self, pattern: &str, known: Vec<IpAddr>) -> Vec<IpAddr> {
        let unknown = self.unknown.iter().copied();
        let candidates: BTreeSet<IpAddr> = known.into_iter().chain(unknown).collect();
        let mut fitting: Vec<IpAddr> = candidates.into_iter().collect();
        fitting.retain(|address| {
            let names = self.names.entry(*address).or_insert_with(|| names_of(*address));
            names.iter().any(|name| fits(name, pattern))
        });
        fitting
    }
}

/// The names of an address that lead to it in turn, in small letters.
fn names_of(address: IpAddr) -> Vec<String> {
    // without the program no name is known, and patterns admit nobody
    let Some(text) = run_getent("hosts", &address.to_string()) else { return Vec::new() };
    let text = text.to_ascii_lowercase();
    let names = text.lines().flat_map(|line| line.split_whitespace().skip(1));
    let names = names.map(|name| name.trim_end_matches('.').to_owned());
    names.filter(|name| addresses_of(name).contains(&address)).collect()
}

/// The names of all exports.
#[derive(Default)]
pub(crate) struct HostCache {
    hosts: Mutex<BTreeMap<String, Arc<Host>>>,
    /// Clients that no rule has admitted, and whose names the next round finds out.
    unknown: Mutex<BTreeSet<IpAddr>>,
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
    /// The host of a name, or the hosts of a pattern or netgroup; new or known.
    pub(crate) fn host(&self, clients: &Clients) -> Arc<Host> {
        let mut hosts = self.hosts.lock();
        let found = RwLock::default();
        let new = || Arc::new(Host { clients: clients.clone(), found });
        // no name of a host has the characters of patterns, nor that of netgroups
        Arc::clone(hosts.entry(clients.to_string()).or_insert_with(new))
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

    /// Waits for a round of lookups for a client that begins now, at most for a time. Returns at once if there are no
    /// names.
    pub(crate) fn look_up_again(&self, client: IpAddr, time: Duration) {
        if self.hosts.lock().is_empty() {
            return;
        }
        let mut unknown = self.unknown.lock();
        if unknown.len() < MAX_UNKNOWN {
            unknown.insert(client.to_canonical());
        }
        drop(unknown);
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
            let unknown = std::mem::take(&mut *self.unknown.lock());
            let mut names = NamesOfAddresses { unknown, names: BTreeMap::new() };
            for host in &hosts {
                host.look_up(&mut names);
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

#[cfg(test)]
mod tests {
    use super::{hosts_in, names_of};

    #[test]
    fn names_lead_back_to_their_address() {
        // the name of the address 192.0.2.1 (TEST-NET-1) would be somebody's claim
        assert!(names_of("192.0.2.1".parse().unwrap()).is_empty());
        assert!(names_of("127.0.0.1".parse().unwrap()).contains(&"localhost".to_owned()));
    }

    #[test]
    fn netgroups_name_hosts() {
        let printed =
            "staff                 (mac.lan,anna,lan) ( nas , , )(-,ben,) (,carl,) (tv,,)\n";
        assert_eq!(hosts_in(printed), ["mac.lan", "nas", "tv"]);
        for broken in ["", "staff", "staff (", "staff (mac", "staff )(", "staff ()"] {
            assert!(hosts_in(broken).is_empty(), "{broken}");
        }
    }
}
