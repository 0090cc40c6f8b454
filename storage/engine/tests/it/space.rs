//! Changes without space are refused with the right error; changes that free space succeed.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use engine::files::Reason;
use engine::pool::{NewDataset, NewPool, NewVdev, OpenFileSystem, Pool, VdevLayout, VdevRole};
use posix::{ChangeContext, CloneRange, Credentials, NewInode, SetAttributes, WriteOffset};
use units::ObjectId;

use crate::shared_blocks::noise_bytes;
use crate::test_pool::{
    TempDir, check_pool, credentials, environment, new_pool, read_file, write_file,
};

const MIB: u64 = 1 << 20;

fn create_pool(folder: &TempDir) -> Pool {
    let held =
        engine::pool::create(&new_pool(folder, VdevLayout::Single, 1), &environment()).unwrap();
    held.properties().set("tank", "compression", "off").unwrap();
    held
}

fn root_object(fs: &OpenFileSystem) -> ObjectId {
    ObjectId::new(fs.reader().root_object())
}

/// Writes a file of MiBs until it is refused, with a sync after each; returns their number, and the
/// error.
fn write_until_refused(
    held: &Pool,
    fs: &str,
    credentials: &ChangeContext,
    name: &str,
) -> (u64, Reason) {
    let live = held.datasets().filesystem(fs).unwrap();
    let file =
        match live.create(credentials, root_object(&live), name.as_bytes(), &NewInode::default()) {
            Ok(file) => ObjectId::new(file.ino()),
            Err(error) => return (0, error.reason()),
        };
    for written in 0_u32.. {
        let bytes = noise_bytes(written + 1, 1 << 20);
        let at = WriteOffset::At(u64::from(written) * MIB);
        if let Err(error) = live.write(credentials, file, at, &bytes) {
            return (written.into(), error.reason());
        }
        held.sync().unwrap();
    }
    unreachable!("no pool is endless")
}

fn unlink_file(pool: &Pool, fs: &str, name: &str) {
    let live = pool.datasets().filesystem(fs).unwrap();
    live.unlink(&credentials(), root_object(&live), name.as_bytes()).unwrap();
}

fn create_filesystem(pool: &Pool, name: &str, properties: &[(&str, &str)]) {
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let properties = properties.iter().map(own).collect();
    pool.datasets().create_filesystem(&NewDataset { name: name.to_owned(), properties }).unwrap();
}

#[test]
fn owner_quotas_limit_usage() {
    let folder = TempDir::new("owners-quotas", 1, 512 * MIB);
    let pool = create_pool(&folder);
    let other = ChangeContext { credentials: Credentials::new(1001, 101), ..credentials() };
    pool.properties().set("tank", "userquota@1000", "3M").unwrap();
    let (written, error) = write_until_refused(&pool, "tank", &credentials(), "mine");
    assert_eq!(error, Reason::OverQuota);
    // earlier writes are counted: a quota is exceeded by the last admitted one
    assert!((2..=4).contains(&written), "{written} MiB");
    write_file_as(&pool, &other, "others");
    // files are freed although nothing may be written
    let fs = pool.datasets().filesystem("tank").unwrap();
    let refused = fs.create(&credentials(), root_object(&fs), b"one-more", &NewInode::default());
    assert_eq!(refused.err().unwrap().reason(), Reason::OverQuota);
    unlink_file(&pool, "tank", "mine");
    pool.sync().unwrap();
    write_file(&pool, "tank", "mine-again", &noise_bytes(7, 1 << 20));

    pool.properties().set("tank", "groupquota@101", "2M").unwrap();
    let (written, why) = write_until_refused(&pool, "tank", &other, "of-the-group");
    assert_eq!(why, Reason::OverQuota);
    assert!(written <= 2, "{written} MiB");
    pool.properties().set("tank", "groupquota@101", "none").unwrap();
    write_file_as(&pool, &other, "of-the-group-again");

    pool.properties().set("tank", "userobjquota@1001", "6").unwrap();
    let mut made = 0;
    let why = loop {
        let name = format!("object-{made}");
        match fs.create(&other, root_object(&fs), name.as_bytes(), &NewInode::default()) {
            Ok(_) => made += 1,
            Err(error) => break error.reason(),
        }
        pool.sync().unwrap();
        assert!(made < 10, "nothing ends it");
    };
    assert_eq!(why, Reason::OverQuota);

    pool.properties().set("tank", "projectquota@7", "1M").unwrap();
    let folder_of_seven = fs
        .create(
            &credentials(),
            root_object(&fs),
            b"seven",
            &NewInode {
                kind: engine::files::FileType::Directory,
                mode: 0o755,
                ..NewInode::default()
            },
        )
        .unwrap();
    let seven = ObjectId::new(folder_of_seven.ino());
    fs.set_attributes(
        &credentials(),
        seven,
        &SetAttributes { project_id: Some(7), ..SetAttributes::default() },
    )
    .unwrap();
    let within = fs.create(&credentials(), seven, b"within", &NewInode::default()).unwrap().ino();
    let within = ObjectId::new(within);
    fs.set_attributes(
        &credentials(),
        within,
        &SetAttributes { project_id: Some(7), ..SetAttributes::default() },
    )
    .unwrap();
    fs.write(&credentials(), within, WriteOffset::At(0), &noise_bytes(3, 1 << 20)).unwrap();
    pool.sync().unwrap();
    let refused = fs.write(&credentials(), within, WriteOffset::At(MIB), b"more");
    assert_eq!(refused.unwrap_err().reason(), Reason::OverQuota);
    drop((fs, folder_of_seven));
    pool.export().unwrap();
    drop(pool);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}

/// As in OpenZFS, quotas of owners forbid new files, writes, and receiving files by chown;
/// an owner over quota can clean up.
#[test]
fn owner_over_quota_can_free_space() {
    let folder = TempDir::new("over-quota", 1, 256 * MIB);
    let held = create_pool(&folder);
    held.properties().set("tank", "acltype", "posix").unwrap();
    let (mine, other) = (
        credentials(),
        ChangeContext { credentials: Credentials::new(1001, 101), ..credentials() },
    );
    let fs = held.datasets().filesystem("tank").unwrap();
    let top = root_object(&fs);
    for (by, name) in [(&mine, "a"), (&mine, "b"), (&other, "others"), (&other, "gift")] {
        write_file_as(&held, by, name);
    }
    let number =
        |name: &str| ObjectId::new(fs.reader().find(name.as_bytes()).unwrap().unwrap().ino());
    let set = |credentials: &ChangeContext, file, change: SetAttributes| {
        fs.set_attributes(credentials, file, &change).unwrap();
    };
    let (a, b, others, gift) = (number("a"), number("b"), number("others"), number("gift"));
    set(&mine, b, SetAttributes { project_id: Some(7), ..SetAttributes::default() });
    held.sync().unwrap();
    for quota in ["userquota@1000", "groupquota@100", "projectquota@7"] {
        held.properties().set("tank", quota, "100K").unwrap();
    }
    let over = |done: engine::files::Result<()>| {
        assert_eq!(done.unwrap_err().reason(), Reason::OverQuota);
    };
    over(fs.write(&mine, a, WriteOffset::End, b"more").map(drop));
    over(fs.create(&mine, top, b"new", &NewInode::default()).map(drop));
    over(fs.create_tmpfile(&mine, top, &NewInode::default()).map(drop));
    // an attribute in a file of its own is a new file
    let xattr = |name: &[u8], value: Option<&[u8]>| {
        fs.set_xattr(&mine, a, name, value, posix::XattrMode::Any)
    };
    over(xattr(b"user.large", Some(&noise_bytes(1, 40_000))));
    for to in [
        SetAttributes { uid: Some(1000), ..SetAttributes::default() },
        SetAttributes { gid: Some(100), ..SetAttributes::default() },
        SetAttributes { project_id: Some(7), ..SetAttributes::default() },
    ] {
        over(fs.set_attributes(&other, others, &to));
    }
    let request = |from, to, kind| posix::RenameRequest {
        from_dir: top,
        from_name: from,
        to_dir: top,
        to_name: to,
        mode: kind,
    };
    let replace = posix::RenameMode::Replace;
    fs.rename(&mine, &request(b"a", b"renamed", replace)).unwrap();
    over(fs.rename(&mine, &request(b"renamed", b"a", posix::RenameMode::Whiteout)));
    fs.link(&mine, a, top, b"linked").unwrap();
    let now = Some(posix::SetTime::Now);
    set(&mine, a, SetAttributes { mode: Some(0o600), ..SetAttributes::default() });
    set(&mine, a, SetAttributes { atime: now, mtime: now, ..SetAttributes::default() });
    // the present owner gets nothing new
    let same = SetAttributes { uid: Some(1000), gid: Some(100), ..SetAttributes::default() };
    set(&mine, a, same);
    set(&mine, b, SetAttributes { project_id: Some(7), ..SetAttributes::default() });
    xattr(b"user.small", Some(b"value")).unwrap();
    xattr(b"user.small", None).unwrap();
    fs.extend(&mine, a, 5 * MIB).unwrap();
    set(&mine, a, SetAttributes { size: Some(6 * MIB), ..SetAttributes::default() });
    fs.punch_hole(&mine, a, 0..MIB).unwrap();
    // another owner with enough quota may get it
    set(&other, b, SetAttributes { uid: Some(1001), ..SetAttributes::default() });
    set(&other, b, SetAttributes { gid: Some(101), ..SetAttributes::default() });
    set(&other, gift, SetAttributes { project_id: Some(8), ..SetAttributes::default() });
    held.export().unwrap();
}

fn write_file_as(pool: &Pool, credentials: &ChangeContext, name: &str) {
    let fs = pool.datasets().filesystem("tank").unwrap();
    let file =
        fs.create(credentials, root_object(&fs), name.as_bytes(), &NewInode::default()).unwrap();
    let file = ObjectId::new(file.ino());
    fs.write(credentials, file, WriteOffset::At(0), &noise_bytes(5, 600_000)).unwrap();
    pool.sync().unwrap();
}

#[test]
fn datasets_may_use_what_quotas_and_reservations_leave() {
    let folder = TempDir::new("limits", 1, 256 * MIB);
    let pool = create_pool(&folder);
    create_filesystem(&pool, "tank/quota", &[("quota", "8M")]);
    create_filesystem(&pool, "tank/refquota", &[("refquota", "8M")]);
    for (fs, least) in [("tank/quota", 0), ("tank/refquota", 6)] {
        let (written, why) = write_until_refused(&pool, fs, &credentials(), "first");
        assert_eq!(why, Reason::OverQuota, "{fs}");
        assert!((6..=8).contains(&written), "{fs}: {written} MiB");
        pool.snapshots().create(&[format!("{fs}@kept")]).unwrap();
        unlink_file(&pool, fs, "first");
        pool.sync().unwrap();
        // space of a snapshot counts for the quota, and not for the refquota
        let (again, why) = write_until_refused(&pool, fs, &credentials(), "second");
        assert_eq!(why, Reason::OverQuota, "{fs}");
        assert!((least..=least + 2).contains(&again), "{fs}: {again} MiB");
    }
    create_filesystem(&pool, "tank/reserved", &[("reservation", "30M")]);
    create_filesystem(&pool, "tank/kept", &[("refreservation", "30M")]);
    let (free, why) = write_until_refused(&pool, "tank", &credentials(), "all");
    assert_eq!(why, Reason::NoSpace);
    // only the reserved space is left: its dataset may use it
    for fs in ["tank/reserved", "tank/kept"] {
        let (written, why) = write_until_refused(&pool, fs, &credentials(), "mine");
        assert_eq!(why, Reason::NoSpace, "{fs}");
        assert!((28..=31).contains(&written), "{fs}: {written} MiB, {free} before");
    }
    unlink_file(&pool, "tank", "all");
    pool.sync().unwrap();
    assert!(write_until_refused(&pool, "tank", &credentials(), "all").0 + 4 >= free);
    pool.export().unwrap();
    drop(pool);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}

#[test]
fn deduplicated_data_counts_once() {
    const FILE_SIZE: u32 = 24 << 20;
    let size = u64::from(FILE_SIZE);
    let folder = TempDir::new("room-of-one", 1, 256 * MIB);
    let held = create_pool(&folder);
    create_filesystem(&held, "tank/alike", &[("dedup", "on")]);
    write_file(&held, "tank", "film", &noise_bytes(1, FILE_SIZE));
    held.sync().unwrap();
    let fs = held.datasets().filesystem("tank").unwrap();
    let film = ObjectId::new(fs.reader().find(b"film").unwrap().unwrap().ino());
    let before = held.datasets().space("tank").available;
    let share = |name: &str| {
        let to = fs
            .create(&credentials(), root_object(&fs), name.as_bytes(), &NewInode::default())
            .unwrap()
            .ino();
        let (from, to) = (film, ObjectId::new(to));
        let stretch = CloneRange {
            source: from,
            source_offset: 0,
            target: to,
            target_offset: 0,
            length: size,
        };
        assert_eq!(fs.clone_blocks(&credentials(), &stretch).unwrap(), size, "{name}");
        held.sync().unwrap();
    };
    // of either far more than the pool could hold
    for copy in 0..12 {
        let name = format!("copy-{copy}");
        share(&name);
        write_file(&held, "tank/alike", &name, &noise_bytes(2, FILE_SIZE));
        held.sync().unwrap();
    }
    let mut filler = 0;
    while held.datasets().space("tank").available > size {
        filler += 1;
        write_file(&held, "tank", &format!("filler-{filler}"), &noise_bytes(10 * filler, 8 << 20));
        held.sync().unwrap();
    }
    share("copy-of-more-than-is-left");
    for filler in 1..=filler {
        unlink_file(&held, "tank", &format!("filler-{filler}"));
    }
    held.sync().unwrap();
    let told = held.datasets().space("tank").available;
    assert!(before - told < size + 8 * MIB, "{before} before, {told} after");
    held.export().unwrap();
    drop((fs, held));
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
    let held =
        engine::pool::import(&[folder.path().into()], "tank", false, &environment()).unwrap();
    let then = held.datasets().space("tank").available;
    assert!(then.abs_diff(told) < MIB, "a later import counts the same: {told}, {then}");
    // freeing one reference does not free the others
    for copy in 0..12 {
        unlink_file(&held, "tank", &format!("copy-{copy}"));
        unlink_file(&held, "tank/alike", &format!("copy-{copy}"));
    }
    for name in ["film", "copy-of-more-than-is-left"] {
        unlink_file(&held, "tank", name);
    }
    held.sync().unwrap();
    let after = held.datasets().space("tank").available;
    assert!(after.abs_diff(before + size) < 8 * MIB, "{before} before, {after} after");
    held.export().unwrap();
    drop(held);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}

#[test]
fn space_of_removed_open_files_is_awaited_briefly() {
    let folder = TempDir::new("leaving", 1, 256 * MIB);
    let pool = create_pool(&folder);
    create_filesystem(&pool, "tank/quota", &[("quota", "8M")]);
    assert_eq!(
        write_until_refused(&pool, "tank/quota", &credentials(), "film").1,
        Reason::OverQuota
    );
    let fs = pool.datasets().filesystem("tank/quota").unwrap();
    let film = ObjectId::new(fs.reader().find(b"film").unwrap().unwrap().ino());
    fs.hold_file(film).unwrap();
    unlink_file(&pool, "tank/quota", "film");
    // it stays open for longer
    let refused = fs.create(&credentials(), root_object(&fs), b"letter", &NewInode::default());
    assert_eq!(refused.err().unwrap().reason(), Reason::OverQuota);
    thread::scope(|scope| {
        let letter = scope
            .spawn(|| fs.create(&credentials(), root_object(&fs), b"letter", &NewInode::default()));
        thread::sleep(Duration::from_millis(20));
        fs.release_file(film).unwrap();
        letter.join().unwrap().unwrap();
    });
    pool.export().unwrap();
}

#[test]
fn full_pool_refuses_writes_and_frees_everything() {
    let folder = TempDir::new("brim", 3, 96 * MIB);
    let new = NewPool { ashift: Some(9), ..new_pool(&folder, VdevLayout::Raidz(1), 3) };
    let held = engine::pool::create(&new, &environment()).unwrap();
    held.properties().set("tank", "compression", "off").unwrap();
    let volume = NewDataset { name: "tank/volume".to_owned(), properties: Vec::new() };
    held.volumes().create(&volume, 512 * MIB, 16 << 10, true).unwrap();
    let volume = held.volumes().get("tank/volume").unwrap();
    let fs = held.datasets().filesystem("tank").unwrap();
    let mut rounds = Vec::new();
    for round in 0..4_u32 {
        let mut files = 0_u32;
        // files of many sizes, until neither a file nor a byte more fits
        let error = loop {
            let bytes = noise_bytes(round * 1000 + files, 1 << (9 + files % 14));
            let name = format!("f{files}");
            let made =
                fs.create(&credentials(), root_object(&fs), name.as_bytes(), &NewInode::default());
            let file = match made {
                Ok(file) => ObjectId::new(file.ino()),
                Err(error) => break error,
            };
            files += 1;
            if let Err(error) = fs.write(&credentials(), file, WriteOffset::At(0), &bytes) {
                break error;
            }
        };
        assert_eq!(error.reason(), Reason::NoSpace, "{error}");
        let block = noise_bytes(round, 1 << 20);
        let mut at = 0;
        let error = loop {
            match volume.write(at, &block) {
                Ok(()) => at += MIB,
                Err(error) => break error,
            }
        };
        assert_eq!(error.reason(), Reason::NoSpace, "{error}");
        held.sync().unwrap();
        held.snapshots().create(&["tank@full".to_owned()]).unwrap();
        rounds.push(files);
        volume.discard(0..512 * MIB).unwrap();
        for file in (0..files).rev() {
            fs.unlink(&credentials(), root_object(&fs), format!("f{file}").as_bytes()).unwrap();
        }
        held.datasets().destroy("tank@full").unwrap();
        held.sync().unwrap();
    }
    let (least, most) = (rounds.iter().min().unwrap(), rounds.iter().max().unwrap());
    assert!(*least > 50 && most - least <= 14, "each time as much goes in: {rounds:?}");
    drop((fs, volume));
    held.export().unwrap();
    drop(held);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}

#[test]
fn dirty_data_counts_all_its_copies() {
    for (copies, size) in [("3", 60 << 10), ("1", 512)] {
        let folder = TempDir::new(&format!("copies-{copies}"), 1, 160 * MIB);
        let pool = create_pool(&folder);
        pool.properties().set("tank", "copies", copies).unwrap();
        let fs = pool.datasets().filesystem("tank").unwrap();
        let mut files = 0_u32;
        let error = loop {
            let made = fs.create(
                &credentials(),
                root_object(&fs),
                format!("f{files}").as_bytes(),
                &NewInode::default(),
            );
            let file = match made {
                Ok(file) => ObjectId::new(file.ino()),
                Err(error) => break error,
            };
            files += 1;
            if let Err(error) =
                fs.write(&credentials(), file, WriteOffset::At(0), &noise_bytes(files, size))
            {
                break error;
            }
        };
        assert_eq!(error.reason(), Reason::NoSpace, "{copies} of {size} bytes: {error}");
        assert!(files > 100, "{files} files");
        pool.sync().unwrap();
    }
}

/// A pool with vdevs for everything.
fn pool_with_classes(folder: &TempDir) -> NewPool {
    let drives = folder.drives(6);
    let vdev = |shape, from: usize, to: usize, purpose| {
        let drives = drives[from..to].to_vec();
        NewVdev { layout: shape, drives, role: purpose }
    };
    let vdevs = vec![
        vdev(VdevLayout::Mirror, 0, 2, VdevRole::Data),
        vdev(VdevLayout::Mirror, 2, 4, VdevRole::Special),
        vdev(VdevLayout::Single, 4, 5, VdevRole::Dedup),
        vdev(VdevLayout::Single, 5, 6, VdevRole::Log),
    ];
    NewPool { vdevs, force: true, ..new_pool(folder, VdevLayout::Mirror, 0) }
}

/// Bytes in use on the vdevs for data, metadata, dedup and logs.
fn used_by_class(pool: &Pool) -> [u64; 4] {
    let mut found = pool.status().vdevs.into_iter().map(|vdev| vdev.allocated);
    std::array::from_fn(|_| found.next().unwrap())
}

#[test]
fn special_and_dedup_vdevs_get_their_blocks() {
    let folder = TempDir::new("classes", 6, 128 * MIB);
    let held = engine::pool::create(&pool_with_classes(&folder), &environment()).unwrap();
    held.properties().set("tank", "compression", "off").unwrap();
    let [data, special, ..] = used_by_class(&held);
    assert!(special > 0 && data == 0, "the pool's own objects: {special}, data: {data}");
    write_file(&held, "tank", "large", &noise_bytes(1, 8 << 20));
    held.sync().unwrap();
    let [data, special, dedup, _] = used_by_class(&held);
    assert!((8 * MIB..9 * MIB).contains(&data), "{data}");
    create_filesystem(&held, "tank/small", &[("special_small_blocks", "16K")]);
    write_file(&held, "tank/small", "small", &noise_bytes(2, 16 << 10));
    write_file(&held, "tank/small", "too-large", &noise_bytes(3, 17 << 10));
    held.sync().unwrap();
    let [data_after, special_after, dedup_after, _] = used_by_class(&held);
    assert_eq!(data_after - data, 20 << 10, "the one that is too large, in whole sectors");
    assert!(special_after > special + (16 << 10) && dedup_after == dedup);
    create_filesystem(&held, "tank/dedup", &[("dedup", "on"), ("recordsize", "4K")]);
    write_file(&held, "tank/dedup", "first", &noise_bytes(4, 1 << 20));
    write_file(&held, "tank/dedup", "second", &noise_bytes(4, 1 << 20));
    held.sync().unwrap();
    assert!(used_by_class(&held)[2] > dedup, "the table is on the vdev for it");
    held.export().unwrap();
    drop(held);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
    let held =
        engine::pool::import(&[folder.path().into()], "tank", false, &environment()).unwrap();
    assert_eq!(read_file(&held, "tank/small", "small"), noise_bytes(2, 16 << 10));
    let purposes: Vec<_> = held.status().vdevs.into_iter().map(|vdev| vdev.class).collect();
    let named = |name: &str| Some(name.to_owned());
    assert_eq!(purposes, [None, named("special"), named("dedup"), named("log")]);
    write_file(&held, "tank", "later", &noise_bytes(9, 1 << 20));
    held.export().unwrap();
    drop(held);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}

#[test]
fn read_only_dataset_never_changes() {
    let folder = TempDir::new("readonly", 1, 128 * MIB);
    let pool = create_pool(&folder);
    write_file(&pool, "tank", "there", b"before");
    pool.properties().set("tank", "readonly", "on").unwrap();
    let fs = pool.datasets().filesystem("tank").unwrap();
    let made = fs.create(&credentials(), root_object(&fs), b"new", &NewInode::default());
    assert_eq!(made.err().unwrap().reason(), Reason::ReadOnly);
    let gone = fs.unlink(&credentials(), root_object(&fs), b"there");
    assert_eq!(gone.unwrap_err().reason(), Reason::ReadOnly);
    pool.properties().set("tank", "readonly", "off").unwrap();
    unlink_file(&pool, "tank", "there");
    pool.export().unwrap();
}

/// A block takes at least a sector, however small it is: dirty data takes more than its
/// bytes. Otherwise a txg could be too large for the pool, which would be suspended.
#[test]
fn blocks_below_a_sector_need_a_whole_sector() {
    for (shape, drives, name) in
        [(VdevLayout::Single, 1, "one"), (VdevLayout::Raidz(2), 4, "raidz2")]
    {
        let folder = TempDir::new(&format!("small-blocks-{name}"), drives, 256 * MIB);
        let held = engine::pool::create(&new_pool(&folder, shape, drives), &environment()).unwrap();
        held.properties().set("tank", "compression", "off").unwrap();
        held.properties().set("tank", "recordsize", "512").unwrap();
        let fs = held.datasets().filesystem("tank").unwrap();
        let make =
            |name: &[u8]| fs.create(&credentials(), root_object(&fs), name, &NewInode::default());
        let file = ObjectId::new(make(b"large").unwrap().ino());
        let error = (0_u32..).find_map(|written| {
            let at = WriteOffset::At(u64::from(written) * MIB);
            fs.write(&credentials(), file, at, &noise_bytes(written + 1, 1 << 20)).err()
        });
        assert_eq!(error.unwrap().reason(), Reason::NoSpace, "{name}");
        held.sync().unwrap();
        unlink_file(&held, "tank", "large");
        held.sync().unwrap();
        // small files have small blocks, whatever the recordsize is
        held.properties().set("tank", "recordsize", "128K").unwrap();
        let error = (0_u32..).find_map(|number| {
            let file = match make(format!("small-{number}").as_bytes()) {
                Ok(file) => ObjectId::new(file.ino()),
                Err(error) => return Some(error),
            };
            fs.write(&credentials(), file, WriteOffset::End, &noise_bytes(number + 1, 300)).err()
        });
        assert_eq!(error.unwrap().reason(), Reason::NoSpace, "{name}");
        held.sync().unwrap();
        fs.unlink(&credentials(), root_object(&fs), b"small-0").unwrap();
        held.sync().unwrap();
    }
}

/// Bytes that blocks take on the drives, and bytes that the root dataset counts as used.
fn referenced_and_used(folder: &TempDir) -> (u64, u64) {
    let search = engine::search(&[folder.path().into()]);
    let pool = search.open("tank", &engine::OpenOptions::default()).unwrap();
    let verify = engine::check::PoolVerifier::new(&pool, Arc::default()).unwrap();
    verify.work();
    while verify.next_round() {
        verify.work();
    }
    let referenced = verify.findings().space.iter().map(|space| space.referenced_bytes).sum();
    let wanted = engine::dataset::DatasetQuery { depth: Some(0), ..Default::default() };
    let mut used = Vec::new();
    let show = &mut |dataset: engine::dataset::Dataset| {
        used.push(dataset.property_value("used").unwrap().parse().unwrap());
    };
    pool.list_datasets("tank", &wanted, show, &mut |event| panic!("{event:?}")).unwrap();
    (referenced, used[0])
}

#[test]
fn used_space_is_exact_after_each_export() {
    let folder = TempDir::new("used", 1, 256 * MIB);
    let mut pool = create_pool(&folder);
    for round in 0..4_u32 {
        for name in ["one", "two"] {
            let name = format!("tank/{name}-{round}");
            create_filesystem(&pool, &name, &[]);
            write_file(&pool, &name, "film", &noise_bytes(round + 1, 200_000));
            pool.snapshots().create(&[format!("{name}@s")]).unwrap();
        }
        if round > 0 {
            pool.datasets().destroy(&format!("tank/one-{}@s", round - 1)).unwrap();
            pool.datasets().destroy(&format!("tank/one-{}", round - 1)).unwrap();
        }
        pool.export().unwrap();
        drop(pool);
        let (referenced, used) = referenced_and_used(&folder);
        assert_eq!(used, referenced, "round {round}");
        pool =
            engine::pool::import(&[folder.path().into()], "tank", false, &environment()).unwrap();
    }
    pool.export().unwrap();
}
