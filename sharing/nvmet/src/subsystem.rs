//! Subsystems: namespaces under the names that hosts connect to.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use lun::OpenUnit;
use parking_lot::RwLock;
use sha2::{Digest, Sha256};

use crate::auth::DhChap;
use crate::namespace::{Namespace, UnitWatcher};
use crate::wire::connect::is_nqn;
use crate::{Error, Result};

/// The largest number of a namespace: as many as a list of namespaces has.
pub(crate) const MAX_NAMESPACE: u32 = 1024;

/// A subsystem: namespaces under a name.
#[derive(Clone)]
pub struct Subsystem {
    /// The NQN, like `nqn.2026-01.com.example:disk`.
    pub name: String,
    /// The networks whose hosts may use the subsystem. For others it is not there; an empty list admits nobody.
    pub networks: Vec<IpNet>,
    /// The NQNs of the hosts that may use the subsystem; an empty list admits all of the networks.
    pub hosts: Vec<String>,
    /// The proof that hosts have to give; none: a host is believed its name.
    pub authentication: Option<DhChap>,
    /// The namespaces by their numbers, from 1.
    pub namespaces: BTreeMap<u32, OpenUnit>,
}

impl Subsystem {
    fn check(&self) -> Result<()> {
        for name in std::iter::once(&self.name).chain(&self.hosts) {
            if !is_nqn(name) {
                return Err(Error::Name { name: name.clone() });
            }
        }
        let number = self.namespaces.keys().find(|number| !(1..=MAX_NAMESPACE).contains(*number));
        match number {
            Some(number) => {
                Err(Error::NamespaceNumber { subsystem: self.name.clone(), number: *number })
            }
            None => Ok(()),
        }
    }
}

/// The namespaces of a subsystem by their numbers.
pub(crate) type Namespaces = BTreeMap<u32, Arc<Namespace>>;

/// A subsystem that is served.
pub(crate) struct ActiveSubsystem {
    pub(crate) name: String,
    state: RwLock<State>,
}

struct State {
    access: Access,
    namespaces: Arc<Namespaces>,
}

/// The hosts that may use a subsystem, and their proof.
#[derive(Clone)]
pub(crate) struct Access {
    networks: Vec<IpNet>,
    hosts: Vec<String>,
    authentication: Option<DhChap>,
}

impl Access {
    fn admits_address(&self, address: IpAddr) -> bool {
        // a listener of IPv6 shows IPv4 clients by mapped addresses
        let address = address.to_canonical();
        self.networks.iter().any(|network| network.contains(&address))
    }

    fn admits_host(&self, host: &str) -> bool {
        self.hosts.is_empty() || self.hosts.iter().any(|known| known == host)
    }
}

impl ActiveSubsystem {
    pub(crate) fn namespaces(&self) -> Arc<Namespaces> {
        Arc::clone(&self.state.read().namespaces)
    }

    pub(crate) fn admits_host(&self, host: &str) -> bool {
        self.state.read().access.admits_host(host)
    }

    /// The proof that hosts have to give.
    pub(crate) fn authentication(&self) -> Option<DhChap> {
        self.state.read().access.authentication.clone()
    }

    fn admits(&self, host: &str, address: IpAddr) -> bool {
        let state = self.state.read();
        state.access.admits_address(address) && state.access.admits_host(host)
    }

    /// The serial number: it stays the same, as hosts compare it.
    pub(crate) fn serial(&self) -> String {
        let hash: [u8; 32] = Sha256::digest(self.name.as_bytes()).into();
        hash[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The subsystems of a server, by name.
#[derive(Clone, Default)]
pub(crate) struct SubsystemTable(BTreeMap<String, Arc<ActiveSubsystem>>);

/// The table of a new configuration.
pub(crate) struct Update {
    pub(crate) table: SubsystemTable,
    /// Namespaces that came, went or are others, by the names of their subsystems.
    pub(crate) changed: BTreeMap<String, Vec<u32>>,
}

impl SubsystemTable {
    /// The table of a new configuration. Subsystems and namespaces that were there before keep their state.
    pub(crate) fn update(
        &self,
        subsystems: Vec<Subsystem>,
        watcher: &UnitWatcher,
    ) -> Result<Update> {
        let mut names = BTreeSet::new();
        for subsystem in &subsystems {
            subsystem.check()?;
            if !names.insert(&subsystem.name) {
                return Err(Error::DuplicateSubsystem { name: subsystem.name.clone() });
            }
        }
        let mut known: Vec<Arc<Namespace>> = self
            .0
            .values()
            .flat_map(|subsystem| subsystem.namespaces().values().cloned().collect::<Vec<_>>())
            .collect();
        let mut update = Update { table: Self::default(), changed: BTreeMap::new() };
        for subsystem in subsystems {
            let mut namespaces = BTreeMap::new();
            for (number, config) in &subsystem.namespaces {
                let found = known.iter().find(|namespace| namespace.is_of(config));
                let namespace = found.cloned().unwrap_or_else(|| {
                    let namespace = Namespace::new(config, watcher);
                    known.push(Arc::clone(&namespace));
                    namespace
                });
                namespaces.insert(*number, namespace);
            }
            self.add_updated(subsystem, namespaces, &mut update);
        }
        Ok(update)
    }

    fn add_updated(&self, subsystem: Subsystem, namespaces: Namespaces, update: &mut Update) {
        let Subsystem { name, networks, hosts, authentication, .. } = subsystem;
        let access = Access { networks, hosts, authentication };
        let state = State { access, namespaces: Arc::new(namespaces) };
        let Some(active) = self.0.get(&name) else {
            let active = ActiveSubsystem { name: name.clone(), state: RwLock::new(state) };
            update.table.0.insert(name, Arc::new(active));
            return;
        };
        let before = std::mem::replace(&mut *active.state.write(), state).namespaces;
        let after = active.namespaces();
        let numbers: BTreeSet<u32> = before.keys().chain(after.keys()).copied().collect();
        let is_same = |number: &u32| match (before.get(number), after.get(number)) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            _ => false,
        };
        let changed: Vec<u32> = numbers.into_iter().filter(|number| !is_same(number)).collect();
        if !changed.is_empty() {
            update.changed.insert(name.clone(), changed);
        }
        update.table.0.insert(name, Arc::clone(active));
    }

    /// The subsystem of a name, if hosts at an address may see it.
    pub(crate) fn find(&self, name: &str, address: IpAddr) -> Option<&Arc<ActiveSubsystem>> {
        self.0.get(name).filter(|found| found.state.read().access.admits_address(address))
    }

    /// The names of the subsystems that a host may use.
    pub(crate) fn visible(&self, host: &str, address: IpAddr) -> Vec<String> {
        let visible = self.0.values().filter(|subsystem| subsystem.admits(host, address));
        visible.map(|subsystem| subsystem.name.clone()).collect()
    }

    /// Whether a controller of a host may go on.
    pub(crate) fn serves(
        &self,
        subsystem: &Arc<ActiveSubsystem>,
        host: &str,
        address: IpAddr,
    ) -> bool {
        let now = self.0.get(&subsystem.name);
        now.is_some_and(|now| Arc::ptr_eq(now, subsystem) && now.admits(host, address))
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }
}
