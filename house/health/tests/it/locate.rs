//! Lights of slots, and activity.

use std::cell::Cell;
use std::fs;
use std::path::Path;

use health::{Host, blink_activity, set_light};

#[test]
fn lights_belong_to_the_slots_of_drives() {
    let root = std::env::temp_dir().join(format!("ph-locate-{}", std::process::id()));
    let slot = root.join("sys/block/sda/device/enclosure_device:Slot 04");
    fs::create_dir_all(&slot).unwrap();
    fs::create_dir_all(root.join("sys/block/sdb/device")).unwrap();
    fs::write(slot.join("locate"), "0\n").unwrap();
    let host = Host::with_roots(root.join("sys"), root.join("dev"));
    let light = host.locate_light("sda").unwrap();
    set_light(&light, true).unwrap();
    assert_eq!(fs::read_to_string(slot.join("locate")).unwrap(), "1");
    assert_eq!((host.locate_light("sdb"), host.locate_light("sdc")), (None, None));
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn activity_stops_on_request_and_needs_a_drive() {
    let path = std::env::temp_dir().join(format!("ph-blink-{}", std::process::id()));
    fs::write(&path, [1; 5000]).unwrap();
    let calls = Cell::new(0);
    blink_activity(&path, || calls.replace(calls.get() + 1) > 5).unwrap();
    assert!(calls.get() > 5);
    assert_eq!(fs::read(&path).unwrap(), [1; 5000]);
    fs::remove_file(&path).unwrap();
    assert!(blink_activity(Path::new("/nonexistent"), || false).is_err());
}
