//! Renames in every mode.

use posix::{FileType, Ino, RenameMode, RenameRequest};
use vfs::{FileSystem, Reason, Result};

use super::{Bed, Failure, context, failure};

fn rename<F: FileSystem>(
    bed: &Bed<'_, F>,
    (from_dir, from_name): (Ino, &str),
    (to_dir, to_name): (Ino, &str),
    mode: RenameMode,
) -> Result<()> {
    let (from_name, to_name) = (from_name.as_bytes(), to_name.as_bytes());
    let request = RenameRequest { from_dir, from_name, to_dir, to_name, mode };
    bed.fs.rename(&context(&bed.root), &request)
}

pub(super) fn check<F: FileSystem>(bed: &Bed<'_, F>) {
    let (fs, root) = (bed.fs, &context(&bed.root));
    let here = |name| (bed.dir, name);
    let ino = |name| bed.lookup(name).expect(name).ino;
    let (one, two) = (bed.file("one"), bed.file("two"));
    assert_eq!(
        failure(rename(bed, here("one"), here("two"), RenameMode::NoReplace)),
        Failure::EXISTS
    );
    rename(bed, here("one"), here("two"), RenameMode::Exchange).expect("exchanged");
    assert_eq!((ino("one"), ino("two")), (two, one));
    rename(bed, here("one"), here("two"), RenameMode::Replace).expect("replaced");
    assert_eq!((failure(bed.lookup("one")), ino("two")), (Failure::NotFound, two));
    rename(bed, here("two"), here("three"), RenameMode::NoReplace).expect("renamed");
    assert_eq!(ino("three"), two);
    // two names of one file: nothing changes
    fs.link(root, two, bed.dir, b"four").expect("a link");
    rename(bed, here("three"), here("four"), RenameMode::Replace).expect("nothing");
    assert_eq!((ino("three"), ino("four"), bed.stat(two).nlink), (two, two, 2));
    rename(bed, here("four"), here("white"), RenameMode::Whiteout).expect("a whiteout");
    let left = bed.lookup("four").expect("a whiteout");
    assert_eq!((left.kind, left.rdev, ino("white")), (FileType::CharDevice, (0, 0), two));

    // a directory and a file exchange their places, and the directory gets another parent
    let (dir, other) = (bed.subdir("dir"), bed.subdir("other"));
    rename(bed, here("dir"), (other, "dir"), RenameMode::Replace).expect("moved");
    assert_eq!(fs.lookup(root, dir, b"..").expect("its parent").ino, other);
    rename(bed, (other, "dir"), here("three"), RenameMode::Exchange).expect("exchanged");
    assert_eq!(fs.lookup(root, dir, b"..").expect("its parent").ino, bed.dir);
    assert_eq!(fs.lookup(root, other, b"dir").expect("the file").ino, two);
    let empty = bed.subdir("empty");
    rename(bed, here("three"), here("empty"), RenameMode::Replace).expect("replaced");
    assert_eq!(ino("empty"), dir);
    assert_ne!(empty, dir);
}

pub(super) fn check_failures<F: FileSystem>(bed: &Bed<'_, F>) {
    let here = |name| (bed.dir, name);
    let fails = |from, to, mode| failure(rename(bed, from, to, mode));
    bed.file("file");
    let (dir, full) = (bed.subdir("dir"), bed.subdir("full"));
    let replace = RenameMode::Replace;
    assert_eq!(fails(here("absent"), here("new"), replace), Failure::NotFound);
    assert_eq!(fails(here("file"), here("absent"), RenameMode::Exchange), Failure::NotFound);
    assert_eq!(fails(here("file"), here("dir"), replace), Failure::IsDirectory);
    assert_eq!(fails(here("dir"), here("file"), replace), Failure::NotDirectory);
    rename(bed, here("file"), (full, "file"), replace).expect("moved");
    assert_eq!(fails(here("dir"), here("full"), replace), Failure::Refused(Reason::NotEmpty));
    assert_eq!(fails(here("dir"), (dir, "below"), replace), Failure::Refused(Reason::Invalid));
}
