//! The replay of intent logs, with power cuts at any time.

use std::path::PathBuf;
use std::sync::Arc;

use device::Device;
use ondisk::zil::{Attributes, Body, Create, CreateKind, Write};
use ondisk::znode::flag;
use posix::{
    ChangeContext, Credentials, NewInode, RenameMode, RenameRequest, SetAttributes, WriteOffset,
    XattrMode,
};
use sim::DiskArray;
use units::{BlockId, Level, ObjectId};
use zil::Itx;

use super::{
    Environment, MemoryBudget, NewPool, NewVdev, OpenFileSystem, Pool, VdevLayout, VdevRole,
    create_on_devices, import_devices,
};
use crate::files::{FileType, Time};

pub(super) fn environment(dirty: u64) -> Environment {
    let state = parking_lot::Mutex::new(9_u64);
    let random = move |bytes: &mut [u8]| {
        let mut state = state.lock();
        for byte in bytes {
            *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405);
            *byte = state.to_be_bytes()[0];
        }
    };
    Environment {
        random: Arc::new(random),
        now: Arc::new(|| (1_700_000_000, 0)),
        workers: 1,
        max_dirty: dirty,
        cache: MemoryBudget::default(),
        host: (0x1234, "here".to_owned()),
    }
}

const MAX_DIRTY: u64 = 64 << 20;

pub(super) fn import(devices: &[Arc<dyn Device>]) -> Pool {
    import_devices(devices, "tank", &environment(MAX_DIRTY)).expect("imported")
}

/// A pool whose log exists.
pub(super) fn create_pool(storm: &DiskArray) -> Pool {
    let drives = vec![PathBuf::from("/disk0")];
    let vdevs = vec![NewVdev { layout: VdevLayout::Single, drives, role: VdevRole::Data }];
    let (name, properties) = ("tank".to_owned(), Vec::new());
    let new = NewPool { name, vdevs, ashift: None, properties, force: false };
    let held = create_on_devices(&new, &storm.devices(), &environment(MAX_DIRTY)).expect("pool");
    held.properties().set("tank", "xattr", "sa").expect("set");
    // the first commit of a log waits for a txg
    create_file(&held, "first", &NewInode::default());
    held.datasets().filesystem("tank").expect("file system").fsync(None).expect("fsync");
    held.sync().expect("group");
    held
}

/// The drives as they are now, everything that was written to them being there.
pub(super) fn cut_power(storm: &DiskArray) -> DiskArray {
    DiskArray::from_memory(storm.journal().cut_power(storm.journal().len(), 1))
}

pub(super) fn credentials() -> ChangeContext {
    let now = Time { seconds: 1_700_000_001, nanoseconds: 5 };
    ChangeContext { credentials: Credentials::new(1000, 100), now }
}

pub(super) fn root_object(fs: &OpenFileSystem) -> ObjectId {
    ObjectId::new(fs.reader().root_object())
}

pub(super) fn create_file(pool: &Pool, name: &str, new: &NewInode<'_>) -> ObjectId {
    let fs = pool.datasets().filesystem("tank").expect("file system");
    let made = fs.create(&credentials(), root_object(&fs), name.as_bytes(), new).expect("made");
    ObjectId::new(made.ino())
}

pub(super) fn exists(pool: &Pool, name: &str) -> bool {
    let fs = pool.datasets().filesystem("tank").expect("file system");
    fs.reader().find(name.as_bytes()).expect("a look").is_some()
}

/// Adds records to the log that only other systems write.
pub(super) fn log_record(pool: &Pool, item: Itx) {
    let fs = pool.datasets().filesystem("tank").expect("file system");
    let tx = pool.0.spa.begin_tx().expect("group");
    fs.log.add_itx(&tx, item);
}

const BLOCK_SIZE: usize = 512;
const BLOCK_COUNT: usize = 6;
/// A bit more than the blocks that one step frees.
const SPARSE_STRIDE: u64 = 20 << 20;

/// Logs changes that take several transactions in the replay: attributes of a new layout,
/// truncations in steps, blocks one by one, a file and then its flags.
fn pool_with_log(storm: &DiskArray) -> Pool {
    let pool = create_pool(storm);
    for (property, value) in [("recordsize", "512"), ("compression", "off")] {
        pool.properties().set("tank", property, value).expect("set");
    }
    let fs = pool.datasets().filesystem("tank").expect("file system");
    let names = ["long", "attributes", "source", "copy", "part", "moved"];
    let [long, first, source, copy, part, _] =
        names.map(|name| create_file(&pool, name, &NewInode::default()));
    for far in 0..4 {
        fs.write(&credentials(), long, WriteOffset::At(far * SPARSE_STRIDE), b"something")
            .expect("write");
    }
    fs.write(&credentials(), source, WriteOffset::At(0), &vec![7; BLOCK_COUNT * BLOCK_SIZE])
        .expect("write");
    pool.sync().expect("group");
    fs.set_attributes(
        &credentials(),
        long,
        &SetAttributes { size: Some(100), ..SetAttributes::default() },
    )
    .expect("cut off");
    let target = b"somewhere";
    create_file(
        &pool,
        "link",
        &NewInode { kind: FileType::Symlink, target, ..NewInode::default() },
    );
    let (dir, kind) = (root_object(&fs), RenameMode::Whiteout);
    let request = RenameRequest {
        from_dir: dir,
        from_name: b"moved",
        to_dir: dir,
        to_name: b"new-name",
        mode: kind,
    };
    fs.rename(&credentials(), &request).expect("rename");
    fs.set_xattr(&credentials(), first, b"user.a", Some(b"b"), XattrMode::Any).expect("xattr");
    let object = fs.dataset().objset().object(source).expect("object");
    let block = |number: usize| {
        object.pointer(Level::new(0), BlockId::new(number as u64)).expect("a pointer")
    };
    let (length, block_size) = ((BLOCK_COUNT * BLOCK_SIZE) as u64, BLOCK_SIZE as u64);
    let pointers = (0..BLOCK_COUNT).map(block).collect();
    let cloned = Body::Clone { object: copy, offset: 0, length, block_size, pointers };
    log_record(&pool, Itx::new_per_object(cloned));
    // part of a block that was written before
    let (offset, length, pointer, data) = (0, 100, block(0), None);
    let written = Write { object: part, offset, length, pointer, data };
    log_record(&pool, Itx::new_per_object(Body::Write(Box::new(written))));
    log_record(&pool, Itx::new_ordered(Body::Create(Box::new(create_with_flags(dir)))));
    fs.fsync(None).expect("fsync");
    pool
}

/// A file that is created with a flag: FreeBSD's log has them.
fn create_with_flags(dir: ObjectId) -> Create {
    const NODUMP: u32 = 0x100;
    let (crtime, scanstamp) = ([1_700_000_001, 5], [0; 32]);
    let (requested, values) = (Attributes::words(NODUMP), NODUMP.into());
    Create {
        kind: CreateKind::File,
        dir,
        object: ObjectId::new(5000),
        slots: 1,
        mode: 0o100_600,
        uid: 1000,
        gid: 100,
        generation: 9,
        crtime,
        rdev: 0,
        name: b"flagged".to_vec(),
        target: Vec::new(),
        attributes: Some(Attributes { requested, values, crtime, scanstamp, project: 0 }),
        acl: None,
        domains: Vec::new(),
    }
}

/// The differences from the committed state.
fn missing_effects(pool: &Pool) -> Vec<String> {
    let fs = pool.datasets().filesystem("tank").expect("file system");
    let mut lost: Vec<String> =
        pool.datasets().take_replay_failures().into_iter().map(|log| log.to_string()).collect();
    let mut check = |is_there: bool, what: &str| {
        if !is_there {
            lost.push(what.to_owned());
        }
    };
    let find = |name: &str| fs.reader().find(name.as_bytes()).expect("a look");
    check(find("long").is_some_and(|file| file.stat().size == 100), "a size");
    let target = find("link").map(|link| link.read_link().expect("target"));
    check(target.as_deref() == Some(b"somewhere"), "a link");
    check(find("new-name").is_some_and(|file| file.stat().kind == FileType::File), "a move");
    check(find("moved").is_some_and(|file| file.stat().kind == FileType::CharDevice), "a whiteout");
    let value = find("attributes").and_then(|file| file.xattr(b"user.a").expect("xattr"));
    check(value.as_deref() == Some(b"b"), "an attribute");
    let mut bytes = vec![0; BLOCK_COUNT * BLOCK_SIZE];
    if let Some(copy) = find("copy") {
        copy.content().read(0, &mut bytes).expect("read");
    }
    check(bytes == vec![7; BLOCK_COUNT * BLOCK_SIZE], "a copy");
    let size = find("part").map(|file| file.stat().size);
    check(size == Some(100), &format!("part of a block: {size:?}"));
    let flags = fs.writer().fs().inode(ObjectId::new(5000)).map(|node| node.attributes().flags);
    check(flags.is_ok_and(|flags| flags & flag::NODUMP != 0), "a flag");
    check(find("flagged").is_some(), "a file with flags");
    lost
}

#[test]
fn replay_survives_repeated_power_cuts() {
    let storm = DiskArray::new(&[96 << 20]);
    let pool = pool_with_log(&storm);
    let storm = cut_power(&storm);
    drop(pool);
    // each transaction has a group of its own
    let pool = import_devices(&storm.devices(), "tank", &environment(1)).expect("imported");
    assert_eq!(missing_effects(&pool), Vec::<String>::new());
    let end = storm.journal().len();
    assert!(end > 300, "few groups: {end}");
    let mut wrong = std::collections::BTreeMap::new();
    for at in (0..end).step_by(5) {
        for way in 0..2 {
            let found = DiskArray::from_memory(storm.journal().cut_power(at, way));
            for what in missing_effects(&import(&found.devices())) {
                wrong.entry(what).or_insert((at, way));
            }
        }
    }
    assert!(wrong.is_empty(), "lost, first by the cut and way: {wrong:?}");
}
