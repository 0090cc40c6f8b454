//! Host names in the rules of exports, and their addresses.
//!
//! A thread looks the names up: when the exports change, when an unknown client connects, and once a minute. Requests
//! compare the address of their client with what was found, and never wait for a lookup. A name is looked up forwards,
//! from the name to its addresses.
//!
//! Patterns of names need the other direction: `getent hosts` tells the names of a client's address. A name counts only if it
//! leads to that address in turn, so that a client cannot choose its name by its own reverse zone.
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

use crate::{Error, Result};

/// The time between two lookups of a name.
const LOOKUP_INTERVAL: Duration = Duration::from_mins(1);
/// The least time between two rounds of lookups, however many unknown clients connect.
const MIN_PAUSE: Duration = Duration::from_secs(1);
/// The time for which a name keeps its addresses after its last lookup that succeeded.
const MAX_AGE: Duration = Duration::from_mins(10);
/// Clients whose names one round finds out. Others connect again.
const MAX_UNKNOWN: usize = 256;

/// The clients that a rule is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Clients {
    /// Those of a network.
    Network(IpNet),
    /// The host of a name.
    Host(String),
    /// The hosts whose names fit a pattern: `*` stands for any characters, `?` for one.
    Pattern(String),
}

impl fmt::Display for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(network) => network.fmt(f),
            Self::Host(name) | Self::Pattern(name) => f.write_str(name),
        }
    }
}

/// A name, or a pattern of names, with the addresses that were found.
pub(crate) struct Host {
    name: String,
    is_pattern: bool,
    /// By address, the time of the last lookup that led to it.
    found: RwLock<BTreeMap<IpAddr, Instant>>,
}

impl Host {
    pub(crate) fn has_address(&self, address: IpAddr) -> bool {
        self.found.read().contains_key(&address)
    }

    /// Looks the addresses up. A name that has new ones loses the others.
    fn look_up(&self, names: &mut NamesOfAddresses) {
        let addresses = if self.is_pattern {
            let known = self.found.read().keys().copied().collect();
            names.addresses_of_pattern(&self.name, known)
        } else {
            addresses_of(&self.name)
        };
        let now = Instant::now();
        let mut found = self.found.write();
        if !self.is_pattern && !addresses.is_empty() {
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
    let mut command = Command::new("getent");
    command.args(["hosts", &address.to_string()]).stdin(Stdio::null()).stderr(Stdio::null());
    // without the program no name is known, and patterns admit nobody
    let Ok(output) = command.output() else { return Vec::new() };
    let text = String::from_utf8_lossy(&output.stdout).to_ascii_lowercase();
    let names = text.lines().flat_map(|line| line.split_whitespace().skip(1));
    let names = names.map(|name| name.trim_end_matches('.').to_owned());
    names.filter(|name| addresses_of(name).contains(&address)).collect()
}

/// Whether a name fits a pattern with `*` and `?`.
fn fits(name: &str, pattern: &str) -> bool {
    let (name, pattern) = (name.as_bytes(), pattern.as_bytes());
    let (mut at, mut next) = (0, 0);
    // the place after the last `*`, and that in the name to which it reaches
    let mut star: Option<(usize, usize)> = None;
    while at < name.len() {
        match (pattern.get(next), star) {
            (Some(b'*'), _) => {
                next += 1;
                star = Some((next, at));
            }
            (Some(c), _) if *c == b'?' || *c == name[at] => (at, next) = (at + 1, next + 1),
            (_, Some((after, reach))) => {
                (at, next) = (reach + 1, after);
                star = Some((after, reach + 1));
            }
            (_, None) => return false,
        }
    }
    pattern[next..].iter().all(|c| *c == b'*')
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
    /// The host of a name, or the hosts of a pattern; new or known.
    pub(crate) fn host(&self, name: &str, is_pattern: bool) -> Arc<Host> {
        let mut hosts = self.hosts.lock();
        let found = RwLock::default();
        // no name of a host has the characters of patterns
        let new = || Arc::new(Host { name: name.to_owned(), is_pattern, found });
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
    use super::{fits, names_of};

    #[test]
    fn patterns_fit_whole_names() {
        for (pattern, fitting, others) in [
            (
                "*.lan",
                &["mac.lan", "a.b.lan", ".lan"][..],
                &["lan", "mac.lan.example", "maclan"][..],
            ),
            ("pc-?.lan", &["pc-1.lan"], &["pc-.lan", "pc-12.lan"]),
            ("a*b*c", &["abc", "axxbbxc", "abcbc"], &["ab", "acb", "abcd"]),
            ("**", &["", "x"], &[]),
        ] {
            assert!(fitting.iter().all(|name| fits(name, pattern)), "{pattern}");
            assert!(!others.iter().any(|name| fits(name, pattern)), "{pattern}");
        }
    }

    #[test]
    fn names_lead_back_to_their_address() {
        // the name of the address 192.0.2.1 (TEST-NET-1) would be somebody's claim
        assert!(names_of("192.0.2.1".parse().unwrap()).is_empty());
        assert!(names_of("127.0.0.1".parse().unwrap()).contains(&"localhost".to_owned()));
    }
}
