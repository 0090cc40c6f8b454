//! Walks that are short of room go on where they were.

use std::sync::atomic::{AtomicBool, Ordering};

use dmu::NewObject;
use ondisk::ObjectType;
use spa::design::{Drive, Shape};
use spa::{Options, Owned, Watch, create, scan};

use crate::made::{Folder, devices, new_pool, world};

pub(crate) fn own(drives: &[Drive]) -> Owned {
    let pool = scan(&devices(drives)).0.remove(0).open(&Options::default()).unwrap();
    Owned::new(pool, world()).unwrap()
}

#[test]
fn a_walk_that_is_pressed_for_room_again_and_again_comes_to_its_end() {
    let folder = Folder::new("pressed");
    let drives = folder.drives(3, 128 << 20);
    let new = new_pool((Shape::Raidz(1), 12), &drives, devices(&drives));
    let made = create(new, world(), &mut |_, _, _| Ok(())).unwrap();
    made.owned.leave(ondisk::label::PoolState::Exported).unwrap();
    drop(made);

    let owned = own(&drives[1..]);
    owned
        .perform(|owned, change| {
            let new = NewObject::new(ObjectType::PLAIN_OTHER, 4096);
            let object = owned.mos().create(change.tx, &new).unwrap();
            for block in 0_u32..2000 {
                let noise = |n: u32| (n.wrapping_mul(2_654_435_761) ^ block).to_le_bytes();
                let bytes: Vec<u8> = (0..1024_u32).flat_map(noise).collect();
                object.write(change.tx, u64::from(block) * 4096, &bytes).unwrap();
            }
        })
        .unwrap();
    owned.leave(ondisk::label::PoolState::Exported).unwrap();
    drop(owned);

    let owned = own(&drives);
    assert!(owned.wants_resilver());
    let watch = Watch::new();
    let done = AtomicBool::new(false);
    let mended = std::thread::scope(|scope| {
        scope.spawn(|| {
            let watched = &watch.job.progress;
            while watched.items_done() == 0 && !done.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            for round in 0..40 {
                if done.load(Ordering::Acquire) {
                    return;
                }
                owned.make_room();
                // each time it may come a little further
                std::thread::sleep(std::time::Duration::from_millis(round));
            }
        });
        let mended = owned.resilver(&watch);
        done.store(true, Ordering::Release);
        mended.unwrap()
    });
    assert!(mended.complete && mended.errors == 0, "{mended:?}");
    println!("{mended:?}");
    assert!(!owned.wants_resilver());
    owned.leave(ondisk::label::PoolState::Exported).unwrap();
    drop(owned);
    let report = crate::drives::examine(folder.path());
    assert!(report.is_clean(), "{report:?}");
}
