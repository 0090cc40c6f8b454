//! What is there in part only: received by halves, or redacted by who sent it.

use crate::nas::{Nas, cannot_mount};
use crate::poolhouse::{arg, run};

fn received(name: &str) -> Nas {
    imported("received", name)
}

/// A fixture's pool, imported into a daemon of its own.
fn imported(fixture: &str, name: &str) -> Nas {
    let nas = Nas::new(name, 0);
    let fixture = fixtures::load(fixture);
    for image in fixture.images() {
        std::fs::copy(&image, nas.0.join("drives").join(image.file_name().unwrap())).unwrap();
    }
    let (root, drives) = (nas.root(), nas.0.join("drives"));
    nas.good(&format!("zpool import -R {} -d {} tank", arg(&root), arg(&drives)));
    nas
}

#[test]
fn what_is_there_in_part_is_not_shown_as_whole() {
    if cannot_mount() {
        return;
    }
    let nas = received("parts");
    let mounted = nas.good("zfs list -Ho name,mounted");
    for name in ["tank", "tank/from", "tank/censored", "tank/later"] {
        assert!(mounted.contains(&format!("{name}\tyes\n")), "{mounted}");
    }
    for (name, why) in [("tank/new", "broken off"), ("tank/redacted", "redacted")] {
        assert!(mounted.contains(&format!("{name}\tno\n")), "{mounted}");
        let said = nas.refused(&format!("zfs mount {name}"), 1);
        assert!(said.contains(why), "{said}");
    }
    // nor is that a failure
    nas.good("zfs mount -a");
}

#[test]
fn snapshots_of_all_pass_over_what_is_half_received() {
    let nas = received("parts-snap");
    nas.good("zfs snapshot -r tank@now");
    let all = nas.good("zfs list -Ho name -t snapshot");
    for name in ["tank", "tank/from", "tank/later", "tank/redacted"] {
        assert!(all.contains(&format!("{name}@now\n")), "{all}");
    }
    assert!(!all.contains("tank/new@now"), "{all}");
    nas.refused("zfs snapshot tank/new@now", 1);
}

#[test]
fn what_is_half_received_can_be_destroyed() {
    let nas = received("parts-gone");
    nas.good("zfs destroy tank/new");
    // below it is what was to become its next snapshot, which nobody sees
    nas.good("zfs destroy -r tank/later");
    let all = nas.good("zfs list -Ho name");
    assert!(!all.contains("later") && !all.contains("new"), "{all}");
    nas.good("zpool export tank");
    let drives = nas.0.join("drives");
    let verified = run(&["rescue", "verify", "-d", arg(&drives), "tank"]);
    assert_eq!(verified.status, 0, "{}{}", verified.out, verified.err);
}

#[test]
fn snapshots_go_together_or_not_at_all() {
    let nas = imported("snapshots", "held-one");
    nas.good("zfs destroy tank/clone");
    nas.good("zfs snapshot tank/heir@a");
    nas.good("zfs snapshot tank/heir@z");
    let all = nas.good("zfs list -Ho name -t snapshot");
    // one of them is held
    let why = nas.refused("zfs destroy tank/heir@a,one,z", 1);
    assert!(why.contains("tank/heir@one") && why.contains("held"), "{why}");
    nas.refused("zfs destroy -R tank/heir", 1);
    assert_eq!(nas.good("zfs list -Ho name -t snapshot"), all);
    nas.good("zfs destroy -d tank/heir@one");
    assert_eq!(nas.good("zfs list -Ho name -t snapshot"), all, "it is held still");
}
