//! `.zfs/shadow`: snapshots by the time at which they were taken, as Samba's shadow_copy2 wants them.

use posix::{Credentials, FileType, Ino, NewInode};
use vfs::{Context, DoorId, Error, FileSystem as _, PoolFileSystem};

use crate::pool::{TestPool, read, write};

const CONTEXT: Context<'static> = Context::new(&Credentials::ROOT, DoorId::DAEMON);
/// The second at which the clock of the test's pools is stopped.
const NAME: &str = "@GMT-2023.11.14-22.13.20";

fn lookup_path(fs: &PoolFileSystem, path: &str) -> vfs::Result<Ino> {
    let mut names = path.split('/').map(str::as_bytes);
    names.try_fold(fs.root_ino(), |dir, name| Ok(fs.lookup(&CONTEXT, dir, name)?.ino))
}

fn list(fs: &PoolFileSystem, path: &str) -> Vec<String> {
    let dir = fs.open_dir(&CONTEXT, lookup_path(fs, path).expect(path)).expect("an open directory");
    let mut names = Vec::new();
    let visited = dir.visit_from(0, &mut |entry| {
        names.push(String::from_utf8(entry.name.clone()).expect("a name in UTF-8"));
        true
    });
    visited.expect("the names");
    names
}

#[test]
fn shadow_shows_snapshots_by_creation_time() {
    let place = TestPool::create();
    let fs = place.open("tank");
    // it can be looked up, and a program that walks .zfs does not see each snapshot twice
    assert_eq!(list(&fs, ".zfs"), [".", "..", "snapshot"]);
    assert_eq!(list(&fs, ".zfs/shadow"), [".", ".."]);
    let new = NewInode { kind: FileType::File, mode: 0o644, ..NewInode::default() };
    let file = fs.create(&CONTEXT, fs.root_ino(), b"file", &new).unwrap().ino;
    for content in [&b"first"[..], b"other", b"third"] {
        write(&fs, file, content);
        let name = format!("tank@{}", String::from_utf8_lossy(content));
        place.pool.snapshots().create(&[name]).unwrap();
    }
    write(&fs, file, b"later");
    // of one second the latest one is shown
    assert_eq!(list(&fs, ".zfs/shadow"), [".", "..", NAME]);
    let shown = lookup_path(&fs, &format!(".zfs/shadow/{NAME}/file")).unwrap();
    assert_eq!(read(&fs, shown), b"third");
    // the kernel wants one path for a directory: the same snapshot has other numbers below .zfs/snapshot
    assert_ne!(shown, lookup_path(&fs, ".zfs/snapshot/third/file").unwrap());
    assert_eq!(shown, lookup_path(&fs, &format!(".zfs/shadow/{NAME}/file")).unwrap());
    for path in [".zfs/shadow/third", ".zfs/shadow/@GMT-2023.11.14-22.13.21"] {
        assert!(matches!(lookup_path(&fs, path), Err(Error::NotFound)), "{path}");
    }
    place.pool.datasets().destroy("tank@third").unwrap();
    let shown = lookup_path(&fs, &format!(".zfs/shadow/{NAME}/file")).unwrap();
    assert_eq!(read(&fs, shown), b"other");
    place.pool.properties().set("tank", "snapdir", "disabled").unwrap();
    assert!(lookup_path(&fs, ".zfs").is_err());
    place.pool.export().unwrap();
}
