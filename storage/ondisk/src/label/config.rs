//! The pool as a label's list, or the one in the pool itself, describes it.
//!
//! A label describes the top-level vdev of its device; the list in the pool (object `config` of the
//! pool directory) describes all of them. Labels of spares and of cache devices hold only their
//! role.
//!
//! Learnt from: `zdb -l` and `zdb -C` of the fixtures. Proved by: `golden_label`.

use units::{Guid, ObjectId, Txg};

use super::vdev::VdevConfig;
use crate::nvlist::{Nvlist, Value};
use crate::{Error, Result};

/// The state of a pool, or of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum PoolState {
    /// In use, or was when the power went.
    Active,
    /// Exported.
    Exported,
    /// Destroyed; its data may be there still.
    Destroyed,
    /// Not a pool: a hot spare, maybe of several pools.
    Spare,
    /// Not a pool: a read cache.
    Cache,
    /// A number that should not be on disk.
    Unknown(u64),
}

impl PoolState {
    /// From the number on disk.
    pub const fn from_number(number: u64) -> Self {
        match number {
            0 => Self::Active,
            1 => Self::Exported,
            2 => Self::Destroyed,
            3 => Self::Spare,
            4 => Self::Cache,
            _ => Self::Unknown(number),
        }
    }
}

impl std::fmt::Display for PoolState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Active => f.write_str("active"),
            Self::Exported => f.write_str("exported"),
            Self::Destroyed => f.write_str("destroyed"),
            Self::Spare => f.write_str("spare"),
            Self::Cache => f.write_str("cache"),
            Self::Unknown(number) => write!(f, "unknown ({number})"),
        }
    }
}

/// The record of a `zpool split` in progress (splitcfg).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Split {
    /// The pool from which it was, or is to be, split off.
    pub pool: Option<Guid>,
    /// The device's guid in that pool.
    pub original: Option<Guid>,
    /// The devices that are part of it.
    pub devices: Vec<Guid>,
}

/// The facts about the pool that labels and the pool's own list share.
#[derive(Clone, PartialEq, Debug)]
pub struct PoolConfig {
    /// Version of the pool: 1 to 28, or 5000 with feature flags.
    pub version: u64,
    /// The pool's name; missing on spares and caches, or if it is not UTF-8.
    pub name: Option<String>,
    /// The state.
    pub state: PoolState,
    /// When the list was written; 0 on a device that is in the course of being added.
    pub txg: Txg,
    /// The pool's identity; missing on spares and caches.
    pub pool_guid: Option<Guid>,
    /// The number of a known defect of the pool; 0 none.
    pub errata: u64,
    /// The host that had it last.
    pub host_id: Option<u64>,
    /// That host's name.
    pub host_name: Option<String>,
    /// The administrator's comment.
    pub comment: Option<String>,
    /// Names of feature sets that limit the enabled features.
    pub compatibility: Option<String>,
    /// How many top-level vdevs there are, holes counted.
    pub vdev_children: Option<u64>,
    /// Which of them are holes.
    pub holes: Vec<u64>,
    /// The features without which the pool cannot be read, by guid.
    pub features_for_read: Vec<String>,
    /// The vdevs: the root in the pool's own list, one top-level vdev in a label.
    pub tree: Option<VdevConfig>,
    /// Set while, and after, the pool was split off.
    pub split: Option<Split>,
    /// Whether each vdev has a ZAP (com.delphix:has_per_vdev_zaps).
    pub has_vdev_zaps: bool,
}

/// A label's list.
#[derive(Clone, PartialEq, Debug)]
pub struct LabelConfig {
    /// The facts about the pool.
    pub pool: PoolConfig,
    /// The device itself.
    pub guid: Guid,
    /// The top-level vdev that it is part of.
    pub top_guid: Option<Guid>,
    /// The txg of its addition, on a device which is being added (then `pool.txg` is 0).
    pub create_txg: Option<Txg>,
    /// Whether it is a spare in use as part of a vdev.
    pub is_spare: bool,
    /// Whether its vdev is part of the intent log.
    pub is_log: bool,
    /// log2 of the sector size, on caches, whose label has no tree.
    pub ashift: Option<u64>,
    /// The object that describes the spare, where there is one.
    pub spare_id: Option<ObjectId>,
    /// All of the list.
    pub nvlist: Nvlist,
}

const STRUCTURE: &str = "pool configuration";

impl PoolConfig {
    /// From the list that the pool itself holds, or a label's.
    pub fn parse(list: &Nvlist) -> Result<Self> {
        let number = |name| list.u64(name);
        let tree = list.nvlist("vdev_tree").map(VdevConfig::parse).transpose()?;
        Ok(Self {
            version: required(list, "version", "it has a version")?,
            name: list.text("name"),
            state: PoolState::from_number(required(list, "state", "it has a state")?),
            txg: Txg::new(number("txg").unwrap_or(0)),
            pool_guid: number("pool_guid").map(Guid::new),
            errata: number("errata").unwrap_or(0),
            host_id: number("hostid"),
            host_name: list.text("hostname"),
            comment: list.text("comment"),
            compatibility: list.text("compatibility"),
            vdev_children: number("vdev_children"),
            holes: list.u64s("hole_array").map(<[u64]>::to_vec).unwrap_or_default(),
            features_for_read: names(list.nvlist("features_for_read")),
            tree,
            split: list.nvlist("splitcfg").map(Split::parse),
            has_vdev_zaps: list.flag("com.delphix:has_per_vdev_zaps"),
        })
    }
}

impl LabelConfig {
    /// From a label's list.
    pub fn parse(list: Nvlist) -> Result<Self> {
        Ok(Self {
            pool: PoolConfig::parse(&list)?,
            guid: Guid::new(required(&list, "guid", "a label names its device")?),
            top_guid: list.u64("top_guid").map(Guid::new),
            create_txg: list.u64("create_txg").map(Txg::new),
            is_spare: list.u64("is_spare").is_some_and(|value| value != 0),
            is_log: list.u64("is_log").is_some_and(|value| value != 0),
            ashift: list.u64("ashift"),
            spare_id: list.u64("spareid").map(ObjectId::new),
            nvlist: list,
        })
    }

    /// log2 of the sector size: from the tree, or beside it on caches.
    pub fn ashift(&self) -> Option<u64> {
        self.pool.tree.as_ref().and_then(|tree| tree.ashift).or(self.ashift)
    }
}

impl Split {
    fn parse(list: &Nvlist) -> Self {
        let devices = list.u64s("guid_list").unwrap_or(&[]);
        Self {
            pool: list.u64("split_guid").map(Guid::new),
            original: list.u64("orig_guid").map(Guid::new),
            devices: devices.iter().copied().map(Guid::new).collect(),
        }
    }
}

fn names(list: Option<&Nvlist>) -> Vec<String> {
    let all = list.into_iter().flat_map(Nvlist::iter);
    all.filter(|pair| *pair.1 != Value::Bool(false)).map(|pair| pair.0.to_owned()).collect()
}

fn required(list: &Nvlist, name: &str, rule: &'static str) -> Result<u64> {
    list.u64(name).ok_or(Error::Rule { structure: STRUCTURE, at: 0, rule, found: 0 })
}
