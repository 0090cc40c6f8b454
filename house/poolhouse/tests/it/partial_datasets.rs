//! Incomplete datasets: partially received, or redacted.

use crate::command::{path_arg, run};
use crate::test_nas::{TestNas, cannot_mount};

fn import_received(name: &str) -> TestNas {
    import_fixture("received", name)
}

/// A fixture's pool, imported into a daemon of its own.
fn import_fixture(fixture: &str, name: &str) -> TestNas {
    let nas = TestNas::new(name, 0);
    let fixture = fixtures::load(fixture);
    for image in fixture.images() {
        std::fs::copy(&image, nas.0.join("drives").join(image.file_name().unwrap())).unwrap();
    }
    let (root, drives) = (nas.altroot(), nas.0.join("drives"));
    nas.run_ok(&format!("zpool import -R {} -d {} tank", path_arg(&root), path_arg(&drives)));
    nas
}

#[test]
fn incomplete_datasets_are_marked() {
    if cannot_mount() {
        return;
    }
    let nas = import_received("parts");
    let mounted = nas.run_ok("zfs list -Ho name,mounted");
    for name in ["tank", "tank/from", "tank/censored", "tank/later"] {
        assert!(mounted.contains(&format!("{name}\tyes\n")), "{mounted}");
    }
    for (name, why) in [("tank/new", "interrupted"), ("tank/redacted", "redacted")] {
        assert!(mounted.contains(&format!("{name}\tno\n")), "{mounted}");
        let said = nas.run_failing(&format!("zfs mount {name}"), 1);
        assert!(said.contains(why), "{said}");
    }
    // and that is not a failure
    nas.run_ok("zfs mount -a");
}

#[test]
fn recursive_snapshots_skip_partial_receives() {
    let nas = import_received("parts-snap");
    nas.run_ok("zfs snapshot -r tank@now");
    let all = nas.run_ok("zfs list -Ho name -t snapshot");
    for name in ["tank", "tank/from", "tank/later", "tank/redacted"] {
        assert!(all.contains(&format!("{name}@now\n")), "{all}");
    }
    assert!(!all.contains("tank/new@now"), "{all}");
    nas.run_failing("zfs snapshot tank/new@now", 1);
}

#[test]
fn partial_receive_can_be_destroyed() {
    let nas = import_received("parts-gone");
    nas.run_ok("zfs destroy tank/new");
    // below it is the hidden clone of its next snapshot
    nas.run_ok("zfs destroy -r tank/later");
    let all = nas.run_ok("zfs list -Ho name");
    assert!(!all.contains("later") && !all.contains("new"), "{all}");
    nas.run_ok("zpool export tank");
    let drives = nas.0.join("drives");
    let verified = run(&["rescue", "verify", "-d", path_arg(&drives), "tank"]);
    assert_eq!(verified.status, 0, "{}{}", verified.stdout, verified.stderr);
}

#[test]
fn snapshots_go_together_or_not_at_all() {
    let nas = import_fixture("snapshots", "held-one");
    nas.run_ok("zfs destroy tank/clone");
    nas.run_ok("zfs snapshot tank/heir@a");
    nas.run_ok("zfs snapshot tank/heir@z");
    let all = nas.run_ok("zfs list -Ho name -t snapshot");
    // one of them has a hold
    let why = nas.run_failing("zfs destroy tank/heir@a,one,z", 1);
    assert!(why.contains("tank/heir@one") && why.contains("held"), "{why}");
    nas.run_failing("zfs destroy -R tank/heir", 1);
    assert_eq!(nas.run_ok("zfs list -Ho name -t snapshot"), all);
    nas.run_ok("zfs destroy -d tank/heir@one");
    assert_eq!(nas.run_ok("zfs list -Ho name -t snapshot"), all, "it still has its hold");
}
