//! Snapshots have a device number of their own, so that programs that stay on one file system do not enter them.
//! It takes /dev/fuse and root.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use fuse::MountOptions;
use rustix::process::geteuid;

use crate::client::Client;
use crate::mounted_fixture::can_mount;
use crate::mounted_pool::MountedPool;

const LIMIT: Duration = Duration::from_secs(30);

/// A file system with `dir/letter`, which has another content in its snapshots `one` and `two`.
fn create_pool(name: &str) -> Option<MountedPool> {
    if !can_mount() || !geteuid().is_root() {
        return None;
    }
    let place = MountedPool::create(name);
    let dir = place.mountpoint();
    fs::create_dir(dir.join("dir")).unwrap();
    for snapshot in ["one", "two"] {
        fs::write(dir.join("dir/letter"), snapshot).unwrap();
        place.pool.snapshots().create(&[format!("tank@{snapshot}")]).unwrap();
    }
    fs::write(dir.join("dir/letter"), "now").unwrap();
    place.pool.properties().set("tank", "snapdir", "visible").unwrap();
    Some(place)
}

/// The output of a program that ends well within the time limit.
fn run(place: &MountedPool, program: &str, words: &[&str]) -> String {
    let mut command = Command::new(program);
    command.args(words).current_dir(place.mountpoint());
    let client = Client::start(&mut command, &place.output());
    let status = client.wait(LIMIT);
    let text = client.output_text();
    assert!(
        status.is_some_and(|status| status.success()),
        "{program} {words:?}: {status:?}\n{text}"
    );
    text
}

fn count_lines(text: &str, end: &str) -> usize {
    text.lines().filter(|line| line.ends_with(end)).count()
}

#[test]
fn programs_on_one_file_system_skip_snapshots() {
    let Some(place) = create_pool("snapshots-skipped") else { return };
    let snapshots = [".", ".zfs/snapshot/one", ".zfs/snapshot/two"];
    assert_eq!(count_lines(&run(&place, "find", &[".", "-xdev"]), "letter"), 1);
    assert_eq!(count_lines(&run(&place, "find", &["."]), "letter"), 3);
    assert_eq!(count_lines(&run(&place, "du", &["-ax"]), "letter"), 1);
    assert_eq!(count_lines(&run(&place, "du", &["-a"]), "letter"), 3);
    let devices = run(&place, "stat", &[&["-c", "%d"], &snapshots[..]].concat());
    let mut devices: Vec<_> = devices.lines().collect();
    devices.sort_unstable();
    devices.dedup();
    assert_eq!(devices.len(), 3);
    if Command::new("rsync").arg("--version").output().is_ok() {
        assert_eq!(count_lines(&run(&place, "rsync", &["-rx", "--list-only", "./"]), "letter"), 1);
    }
    place.export_and_verify();
}

#[test]
fn first_access_by_path_reaches_snapshot() {
    let Some(place) = create_pool("snapshots-reached") else { return };
    for snapshot in ["two", "one", "two"] {
        let path = format!(".zfs/snapshot/{snapshot}/dir/letter");
        assert_eq!(run(&place, "cat", &[&path]), snapshot);
    }
    // threads of many programs look at the same snapshot at a time
    let script = "for i in 1 2 3 4 5 6 7 8; do stat -c %d .zfs/snapshot/three & done; wait";
    place.pool.snapshots().create(&["tank@three".to_owned()]).unwrap();
    let devices = run(&place, "sh", &["-c", script]);
    let of_file_system = run(&place, "stat", &["-c", "%d", "."]);
    assert_eq!((devices.lines().count(), devices.contains(&of_file_system)), (8, false));
    place.export_and_verify();
}

#[test]
fn used_snapshots_keep_their_file_system() {
    let Some(mut place) = create_pool("snapshots-used") else { return };
    let snapshot = place.mountpoint().join(".zfs/snapshot/one");
    let mut command = Command::new("sh");
    command.args(["-c", "echo begun; exec sleep 60"]).current_dir(&snapshot);
    let client = Client::start(&mut command, &place.output());
    assert!(client.wait_until(LIMIT, || client.output_text().contains("begun")));
    let (mount, _) = place.mount.as_mut().unwrap();
    assert!(!mount.try_unmount());
    drop(client);
    place.export_and_verify();
}

#[test]
fn destroyed_snapshots_are_unmounted() {
    let Some(place) = create_pool("snapshots-destroyed") else { return };
    assert_eq!(run(&place, "cat", &[".zfs/snapshot/one/dir/letter"]), "one");
    assert!(is_mounted(&place.mountpoint().join(".zfs/snapshot/one")));
    place.pool.datasets().destroy("tank@one").unwrap();
    assert_eq!(run(&place, "ls", &[".zfs/snapshot"]), "two\n");
    assert_eq!(
        run(&place, "sh", &["-c", "cat .zfs/snapshot/one/dir/letter || true"]).trim(),
        "cat: .zfs/snapshot/one/dir/letter: No such file or directory"
    );
    assert!(!is_mounted(&place.mountpoint().join(".zfs/snapshot/one")));
    place.export_and_verify();
}

#[test]
fn mounted_snapshots_follow_the_exec_property() {
    let Some(place) = create_pool("snapshots-exec") else { return };
    let snapshot = place.mountpoint().join(".zfs/snapshot/one");
    assert_eq!(run(&place, "cat", &[".zfs/snapshot/one/dir/letter"]), "one");
    assert!(!mount_options(&snapshot).unwrap().contains("noexec"));
    let (mount, _) = place.mount.as_ref().unwrap();
    assert!(mount.set_options(&MountOptions { no_exec: true, ..MountOptions::default() }));
    let options = mount_options(&snapshot).unwrap();
    for option in ["ro", "noexec", "nosuid", "nodev"] {
        assert!(options.split(',').any(|known| known == option), "{option} is not in {options}");
    }
    place.export_and_verify();
}

fn is_mounted(dir: &Path) -> bool {
    mount_options(dir).is_some()
}

/// The options of what is mounted on a directory.
fn mount_options(dir: &Path) -> Option<String> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mut entries = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let entry = entries.find(|entry| Some(entry[1]) == dir.to_str())?;
    Some(entry[3].to_owned())
}
