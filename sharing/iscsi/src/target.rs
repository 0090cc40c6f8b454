//! Targets: logical units under the names that initiators log in to.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use lun::{Nexus, OpenUnit, VolumeGuids};
use parking_lot::RwLock;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::scsi::{LogicalUnit, Sense};
use crate::{Error, Result};

/// The portal group, which all addresses of the server belong to.
pub(crate) const PORTAL_GROUP: u16 = 1;
/// Bytes of the longest iSCSI name.
pub(crate) const MAX_NAME: usize = 223;
/// The largest LUN.
const MAX_UNIT_NUMBER: u16 = (1 << 14) - 1;
/// Bytes of the shortest CHAP secret.
const LEAST_SECRET: usize = 12;

/// A name of a unit that stays the same: initiators find their disk again by it.
///
/// It comes from the guids of the pool and of the volume, so that a pool that was split off has other units.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct UnitId(u64);

impl UnitId {
    /// The name of a volume.
    pub fn new(guids: &VolumeGuids) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"poolhouse logical unit\0");
        hash.update(guids.pool.to_be_bytes());
        hash.update(guids.volume.to_be_bytes());
        let [a, b, c, d, e, f, g, h, ..] = <[u8; 32]>::from(hash.finalize());
        let first = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        // NAA 3: a name that is assigned locally has 60 bits
        Self(first >> 4 | 3 << 60)
    }

    /// The NAA name.
    pub fn naa(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }
}

/// As hexadecimal digits: the serial number.
impl fmt::Display for UnitId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}", self.0)
    }
}

/// A CHAP user with its secret.
#[derive(Clone)]
pub struct ChapUser {
    name: String,
    secret: Zeroizing<Vec<u8>>,
}

impl ChapUser {
    /// A user. The secret must have at least 12 bytes.
    pub fn new(name: &str, secret: &[u8]) -> Result<Self> {
        if name.is_empty() || name.len() > 255 {
            return Err(Error::UserName);
        }
        if secret.len() < LEAST_SECRET {
            return Err(Error::ShortSecret { user: name.to_owned(), length: secret.len() });
        }
        Ok(Self { name: name.to_owned(), secret: Zeroizing::new(secret.to_vec()) })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn secret(&self) -> &[u8] {
        &self.secret
    }
}

/// The secret is not shown.
impl fmt::Debug for ChapUser {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ChapUser").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The authentication of initiators.
#[derive(Clone, Debug)]
pub struct Chap {
    initiator: ChapUser,
    target: Option<ChapUser>,
}

impl Chap {
    /// Initiators prove that they know the secret of `initiator`. The target proves that it knows the secret of
    /// `target`, if there is one and the initiator asks for it. The two secrets must differ.
    pub fn new(initiator: ChapUser, target: Option<ChapUser>) -> Result<Self> {
        if target.as_ref().is_some_and(|target| target.secret == initiator.secret) {
            return Err(Error::SameSecret { user: initiator.name });
        }
        Ok(Self { initiator, target })
    }

    pub(crate) fn initiator(&self) -> &ChapUser {
        &self.initiator
    }

    pub(crate) fn target(&self) -> Option<&ChapUser> {
        self.target.as_ref()
    }
}

/// The initiators that may ask for the names of targets.
#[derive(Clone, Debug)]
pub enum Discovery {
    /// Those of the networks of a target, which they learn the name of.
    Open,
    /// Those that prove themselves as well.
    Chap(Chap),
    /// None.
    Closed,
}

/// A target: logical units under a name.
#[derive(Clone)]
pub struct Target {
    /// The iSCSI name, like `iqn.2026-01.com.example:disk`.
    pub name: String,
    /// A sentence for the user who lists the targets.
    pub alias: String,
    /// The networks whose initiators may use the target. It is invisible for others; an empty list
    /// admits none.
    pub networks: Vec<IpNet>,
    /// The names of the initiators that may use the target; an empty list admits all of the networks.
    pub initiators: Vec<String>,
    /// The required proof; none: any initiator name is accepted.
    pub chap: Option<Chap>,
    /// The units by their LUNs.
    pub units: BTreeMap<u16, OpenUnit>,
}

impl Target {
    fn check(&self) -> Result<()> {
        for name in std::iter::once(&self.name).chain(&self.initiators) {
            if !is_iscsi_name(name) {
                return Err(Error::Name { name: name.clone() });
            }
        }
        match self.units.keys().find(|number| **number > MAX_UNIT_NUMBER) {
            Some(number) => Err(Error::UnitNumber { target: self.name.clone(), number: *number }),
            None => Ok(()),
        }
    }
}

/// Whether a name has the form of iSCSI names.
pub(crate) fn is_iscsi_name(name: &str) -> bool {
    let is_known = ["iqn.", "eui.", "naa."]
        .iter()
        .any(|start| name.strip_prefix(start).is_some_and(|rest| !rest.is_empty()));
    let is_letter = |letter: char| {
        letter.is_ascii_lowercase() || letter.is_ascii_digit() || matches!(letter, '.' | '-' | ':')
    };
    // names beyond ASCII are compared after a normalization; they come normalized
    let is_other = |letter: char| !letter.is_ascii() && !letter.is_control();
    // eui. and naa. have hexadecimal digits, in which initiators use both cases
    let is_digit = |letter: char| letter.is_ascii_hexdigit() && !name.starts_with("iqn.");
    is_known
        && name.len() <= MAX_NAME
        && name.chars().all(|letter| is_letter(letter) || is_other(letter) || is_digit(letter))
}

/// A target that is served.
pub(crate) struct ActiveTarget {
    pub(crate) name: String,
    state: RwLock<TargetState>,
}

struct TargetState {
    access: Access,
    units: Arc<BTreeMap<u16, Arc<LogicalUnit>>>,
}

/// The initiators that may use a target.
#[derive(Clone)]
pub(crate) struct Access {
    pub(crate) alias: String,
    networks: Vec<IpNet>,
    initiators: Vec<String>,
    pub(crate) chap: Option<Chap>,
}

impl Access {
    /// Whether initiators at an address may see the target.
    pub(crate) fn admits_address(&self, address: IpAddr) -> bool {
        // a listener of IPv6 shows IPv4 clients by mapped addresses
        let address = address.to_canonical();
        self.networks.iter().any(|network| network.contains(&address))
    }

    /// Whether an initiator of this name may use the target.
    pub(crate) fn admits_name(&self, initiator: &str) -> bool {
        self.initiators.is_empty() || self.initiators.iter().any(|known| known == initiator)
    }
}

impl ActiveTarget {
    pub(crate) fn access(&self) -> Access {
        self.state.read().access.clone()
    }

    pub(crate) fn units(&self) -> Arc<BTreeMap<u16, Arc<LogicalUnit>>> {
        Arc::clone(&self.state.read().units)
    }

    pub(crate) fn admits(&self, initiator: &str, address: IpAddr) -> bool {
        let state = self.state.read();
        state.access.admits_address(address) && state.access.admits_name(initiator)
    }
}

/// The targets of a server, by name.
#[derive(Clone, Default)]
pub(crate) struct TargetTable(BTreeMap<String, Arc<ActiveTarget>>);

impl TargetTable {
    /// The table of a new configuration. Targets and units that were there before keep their state.
    pub(crate) fn update(&self, targets: Vec<Target>) -> Result<Self> {
        let mut names = std::collections::BTreeSet::new();
        for target in &targets {
            target.check()?;
            if !names.insert(&target.name) {
                return Err(Error::DuplicateTarget { name: target.name.clone() });
            }
        }
        let mut known: Vec<Arc<LogicalUnit>> = self
            .0
            .values()
            .flat_map(|target| target.units().values().cloned().collect::<Vec<_>>())
            .collect();
        let mut table = BTreeMap::new();
        for target in targets {
            let mut units = BTreeMap::new();
            for (number, open) in &target.units {
                let found = known.iter().find(|logical| logical.is_of(open));
                let logical = found.cloned().unwrap_or_else(|| {
                    let logical = LogicalUnit::new(open);
                    known.push(Arc::clone(&logical));
                    logical
                });
                units.insert(*number, logical);
            }
            let (name, active) = self.updated_target(target, units);
            table.insert(name, active);
        }
        Ok(Self(table))
    }

    fn updated_target(
        &self,
        target: Target,
        units: BTreeMap<u16, Arc<LogicalUnit>>,
    ) -> (String, Arc<ActiveTarget>) {
        let Target { name, alias, networks, initiators, chap, .. } = target;
        let access = Access { alias, networks, initiators, chap };
        let state = TargetState { access, units: Arc::new(units) };
        let Some(active) = self.0.get(&name) else {
            let active = ActiveTarget { name: name.clone(), state: RwLock::new(state) };
            return (name, Arc::new(active));
        };
        let before = std::mem::replace(&mut *active.state.write(), state).units;
        let after = active.units();
        let is_same = before.len() == after.len()
            && before
                .iter()
                .zip(&*after)
                .all(|((number, unit), (other, now))| number == other && Arc::ptr_eq(unit, now));
        if !is_same {
            // a unit may have several numbers, and be there before and after
            let mut told: Vec<&Arc<LogicalUnit>> = Vec::new();
            for unit in after.values().chain(before.values()) {
                if !told.iter().any(|known| Arc::ptr_eq(known, unit)) {
                    unit.announce(Sense::UNITS_CHANGED);
                    told.push(unit);
                }
            }
        }
        (name, Arc::clone(active))
    }

    /// The target of a name, if initiators at an address may see it.
    pub(crate) fn find(&self, name: &str, address: IpAddr) -> Option<&Arc<ActiveTarget>> {
        self.0.get(name).filter(|target| target.state.read().access.admits_address(address))
    }

    /// The names of the targets that an initiator may use.
    pub(crate) fn visible(&self, initiator: &str, address: IpAddr) -> Vec<String> {
        let visible = self.0.values().filter(|target| target.admits(initiator, address));
        visible.map(|target| target.name.clone()).collect()
    }

    /// Whether a session of an initiator may continue.
    pub(crate) fn serves(
        &self,
        target: &Arc<ActiveTarget>,
        initiator: &str,
        address: IpAddr,
    ) -> bool {
        let now = self.0.get(&target.name);
        now.is_some_and(|now| Arc::ptr_eq(now, target) && now.admits(initiator, address))
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }
}

/// The path from an initiator port to a target: the name of the port, NUL, the name of the target.
pub(crate) fn nexus(initiator: &str, isid: [u8; 6], target: &str) -> Nexus {
    let isid: String = isid.iter().map(|byte| format!("{byte:02x}")).collect();
    Nexus(format!("{initiator},i,0x{isid}\0{target}").into_bytes())
}

/// The name of the initiator port of a nexus. An NVMe host has the name that NVMe gives to its identifier.
pub(crate) fn initiator_port(nexus: &Nexus) -> Vec<u8> {
    if let Some(host) = nexus.nvme_host() {
        let digits: String = host.iter().map(|byte| format!("{byte:02x}")).collect();
        let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| digits[part].to_owned());
        return format!("nqn.2014-08.org.nvmexpress:uuid:{}", parts.join("-")).into_bytes();
    }
    nexus.0.split(|byte| *byte == 0).next().unwrap_or(&[]).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_ids_depend_on_pool_and_volume() {
        let id = |pool, volume| UnitId::new(&VolumeGuids { pool, volume });
        assert_ne!(id(1, 2), id(2, 2));
        assert_ne!(id(1, 2), id(1, 3));
        let id = id(1, 2);
        assert_eq!(id.to_string().len(), 16);
        assert!(id.to_string().starts_with('3'));
    }

    #[test]
    fn short_and_equal_secrets_are_refused() {
        let short = ChapUser::new("backup", b"elevenbytes").unwrap_err().to_string();
        assert!(short.contains("at least 12") && !short.contains("elevenbytes"), "{short}");
        let user = |secret: &[u8]| ChapUser::new("backup", secret).unwrap();
        let (one, other) = (user(b"twelve bytes"), user(b"other twelve"));
        assert!(Chap::new(one.clone(), Some(other)).is_ok());
        assert!(matches!(Chap::new(one.clone(), Some(one.clone())), Err(Error::SameSecret { .. })));
        assert!(!format!("{one:?}").contains("twelve"));
        assert!(ChapUser::new("", b"twelve bytes").is_err());
    }

    #[test]
    fn names_have_the_form_of_iscsi() {
        for name in ["iqn.2026-01.com.example:disk", "eui.02004567A425678D", "naa.3000000000000001"]
        {
            assert!(is_iscsi_name(name), "{name}");
        }
        for name in ["disk", "iqn.", "iqn.2026-01.com.example:My Disk", "iqn.2026-01.COM"] {
            assert!(!is_iscsi_name(name), "{name}");
        }
        assert!(!is_iscsi_name(&format!("iqn.{}", "x".repeat(220))));
    }
}
