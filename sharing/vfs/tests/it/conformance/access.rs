//! Permissions: modes, owners, set-ID bits, sticky directories, extended attributes.

use posix::access::OpenMode;
use posix::acl::nfs4::mask;
use posix::{FileType, NewInode, SetAttributes, WriteOffset, XattrMode};
use vfs::{FileSystem, Reason};

use super::{Bed, Failure, context, failure};

const WRITE: OpenMode = OpenMode { read: false, ..OpenMode::READ_WRITE };

pub(super) fn check_modes<F: FileSystem>(bed: &Bed<'_, F>) {
    let (fs, alice, bob) = (bed.fs, &context(&bed.alice), &context(&bed.bob));
    let file = bed.file_of_alice("private", 0o600);
    bed.open(&bed.alice, file, OpenMode::READ_WRITE).expect("the owner opens");
    assert_eq!(failure(bed.open(&bed.bob, file, OpenMode::READ).map(drop)), Failure::Access);
    let wanted = mask::READ_DATA | mask::WRITE_DATA | mask::EXECUTE;
    assert_eq!(fs.access(alice, file, wanted).unwrap(), mask::READ_DATA | mask::WRITE_DATA);
    assert_eq!(fs.access(bob, file, wanted).unwrap(), 0);
    // only the owner's bits count for the owner
    let file = bed.file_of_alice("backwards", 0o077);
    assert_eq!(failure(bed.open(&bed.alice, file, OpenMode::READ).map(drop)), Failure::Access);
    bed.open(&bed.bob, file, OpenMode::READ).expect("others open");
    // a supplementary group counts
    let file = bed.file("shared");
    bed.set(file, SetAttributes { gid: Some(203), ..SetAttributes::default() });
    bed.set(file, SetAttributes { mode: Some(0o060), ..SetAttributes::default() });
    bed.open(&bed.alice, file, OpenMode::READ_WRITE).expect("a member opens");
    assert_eq!(failure(bed.open(&bed.bob, file, WRITE).map(drop)), Failure::Access);
    // root reads everything, and executes only files with an execute bit
    bed.open(&bed.root, file, OpenMode::READ_WRITE).expect("root opens");
    assert_eq!(fs.access(&context(&bed.root), file, mask::EXECUTE).unwrap(), 0);

    let dir = bed.subdir("closed");
    fs.create(&context(&bed.root), dir, b"inner", &NewInode::default()).expect("a file");
    bed.set(dir, SetAttributes { mode: Some(0o744), ..SetAttributes::default() });
    assert_eq!(failure(fs.lookup(bob, dir, b"inner")), Failure::Access);
    fs.open_dir(bob, dir).expect("others list");
    bed.set(dir, SetAttributes { mode: Some(0o711), ..SetAttributes::default() });
    fs.lookup(bob, dir, b"inner").expect("others search");
    assert_eq!(failure(fs.open_dir(bob, dir).map(drop)), Failure::Access);
    assert_eq!(failure(fs.create(bob, dir, b"new", &NewInode::default())), Failure::Access);
    assert_eq!(failure(fs.unlink(bob, dir, b"inner")), Failure::Access);
    // an open file keeps its permissions, and gets no others
    let file = bed.file_of_alice("open", 0o600);
    let reader = bed.open(&bed.alice, file, OpenMode::READ).expect("an open file");
    bed.set(file, SetAttributes { mode: Some(0), ..SetAttributes::default() });
    assert_eq!(bed.read_open(&reader, 0).expect("content"), b"");
    let written = fs.write(alice, &reader, WriteOffset::At(0), b"x");
    assert_eq!(failure(written), Failure::OpenMode);
}

pub(super) fn check_owners<F: FileSystem>(bed: &Bed<'_, F>) {
    let (fs, alice, bob) = (bed.fs, &context(&bed.alice), &context(&bed.bob));
    let made = fs.create(alice, bed.dir, b"file", &NewInode::default()).expect("a file");
    assert_eq!((made.uid, made.gid, made.mode), (1001, 201, 0o644));
    let none = SetAttributes::default();
    let chmod = SetAttributes { mode: Some(0o600), ..none };
    let chgrp = |gid| SetAttributes { gid: Some(gid), ..none };
    let chown = |uid| SetAttributes { uid: Some(uid), ..none };
    let refused = Failure::NOT_PERMITTED;
    assert_eq!(failure(fs.set_attributes(bob, made.ino, &chmod)), refused);
    assert_eq!(failure(fs.set_attributes(alice, made.ino, &chown(1002))), refused);
    assert_eq!(failure(fs.set_attributes(alice, made.ino, &chgrp(202))), refused);
    assert_eq!(fs.set_attributes(alice, made.ino, &chgrp(203)).expect("a member").gid, 203);
    assert_eq!(fs.set_attributes(alice, made.ino, &chmod).expect("the owner").mode, 0o600);
    bed.set(made.ino, chown(1002));
    assert_eq!(failure(fs.set_attributes(alice, made.ino, &chmod)), refused);
    // a directory with set-group-ID gives its group, and directories the bit
    let dir = bed.subdir("group");
    bed.set(dir, SetAttributes { gid: Some(203), ..none });
    bed.set(dir, SetAttributes { mode: Some(0o2777), ..none });
    let new = NewInode { mode: 0o755, umask: 0, ..NewInode::default() };
    assert_eq!(fs.create(bob, dir, b"file", &new).expect("a file").gid, 203);
    let new = NewInode { kind: FileType::Directory, ..new };
    let made = fs.create(bob, dir, b"dir", &new).expect("a directory");
    assert_eq!((made.gid, made.mode), (203, 0o2755));
    // devices need a privilege
    let new = NewInode { kind: FileType::CharDevice, rdev: (1, 3), ..NewInode::default() };
    assert_eq!(failure(fs.create(alice, bed.dir, b"device", &new)), refused);
}

pub(super) fn check_setid<F: FileSystem>(bed: &Bed<'_, F>) {
    let (fs, bob) = (bed.fs, &context(&bed.bob));
    let mode = |ino| bed.stat(ino).mode;
    let file = bed.file_of_alice("program", 0o6777);
    let open = bed.open(&bed.bob, file, WRITE).expect("an open file");
    assert_eq!(mode(file), 0o6777);
    fs.write(bob, &open, WriteOffset::At(0), b"code").expect("written");
    assert_eq!(mode(file), 0o777);
    bed.set(file, SetAttributes { mode: Some(0o6777), ..SetAttributes::default() });
    fs.truncate(bob, &open, 1).expect("truncated");
    assert_eq!(mode(file), 0o777);
    bed.set(file, SetAttributes { mode: Some(0o6777), ..SetAttributes::default() });
    bed.set(file, SetAttributes { uid: Some(1002), ..SetAttributes::default() });
    assert_eq!(mode(file), 0o777);
    // the owner is in no such group
    bed.set(file, SetAttributes { gid: Some(203), ..SetAttributes::default() });
    let set = SetAttributes { mode: Some(0o2755), ..SetAttributes::default() };
    fs.set_attributes(bob, file, &set).expect("the owner");
    assert_eq!(mode(file), 0o755);
}

pub(super) fn check_sticky<F: FileSystem>(bed: &Bed<'_, F>) {
    let (fs, alice, bob) = (bed.fs, &context(&bed.alice), &context(&bed.bob));
    let dir = bed.subdir("tmp");
    bed.set(dir, SetAttributes { mode: Some(0o1777), ..SetAttributes::default() });
    fs.create(alice, dir, b"hers", &NewInode::default()).expect("a file");
    fs.create(bob, dir, b"his", &NewInode::default()).expect("a file");
    assert_eq!(failure(fs.unlink(bob, dir, b"hers")), Failure::NOT_PERMITTED);
    let rename = posix::RenameRequest {
        from_dir: dir,
        from_name: b"his",
        to_dir: dir,
        to_name: b"hers",
        mode: posix::RenameMode::Replace,
    };
    assert_eq!(failure(fs.rename(bob, &rename)), Failure::NOT_PERMITTED);
    fs.unlink(alice, dir, b"hers").expect("the owner");
    fs.rename(bob, &rename).expect("the owner");
}

pub(super) fn check_xattrs<F: FileSystem>(bed: &Bed<'_, F>) {
    let (fs, root) = (bed.fs, &context(&bed.root));
    let (alice, bob) = (&context(&bed.alice), &context(&bed.bob));
    let file = bed.file_of_alice("file", 0o640);
    let set = |by, name: &str, value: Option<&[u8]>, mode| {
        fs.set_xattr(by, file, name.as_bytes(), value, mode)
    };
    let any = XattrMode::Any;
    set(alice, "user.a", Some(b"one"), XattrMode::Create).expect("set");
    let exists = set(alice, "user.a", Some(b"one"), XattrMode::Create);
    assert_eq!(failure(exists), Failure::EXISTS);
    let absent = Failure::Refused(Reason::NoXattr);
    assert_eq!(failure(set(alice, "user.b", Some(b"x"), XattrMode::Replace)), absent);
    set(alice, "user.a", Some(b"two"), XattrMode::Replace).expect("replaced");
    assert_eq!(fs.xattr(alice, file, b"user.a").unwrap().as_deref(), Some(&b"two"[..]));
    assert_eq!(failure(set(bob, "user.a", Some(b"x"), any)), Failure::Access);
    assert_eq!(failure(fs.xattr(bob, file, b"user.a")), Failure::Access);
    assert_eq!(failure(set(alice, "trusted.a", Some(b"x"), any)), Failure::NOT_PERMITTED);
    set(root, "trusted.a", Some(b"secret"), any).expect("set");
    let names = |by| {
        let mut names = fs.xattr_names(by, file).expect("names");
        names.sort();
        names
    };
    assert_eq!(names(alice), [b"user.a".to_vec()]);
    assert_eq!(names(root), [b"trusted.a".to_vec(), b"user.a".to_vec()]);
    set(alice, "user.a", None, any).expect("removed");
    assert_eq!(failure(set(alice, "user.a", None, any)), absent);
    assert_eq!(names(alice), Vec::<Vec<u8>>::new());
}
