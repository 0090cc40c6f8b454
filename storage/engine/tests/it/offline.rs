//! Drives that commands take out of service: refused without valid replicas, kept over an export, and whole
//! again after a resilver.

use std::path::PathBuf;

use engine::pool::{
    DraidLayout, ImportOptions, NewPool, NewVdev, OfflineOptions, Pool, ScanProgress, VdevLayout,
    VdevRole, VdevStatus,
};
use sim::DiskArray;

use crate::resilver::import;
use crate::shared_blocks::{noise_bytes, run_zdb};
use crate::test_pool::{TempDir, check_pool, environment, new_pool, read_file, write_file};

const DRIVE_SIZE: u64 = 128 << 20;

const OFFLINE: OfflineOptions = OfflineOptions { temporary: false, fault: false };
const TEMPORARY: OfflineOptions = OfflineOptions { temporary: true, fault: false };
const FAULT: OfflineOptions = OfflineOptions { temporary: false, fault: true };

pub(crate) fn create(folder: &TempDir, layout: VdevLayout, drives: usize) -> Pool {
    engine::pool::create(&new_pool(folder, layout, drives), &environment()).unwrap()
}

pub(crate) fn resilver(pool: &Pool) {
    let done = pool.scans().resilver(&ScanProgress::new()).unwrap();
    assert!(done.complete && done.errors == 0, "{done:?}");
    assert!(!pool.scans().needs_resilver());
}

/// The states of all leaves, in order.
pub(crate) fn leaf_states(pool: &Pool) -> Vec<String> {
    fn collect(vdev: &VdevStatus, states: &mut Vec<String>) {
        if vdev.children.is_empty() {
            states.push(vdev.state.clone());
        }
        vdev.children.iter().for_each(|child| collect(child, states));
    }
    let mut states = Vec::new();
    pool.status().vdevs.iter().for_each(|vdev| collect(vdev, &mut states));
    states
}

fn refusal(result: engine::Result<()>) -> String {
    result.unwrap_err().to_string()
}

fn write_synced(pool: &Pool, name: &str, seed: u32) {
    write_file(pool, "tank", name, &noise_bytes(seed, 3 << 20));
    pool.sync().unwrap();
}

#[test]
fn offline_drive_gets_missed_writes_after_online() {
    for (name, layout, count, spare) in [
        ("mirror", VdevLayout::Mirror, 2, 1),
        ("raidz1", VdevLayout::Raidz(1), 3, 1),
        ("raidz2", VdevLayout::Raidz(2), 4, 2),
        ("draid1", VdevLayout::Draid(DraidLayout { parity: 1, data: 2, spares: 0 }), 4, 1),
    ] {
        let folder = TempDir::new(&format!("offline-{name}"), count, DRIVE_SIZE);
        let pool = create(&folder, layout, count);
        write_synced(&pool, "before", 1);
        pool.drives().offline("d0.img", OFFLINE).unwrap();
        assert_eq!(leaf_states(&pool)[0], "OFFLINE", "{name}");
        assert_eq!(pool.status().state, "DEGRADED", "{name}");
        write_synced(&pool, "while", 2);
        for drive in (1..count).take(spare - 1) {
            pool.drives().offline(&format!("d{drive}.img"), TEMPORARY).unwrap();
        }
        let last = format!("d{spare}.img");
        let why = refusal(pool.drives().offline(&last, OFFLINE));
        assert!(why.contains(&format!("cannot offline {last}: no valid replicas")), "{why}");
        pool.export().unwrap();
        drop(pool);

        let said = run_zdb(folder.path(), &["-C"]);
        assert!(said.is_empty() || said.contains("offline: 1"), "{said}");
        let pool = import(&folder.drives(count));
        assert_eq!(leaf_states(&pool)[0], "OFFLINE", "{name}");
        assert!(pool.drives().reopen().is_empty(), "only a command brings it back");
        write_synced(&pool, "later", 3);
        pool.drives().online("d0.img").unwrap();
        assert!(pool.scans().needs_resilver(), "{name}");
        if spare == 1 {
            let why = refusal(pool.drives().offline("d1.img", OFFLINE));
            assert!(why.contains("no valid replicas"), "{why}");
        }
        write_synced(&pool, "after", 4);
        resilver(&pool);
        assert!(leaf_states(&pool).iter().all(|state| state == "ONLINE"), "{name}");
        pool.drives().offline("d1.img", TEMPORARY).unwrap();
        pool.export().unwrap();
        drop(pool);
        let pool = import(&folder.drives(count));
        assert_eq!(leaf_states(&pool)[1], "ONLINE", "it was offline until the export");
        resilver(&pool);
        pool.export().unwrap();
        drop(pool);
        assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new(), "{name}");
        let drives = folder.drives(count);
        let pool = import(&[&drives[..1], &drives[1 + spare..]].concat());
        for (file, seed) in [("before", 1), ("while", 2), ("later", 3), ("after", 4)] {
            assert!(read_file(&pool, "tank", file) == noise_bytes(seed, 3 << 20), "{name}: {file}");
        }
        pool.export().unwrap();
    }
}

#[test]
fn import_names_the_offline_drive_that_it_needs() {
    let folder = TempDir::new("offline-needed", 3, DRIVE_SIZE);
    let pool = create(&folder, VdevLayout::Raidz(1), 3);
    write_synced(&pool, "before", 1);
    pool.drives().offline("d0.img", OFFLINE).unwrap();
    write_synced(&pool, "while", 2);
    pool.export().unwrap();
    drop(pool);
    // another drive fails while this one is offline
    std::fs::remove_file(&folder.drives(3)[1]).unwrap();
    let place = [folder.path().to_owned()];
    let found = engine::pool::import(&place, "tank", false, &environment());
    let why = found.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(why.contains("d0.img: offline") && why.contains("d1.img"), "{why}");
    // earlier data is read from it
    let options = ImportOptions { read_only: true, ..ImportOptions::default() };
    let pool = engine::pool::import_with(&place, "tank", &options, &environment()).unwrap();
    assert!(read_file(&pool, "tank", "before") == noise_bytes(1, 3 << 20));
    pool.export().unwrap();
}

#[test]
fn faulted_drive_comes_back_with_clear() {
    let folder = TempDir::new("offline-fault", 2, DRIVE_SIZE);
    let pool = create(&folder, VdevLayout::Mirror, 2);
    pool.drives().offline("d0.img", FAULT).unwrap();
    write_synced(&pool, "while", 2);
    pool.export().unwrap();
    drop(pool);
    let said = run_zdb(folder.path(), &["-C"]);
    let marks = ["faulted: 1", "aux_state: 'external'"];
    assert!(said.is_empty() || marks.iter().all(|mark| said.contains(mark)), "{said}");
    let pool = import(&folder.drives(2));
    assert_eq!(leaf_states(&pool), ["FAULTED", "ONLINE"]);
    let why = refusal(pool.drives().online("d0.img"));
    assert!(why.contains("zpool clear"), "{why}");
    pool.clear_errors(None).unwrap();
    assert_eq!(leaf_states(&pool), ["ONLINE", "ONLINE"]);
    resilver(&pool);
    pool.export().unwrap();
    drop(pool);
    let pool = import(&folder.drives(1));
    assert!(read_file(&pool, "tank", "while") == noise_bytes(2, 3 << 20));
    pool.export().unwrap();
}

#[test]
fn last_log_drive_goes_offline_without_losing_commits() {
    let folder = TempDir::new("offline-log", 2, DRIVE_SIZE);
    let drives = folder.drives(2);
    let vdev = |drive: &PathBuf, role| NewVdev {
        layout: VdevLayout::Single,
        drives: vec![drive.clone()],
        role,
    };
    let vdevs = vec![vdev(&drives[0], VdevRole::Data), vdev(&drives[1], VdevRole::Log)];
    let (name, properties) = ("tank".to_owned(), Vec::new());
    let new = NewPool { name, vdevs, ashift: None, properties, force: false };
    let pool = engine::pool::create(&new, &environment()).unwrap();
    write_file(&pool, "tank", "before", &noise_bytes(1, 100_000));
    pool.datasets().filesystem("tank").unwrap().fsync(None).unwrap();
    let why = refusal(pool.drives().offline("d0.img", OFFLINE));
    assert!(why.contains("no valid replicas"), "{why}");
    pool.drives().offline("d1.img", OFFLINE).unwrap();
    write_file(&pool, "tank", "while", &noise_bytes(2, 100_000));
    pool.datasets().filesystem("tank").unwrap().fsync(None).unwrap();
    // the power fails
    drop(pool);
    let pool = import(&drives);
    assert_eq!(leaf_states(&pool), ["ONLINE", "OFFLINE"]);
    for (file, seed) in [("before", 1), ("while", 2)] {
        assert!(read_file(&pool, "tank", file) == noise_bytes(seed, 100_000), "{file}");
    }
    pool.drives().online("d1.img").unwrap();
    resilver(&pool);
    write_file(&pool, "tank", "after", &noise_bytes(3, 100_000));
    pool.datasets().filesystem("tank").unwrap().fsync(None).unwrap();
    let log = pool.status().vdevs.into_iter().find(|vdev| vdev.class.is_some()).unwrap();
    assert!(log.allocated > 0, "the log is used again");
    pool.export().unwrap();
    drop(pool);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}

#[test]
fn power_cuts_leave_a_drive_online_or_offline() {
    let storm = DiskArray::new(&[64 << 20; 3]);
    let drives: Vec<PathBuf> = (0..3).map(|index| format!("/disk{index}").into()).collect();
    let vdevs = vec![NewVdev { layout: VdevLayout::Raidz(1), drives, role: VdevRole::Data }];
    let (name, properties) = ("tank".to_owned(), Vec::new());
    let new = NewPool { name, vdevs, ashift: None, properties, force: false };
    let pool = engine::pool::create_on_devices(&new, &storm.devices(), &environment()).unwrap();
    write_synced(&pool, "before", 1);
    let start = storm.journal().len();
    pool.drives().offline("disk0", OFFLINE).unwrap();
    let offline = storm.journal().len();
    write_synced(&pool, "while", 2);
    let guid = pool.status().vdevs[0].children[0].guid;
    pool.drives().online("disk0").unwrap_err();
    pool.drives().reopen_with(guid, &storm.devices()[0]).unwrap();
    resilver(&pool);
    let end = storm.journal().len();
    drop(pool);
    let step = ((end - start) / 16).max(1);
    for at in (start..=end).step_by(step).chain([end]) {
        let found = storm.journal().cut_power(at, at as u64);
        let devices: Vec<_> = found
            .into_iter()
            .map(|disk| std::sync::Arc::new(disk) as engine::pool::Drive)
            .collect();
        let pool = engine::pool::import_devices(&devices, "tank", &environment())
            .unwrap_or_else(|why| panic!("cut at {at}: {why}"));
        assert!(read_file(&pool, "tank", "before") == noise_bytes(1, 3 << 20), "cut at {at}");
        if at == offline {
            assert_eq!(leaf_states(&pool)[0], "OFFLINE");
        }
        if at == end {
            assert!(read_file(&pool, "tank", "while") == noise_bytes(2, 3 << 20));
            assert_eq!(leaf_states(&pool)[0], "ONLINE");
        }
        pool.export().unwrap();
    }
}
