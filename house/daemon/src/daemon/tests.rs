//! What is remembered when the daemon ends, or cannot write that down.

use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use engine::pool::Rewind;

use super::Daemon;
use super::destroy_plan::DestroyScope;
use super::unavailable::UnavailablePool;
use crate::cancel::Cancel;
use crate::log::Log;
use crate::pool_cache::SavedPool;
use crate::{CreatePool, MountOverrides, StateDir, VdevLayout, VdevRole, environment, pool_cache};

/// A daemon with a pool, in a folder of its own.
struct TestDaemon {
    dir: PathBuf,
    state_dir: StateDir,
    daemon: Arc<Daemon>,
}

impl TestDaemon {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("poolhouse-{name}-{}", std::process::id()));
        let place = StateDir::from_dir(&folder).unwrap();
        place.create_dirs().unwrap();
        let log = Log::open(&place, false).unwrap();
        let house = Daemon::new(
            place.clone(),
            log,
            environment::host_environment(Some(256 << 20)).unwrap(),
        );
        let home = Self { dir: folder, state_dir: place, daemon: Arc::new(house) };
        home.create_pool("tank").unwrap();
        home
    }

    fn create_pool(&self, name: &str) -> crate::Result<crate::Mounting> {
        let drive = self.dir.join(format!("{name}.drive"));
        File::create(&drive).unwrap().set_len(96 << 20).unwrap();
        self.daemon.create_pool(&CreatePool {
            name: name.to_owned(),
            temporary_name: None,
            vdevs: vec![(VdevLayout::Single, VdevRole::Data, vec![drive])],
            ashift: None,
            pool_properties: Vec::new(),
            no_default_features: false,
            filesystem_properties: vec![("mountpoint".to_owned(), "none".to_owned())],
            altroot: None,
            force: false,
            secret: None,
        })
    }

    fn saved_names(&self) -> Vec<String> {
        pool_cache::load(&self.state_dir).unwrap().into_iter().map(|pool| pool.name).collect()
    }
}

impl Drop for TestDaemon {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

#[test]
fn what_comes_too_late_has_no_pool_forgotten() {
    let home = TestDaemon::new("late");
    home.daemon.shut_down();
    // as where somebody ends the waiting for another pool just then
    home.daemon.save_pools().unwrap();
    assert_eq!(home.saved_names(), ["tank"]);
    let late = home.create_pool("late").unwrap_err().to_string();
    assert!(late.contains("the daemon ends"), "{late}");
    assert_eq!(home.saved_names(), ["tank"]);
}

#[test]
fn a_pool_that_cannot_be_forgotten_is_still_there() {
    let home = TestDaemon::new("full");
    let new = home.state_dir.pool_cache().with_extension("new");
    fs::create_dir(&new).unwrap();
    home.daemon.export_pool("tank", false).unwrap_err();
    assert_eq!(home.saved_names(), ["tank"]);
    fs::remove_dir(&new).unwrap();
    home.daemon.export_pool("tank", false).unwrap();
    assert!(home.saved_names().is_empty());
}

#[test]
fn a_pool_that_is_left_is_not_mounted_again() {
    let home = TestDaemon::new("left");
    let pool = home.daemon.pool("tank").unwrap();
    let dir = home.dir.join("mounted");
    pool.handle.set_property("tank", "mountpoint", dir.to_str().unwrap()).unwrap();
    home.daemon.export_pool("tank", false).unwrap();
    // who asked for it found the pool before it went
    let late = pool.mount_filesystem("tank", &MountOverrides::default()).unwrap_err().to_string();
    assert!(late.contains("the pool is being left"), "{late}");
    assert!(!dir.exists());
}

#[test]
fn many_remember_at_a_time() {
    let home = TestDaemon::new("many");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            // as where drives of several pools are replaced
            scope.spawn(|| (0..50).for_each(|_| home.daemon.save_pools().unwrap()));
        }
    });
    assert_eq!(home.saved_names(), ["tank"]);
}

#[test]
fn a_pool_that_is_just_taken_over_is_not_forgotten() {
    let home = TestDaemon::new("taken");
    let house = &home.daemon;
    let pool = house.pools.lock().remove("tank").unwrap();
    let waits = SavedPool {
        name: "tank".to_owned(),
        guid: pool.handle.guid(),
        drives: pool.handle.known_drives(),
        altroot: None,
        read_only: false,
        temporary: false,
        rewind: Rewind::No,
    };
    let why = engine::Error::NoSuchDataset { name: "tank".to_owned() };
    house.unavailable.lock().push(UnavailablePool::new(waits, &why));
    // its drives have come
    let moving = house.import_lock.lock();
    let (sender, told) = channel();
    std::thread::scope(|scope| {
        scope.spawn(move || sender.send(house.forget_unavailable("tank").is_some()).unwrap());
        let early = told.recv_timeout(Duration::from_millis(300));
        house.pools.lock().insert("tank".to_owned(), pool);
        house.unavailable.lock().clear();
        drop(moving);
        // it is here, and can be exported
        let is_forgotten = early.unwrap_or_else(|_| told.recv().unwrap());
        assert!(!is_forgotten);
    });
    assert_eq!(home.saved_names(), ["tank"]);
    house.export_pool("tank", false).unwrap();
}

#[test]
fn a_cancelled_destroy_stops_after_a_batch() {
    let home = TestDaemon::new("cancelled");
    let pool = home.daemon.pool("tank").unwrap();
    let names: Vec<String> = (0..300).map(|number| format!("tank@{number}")).collect();
    for name in &names {
        pool.handle.create_snapshots(std::slice::from_ref(name)).unwrap();
    }
    let cancel = Cancel::default();
    let destroy = |cancel: &Cancel| {
        let doom = DestroyScope { recursive: false, clones: false, defer: false };
        home.daemon.destroy("tank@%", doom, (false, false), cancel).map(drop)
    };
    drop(cancel.on_drop());
    let why = destroy(&cancel).unwrap_err().to_string();
    let left = pool.handle.snapshots("tank").unwrap().len();
    assert!((1..300).contains(&left), "{left}");
    assert!(why.contains(&format!("interrupted: {} of 300", 300 - left)), "{why}");
    destroy(&Cancel::default()).unwrap();
    assert!(pool.handle.snapshots("tank").unwrap().is_empty());
    home.daemon.shut_down();
}
