//! Times: set, and changed by operations.

use posix::{NewInode, SetAttributes, SetTime, Time};
use vfs::FileSystem;

use super::{Bed, Failure, context, failure};

pub(super) fn check<F: FileSystem>(bed: &Bed<'_, F>) {
    let (fs, root) = (bed.fs, &context(&bed.root));
    let (alice, bob) = (&context(&bed.alice), &context(&bed.bob));
    let file = bed.file_of_alice("file", 0o666);
    let before_1970 = Time { seconds: -5, nanoseconds: 999_999_999 };
    let after_2106 = Time { seconds: 1 << 33, nanoseconds: 1 };
    let set = SetAttributes {
        atime: Some(SetTime::At(before_1970)),
        mtime: Some(SetTime::At(after_2106)),
        ..SetAttributes::default()
    };
    let changed = fs.set_attributes(alice, file, &set).expect("the owner");
    assert_eq!((changed.atime, changed.mtime), (before_1970, after_2106));
    assert_eq!(failure(fs.set_attributes(bob, file, &set)), Failure::NOT_PERMITTED);
    let now = SetAttributes {
        atime: Some(SetTime::Now),
        mtime: Some(SetTime::Now),
        ..SetAttributes::default()
    };
    let changed = fs.set_attributes(bob, file, &now).expect("a writer");
    assert!(changed.mtime != after_2106 && changed.atime != before_1970);

    // a long time ago, so that each operation shows
    let past = Time { seconds: 1_000_000, nanoseconds: 0 };
    let set = SetAttributes { mtime: Some(SetTime::At(past)), ..SetAttributes::default() };
    let age = |ino| bed.set(ino, set);
    let aged = age(file);
    bed.write(&bed.writer(file), 0, b"content").expect("written");
    let after = bed.stat(file);
    assert!(after.mtime > past && after.ctime >= aged.ctime);
    age(bed.dir);
    fs.create(root, bed.dir, b"new", &NewInode::default()).expect("a file");
    assert!(bed.stat(bed.dir).mtime > past, "a new name changes its directory");
    age(bed.dir);
    fs.unlink(root, bed.dir, b"new").expect("removed");
    assert!(bed.stat(bed.dir).mtime > past, "a removed name changes its directory");
}
