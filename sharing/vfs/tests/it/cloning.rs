//! Copies that share blocks: within a file system, across file systems of a pool, and out of snapshots.

use posix::access::OpenMode;
use posix::{Credentials, FileType, Ino, NewInode};
use vfs::{Context, DoorId, FileOffset, FileSystem as _, OpenFile, PoolFileSystem};

use crate::pool::{TestPool, read, write};

const CONTEXT: Context<'static> = Context::new(&Credentials::ROOT, DoorId::DAEMON);
const SIZE: usize = 4 << 20;

fn create(fs: &PoolFileSystem, name: &[u8]) -> Ino {
    let new = NewInode { kind: FileType::File, mode: 0o644, ..NewInode::default() };
    fs.create(&CONTEXT, fs.root_ino(), name, &new).expect("a new file").ino
}

fn open(fs: &PoolFileSystem, ino: Ino) -> OpenFile {
    fs.open(&CONTEXT, ino, OpenMode::READ_WRITE).expect("an open file")
}

fn look_up(fs: &PoolFileSystem, path: &str) -> Ino {
    let mut names = path.split('/').map(str::as_bytes);
    let walk = |dir, name| fs.lookup(&CONTEXT, dir, name).map(|found| found.ino);
    names.try_fold(fs.root_ino(), walk).expect(path)
}

/// Copies a file to a new one. Returns the bytes that the copy takes.
fn allocated_by_copy(
    place: &TestPool,
    source: &OpenFile,
    (fs, name): (&PoolFileSystem, &[u8]),
) -> u64 {
    place.pool.sync().unwrap();
    let before = place.pool.status().allocated;
    let target = open(fs, create(fs, name));
    let [from, to] = [source, &target].map(|file| FileOffset { file, offset: 0 });
    let copied = fs.copy_range(&CONTEXT, from, to, SIZE as u64).expect("a copy");
    assert_eq!(copied, SIZE as u64);
    place.pool.sync().unwrap();
    place.pool.status().allocated.saturating_sub(before)
}

#[test]
fn copies_within_a_pool_share_blocks() {
    let place = TestPool::create();
    let new = engine::pool::NewDataset { name: "tank/other".to_owned(), properties: Vec::new() };
    place.pool.datasets().create_filesystem(&new).unwrap();
    let (fs, other) = (place.open("tank"), place.open("tank/other"));
    let file = create(&fs, b"file");
    let bytes: Vec<u8> = (0..SIZE).map(|at| u8::try_from(at * 7919 / 256 % 251).unwrap()).collect();
    write(&fs, file, &bytes);
    place.pool.snapshots().create(&["tank@one".to_owned()]).unwrap();
    let source = open(&fs, file);
    let kept_ino = look_up(&fs, ".zfs/snapshot/one/file");
    let kept = fs.open(&CONTEXT, kept_ino, OpenMode::READ).expect("a file of a snapshot");
    for (source, target, name) in [
        (&source, &fs, &b"copy"[..]),
        (&source, &other, b"across"),
        (&kept, &fs, b"restored"),
        (&kept, &other, b"restored"),
    ] {
        let allocated = allocated_by_copy(&place, source, (target, name));
        assert!(allocated < 1 << 20, "{}: {allocated}", String::from_utf8_lossy(name));
        let copy = look_up(target, std::str::from_utf8(name).unwrap());
        assert_eq!(read(target, copy), bytes[..100]);
    }
}

#[test]
fn copies_between_pools_are_written() {
    let (here, there) = (TestPool::create(), TestPool::create());
    let (from, to) = (here.open("tank"), there.open("tank"));
    let file = create(&from, b"file");
    write(&from, file, &vec![7; SIZE]);
    here.pool.sync().unwrap();
    let source = open(&from, file);
    there.pool.properties().set("tank", "compression", "off").unwrap();
    assert!(allocated_by_copy(&there, &source, (&to, b"copy")) >= SIZE as u64);
    assert_eq!(read(&to, look_up(&to, "copy")), vec![7; 100]);
}
