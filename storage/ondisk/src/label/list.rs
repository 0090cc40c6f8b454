//! The tree of vdevs back to the list that a label, or the pool itself, holds.
//!
//! The pairs come in the order in which OpenZFS writes them: readers do not mind, but so the bytes
//! can be compared.
//!
//! Learnt from: labels of the fixtures. Proved by: `a_tree_finds_back_to_its_bytes`.

use units::ObjectId;

use super::vdev::{Draid, Indirect, VdevConfig, VdevState};
use crate::nvlist::{Nvlist, Value};

/// The owner of the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConfigTarget {
    /// A label: it names no ZAPs, which only an open pool can read.
    Label,
    /// The pool itself.
    Pool,
}

impl VdevConfig {
    /// The list from which [`VdevConfig::parse`] makes an equal value. The allocation bias
    /// (`bias`) is not in it: it is stored in the vdev's ZAP.
    pub fn to_list(&self, holder: ConfigTarget) -> Nvlist {
        let mut list = Nvlist::new();
        list.push("type", string_value(self.kind.name()));
        list.push("id", Value::U64(u64::from(self.id.get())));
        list.push("guid", Value::U64(self.guid.get()));
        self.push_names(&mut list);
        self.push_shape(&mut list);
        push_number(&mut list, "whole_disk", self.whole_disk.map(u64::from));
        push_flag(&mut list, "not_present", self.state.not_present);
        push_flag(&mut list, "is_spare", self.is_spare);
        self.push_top(&mut list);
        push_number(&mut list, "DTL", self.dtl.map(ObjectId::get));
        if let Some(indirect) = &self.indirect {
            indirect.push(&mut list);
        }
        push_number(&mut list, "create_txg", self.create_txg.map(units::Txg::get));
        push_number(&mut list, "expansion_time", self.expansion_time);
        if holder == ConfigTarget::Pool {
            self.push_zaps(&mut list);
        }
        if !self.children.is_empty() {
            let children = self.children.iter().map(|child| child.to_list(holder)).collect();
            list.push("children", Value::Lists(children));
        }
        self.push_state(&mut list);
        list
    }

    fn push_names(&self, list: &mut Nvlist) {
        let names = [
            ("path", &self.path),
            ("devid", &self.devid),
            ("phys_path", &self.phys_path),
            ("vdev_enc_sysfs_path", &self.enclosure_path),
        ];
        for (name, value) in names {
            if let Some(value) = value {
                list.push(name, string_value(value));
            }
        }
    }

    fn push_shape(&self, list: &mut Nvlist) {
        push_number(list, "nparity", self.nparity);
        if let Some(draid) = &self.draid {
            draid.push(list);
        }
        if self.raidz_expanding {
            list.push("raidz_expanding", Value::Flag);
        }
        if !self.raidz_expand_txgs.is_empty() {
            let txgs = self.raidz_expand_txgs.iter().map(|txg| txg.get()).collect();
            list.push("raidz_expand_txgs", Value::U64s(txgs));
        }
        push_number(list, "top_guid", self.top_guid.map(units::Guid::get));
        push_number(list, "spareid", self.spare_id);
    }

    /// The fields of top-level vdevs, all or none.
    fn push_top(&self, list: &mut Nvlist) {
        if self.metaslab_shift.is_none() {
            return push_number(list, "ashift", self.ashift);
        }
        let array = self.metaslab_array.map_or(0, ObjectId::get);
        list.push("metaslab_array", Value::U64(array));
        push_number(list, "metaslab_shift", self.metaslab_shift);
        push_number(list, "ashift", self.ashift);
        push_number(list, "asize", self.asize);
        list.push("is_log", Value::U64(u64::from(self.is_log)));
        push_flag(list, "non_allocating", self.non_allocating);
        push_flag(list, "removing", self.removing);
    }

    fn push_zaps(&self, list: &mut Nvlist) {
        push_number(list, "com.delphix:vdev_zap_leaf", self.leaf_zap.map(ObjectId::get));
        push_number(list, "com.delphix:vdev_zap_top", self.top_zap.map(ObjectId::get));
        push_number(list, "com.klarasystems:vdev_zap_root", self.root_zap.map(ObjectId::get));
        if self.state.resilver_deferred {
            list.push("com.datto:resilver_defer", Value::Flag);
        }
    }

    fn push_state(&self, list: &mut Nvlist) {
        let VdevState { offline, faulted, degraded, removed, unspare, .. } = self.state;
        push_flag(list, "offline", offline);
        push_number(list, "resilver_txg", self.resilver_txg.map(units::Txg::get));
        push_number(list, "rebuild_txg", self.rebuild_txg.map(units::Txg::get));
        push_flag(list, "faulted", faulted);
        push_flag(list, "degraded", degraded);
        push_flag(list, "removed", removed);
        push_flag(list, "unspare", unspare);
        push_flag(list, "is_hole", self.is_hole);
        if let Some(reason) = &self.state.reason {
            list.push("aux_state", string_value(reason));
        }
        push_number(list, "orig_guid", self.original_guid.map(units::Guid::get));
    }
}

impl Draid {
    fn push(&self, list: &mut Nvlist) {
        list.push("draid_ndata", Value::U64(self.data));
        list.push("draid_nspares", Value::U64(self.spares));
        list.push("draid_ngroups", Value::U64(self.groups));
    }
}

impl Indirect {
    fn push(&self, list: &mut Nvlist) {
        list.push("com.delphix:indirect_object", Value::U64(self.mapping.get()));
        push_number(list, "com.delphix:indirect_births", self.births.map(ObjectId::get));
        let previous = self.previous.map(|vdev| u64::from(vdev.get()));
        push_number(list, "com.delphix:prev_indirect_vdev", previous);
    }
}

pub(super) fn string_value(text: &str) -> Value {
    Value::Str(text.as_bytes().to_vec())
}

pub(super) fn push_number(list: &mut Nvlist, name: &str, value: Option<u64>) {
    if let Some(value) = value {
        list.push(name, Value::U64(value));
    }
}

fn push_flag(list: &mut Nvlist, name: &str, set: bool) {
    if set {
        list.push(name, Value::U64(1));
    }
}
