//! Files rewritten in place: content and times stay, and blocks get the present properties and layout.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use engine::files::FileStat;
use engine::pool::{NewDataset, Pool, RewriteFilter, VdevLayout};
use job::Job;
use posix::WriteOffset;
use units::ObjectId;

use crate::shared_blocks::noise_bytes;
use crate::test_pool::{
    TempDir, check_pool, copy_after_cut, credentials, environment, new_pool, read_file, write_file,
};

const ALL: RewriteFilter =
    RewriteFilter { skip_cloned: false, skip_snapshots: false, born_before: None };

fn create_pool(name: &str) -> (TempDir, Pool) {
    let folder = TempDir::new(name, 3, 256 << 20);
    let layout = VdevLayout::Raidz(1);
    let pool = engine::pool::create(&new_pool(&folder, layout, 3), &environment()).unwrap();
    (folder, pool)
}

fn stat(pool: &Pool, dataset: &str, name: &str) -> FileStat {
    let fs = pool.datasets().filesystem(dataset).unwrap();
    fs.reader().find(name.as_bytes()).unwrap().unwrap().stat()
}

/// Rewrites a file. Returns the bytes that were rewritten, and those that were skipped.
fn rewrite(pool: &Pool, dataset: &str, name: &str, filter: &RewriteFilter) -> (u64, u64) {
    let fs = pool.datasets().filesystem(dataset).unwrap();
    let file = ObjectId::new(stat(pool, dataset, name).ino);
    let (mut next, mut sums) = (Some(0), (0, 0));
    while let Some(start) = next {
        let part = fs.rewrite_range(file, start..u64::MAX, filter).unwrap();
        sums = (sums.0 + part.rewritten, sums.1 + part.skipped);
        next = part.next;
    }
    sums
}

/// Bytes that the pool uses, with all changes on the drives.
fn allocated(pool: &Pool) -> u64 {
    // what a txg freed is free two txgs later
    (0..3).for_each(|_| pool.sync().unwrap());
    pool.status().allocated
}

fn export_and_check(folder: &TempDir, pool: Pool) {
    pool.export().unwrap();
    drop(pool);
    assert_eq!(check_pool(folder, "tank"), Vec::<String>::new());
}

#[test]
fn rewrite_applies_properties_and_keeps_content_and_times() {
    let (folder, pool) = create_pool("rewrite");
    pool.properties().set("tank", "compression", "off").unwrap();
    let text = b"compressible text ".repeat(400_000);
    write_file(&pool, "tank", "text", &text);
    write_file(&pool, "tank", "tiny", b"a few bytes");
    let before = allocated(&pool);
    pool.properties().set("tank", "compression", "zstd").unwrap();
    let (times, txg) = (stat(&pool, "tank", "text"), pool.txg() + 1);
    pool.sync().unwrap();
    let blocks = (text.len() as u64).next_multiple_of(128 << 10);
    assert_eq!(rewrite(&pool, "tank", "text", &ALL), (blocks, 0));
    // dirty blocks are written anyway
    assert_eq!(rewrite(&pool, "tank", "text", &ALL), (0, 0));
    rewrite(&pool, "tank", "tiny", &ALL);
    let now = allocated(&pool);
    assert!(now < before - before / 2, "{before} bytes before, {now} now");
    let after = stat(&pool, "tank", "text");
    assert_eq!((after.mtime, after.ctime, after.size), (times.mtime, times.ctime, times.size));
    // what a rewrite has done is not done again by one that goes on
    let rest = RewriteFilter { born_before: Some(txg), ..ALL };
    assert_eq!(rewrite(&pool, "tank", "text", &rest), (0, blocks));
    let cut = copy_after_cut(&folder, "rewrite-cut", 3);
    assert_eq!(check_pool(&cut, "tank"), Vec::<String>::new());
    assert!(read_file(&pool, "tank", "text") == text);
    assert!(read_file(&pool, "tank", "tiny") == b"a few bytes");
    export_and_check(&folder, pool);
}

#[test]
fn rewrite_moves_blocks_with_strong_checksums() {
    let (folder, pool) = create_pool("rewrite-nopwrite");
    pool.properties().set("tank", "checksum", "sha256").unwrap();
    let bytes = noise_bytes(2, 3 << 20);
    write_file(&pool, "tank", "file", &bytes);
    pool.sync().unwrap();
    let older = RewriteFilter { born_before: Some(pool.txg() + 1), ..ALL };
    assert_eq!(rewrite(&pool, "tank", "file", &older), (3 << 20, 0));
    pool.sync().unwrap();
    // the writer kept no block in place, though it found the same content there
    assert_eq!(rewrite(&pool, "tank", "file", &older), (0, 3 << 20));
    assert!(read_file(&pool, "tank", "file") == bytes);
    export_and_check(&folder, pool);
}

#[test]
fn shared_blocks_are_skipped_on_request() {
    let (folder, pool) = create_pool("rewrite-shared");
    let bytes = noise_bytes(3, 4 << 20);
    for name in ["cloned", "kept"] {
        write_file(&pool, "tank", name, &bytes);
    }
    pool.sync().unwrap();
    let fs = pool.datasets().filesystem("tank").unwrap();
    let root = ObjectId::new(fs.reader().root_object());
    let copy = fs.create(&credentials(), root, b"copy", &posix::NewInode::default()).unwrap();
    let source = fs.reader().find(b"cloned").unwrap().unwrap().content();
    let target = (ObjectId::new(copy.ino()), 0);
    let shared = fs.clone_content(&credentials(), (&source, 0), target, 4 << 20).unwrap();
    assert_eq!(shared, 4 << 20);
    drop((fs, source, copy));
    let before = allocated(&pool);
    let no_clones = RewriteFilter { skip_cloned: true, ..ALL };
    assert_eq!(rewrite(&pool, "tank", "copy", &no_clones), (0, 4 << 20));
    assert_eq!(rewrite(&pool, "tank", "kept", &no_clones), (4 << 20, 0));
    assert!(allocated(&pool) < before + (1 << 20));
    // the copy has blocks of its own from now on
    assert_eq!(rewrite(&pool, "tank", "copy", &ALL), (4 << 20, 0));
    assert!(allocated(&pool) > before + (4 << 20));
    assert_eq!(rewrite(&pool, "tank", "cloned", &no_clones), (4 << 20, 0));
    pool.snapshots().create(&["tank@one".to_owned()]).unwrap();
    let no_snapshots = RewriteFilter { skip_snapshots: true, ..ALL };
    assert_eq!(rewrite(&pool, "tank", "kept", &no_snapshots), (0, 4 << 20));
    assert_eq!(rewrite(&pool, "tank", "kept", &ALL), (4 << 20, 0));
    pool.sync().unwrap();
    assert_eq!(rewrite(&pool, "tank", "kept", &no_snapshots), (4 << 20, 0));
    for name in ["cloned", "copy", "kept"] {
        assert!(read_file(&pool, "tank", name) == bytes, "{name}");
    }
    export_and_check(&folder, pool);
}

#[test]
fn encrypted_files_are_rewritten() {
    const SECRET: &[u8] = b"correct horse battery staple";
    let (folder, pool) = create_pool("rewrite-encrypted");
    let properties = [("encryption", "on"), ("keyformat", "passphrase"), ("pbkdf2iters", "100000")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec();
    let new = NewDataset { name: "tank/secret".to_owned(), properties };
    pool.datasets().create_filesystem_with(&new, Some(SECRET)).unwrap();
    let bytes = noise_bytes(4, 2_500_000);
    write_file(&pool, "tank/secret", "file", &bytes);
    pool.sync().unwrap();
    assert!(rewrite(&pool, "tank/secret", "file", &ALL).0 > 2_500_000);
    assert!(read_file(&pool, "tank/secret", "file") == bytes);
    export_and_check(&folder, pool);
    let pool =
        engine::pool::import(&[folder.path().into()], "tank", false, &environment()).unwrap();
    pool.keys().load("tank/secret", SECRET).unwrap();
    assert!(read_file(&pool, "tank/secret", "file") == bytes);
    export_and_check(&folder, pool);
}

/// Two writers change a file all the time, each its own bytes of every block, while it is rewritten and txgs are
/// written. Their last writes are there.
#[test]
fn writers_win_over_a_rewrite() {
    const SIZE: u64 = 3 << 20;
    let (folder, pool) = create_pool("rewrite-race");
    write_file(&pool, "tank", "file", &vec![0; usize::try_from(SIZE).unwrap()]);
    pool.sync().unwrap();
    let file = ObjectId::new(stat(&pool, "tank", "file").ino);
    let (is_done, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let write_all = |offset: u64| {
        let fs = pool.datasets().filesystem("tank").unwrap();
        let mut last = 0;
        while !is_done.load(Ordering::Acquire) {
            last += 1;
            for at in (offset..SIZE).step_by(64 << 10) {
                let bytes = u64::to_le_bytes(last);
                fs.write(&credentials(), file, WriteOffset::At(at), &bytes).unwrap();
                written.fetch_add(1, Ordering::Relaxed);
            }
        }
        last
    };
    let write_all = &write_all;
    let last = std::thread::scope(|scope| {
        let writers = [0, 8].map(|offset| scope.spawn(move || write_all(offset)));
        let mut rounds = 0;
        while rounds < 12 || written.load(Ordering::Relaxed) < 500 {
            rewrite(&pool, "tank", "file", &ALL);
            pool.sync().unwrap();
            rounds += 1;
        }
        is_done.store(true, Ordering::Release);
        writers.map(|writer| writer.join().unwrap())
    });
    let bytes = read_file(&pool, "tank", "file");
    for (offset, last) in [0, 8].into_iter().zip(last) {
        for at in (offset..bytes.len()).step_by(64 << 10) {
            assert_eq!(bytes[at..at + 8], u64::to_le_bytes(last), "byte {at}");
        }
    }
    export_and_check(&folder, pool);
}

#[test]
fn rewrite_gives_files_the_ratio_after_expansion() {
    let folder = TempDir::new("rewrite-expanded", 3, 96 << 20);
    let new = new_pool(&folder, VdevLayout::Raidz(1), 3);
    let pool = engine::pool::create(&new, &environment()).unwrap();
    let bytes = noise_bytes(5, 24 << 20);
    write_file(&pool, "tank", "old", &bytes);
    let before = allocated(&pool);
    let drive = folder.path().join("new.img");
    std::fs::File::create(&drive).unwrap().set_len(96 << 20).unwrap();
    pool.vdevs().attach("raidz1-0", &drive, false).unwrap();
    pool.activities().continue_raidz_expansion(&Job::default()).unwrap().unwrap();
    let expanded = allocated(&pool);
    assert!(expanded + (1 << 20) > before, "an expansion alone frees nothing");
    assert_eq!(rewrite(&pool, "tank", "old", &ALL), (24 << 20, 0));
    let now = allocated(&pool);
    // each of 192 blocks took 48 sectors of three drives, and takes 44 sectors of four: 3 MiB less
    assert!(now + (5 << 19) < expanded, "{expanded} bytes before the rewrite, {now} after it");
    assert!(read_file(&pool, "tank", "old") == bytes);
    export_and_check(&folder, pool);
}
