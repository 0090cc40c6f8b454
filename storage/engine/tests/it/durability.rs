//! Durability after power cuts, by the properties sync and logbias.

use std::sync::Arc;

use engine::pool::{NewDataset, NewPool, NewVdev, Pool, VdevLayout, VdevRole};
use posix::{WriteOffset, XattrMode};
use units::{ObjectId, VdevId};

use crate::shared_blocks::noise_bytes;
use crate::test_pool::{
    TempDir, check_pool, copy_after_cut, credentials, environment, new_pool, read_file, write_file,
    zdb_errors,
};

/// Imports the pool after a power cut now, and returns the names of its files.
fn names_after(folder: &TempDir, name: &str, drives: usize, fs: &str) -> (TempDir, Vec<String>) {
    let after = copy_after_cut(folder, name, drives);
    let held = engine::pool::import(&[after.path().into()], "tank", false, &environment()).unwrap();
    let live = held.datasets().filesystem(fs).unwrap();
    let root = live.reader().file(live.reader().root_object()).unwrap();
    let mut names = Vec::new();
    let mut note = |name: engine::files::DirEntry| {
        names.push(String::from_utf8(name.name).unwrap());
        true
    };
    live.reader().read_dir(&root, &mut note).unwrap();
    names.sort();
    drop((live, root));
    held.export().unwrap();
    drop(held);
    assert_eq!(check_pool(&after, "tank"), Vec::<String>::new());
    (after, names)
}

fn file_object(pool: &Pool, name: &str) -> ObjectId {
    let fs = pool.datasets().filesystem("tank").unwrap();
    ObjectId::new(fs.reader().find(name.as_bytes()).unwrap().unwrap().ino())
}

#[test]
fn sync_always_makes_every_change_durable() {
    let folder = TempDir::new("always", 1, 128 << 20);
    let held =
        engine::pool::create(&new_pool(&folder, VdevLayout::Single, 1), &environment()).unwrap();
    held.properties().set("tank", "sync", "always").unwrap();
    write_file(&held, "tank", "one", b"first");
    let before = held.txg();
    write_file(&held, "tank", "two", b"second");
    let fs = held.datasets().filesystem("tank").unwrap();
    let root = ObjectId::new(fs.reader().root_object());
    fs.write(&credentials(), file_object(&held, "two"), WriteOffset::End, b", and more").unwrap();
    let request = posix::RenameRequest {
        from_dir: root,
        from_name: b"one",
        to_dir: root,
        to_name: b"renamed",
        mode: posix::RenameMode::Replace,
    };
    fs.rename(&credentials(), &request).unwrap();
    fs.link(&credentials(), file_object(&held, "two"), root, b"three").unwrap();
    fs.unlink(&credentials(), root, b"two").unwrap();
    assert_eq!(held.txg(), before, "only the log has it");
    let (after, names) = names_after(&folder, "always-cut", 1, "tank");
    assert_eq!(names, ["renamed", "three"]);
    let held = engine::pool::import(&[after.path().into()], "tank", false, &environment()).unwrap();
    assert_eq!(read_file(&held, "tank", "three"), b"second, and more");
}

/// The log has pointers to the data, and real OpenZFS accounts for the blocks.
#[test]
fn long_commit_survives_power_cut() {
    const DRIVES: usize = 3;
    let folder = TempDir::new("long", DRIVES, 128 << 20);
    let new = new_pool(&folder, VdevLayout::Raidz(1), DRIVES);
    let held = engine::pool::create(&new, &environment()).unwrap();
    write_file(&held, "tank", "first", b"the chain of log blocks begins");
    held.datasets().filesystem("tank").unwrap().fsync(None).unwrap();
    held.sync().unwrap();
    let bytes = noise_bytes(9, (3 << 20) + 7700);
    write_file(&held, "tank", "long", &bytes);
    let before = held.txg();
    let file = file_object(&held, "long");
    held.datasets().filesystem("tank").unwrap().fsync(Some(file.get())).unwrap();
    assert_eq!(held.txg(), before, "only the log has it");
    // in the same txg, and without a commit
    let fs = held.datasets().filesystem("tank").unwrap();
    fs.write(&credentials(), file, WriteOffset::At(1 << 20), &noise_bytes(8, 1 << 20)).unwrap();
    let after = copy_after_cut(&folder, "long-cut", DRIVES);
    assert_eq!(zdb_errors(&after, "tank"), None, "before the log is replayed");
    let again =
        engine::pool::import(&[after.path().into()], "tank", false, &environment()).unwrap();
    assert!(read_file(&again, "tank", "long") == bytes);
    drop(fs);
    for (folder, pool) in [(&after, again), (&folder, held)] {
        pool.export().unwrap();
        drop(pool);
        assert_eq!(check_pool(folder, "tank"), Vec::<String>::new());
    }
}

#[test]
fn sync_disabled_never_waits() {
    let folder = TempDir::new("disabled", 1, 128 << 20);
    let held =
        engine::pool::create(&new_pool(&folder, VdevLayout::Single, 1), &environment()).unwrap();
    held.properties().set("tank", "sync", "disabled").unwrap();
    write_file(&held, "tank", "synced", b"first");
    held.sync().unwrap();
    let before = held.txg();
    write_file(&held, "tank", "fsynced", b"second");
    held.datasets().filesystem("tank").unwrap().fsync(None).unwrap();
    assert_eq!(held.txg(), before);
    let (_, names) = names_after(&folder, "disabled-cut", 1, "tank");
    assert_eq!(names, ["synced"], "nothing was committed");
    held.properties().set("tank", "sync", "standard").unwrap();
    write_file(&held, "tank", "later", b"third");
    held.datasets().filesystem("tank").unwrap().fsync(None).unwrap();
    let (_, names) = names_after(&folder, "standard-cut", 1, "tank");
    assert_eq!(names, ["fsynced", "later", "synced"]);
}

#[test]
fn volumes_follow_the_property_sync() {
    let folder = TempDir::new("volume-sync", 1, 128 << 20);
    let held =
        engine::pool::create(&new_pool(&folder, VdevLayout::Single, 1), &environment()).unwrap();
    for sync in ["always", "disabled"] {
        let name = format!("tank/{sync}");
        let properties = vec![("sync".to_owned(), sync.to_owned())];
        held.volumes().create(&NewDataset { name, properties }, 8 << 20, 4096, true).unwrap();
    }
    for name in ["tank/always", "tank/disabled"] {
        let volume = held.volumes().get(name).unwrap();
        // the first commit of a log waits for a txg
        volume.write(0, &[1; 4096]).unwrap();
        held.sync().unwrap();
        volume.write(4096, &[2; 4096]).unwrap();
    }
    held.volumes().get("tank/disabled").unwrap().flush().unwrap();
    let after = copy_after_cut(&folder, "volume-sync-cut", 1);
    drop(held);
    let held = engine::pool::import(&[after.path().into()], "tank", false, &environment()).unwrap();
    let mut bytes = [0; 4096];
    for (name, second) in [("tank/always", 2), ("tank/disabled", 0)] {
        let volume = held.volumes().get(name).unwrap();
        volume.read(4096, &mut bytes).unwrap();
        assert_eq!(bytes, [second; 4096], "{name}");
    }
}

/// The vdev of the next block of a dataset's intent log on the drives.
fn log_vdev(folder: &TempDir, dataset: &str) -> VdevId {
    let devices: Vec<Arc<dyn device::Device>> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| Arc::new(device::File::open(&entry.unwrap().path()).unwrap()) as _)
        .collect();
    let pool = spa::scan_devices(&devices).0[0].open(&spa::PoolOpenOptions::default()).unwrap();
    let facts = dsl::PoolInfo { name: "tank".to_owned(), usable_space: 1 << 40 };
    let tree = dsl::DatasetTree::open(pool.mos().clone(), facts).unwrap();
    let objset = tree.find(dataset).unwrap().open_objset().unwrap();
    let ondisk::Blkptr::Regular(block) = &objset.header().log.chain else { panic!("no log") };
    block.dvas[0].unwrap().vdev
}

#[test]
fn logbias_selects_the_log_devices() {
    let folder = TempDir::new("logs", 3, 128 << 20);
    let drives = folder.drives(3);
    let vdev = |range: std::ops::Range<usize>, purpose| NewVdev {
        layout: VdevLayout::Single,
        drives: drives[range].to_vec(),
        role: purpose,
    };
    let vdevs =
        vec![vdev(0..1, VdevRole::Data), vdev(1..2, VdevRole::Data), vdev(2..3, VdevRole::Log)];
    let new = NewPool { vdevs, ..new_pool(&folder, VdevLayout::Single, 0) };
    let held = engine::pool::create(&new, &environment()).unwrap();
    let properties = vec![("logbias".to_owned(), "throughput".to_owned())];
    let spared = NewDataset { name: "tank/spared".to_owned(), properties };
    held.datasets().create_filesystem(&spared).unwrap();
    for fs in ["tank", "tank/spared"] {
        for name in ["first", "second"] {
            write_file(&held, fs, name, &vec![5; 50_000]);
            held.datasets().filesystem(fs).unwrap().fsync(None).unwrap();
        }
    }
    let after = copy_after_cut(&folder, "logs-cut", 3);
    assert_eq!(log_vdev(&after, "tank"), VdevId::new(2));
    assert_ne!(log_vdev(&after, "tank/spared"), VdevId::new(2));
    for fs in ["tank", "tank/spared"] {
        let (_, names) = names_after(&folder, "logs-cut-again", 3, fs);
        assert_eq!(names, ["first", "second"]);
    }
    // without the log device its records are lost; synced data is there
    held.export().unwrap();
    drop(held);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}

/// A large attribute becomes a file of its own: records of the file and records of names are
/// committed separately, and neither must be replayed without the other.
#[test]
fn attributes_that_move_outlast_a_power_cut() {
    let folder = TempDir::new("moving-xattrs", 1, 128 << 20);
    let held =
        engine::pool::create(&new_pool(&folder, VdevLayout::Single, 1), &environment()).unwrap();
    held.properties().set("tank", "xattr", "sa").unwrap();
    let fs = held.datasets().filesystem("tank").unwrap();
    let make = |name: &str| {
        write_file(&held, "tank", name, b"x");
        file_object(&held, name)
    };
    let set = |file: ObjectId, name: &str, value: Option<&[u8]>| {
        fs.set_xattr(&credentials(), file, name.as_bytes(), value, XattrMode::Any).unwrap();
    };
    let (small, large) = (vec![1; 100], vec![2; 20_000]);
    let files = ["moved", "moved at once", "back", "gone"].map(make);
    // three large ones fit with the others
    for file in files {
        for name in ["user.a", "user.b", "user.c"] {
            set(file, name, Some(&large));
        }
    }
    let [moved, at_once, back, gone] = files;
    set(moved, "user.k", Some(&small));
    fs.fsync(None).unwrap();
    held.sync().unwrap();
    set(moved, "user.k", Some(&large));
    set(at_once, "user.k", Some(&small));
    set(at_once, "user.k", Some(&large));
    set(back, "user.k", Some(&large));
    set(back, "user.k", Some(&small));
    set(gone, "user.k", Some(&large));
    set(gone, "user.k", None);
    fs.fsync(None).unwrap();
    let after = copy_after_cut(&folder, "moving-xattrs-cut", 1);
    drop((fs, held));
    let again = engine::pool::import(&after.drives(1), "tank", false, &environment()).unwrap();
    let wanted = [
        ("moved", Some(&large)),
        ("moved at once", Some(&large)),
        ("back", Some(&small)),
        ("gone", None),
    ];
    for (name, value) in wanted {
        let found = again
            .datasets()
            .filesystem("tank")
            .unwrap()
            .reader()
            .find(name.as_bytes())
            .unwrap()
            .unwrap();
        assert!(found.xattr(b"user.k").unwrap().as_ref() == value, "{name}");
        assert!(found.xattr(b"user.c").unwrap().as_ref() == Some(&large), "{name}");
    }
    again.export().unwrap();
    drop(again);
    assert_eq!(check_pool(&after, "tank"), Vec::<String>::new());
}

/// A commit of one file includes its attributes, although they are files of their own.
#[test]
fn an_fsync_keeps_attributes_that_are_files() {
    let folder = TempDir::new("kept-xattrs", 1, 128 << 20);
    let held =
        engine::pool::create(&new_pool(&folder, VdevLayout::Single, 1), &environment()).unwrap();
    held.properties().set("tank", "xattr", "dir").unwrap();
    let fs = held.datasets().filesystem("tank").unwrap();
    write_file(&held, "tank", "letter", b"x");
    let letter = file_object(&held, "letter");
    let set = |name: &str, value: Option<&[u8]>| {
        fs.set_xattr(&credentials(), letter, name.as_bytes(), value, XattrMode::Any).unwrap();
    };
    let (short, long) = (vec![1; 10], vec![2; 60_000]);
    for name in ["user.longer", "user.gone"] {
        set(name, Some(&short));
    }
    set("user.shorter", Some(&long));
    fs.fsync(None).unwrap();
    held.sync().unwrap();
    set("user.new", Some(&long));
    set("user.longer", Some(&long));
    set("user.shorter", Some(&short));
    set("user.gone", Some(&long));
    set("user.gone", None);
    fs.fsync(Some(letter.get())).unwrap();
    let after = copy_after_cut(&folder, "kept-xattrs-cut", 1);
    drop((fs, held));
    let again = engine::pool::import(&after.drives(1), "tank", false, &environment()).unwrap();
    let found =
        again.datasets().filesystem("tank").unwrap().reader().find(b"letter").unwrap().unwrap();
    let wanted = [("new", Some(&long)), ("longer", Some(&long)), ("shorter", Some(&short))];
    for (name, value) in wanted.into_iter().chain([("gone", None)]) {
        let kept = found.xattr(format!("user.{name}").as_bytes()).unwrap();
        assert!(kept.as_ref() == value, "{name}: {:?}", kept.map(|kept| kept.len()));
    }
    drop(found);
    again.export().unwrap();
    drop(again);
    assert_eq!(check_pool(&after, "tank"), Vec::<String>::new());
}
