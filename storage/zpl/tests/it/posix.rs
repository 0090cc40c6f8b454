//! The rules of POSIX and Linux, case by case.

use ondisk::acl::encode_posix;
use ondisk::zap::Normalization;
use posix::{
    Capability, ChangeContext, CloneRange, FileFlags, FileType, FlagChange, NewInode, RenameMode,
    RenameRequest, SetAttributes, WriteOffset, XattrMode, acl::Ace, acl::AceWho,
    acl::PosixAclEntry,
};
use units::ObjectId;
use zpl::{AtimeMode, CaseSensitivity, Error, FsCreateOptions, FsWriter, WriteSettings};

use crate::consistency;
use crate::test_fs::{TestFs, credentials, fs_options, time_at};

fn new_directory() -> NewInode<'static> {
    NewInode { kind: FileType::Directory, mode: 0o777, ..NewInode::default() }
}

fn root_id(pool: &TestFs) -> ObjectId {
    pool.writer.fs().master().root
}

fn mode_of(writer: &FsWriter, id: ObjectId) -> u32 {
    writer.fs().attributes(id).expect("attributes").mode
}

#[test]
fn a_directory_hands_its_group_down() {
    let pool = TestFs::new(WriteSettings::default());
    let writer = &pool.writer;
    let dir =
        writer.create(&credentials(2), root_id(&pool), b"dir", &new_directory()).expect("dir").id;
    let set = SetAttributes { mode: Some(0o2775), gid: Some(7), ..SetAttributes::default() };
    writer.set_attributes(&credentials(3), dir, &set).expect("set");
    assert_eq!(mode_of(writer, dir), 0o2775);
    let sub = writer.create(&credentials(4), dir, b"sub", &new_directory()).expect("sub");
    assert_eq!((sub.attributes.gid, sub.attributes.mode), (7, 0o2755));
    let tool = NewInode { mode: 0o2755, umask: 0, ..NewInode::default() };
    let tool = writer.create(&credentials(5), dir, b"tool", &tool).expect("tool");
    assert_eq!((tool.attributes.gid, tool.attributes.mode), (7, 0o755));
}

#[test]
fn write_and_chown_clear_set_user_id() {
    let pool = TestFs::new(WriteSettings::default());
    let writer = &pool.writer;
    let new = NewInode { mode: 0o6755, umask: 0, ..NewInode::default() };
    let file = writer.create(&credentials(2), root_id(&pool), b"tool", &new).expect("tool").id;
    let base = credentials(3);
    let privileged = ChangeContext {
        credentials: base.credentials.with_capability(Capability::FileSetId),
        now: base.now,
    };
    writer.write(&privileged, file, WriteOffset::End, b"one").expect("write");
    assert_eq!(mode_of(writer, file), 0o6755);
    writer.write(&credentials(4), file, WriteOffset::End, b"two").expect("write");
    assert_eq!(mode_of(writer, file), 0o755);
    writer
        .set_attributes(
            &credentials(5),
            file,
            &SetAttributes { mode: Some(0o6755), ..SetAttributes::default() },
        )
        .expect("set");
    writer
        .set_attributes(
            &credentials(6),
            file,
            &SetAttributes { uid: Some(5), ..SetAttributes::default() },
        )
        .expect("set");
    assert_eq!(mode_of(writer, file), 0o755);
    // as the kernel has it: set-group means something else where the group may not execute
    for (before, after) in [(0o6644, 0o2644), (0o6744, 0o2744), (0o6654, 0o654), (0o4644, 0o644)] {
        let again = SetAttributes { mode: Some(before), ..SetAttributes::default() };
        writer.set_attributes(&credentials(7), file, &again).expect("set");
        writer.write(&credentials(8), file, WriteOffset::At(0), b"o").expect("write");
        assert_eq!(mode_of(writer, file), after, "{before:o}");
        writer.set_attributes(&credentials(9), file, &again).expect("set");
        writer
            .set_attributes(
                &credentials(9),
                file,
                &SetAttributes { size: Some(6), ..SetAttributes::default() },
            )
            .expect("set");
        assert_eq!(mode_of(writer, file), after, "{before:o}");
    }
    let node = pool.reopen_read_only().inode(file).expect("node");
    let mut bytes = [0; 9];
    assert_eq!(node.read(0, &mut bytes).expect("read"), 6);
    assert_eq!(&bytes[..6], b"onetwo");
}

fn encode_acl_rows(rows: &[(u16, u16, u32)]) -> Vec<u8> {
    let entry = |(tag, permissions, id): &(u16, u16, u32)| PosixAclEntry {
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
        let pool = TestFs::new(WriteSettings { xattr_sa, ..WriteSettings::default() });
        let writer = &pool.writer;
        let dir = writer
            .create(&credentials(2), root_id(&pool), b"dir", &new_directory())
            .expect("dir")
            .id;
        let default = encode_acl_rows(&[
            (1, 7, NOBODY),
            (2, 7, 42),
            (4, 5, NOBODY),
            (16, 7, NOBODY),
            (32, 0, NOBODY),
        ]);
        let (access, inherited) =
            (&b"system.posix_acl_access"[..], &b"system.posix_acl_default"[..]);
        let put = |id, name: &[u8], value: Option<&[u8]>| {
            writer.set_xattr(&credentials(3), id, name, value, XattrMode::Any)
        };
        put(dir, inherited, Some(&default)).expect("default ACL");
        let file =
            writer.create(&credentials(4), dir, b"file", &NewInode::default()).expect("file");
        assert_eq!(file.attributes.mode, 0o660);
        let sub = writer.create(&credentials(5), dir, b"sub", &new_directory()).expect("sub");
        assert_eq!(sub.attributes.mode, 0o770);
        writer
            .set_attributes(
                &credentials(6),
                file.id,
                &SetAttributes { mode: Some(0o604), ..SetAttributes::default() },
            )
            .expect("set");
        let fs = pool.reopen_read_only();
        let shown = |id, name| fs.inode(id).expect("node").xattr(name).expect("xattr");
        assert_eq!(shown(sub.id, inherited), Some(default.clone()));
        let after = encode_acl_rows(&[
            (1, 6, NOBODY),
            (2, 7, 42),
            (4, 5, NOBODY),
            (16, 0, NOBODY),
            (32, 4, NOBODY),
        ]);
        assert_eq!(shown(file.id, access), Some(after));
        // a trivial one is not stored
        let small = encode_acl_rows(&[(1, 7, NOBODY), (4, 1, NOBODY), (32, 0, NOBODY)]);
        put(file.id, access, Some(&small)).expect("ACL");
        assert_eq!(mode_of(writer, file.id), 0o710);
        assert_eq!(writer.fs().inode(file.id).expect("node").xattr(access), Ok(None));
        assert!(matches!(put(file.id, access, Some(b"no")), Err(Error::Invalid { .. })));
        assert!(matches!(put(file.id, inherited, Some(&small)), Err(Error::NotPermitted { .. })));
        consistency::check_consistency(&pool.reopen_read_only());
    }
}

#[test]
fn names_of_extended_attributes_can_be_any_bytes() {
    let pool = TestFs::new(WriteSettings::default());
    let writer = &pool.writer;
    let file = writer
        .create(&credentials(2), root_id(&pool), b"file", &NewInode::default())
        .expect("made")
        .id;
    let names = [&b"user.\xff"[..], b"user.\xfe", b"user.text"];
    for name in names {
        writer.set_xattr(&credentials(3), file, name, Some(name), XattrMode::Create).expect("set");
    }
    let node = pool.reopen_read_only().inode(file).expect("node");
    assert!(!node.attributes().xattr_dir.exists(), "all are kept with the other attributes");
    for name in names {
        assert_eq!(node.xattr(name), Ok(Some(name.to_vec())));
    }
    writer.set_xattr(&credentials(4), file, names[0], None, XattrMode::Any).expect("removed");
    let node = pool.reopen_read_only().inode(file).expect("node");
    assert_eq!(node.xattrs().expect("names").len(), 2);
    assert_eq!(node.xattr(names[1]), Ok(Some(names[1].to_vec())));
}

#[test]
fn setxattr_supports_create_and_replace() {
    let pool = TestFs::new(WriteSettings::default());
    let (writer, file) = (&pool.writer, root_id(&pool));
    let put = |value: Option<&[u8]>, mode| {
        writer.set_xattr(&credentials(2), file, b"user.x", value, mode)
    };
    assert!(matches!(put(Some(b"1"), XattrMode::Replace), Err(Error::NoXattr { .. })));
    put(Some(b"1"), XattrMode::Create).expect("new");
    assert!(matches!(put(Some(b"2"), XattrMode::Create), Err(Error::Exists { .. })));
    put(Some(b"3"), XattrMode::Replace).expect("there");
    assert_eq!(writer.fs().root().expect("root").xattr(b"user.x"), Ok(Some(b"3".to_vec())));
    put(None, XattrMode::Any).expect("gone");
    assert!(matches!(put(None, XattrMode::Any), Err(Error::NoXattr { .. })));
    assert_eq!(writer.fs().root().expect("root").xattrs(), Ok(Vec::new()));
}

#[test]
fn flags_forbid() {
    let pool = TestFs::new(WriteSettings::default());
    let (writer, top) = (&pool.writer, root_id(&pool));
    let file = writer.create(&credentials(2), top, b"file", &NewInode::default()).expect("file").id;
    let flags = |which, on: bool| {
        let set = SetAttributes {
            flags: Some(if on { FlagChange::set(which) } else { FlagChange::clear(which) }),
            ..SetAttributes::default()
        };
        writer.set_attributes(&credentials(3), file, &set).expect("flags");
    };
    let forbidden = |result: zpl::Result<()>| {
        assert!(matches!(result, Err(Error::NotPermitted { .. })), "{result:?}");
    };
    flags(FileFlags::IMMUTABLE, true);
    forbidden(writer.write(&credentials(4), file, WriteOffset::End, b"x").map(drop));
    forbidden(writer.unlink(&credentials(4), top, b"file"));
    forbidden(writer.link(&credentials(4), file, top, b"more"));
    forbidden(writer.set_attributes(
        &credentials(4),
        file,
        &SetAttributes { mode: Some(0), ..SetAttributes::default() },
    ));
    flags(FileFlags::IMMUTABLE, false);
    flags(FileFlags::APPEND_ONLY, true);
    writer.write(&credentials(5), file, WriteOffset::End, b"xyz").expect("append");
    forbidden(writer.write(&credentials(5), file, WriteOffset::At(1), b"x").map(drop));
    forbidden(writer.truncate(&credentials(5), file, 0));
    flags(FileFlags::APPEND_ONLY, false);
    writer.unlink(&credentials(6), top, b"file").expect("unlink");
}

#[test]
fn unlinked_files_are_freed_after_a_crash() {
    let pool = TestFs::new(WriteSettings {
        record_size: 512,
        xattr_sa: false,
        ..WriteSettings::default()
    });
    let (writer, top) = (&pool.writer, root_id(&pool));
    let file = writer.create(&credentials(2), top, b"file", &NewInode::default()).expect("file").id;
    writer.write(&credentials(3), file, WriteOffset::End, &vec![7; 100_000]).expect("write");
    let mode = XattrMode::Any;
    writer.set_xattr(&credentials(4), file, b"user.x", Some(b"y"), mode).expect("xattr");
    writer.hold_file(file).expect("hold");
    writer.unlink(&credentials(5), top, b"file").expect("unlink");
    assert!(matches!(writer.unlink(&credentials(5), top, b"file"), Err(Error::NoEntry { .. })));
    let mut bytes = [0; 3];
    assert_eq!(writer.fs().inode(file).expect("held").read(99_999, &mut bytes), Ok(1));
    // a power failure: the stored state is opened again
    let again = pool.reopen(WriteSettings::default());
    let mut left = Vec::new();
    let mut look = |id| {
        left.push(id);
        true
    };
    again.writer.fs().for_each_unlinked(&mut look).expect("unlinked");
    assert_eq!(left, [file]);
    again.writer.drain_unlinked().expect("drain");
    consistency::check_consistency(&again.reopen_read_only());
    assert!(again.writer.fs().inode(file).is_err());
}

#[test]
fn a_file_without_a_name_gets_one() {
    let pool = TestFs::new(WriteSettings::default());
    let (writer, top) = (&pool.writer, root_id(&pool));
    let made = writer.create_tmpfile(&credentials(2), top, &NewInode::default()).expect("file");
    assert_eq!(made.attributes.nlink, 0);
    writer.write(&credentials(3), made.id, WriteOffset::End, b"text").expect("write");
    writer.link(&credentials(4), made.id, top, b"name").expect("link");
    writer.release_file(made.id).expect("release");
    let fs = pool.reopen_read_only();
    assert_eq!(fs.find_path(b"name").expect("find").expect("file").attributes().nlink, 1);
    consistency::check_consistency(&fs);
}

#[test]
fn a_whiteout_is_left() {
    let pool = TestFs::new(WriteSettings::default());
    let (writer, top) = (&pool.writer, root_id(&pool));
    writer.create(&credentials(2), top, b"old", &NewInode::default()).expect("file");
    let kind = RenameMode::Whiteout;
    let how = RenameRequest {
        from_dir: top,
        from_name: b"old",
        to_dir: top,
        to_name: b"new",
        mode: kind,
    };
    writer.rename(&credentials(3), &how).expect("rename");
    let fs = pool.reopen_read_only();
    let left = *fs.find_path(b"old").expect("find").expect("whiteout").attributes();
    assert_eq!((left.kind, left.mode, left.rdev), (FileType::CharDevice, 0, (0, 0)));
    assert_eq!(
        fs.find_path(b"new").expect("find").expect("file").attributes().kind,
        FileType::File
    );
    consistency::check_consistency(&fs);
}

#[test]
fn case_insensitive_name_can_change_its_case() {
    let new =
        FsCreateOptions { case: CaseSensitivity::Insensitive, utf8_only: true, ..fs_options() };
    let pool = TestFs::with_options(&new, WriteSettings::default());
    let (writer, top) = (&pool.writer, root_id(&pool));
    writer.create(&credentials(2), top, b"tim", &NewInode::default()).expect("file");
    let exists = writer.create(&credentials(2), top, b"TIM", &NewInode::default());
    assert!(matches!(exists, Err(Error::Exists { .. })));
    let kind = RenameMode::NoReplace;
    let how = RenameRequest {
        from_dir: top,
        from_name: b"tim",
        to_dir: top,
        to_name: b"Tim",
        mode: kind,
    };
    writer.rename(&credentials(3), &how).expect("rename");
    let latin = writer.create(&credentials(4), top, b"\xe9t\xe9", &NewInode::default());
    assert!(matches!(latin, Err(Error::NameNotUtf8 { .. })));
    let fs = pool.reopen_read_only();
    let names: Vec<_> = fs
        .list_dir(&fs.root().expect("root"))
        .expect("names")
        .into_iter()
        .map(|one| one.name)
        .collect();
    assert_eq!(names, [b"Tim".to_vec()]);
    writer.unlink(&credentials(5), top, b"tIM").expect("unlink");
    consistency::check_consistency(&pool.reopen_read_only());
}

#[test]
fn names_have_a_length() {
    let pool = TestFs::new(WriteSettings::default());
    let (writer, top) = (&pool.writer, root_id(&pool));
    let long = [b'n'; 256];
    writer.create(&credentials(2), top, &long[1..], &NewInode::default()).expect("255 bytes");
    let refused = writer.create(&credentials(2), top, &long, &NewInode::default());
    assert!(matches!(refused, Err(Error::NameTooLong { max_len: 255, .. })));
    writer.set_settings(WriteSettings { has_long_names: true, ..WriteSettings::default() });
    writer.create(&credentials(2), top, &long, &NewInode::default()).expect("256 bytes");
    for name in [&b"."[..], b"..", b"", b"a/b", b"a\0b"] {
        let refused = writer.create(&credentials(2), top, name, &NewInode::default());
        assert!(matches!(refused, Err(Error::Invalid { .. })));
    }
    consistency::check_consistency(&pool.reopen_read_only());
}

/// OpenZFS computes the form in a fixed buffer, and finds no name whose form does not fit.
#[test]
fn names_have_a_length_as_they_are_compared() {
    let new = FsCreateOptions { normalization: Normalization::NFKD.0, ..fs_options() };
    let pool = TestFs::with_options(&new, WriteSettings::default());
    let (writer, top) = (&pool.writer, root_id(&pool));
    // two bytes each, which become three; three bytes, which become two
    let (fits, long) = ("\u{e9}".repeat(85), "\u{e9}".repeat(86));
    writer
        .create(&credentials(2), top, fits.as_bytes(), &NewInode::default())
        .expect("255 bytes at last");
    let refused = writer.create(&credentials(2), top, long.as_bytes(), &NewInode::default());
    assert!(matches!(refused, Err(Error::NormalizedTooLong { max_len: 255, .. })), "{refused:?}");
    let how = RenameRequest {
        from_dir: top,
        from_name: fits.as_bytes(),
        to_dir: top,
        to_name: long.as_bytes(),
        mode: RenameMode::Replace,
    };
    assert!(matches!(writer.rename(&credentials(3), &how), Err(Error::NormalizedTooLong { .. })));
    let becomes_short = "\u{fb01}".repeat(85);
    writer
        .create(&credentials(4), top, becomes_short.as_bytes(), &NewInode::default())
        .expect("170 bytes");
    // longer names have a larger buffer
    writer.set_settings(WriteSettings { has_long_names: true, ..WriteSettings::default() });
    let refused = writer.create(&credentials(5), top, long.as_bytes(), &NewInode::default());
    assert!(matches!(refused, Err(Error::NormalizedTooLong { max_len: 255, .. })), "{refused:?}");
    let longer = "\u{e9}".repeat(128);
    writer
        .create(&credentials(5), top, longer.as_bytes(), &NewInode::default())
        .expect("384 bytes at last");
    consistency::check_consistency(&pool.reopen_read_only());
}

#[test]
fn reading_changes_atime_as_the_dataset_wants() {
    let pool = TestFs::new(WriteSettings::default());
    let (writer, top) = (&pool.writer, root_id(&pool));
    let atime = || writer.fs().attributes(top).expect("attributes").atime;
    writer.update_atime(top, time_at(50)).expect("read");
    assert_eq!(atime(), time_at(50), "it was not newer than the other times");
    writer.update_atime(top, time_at(60)).expect("read");
    assert_eq!(atime(), time_at(50), "it was");
    writer.update_atime(top, time_at(50 + 86400)).expect("read");
    assert_eq!(atime(), time_at(50 + 86400), "it was a day old");
    writer.set_settings(WriteSettings { atime: AtimeMode::Off, ..WriteSettings::default() });
    writer.update_atime(top, time_at(1 << 40)).expect("read");
    assert_eq!(atime(), time_at(50 + 86400));
}

#[test]
fn an_nfs4_acl_sets_the_mode() {
    let pool = TestFs::new(WriteSettings::default());
    let (writer, top) = (&pool.writer, root_id(&pool));
    let file = writer.create(&credentials(2), top, b"file", &NewInode::default()).expect("file").id;
    let entry = |who, kind, mask| Ace { who, kind, flags: 0, mask, object: None };
    let entries = vec![
        entry(AceWho::User(42), 0, 0x3),
        entry(AceWho::Owner, 0, 0x3),
        entry(AceWho::Everyone, 0, 0x1),
    ];
    writer.set_acl(&credentials(3), file, &entries).expect("ACL");
    let node = pool.reopen_read_only().inode(file).expect("node");
    let acl = node.acl().expect("ACL");
    assert_eq!((node.attributes().mode, acl.is_trivial, acl.entries), (0o644, false, entries));
    writer
        .set_attributes(
            &credentials(4),
            file,
            &SetAttributes { mode: Some(0o600), ..SetAttributes::default() },
        )
        .expect("chmod");
    assert!(writer.fs().inode(file).expect("node").acl().expect("ACL").is_trivial);
}

#[test]
fn every_change_has_a_log_record() {
    let pool = TestFs::new(WriteSettings { xattr_sa: false, ..WriteSettings::default() });
    let (writer, top) = (&pool.writer, root_id(&pool));
    *pool.transactions.records.lock() = Some(Vec::new());
    let file = writer.create(&credentials(2), top, b"file", &NewInode::default()).expect("file").id;
    writer.create(&credentials(2), top, b"dir", &new_directory()).expect("dir");
    writer.write(&credentials(3), file, WriteOffset::End, b"text").expect("write");
    writer.truncate(&credentials(3), file, 2).expect("truncate");
    writer.punch_hole(&credentials(3), file, 0..1).expect("punch");
    writer.link(&credentials(4), file, top, b"more").expect("link");
    let how = RenameRequest {
        from_dir: top,
        from_name: b"more",
        to_dir: top,
        to_name: b"other",
        mode: RenameMode::default(),
    };
    writer.rename(&credentials(5), &how).expect("rename");
    writer
        .set_attributes(
            &credentials(6),
            file,
            &SetAttributes { mode: Some(0o600), ..SetAttributes::default() },
        )
        .expect("set");
    let value = Some(&b"value"[..]);
    writer.set_xattr(&credentials(7), file, b"user.x", value, XattrMode::Any).expect("xattr");
    writer.unlink(&credentials(8), top, b"file").expect("unlink");
    writer.rmdir(&credentials(9), top, b"dir").expect("rmdir");
    let promises = pool.transactions.records.lock().take().expect("promises");
    let kind = |entry: &zil::ReplayEntry| {
        let text = format!("{:?}", entry.record.body);
        text.split(['(', ' ']).next().unwrap_or_default().to_owned()
    };
    let kinds: Vec<String> = promises.iter().map(kind).collect();
    // in the second line the hidden directory, the file in it, its content
    let wanted = "Create Create Write SetAttr Truncate Link Rename SetAttr \
        Create Create Truncate Write Remove RemoveDirectory";
    assert_eq!(kinds.join(" "), wanted);
}

/// OpenZFS takes the values behind its own number of words, whatever the count is.
#[test]
fn attribute_record_has_three_words() {
    let pool = TestFs::new(WriteSettings::default());
    let (writer, top) = (&pool.writer, root_id(&pool));
    let file = writer.create(&credentials(2), top, b"file", &NewInode::default()).expect("file").id;
    *pool.transactions.records.lock() = Some(Vec::new());
    let flags = Some(FlagChange {
        mask: FileFlags::NO_DUMP.union(FileFlags::IMMUTABLE),
        values: FileFlags::NO_DUMP,
    });
    let set = SetAttributes { flags, project_id: Some(77), ..SetAttributes::default() };
    writer.set_attributes(&credentials(3), file, &set).expect("set");
    let promises = pool.transactions.records.lock().take().expect("promises");
    let [entry] = promises.as_slice() else { panic!("{promises:?}") };
    let ondisk::zil::Body::SetAttr(told) = &entry.record.body else { panic!("{entry:?}") };
    let extra = told.attributes.as_ref().expect("attributes");
    assert_eq!(extra.requested, [0x40 | 0x100 | 0x40000, 0, 0]);
    assert_eq!((extra.values, extra.project), (0x100, 77));
}

#[test]
fn only_directories_have_names_in_them() {
    let pool = TestFs::new(WriteSettings::default());
    let (writer, top) = (&pool.writer, root_id(&pool));
    let file = writer.create(&credentials(2), top, b"file", &NewInode::default()).expect("file").id;
    let how = RenameRequest {
        from_dir: top,
        from_name: b"file",
        to_dir: file,
        to_name: b"name",
        mode: RenameMode::default(),
    };
    let results = [
        writer.create(&credentials(3), file, b"name", &NewInode::default()).map(drop),
        writer.unlink(&credentials(3), file, b"name"),
        writer.rmdir(&credentials(3), file, b"name"),
        writer.rename(&credentials(3), &how),
    ];
    for result in results {
        assert!(matches!(result, Err(Error::NotDirectory { .. })), "{result:?}");
    }
}

#[test]
fn failed_clone_keeps_the_file_size() {
    let pool = TestFs::new(WriteSettings { record_size: 512, ..WriteSettings::default() });
    let writer = &pool.writer;
    let make =
        |name: &[u8]| writer.create(&credentials(2), root_id(&pool), name, &NewInode::default());
    let (from, to) = (make(b"from").expect("made").id, make(b"to").expect("made").id);
    writer.write(&credentials(3), from, WriteOffset::At(0), &[7; 1024]).expect("write");
    let stretch = CloneRange {
        source: from,
        source_offset: 0,
        target: to,
        target_offset: 4096,
        length: 1024,
    };
    // it waits to be written
    assert_eq!(writer.clone_blocks(&credentials(4), writer.fs(), &stretch), Ok(0));
    assert_eq!(writer.fs().attributes(to).expect("attributes").size, 0);
    pool.sync();
    assert_eq!(writer.clone_blocks(&credentials(5), writer.fs(), &stretch), Ok(1024));
    assert_eq!(writer.fs().attributes(to).expect("attributes").size, 5120);
}
