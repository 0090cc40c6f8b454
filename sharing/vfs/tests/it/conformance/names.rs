//! Names: valid ones, existing ones, missing ones.

use posix::{FileType, NewInode};
use vfs::{FileSystem, Reason};

use super::{Bed, Failure, context, failure};

pub(super) fn check<F: FileSystem>(bed: &Bed<'_, F>) {
    let (fs, root) = (bed.fs, &context(&bed.root));
    assert_eq!(failure(bed.lookup("absent")), Failure::NotFound);
    let file = bed.file("file");
    assert_eq!(bed.lookup("file").expect("a file").ino, file);
    let new = NewInode::default();
    assert_eq!(failure(fs.create(root, bed.dir, b"file", &new)), Failure::EXISTS);
    // any bytes but 0 and / are a name
    let odd = b"\xff\x01 \n";
    let made = fs.create(root, bed.dir, odd, &new).expect("an odd name");
    assert_eq!(fs.lookup(root, bed.dir, odd).expect("an odd name").ino, made.ino);
    let longest = vec![b'n'; fs.limits().max_name_len];
    let made = fs.create(root, bed.dir, &longest, &new).expect("the longest name");
    assert_eq!(fs.lookup(root, bed.dir, &longest).expect("the longest name").ino, made.ino);
    let longer = vec![b'n'; fs.limits().max_name_len + 1];
    let too_long = Failure::Refused(Reason::NameTooLong);
    assert_eq!(failure(fs.create(root, bed.dir, &longer, &new)), too_long);
    assert_eq!(failure(fs.lookup(root, bed.dir, &longer)), too_long);

    let dir = bed.subdir("dir");
    assert_eq!(fs.lookup(root, dir, b".").expect("itself").ino, dir);
    assert_eq!(fs.lookup(root, dir, b"..").expect("its parent").ino, bed.dir);
    assert_eq!(failure(fs.lookup(root, file, b"below")), Failure::NotDirectory);
    assert_eq!(failure(fs.create(root, file, b"below", &new)), Failure::NotDirectory);
    assert_eq!(failure(fs.unlink(root, bed.dir, b"dir")), Failure::IsDirectory);
    assert_eq!(failure(fs.rmdir(root, bed.dir, b"file")), Failure::NotDirectory);
    fs.create(root, dir, b"inner", &new).expect("a file");
    assert_eq!(failure(fs.rmdir(root, bed.dir, b"dir")), Failure::Refused(Reason::NotEmpty));
    fs.unlink(root, dir, b"inner").expect("removed");
    fs.rmdir(root, bed.dir, b"dir").expect("removed");
    fs.unlink(root, bed.dir, b"file").expect("removed");
    assert_eq!(failure(bed.lookup("file")), Failure::NotFound);
    assert_eq!(failure(fs.unlink(root, bed.dir, b"file")), Failure::NotFound);

    for kind in [FileType::Fifo, FileType::Socket, FileType::CharDevice, FileType::BlockDevice] {
        let is_device = matches!(kind, FileType::CharDevice | FileType::BlockDevice);
        let rdev = if is_device { (5, 300) } else { (0, 0) };
        let new = NewInode { kind, mode: 0o640, rdev, umask: 0, ..NewInode::default() };
        let made = fs.create(root, bed.dir, kind.name().as_bytes(), &new).expect("a special file");
        assert_eq!((made.kind, made.mode, made.rdev), (kind, 0o640, rdev));
    }
}
