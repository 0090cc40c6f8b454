//! Content: holes, sizes, append, exclusive creation, copies, files without names.

use posix::access::OpenMode;
use posix::{NewInode, WriteOffset};
use vfs::{AllocateMode, CreateMode, FileOffset, FileSystem};

use super::{Bed, Failure, context, failure};

const MIB: u64 = 1 << 20;

pub(super) fn check_holes<F: FileSystem>(bed: &Bed<'_, F>) {
    let (fs, root) = (bed.fs, &context(&bed.root));
    let file = bed.file("sparse");
    let writer = bed.writer(file);
    let block = vec![7; 1 << 17];
    bed.write(&writer, 4 * MIB, &block).expect("written");
    bed.write(&writer, 8 * MIB, &block).expect("written");
    fs.commit(root, file).expect("committed");
    let data_end = 4 * MIB + (1 << 17);
    assert_eq!(fs.seek_data(root, &writer, 0).expect("data"), Some(4 * MIB));
    assert_eq!(fs.seek_hole(root, &writer, 4 * MIB).expect("a hole"), data_end);
    assert_eq!(fs.seek_data(root, &writer, data_end).expect("data"), Some(8 * MIB));
    assert_eq!(fs.seek_data(root, &writer, 8 * MIB + (1 << 17)).expect("no data"), None);
    assert_eq!(bed.read(file), vec![0; 1 << 16]);
    let range = 4 * MIB..data_end;
    fs.punch_hole(root, &writer, range, AllocateMode::KeepSize).expect("a hole");
    fs.commit(root, file).expect("committed");
    assert_eq!(fs.seek_data(root, &writer, 0).expect("data"), Some(8 * MIB));
    assert_eq!(bed.stat(file).size, 8 * MIB + (1 << 17));
}

pub(super) fn check_sizes<F: FileSystem>(bed: &Bed<'_, F>) {
    let (fs, root) = (bed.fs, &context(&bed.root));
    let file = bed.file("file");
    let writer = bed.writer(file);
    bed.write(&writer, 0, b"0123456789").expect("written");
    fs.truncate(root, &writer, 4).expect("shortened");
    fs.truncate(root, &writer, 8).expect("lengthened");
    assert_eq!(bed.read(file), b"0123\0\0\0\0", "the old bytes do not come back");
    fs.allocate(root, &writer, 0..20, AllocateMode::KeepSize).expect("space");
    assert_eq!(bed.stat(file).size, 8);
    fs.allocate(root, &writer, 10..20, AllocateMode::Extend).expect("space");
    assert_eq!(bed.stat(file).size, 20);
    let mode = OpenMode { truncate: true, ..OpenMode::READ_WRITE };
    bed.open(&bed.root, file, mode).expect("an open file");
    assert_eq!(bed.stat(file).size, 0);
}

pub(super) fn check_append<F: FileSystem>(bed: &Bed<'_, F>) {
    let (fs, root) = (bed.fs, &context(&bed.root));
    let file = bed.file("log");
    let mode = OpenMode { write: true, append: true, ..OpenMode::default() };
    let [first, second] = [(); 2].map(|()| bed.open(&bed.root, file, mode).expect("an open file"));
    for (file, bytes) in [(&first, b"one,"), (&second, b"two,"), (&first, b"six.")] {
        fs.write(root, file, WriteOffset::End, bytes).expect("appended");
    }
    assert_eq!(bed.read(file), b"one,two,six.");
}

pub(super) fn check_exclusive<F: FileSystem>(bed: &Bed<'_, F>) {
    let (fs, root) = (bed.fs, &context(&bed.root));
    let entry = (bed.dir, &b"file"[..]);
    // the caller may write to a new file without write permission
    let new = NewInode { mode: 0o444, umask: 0, ..NewInode::default() };
    let mode = OpenMode::READ_WRITE;
    let alice = &context(&bed.alice);
    let made = fs.create_and_open(alice, entry, &new, CreateMode::Exclusive, mode).expect("a file");
    assert!(made.is_new);
    fs.write(alice, &made.file, WriteOffset::At(0), b"content").expect("written");
    let again = fs.create_and_open(root, entry, &new, CreateMode::Exclusive, mode).map(drop);
    assert_eq!(failure(again), Failure::EXISTS);
    let found = fs.create_and_open(root, entry, &new, CreateMode::OpenExisting, mode);
    let found = found.expect("the file");
    assert_eq!((found.is_new, found.attributes.ino), (false, made.attributes.ino));
    let denied = fs.create_and_open(alice, entry, &new, CreateMode::OpenExisting, mode).map(drop);
    assert_eq!(failure(denied), Failure::Access);
}

pub(super) fn check_copies<F: FileSystem>(bed: &Bed<'_, F>) {
    let (fs, root) = (bed.fs, &context(&bed.root));
    let (from, to) = (bed.file("from"), bed.file("to"));
    let bytes: Vec<u8> = (0..10_000_u32).map(|index| (index % 251) as u8).collect();
    bed.write(&bed.writer(from), 0, &bytes).expect("written");
    let source = bed.open(&bed.root, from, OpenMode::READ).expect("an open file");
    let target = bed.writer(to);
    let (source, target) =
        (FileOffset { file: &source, offset: 1000 }, FileOffset { file: &target, offset: 500 });
    let copied = fs.copy_range(root, source, target, 20_000).expect("copied");
    assert_eq!(copied, 9000, "the copy ends with the source");
    let content = bed.read(to);
    assert!(content.get(..500) == Some(&[0; 500][..]) && content.get(500..) == bytes.get(1000..));
}

pub(super) fn check_unlinked<F: FileSystem>(bed: &Bed<'_, F>) {
    let (fs, root) = (bed.fs, &context(&bed.root));
    let file = bed.file("file");
    let open = bed.open(&bed.root, file, OpenMode::READ_WRITE).expect("an open file");
    bed.write(&open, 0, b"before").expect("written");
    fs.unlink(root, bed.dir, b"file").expect("removed");
    assert_eq!(failure(bed.lookup("file")), Failure::NotFound);
    bed.write(&open, 6, b" after").expect("written");
    assert_eq!(bed.read_open(&open, 0).expect("content"), b"before after");
    assert_eq!(bed.stat(file).nlink, 0);
    // a file that another replaces stays open as well
    let (old, new) = (bed.file("old"), bed.file("new"));
    let open = bed.open(&bed.root, old, OpenMode::READ_WRITE).expect("an open file");
    bed.write(&open, 0, b"old").expect("written");
    let rename = posix::RenameRequest {
        from_dir: bed.dir,
        from_name: b"new",
        to_dir: bed.dir,
        to_name: b"old",
        mode: posix::RenameMode::Replace,
    };
    fs.rename(root, &rename).expect("replaced");
    assert_eq!(bed.lookup("old").expect("the new file").ino, new);
    assert_eq!(bed.read_open(&open, 0).expect("content"), b"old");
    // a file that begins without a name gets one
    let new = NewInode::default();
    let made = fs.create_tmpfile(root, bed.dir, &new, OpenMode::READ_WRITE).expect("a file");
    assert_eq!(made.attributes.nlink, 0);
    bed.write(&made.file, 0, b"content").expect("written");
    let linked = fs.link(root, made.attributes.ino, bed.dir, b"named").expect("a name");
    assert_eq!(linked.nlink, 1);
    drop(made);
    assert_eq!(bed.read(linked.ino), b"content");
}
