//! The tree of vdevs back to the list that a label, or the pool itself, holds.
//!
//! The pairs come in the order in which OpenZFS writes them: readers do not mind, but so the bytes
//! can be compared.
//!
//! Learnt from: labels of the fixtures. Proved by: `a_tree_finds_back_to_its_bytes`.

use units::ObjectId;

use super::vdev::{Draid, Indirect, VdevConfig, VdevState};
use crate::nvlist::{Nvlist, Value};

/// Who holds the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holder {
    /// A label: it names no ZAPs, which only an open pool can read.
    Label,
    /// The pool itself.
    Pool,
}

impl VdevConfig {
    /// The list from which [`VdevConfig::parse`] makes the same. What a vdev is kept for
    /// (`bias`) is not in it: on disk that stands in the vdev's ZAP.
    pub fn to_list(&self, holder: Holder) -> Nvlist {
        let mut list = Nvlist::new();
        list.push("type", text(self.kind.name()));
        list.push("id", Value::U64(u64::from(self.id.get())));
        list.push("guid", Value::U64(self.guid.get()));
        self.push_names(&mut list);
        self.push_shape(&mut list);
        number(&mut list, "whole_disk", self.whole_disk.map(u64::from));
        mark(&mut list, "not_present", self.state.not_present);
        mark(&mut list, "is_spare", self.is_spare);
        self.push_top(&mut list);
        number(&mut list, "DTL", self.dtl.map(ObjectId::get));
        if let Some(indirect) = &self.indirect {
            indirect.push(&mut list);
        }
        number(&mut list, "create_txg", self.create_txg.map(units::Txg::get));
        number(&mut list, "expansion_time", self.expansion_time);
        if holder == Holder::Pool {
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
                list.push(name, text(value));
            }
        }
    }

    fn push_shape(&self, list: &mut Nvlist) {
        number(list, "nparity", self.nparity);
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
        number(list, "top_guid", self.top_guid.map(units::Guid::get));
        number(list, "spareid", self.spare_id);
    }

    /// What only top-level vdevs have, and those wholly.
    fn push_top(&self, list: &mut Nvlist) {
        if self.metaslab_shift.is_none() {
            return number(list, "ashift", self.ashift);
        }
        let array = self.metaslab_array.map_or(0, ObjectId::get);
        list.push("metaslab_array", Value::U64(array));
        number(list, "metaslab_shift", self.metaslab_shift);
        number(list, "ashift", self.ashift);
        number(list, "asize", self.asize);
        list.push("is_log", Value::U64(u64::from(self.is_log)));
        mark(list, "non_allocating", self.non_allocating);
        mark(list, "removing", self.removing);
    }

    fn push_zaps(&self, list: &mut Nvlist) {
        number(list, "com.delphix:vdev_zap_leaf", self.leaf_zap.map(ObjectId::get));
        number(list, "com.delphix:vdev_zap_top", self.top_zap.map(ObjectId::get));
        number(list, "com.klarasystems:vdev_zap_root", self.root_zap.map(ObjectId::get));
        if self.state.resilver_deferred {
            list.push("com.datto:resilver_defer", Value::Flag);
        }
    }

    fn push_state(&self, list: &mut Nvlist) {
        let VdevState { offline, faulted, degraded, removed, unspare, .. } = self.state;
        mark(list, "offline", offline);
        number(list, "resilver_txg", self.resilver_txg.map(units::Txg::get));
        number(list, "rebuild_txg", self.rebuild_txg.map(units::Txg::get));
        mark(list, "faulted", faulted);
        mark(list, "degraded", degraded);
        mark(list, "removed", removed);
        mark(list, "unspare", unspare);
        mark(list, "is_hole", self.is_hole);
        if let Some(reason) = &self.state.reason {
            list.push("aux_state", text(reason));
        }
        number(list, "orig_guid", self.original_guid.map(units::Guid::get));
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
        number(list, "com.delphix:indirect_births", self.births.map(ObjectId::get));
        let previous = self.previous.map(|vdev| u64::from(vdev.get()));
        number(list, "com.delphix:prev_indirect_vdev", previous);
    }
}

pub(super) fn text(text: &str) -> Value {
    Value::Str(text.as_bytes().to_vec())
}

pub(super) fn number(list: &mut Nvlist, name: &str, value: Option<u64>) {
    if let Some(value) = value {
        list.push(name, Value::U64(value));
    }
}

fn mark(list: &mut Nvlist, name: &str, set: bool) {
    if set {
        list.push(name, Value::U64(1));
    }
}
