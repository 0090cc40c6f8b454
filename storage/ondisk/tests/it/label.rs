//! Labels of the fixture pools, trimmed to their lists, against what `zdb -l` prints of them.

use ondisk::label::{
    LabelConfig, PoolState, VdevConfig, VdevKind, config_field, parse_config, slot_offset,
};
use ondisk::nvlist::{Encoding, Nvlist};
use proptest::prelude::*;

macro_rules! golden {
    ($name:literal) => {
        (
            $name,
            include_bytes!(concat!("../golden/label-", $name, ".bin")).as_slice(),
            include_str!(concat!("../golden/label-", $name, ".txt")),
        )
    };
}

const LABELS: [(&str, &[u8], &str); 11] = [
    golden!("single"),
    golden!("draid2-spare"),
    golden!("expanded"),
    golden!("expanding"),
    golden!("cache"),
    golden!("log"),
    golden!("special"),
    golden!("spare"),
    golden!("resilver"),
    golden!("version-28"),
    golden!("no-features"),
];

fn config(name: &str) -> LabelConfig {
    let (_, bytes, _) = LABELS.into_iter().find(|label| label.0 == name).expect("it is there");
    LabelConfig::parse(Nvlist::decode(bytes).expect("a list")).expect("a configuration")
}

fn tree(name: &str) -> VdevConfig {
    config(name).pool.tree.expect("a tree")
}

#[test]
fn golden_label() {
    for (name, bytes, text) in LABELS {
        let list = Nvlist::decode(bytes).expect(name);
        assert_eq!(list.to_string(), text, "{name}");
    }
}

#[test]
fn packing_gives_the_same_bytes() {
    for (name, bytes, _) in LABELS {
        let list = Nvlist::decode(bytes).expect(name);
        let packed = list.encode(Encoding::Xdr);
        assert_eq!(packed, bytes[..packed.len()], "{name}");
        assert!(bytes[packed.len()..].iter().all(|byte| *byte == 0), "{name}");
    }
}

#[test]
fn label_survives_encoding() {
    for (name, bytes, _) in LABELS {
        if ["cache", "spare"].contains(&name) {
            continue; // these are not part of a vdev
        }
        let config = config(name);
        assert_eq!(config.to_list().to_string(), config.nvlist.to_string(), "{name}");
        let field = config_field(&config.to_list()).expect("it fits");
        assert_eq!(field[..bytes.len()], *bytes, "{name}");
        assert_eq!(parse_config(&field).expect("a list"), config.nvlist, "{name}");
        let made = LabelConfig::for_leaf(config.pool.clone(), config.guid, config.is_spare);
        assert_eq!(made, config, "{name}");
    }
}

#[test]
fn too_long_config_list_is_refused() {
    let mut list = Nvlist::new();
    list.push("long", ondisk::nvlist::Value::Bytes(vec![0; 114_688 - 40]));
    assert_eq!(config_field(&list), None);
}

#[test]
fn multihost_reserves_the_last_ring_slot() {
    let slot = |txg, multihost| slot_offset(12, units::Txg::new(txg), multihost);
    assert_eq!((slot(0, false), slot(31, false), slot(32, false)), (131_072, 258_048, 131_072));
    assert_eq!((slot(31, true), slot(30, true)), (131_072, 253_952));
    assert_eq!(slot_offset(9, units::Txg::new(129), false), 131_072 + 1024);
}

#[test]
fn label_fields_end_in_their_checksum() {
    let (_, bytes, text) = LABELS[0];
    let mut field = bytes.to_vec();
    field.resize(114_688 - 40, 0);
    field.extend([0xff; 40]);
    assert_eq!(parse_config(&field).expect("a list").to_string(), text);
    assert!(parse_config(&bytes[..40]).is_err());
}

#[test]
fn label_of_a_single_file_pool() {
    let config = config("single");
    assert_eq!(config.pool.name.as_deref(), Some("tank"));
    assert_eq!((config.pool.version, config.pool.state), (5000, PoolState::Exported));
    assert_eq!(config.pool.txg.get(), 28);
    assert_eq!(config.pool.pool_guid.expect("a guid").get(), 826908233972782185);
    assert_eq!(config.guid.get(), 9231886372754979979);
    assert_eq!(config.ashift(), Some(9));
    assert_eq!(config.pool.features_for_read.len(), 3);
    let tree = config.pool.tree.expect("a tree");
    assert_eq!((&tree.kind, tree.asize), (&VdevKind::File, Some(95944704)));
    assert_eq!(tree.metaslab_array.map(units::ObjectId::get), Some(137));
    assert_eq!(tree.leaves().count(), 1);
}

#[test]
fn label_of_draid_with_active_spare() {
    let tree = tree("draid2-spare");
    assert_eq!((&tree.kind, tree.nparity), (&VdevKind::Draid, Some(2)));
    let draid = tree.draid.expect("a draid");
    assert_eq!((draid.data, draid.spares, draid.groups), (4, 2, 3));
    let spare = &tree.children[4];
    assert_eq!(spare.kind, VdevKind::Spare);
    assert!(spare.children[0].state.faulted);
    assert_eq!(spare.children[0].state.reason.as_deref(), Some("external"));
    let share = &spare.children[1];
    assert_eq!((&share.kind, share.spare_id), (&VdevKind::DraidSpare, Some(0)));
    assert_eq!(share.top_guid, Some(tree.guid));
    assert_eq!(tree.leaves().count(), 12);
}

#[test]
fn label_of_raidz_during_and_after_expansion() {
    assert!(tree("expanding").raidz_expanding);
    let done = tree("expanded");
    assert!(!done.raidz_expanding);
    assert_eq!(done.raidz_expand_txgs, [units::Txg::new(43)]);
}

#[test]
fn labels_without_a_vdev_tree() {
    let cache = config("cache");
    assert_eq!((cache.pool.state, cache.ashift()), (PoolState::Cache, Some(12)));
    let spare = config("spare");
    assert_eq!((spare.pool.state, spare.ashift()), (PoolState::Spare, None));
    assert!(cache.pool.tree.is_none() && cache.pool.pool_guid.is_none());
}

#[test]
fn labels_with_other_vdev_types() {
    assert!(tree("log").is_log);
    assert!(!tree("special").is_log, "labels do not record the allocation class");
    let kinds = |name| tree(name).walk().map(|vdev| vdev.kind.clone()).collect::<Vec<_>>();
    assert!(kinds("resilver").contains(&VdevKind::Replacing));
    assert_eq!(config("version-28").pool.version, 28);
    assert!(config("no-features").pool.features_for_read.is_empty());
}

proptest! {
    #[test]
    fn damaged_labels(
        which in 0..LABELS.len(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = LABELS[which].1.to_vec();
        for (place, byte) in damage {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if let Ok(list) = Nvlist::decode(&bytes) {
            let _ = list.to_string();
            if let Ok(config) = LabelConfig::parse(list) {
                let _ = config.pool.tree.iter().flat_map(VdevConfig::leaves).count();
            }
        }
    }
}
