//! Send streams in files as a pool: they are received into a scratch pool, which is then read like any other.
//!
//! The pool is on a sparse file of this process, which has no name once the streams are in it. So nothing is left behind,
//! also after a crash.

use std::fs::{File, OpenOptions};
use std::io::BufReader;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::pool::{
    Environment, MemoryBudget, NewDataset, NewPool, NewVdev, Pool, ReceiveRequest, StreamInput,
    VdevLayout, VdevRole,
};

use crate::outcome::Failure;

/// Bytes of the sparse file beside those for the streams.
const EXTRA_SIZE: u64 = 1 << 30;
/// Blocks can be compressed better in a stream than here.
const GROWTH: u64 = 8;
/// Bytes of a stream that count: no file system stores more.
const MAX_STREAM: u64 = 1 << 50;
const BUFFER_SIZE: usize = 1 << 20;
const MAX_DIRTY: u64 = 64 << 20;
const TXG_INTERVAL: Duration = Duration::from_secs(5);

/// A pool with the snapshots of streams.
pub(super) struct StreamPool {
    file: File,
}

impl StreamPool {
    /// Receives streams in their order. The pool has the name that the sender's pool had. Its file is in `folder`.
    pub(super) fn receive(streams: &[PathBuf], folder: &Path) -> Result<Self, Failure> {
        let mut bytes = EXTRA_SIZE;
        for stream in streams {
            let info = std::fs::metadata(stream);
            let info = info.map_err(|why| unreadable(stream, &why))?;
            bytes += info.len().min(MAX_STREAM) * GROWTH;
        }
        let path = folder.join(format!(".poolhouse-stream-{}", std::process::id()));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        let file = options.open(&path).map_err(|why| Failure::destination(&path, &why))?;
        let filled = file
            .set_len(bytes)
            .map_err(|why| Failure::destination(&path, &why))
            .and_then(|()| fill(streams, &path));
        let removed = std::fs::remove_file(&path);
        filled?;
        removed.map_err(|why| Failure::destination(&path, &why))?;
        Ok(Self { file })
    }

    /// The path by which this process opens the pool's device.
    pub(super) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }
}

fn unreadable(path: &Path, why: &std::io::Error) -> Failure {
    Failure::unreadable(path, &engine::error::io_error_text(why))
}

/// Creates the pool, receives the streams into it, and exports it.
fn fill(streams: &[PathBuf], device: &Path) -> Result<(), Failure> {
    let mut pool: Option<(Pool, String)> = None;
    for path in streams {
        let file = File::open(path).map_err(|why| unreadable(path, &why))?;
        let mut file = BufReader::with_capacity(BUFFER_SIZE, file);
        let mut input = StreamInput::open(&mut file)?;
        let name = match input.compound_name() {
            Some(name) => name.to_owned(),
            None => input.next_snapshot()?.map(|header| header.name).unwrap_or_default(),
        };
        if pool.is_none() {
            let name = name.split(['/', '@']).next().unwrap_or_default().to_owned();
            pool = Some((create_pool(&name, device)?, name));
        }
        if let Some((pool, name)) = &pool {
            receive_all(pool, name, &mut input)?;
        }
    }
    if let Some((pool, _)) = pool {
        pool.export()?;
    }
    Ok(())
}

fn create_pool(name: &str, device: &Path) -> Result<Pool, Failure> {
    let drives = vec![device.to_owned()];
    let vdev = NewVdev { layout: VdevLayout::Single, drives, role: VdevRole::Data };
    let new = NewPool {
        name: name.to_owned(),
        vdevs: vec![vdev],
        ashift: None,
        properties: vec![("compression".to_owned(), "zstd".to_owned())],
        force: true,
    };
    let now = crate::backup::now;
    let environment = Environment {
        random: crate::backup::random(),
        now: Arc::new(move || (now(), 0)),
        workers: std::thread::available_parallelism().map_or(1, usize::from),
        max_dirty: MAX_DIRTY,
        cache: MemoryBudget::default(),
        host: (1, rustix::system::uname().nodename().to_string_lossy().into_owned()),
    };
    Ok(engine::pool::create(&new, &environment)?)
}

/// Receives all snapshots of a stream, while a thread writes the txgs.
fn receive_all(pool: &Pool, name: &str, input: &mut StreamInput<'_>) -> Result<(), Failure> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sync_thread = scope.spawn(|| pool.background().run_txg_sync(TXG_INTERVAL, &stop));
        let done = receive_snapshots(pool, name, input);
        stop.store(true, Ordering::Release);
        let synced = pool.sync();
        let ended = sync_thread.join().unwrap_or(Ok(()));
        done.and_then(|()| Ok(synced.and(ended)?))
    })
}

fn receive_snapshots(pool: &Pool, name: &str, input: &mut StreamInput<'_>) -> Result<(), Failure> {
    while let Some(header) = input.next_snapshot()? {
        let sent = header.name.split('@').next().unwrap_or_default();
        let below = sent.split_once('/').map_or("", |(_, below)| below);
        let target = if below.is_empty() { name.to_owned() } else { format!("{name}/{below}") };
        create_parents(pool, &target)?;
        let request = ReceiveRequest { target, force: true, ..ReceiveRequest::default() };
        pool.streams().receive_snapshot(&request, input, &mut |_, exchange| exchange())?;
    }
    Ok(())
}

/// Creates the file systems above a dataset that do not exist.
fn create_parents(pool: &Pool, target: &str) -> Result<(), Failure> {
    let slashes = target.match_indices('/').map(|(at, _)| at).skip(1);
    for parent in slashes.filter_map(|at| target.get(..at)) {
        if pool.snapshots().list(parent).is_err() {
            let new = NewDataset { name: parent.to_owned(), properties: Vec::new() };
            pool.datasets().create_filesystem(&new)?;
        }
    }
    Ok(())
}
