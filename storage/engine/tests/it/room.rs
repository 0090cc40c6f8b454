//! What there is no room for is refused, in the words of who refuses it; what frees space goes on.

use std::thread;
use std::time::Duration;

use engine::files::Reason;
use engine::held::{
    Caller, Held, LiveFiles, New, NewDataset, NewPool, NewVdev, Position, Purpose, Set, Shape,
    Stretch,
};
use units::ObjectId;

use crate::held::{Folder, caller, faults, new_pool, read_file, world, write_file};
use crate::shared::noise;

const MIB: u64 = 1 << 20;

fn pool(folder: &Folder) -> Held {
    let held = engine::held::create(&new_pool(folder, Shape::Single, 1), &world()).unwrap();
    held.set("tank", "compression", "off").unwrap();
    held
}

fn root(live: &LiveFiles) -> ObjectId {
    ObjectId::new(live.files().root_id())
}

/// Writes a file of MiBs until it is refused, everything being counted after each; gives how many
/// it were, and why no more.
fn grow(held: &Held, fs: &str, by: &Caller, name: &str) -> (u64, Reason) {
    let live = held.files(fs).unwrap();
    let file = match live.make(by, root(&live), name.as_bytes(), &New::default()) {
        Ok(file) => ObjectId::new(file.id()),
        Err(why) => return (0, why.reason()),
    };
    for written in 0_u32.. {
        let bytes = noise(written + 1, 1 << 20);
        let at = Position::At(u64::from(written) * MIB);
        if let Err(why) = live.write(by, file, at, &bytes) {
            return (written.into(), why.reason());
        }
        held.sync().unwrap();
    }
    unreachable!("no pool is endless")
}

fn unlink(held: &Held, fs: &str, name: &str) {
    let live = held.files(fs).unwrap();
    live.unlink(&caller(), root(&live), name.as_bytes()).unwrap();
}

fn dataset(held: &Held, name: &str, properties: &[(&str, &str)]) {
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let properties = properties.iter().map(own).collect();
    held.create_filesystem(&NewDataset { name: name.to_owned(), properties }).unwrap();
}

#[test]
fn owners_may_use_what_their_quotas_say() {
    let folder = Folder::new("owners-quotas", 1, 512 * MIB);
    let held = pool(&folder);
    let other = Caller { uid: 1001, gid: 101, ..caller() };
    held.set("tank", "userquota@1000", "3M").unwrap();
    let (written, why) = grow(&held, "tank", &caller(), "mine");
    assert_eq!(why, Reason::OverQuota);
    // what is counted is what was written before: a limit is passed by the last that was let in
    assert!((2..=4).contains(&written), "{written} MiB");
    write_file_as(&held, &other, "others");
    // files are freed although nothing may be written
    let live = held.files("tank").unwrap();
    let refused = live.make(&caller(), root(&live), b"one-more", &New::default());
    assert_eq!(refused.err().unwrap().reason(), Reason::OverQuota);
    unlink(&held, "tank", "mine");
    held.sync().unwrap();
    write_file(&held, "tank", "mine-again", &noise(7, 1 << 20));

    held.set("tank", "groupquota@101", "2M").unwrap();
    let (written, why) = grow(&held, "tank", &other, "of-the-group");
    assert_eq!(why, Reason::OverQuota);
    assert!(written <= 2, "{written} MiB");
    held.set("tank", "groupquota@101", "none").unwrap();
    write_file_as(&held, &other, "of-the-group-again");

    held.set("tank", "userobjquota@1001", "6").unwrap();
    let mut made = 0;
    let why = loop {
        let name = format!("object-{made}");
        match live.make(&other, root(&live), name.as_bytes(), &New::default()) {
            Ok(_) => made += 1,
            Err(why) => break why.reason(),
        }
        held.sync().unwrap();
        assert!(made < 10, "nothing ends it");
    };
    assert_eq!(why, Reason::OverQuota);

    held.set("tank", "projectquota@7", "1M").unwrap();
    let folder_of_seven = live
        .make(
            &caller(),
            root(&live),
            b"seven",
            &New { kind: engine::files::Kind::Directory, mode: 0o755, ..New::default() },
        )
        .unwrap();
    let seven = ObjectId::new(folder_of_seven.id());
    live.set(&caller(), seven, &Set { project: Some(7), ..Set::default() }).unwrap();
    let within = live.make(&caller(), seven, b"within", &New::default()).unwrap().id();
    let within = ObjectId::new(within);
    live.set(&caller(), within, &Set { project: Some(7), ..Set::default() }).unwrap();
    live.write(&caller(), within, Position::At(0), &noise(3, 1 << 20)).unwrap();
    held.sync().unwrap();
    let refused = live.write(&caller(), within, Position::At(MIB), b"more");
    assert_eq!(refused.unwrap_err().reason(), Reason::OverQuota);
    drop((live, folder_of_seven));
    held.export().unwrap();
    drop(held);
    assert_eq!(faults(&folder, "tank"), Vec::<String>::new());
}

/// As OpenZFS has it, quotas of owners keep from new files, from writing, and from being given files;
/// whoever is over one can tidy up.
#[test]
fn what_takes_nothing_new_is_done_whatever_quotas_of_owners_say() {
    let folder = Folder::new("over-quota", 1, 256 * MIB);
    let held = pool(&folder);
    held.set("tank", "acltype", "posix").unwrap();
    let (mine, other) = (caller(), Caller { uid: 1001, gid: 101, ..caller() });
    let live = held.files("tank").unwrap();
    let top = root(&live);
    for (by, name) in [(&mine, "a"), (&mine, "b"), (&other, "others"), (&other, "gift")] {
        write_file_as(&held, by, name);
    }
    let number =
        |name: &str| ObjectId::new(live.files().find(name.as_bytes()).unwrap().unwrap().id());
    let (a, b, others, gift) = (number("a"), number("b"), number("others"), number("gift"));
    live.set(&mine, b, &Set { project: Some(7), ..Set::default() }).unwrap();
    held.sync().unwrap();
    for quota in ["userquota@1000", "groupquota@100", "projectquota@7"] {
        held.set("tank", quota, "100K").unwrap();
    }
    let over = |done: engine::files::Result<()>| {
        assert_eq!(done.unwrap_err().reason(), Reason::OverQuota);
    };
    over(live.write(&mine, a, Position::End, b"more").map(drop));
    over(live.make(&mine, top, b"new", &New::default()).map(drop));
    over(live.make_unnamed(&mine, top, &New::default()).map(drop));
    // what is a file of its own is a new file
    let xattr = |name: &[u8], value: Option<&[u8]>| {
        live.set_xattr(&mine, a, name, value, engine::held::XattrMode::Any)
    };
    over(xattr(b"user.large", Some(&noise(1, 40_000))));
    for to in [
        Set { uid: Some(1000), ..Set::default() },
        Set { gid: Some(100), ..Set::default() },
        Set { project: Some(7), ..Set::default() },
    ] {
        over(live.set(&other, others, &to));
    }
    let how = |from, to, kind| engine::held::Move { from_dir: top, from, to_dir: top, to, kind };
    let replace = engine::held::MoveKind::Replace;
    live.rename(&mine, &how(b"a", b"renamed", replace)).unwrap();
    over(live.rename(&mine, &how(b"renamed", b"a", engine::held::MoveKind::Whiteout)));
    live.link(&mine, a, top, b"linked").unwrap();
    let now = Some(caller().now);
    live.set(&mine, a, &Set { mode: Some(0o600), ..Set::default() }).unwrap();
    live.set(&mine, a, &Set { atime: now, mtime: now, ..Set::default() }).unwrap();
    // who has the file already is given nothing
    let same = Set { uid: Some(1000), gid: Some(100), ..Set::default() };
    live.set(&mine, a, &same).unwrap();
    live.set(&mine, b, &Set { project: Some(7), ..Set::default() }).unwrap();
    xattr(b"user.small", Some(b"value")).unwrap();
    xattr(b"user.small", None).unwrap();
    live.extend(&mine, a, 5 * MIB).unwrap();
    live.set(&mine, a, &Set { size: Some(6 * MIB), ..Set::default() }).unwrap();
    live.punch(&mine, a, 0..MIB).unwrap();
    // whoever else has room may be given it
    live.set(&other, b, &Set { uid: Some(1001), ..Set::default() }).unwrap();
    live.set(&other, b, &Set { gid: Some(101), ..Set::default() }).unwrap();
    live.set(&other, gift, &Set { project: Some(8), ..Set::default() }).unwrap();
    held.export().unwrap();
}

fn write_file_as(held: &Held, by: &Caller, name: &str) {
    let live = held.files("tank").unwrap();
    let file = live.make(by, root(&live), name.as_bytes(), &New::default()).unwrap();
    let file = ObjectId::new(file.id());
    live.write(by, file, Position::At(0), &noise(5, 600_000)).unwrap();
    held.sync().unwrap();
}

#[test]
fn datasets_may_use_what_quotas_and_reservations_leave() {
    let folder = Folder::new("limits", 1, 256 * MIB);
    let held = pool(&folder);
    dataset(&held, "tank/quota", &[("quota", "8M")]);
    dataset(&held, "tank/refquota", &[("refquota", "8M")]);
    for (fs, least) in [("tank/quota", 0), ("tank/refquota", 6)] {
        let (written, why) = grow(&held, fs, &caller(), "first");
        assert_eq!(why, Reason::OverQuota, "{fs}");
        assert!((6..=8).contains(&written), "{fs}: {written} MiB");
        held.snapshot(&[format!("{fs}@kept")]).unwrap();
        unlink(&held, fs, "first");
        held.sync().unwrap();
        // what a snapshot keeps counts for the quota, and not for what is referred to
        let (again, why) = grow(&held, fs, &caller(), "second");
        assert_eq!(why, Reason::OverQuota, "{fs}");
        assert!((least..=least + 2).contains(&again), "{fs}: {again} MiB");
    }
    dataset(&held, "tank/reserved", &[("reservation", "30M")]);
    dataset(&held, "tank/kept", &[("refreservation", "30M")]);
    let (free, why) = grow(&held, "tank", &caller(), "all");
    assert_eq!(why, Reason::NoSpace);
    // nothing is left but what is reserved: those have it
    for fs in ["tank/reserved", "tank/kept"] {
        let (written, why) = grow(&held, fs, &caller(), "mine");
        assert_eq!(why, Reason::NoSpace, "{fs}");
        assert!((28..=31).contains(&written), "{fs}: {written} MiB, {free} before");
    }
    unlink(&held, "tank", "all");
    held.sync().unwrap();
    assert!(grow(&held, "tank", &caller(), "all").0 + 4 >= free);
    held.export().unwrap();
    drop(held);
    assert_eq!(faults(&folder, "tank"), Vec::<String>::new());
}

#[test]
fn what_is_stored_once_takes_the_room_of_one() {
    const SIZE: u32 = 24 << 20;
    let size = u64::from(SIZE);
    let folder = Folder::new("room-of-one", 1, 256 * MIB);
    let held = pool(&folder);
    dataset(&held, "tank/alike", &[("dedup", "on")]);
    write_file(&held, "tank", "film", &noise(1, SIZE));
    held.sync().unwrap();
    let live = held.files("tank").unwrap();
    let film = ObjectId::new(live.files().find(b"film").unwrap().unwrap().id());
    let before = held.room("tank").available;
    let share = |name: &str| {
        let to = live.make(&caller(), root(&live), name.as_bytes(), &New::default()).unwrap().id();
        let (from, to) = (film, ObjectId::new(to));
        let stretch = Stretch { from, start: 0, to, at: 0, length: size };
        assert_eq!(live.share(&caller(), &stretch).unwrap(), size, "{name}");
        held.sync().unwrap();
    };
    // of either far more than the pool could hold
    for copy in 0..12 {
        let name = format!("copy-{copy}");
        share(&name);
        write_file(&held, "tank/alike", &name, &noise(2, SIZE));
        held.sync().unwrap();
    }
    let mut filler = 0;
    while held.room("tank").available > size {
        filler += 1;
        write_file(&held, "tank", &format!("filler-{filler}"), &noise(10 * filler, 8 << 20));
        held.sync().unwrap();
    }
    share("copy-of-more-than-is-left");
    for filler in 1..=filler {
        unlink(&held, "tank", &format!("filler-{filler}"));
    }
    held.sync().unwrap();
    let told = held.room("tank").available;
    assert!(before - told < size + 8 * MIB, "{before} before, {told} after");
    held.export().unwrap();
    drop((live, held));
    assert_eq!(faults(&folder, "tank"), Vec::<String>::new());
    let held = engine::held::hold(&[folder.path().into()], "tank", false, &world()).unwrap();
    let then = held.room("tank").available;
    assert!(then.abs_diff(told) < MIB, "whoever takes it over counts the same: {told}, {then}");
    // what one gives up is not given up by all
    for copy in 0..12 {
        unlink(&held, "tank", &format!("copy-{copy}"));
        unlink(&held, "tank/alike", &format!("copy-{copy}"));
    }
    for name in ["film", "copy-of-more-than-is-left"] {
        unlink(&held, "tank", name);
    }
    held.sync().unwrap();
    let after = held.room("tank").available;
    assert!(after.abs_diff(before + size) < 8 * MIB, "{before} before, {after} after");
    held.export().unwrap();
    drop(held);
    assert_eq!(faults(&folder, "tank"), Vec::<String>::new());
}

#[test]
fn what_is_still_open_when_it_is_removed_is_waited_for_but_not_long() {
    let folder = Folder::new("leaving", 1, 256 * MIB);
    let held = pool(&folder);
    dataset(&held, "tank/quota", &[("quota", "8M")]);
    assert_eq!(grow(&held, "tank/quota", &caller(), "film").1, Reason::OverQuota);
    let live = held.files("tank/quota").unwrap();
    let film = ObjectId::new(live.files().find(b"film").unwrap().unwrap().id());
    live.hold(film).unwrap();
    unlink(&held, "tank/quota", "film");
    // somebody has it open for longer
    let refused = live.make(&caller(), root(&live), b"letter", &New::default());
    assert_eq!(refused.err().unwrap().reason(), Reason::OverQuota);
    thread::scope(|scope| {
        let letter = scope.spawn(|| live.make(&caller(), root(&live), b"letter", &New::default()));
        thread::sleep(Duration::from_millis(20));
        live.release(film).unwrap();
        letter.join().unwrap().unwrap();
    });
    held.export().unwrap();
}

#[test]
fn a_full_pool_takes_nothing_and_gives_back_everything() {
    let folder = Folder::new("brim", 3, 96 * MIB);
    let new = NewPool { ashift: Some(9), ..new_pool(&folder, Shape::Raidz(1), 3) };
    let held = engine::held::create(&new, &world()).unwrap();
    held.set("tank", "compression", "off").unwrap();
    let volume = NewDataset { name: "tank/volume".to_owned(), properties: Vec::new() };
    held.create_volume(&volume, 512 * MIB, 16 << 10, true).unwrap();
    let volume = held.volume("tank/volume").unwrap();
    let live = held.files("tank").unwrap();
    let mut rounds = Vec::new();
    for round in 0..4_u32 {
        let mut files = 0_u32;
        // files of many sizes, until neither a file nor a byte more goes in
        let why = loop {
            let bytes = noise(round * 1000 + files, 1 << (9 + files % 14));
            let name = format!("f{files}");
            let made = live.make(&caller(), root(&live), name.as_bytes(), &New::default());
            let file = match made {
                Ok(file) => ObjectId::new(file.id()),
                Err(why) => break why,
            };
            files += 1;
            if let Err(why) = live.write(&caller(), file, Position::At(0), &bytes) {
                break why;
            }
        };
        assert_eq!(why.reason(), Reason::NoSpace, "{why}");
        let block = noise(round, 1 << 20);
        let mut at = 0;
        let why = loop {
            match volume.write(at, &block) {
                Ok(()) => at += MIB,
                Err(why) => break why,
            }
        };
        assert_eq!(why.reason(), Reason::NoSpace, "{why}");
        held.sync().unwrap();
        held.snapshot(&["tank@full".to_owned()]).unwrap();
        rounds.push(files);
        volume.discard(0..512 * MIB).unwrap();
        for file in (0..files).rev() {
            live.unlink(&caller(), root(&live), format!("f{file}").as_bytes()).unwrap();
        }
        held.destroy("tank@full").unwrap();
        held.sync().unwrap();
    }
    let (least, most) = (rounds.iter().min().unwrap(), rounds.iter().max().unwrap());
    assert!(*least > 50 && most - least <= 14, "each time as much goes in: {rounds:?}");
    drop((live, volume));
    held.export().unwrap();
    drop(held);
    assert_eq!(faults(&folder, "tank"), Vec::<String>::new());
}

#[test]
fn what_waits_is_counted_as_often_as_it_will_be_stored() {
    for (copies, size) in [("3", 60 << 10), ("1", 512)] {
        let folder = Folder::new(&format!("copies-{copies}"), 1, 160 * MIB);
        let held = pool(&folder);
        held.set("tank", "copies", copies).unwrap();
        let live = held.files("tank").unwrap();
        let mut files = 0_u32;
        let why = loop {
            let made =
                live.make(&caller(), root(&live), format!("f{files}").as_bytes(), &New::default());
            let file = match made {
                Ok(file) => ObjectId::new(file.id()),
                Err(why) => break why,
            };
            files += 1;
            if let Err(why) = live.write(&caller(), file, Position::At(0), &noise(files, size)) {
                break why;
            }
        };
        assert_eq!(why.reason(), Reason::NoSpace, "{copies} of {size} bytes: {why}");
        assert!(files > 100, "{files} files");
        held.sync().unwrap();
    }
}

/// A pool with vdevs for everything.
fn classes(folder: &Folder) -> NewPool {
    let drives = folder.drives(6);
    let vdev = |shape, from: usize, to: usize, purpose| {
        let drives = drives[from..to].to_vec();
        NewVdev { shape, drives, purpose }
    };
    let vdevs = vec![
        vdev(Shape::Mirror, 0, 2, Purpose::Data),
        vdev(Shape::Mirror, 2, 4, Purpose::Special),
        vdev(Shape::Single, 4, 5, Purpose::Dedup),
        vdev(Shape::Single, 5, 6, Purpose::Log),
    ];
    NewPool { vdevs, force: true, ..new_pool(folder, Shape::Mirror, 0) }
}

/// Bytes in use on the vdevs for data, metadata, dedup and logs.
fn used(held: &Held) -> [u64; 4] {
    let mut found = held.status().vdevs.into_iter().map(|vdev| vdev.allocated);
    std::array::from_fn(|_| found.next().unwrap())
}

#[test]
fn metadata_small_blocks_and_tables_of_dedup_have_vdevs_of_their_own() {
    let folder = Folder::new("classes", 6, 128 * MIB);
    let held = engine::held::create(&classes(&folder), &world()).unwrap();
    held.set("tank", "compression", "off").unwrap();
    let [data, special, ..] = used(&held);
    assert!(special > 0 && data == 0, "the pool's own objects: {special}, data: {data}");
    write_file(&held, "tank", "large", &noise(1, 8 << 20));
    held.sync().unwrap();
    let [data, special, dedup, _] = used(&held);
    assert!((8 * MIB..9 * MIB).contains(&data), "{data}");
    dataset(&held, "tank/small", &[("special_small_blocks", "16K")]);
    write_file(&held, "tank/small", "small", &noise(2, 16 << 10));
    write_file(&held, "tank/small", "too-large", &noise(3, 17 << 10));
    held.sync().unwrap();
    let [data_after, special_after, dedup_after, _] = used(&held);
    assert_eq!(data_after - data, 20 << 10, "the one that is too large, in whole sectors");
    assert!(special_after > special + (16 << 10) && dedup_after == dedup);
    dataset(&held, "tank/dedup", &[("dedup", "on"), ("recordsize", "4K")]);
    write_file(&held, "tank/dedup", "first", &noise(4, 1 << 20));
    write_file(&held, "tank/dedup", "second", &noise(4, 1 << 20));
    held.sync().unwrap();
    assert!(used(&held)[2] > dedup, "the table is on the vdev for it");
    held.export().unwrap();
    drop(held);
    assert_eq!(faults(&folder, "tank"), Vec::<String>::new());
    let held = engine::held::hold(&[folder.path().into()], "tank", false, &world()).unwrap();
    assert_eq!(read_file(&held, "tank/small", "small"), noise(2, 16 << 10));
    let purposes: Vec<_> = held.status().vdevs.into_iter().map(|vdev| vdev.purpose).collect();
    let named = |name: &str| Some(name.to_owned());
    assert_eq!(purposes, [None, named("special"), named("dedup"), named("log")]);
    write_file(&held, "tank", "later", &noise(9, 1 << 20));
    held.export().unwrap();
    drop(held);
    assert_eq!(faults(&folder, "tank"), Vec::<String>::new());
}

#[test]
fn what_is_read_only_stays_as_it_is() {
    let folder = Folder::new("readonly", 1, 128 * MIB);
    let held = pool(&folder);
    write_file(&held, "tank", "there", b"before");
    held.set("tank", "readonly", "on").unwrap();
    let live = held.files("tank").unwrap();
    let made = live.make(&caller(), root(&live), b"new", &New::default());
    assert_eq!(made.err().unwrap().reason(), Reason::ReadOnly);
    let gone = live.unlink(&caller(), root(&live), b"there");
    assert_eq!(gone.unwrap_err().reason(), Reason::ReadOnly);
    held.set("tank", "readonly", "off").unwrap();
    unlink(&held, "tank", "there");
    held.export().unwrap();
}

/// A block takes a sector at least, however small it is: what waits to be written takes more than it has
/// bytes. Were that not counted, a group would be too large for the pool, which would stand still.
#[test]
fn blocks_that_are_smaller_than_a_sector_are_not_let_in_without_room() {
    for (shape, drives, name) in [(Shape::Single, 1, "one"), (Shape::Raidz(2), 4, "raidz2")] {
        let folder = Folder::new(&format!("small-blocks-{name}"), drives, 256 * MIB);
        let held = engine::held::create(&new_pool(&folder, shape, drives), &world()).unwrap();
        held.set("tank", "compression", "off").unwrap();
        held.set("tank", "recordsize", "512").unwrap();
        let live = held.files("tank").unwrap();
        let make = |name: &[u8]| live.make(&caller(), root(&live), name, &New::default());
        let file = ObjectId::new(make(b"large").unwrap().id());
        let why = (0_u32..).find_map(|written| {
            let at = Position::At(u64::from(written) * MIB);
            live.write(&caller(), file, at, &noise(written + 1, 1 << 20)).err()
        });
        assert_eq!(why.unwrap().reason(), Reason::NoSpace, "{name}");
        held.sync().unwrap();
        unlink(&held, "tank", "large");
        held.sync().unwrap();
        // small files have small blocks, whatever the records are
        held.set("tank", "recordsize", "128K").unwrap();
        let why = (0_u32..).find_map(|number| {
            let file = match make(format!("small-{number}").as_bytes()) {
                Ok(file) => ObjectId::new(file.id()),
                Err(why) => return Some(why),
            };
            live.write(&caller(), file, Position::End, &noise(number + 1, 300)).err()
        });
        assert_eq!(why.unwrap().reason(), Reason::NoSpace, "{name}");
        held.sync().unwrap();
        live.unlink(&caller(), root(&live), b"small-0").unwrap();
        held.sync().unwrap();
    }
}
