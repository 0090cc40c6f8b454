//! Sequential rebuilds and distributed spares by commands.

use serde_json::Value;

use crate::command::path_arg;
use crate::test_nas::TestNas;

#[test]
fn distributed_spare_steps_in_by_itself() {
    let nas = TestNas::new("dspare", 6);
    let drives = nas.drive_paths(6);
    let names: Vec<&str> = drives.iter().map(|path| path_arg(path)).collect();
    let root = nas.altroot();
    nas.run_ok(&format!(
        "zpool create -R {} tank draid1:2d:6c:1s {}",
        path_arg(&root),
        names.join(" ")
    ));
    nas.run_ok("zfs create -V 8M tank/volume");
    nas.run_ok("zpool set poolhouse:scan_share=50 tank");
    nas.run_failing("zpool set poolhouse:scan_share=60 tank", 1);
    nas.run_ok(&format!("zpool offline -f tank {}", names[1]));
    nas.wait_until(|| {
        let text = nas.run_ok("zpool status tank");
        text.contains("scan: resilvered (draid1:2d:6c:1s-0) ")
            && text.contains("scan: scrub repaired")
    });
    let text = nas.run_ok("zpool status tank");
    assert!(text.contains("spare-1") && text.contains("INUSE"), "{text}");
    let json: Value = serde_json::from_str(&nas.run_ok("zpool status --json tank")).unwrap();
    assert!(json.to_string().contains("\"vdev_type\":\"dspare\""), "{json}");
    // after a clear the drive is resilvered, and the spare is free again
    nas.run_ok("zpool clear tank");
    nas.wait_until(|| nas.run_ok("zpool status tank").contains("AVAIL"));
    nas.run_ok("zpool export tank");
}

#[test]
fn distributed_spare_is_used_by_command() {
    let nas = TestNas::new("dspareuse", 6);
    nas.create_pool("-O canmount=off tank draid1:2d:6c:1s", 6);
    nas.run_ok("zfs create -V 8M tank/volume");
    let drives = nas.drive_paths(6);
    nas.run_ok(&format!("zpool replace -s -w tank {} draid1-0-0", path_arg(&drives[2])));
    let text = nas.run_ok("zpool status tank");
    assert!(text.contains("spare-2") && text.contains("INUSE"), "{text}");
    nas.run_ok("zpool detach tank draid1-0-0");
    let text = nas.run_ok("zpool status tank");
    assert!(!text.contains("spare-2") && text.contains("AVAIL"), "{text}");
    nas.run_ok("zpool export tank");
}

#[test]
fn mirror_is_rebuilt_by_command() {
    let nas = TestNas::new("rebuild", 4);
    let drives = nas.drive_paths(4);
    nas.create_pool("-O canmount=off tank mirror", 2);
    nas.run_ok("zfs create -V 8M tank/volume");
    let [one, _, new, other] = &drives[..] else { panic!("four drives") };
    let [one, new, other] = [one, new, other].map(|path| path_arg(path));
    nas.run_ok(&format!("zpool replace -s -w tank {one} {new}"));
    let text = nas.run_ok("zpool status tank");
    assert!(text.contains("scan: resilvered (mirror-0) ") && !text.contains("replacing"), "{text}");
    assert!(text.contains("scan: scrub repaired 0B "), "{text}");
    nas.run_ok(&format!("zpool attach -s -w tank {new} {other}"));
    assert!(nas.run_ok("zpool status tank").contains(other));
    nas.run_ok("zpool export tank");
}
