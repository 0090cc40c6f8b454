//! Files that have no name any more, or none yet.

use ondisk::acl::encode_posix;
use posix::{NewInode, XattrMode, acl::PosixAclEntry};
use units::ObjectId;
use zap::Zap;
use zpl::WriteSettings;

use crate::consistency;
use crate::test_fs::{TestFs, credentials, time_at};

fn root_id(pool: &TestFs) -> ObjectId {
    pool.writer.fs().master().root
}

#[test]
fn damaged_unlinked_file_does_not_block_others() {
    let pool = TestFs::new(WriteSettings::default());
    let (writer, top) = (&pool.writer, root_id(&pool));
    for number in 0..8 {
        let name = format!("file-{number}");
        let file = writer
            .create(&credentials(2), top, name.as_bytes(), &NewInode::default())
            .expect("file")
            .id;
        writer.hold_file(file).expect("hold");
        writer.unlink(&credentials(3), top, name.as_bytes()).expect("unlink");
    }
    let again = pool.reopen(WriteSettings::default());
    let master = again.writer.fs().master().clone();
    let set = Zap::open(again.objset.object(master.unlinked_set).expect("object")).expect("set");
    // tables are not files, whatever a damaged reference says
    let tables = [ObjectId::new(1), master.unlinked_set, master.sa_master];
    let tx = again.transactions.txgs.begin_tx().expect("a group");
    for table in tables {
        set.insert_u64(&tx, format!("{:x}", table.get()).as_bytes(), table.get()).expect("insert");
    }
    drop(tx);
    again.writer.drain_unlinked().expect("drain");
    let mut left = Vec::new();
    let mut note = |id| {
        left.push(id);
        true
    };
    again.writer.fs().for_each_unlinked(&mut note).expect("unlinked");
    left.sort();
    let mut wanted = tables.to_vec();
    wanted.sort();
    assert_eq!(left, wanted);
    let tx = again.transactions.txgs.begin_tx().expect("a group");
    for table in tables {
        set.remove(&tx, format!("{:x}", table.get()).as_bytes()).expect("remove");
    }
    drop(tx);
    consistency::check_consistency(&again.reopen_read_only());
}

#[test]
fn damaged_attribute_directory_frees_no_file() {
    let pool = TestFs::new(WriteSettings { xattr_sa: false, ..WriteSettings::default() });
    let (writer, top) = (&pool.writer, root_id(&pool));
    let create = |name: &[u8]| {
        writer.create(&credentials(2), top, name, &NewInode::default()).expect("file").id
    };
    let (owner, other) = (create(b"owner"), create(b"other"));
    writer.set_xattr(&credentials(3), owner, b"user.x", Some(b"1"), XattrMode::Any).expect("xattr");
    writer.hold_file(other).expect("hold");
    let dir = writer.fs().inode(owner).expect("owner").attributes().xattr_dir;
    let table = Zap::open(pool.objset.object(dir).expect("object")).expect("directory");
    let hidden = table.lookup_u64(b"user.x").expect("lookup").expect("entry") & ((1 << 48) - 1);
    let tx = pool.transactions.txgs.begin_tx().expect("a group");
    table.insert_u64(&tx, b"user.damaged", other.get()).expect("insert");
    drop(tx);
    writer.unlink(&credentials(4), top, b"owner").expect("unlink");
    assert!(
        pool.objset.object(ObjectId::new(hidden)).is_err(),
        "the attribute goes with its owner"
    );
    let names = writer.fs().inode(other).expect("the other file stays");
    assert_eq!(names.attributes().nlink, 1);
    writer.release_file(other).expect("release");
    consistency::check_consistency(&pool.reopen_read_only());
}

fn record_kinds(promises: &[zil::ReplayEntry]) -> Vec<String> {
    let kind = |entry: &zil::ReplayEntry| {
        let text = format!("{:?}", entry.record.body);
        text.split(['(', ' ']).next().unwrap_or_default().to_owned()
    };
    promises.iter().map(kind).collect()
}

/// After a crash the file is gone, with everything in it.
#[test]
fn attributes_of_nameless_files_are_not_logged() {
    let settings = WriteSettings { xattr_sa: false, ..WriteSettings::default() };
    let pool = TestFs::new(settings.clone());
    let (writer, top) = (&pool.writer, root_id(&pool));
    let set = |file, name: &[u8], value: Option<&[u8]>| {
        writer.set_xattr(&credentials(4), file, name, value, XattrMode::Any).expect("xattr");
    };
    // new files in this directory inherit an ACL
    let none = u32::MAX;
    let list = [(1, 6, none), (2, 7, 1001), (4, 5, none), (16, 7, none), (32, 0, none)];
    let list = list.map(|(tag, permissions, id)| PosixAclEntry { tag, permissions, id });
    let list = encode_posix(&list);
    set(top, b"system.posix_acl_default", Some(&list));
    let file = writer.create(&credentials(2), top, b"file", &NewInode::default()).expect("file").id;
    writer.hold_file(file).expect("hold");
    let start = pool.sync();
    *pool.transactions.records.lock() = Some(Vec::new());
    writer.unlink(&credentials(3), top, b"file").expect("unlink");
    set(file, b"user.big", Some(&vec![1; 40_000]));
    set(file, b"user.big", Some(&vec![2; 50_000]));
    set(file, b"user.big", None);
    let unnamed =
        writer.create_tmpfile(&credentials(5), top, &NewInode::default()).expect("unnamed").id;
    set(unnamed, b"user.big", Some(&vec![3; 40_000]));
    let promises = pool.transactions.records.lock().take().expect("promises");
    assert_eq!(record_kinds(&promises).first().map(String::as_str), Some("Remove"));
    let others = ["Create", "Remove", "Truncate", "Write"];
    let wrong = |kind: &&String| others.contains(&kind.as_str());
    assert_eq!(record_kinds(&promises[1..]).iter().find(wrong), None);
    let again = pool.reopen_from(&start, settings);
    for promise in &promises {
        again.writer.replay_record(time_at(9), promise).expect("replay");
    }
    again.writer.drain_unlinked().expect("drain");
    consistency::check_consistency(&again.reopen_read_only());
}

/// Logs of ours had such records once.
#[test]
fn records_of_a_missing_directory_are_skipped() {
    let pool = TestFs::new(WriteSettings { xattr_sa: false, ..WriteSettings::default() });
    let (writer, top) = (&pool.writer, root_id(&pool));
    let file = writer.create(&credentials(2), top, b"file", &NewInode::default()).expect("file").id;
    let start = pool.sync();
    *pool.transactions.records.lock() = Some(Vec::new());
    let big = vec![1; 40_000];
    for (value, time) in [(Some(big.as_slice()), 3), (None, 4)] {
        writer
            .set_xattr(&credentials(time), file, b"user.big", value, XattrMode::Any)
            .expect("xattr");
    }
    writer.unlink(&credentials(5), top, b"file").expect("unlink");
    let mut promises = pool.transactions.records.lock().take().expect("promises");
    assert_eq!(
        record_kinds(&promises).join(" "),
        "Create Create Truncate Write Remove SetXattr Remove"
    );
    promises.rotate_right(1);
    let again = pool.reopen_from(&start, WriteSettings::default());
    for promise in &promises {
        again.writer.replay_record(time_at(9), promise).expect("replay");
    }
    again.writer.drain_unlinked().expect("drain");
    consistency::check_consistency(&again.reopen_read_only());
}
