//! What logs promise is done again, wherever the power fails while it is.

use std::path::PathBuf;
use std::sync::Arc;

use device::Device;
use ondisk::zil::{Attributes, Body, Create, CreateKind, Write};
use ondisk::znode::flag;
use sim::Storm;
use units::{BlockId, Level, ObjectId};
use zil::Item;
use zpl::{MoveKind, Position, XattrMode};

use super::{
    Caller, Held, LiveFiles, Memory, Move, New, NewPool, NewVdev, Purpose, Set, Shape, World,
    create_on, hold_on,
};
use crate::files::{Kind, Time};

pub(super) fn world(dirty: u64) -> World {
    let state = parking_lot::Mutex::new(9_u64);
    let random = move |bytes: &mut [u8]| {
        let mut state = state.lock();
        for byte in bytes {
            *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405);
            *byte = state.to_be_bytes()[0];
        }
    };
    World {
        random: Arc::new(random),
        now: Arc::new(|| (1_700_000_000, 0)),
        workers: 1,
        dirty,
        cache: Memory::default(),
        host: (0x1234, "here".to_owned()),
    }
}

const ENOUGH: u64 = 64 << 20;

pub(super) fn hold(devices: &[Arc<dyn Device>]) -> Held {
    hold_on(devices, "tank", &world(ENOUGH)).expect("taken over")
}

/// A pool whose log has begun.
pub(super) fn pool(storm: &Storm) -> Held {
    let drives = vec![PathBuf::from("/disk0")];
    let vdevs = vec![NewVdev { shape: Shape::Single, drives, purpose: Purpose::Data }];
    let (name, properties) = ("tank".to_owned(), Vec::new());
    let new = NewPool { name, vdevs, ashift: None, properties, force: false };
    let held = create_on(&new, &storm.devices(), &world(ENOUGH)).expect("pool");
    held.set("tank", "xattr", "sa").expect("set");
    // the first promise of a log comes with a group
    make(&held, "first", &New::default());
    held.files("tank").expect("file system").fsync(None).expect("fsync");
    held.sync().expect("group");
    held
}

/// The drives as they are now, everything that was written to them being there.
pub(super) fn cut(storm: &Storm) -> Storm {
    Storm::from_memory(storm.journal().cut(storm.journal().len(), 1))
}

pub(super) fn caller() -> Caller {
    let now = Time { seconds: 1_700_000_001, nanoseconds: 5 };
    Caller { uid: 1000, gid: 100, now, keeps_setid: false }
}

pub(super) fn root(live: &LiveFiles) -> ObjectId {
    ObjectId::new(live.files().root_id())
}

pub(super) fn make(held: &Held, name: &str, new: &New<'_>) -> ObjectId {
    let live = held.files("tank").expect("file system");
    let made = live.make(&caller(), root(&live), name.as_bytes(), new).expect("made");
    ObjectId::new(made.id())
}

pub(super) fn is_there(held: &Held, name: &str) -> bool {
    let live = held.files("tank").expect("file system");
    live.files().find(name.as_bytes()).expect("a look").is_some()
}

/// Has the log tell what only others put there.
pub(super) fn promise(held: &Held, item: Item) {
    let live = held.files("tank").expect("file system");
    let tx = held.0.owned.begin().expect("group");
    live.log.add(&tx, item);
}

const BLOCK: usize = 512;
const BLOCKS: usize = 6;
/// What a step of freeing takes of blocks of that size, and a bit.
const FAR: u64 = 20 << 20;

/// Promises what takes several transactions when it is done again: attributes of a layout that no
/// file had before, what is freed in steps, blocks one by one, a file and then its flags.
fn promises(storm: &Storm) -> Held {
    let held = pool(storm);
    for (property, value) in [("recordsize", "512"), ("compression", "off")] {
        held.set("tank", property, value).expect("set");
    }
    let live = held.files("tank").expect("file system");
    let names = ["long", "attributes", "source", "copy", "part", "moved"];
    let [long, first, source, copy, part, _] = names.map(|name| make(&held, name, &New::default()));
    for far in 0..4 {
        live.write(&caller(), long, Position::At(far * FAR), b"something").expect("write");
    }
    live.write(&caller(), source, Position::At(0), &vec![7; BLOCKS * BLOCK]).expect("write");
    held.sync().expect("group");
    live.set(&caller(), long, &Set { size: Some(100), ..Set::default() }).expect("cut off");
    let target = b"somewhere";
    make(&held, "link", &New { kind: Kind::Symlink, target, ..New::default() });
    let (dir, kind) = (root(&live), MoveKind::Whiteout);
    let how = Move { from_dir: dir, from: b"moved", to_dir: dir, to: b"new-name", kind };
    live.rename(&caller(), &how).expect("rename");
    live.set_xattr(&caller(), first, b"user.a", Some(b"b"), XattrMode::Any).expect("xattr");
    let object = live.store().objset.object(source).expect("object");
    let block = |number: usize| {
        object.pointer(Level::new(0), BlockId::new(number as u64)).expect("a pointer")
    };
    let (length, block_size) = ((BLOCKS * BLOCK) as u64, BLOCK as u64);
    let pointers = (0..BLOCKS).map(block).collect();
    let cloned = Body::Clone { object: copy, offset: 0, length, block_size, pointers };
    promise(&held, Item::of_object(cloned));
    // part of a block that was written before
    let (offset, length, pointer, data) = (0, 100, block(0), None);
    let written = Write { object: part, offset, length, pointer, data };
    promise(&held, Item::of_object(Body::Write(Box::new(written))));
    promise(&held, Item::ordered(Body::Create(Box::new(flagged(dir)))));
    live.fsync(None).expect("fsync");
    held
}

/// A file that is made with a flag: FreeBSD's log has them so.
fn flagged(dir: ObjectId) -> Create {
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

/// What is not as it was promised.
fn lost(held: &Held) -> Vec<String> {
    let live = held.files("tank").expect("file system");
    let mut lost: Vec<String> =
        held.take_broken_logs().into_iter().map(|log| log.to_string()).collect();
    let mut check = |is_there: bool, what: &str| {
        if !is_there {
            lost.push(what.to_owned());
        }
    };
    let find = |name: &str| live.files().find(name.as_bytes()).expect("a look");
    check(find("long").is_some_and(|file| file.facts().size == 100), "a size");
    let target = find("link").map(|link| link.target().expect("target"));
    check(target.as_deref() == Some(b"somewhere"), "a link");
    check(find("new-name").is_some_and(|file| file.facts().kind == Kind::File), "a move");
    check(find("moved").is_some_and(|file| file.facts().kind == Kind::CharDevice), "a whiteout");
    let value = find("attributes").and_then(|file| file.xattr(b"user.a").expect("xattr"));
    check(value.as_deref() == Some(b"b"), "an attribute");
    let mut bytes = vec![0; BLOCKS * BLOCK];
    if let Some(copy) = find("copy") {
        copy.content().read(0, &mut bytes).expect("read");
    }
    check(bytes == vec![7; BLOCKS * BLOCK], "a copy");
    let size = find("part").map(|file| file.facts().size);
    check(size == Some(100), &format!("part of a block: {size:?}"));
    let flags = live.writer().fs().node(ObjectId::new(5000)).map(|node| node.attributes().flags);
    check(flags.is_ok_and(|flags| flags & flag::NODUMP != 0), "a flag");
    check(find("flagged").is_some(), "a file with flags");
    lost
}

#[test]
fn what_was_promised_is_done_although_the_power_fails_again_and_again_while_it_is() {
    let storm = Storm::new(&[96 << 20]);
    let held = promises(&storm);
    let storm = cut(&storm);
    drop(held);
    // each transaction has a group of its own
    let held = hold_on(&storm.devices(), "tank", &world(1)).expect("taken over");
    assert_eq!(lost(&held), Vec::<String>::new());
    let end = storm.journal().len();
    assert!(end > 300, "few groups: {end}");
    let mut wrong = std::collections::BTreeMap::new();
    for at in (0..end).step_by(5) {
        for way in 0..2 {
            let found = Storm::from_memory(storm.journal().cut(at, way));
            for what in lost(&hold(&found.devices())) {
                wrong.entry(what).or_insert((at, way));
            }
        }
    }
    assert!(wrong.is_empty(), "lost, first by the cut and way: {wrong:?}");
}
