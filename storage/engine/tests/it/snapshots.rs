//! Snapshots that are taken while others write.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use device::{Device, Memory};
use engine::held::{self, Held, NewDataset, NewPool, NewVdev, Position, Purpose, Shape};
use units::ObjectId;

use crate::held::{caller, faults_found, world, write_file};

/// Writes and has it promised, over and over.
fn promise(held: &Held, name: &str, stop: &AtomicBool) {
    write_file(held, "tank", name, b"begun");
    let live = held.files("tank").unwrap();
    let file = live.files().find(name.as_bytes()).unwrap().unwrap();
    let number = ObjectId::new(file.id());
    for round in 0_u64.. {
        if stop.load(Ordering::Acquire) {
            return;
        }
        live.write(&caller(), number, Position::At(round % 100 * 4000), &[7; 4000]).unwrap();
        live.fsync(Some(number.get())).unwrap();
    }
}

#[test]
fn what_is_promised_meanwhile_does_no_harm_to_snapshots() {
    let drive: Arc<dyn Device> = Arc::new(Memory::blank("drive", 256 << 20));
    let new = NewPool {
        name: "tank".to_owned(),
        vdevs: vec![NewVdev {
            shape: Shape::Single,
            drives: vec!["drive".into()],
            purpose: Purpose::Data,
        }],
        ashift: None,
        properties: Vec::new(),
        force: false,
    };
    let held = held::create_on(&new, &[Arc::clone(&drive)], &world()).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for name in ["one", "two", "three"] {
            scope.spawn(|| promise(&held, name, &stop));
        }
        for round in 0..60 {
            let snapshot = format!("tank@{round}");
            held.snapshot(std::slice::from_ref(&snapshot)).unwrap();
            if round % 4 == 0 {
                let name = format!("tank/{round}");
                let new = NewDataset { name, properties: Vec::new() };
                held.clone_snapshot(&snapshot, &new).unwrap();
            }
        }
        stop.store(true, Ordering::Release);
    });
    held.export().unwrap();
    drop(held);
    assert_eq!(faults_found(&engine::search_on(&[drive]), "tank"), Vec::<String>::new());
}
