//! Feature flags: what makes one active, how its uses are counted, and what makes it inactive again.
//!
//! In each of these tests [`faults`] compares the declared features of datasets with the used ones
//! and with the pool's counts; `zdb` does so too if it is installed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use engine::pool::{self, CreateOptions, NewDataset, Pool, VdevLayout};
use posix::{RenameMode, RenameRequest};
use units::ObjectId;

use crate::shared_blocks::run_zdb;
use crate::test_pool::{TempDir, check_pool, credentials, environment, new_pool, write_file};

/// The reference count of each enabled feature, in the pool whose images are in a folder.
fn uses(folder: &Path) -> BTreeMap<String, u64> {
    let device = |path: &Path| Arc::new(device::File::open(path).unwrap()) as _;
    let devices: Vec<Arc<dyn device::Device>> =
        std::fs::read_dir(folder).unwrap().map(|entry| device(&entry.unwrap().path())).collect();
    let pool = spa::scan_devices(&devices).0[0].open(&spa::PoolOpenOptions::default()).unwrap();
    let name = |guid: &str| guid.split_once(':').unwrap().1.to_owned();
    pool.features().iter().map(|feature| (name(&feature.guid), feature.refcount)).collect()
}

/// Checks that the pool in a folder has no faults, that `zdb` finds no wrong count, and a feature's
/// reference count.
fn assert_uses(folder: &TempDir, feature: &str, wanted: u64) {
    assert_eq!(check_pool(folder, "tank"), Vec::<String>::new(), "{feature}");
    assert!(!run_zdb(folder.path(), &["-d"]).contains("mismatch"), "{feature}");
    assert_eq!(uses(folder.path()).get(feature), Some(&wanted), "{feature}");
}

fn properties(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn import(folder: &TempDir) -> Pool {
    pool::import(&[folder.path().into()], "tank", false, &environment()).unwrap()
}

/// Creates a pool, changes it, and exports it.
fn made(name: &str, wishes: &[(&str, &str)], change: impl FnOnce(&Pool)) -> TempDir {
    let folder = TempDir::new(name, 1, 128 << 20);
    let mut new = new_pool(&folder, VdevLayout::Single, 1);
    new.properties.clear();
    let wishes = CreateOptions::parse(&properties(wishes), false).unwrap();
    let held = pool::create_with_options(&new, wishes, &environment()).unwrap();
    change(&held);
    held.export().unwrap();
    folder
}

/// Imports the pool, changes it, and exports it.
fn changed(folder: &TempDir, change: impl FnOnce(&Pool)) {
    let held = import(folder);
    change(&held);
    held.export().unwrap();
}

fn destroy_all(folder: &TempDir, names: &[&str]) {
    changed(folder, |pool| {
        for name in names {
            pool.datasets().destroy(name).unwrap();
        }
    });
}

/// A snapshot and a clone declare what their origin declares; the count falls with each that goes.
fn counts_datasets(name: &str, feature: &str, begin: impl FnOnce(&Pool)) {
    let folder = made(name, &[], begin);
    assert_uses(&folder, feature, 1);
    changed(&folder, |pool| pool.snapshots().create(&["tank/a@s".to_owned()]).unwrap());
    assert_uses(&folder, feature, 2);
    changed(&folder, |pool| {
        let clone = NewDataset { name: "tank/c".to_owned(), properties: Vec::new() };
        pool.snapshots().clone_snapshot("tank/a@s", &clone).unwrap();
    });
    assert_uses(&folder, feature, 3);
    destroy_all(&folder, &["tank/c", "tank/a@s"]);
    assert_uses(&folder, feature, 1);
    destroy_all(&folder, &["tank/a"]);
    assert_uses(&folder, feature, 0);
}

fn create(pool: &Pool, all: &[(&str, &str)]) {
    let properties = properties(all);
    pool.datasets()
        .create_filesystem(&NewDataset { name: "tank/a".to_owned(), properties })
        .unwrap();
}

#[test]
fn long_name_activates_longname() {
    counts_datasets("longname", "longname", |pool| {
        create(pool, &[("longname", "on")]);
        write_file(pool, "tank/a", &"n".repeat(256), b"x");
    });
}

#[test]
fn short_names_leave_longname_inactive() {
    let folder = made("shortname", &[], |pool| {
        create(pool, &[("longname", "on")]);
        write_file(pool, "tank/a", &"n".repeat(255), b"x");
    });
    assert_uses(&folder, "longname", 0);
}

#[test]
fn rename_and_link_activate_longname() {
    for link in [false, true] {
        let folder = made(&format!("longname-{link}"), &[], |pool| {
            create(pool, &[("longname", "on")]);
            write_file(pool, "tank/a", "short", b"x");
            pool.sync().unwrap();
            let fs = pool.datasets().filesystem("tank/a").unwrap();
            let dir = ObjectId::new(fs.reader().root().unwrap().ino());
            let file = fs.reader().find(b"short").unwrap().unwrap().ino();
            let to = "n".repeat(1000);
            if link {
                fs.link(&credentials(), ObjectId::new(file), dir, to.as_bytes()).unwrap();
            } else {
                let (from, to, kind) = (b"short".as_slice(), to.as_bytes(), RenameMode::NoReplace);
                let request = RenameRequest {
                    from_dir: dir,
                    from_name: from,
                    to_dir: dir,
                    to_name: to,
                    mode: kind,
                };
                fs.rename(&credentials(), &request).unwrap();
            }
        });
        assert_uses(&folder, "longname", 1);
    }
}

#[test]
fn replay_of_intent_log_activates_longname() {
    let folder = TempDir::new("longname-replay", 1, 128 << 20);
    let after_crash = TempDir::new("longname-replayed", 0, 0);
    let mut new = new_pool(&folder, VdevLayout::Single, 1);
    new.properties = properties(&[("longname", "on")]);
    let held = pool::create(&new, &environment()).unwrap();
    let live = held.datasets().filesystem("tank").unwrap();
    write_file(&held, "tank", "first", b"x");
    live.fsync(None).unwrap();
    let before = held.txg();
    write_file(&held, "tank", &"n".repeat(300), b"x");
    live.fsync(None).unwrap();
    assert_eq!(held.txg(), before, "the name is in the intent log only");
    std::fs::copy(folder.path().join("d0.img"), after_crash.path().join("d0.img")).unwrap();
    drop((live, held));
    let held = pool::import(&[after_crash.path().into()], "tank", true, &environment()).unwrap();
    held.datasets().filesystem("tank").unwrap();
    held.export().unwrap();
    drop(held);
    assert_uses(&after_crash, "longname", 1);
}

#[test]
fn large_dnode_activates_large_dnode() {
    counts_datasets("dnodesize", "large_dnode", |pool| {
        create(pool, &[]);
        write_file(pool, "tank/a", "small", b"x");
        pool.sync().unwrap();
        let active = |pool: &Pool| {
            let all = pool.properties().of_pool().unwrap();
            all.into_iter().find(|p| p.name == "feature@large_dnode").unwrap().value
        };
        pool.properties().set("tank/a", "dnodesize", "1k").unwrap();
        assert_eq!(active(pool), "enabled");
        write_file(pool, "tank/a", "large", b"x");
        pool.sync().unwrap();
        assert_eq!(active(pool), "active");
    });
}

#[test]
fn enabled_label_feature_is_named_in_labels() {
    let disabled = [("feature@embedded_data", "disabled"), ("feature@hole_birth", "disabled")];
    let folder = made("label-features", &disabled, |pool| write_file(pool, "tank", "a", b"x"));
    let named = |folder: &TempDir| {
        let device = Arc::new(device::File::open(&folder.path().join("d0.img")).unwrap());
        let devices: Vec<Arc<dyn device::Device>> = vec![device];
        let candidates = spa::scan_devices(&devices).0;
        candidates[0].config().unwrap().pool.features_for_read.clone()
    };
    assert_eq!(named(&folder), ["com.klarasystems:vdev_zaps_v2"]);
    changed(&folder, |pool| {
        pool.properties().set_pool("feature@embedded_data", "enabled").unwrap();
    });
    let mut now = named(&folder);
    now.sort();
    assert_eq!(now, ["com.delphix:embedded_data", "com.klarasystems:vdev_zaps_v2"]);
    assert_uses(&folder, "embedded_data", 1);
}

/// One dataset for each of these, which writes blocks in this way.
const BLOCKS: [(&str, &str, &str); 7] = [
    ("large_blocks", "recordsize", "1M"),
    ("sha512", "checksum", "sha512"),
    ("skein", "checksum", "skein"),
    ("edonr", "checksum", "edonr"),
    ("blake3", "checksum", "blake3"),
    ("zstd_compress", "compression", "zstd"),
    ("userobj_accounting", "atime", "off"),
];

#[test]
fn blocks_activate_the_feature_of_their_form() {
    let noise: Vec<u8> =
        (0..300_000_u32).flat_map(|n| (n.wrapping_mul(0x9e37_79b9) >> 9).to_le_bytes()).collect();
    let folder = made("block-features", &[], |pool| {
        for (feature, property, value) in BLOCKS {
            let name = format!("tank/{feature}");
            let properties = properties(&[(property, value)]);
            pool.datasets()
                .create_filesystem(&NewDataset { name: name.clone(), properties })
                .unwrap();
            write_file(pool, &name, "file", &noise);
        }
    });
    for (feature, ..) in BLOCKS {
        // every file system counts objects by owner
        let wanted = if feature == "userobj_accounting" { BLOCKS.len() as u64 + 1 } else { 1 };
        assert_eq!(uses(folder.path()).get(feature), Some(&wanted), "{feature}");
    }
    assert_uses(&folder, "project_quota", BLOCKS.len() as u64 + 1);
    let names: Vec<String> = BLOCKS.iter().map(|(feature, ..)| format!("tank/{feature}")).collect();
    destroy_all(&folder, &names.iter().map(String::as_str).collect::<Vec<_>>());
    for (feature, ..) in BLOCKS {
        let wanted = u64::from(feature == "userobj_accounting");
        assert_uses(&folder, feature, wanted);
    }
}

#[test]
fn datasets_activate_features_of_the_pool() {
    let folder = made("pool-features", &[], |held| {
        create(held, &[("filesystem_limit", "5")]);
        write_file(held, "tank/a", "file", &vec![7; 300_000]);
        held.snapshots().create(&["tank/a@s".to_owned()]).unwrap();
        held.snapshots().create(&["tank/a@t".to_owned()]).unwrap();
        held.snapshots().create_bookmark("tank/a@s", "tank/a#s").unwrap();
        held.snapshots().create_bookmark("tank/a@t", "tank/a#t").unwrap();
        let clone = NewDataset { name: "tank/c".to_owned(), properties: Vec::new() };
        held.snapshots().clone_snapshot("tank/a@s", &clone).unwrap();
    });
    let now = uses(folder.path());
    for (feature, wanted) in [
        ("filesystem_limits", 1),
        // a file system with bookmarks, and each of its bookmarks
        ("bookmarks", 1),
        ("bookmark_v2", 2),
        ("bookmark_written", 2),
        ("livelist", 1),
        ("log_spacemap", 1),
        ("async_destroy", 0),
        ("encryption", 0),
        ("redacted_datasets", 0),
    ] {
        assert_eq!(now.get(feature), Some(&wanted), "{feature}");
    }
    assert!(now["empty_bpobj"] > 0 && now["extensible_dataset"] > 0);
    destroy_all(&folder, &["tank/c", "tank/a#s", "tank/a#t", "tank/a@s", "tank/a@t", "tank/a"]);
    let now = uses(folder.path());
    for (feature, wanted) in [
        // the count stays for good, as in OpenZFS
        ("filesystem_limits", 1),
        ("bookmarks", 0),
        ("bookmark_v2", 0),
        ("bookmark_written", 0),
        ("livelist", 0),
        ("async_destroy", 0),
    ] {
        assert_eq!(now.get(feature), Some(&wanted), "{feature}");
    }
    assert_uses(&folder, "livelist", 0);
}

#[test]
fn encryption_counts_datasets() {
    let folder = made("encryption-feature", &[], |pool| {
        let secret = properties(&[("encryption", "on"), ("keyformat", "passphrase")]);
        let new = NewDataset { name: "tank/a".to_owned(), properties: secret };
        pool.datasets().create_filesystem_with(&new, Some(b"correct horse")).unwrap();
        pool.snapshots().create(&["tank/a@s".to_owned()]).unwrap();
    });
    assert_uses(&folder, "encryption", 2);
    destroy_all(&folder, &["tank/a@s", "tank/a"]);
    assert_uses(&folder, "encryption", 0);
}

#[test]
fn vdevs_activate_features_of_the_pool() {
    let folder = TempDir::new("vdev-features", 4, 128 << 20);
    let mut new = new_pool(
        &folder,
        VdevLayout::Draid(pool::DraidLayout { parity: 1, data: 1, spares: 0 }),
        3,
    );
    let drives = vec![folder.drives(4)[3].clone()];
    let purpose = pool::VdevRole::Special;
    new.vdevs.push(pool::NewVdev { layout: VdevLayout::Single, drives, role: purpose });
    new.force = true;
    pool::create(&new, &environment()).unwrap().export().unwrap();
    for feature in ["draid", "allocation_classes", "vdev_zaps_v2"] {
        assert_eq!(uses(folder.path()).get(feature), Some(&1), "{feature}");
    }
    assert_uses(&folder, "device_removal", 0);
}
