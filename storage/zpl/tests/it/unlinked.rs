//! Files that have no name any more, or none yet.

use ondisk::acl::{PosixEntry, encode_posix};
use units::ObjectId;
use zap::Zap;
use zpl::{New, Settings, XattrMode};

use crate::pool::{Pool, at, caller};
use crate::sound;

fn root(pool: &Pool) -> ObjectId {
    pool.writer.fs().master().root
}

#[test]
fn what_cannot_be_freed_keeps_nobody_from_the_rest() {
    let pool = Pool::new(Settings::default());
    let (writer, top) = (&pool.writer, root(&pool));
    for number in 0..8 {
        let name = format!("file-{number}");
        let file = writer.make(&caller(2), top, name.as_bytes(), &New::default()).expect("file").id;
        writer.hold(file).expect("hold");
        writer.unlink(&caller(3), top, name.as_bytes()).expect("unlink");
    }
    let again = pool.again(Settings::default());
    let master = again.writer.fs().master().clone();
    let set = Zap::open(again.objset.object(master.unlinked).expect("object")).expect("set");
    // tables are no files, whatever damage says of them
    let tables = [ObjectId::new(1), master.unlinked, master.attributes];
    let tx = again.host.groups.begin().expect("a group");
    for table in tables {
        set.insert_u64(&tx, format!("{:x}", table.get()).as_bytes(), table.get()).expect("insert");
    }
    drop(tx);
    again.writer.drain().expect("drain");
    let mut left = Vec::new();
    let mut note = |id| {
        left.push(id);
        true
    };
    again.writer.fs().unlinked(&mut note).expect("unlinked");
    left.sort();
    let mut wanted = tables.to_vec();
    wanted.sort();
    assert_eq!(left, wanted);
    let tx = again.host.groups.begin().expect("a group");
    for table in tables {
        set.remove(&tx, format!("{:x}", table.get()).as_bytes()).expect("remove");
    }
    drop(tx);
    sound::check(&again.cold());
}

fn kinds(promises: &[zil::Entry]) -> Vec<String> {
    let kind = |entry: &zil::Entry| {
        let text = format!("{:?}", entry.record.body);
        text.split(['(', ' ']).next().unwrap_or_default().to_owned()
    };
    promises.iter().map(kind).collect()
}

/// After a crash there is no such file, nor anything that could be made in it.
#[test]
fn nothing_is_promised_in_the_directory_of_attributes_of_a_file_without_a_name() {
    let settings = Settings { xattr_sa: false, ..Settings::default() };
    let pool = Pool::new(settings.clone());
    let (writer, top) = (&pool.writer, root(&pool));
    let set = |file, name: &[u8], value: Option<&[u8]>| {
        writer.set_xattr(&caller(4), file, name, value, XattrMode::Any).expect("xattr");
    };
    // what is made in this directory inherits an access list
    let none = u32::MAX;
    let list = [(1, 6, none), (2, 7, 1001), (4, 5, none), (16, 7, none), (32, 0, none)];
    let list = list.map(|(tag, permissions, id)| PosixEntry { tag, permissions, id });
    let list = encode_posix(&list);
    set(top, b"system.posix_acl_default", Some(&list));
    let file = writer.make(&caller(2), top, b"file", &New::default()).expect("file").id;
    writer.hold(file).expect("hold");
    let start = pool.sync();
    *pool.host.promises.lock() = Some(Vec::new());
    writer.unlink(&caller(3), top, b"file").expect("unlink");
    set(file, b"user.big", Some(&vec![1; 40_000]));
    set(file, b"user.big", Some(&vec![2; 50_000]));
    set(file, b"user.big", None);
    let unnamed = writer.make_unnamed(&caller(5), top, &New::default()).expect("unnamed").id;
    set(unnamed, b"user.big", Some(&vec![3; 40_000]));
    let promises = pool.host.promises.lock().take().expect("promises");
    assert_eq!(kinds(&promises).first().map(String::as_str), Some("Remove"));
    let others = ["Create", "Remove", "Truncate", "Write"];
    let wrong = |kind: &&String| others.contains(&kind.as_str());
    assert_eq!(kinds(&promises[1..]).iter().find(wrong), None);
    let again = pool.again_from(&start, settings);
    for promise in &promises {
        again.writer.replay(at(9), promise).expect("replay");
    }
    again.writer.drain().expect("drain");
    sound::check(&again.cold());
}

/// Logs of ours had such records once.
#[test]
fn names_in_a_directory_that_is_gone_are_passed_over() {
    let pool = Pool::new(Settings { xattr_sa: false, ..Settings::default() });
    let (writer, top) = (&pool.writer, root(&pool));
    let file = writer.make(&caller(2), top, b"file", &New::default()).expect("file").id;
    let start = pool.sync();
    *pool.host.promises.lock() = Some(Vec::new());
    let big = vec![1; 40_000];
    for (value, time) in [(Some(big.as_slice()), 3), (None, 4)] {
        writer.set_xattr(&caller(time), file, b"user.big", value, XattrMode::Any).expect("xattr");
    }
    writer.unlink(&caller(5), top, b"file").expect("unlink");
    let mut promises = pool.host.promises.lock().take().expect("promises");
    assert_eq!(kinds(&promises).join(" "), "Create Create Truncate Write Remove SetXattr Remove");
    promises.rotate_right(1);
    let again = pool.again_from(&start, Settings::default());
    for promise in &promises {
        again.writer.replay(at(9), promise).expect("replay");
    }
    again.writer.drain().expect("drain");
    sound::check(&again.cold());
}
