//! File handles that outlast renames, export and import.

use engine::pool::NewDataset;
use posix::access::OpenMode;
use posix::{Credentials, FileType, Ino, NewInode, RenameMode, RenameRequest};
use vfs::{
    Context, DoorId, Error, FileHandle, FileSystem as _, HandleKey, HandleKind, PoolFileSystem,
    SharedFileSystem as _,
};

use crate::pool::{TestPool, read, write};

const CONTEXT: Context<'static> = Context::new(&Credentials::ROOT, DoorId::DAEMON);

fn key() -> HandleKey {
    HandleKey::new([9; 32])
}

fn create(fs: &PoolFileSystem, dir: Ino, name: &[u8], kind: FileType) -> Ino {
    let new = NewInode { kind, mode: 0o755, ..NewInode::default() };
    fs.create(&CONTEXT, dir, name, &new).expect("a new file").ino
}

/// The bytes that a client keeps of a file.
fn encode(fs: &PoolFileSystem, ino: Ino) -> Vec<u8> {
    fs.handle(ino).expect("a handle").encode(&key()).expect("its bytes").to_vec()
}

fn resolve(fs: &PoolFileSystem, bytes: &[u8]) -> vfs::Result<Ino> {
    fs.resolve_handle(&FileHandle::decode(&key(), bytes).expect("a handle of ours"))
}

fn assert_stale(fs: &PoolFileSystem, bytes: &[u8]) {
    assert!(matches!(resolve(fs, bytes), Err(Error::Stale)), "{:?}", resolve(fs, bytes));
}

#[test]
fn handles_survive_renames_and_reimport() {
    let place = TestPool::create();
    let new = NewDataset { name: "tank/home".to_owned(), properties: Vec::new() };
    place.pool.datasets().create_filesystem(&new).unwrap();
    let fs = place.open("tank/home");
    let root = fs.root_ino();
    let dir = create(&fs, root, b"dir", FileType::Directory);
    let file = create(&fs, dir, b"file", FileType::File);
    write(&fs, file, b"content");
    let bytes = [root, dir, file].map(|ino| encode(&fs, ino));
    assert_eq!(bytes[2].len(), 56);
    let mode = RenameMode::Replace;
    let (from, to) = ((dir, b"file"), (root, b"elsewhere"));
    let rename =
        RenameRequest { from_dir: from.0, from_name: from.1, to_dir: to.0, to_name: to.1, mode };
    fs.rename(&CONTEXT, &rename).unwrap();
    assert_eq!(resolve(&fs, &bytes[2]).unwrap(), file);
    drop(fs);
    place.pool.datasets().rename("tank/home", "tank/moved", false).unwrap();
    let place = place.reimport();
    let fs = place.open("tank/moved");
    for (bytes, ino) in bytes.iter().zip([root, dir, file]) {
        assert_eq!(resolve(&fs, bytes).unwrap(), ino);
    }
    assert_eq!(read(&fs, resolve(&fs, &bytes[2]).unwrap()), b"content");
    // the same numbers in another dataset are another file
    let other = place.open("tank");
    for bytes in &bytes {
        assert_stale(&other, bytes);
    }
    place.pool.export().unwrap();
}

#[test]
fn handles_of_removed_files_are_stale() {
    let place = TestPool::create();
    let fs = place.open("tank");
    let root = fs.root_ino();
    let file = create(&fs, root, b"file", FileType::File);
    let bytes = encode(&fs, file);
    let open = fs.open(&CONTEXT, file, OpenMode::READ_WRITE).unwrap();
    fs.unlink(&CONTEXT, root, b"file").unwrap();
    // it has no name any more, and exists as long as it is open
    assert_eq!(resolve(&fs, &bytes).unwrap(), file);
    drop(open);
    assert_stale(&fs, &bytes);
    drop(fs);
    // inode numbers are assigned again after an import
    let place = place.reimport();
    let fs = place.open("tank");
    let names = (0..64).map(|number| format!("f{number}").into_bytes());
    let made: Vec<Ino> = names.map(|name| create(&fs, root, &name, FileType::File)).collect();
    assert!(made.contains(&file), "{file} of {made:?}");
    assert_stale(&fs, &bytes);
    place.pool.export().unwrap();
}

#[test]
fn handles_name_snapshots_volumes_and_control_directories() {
    let place = TestPool::create();
    let fs = place.open("tank");
    let root = fs.root_ino();
    let file = create(&fs, root, b"file", FileType::File);
    write(&fs, file, b"before");
    for name in ["tank@one", "tank@two"] {
        place.pool.snapshots().create(&[name.to_owned()]).unwrap();
    }
    write(&fs, file, b"behind");
    let volume = NewDataset { name: "tank/disk".to_owned(), properties: Vec::new() };
    place.pool.volumes().create(&volume, 1 << 20, 8192, true).unwrap();
    let look = |fs: &PoolFileSystem, path: &str| {
        let names = path.split('/').map(str::as_bytes);
        names.fold(root, |dir, name| fs.lookup(&CONTEXT, dir, name).expect(path).ino)
    };
    let paths = [
        ".zfs",
        ".zfs/snapshot",
        ".zfs/snapshot/two/file",
        ".zfs/volume/disk",
        ".zfs/volume",
        ".zfs/shadow",
    ];
    let bytes = paths.map(|path| encode(&fs, look(&fs, path)));
    assert_eq!(fs.handle(look(&fs, paths[3])).unwrap().kind, HandleKind::Volume);
    drop(fs);
    place.pool.datasets().destroy("tank@one").unwrap();
    let place = place.reimport();
    let fs = place.open("tank");
    let found = bytes.each_ref().map(|bytes| resolve(&fs, bytes).unwrap());
    assert_eq!(read(&fs, found[2]), b"before");
    for (path, ino) in paths.iter().zip(found) {
        assert_eq!(look(&fs, path), ino, "{path}");
    }
    place.pool.datasets().destroy("tank@two").unwrap();
    place.pool.datasets().destroy("tank/disk").unwrap();
    assert_stale(&fs, &bytes[2]);
    assert_stale(&fs, &bytes[3]);
    place.pool.export().unwrap();
}
