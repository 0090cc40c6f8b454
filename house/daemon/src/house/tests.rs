//! What is remembered when the daemon ends, or cannot write that down.

use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use engine::held::Rewind;

use super::House;
use super::waiting::Waiting;
use crate::log::Log;
use crate::memory::Remembered;
use crate::{CreatePool, Group, MountWish, Place, Role, memory, world};

/// A daemon with a pool, in a folder of its own.
struct Home {
    folder: PathBuf,
    place: Place,
    house: Arc<House>,
}

impl Home {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("poolhouse-{name}-{}", std::process::id()));
        let place = Place::at(&folder).unwrap();
        place.make().unwrap();
        let log = Log::open(&place, false).unwrap();
        let house = House::new(place.clone(), log, world::here(Some(256 << 20)).unwrap());
        let home = Self { folder, place, house: Arc::new(house) };
        home.create("tank").unwrap();
        home
    }

    fn create(&self, name: &str) -> crate::Result<crate::Mounting> {
        let drive = self.folder.join(format!("{name}.drive"));
        File::create(&drive).unwrap().set_len(96 << 20).unwrap();
        self.house.create_pool(&CreatePool {
            name: name.to_owned(),
            called: None,
            vdevs: vec![(Group::Single, Role::Data, vec![drive])],
            ashift: None,
            own: Vec::new(),
            bare: false,
            properties: vec![("mountpoint".to_owned(), "none".to_owned())],
            altroot: None,
            force: false,
            secret: None,
        })
    }

    fn remembered(&self) -> Vec<String> {
        memory::load(&self.place).unwrap().into_iter().map(|pool| pool.name).collect()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn what_comes_too_late_has_no_pool_forgotten() {
    let home = Home::new("late");
    home.house.leave();
    // as where somebody ends the waiting for another pool just then
    home.house.remember().unwrap();
    assert_eq!(home.remembered(), ["tank"]);
    let late = home.create("late").unwrap_err().to_string();
    assert!(late.contains("the daemon ends"), "{late}");
    assert_eq!(home.remembered(), ["tank"]);
}

#[test]
fn a_pool_that_cannot_be_forgotten_is_still_there() {
    let home = Home::new("full");
    let new = home.place.memory().with_extension("new");
    fs::create_dir(&new).unwrap();
    home.house.export("tank", false).unwrap_err();
    assert_eq!(home.remembered(), ["tank"]);
    fs::remove_dir(&new).unwrap();
    home.house.export("tank", false).unwrap();
    assert!(home.remembered().is_empty());
}

#[test]
fn a_pool_that_is_left_is_not_mounted_again() {
    let home = Home::new("left");
    let pool = home.house.pool("tank").unwrap();
    let dir = home.folder.join("mounted");
    pool.held.set("tank", "mountpoint", dir.to_str().unwrap()).unwrap();
    home.house.export("tank", false).unwrap();
    // who asked for it found the pool before it went
    let late = pool.mount_one("tank", &MountWish::default()).unwrap_err().to_string();
    assert!(late.contains("the pool is being left"), "{late}");
    assert!(!dir.exists());
}

#[test]
fn many_remember_at_a_time() {
    let home = Home::new("many");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            // as where drives of several pools are replaced
            scope.spawn(|| (0..50).for_each(|_| home.house.remember().unwrap()));
        }
    });
    assert_eq!(home.remembered(), ["tank"]);
}

#[test]
fn a_pool_that_is_just_taken_over_is_not_forgotten() {
    let home = Home::new("taken");
    let house = &home.house;
    let pool = house.pools.lock().remove("tank").unwrap();
    let waits = Remembered {
        name: "tank".to_owned(),
        guid: pool.held.guid(),
        drives: pool.held.known_drives(),
        altroot: None,
        read_only: false,
        temporary: false,
        rewind: Rewind::No,
    };
    let why = engine::Error::NoSuchDataset { name: "tank".to_owned() };
    house.waiting.lock().push(Waiting::new(waits, &why));
    // its drives have come
    let moving = house.moving.lock();
    let (sender, told) = channel();
    std::thread::scope(|scope| {
        scope.spawn(move || sender.send(house.forget_waiting("tank").is_some()).unwrap());
        let early = told.recv_timeout(Duration::from_millis(300));
        house.pools.lock().insert("tank".to_owned(), pool);
        house.waiting.lock().clear();
        drop(moving);
        // it is here, and can be exported
        let is_forgotten = early.unwrap_or_else(|_| told.recv().unwrap());
        assert!(!is_forgotten);
    });
    assert_eq!(home.remembered(), ["tank"]);
    house.export("tank", false).unwrap();
}
