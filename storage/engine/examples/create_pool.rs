//! Creates a pool on files, writes a file, takes a snapshot, and reads both after an import.
//!
//! ```text
//! truncate -s 256M /tmp/d0 /tmp/d1
//! cargo run -p engine --example create_pool -- /tmp/d0 /tmp/d1
//! zdb -e -p /tmp demo
//! ```
//!
//! The engine has no clock, no randomness and no threads of its own: [`Environment`] gives it all three. Here the
//! thread that waits for a txg also writes it. The daemon has a thread for that ([`engine::pool::Background`]).

use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use engine::pool::{
    Environment, MemoryBudget, NewDataset, NewPool, NewVdev, Pool, VdevLayout, VdevRole,
};
use posix::{ChangeContext, Credentials, NewInode, Time, WriteOffset};
use units::ObjectId;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn since_1970() -> (u64, u32) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    (now.as_secs(), now.subsec_nanos())
}

fn environment() -> Environment {
    let random = |bytes: &mut [u8]| {
        let source = std::fs::File::open("/dev/urandom");
        source.and_then(|mut source| source.read_exact(bytes)).expect("random numbers");
    };
    Environment {
        random: Arc::new(random),
        now: Arc::new(since_1970),
        workers: 2,
        max_dirty: 64 << 20,
        cache: MemoryBudget::default(),
        host: (1, "example".to_owned()),
    }
}

/// Writes a file in the root directory of `demo/files`, and returns when it is on the drives.
fn write_file(pool: &Pool, name: &str, content: &[u8]) -> Result<()> {
    let files = pool.datasets().filesystem("demo/files")?;
    let root = ObjectId::new(files.reader().root_ino());
    let (seconds, nanoseconds) = since_1970();
    let now = Time { seconds: seconds.cast_signed(), nanoseconds };
    let context = ChangeContext { credentials: Credentials::new(0, 0), now };
    let file = files.create(&context, root, name.as_bytes(), &NewInode::default())?;
    files.write(&context, ObjectId::new(file.ino()), WriteOffset::At(0), content)?;
    Ok(pool.sync()?)
}

/// The drives are free again when the last handle of the pool is dropped.
fn create_pool(drives: &[PathBuf]) -> Result<()> {
    let layout = if drives.len() == 1 { VdevLayout::Single } else { VdevLayout::Mirror };
    let vdevs = vec![NewVdev { layout, drives: drives.to_vec(), role: VdevRole::Data }];
    let properties = vec![("compression".to_owned(), "lz4".to_owned())];
    let new = NewPool { name: "demo".to_owned(), vdevs, ashift: None, properties, force: false };
    let pool = engine::pool::create(&new, &environment())?;
    pool.datasets()
        .create_filesystem(&NewDataset { name: "demo/files".to_owned(), properties: Vec::new() })?;
    write_file(&pool, "hello", b"hello\n")?;
    pool.snapshots().create(&["demo/files@first".to_owned()])?;
    Ok(pool.export()?)
}

fn read_pool(drives: &[PathBuf]) -> Result<()> {
    let pool = engine::pool::import(drives, "demo", false, &environment())?;
    let files = pool.datasets().filesystem("demo/files")?;
    let file = files.reader().find(b"hello")?.ok_or("the file is gone")?;
    let mut content = vec![0; usize::try_from(file.stat().size)?];
    file.content().read(0, &mut content)?;
    for snapshot in pool.snapshots().list("demo/files")? {
        println!("{}", snapshot.name);
    }
    print!("{}", String::from_utf8_lossy(&content));
    drop((file, files));
    Ok(pool.export()?)
}

fn main() -> Result<()> {
    let drives: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    create_pool(&drives)?;
    read_pool(&drives)
}
