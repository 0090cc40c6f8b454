//! Labels and uberblocks, written and found again, also when the power fails in between.

use std::sync::Arc;

use device::{Device, MemoryDevice};
use geometry::Reflow;
use ondisk::label::{PoolConfig, PoolState, VdevConfig};
use ondisk::nvlist::{Nvlist, Value};
use ondisk::uberblock::Uberblock;
use ondisk::{Checksum, label};
use sim::{DiskArray, Fault};
use spa::{Error, LabelCopy, TxgCommitter, scan_devices};
use transform::checksum::embedded;
use units::{Guid, Txg, VdevId};
use vdev::{BuildContext, LeafDevice, VdevNode, VdevTree};

const DISK_SIZE: u64 = 64 << 20;
const UBERBLOCK: &[u8] = include_bytes!("../../../ondisk/tests/golden/uberblock-single.bin");

/// A list of numbers and texts.
fn vdev_nvlist(kind: &str, numbers: &[(&str, u64)], children: Vec<Nvlist>) -> Nvlist {
    let mut list = Nvlist::new();
    list.push("type", Value::Str(kind.into()));
    for (name, number) in numbers {
        list.push(name, Value::U64(*number));
    }
    if !children.is_empty() {
        list.push("children", Value::Lists(children));
    }
    list
}

fn leaf_nvlist(id: u64, guid: u64) -> Nvlist {
    let mut leaf = vdev_nvlist("file", &[("id", id), ("guid", guid)], Vec::new());
    leaf.push("path", Value::Str(format!("/disks/{guid}").into()));
    leaf
}

fn top_nvlist(kind: &str, id: u64, log: u64, leaves: std::ops::Range<u64>) -> Nvlist {
    let numbers = [
        ("id", id),
        ("guid", 100 + id),
        ("nparity", 1),
        ("metaslab_shift", 24),
        ("ashift", 12 - 3 * log),
        ("asize", 1 << 20),
        ("is_log", log),
    ];
    let children = leaves.clone().map(|guid| leaf_nvlist(guid - leaves.start, guid)).collect();
    vdev_nvlist(kind, &numbers, children)
}

/// A mirror of 1 and 2, a raidz of 3, 4 and 5, and the log 6 and 7.
fn pool_config(txg: Txg, comment: &str) -> PoolConfig {
    let tops = vec![
        top_nvlist("mirror", 0, 0, 1..3),
        top_nvlist("raidz", 1, 0, 3..6),
        top_nvlist("mirror", 2, 1, 6..8),
    ];
    let root = vdev_nvlist("root", &[("guid", 99)], tops);
    PoolConfig {
        version: 5000,
        name: Some("made".to_owned()),
        state: PoolState::Active,
        txg,
        pool_guid: Some(Guid::new(4711)),
        errata: 0,
        host_id: None,
        host_name: Some("here".to_owned()),
        comment: Some(comment.to_owned()),
        compatibility: None,
        vdev_children: Some(3),
        holes: Vec::new(),
        features_for_read: vec!["com.delphix:hole_birth".to_owned()],
        tree: Some(VdevConfig::parse(&root).unwrap()),
        split: None,
        has_vdev_zaps: true,
    }
}

fn uberblock(txg: Txg) -> Uberblock {
    Uberblock {
        txg,
        timestamp: 1_800_000_000 + txg.get(),
        ..Uberblock::parse_required(UBERBLOCK).unwrap()
    }
}

fn build_tree(config: &PoolConfig, devices: &[Arc<dyn Device>]) -> VdevTree {
    let find = |guid: Guid| {
        let device = devices.get(usize::try_from(guid.get() - 1).ok()?)?;
        Some(LeafDevice { device: Arc::clone(device), label_txg: Txg::new(u64::MAX) })
    };
    let around = BuildContext { find_device: &find, reflow: Reflow { offset: 0, scratch: false } };
    let tops = &config.tree.as_ref().unwrap().children;
    VdevTree::new(tops.iter().map(|top| VdevNode::build(top, &around).unwrap()).collect())
}

/// Commits `txg` with its configuration.
fn commit_txg(storm: &DiskArray, txg: u64, faults: &mut Vec<vdev::LeafError>) -> Result<(), Error> {
    let config = pool_config(Txg::new(txg), &format!("as of {txg}"));
    let tree = build_tree(&config, &storm.devices());
    let commit = TxgCommitter { tree: &tree, logs: Vec::new(), multihost: false };
    if txg == 4 {
        commit.clear_labels(faults)?;
    }
    commit.commit(&uberblock(Txg::new(txg)), Some(&config), faults)
}

fn find_pool(disks: Vec<MemoryDevice>) -> Option<(Txg, Txg, String)> {
    let devices: Vec<Arc<dyn Device>> =
        disks.into_iter().map(|disk| Arc::new(disk) as Arc<dyn Device>).collect();
    let (pools, _) = scan_devices(&devices);
    let [pool] = &pools[..] else { return None };
    let config = &pool.config()?.pool;
    let best = pool.uberblocks().first()?.txg;
    Some((best, config.txg, config.comment.clone()?))
}

#[test]
fn committed_state_is_on_every_drive() {
    let storm = DiskArray::new(&[DISK_SIZE; 7]);
    // the old content of the drives is gone
    for disk in storm.devices() {
        disk.write_at(0, &vec![0xa5; 1 << 20]).unwrap();
    }
    let mut faults = Vec::new();
    for txg in 4..=40 {
        commit_txg(&storm, txg, &mut faults).unwrap();
    }
    assert_eq!(faults, []);
    let (pools, others) = scan_devices(&storm.devices());
    assert_eq!((pools.len(), others.len(), pools[0].devices.len()), (1, 0, 7));
    for device in &pools[0].devices {
        let config = &device.config;
        assert_eq!(config.pool.txg, Txg::new(40));
        let tree = config.pool.tree.as_ref().unwrap();
        assert!(tree.leaves().any(|leaf| leaf.guid == config.guid));
        assert_eq!(config.top_guid, Some(tree.guid));
        for copy in &device.copies {
            let LabelCopy::Valid(copy) = copy else { panic!("{copy:?}") };
            assert_eq!(**copy, *config);
        }
        // four copies of as many uberblocks as the ring has
        let ring = label::slot_count(tree.ashift.unwrap()).min(37);
        assert_eq!(device.slots.len() as u64, 4 * ring);
        assert_eq!(device.slots[0].uberblock, uberblock(Txg::new(40)));
    }
}

#[test]
fn a_cut_leaves_one_txg_or_the_other() {
    let storm = DiskArray::new(&[DISK_SIZE; 7]);
    commit_txg(&storm, 4, &mut Vec::new()).unwrap();
    let start = storm.journal().len();
    commit_txg(&storm, 5, &mut Vec::new()).unwrap();
    let end = storm.journal().len();
    let (mut before, mut after) = (0, 0);
    for at in start..=end {
        for seed in 0..6 {
            let left = storm.journal().cut_power(at, seed);
            let (best, label, comment) = find_pool(left).expect("a pool is there");
            assert_eq!(label, best, "at {at} of {end}, seed {seed}");
            assert_eq!(comment, format!("as of {best}"));
            before += usize::from(best == Txg::new(4));
            after += usize::from(best == Txg::new(5));
        }
    }
    assert!(before > 0 && after > 0);
    assert_eq!(before + after, 6 * (end - start + 1));
    assert_eq!(find_pool(storm.journal().cut_power(end, 0)).unwrap().0, Txg::new(5));
}

#[test]
fn a_commit_needs_one_drive_of_each_vdev() {
    let storm = DiskArray::new(&[DISK_SIZE; 7]);
    commit_txg(&storm, 4, &mut Vec::new()).unwrap();
    for disk in [0, 3, 4, 5, 6] {
        storm.disks()[disk].add_fault(Fault::Removed);
    }
    let mut faults = Vec::new();
    commit_txg(&storm, 5, &mut faults).unwrap();
    let mut named: Vec<u64> = faults.iter().map(|fault| fault.leaf.get()).collect();
    named.sort_unstable();
    named.dedup();
    assert_eq!(named, [1, 4, 5, 6, 7]);
    storm.disks()[2].add_fault(Fault::Flush);
    let result = commit_txg(&storm, 6, &mut faults);
    assert_eq!(result, Err(Error::VdevNotWritten { top: Guid::new(101) }));
    for disk in storm.disks() {
        disk.clear_faults();
    }
    // an unfinished txg is not used
    assert_eq!(find_pool(storm.journal().cut_power(usize::MAX, 1)).unwrap().0, Txg::new(5));
    commit_txg(&storm, 6, &mut Vec::new()).unwrap();
    assert_eq!(find_pool(storm.journal().cut_power(usize::MAX, 0)).unwrap().0, Txg::new(6));
}

#[test]
fn without_any_drive_there_is_no_commit() {
    let storm = DiskArray::new(&[DISK_SIZE; 7]);
    commit_txg(&storm, 4, &mut Vec::new()).unwrap();
    let config = pool_config(Txg::new(5), "");
    let tree = build_tree(&config, &storm.devices());
    let commit = TxgCommitter { tree: &tree, logs: Vec::new(), multihost: false };
    for disk in storm.disks() {
        disk.add_fault(Fault::Write(0..DISK_SIZE));
    }
    let result = commit.commit(&uberblock(Txg::new(5)), None, &mut Vec::new());
    assert_eq!(result, Err(Error::NoDeviceWritten));
}

#[test]
fn failed_foreign_flush_prevents_the_commit() {
    let storm = DiskArray::new(&[DISK_SIZE; 7]);
    commit_txg(&storm, 4, &mut Vec::new()).unwrap();
    let config = pool_config(Txg::new(5), "");
    let tree = build_tree(&config, &storm.devices());
    let top = VdevId::new(0);
    let write = |txg| tree.write(top, 0, &[7; 8192], Txg::new(txg), &mut Vec::new()).unwrap();
    write(5);
    for disk in storm.disks() {
        disk.add_fault(Fault::Flush);
    }
    assert!(tree.flush(&mut Vec::new()).is_err());
    for disk in storm.disks() {
        disk.clear_faults();
    }
    let logs = Vec::new();
    let of = |txg, logs| {
        let commit = TxgCommitter { tree: &tree, logs, multihost: false };
        commit.commit(&uberblock(Txg::new(txg)), None, &mut Vec::new())
    };
    assert_eq!(of(5, logs.clone()), Err(Error::WritesLost));
    // if only logs lost writes, the txg itself has their records
    let first = config.tree.as_ref().unwrap().children[0].guid;
    assert_eq!(of(5, vec![first]), Ok(()));
    write(6);
    assert_eq!(of(6, logs), Ok(()));
}

/// The txgs of the drives' own uberblocks.
fn newest_txgs(storm: &DiskArray) -> Vec<u64> {
    let (pools, _) = scan_devices(&storm.devices());
    let mut devices: Vec<_> = pools[0].devices.iter().collect();
    devices.sort_by_key(|device| device.guid());
    devices.iter().map(|device| device.newest_txg().get()).collect()
}

#[test]
fn failed_drive_keeps_its_old_uberblock() {
    let storm = DiskArray::new(&[DISK_SIZE; 7]);
    commit_txg(&storm, 4, &mut Vec::new()).unwrap();
    let tree = build_tree(&pool_config(Txg::new(5), ""), &storm.devices());
    // of a mirror, and of a raidz
    for top in 0..2 {
        tree.write(VdevId::new(top), 0, &[7; 8192], Txg::new(5), &mut Vec::new()).unwrap();
    }
    let lacking = [1, 4];
    for drive in lacking {
        storm.disks()[drive].add_fault(Fault::Flush);
    }
    tree.flush(&mut Vec::new()).unwrap();
    storm.disks().iter().for_each(|disk| disk.clear_faults());
    let commit = |txg| {
        let commit = TxgCommitter { tree: &tree, logs: Vec::new(), multihost: false };
        commit.commit(&uberblock(Txg::new(txg)), None, &mut Vec::new()).unwrap();
    };
    commit(5);
    let wanted: Vec<u64> = (0..7).map(|drive| 5 - u64::from(lacking.contains(&drive))).collect();
    assert_eq!(newest_txgs(&storm), wanted);
    // the next txg records their DTLs
    commit(6);
    assert_eq!(newest_txgs(&storm), [6; 7]);
}

/// Slots as OpenZFS wrote them, byte for byte.
#[test]
fn uberblock_slots_of_real_pools_reencode() {
    for name in ["mirror-2", "mirror-3", "expanded", "resilver-midway"] {
        let fixture = fixtures::load(name);
        let found = device::probe(&[fixture.dir]);
        let (pools, _) = scan_devices(&found.devices);
        for labelled in pools.iter().flat_map(|pool| &pool.devices) {
            let ashift = labelled.config.ashift().unwrap();
            for slot in &labelled.slots {
                let size = usize::try_from(label::slot_size(ashift)).unwrap();
                let mut real = vec![0; size];
                labelled.device.read_at(slot.offset, &mut real).unwrap();
                let mut ours = slot.uberblock.encode().to_vec();
                ours.resize(size, 0);
                let seed = [slot.offset, 0, 0, 0];
                embedded::seal(&mut ours, &seed, Checksum::Label, false).unwrap();
                assert!(ours == real, "{name}: slot at {:#x}", slot.offset);
                let txg = slot.uberblock.txg;
                let within = label::slot_offset(ashift, txg, false);
                let copy = label::offset(slot.copy, labelled.device.size()).unwrap();
                assert_eq!(copy + within, slot.offset, "{name}: txg {txg}");
            }
        }
    }
}
