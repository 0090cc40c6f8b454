//! Scans that are short of space resume.

use std::sync::atomic::{AtomicBool, Ordering};

use dmu::NewObject;
use ondisk::ObjectType;
use spa::vdev_layout::{DeviceSpec, VdevLayout};
use spa::{ActivePool, PoolOpenOptions, ScanProgress, create_pool, scan_devices};

use crate::create::{TestDir, environment, new_pool, open_devices};

pub(crate) fn import_pool(drives: &[DeviceSpec]) -> ActivePool {
    let pool =
        scan_devices(&open_devices(drives)).0.remove(0).open(&PoolOpenOptions::default()).unwrap();
    ActivePool::new(pool, environment()).unwrap()
}

#[test]
fn scan_that_must_release_pins_still_finishes() {
    let folder = TestDir::new("pressed");
    let drives = folder.create_devices(3, 128 << 20);
    let new = new_pool((VdevLayout::Raidz(1), 12), &drives, open_devices(&drives));
    let made = create_pool(new, environment(), &mut |_, _, _| Ok(())).unwrap();
    made.pool.export(ondisk::label::PoolState::Exported).unwrap();
    drop(made);

    let active = import_pool(&drives[1..]);
    active
        .run_sync_task(|active, change| {
            let new = NewObject::new(ObjectType::PLAIN_OTHER, 4096);
            let object = active.mos().create(change.tx, &new).unwrap();
            for block in 0_u32..2000 {
                let noise = |n: u32| (n.wrapping_mul(2_654_435_761) ^ block).to_le_bytes();
                let bytes: Vec<u8> = (0..1024_u32).flat_map(noise).collect();
                object.write(change.tx, u64::from(block) * 4096, &bytes).unwrap();
            }
        })
        .unwrap();
    active.export(ondisk::label::PoolState::Exported).unwrap();
    drop(active);

    let active = import_pool(&drives);
    assert!(active.needs_resilver());
    let watch = ScanProgress::new();
    let done = AtomicBool::new(false);
    let mended = std::thread::scope(|scope| {
        scope.spawn(|| {
            let watched = &watch.job().progress;
            while watched.items_done() == 0 && !done.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            for round in 0..40 {
                if done.load(Ordering::Acquire) {
                    return;
                }
                active.reclaim_freed_space();
                // each time it may come a little further
                std::thread::sleep(std::time::Duration::from_millis(round));
            }
        });
        let mended = active.resilver(&watch);
        done.store(true, Ordering::Release);
        mended.unwrap()
    });
    assert!(mended.is_complete && mended.errors == 0, "{mended:?}");
    println!("{mended:?}");
    assert!(!active.needs_resilver());
    active.export(ondisk::label::PoolState::Exported).unwrap();
    drop(active);
    let report = crate::test_pool::check_pool(folder.path());
    assert!(report.is_clean(), "{report:?}");
}
