//! What a pool says of itself: its own properties, its features, its name.

use engine::held::{self, NewDataset, Set, Shape, TakeOver, Wishes, XattrMode};

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::held::{Folder, caller, faults, new_pool, read_file, world, write_file};
use crate::shared::zdb;

fn words(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn value(held: &held::Held, name: &str) -> (String, String) {
    let all = held.pool_properties().unwrap();
    let found = all.into_iter().find(|property| property.name == name).unwrap();
    (found.value, found.source)
}

#[test]
fn pools_have_properties_of_their_own() {
    let folder = Folder::new("own", 2, 128 << 20);
    let wishes = words(&[
        ("failmode", "continue"),
        ("comment", "the box in the cellar"),
        ("feature@draid", "disabled"),
    ]);
    let new = new_pool(&folder, Shape::Mirror, 2);
    let held = held::create_with(&new, Wishes::of(&wishes, false).unwrap(), &world()).unwrap();
    held.set_pool_property("bootfs", "tank").unwrap();
    held.set_pool_property("listsnaps", "on").unwrap();
    assert!(held.set_pool_property("bootfs", "tank/none").is_err());
    let local = |value: &str| (value.to_owned(), "local".to_owned());
    let check = |held: &held::Held, name: &str| {
        assert_eq!(value(held, "failmode"), local("continue"));
        assert_eq!(value(held, "comment"), local("the box in the cellar"));
        assert_eq!(value(held, "bootfs"), local(name));
        assert_eq!(value(held, "listsnapshots"), local("on"));
        assert_eq!(value(held, "autotrim"), ("off".to_owned(), "default".to_owned()));
        assert_eq!(value(held, "feature@draid").0, "disabled");
        assert_eq!(value(held, "feature@lz4_compress").0, "active");
    };
    check(&held, "tank");
    held.export().unwrap();
    drop(held);
    assert_eq!(faults(&folder, "tank"), Vec::<String>::new());

    let how = TakeOver { new_name: Some("vault".to_owned()), ..TakeOver::default() };
    let held = held::hold_as(&[folder.path().into()], "tank", &how, &world()).unwrap();
    check(&held, "vault");
    held.set_pool_property("feature@draid", "enabled").unwrap();
    held.export().unwrap();
    drop(held);
    assert_eq!(faults(&folder, "vault"), Vec::<String>::new(), "its labels have the new name");
}

#[test]
fn a_pool_with_no_features_but_two_is_written() {
    let folder = Folder::new("bare", 3, 128 << 20);
    let wishes =
        words(&[("feature@lz4_compress", "enabled"), ("feature@async_destroy", "enabled")]);
    let mut new = new_pool(&folder, Shape::Raidz(1), 3);
    new.properties = words(&[("compression", "lz4")]);
    let held = held::create_with(&new, Wishes::of(&wishes, true).unwrap(), &world()).unwrap();
    write_file(&held, "tank", "letter", &b"to be or not to be ".repeat(50_000));
    held.snapshot(&["tank@one".to_owned()]).unwrap();
    write_file(&held, "tank", "other", b"that is the question");
    assert_eq!(value(&held, "feature@extensible_dataset").0, "disabled");
    held.export().unwrap();
    drop(held);
    assert_eq!(faults(&folder, "tank"), Vec::<String>::new());
}

#[test]
fn drives_are_free_after_a_pool_could_not_be_made() {
    let folder = Folder::new("not-made", 1, 128 << 20);
    let fewer = || Wishes::of(&words(&[("compatibility", "zol-0.7")]), false).unwrap();
    let plain = held::NewPool { properties: Vec::new(), ..new_pool(&folder, Shape::Single, 1) };
    let plain = held::NewPool { force: false, ..plain };
    let zstd = held::NewPool { properties: words(&[("compression", "zstd")]), ..plain.clone() };
    let why = held::create_with(&zstd, fewer(), &world()).unwrap_err().to_string();
    assert!(why.contains("zstd_compress"), "{why}");
    let held = held::create_with(&plain, fewer(), &world()).unwrap();
    held.export().unwrap();
}

#[test]
fn attributes_are_in_logs_where_the_pool_says_so() {
    for (number, feature) in ["enabled", "disabled"].into_iter().enumerate() {
        let folder = Folder::new(&format!("attributes-{number}"), 1, 128 << 20);
        let wishes = words(&[("feature@zilsaxattr", feature)]);
        let (new, wishes) = (new_pool(&folder, Shape::Single, 1), Wishes::of(&wishes, false));
        let held = held::create_with(&new, wishes.unwrap(), &world()).unwrap();
        write_file(&held, "tank", "letter", b"dear");
        let live = held.files("tank").unwrap();
        let letter = live.files().find(b"letter").unwrap().unwrap().id();
        // the log comes to be with the first, and its group
        live.fsync(Some(letter)).unwrap();
        let before = held.txg();
        let file = units::ObjectId::new(letter);
        live.set_xattr(&caller(), file, b"user.a", Some(b"b"), XattrMode::Any).unwrap();
        live.fsync(Some(letter)).unwrap();
        let state = value(&held, "feature@zilsaxattr").0;
        let logged = held.txg() == before;
        let wanted = if feature == "enabled" { ("active", true) } else { ("disabled", false) };
        assert_eq!((&*state, logged), wanted);
        held.export().unwrap();
        drop((live, held));
        assert_eq!(faults(&folder, "tank"), Vec::<String>::new());
        // with the log its records are gone, and who knows nothing of them may have the pool
        let held = held::hold(&[folder.path().into()], "tank", false, &world()).unwrap();
        held.files("tank").unwrap();
        held.sync().unwrap();
        assert_eq!(value(&held, "feature@zilsaxattr").0, feature);
        held.export().unwrap();
    }
}

#[test]
fn who_is_to_compress_with_zstd_says_so_before_the_first_block() {
    let folder = Folder::new("says-zstd", 1, 128 << 20);
    let new = held::NewPool { properties: Vec::new(), ..new_pool(&folder, Shape::Single, 1) };
    let held = held::create(&new, &world()).unwrap();
    let state = || value(&held, "feature@zstd_compress").0;
    held.set("tank", "compression", "lz4").unwrap();
    assert_eq!(state(), "enabled");
    for _ in 0..2 {
        held.set("tank", "compression", "zstd-3").unwrap();
        assert_eq!(state(), "active");
    }
    held.export().unwrap();
    drop(held);
    assert_eq!(faults(&folder, "tank"), Vec::<String>::new());
    assert!(!zdb(folder.path(), &["-d"]).contains("mismatch"));
}

#[test]
fn files_have_projects_where_the_pool_says_so() {
    for feature in ["enabled", "disabled"] {
        let folder = Folder::new(&format!("projects-{feature}"), 1, 128 << 20);
        let wishes = Wishes::of(&words(&[("feature@project_quota", feature)]), false).unwrap();
        let new = new_pool(&folder, Shape::Single, 1);
        let held = held::create_with(&new, wishes, &world()).unwrap();
        write_file(&held, "tank", "letter", b"dear");
        let live = held.files("tank").unwrap();
        let letter = live.files().find(b"letter").unwrap().unwrap().id();
        let project = Set { project: Some(7), ..Set::default() };
        let done = live.set(&caller(), units::ObjectId::new(letter), &project);
        assert_eq!(done.is_ok(), feature == "enabled", "{done:?}");
        for (property, allowed) in
            [("userquota@1", true), ("projectquota@7", feature == "enabled"), ("userused@1", false)]
        {
            assert_eq!(held.set("tank", property, "1M").is_ok(), allowed, "{property}");
            let name = format!("tank/{}", property.replace('@', "-"));
            let properties = words(&[(property, "1M")]);
            let made = held.create_filesystem(&NewDataset { name: name.clone(), properties });
            assert_eq!(made.is_ok(), allowed, "{property}");
        }
        held.export().unwrap();
        drop((live, held));
        assert_eq!(faults(&folder, "tank"), Vec::<String>::new());
    }
}

#[test]
fn maps_without_histograms_are_not_logged() {
    // zdb takes each log for a map that has one
    let folder = Folder::new("plain-maps", 2, 128 << 20);
    let wishes = Wishes::of(&words(&[("feature@spacemap_histogram", "disabled")]), false).unwrap();
    let new = new_pool(&folder, Shape::Mirror, 2);
    let held = held::create_with(&new, wishes, &world()).unwrap();
    for name in ["a", "b", "c"] {
        write_file(&held, "tank", name, &vec![5; 300_000]);
        held.sync().unwrap();
    }
    assert_eq!(value(&held, "feature@log_spacemap").0, "enabled");
    held.export().unwrap();
    drop(held);
    assert_eq!(faults(&folder, "tank"), Vec::<String>::new());
}

#[test]
fn a_destroyed_pool_comes_back_if_that_is_asked_for() {
    let folder = Folder::new("destroyed", 1, 128 << 20);
    let held = held::create(&new_pool(&folder, Shape::Single, 1), &world()).unwrap();
    write_file(&held, "tank", "letter", b"not meant to go");
    held.destroy_pool().unwrap();
    drop(held);
    let here = [folder.path().into()];
    assert!(held::hold(&here, "tank", true, &world()).is_err(), "nobody asked for it");
    let how = TakeOver { destroyed: true, ..TakeOver::default() };
    let held = held::hold_as(&here, "tank", &how, &world()).unwrap();
    assert_eq!(read_file(&held, "tank", "letter"), b"not meant to go");
    held.export().unwrap();
}

const SIGN: Duration = Duration::from_millis(100);

/// The labels of a drive, as a host sees them that has it in common with another.
fn share(from: &File, to: &File) {
    let size = from.metadata().unwrap().len();
    let mut bytes = vec![0; 512 << 10];
    for at in [0, size - (512 << 10)] {
        from.read_exact_at(&mut bytes, at).unwrap();
        to.write_all_at(&bytes, at).unwrap();
    }
}

#[test]
fn nobody_takes_a_pool_from_a_host_that_lives() {
    let (here, there) = (Folder::new("lives", 1, 128 << 20), Folder::new("looks", 1, 128 << 20));
    let new = new_pool(&here, Shape::Single, 1);
    let held = held::create(&new, &world()).unwrap();
    held.set_pool_property("multihost", "on").unwrap();
    write_file(&held, "tank", "letter", b"mine");
    held.sync().unwrap();
    std::fs::copy(here.path().join("d0.img"), there.path().join("d0.img")).unwrap();
    let other = held::World { host: (0x9999, "there".to_owned()), ..world() };
    let take = || {
        let how = TakeOver { force: true, ..TakeOver::default() };
        held::hold_as(&[there.path().into()], "tank", &how, &other)
    };

    let stop = AtomicBool::new(false);
    let refused = std::thread::scope(|scope| {
        scope.spawn(|| held.give_signs(SIGN, &stop));
        scope.spawn(|| {
            let own = File::open(here.path().join("d0.img")).unwrap();
            let seen = File::options().write(true).open(there.path().join("d0.img")).unwrap();
            while !stop.load(Ordering::Acquire) {
                share(&own, &seen);
                std::thread::sleep(SIGN);
            }
        });
        let taken = take();
        stop.store(true, Ordering::Release);
        taken.map(drop)
    });
    assert!(refused.unwrap_err().to_string().contains("another host has it right now"));

    // it dies: after twice the time in which it would have given up, the pool is anybody's
    drop(held);
    let held = take().unwrap();
    assert_eq!(read_file(&held, "tank", "letter"), b"mine");
    held.export().unwrap();
    drop(held);
    assert_eq!(faults(&there, "tank"), Vec::<String>::new());
}
