//! The pool's own properties, its features, its name.

use engine::pool::{self, CreateOptions, ImportOptions, NewDataset, VdevLayout};
use posix::{SetAttributes, XattrMode};

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::shared_blocks::run_zdb;
use crate::test_pool::{
    TempDir, check_pool, credentials, environment, new_pool, read_file, write_file,
};

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn property(held: &pool::Pool, name: &str) -> (String, String) {
    let all = held.properties().of_pool().unwrap();
    let found = all.into_iter().find(|property| property.name == name).unwrap();
    (found.value, found.source)
}

#[test]
fn pools_have_properties_of_their_own() {
    let folder = TempDir::new("own", 2, 128 << 20);
    let wishes = pairs(&[
        ("failmode", "continue"),
        ("comment", "the box in the cellar"),
        ("feature@draid", "disabled"),
    ]);
    let new = new_pool(&folder, VdevLayout::Mirror, 2);
    let held = pool::create_with_options(
        &new,
        CreateOptions::parse(&wishes, false).unwrap(),
        &environment(),
    )
    .unwrap();
    held.properties().set_pool("bootfs", "tank").unwrap();
    held.properties().set_pool("listsnaps", "on").unwrap();
    assert!(held.properties().set_pool("bootfs", "tank/none").is_err());
    let local = |value: &str| (value.to_owned(), "local".to_owned());
    let check = |held: &pool::Pool, name: &str| {
        assert_eq!(property(held, "failmode"), local("continue"));
        assert_eq!(property(held, "comment"), local("the box in the cellar"));
        assert_eq!(property(held, "bootfs"), local(name));
        assert_eq!(property(held, "listsnapshots"), local("on"));
        assert_eq!(property(held, "autotrim"), ("off".to_owned(), "default".to_owned()));
        assert_eq!(property(held, "feature@draid").0, "disabled");
        assert_eq!(property(held, "feature@lz4_compress").0, "active");
    };
    check(&held, "tank");
    held.export().unwrap();
    drop(held);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());

    let options = ImportOptions { new_name: Some("vault".to_owned()), ..ImportOptions::default() };
    let held =
        pool::import_with(&[folder.path().into()], "tank", &options, &environment()).unwrap();
    check(&held, "vault");
    held.properties().set_pool("feature@draid", "enabled").unwrap();
    held.export().unwrap();
    drop(held);
    assert_eq!(check_pool(&folder, "vault"), Vec::<String>::new(), "its labels have the new name");
}

#[test]
fn pool_with_two_features_is_written() {
    let folder = TempDir::new("bare", 3, 128 << 20);
    let wishes =
        pairs(&[("feature@lz4_compress", "enabled"), ("feature@async_destroy", "enabled")]);
    let mut new = new_pool(&folder, VdevLayout::Raidz(1), 3);
    new.properties = pairs(&[("compression", "lz4")]);
    let held = pool::create_with_options(
        &new,
        CreateOptions::parse(&wishes, true).unwrap(),
        &environment(),
    )
    .unwrap();
    write_file(&held, "tank", "letter", &b"to be or not to be ".repeat(50_000));
    held.snapshots().create(&["tank@one".to_owned()]).unwrap();
    write_file(&held, "tank", "other", b"that is the question");
    assert_eq!(property(&held, "feature@extensible_dataset").0, "disabled");
    held.export().unwrap();
    drop(held);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}

#[test]
fn drives_are_free_after_a_failed_create() {
    let folder = TempDir::new("not-made", 1, 128 << 20);
    let fewer = || CreateOptions::parse(&pairs(&[("compatibility", "zol-0.7")]), false).unwrap();
    let plain =
        pool::NewPool { properties: Vec::new(), ..new_pool(&folder, VdevLayout::Single, 1) };
    let plain = pool::NewPool { force: false, ..plain };
    let zstd = pool::NewPool { properties: pairs(&[("compression", "zstd")]), ..plain.clone() };
    let why = pool::create_with_options(&zstd, fewer(), &environment()).unwrap_err().to_string();
    assert!(why.contains("zstd_compress"), "{why}");
    let held = pool::create_with_options(&plain, fewer(), &environment()).unwrap();
    held.export().unwrap();
}

#[test]
fn zilsaxattr_logs_attributes() {
    for (number, feature) in ["enabled", "disabled"].into_iter().enumerate() {
        let folder = TempDir::new(&format!("attributes-{number}"), 1, 128 << 20);
        let wishes = pairs(&[("feature@zilsaxattr", feature)]);
        let (new, wishes) =
            (new_pool(&folder, VdevLayout::Single, 1), CreateOptions::parse(&wishes, false));
        let held = pool::create_with_options(&new, wishes.unwrap(), &environment()).unwrap();
        write_file(&held, "tank", "letter", b"dear");
        let fs = held.datasets().filesystem("tank").unwrap();
        let letter = fs.reader().find(b"letter").unwrap().unwrap().ino();
        // the first commit creates the log, with its txg
        fs.fsync(Some(letter)).unwrap();
        let before = held.txg();
        let file = units::ObjectId::new(letter);
        fs.set_xattr(&credentials(), file, b"user.a", Some(b"b"), XattrMode::Any).unwrap();
        fs.fsync(Some(letter)).unwrap();
        let state = property(&held, "feature@zilsaxattr").0;
        let logged = held.txg() == before;
        let wanted = if feature == "enabled" { ("active", true) } else { ("disabled", false) };
        assert_eq!((&*state, logged), wanted);
        held.export().unwrap();
        drop((fs, held));
        assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
        // with the log its records are gone, and older systems may import the pool
        let held = pool::import(&[folder.path().into()], "tank", false, &environment()).unwrap();
        held.datasets().filesystem("tank").unwrap();
        held.sync().unwrap();
        assert_eq!(property(&held, "feature@zilsaxattr").0, feature);
        held.export().unwrap();
    }
}

#[test]
fn zstd_activates_its_feature_before_the_first_block() {
    let folder = TempDir::new("says-zstd", 1, 128 << 20);
    let new = pool::NewPool { properties: Vec::new(), ..new_pool(&folder, VdevLayout::Single, 1) };
    let held = pool::create(&new, &environment()).unwrap();
    let state = || property(&held, "feature@zstd_compress").0;
    held.properties().set("tank", "compression", "lz4").unwrap();
    assert_eq!(state(), "enabled");
    for _ in 0..2 {
        held.properties().set("tank", "compression", "zstd-3").unwrap();
        assert_eq!(state(), "active");
    }
    held.export().unwrap();
    drop(held);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
    assert!(!run_zdb(folder.path(), &["-d"]).contains("mismatch"));
}

#[test]
fn project_quota_feature_enables_projects() {
    for feature in ["enabled", "disabled"] {
        let folder = TempDir::new(&format!("projects-{feature}"), 1, 128 << 20);
        let wishes =
            CreateOptions::parse(&pairs(&[("feature@project_quota", feature)]), false).unwrap();
        let new = new_pool(&folder, VdevLayout::Single, 1);
        let held = pool::create_with_options(&new, wishes, &environment()).unwrap();
        write_file(&held, "tank", "letter", b"dear");
        let fs = held.datasets().filesystem("tank").unwrap();
        let letter = fs.reader().find(b"letter").unwrap().unwrap().ino();
        let project = SetAttributes { project_id: Some(7), ..SetAttributes::default() };
        let done = fs.set_attributes(&credentials(), units::ObjectId::new(letter), &project);
        assert_eq!(done.is_ok(), feature == "enabled", "{done:?}");
        for (property, allowed) in
            [("userquota@1", true), ("projectquota@7", feature == "enabled"), ("userused@1", false)]
        {
            assert_eq!(
                held.properties().set("tank", property, "1M").is_ok(),
                allowed,
                "{property}"
            );
            let name = format!("tank/{}", property.replace('@', "-"));
            let properties = pairs(&[(property, "1M")]);
            let made =
                held.datasets().create_filesystem(&NewDataset { name: name.clone(), properties });
            assert_eq!(made.is_ok(), allowed, "{property}");
        }
        held.export().unwrap();
        drop((fs, held));
        assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
    }
}

#[test]
fn maps_without_histograms_are_not_logged() {
    // zdb takes each log for a map that has one
    let folder = TempDir::new("plain-maps", 2, 128 << 20);
    let wishes =
        CreateOptions::parse(&pairs(&[("feature@spacemap_histogram", "disabled")]), false).unwrap();
    let new = new_pool(&folder, VdevLayout::Mirror, 2);
    let held = pool::create_with_options(&new, wishes, &environment()).unwrap();
    for name in ["a", "b", "c"] {
        write_file(&held, "tank", name, &vec![5; 300_000]);
        held.sync().unwrap();
    }
    assert_eq!(property(&held, "feature@log_spacemap").0, "enabled");
    held.export().unwrap();
    drop(held);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}

#[test]
fn destroyed_pool_is_imported_on_request() {
    let folder = TempDir::new("destroyed", 1, 128 << 20);
    let held = pool::create(&new_pool(&folder, VdevLayout::Single, 1), &environment()).unwrap();
    write_file(&held, "tank", "letter", b"not meant to go");
    held.destroy_pool().unwrap();
    drop(held);
    let here = [folder.path().into()];
    assert!(pool::import(&here, "tank", true, &environment()).is_err(), "it was not requested");
    let options = ImportOptions { destroyed: true, ..ImportOptions::default() };
    let held = pool::import_with(&here, "tank", &options, &environment()).unwrap();
    assert_eq!(read_file(&held, "tank", "letter"), b"not meant to go");
    held.export().unwrap();
}

const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(100);

/// The labels of a drive, as another host with the same drive sees them.
fn copy_labels(from: &File, to: &File) {
    let size = from.metadata().unwrap().len();
    let mut bytes = vec![0; 512 << 10];
    for at in [0, size - (512 << 10)] {
        from.read_exact_at(&mut bytes, at).unwrap();
        to.write_all_at(&bytes, at).unwrap();
    }
}

#[test]
fn pool_with_heartbeats_is_not_imported() {
    let (here, there) = (TempDir::new("lives", 1, 128 << 20), TempDir::new("looks", 1, 128 << 20));
    let new = new_pool(&here, VdevLayout::Single, 1);
    let held = pool::create(&new, &environment()).unwrap();
    held.properties().set_pool("multihost", "on").unwrap();
    write_file(&held, "tank", "letter", b"mine");
    held.sync().unwrap();
    std::fs::copy(here.path().join("d0.img"), there.path().join("d0.img")).unwrap();
    let other = pool::Environment { host: (0x9999, "there".to_owned()), ..environment() };
    let take = || {
        let how = ImportOptions { force: true, ..ImportOptions::default() };
        pool::import_with(&[there.path().into()], "tank", &how, &other)
    };

    let stop = AtomicBool::new(false);
    let refused = std::thread::scope(|scope| {
        scope.spawn(|| held.background().run_mmp_heartbeat(HEARTBEAT_INTERVAL, &stop));
        scope.spawn(|| {
            let own = File::open(here.path().join("d0.img")).unwrap();
            let seen = File::options().write(true).open(there.path().join("d0.img")).unwrap();
            while !stop.load(Ordering::Acquire) {
                copy_labels(&own, &seen);
                std::thread::sleep(HEARTBEAT_INTERVAL);
            }
        });
        let taken = take();
        stop.store(true, Ordering::Release);
        taken.map(drop)
    });
    assert!(refused.unwrap_err().to_string().contains("another host has it imported"));

    // the host dies: after twice its suspend time the pool can be imported
    drop(held);
    let held = take().unwrap();
    assert_eq!(read_file(&held, "tank", "letter"), b"mine");
    held.export().unwrap();
    drop(held);
    assert_eq!(check_pool(&there, "tank"), Vec::<String>::new());
}
