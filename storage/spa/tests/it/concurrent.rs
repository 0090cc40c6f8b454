//! Operations of other threads during a sync.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use device::{Device, Error, File};
use spa::vdev_layout::VdevLayout;
use spa::{ActivePool, create_pool};

use crate::create::{TestDir, create_test_pool, environment, new_pool, open_pool};

/// The hook of the next write to a drive, and the number of writes.
#[derive(Default)]
struct WriteHook {
    on_next_write: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    writes: AtomicUsize,
}

impl WriteHook {
    fn set_hook(&self, what: impl FnOnce() + Send + 'static) {
        *self.on_next_write.lock().unwrap() = Some(Box::new(what));
    }
}

/// A drive that is watched.
struct HookedDevice(File, Arc<WriteHook>);

impl std::fmt::Debug for HookedDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Device for HookedDevice {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        self.0.read_at(offset, into)
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
        self.1.writes.fetch_add(1, Ordering::SeqCst);
        let then = self.1.on_next_write.lock().unwrap().take();
        if let Some(then) = then {
            then();
        }
        self.0.write_at(offset, from)
    }

    fn flush(&self) -> Result<(), Error> {
        self.0.flush()
    }
}

/// A pool on one drive, that drive, and its hook.
fn create_hooked_pool(folder: &TestDir) -> (Arc<ActivePool>, Arc<dyn Device>, Arc<WriteHook>) {
    let drives = folder.create_devices(1, 256 << 20);
    let file = File::open_exclusive(Path::new(&drives[0].path)).unwrap();
    let watch = Arc::new(WriteHook::default());
    let device: Arc<dyn Device> = Arc::new(HookedDevice(file, Arc::clone(&watch)));
    let new = new_pool((VdevLayout::Single, 9), &drives, vec![Arc::clone(&device)]);
    let made = create_pool(new, environment(), &mut |_, _, _| Ok(())).unwrap();
    (Arc::new(made.pool), device, watch)
}

/// The comment in the pool's own configuration, and in its label.
fn comments(device: &Arc<dyn Device>) -> [Option<String>; 2] {
    let (found, _) = spa::scan_devices(std::slice::from_ref(device));
    let pool = found[0].open(&spa::PoolOpenOptions::default()).unwrap();
    [pool.config().comment.clone(), found[0].config().unwrap().pool.comment.clone()]
}

#[test]
fn config_change_during_sync_waits_for_next() {
    let folder = TestDir::new("meanwhile");
    let (active, device, watch) = create_hooked_pool(&folder);
    let late = Arc::clone(&active);
    let change = move |active: &ActivePool, _: &dsl::write::SyncTaskContext<'_>| {
        active.set_comment(Some("early".to_owned()));
        watch.set_hook(move || late.set_comment(Some("late".to_owned())));
    };
    active.run_sync_task(change).unwrap();
    let both = |comment: &str| [(); 2].map(|()| Some(comment.to_owned()));
    assert_eq!(comments(&device), both("early"));
    assert!(active.is_dirty());
    active.sync().unwrap();
    assert_eq!(comments(&device), both("late"));
}

#[test]
fn missed_heartbeats_prevent_commits() {
    let (folder, made) = create_test_pool("given-up", VdevLayout::Mirror, 2, 12);
    let before = made.pool.txgs().synced_txg();
    let given_up = made.pool.run_sync_task(|active, _| active.stop_writes());
    assert!(matches!(given_up, Err(spa::Error::HeartbeatLost)), "{given_up:?}");
    drop(made);
    assert_eq!(open_pool(&folder).txg(), before);
}

#[test]
fn missed_heartbeats_prevent_writes() {
    let writes = |gives_up: bool| {
        let folder = TestDir::new(&format!("retired-{gives_up}"));
        let (active, _, watch) = create_hooked_pool(&folder);
        let (late, before) = (Arc::clone(&active), watch.writes.load(Ordering::SeqCst));
        let watched = Arc::clone(&watch);
        let done = active.run_sync_task(move |active, _| {
            active.set_comment(Some("given up".to_owned()));
            if gives_up {
                watched.set_hook(move || late.stop_writes());
            }
        });
        assert_eq!(matches!(done, Err(spa::Error::HeartbeatLost)), gives_up, "{done:?}");
        watch.writes.load(Ordering::SeqCst) - before
    };
    // each thread finishes its running write
    let workers = environment().workers;
    let (given_up, whole) = (writes(true), writes(false));
    assert!(given_up <= workers && whole > 2 * workers, "{given_up} of {whole}");
}
