//! `zpool reguid` and `zpool upgrade`: the guid, the version and the features of pools.

use engine::pool::{self, CreateOptions, NewPool, Pool, VdevLayout};

use crate::shared_blocks::run_zdb;
use crate::test_pool::{TempDir, check_pool, environment, new_pool, read_file, write_file};

fn import(folder: &TempDir) -> Pool {
    pool::import(&[folder.path().into()], "tank", false, &environment()).unwrap()
}

#[test]
fn reguid_survives_export_and_import() {
    let folder = TempDir::new("reguid", 3, 128 << 20);
    let layout = VdevLayout::Raidz(1);
    let pool = pool::create(&new_pool(&folder, layout, 3), &environment()).unwrap();
    write_file(&pool, "tank", "file", b"content");
    let old = pool.guid();
    let new = pool.set_guid(None).unwrap();
    assert!(new != old && pool.guid() == new);
    assert_eq!(pool.set_guid(Some(4711)).unwrap(), 4711);
    pool.activities().create_checkpoint().unwrap();
    assert!(pool.set_guid(None).unwrap_err().to_string().contains("checkpoint exists"));
    pool.activities().discard_checkpoint().unwrap();
    while pool.activities().continue_discard().unwrap() {}
    pool.export().unwrap();
    drop(pool);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
    let config = run_zdb(folder.path(), &["-C"]);
    assert!(config.is_empty() || config.contains("pool_guid: 4711"), "{config}");
    let pool = import(&folder);
    assert_eq!(pool.guid(), 4711);
    assert_eq!(read_file(&pool, "tank", "file"), b"content");
    let drive = folder.drives(3)[0].to_str().unwrap().to_owned();
    pool.drives().offline(&drive, pool::OfflineOptions::default()).unwrap();
    assert!(pool.set_guid(None).is_err(), "the drive would keep the old guid");
}

#[test]
fn upgrade_enables_all_features() {
    let folder = TempDir::new("upgrade", 1, 128 << 20);
    let options = CreateOptions::parse(&[], true).unwrap();
    let new = new_pool(&folder, VdevLayout::Single, 1);
    let new = NewPool { properties: Vec::new(), ..new };
    let pool = pool::create_with_options(&new, options, &environment()).unwrap();
    let before = pool.properties().upgrade_status().unwrap();
    assert!(before.disabled.iter().any(|name| name == "zpool_checkpoint"), "{before:?}");
    let done = pool.properties().upgrade(None).unwrap();
    assert_eq!((done.enabled, done.new_version), (before.disabled, 5000));
    assert_eq!(pool.properties().upgrade_status().unwrap().disabled, Vec::<String>::new());
    assert_eq!(pool.properties().upgrade(None).unwrap().enabled, Vec::<String>::new());
    assert!(pool.properties().upgrade(Some(77)).is_err());
    // a newer pool stays as it is
    let done = pool.properties().upgrade(Some(28)).unwrap();
    assert_eq!((done.old_version, done.new_version, done.enabled.len()), (5000, 5000, 0));
    write_file(&pool, "tank", "file", b"content");
    pool.export().unwrap();
    drop(pool);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
    let pool = import(&folder);
    write_file(&pool, "tank", "file2", b"content");
    pool.activities().create_checkpoint().unwrap();
    pool.export().unwrap();
    drop(pool);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}
