//! A mounted pool, operations on it, and its visible state.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use engine::pool::{Environment, MemoryBudget, NewPool, NewVdev, Pool, VdevLayout, VdevRole};
use fuse::{MountHandle, MountOptions, RollbackHandle};
use posix::Time;
use rustix::fs::{FallocateFlags, RenameFlags};
use vfs::PoolFileSystem;

/// Numbers that look random and are the same every time.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next_below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % below
    }
}

pub(crate) fn environment() -> Environment {
    let state = AtomicU64::new(0x9e37_79b9);
    Environment {
        random: Arc::new(move |bytes| {
            for byte in bytes {
                let next = state.load(Ordering::Relaxed).wrapping_mul(0x5851_f42d_4c95_7f2d);
                state.store(next.wrapping_add(0x1405), Ordering::Relaxed);
                *byte = next.to_be_bytes()[0];
            }
        }),
        now: Arc::new(|| (1_700_000_000, 0)),
        workers: 2,
        max_dirty: 64 << 20,
        cache: MemoryBudget::default(),
        host: (0x1234, "here".to_owned()),
    }
}

/// A pool that is mounted, and a folder beside it.
pub(crate) struct MountedPool {
    root: PathBuf,
    pub(crate) pool: Pool,
    pub(crate) fs: PoolFileSystem,
    stop: Arc<AtomicBool>,
    txg_thread: Option<std::thread::JoinHandle<()>>,
    pub(crate) mount: Option<(MountHandle, RollbackHandle)>,
    no_io_uring: bool,
}

impl MountedPool {
    fn mount_pool(root: PathBuf, pool: Pool, no_io_uring: bool) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, syncing) = (Arc::clone(&stop), pool.clone());
        let writing = std::thread::spawn(move || {
            syncing
                .background()
                .run_txg_sync(Duration::from_millis(200), &stopped)
                .expect("a pool that can be written");
        });
        let seconds = AtomicU64::new(1_700_000_000);
        let now = move || Time {
            seconds: i64::try_from(seconds.fetch_add(1, Ordering::Relaxed)).unwrap_or(0),
            nanoseconds: 7,
        };
        let live = PoolFileSystem::open(&pool, "tank", now).expect("a file system");
        let dir = root.join("mnt");
        let mounted = {
            let allow_other = rustix::process::geteuid().is_root();
            let options = MountOptions { no_io_uring, allow_other, ..MountOptions::default() };
            fuse::mount_filesystem(&live, vfs::DoorId::new_unique(), &dir, &options)
                .expect("a mount")
        };
        let txg_thread = Some(writing);
        Self { root, pool, fs: live, stop, txg_thread, mount: Some(mounted), no_io_uring }
    }

    pub(crate) fn create(name: &str) -> Self {
        Self::create_with(name, &[("acltype", "posix")])
    }

    /// A pool whose topmost file system has these properties.
    pub(crate) fn create_with(name: &str, properties: &[(&str, &str)]) -> Self {
        let folder = fixtures::scratch_dir(&format!("live-{name}"));
        let drives: Vec<PathBuf> =
            (0..3).map(|index| folder.join("drives").join(format!("d{index}.img"))).collect();
        fs::create_dir_all(folder.join("drives")).unwrap();
        fs::create_dir_all(folder.join("model")).unwrap();
        for drive in &drives {
            File::create(drive).unwrap().set_len(256 << 20).unwrap();
        }
        let new = NewPool {
            name: "tank".to_owned(),
            vdevs: vec![NewVdev { layout: VdevLayout::Raidz(1), drives, role: VdevRole::Data }],
            ashift: None,
            properties: properties.iter().map(|row| (row.0.to_owned(), row.1.to_owned())).collect(),
            force: false,
        };
        let held = engine::pool::create(&new, &environment()).expect("a pool");
        Self::mount_pool(folder, held, false)
    }

    pub(crate) fn mountpoint(&self) -> PathBuf {
        self.root.join("mnt")
    }

    pub(crate) fn model_dir(&self) -> PathBuf {
        self.root.join("model")
    }

    /// A file for the output of programs.
    pub(crate) fn output(&self) -> PathBuf {
        self.root.join("output")
    }

    fn export(&mut self) {
        let (mut mounted, beside) = self.mount.take().expect("a mount");
        drop(beside);
        assert!(mounted.unmount(), "it is in use");
        let end = mounted.wait_for_unmount(Duration::from_secs(20));
        assert!(matches!(end, Some(Ok(()))), "the session ended with {end:?}");
        self.stop.store(true, Ordering::Release);
        self.pool.sync().unwrap();
        self.txg_thread.take().unwrap().join().unwrap();
        self.pool.export().unwrap();
    }

    /// Mounted again, its questions coming the other way.
    pub(crate) fn remount(mut self) -> Self {
        self.export();
        let without_rings = !self.no_io_uring;
        let folder = self.root.clone();
        drop(self);
        let held = engine::pool::import(&[folder.join("drives")], "tank", false, &environment());
        Self::mount_pool(folder, held.expect("a pool"), without_rings)
    }

    /// Exports the pool and checks it.
    pub(crate) fn export_and_verify(mut self) {
        self.export();
        let drives = self.root.join("drives");
        drop(self);
        let search = engine::search(&[drives]);
        let pool = search.open("tank", &engine::OpenOptions::default()).expect("a pool");
        let verify = engine::check::PoolVerifier::new(&pool, Arc::default()).expect("a look");
        verify.work();
        while verify.next_round() {
            verify.work();
        }
        let findings = verify.findings();
        assert!(findings.clean, "{findings:?}");
        for space in &findings.space {
            let wrong = space.leaked_bytes + space.unallocated_bytes + space.contradicting_bytes;
            assert_eq!(wrong, 0, "{space:?}");
        }
    }
}

/// The visible state of a tree: by path the type and mode, links, size or target, content.
pub(crate) fn read_tree(root: &Path) -> BTreeMap<PathBuf, (u32, u64, Vec<u8>)> {
    let (mut all, mut dirs) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let found = fs::symlink_metadata(&path).unwrap();
            let content = if found.is_symlink() {
                fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
            } else if found.is_file() {
                let content = fs::read(&path).unwrap();
                assert_eq!(content.len() as u64, found.len());
                content
            } else {
                Vec::new()
            };
            if found.is_dir() {
                dirs.push(path.clone());
            }
            let links = if found.is_dir() { 0 } else { found.nlink() };
            let place = path.strip_prefix(root).unwrap().to_owned();
            all.insert(place, (found.mode(), links, content));
        }
    }
    all
}

/// One step on one of the trees; returns whether it succeeded, or its error.
pub(crate) fn apply_step(root: &Path, dice: &mut Random) -> Option<i32> {
    let name = |dice: &mut Random| {
        let dir = ["", "a", "b", "a/c"][usize::try_from(dice.next_below(4)).unwrap()];
        root.join(dir).join(format!("f{}", dice.next_below(12)))
    };
    let (path, other) = (name(dice), name(dice));
    let (offset, length) = (dice.next_below(700_000), dice.next_below(300_000));
    let bytes: Vec<u8> = {
        let mut noise = Random(offset ^ length);
        let count = usize::try_from(length).unwrap();
        (0..count).map(|_| noise.next_below(256).to_le_bytes()[0]).collect()
    };
    let open = || OpenOptions::new().read(true).write(true).open(&path);
    let what = dice.next_below(14);
    let done: std::io::Result<()> = match what {
        0..=2 => OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .and_then(|file| file.write_all_at(&bytes, offset)),
        3 => open().and_then(|file| file.set_len(offset)),
        4 => fs::remove_file(&path),
        5 => fs::rename(&path, &other),
        6 => fs::hard_link(&path, &other),
        7 => symlink(format!("to-{offset}"), &path),
        8 => fs::create_dir(&path),
        9 => fs::remove_dir(&path),
        10 => fs::set_permissions(&path, fs::Permissions::from_mode((offset & 0o777) as u32)),
        11 => OpenOptions::new().append(true).open(&path).and_then(|mut f| f.write_all(&bytes)),
        12 => open().and_then(|file| {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            Ok(rustix::fs::fallocate(&file, flags, offset, length.max(1))?)
        }),
        _ => {
            let dir = rustix::fs::CWD;
            let flags = RenameFlags::EXCHANGE;
            rustix::fs::renameat_with(dir, &path, dir, &other, flags).map_err(Into::into)
        }
    };
    done.err().map(|why| why.raw_os_error().unwrap_or(-1))
}
