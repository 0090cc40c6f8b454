//! The name `.zfs` in the root of a file system belongs to the control directory. Takes /dev/fuse.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, RenameFlags};
use rustix::io::Errno;

use crate::mounted_fixture::can_mount;
use crate::mounted_pool::MountedPool;

/// An operation and its expected result.
type Operation = (&'static str, io::Result<()>);

/// Every operation that could create or remove the name, tried in `dir`.
fn try_operations(dir: &Path) -> Vec<Operation> {
    let [control, file, folder] = [".zfs", "f", "d"].map(|name| dir.join(name));
    let rename = |from: &Path, to: &Path, flags| {
        rustix::fs::renameat_with(CWD, from, CWD, to, flags).map_err(io::Error::from)
    };
    let fifo = || rustix::fs::mknodat(CWD, &control, FileType::Fifo, Mode::RUSR, 0);
    vec![
        ("rename of a file", fs::rename(&file, &control)),
        ("rename of a directory", fs::rename(&folder, &control)),
        ("rename out of a directory", fs::rename(folder.join("x"), &control)),
        ("rename that replaces nothing", rename(&file, &control, RenameFlags::NOREPLACE)),
        ("exchange", rename(&folder, &control, RenameFlags::EXCHANGE)),
        ("whiteout", rename(&file, &control, RenameFlags::WHITEOUT)),
        ("link", fs::hard_link(&file, &control)),
        ("symlink", symlink("f", &control)),
        ("mkdir", fs::create_dir(&control)),
        ("mkfifo", fifo().map_err(io::Error::from)),
        ("create", fs::File::create(&control).map(drop)),
        ("create exclusively", fs::File::create_new(&control).map(drop)),
        ("rename of .zfs", rename(&control, &dir.join("z"), RenameFlags::empty())),
        ("rmdir", fs::remove_dir(&control)),
        ("unlink", fs::remove_file(&control)),
    ]
}

fn list_names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = entries.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn nothing_takes_the_name_of_the_control_directory() {
    if !can_mount() {
        return;
    }
    let place = MountedPool::create("control");
    let dir = place.mountpoint();
    fs::write(dir.join("f"), b"data").unwrap();
    fs::create_dir(dir.join("d")).unwrap();
    fs::write(dir.join("d/x"), b"data").unwrap();
    for snapdir in ["hidden", "visible", "disabled"] {
        place.pool.properties().set("tank", "snapdir", snapdir).unwrap();
        for (name, result) in try_operations(&dir) {
            let why = result.expect_err(name);
            let makes = !["rename of .zfs", "rmdir", "unlink"].contains(&name);
            // the kernel itself refuses some, as it finds a directory there, or nothing
            let by_kernel = match (name, snapdir) {
                ("exchange", "disabled") => Errno::NOENT,
                (_, "disabled") => Errno::EXIST,
                _ => Errno::ISDIR,
            };
            if makes {
                let known = [Some(Errno::EXIST), Some(by_kernel)];
                assert!(known.contains(&Errno::from_io_error(&why)), "{name}, {snapdir}: {why}");
            }
        }
        let shown: Vec<_> = list_names(&dir).into_iter().filter(|name| name != ".zfs").collect();
        assert_eq!(shown, ["d", "f"], "snapdir={snapdir}");
    }
    fs::create_dir(dir.join("d/.zfs")).expect("a name like any other elsewhere");
    place.export_and_verify();
}
