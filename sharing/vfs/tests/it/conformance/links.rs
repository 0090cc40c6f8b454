//! Hard links, symbolic links, and counts of links.

use posix::{FileType, NewInode};
use vfs::FileSystem;

use super::{Bed, Failure, context, failure};

pub(super) fn check<F: FileSystem>(bed: &Bed<'_, F>) {
    let (fs, root) = (bed.fs, &context(&bed.root));
    let file = bed.file("one");
    assert_eq!(bed.stat(file).nlink, 1);
    let linked = fs.link(root, file, bed.dir, b"two").expect("a link");
    assert_eq!((linked.ino, linked.nlink), (file, 2));
    assert_eq!(bed.lookup("two").expect("the link").ino, file);
    assert_eq!(failure(fs.link(root, file, bed.dir, b"two")), Failure::EXISTS);
    fs.unlink(root, bed.dir, b"one").expect("removed");
    assert_eq!(bed.stat(file).nlink, 1);

    let links = || bed.stat(bed.dir).nlink;
    let before = links();
    let dir = bed.subdir("dir");
    assert_eq!((bed.stat(dir).nlink, links()), (2, before + 1));
    assert_eq!(failure(fs.link(root, dir, bed.dir, b"again")), Failure::NOT_PERMITTED);
    fs.rmdir(root, bed.dir, b"dir").expect("removed");
    assert_eq!(links(), before);

    let target: &[u8] = b"../anything \xfe";
    let new = NewInode { kind: FileType::Symlink, mode: 0o777, target, ..NewInode::default() };
    let made = fs.create(root, bed.dir, b"symlink", &new).expect("a symbolic link");
    let size = u64::try_from(target.len()).unwrap();
    assert_eq!((made.kind, made.size, made.mode), (FileType::Symlink, size, 0o777));
    assert_eq!(fs.read_link(root, made.ino).expect("a target"), target);
    let linked = fs.link(root, made.ino, bed.dir, b"symlink too").expect("a link to the link");
    assert_eq!((linked.ino, linked.nlink), (made.ino, 2));
}
