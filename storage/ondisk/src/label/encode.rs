//! A label's list back to bytes.
//!
//! Learnt from: labels of the fixtures. Proved by: `label_survives_encoding`.

use super::list::{ConfigTarget, push_number, string_value};
use super::{CONFIG_SIZE, LabelConfig, PoolConfig, PoolState, field_size};
use crate::gang::EMBEDDED_CHECKSUM_SIZE;
use crate::nvlist::{Encoding, Nvlist, Value};

impl PoolState {
    /// The number on disk.
    pub const fn number(self) -> u64 {
        match self {
            Self::Active => 0,
            Self::Exported => 1,
            Self::Destroyed => 2,
            Self::Spare => 3,
            Self::Cache => 4,
            Self::Unknown(number) => number,
        }
    }
}

impl PoolConfig {
    /// The pairs that come before those that tell who holds the list.
    fn push_head(&self, list: &mut Nvlist) {
        list.push("version", Value::U64(self.version));
        if let Some(name) = &self.name {
            list.push("name", string_value(name));
        }
        list.push("state", Value::U64(self.state.number()));
        list.push("txg", Value::U64(self.txg.get()));
        push_number(list, "pool_guid", self.pool_guid.map(units::Guid::get));
        list.push("errata", Value::U64(self.errata));
        let texts = [("comment", &self.comment), ("compatibility", &self.compatibility)];
        for (name, value) in texts {
            if let Some(value) = value {
                list.push(name, string_value(value));
            }
        }
        push_number(list, "hostid", self.host_id);
        if let Some(name) = &self.host_name {
            list.push("hostname", string_value(name));
        }
    }

    /// The pairs that come after them.
    fn push_rest(&self, list: &mut Nvlist, holder: ConfigTarget) {
        if !self.holes.is_empty() {
            list.push("hole_array", Value::U64s(self.holes.clone()));
        }
        push_number(list, "vdev_children", self.vdev_children);
        if let Some(tree) = &self.tree {
            list.push("vdev_tree", Value::List(tree.to_list(holder)));
        }
        let mut features = Nvlist::new();
        for guid in &self.features_for_read {
            features.push(guid, Value::Flag);
        }
        list.push("features_for_read", Value::List(features));
    }

    /// The list that the pool itself holds. (A pool in the course of a split is not written.)
    pub fn to_list(&self) -> Nvlist {
        let mut list = Nvlist::new();
        self.push_head(&mut list);
        if self.has_vdev_zaps {
            list.push("com.delphix:has_per_vdev_zaps", Value::Flag);
        }
        self.push_rest(&mut list, ConfigTarget::Pool);
        list
    }
}

impl LabelConfig {
    /// The label of the leaf `guid`, of which `pool.tree` is the top-level vdev.
    pub fn for_leaf(pool: PoolConfig, guid: units::Guid, is_spare: bool) -> Self {
        let top = pool.tree.as_ref();
        let top_guid = top.map(|top| top.guid);
        // the children of a mirrored log do not have the flag
        let is_log = top.is_some_and(|top| top.is_log && top.guid == guid);
        let nvlist = Nvlist::new();
        let mut config = Self {
            pool,
            guid,
            top_guid,
            create_txg: None,
            is_spare,
            is_log,
            ashift: None,
            spare_id: None,
            nvlist,
        };
        config.nvlist = config.to_list();
        config
    }

    /// The list of a device that is part of a vdev.
    pub fn to_list(&self) -> Nvlist {
        let mut list = Nvlist::new();
        self.pool.push_head(&mut list);
        push_number(&mut list, "top_guid", self.top_guid.map(units::Guid::get));
        list.push("guid", Value::U64(self.guid.get()));
        push_number(&mut list, "is_spare", self.is_spare.then_some(1));
        push_number(&mut list, "is_log", self.is_log.then_some(1));
        self.pool.push_rest(&mut list, ConfigTarget::Label);
        list
    }
}

/// The configuration field of a label with this list, yet without its checksum; `None` where the
/// list is too long for it.
pub fn config_field(list: &Nvlist) -> Option<Vec<u8>> {
    let mut field = list.encode(Encoding::Xdr);
    let size = field_size(CONFIG_SIZE);
    if field.len().checked_add(EMBEDDED_CHECKSUM_SIZE)? > size {
        return None;
    }
    field.resize(size, 0);
    Some(field)
}
