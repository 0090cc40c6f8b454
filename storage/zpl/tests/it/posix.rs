//! What POSIX and Linux want, case by case.

use ondisk::acl::{PosixEntry, encode_posix};
use ondisk::zap::Normalization;
use ondisk::znode::flag;
use units::ObjectId;
use zpl::{
    Atime, Case, Error, Kind, Move, MoveKind, New, NewFs, Position, Set, Settings, Stretch, Writer,
    XattrMode,
};

use crate::pool::{Pool, at, caller, new_fs};
use crate::sound;

fn directory() -> New<'static> {
    New { kind: Kind::Directory, mode: 0o777, ..New::default() }
}

fn root(pool: &Pool) -> ObjectId {
    pool.writer.fs().master().root
}

fn mode(writer: &Writer, id: ObjectId) -> u32 {
    writer.fs().attributes(id).expect("attributes").mode
}

#[test]
fn a_directory_hands_its_group_down() {
    let pool = Pool::new(Settings::default());
    let writer = &pool.writer;
    let dir = writer.make(&caller(2), root(&pool), b"dir", &directory()).expect("dir").id;
    let set = Set { mode: Some(0o2775), gid: Some(7), ..Set::default() };
    writer.set(&caller(3), dir, &set).expect("set");
    assert_eq!(mode(writer, dir), 0o2775);
    let sub = writer.make(&caller(4), dir, b"sub", &directory()).expect("sub");
    assert_eq!((sub.attributes.gid, sub.attributes.mode), (7, 0o2755));
    let tool = New { mode: 0o2755, umask: 0, ..New::default() };
    let tool = writer.make(&caller(5), dir, b"tool", &tool).expect("tool");
    assert_eq!((tool.attributes.gid, tool.attributes.mode), (7, 0o755));
}

#[test]
fn writing_and_a_new_owner_take_set_user_away() {
    let pool = Pool::new(Settings::default());
    let writer = &pool.writer;
    let new = New { mode: 0o6755, umask: 0, ..New::default() };
    let file = writer.make(&caller(2), root(&pool), b"tool", &new).expect("tool").id;
    let privileged = zpl::Caller { keeps_setid: true, ..caller(3) };
    writer.write(&privileged, file, Position::End, b"one").expect("write");
    assert_eq!(mode(writer, file), 0o6755);
    writer.write(&caller(4), file, Position::End, b"two").expect("write");
    assert_eq!(mode(writer, file), 0o755);
    writer.set(&caller(5), file, &Set { mode: Some(0o6755), ..Set::default() }).expect("set");
    writer.set(&caller(6), file, &Set { uid: Some(5), ..Set::default() }).expect("set");
    assert_eq!(mode(writer, file), 0o755);
    // as the kernel has it: set-group means something else where the group may not execute
    for (before, after) in [(0o6644, 0o2644), (0o6744, 0o2744), (0o6654, 0o654), (0o4644, 0o644)] {
        let again = Set { mode: Some(before), ..Set::default() };
        writer.set(&caller(7), file, &again).expect("set");
        writer.write(&caller(8), file, Position::At(0), b"o").expect("write");
        assert_eq!(mode(writer, file), after, "{before:o}");
        writer.set(&caller(9), file, &again).expect("set");
        writer.set(&caller(9), file, &Set { size: Some(6), ..Set::default() }).expect("set");
        assert_eq!(mode(writer, file), after, "{before:o}");
    }
    let node = pool.cold().node(file).expect("node");
    let mut bytes = [0; 9];
    assert_eq!(node.read(0, &mut bytes).expect("read"), 6);
    assert_eq!(&bytes[..6], b"onetwo");
}

fn list(rows: &[(u16, u16, u32)]) -> Vec<u8> {
    let entry = |(tag, permissions, id): &(u16, u16, u32)| PosixEntry {
        tag: *tag,
        permissions: *permissions,
        id: *id,
    };
    encode_posix(&rows.iter().map(entry).collect::<Vec<_>>())
}

const NOBODY: u32 = u32::MAX;

#[test]
fn posix_acls_are_inherited_and_follow_the_mode() {
    for xattr_sa in [true, false] {
        let pool = Pool::new(Settings { xattr_sa, ..Settings::default() });
        let writer = &pool.writer;
        let dir = writer.make(&caller(2), root(&pool), b"dir", &directory()).expect("dir").id;
        let default =
            list(&[(1, 7, NOBODY), (2, 7, 42), (4, 5, NOBODY), (16, 7, NOBODY), (32, 0, NOBODY)]);
        let (access, inherited) =
            (&b"system.posix_acl_access"[..], &b"system.posix_acl_default"[..]);
        let put = |id, name: &[u8], value: Option<&[u8]>| {
            writer.set_xattr(&caller(3), id, name, value, XattrMode::Any)
        };
        put(dir, inherited, Some(&default)).expect("default ACL");
        let file = writer.make(&caller(4), dir, b"file", &New::default()).expect("file");
        assert_eq!(file.attributes.mode, 0o660);
        let sub = writer.make(&caller(5), dir, b"sub", &directory()).expect("sub");
        assert_eq!(sub.attributes.mode, 0o770);
        writer.set(&caller(6), file.id, &Set { mode: Some(0o604), ..Set::default() }).expect("set");
        let fs = pool.cold();
        let shown = |id, name| fs.node(id).expect("node").xattr(name).expect("xattr");
        assert_eq!(shown(sub.id, inherited), Some(default.clone()));
        let after =
            list(&[(1, 6, NOBODY), (2, 7, 42), (4, 5, NOBODY), (16, 0, NOBODY), (32, 4, NOBODY)]);
        assert_eq!(shown(file.id, access), Some(after));
        // one that says no more than the mode is not kept
        let small = list(&[(1, 7, NOBODY), (4, 1, NOBODY), (32, 0, NOBODY)]);
        put(file.id, access, Some(&small)).expect("ACL");
        assert_eq!(mode(writer, file.id), 0o710);
        assert_eq!(writer.fs().node(file.id).expect("node").xattr(access), Ok(None));
        assert!(matches!(put(file.id, access, Some(b"no")), Err(Error::Invalid { .. })));
        assert!(matches!(put(file.id, inherited, Some(&small)), Err(Error::NotPermitted { .. })));
        sound::check(&pool.cold());
    }
}

#[test]
fn names_of_extended_attributes_can_be_any_bytes() {
    let pool = Pool::new(Settings::default());
    let writer = &pool.writer;
    let file = writer.make(&caller(2), root(&pool), b"file", &New::default()).expect("made").id;
    let names = [&b"user.\xff"[..], b"user.\xfe", b"user.text"];
    for name in names {
        writer.set_xattr(&caller(3), file, name, Some(name), XattrMode::New).expect("set");
    }
    let node = pool.cold().node(file).expect("node");
    assert!(!node.attributes().xattr_dir.exists(), "all are kept with the other attributes");
    for name in names {
        assert_eq!(node.xattr(name), Ok(Some(name.to_vec())));
    }
    writer.set_xattr(&caller(4), file, names[0], None, XattrMode::Any).expect("removed");
    let node = pool.cold().node(file).expect("node");
    assert_eq!(node.xattrs().expect("names").len(), 2);
    assert_eq!(node.xattr(names[1]), Ok(Some(names[1].to_vec())));
}

#[test]
fn extended_attributes_can_be_asked_to_be_new_or_there() {
    let pool = Pool::new(Settings::default());
    let (writer, file) = (&pool.writer, root(&pool));
    let put =
        |value: Option<&[u8]>, mode| writer.set_xattr(&caller(2), file, b"user.x", value, mode);
    assert!(matches!(put(Some(b"1"), XattrMode::There), Err(Error::NoXattr { .. })));
    put(Some(b"1"), XattrMode::New).expect("new");
    assert!(matches!(put(Some(b"2"), XattrMode::New), Err(Error::Exists { .. })));
    put(Some(b"3"), XattrMode::There).expect("there");
    assert_eq!(writer.fs().root().expect("root").xattr(b"user.x"), Ok(Some(b"3".to_vec())));
    put(None, XattrMode::Any).expect("gone");
    assert!(matches!(put(None, XattrMode::Any), Err(Error::NoXattr { .. })));
    assert_eq!(writer.fs().root().expect("root").xattrs(), Ok(Vec::new()));
}

#[test]
fn flags_forbid() {
    let pool = Pool::new(Settings::default());
    let (writer, top) = (&pool.writer, root(&pool));
    let file = writer.make(&caller(2), top, b"file", &New::default()).expect("file").id;
    let flags = |which, on: bool| {
        let set = Set { flags: Some((which, if on { which } else { 0 })), ..Set::default() };
        writer.set(&caller(3), file, &set).expect("flags");
    };
    let forbidden = |result: zpl::Result<()>| {
        assert!(matches!(result, Err(Error::NotPermitted { .. })), "{result:?}");
    };
    flags(flag::IMMUTABLE, true);
    forbidden(writer.write(&caller(4), file, Position::End, b"x").map(drop));
    forbidden(writer.unlink(&caller(4), top, b"file"));
    forbidden(writer.link(&caller(4), file, top, b"more"));
    forbidden(writer.set(&caller(4), file, &Set { mode: Some(0), ..Set::default() }));
    flags(flag::IMMUTABLE, false);
    flags(flag::APPENDONLY, true);
    writer.write(&caller(5), file, Position::End, b"xyz").expect("append");
    forbidden(writer.write(&caller(5), file, Position::At(1), b"x").map(drop));
    forbidden(writer.truncate(&caller(5), file, 0));
    flags(flag::APPENDONLY, false);
    writer.unlink(&caller(6), top, b"file").expect("unlink");
}

#[test]
fn what_a_crash_left_unlinked_is_freed() {
    let pool = Pool::new(Settings { record_size: 512, xattr_sa: false, ..Settings::default() });
    let (writer, top) = (&pool.writer, root(&pool));
    let file = writer.make(&caller(2), top, b"file", &New::default()).expect("file").id;
    writer.write(&caller(3), file, Position::End, &vec![7; 100_000]).expect("write");
    let mode = XattrMode::Any;
    writer.set_xattr(&caller(4), file, b"user.x", Some(b"y"), mode).expect("xattr");
    writer.hold(file).expect("hold");
    writer.unlink(&caller(5), top, b"file").expect("unlink");
    assert!(matches!(writer.unlink(&caller(5), top, b"file"), Err(Error::NoEntry { .. })));
    let mut bytes = [0; 3];
    assert_eq!(writer.fs().node(file).expect("held").read(99_999, &mut bytes), Ok(1));
    // a power failure: what is stored is opened anew
    let again = pool.again(Settings::default());
    let mut left = Vec::new();
    let mut look = |id| {
        left.push(id);
        true
    };
    again.writer.fs().unlinked(&mut look).expect("unlinked");
    assert_eq!(left, [file]);
    again.writer.drain().expect("drain");
    sound::check(&again.cold());
    assert!(again.writer.fs().node(file).is_err());
}

#[test]
fn a_file_without_a_name_gets_one() {
    let pool = Pool::new(Settings::default());
    let (writer, top) = (&pool.writer, root(&pool));
    let made = writer.make_unnamed(&caller(2), top, &New::default()).expect("file");
    assert_eq!(made.attributes.links, 0);
    writer.write(&caller(3), made.id, Position::End, b"text").expect("write");
    writer.link(&caller(4), made.id, top, b"name").expect("link");
    writer.release(made.id).expect("release");
    let fs = pool.cold();
    assert_eq!(fs.find(b"name").expect("find").expect("file").attributes().links, 1);
    sound::check(&fs);
}

#[test]
fn a_whiteout_is_left() {
    let pool = Pool::new(Settings::default());
    let (writer, top) = (&pool.writer, root(&pool));
    writer.make(&caller(2), top, b"old", &New::default()).expect("file");
    let kind = MoveKind::Whiteout;
    let how = Move { from_dir: top, from: b"old", to_dir: top, to: b"new", kind };
    writer.rename(&caller(3), &how).expect("rename");
    let fs = pool.cold();
    let left = *fs.find(b"old").expect("find").expect("whiteout").attributes();
    assert_eq!((left.kind, left.mode, left.rdev), (Kind::CharDevice, 0, (0, 0)));
    assert_eq!(fs.find(b"new").expect("find").expect("file").attributes().kind, Kind::File);
    sound::check(&fs);
}

#[test]
fn a_name_can_be_respelled_where_case_does_not_count() {
    let new = NewFs { case: Case::Insensitive, utf8_only: true, ..new_fs() };
    let pool = Pool::of(&new, Settings::default());
    let (writer, top) = (&pool.writer, root(&pool));
    writer.make(&caller(2), top, b"tim", &New::default()).expect("file");
    let exists = writer.make(&caller(2), top, b"TIM", &New::default());
    assert!(matches!(exists, Err(Error::Exists { .. })));
    let kind = MoveKind::NoReplace;
    let how = Move { from_dir: top, from: b"tim", to_dir: top, to: b"Tim", kind };
    writer.rename(&caller(3), &how).expect("rename");
    let latin = writer.make(&caller(4), top, b"\xe9t\xe9", &New::default());
    assert!(matches!(latin, Err(Error::NameNotUtf8 { .. })));
    let fs = pool.cold();
    let names: Vec<_> = fs
        .list(&fs.root().expect("root"))
        .expect("names")
        .into_iter()
        .map(|one| one.name)
        .collect();
    assert_eq!(names, [b"Tim".to_vec()]);
    writer.unlink(&caller(5), top, b"tIM").expect("unlink");
    sound::check(&pool.cold());
}

#[test]
fn names_have_a_length() {
    let pool = Pool::new(Settings::default());
    let (writer, top) = (&pool.writer, root(&pool));
    let long = [b'n'; 256];
    writer.make(&caller(2), top, &long[1..], &New::default()).expect("255 bytes");
    let refused = writer.make(&caller(2), top, &long, &New::default());
    assert!(matches!(refused, Err(Error::NameTooLong { most: 255, .. })));
    writer.set_settings(Settings { long_names: true, ..Settings::default() });
    writer.make(&caller(2), top, &long, &New::default()).expect("256 bytes");
    for name in [&b"."[..], b"..", b"", b"a/b", b"a\0b"] {
        let refused = writer.make(&caller(2), top, name, &New::default());
        assert!(matches!(refused, Err(Error::Invalid { .. })));
    }
    sound::check(&pool.cold());
}

/// OpenZFS makes the form in as much room, and finds nothing whose form does not fit.
#[test]
fn names_have_a_length_as_they_are_compared() {
    let new = NewFs { normalization: Normalization::NFKD.0, ..new_fs() };
    let pool = Pool::of(&new, Settings::default());
    let (writer, top) = (&pool.writer, root(&pool));
    // two bytes each, which become three; three bytes, which become two
    let (fits, long) = ("\u{e9}".repeat(85), "\u{e9}".repeat(86));
    writer.make(&caller(2), top, fits.as_bytes(), &New::default()).expect("255 bytes at last");
    let refused = writer.make(&caller(2), top, long.as_bytes(), &New::default());
    assert!(matches!(refused, Err(Error::FoldedTooLong { most: 255, .. })), "{refused:?}");
    let how = Move {
        from_dir: top,
        from: fits.as_bytes(),
        to_dir: top,
        to: long.as_bytes(),
        kind: MoveKind::Replace,
    };
    assert!(matches!(writer.rename(&caller(3), &how), Err(Error::FoldedTooLong { .. })));
    let becomes_short = "\u{fb01}".repeat(85);
    writer.make(&caller(4), top, becomes_short.as_bytes(), &New::default()).expect("170 bytes");
    // longer names have more room
    writer.set_settings(Settings { long_names: true, ..Settings::default() });
    let refused = writer.make(&caller(5), top, long.as_bytes(), &New::default());
    assert!(matches!(refused, Err(Error::FoldedTooLong { most: 255, .. })), "{refused:?}");
    let longer = "\u{e9}".repeat(128);
    writer.make(&caller(5), top, longer.as_bytes(), &New::default()).expect("384 bytes at last");
    sound::check(&pool.cold());
}

#[test]
fn reading_changes_atime_as_the_dataset_wants() {
    let pool = Pool::new(Settings::default());
    let (writer, top) = (&pool.writer, root(&pool));
    let atime = || writer.fs().attributes(top).expect("attributes").atime;
    writer.accessed(top, at(50)).expect("read");
    assert_eq!(atime(), at(50), "it was not newer than the other times");
    writer.accessed(top, at(60)).expect("read");
    assert_eq!(atime(), at(50), "it was");
    writer.accessed(top, at(50 + 86400)).expect("read");
    assert_eq!(atime(), at(50 + 86400), "it was a day old");
    writer.set_settings(Settings { atime: Atime::Off, ..Settings::default() });
    writer.accessed(top, at(1 << 40)).expect("read");
    assert_eq!(atime(), at(50 + 86400));
}

#[test]
fn an_nfs4_acl_sets_the_mode() {
    use ondisk::acl::{Entry, Who};
    let pool = Pool::new(Settings::default());
    let (writer, top) = (&pool.writer, root(&pool));
    let file = writer.make(&caller(2), top, b"file", &New::default()).expect("file").id;
    let entry = |who, kind, mask| Entry { who, kind, flags: 0, mask, object: None };
    let entries =
        vec![entry(Who::User(42), 0, 0x3), entry(Who::Owner, 0, 0x3), entry(Who::Everyone, 0, 0x1)];
    writer.set_acl(&caller(3), file, &entries).expect("ACL");
    let node = pool.cold().node(file).expect("node");
    let acl = node.acl().expect("ACL");
    assert_eq!((node.attributes().mode, acl.is_trivial, acl.entries), (0o644, false, entries));
    writer.set(&caller(4), file, &Set { mode: Some(0o600), ..Set::default() }).expect("chmod");
    assert!(writer.fs().node(file).expect("node").acl().expect("ACL").is_trivial);
}

#[test]
fn all_that_is_done_is_promised_to_the_log() {
    let pool = Pool::new(Settings { xattr_sa: false, ..Settings::default() });
    let (writer, top) = (&pool.writer, root(&pool));
    *pool.host.promises.lock() = Some(Vec::new());
    let file = writer.make(&caller(2), top, b"file", &New::default()).expect("file").id;
    writer.make(&caller(2), top, b"dir", &directory()).expect("dir");
    writer.write(&caller(3), file, Position::End, b"text").expect("write");
    writer.truncate(&caller(3), file, 2).expect("truncate");
    writer.punch(&caller(3), file, 0..1).expect("punch");
    writer.link(&caller(4), file, top, b"more").expect("link");
    let how =
        Move { from_dir: top, from: b"more", to_dir: top, to: b"other", kind: MoveKind::default() };
    writer.rename(&caller(5), &how).expect("rename");
    writer.set(&caller(6), file, &Set { mode: Some(0o600), ..Set::default() }).expect("set");
    let value = Some(&b"value"[..]);
    writer.set_xattr(&caller(7), file, b"user.x", value, XattrMode::Any).expect("xattr");
    writer.unlink(&caller(8), top, b"file").expect("unlink");
    writer.rmdir(&caller(9), top, b"dir").expect("rmdir");
    let promises = pool.host.promises.lock().take().expect("promises");
    let kind = |entry: &zil::Entry| {
        let text = format!("{:?}", entry.record.body);
        text.split(['(', ' ']).next().unwrap_or_default().to_owned()
    };
    let kinds: Vec<String> = promises.iter().map(kind).collect();
    // in the second line the hidden directory, the file in it, its content
    let wanted = "Create Create Write SetAttr Truncate Link Rename SetAttr \
        Create Create Truncate Write Remove RemoveDirectory";
    assert_eq!(kinds.join(" "), wanted);
}

/// OpenZFS takes where the values are from its own number of words, whatever number is said.
#[test]
fn what_attributes_are_set_is_promised_in_three_words() {
    let pool = Pool::new(Settings::default());
    let (writer, top) = (&pool.writer, root(&pool));
    let file = writer.make(&caller(2), top, b"file", &New::default()).expect("file").id;
    *pool.host.promises.lock() = Some(Vec::new());
    let flags = Some((flag::NODUMP | flag::IMMUTABLE, flag::NODUMP));
    let set = Set { flags, project: Some(77), ..Set::default() };
    writer.set(&caller(3), file, &set).expect("set");
    let promises = pool.host.promises.lock().take().expect("promises");
    let [entry] = promises.as_slice() else { panic!("{promises:?}") };
    let ondisk::zil::Body::SetAttr(told) = &entry.record.body else { panic!("{entry:?}") };
    let extra = told.attributes.as_ref().expect("attributes");
    assert_eq!(extra.requested, [0x40 | 0x100 | 0x40000, 0, 0]);
    assert_eq!((extra.values, extra.project), (0x100, 77));
}

#[test]
fn only_directories_have_names_in_them() {
    let pool = Pool::new(Settings::default());
    let (writer, top) = (&pool.writer, root(&pool));
    let file = writer.make(&caller(2), top, b"file", &New::default()).expect("file").id;
    let how =
        Move { from_dir: top, from: b"file", to_dir: file, to: b"name", kind: MoveKind::default() };
    let results = [
        writer.make(&caller(3), file, b"name", &New::default()).map(drop),
        writer.unlink(&caller(3), file, b"name"),
        writer.rmdir(&caller(3), file, b"name"),
        writer.rename(&caller(3), &how),
    ];
    for result in results {
        assert!(matches!(result, Err(Error::NotDirectory { .. })), "{result:?}");
    }
}

#[test]
fn a_file_of_which_nothing_could_be_shared_keeps_its_size() {
    let pool = Pool::new(Settings { record_size: 512, ..Settings::default() });
    let writer = &pool.writer;
    let make = |name: &[u8]| writer.make(&caller(2), root(&pool), name, &New::default());
    let (from, to) = (make(b"from").expect("made").id, make(b"to").expect("made").id);
    writer.write(&caller(3), from, Position::At(0), &[7; 1024]).expect("write");
    let stretch = Stretch { from, start: 0, to, at: 4096, length: 1024 };
    // it waits to be written
    assert_eq!(writer.share(&caller(4), &stretch), Ok(0));
    assert_eq!(writer.fs().attributes(to).expect("attributes").size, 0);
    pool.sync();
    assert_eq!(writer.share(&caller(5), &stretch), Ok(1024));
    assert_eq!(writer.fs().attributes(to).expect("attributes").size, 5120);
}
