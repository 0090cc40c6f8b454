//! Commands of zfs(8) with their options, exit statuses and effects: what OpenZFS's own test suite found.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::command::path_arg;
use crate::test_nas::{TestNas, cannot_mount, random_bytes};

/// A pool whose file systems are mounted below the altroot.
fn create_mounted(name: &str) -> TestNas {
    let nas = TestNas::new(name, 1);
    nas.create_pool("tank", 1);
    nas
}

fn create_unmounted(name: &str) -> TestNas {
    let nas = TestNas::new(name, 1);
    nas.create_pool("-O canmount=off tank", 1);
    nas
}

fn property(nas: &TestNas, name: &str, dataset: &str) -> String {
    let value = nas.run_ok(&format!("zfs get -Hp -o value {name} {dataset}"));
    value.trim_end().to_owned()
}

#[test]
fn upgrade_raises_version_and_keeps_files() {
    let nas = create_mounted("upgrade");
    nas.run_ok("zfs create -o version=3 tank/old");
    nas.run_ok("zfs create -o version=4 tank/old/child");
    let listed = nas.run_ok("zfs upgrade");
    assert!(listed.contains("\n 3   tank/old\n 4   tank/old/child\n"), "{listed}");
    assert!(nas.run_ok("zfs upgrade -v").contains("\n 5   System attributes\n"));
    let file = nas.altroot().join("tank/old/file");
    if !cannot_mount() {
        fs::write(&file, "before").unwrap();
    }
    let done = nas.run_ok("zfs upgrade -r tank/old");
    assert_eq!(done, "2 filesystems upgraded\n");
    assert_eq!(property(&nas, "version", "tank/old"), "5");
    assert_eq!(nas.run_ok("zfs upgrade tank/old"), "1 filesystems already at this version\n");
    nas.run_failing("zfs upgrade -V 4 tank/old", 1);
    nas.run_failing("zfs upgrade -V 6 tank/old", 2);
    nas.run_failing("zfs upgrade -V 4", 2);
    assert!(
        nas.run_ok("zfs upgrade")
            .contains("All filesystems are formatted with the current version.")
    );
    if !cannot_mount() {
        assert_eq!(fs::read_to_string(&file).unwrap(), "before");
        fs::write(&file, "after").unwrap();
        nas.run_ok("zfs unmount tank/old/child");
        nas.run_ok("zfs unmount tank/old");
        nas.run_ok("zfs mount tank/old");
        assert_eq!(fs::read_to_string(&file).unwrap(), "after");
    }
    let history = nas.run_ok("zpool history -i tank");
    assert!(history.contains("upgrade tank/old (") && history.contains("from 3 to 5"), "{history}");
}

#[test]
fn version_is_set_but_never_lowered() {
    let nas = create_unmounted("set-version");
    nas.run_ok("zfs create -o version=3 -o canmount=off tank/old");
    nas.run_ok("zfs snapshot tank/old@a");
    nas.run_ok("zfs set version=4 tank/old");
    assert_eq!(property(&nas, "version", "tank/old"), "4");
    nas.run_failing("zfs set version=3 tank/old", 255);
    nas.run_failing("zfs set version=9 tank/old", 255);
    nas.run_ok("zfs clone -o version=5 -o canmount=off tank/old@a tank/clone");
    assert_eq!(property(&nas, "version", "tank/clone"), "5");
    nas.run_failing("zfs clone -o version=2 -o canmount=off tank/old@a tank/other", 1);
    nas.run_failing("zfs list tank/other", 1);
}

#[test]
fn rename_u_keeps_mounts() {
    let nas = create_mounted("rename-u");
    if cannot_mount() {
        return;
    }
    nas.run_ok("zfs create -p tank/from/child");
    let dir = nas.altroot().join("tank/from/child");
    fs::write(dir.join("file"), "here").unwrap();
    let busy = fs::File::open(dir.join("file")).unwrap();
    nas.run_failing("zfs rename tank/from tank/to", 1);
    nas.run_ok("zfs rename -u tank/from tank/to");
    let mounts = nas.run_ok("zfs mount");
    let lines: Vec<Vec<&str>> = mounts.lines().map(|it| it.split_whitespace().collect()).collect();
    assert!(lines.contains(&vec!["tank/to/child", path_arg(&dir)]), "{mounts}");
    assert_eq!(fs::read_to_string(dir.join("file")).unwrap(), "here");
    drop(busy);
    nas.run_failing("zfs rename -u -p tank/to tank/x/y", 2);
    nas.run_ok("zfs unmount tank/to/child");
    nas.run_ok("zfs mount tank/to/child");
    assert!(nas.altroot().join("tank/to/child/file").exists());
}

#[test]
fn short_help_is_no_option_of_subcommands() {
    let nas = TestNas::new("short-help", 0);
    for words in ["zfs get -h", "zfs mount -h", "zpool list -h"] {
        let why = nas.run_failing(words, 2);
        assert!(why.starts_with("invalid option 'h'"), "{words}: {why}");
    }
    assert!(nas.run_ok("zfs get --help").contains("Examples:"));
    assert!(nas.run_ok("zfs -h").contains("Examples:"));
}

#[test]
fn create_tells_the_refreservation_of_volumes() {
    let nas = create_unmounted("create-told");
    let told = nas.run_ok("zfs create -nP -V 10M tank/volume");
    assert!(told.contains("property\tvolsize\t10485760\n"), "{told}");
    assert!(told.contains("\nproperty\trefreservation\t"), "{told}");
    let made = nas.run_ok("zfs create -P -V 10M tank/volume");
    assert_eq!(told, made);
    let reserved = property(&nas, "refreservation", "tank/volume");
    assert!(made.ends_with(&format!("property\trefreservation\t{reserved}\n")), "{made}");
    let sparse = nas.run_ok("zfs create -nP -s -V 10M tank/sparse");
    assert!(!sparse.contains("refreservation"), "{sparse}");
}

#[test]
fn destroy_tells_the_reclaimed_space() {
    let nas = create_mounted("reclaim");
    if cannot_mount() {
        return;
    }
    let file = nas.altroot().join("tank/file");
    fs::write(&file, random_bytes(1 << 20)).unwrap();
    nas.run_ok("zfs snapshot tank@a");
    nas.run_ok("zfs snapshot tank@b");
    fs::remove_file(&file).unwrap();
    nas.run_ok("zfs snapshot tank@c");
    let reclaimed = |words: &str| -> u64 {
        let told = nas.run_ok(words);
        let line = told.lines().last().unwrap().strip_prefix("reclaim\t");
        line.unwrap_or_else(|| panic!("{words}: {told}")).parse().unwrap()
    };
    // two snapshots share the blocks: only both together free them
    assert!(reclaimed("zfs destroy -nvp tank@a") < 1 << 19);
    let both = reclaimed("zfs destroy -nvp tank@a,b");
    assert!(both >= 1 << 20, "{both}");
    let told = nas.run_ok("zfs destroy -nv tank@a%b");
    assert!(told.contains("would destroy tank@a\n") && told.contains("would reclaim 1."), "{told}");
    let before: u64 = property(&nas, "used", "tank").parse().unwrap();
    assert_eq!(reclaimed("zfs destroy -vp tank@a,b"), both);
    nas.run_ok("zpool sync tank");
    let after: u64 = property(&nas, "used", "tank").parse().unwrap();
    assert!(before - after > 1 << 20, "{before} {after} {both}");
}

#[test]
fn new_pools_and_clones_take_owner_quotas() {
    let nas = TestNas::new("new-quotas", 1);
    nas.create_pool("-O canmount=off -O userquota@root=1000000 -O projectobjquota@7=50 tank", 1);
    assert_eq!(property(&nas, "userquota@root", "tank"), "1000000");
    assert_eq!(property(&nas, "projectobjquota@7", "tank"), "50");
    nas.run_ok("zfs snapshot tank@a");
    nas.run_ok("zfs clone -o canmount=off -o groupquota@root=2000000 tank@a tank/clone");
    assert_eq!(property(&nas, "groupquota@root", "tank/clone"), "2000000");
    assert_eq!(property(&nas, "userquota@root", "tank/clone"), "1000000");
}

#[test]
fn set_fails_where_the_new_mountpoint_cannot_be() {
    let nas = create_mounted("no-mountpoint");
    if cannot_mount() {
        return;
    }
    nas.run_ok("zfs create tank/fs");
    fs::write(nas.altroot().join("file"), "x").unwrap();
    let why = nas.run_failing("zfs set mountpoint=/file tank/fs", 1);
    assert!(why.contains("property may be set but unable to remount filesystem"), "{why}");
}

#[test]
fn projects_are_set_for_trees() {
    let nas = create_mounted("projects");
    if cannot_mount() {
        return;
    }
    let top = nas.altroot().join("tank/site");
    fs::create_dir_all(top.join("below")).unwrap();
    fs::write(top.join("below/file"), "x").unwrap();
    let project = |words: &str| nas.run_ok(&format!("zfs project {words} {}", path_arg(&top)));
    project("-s -r -p 1001");
    let listed = project("-r");
    let wanted = |path: &str| format!(" 1001 P {}{path}\n", path_arg(&top));
    assert_eq!(listed, wanted("") + &wanted("/below") + &wanted("/below/file"));
    assert_eq!(project("-c -r"), "");
    fs::write(top.join("new"), "x").unwrap();
    assert!(project("").ends_with(&wanted("/new")));
    project("-C -k");
    let checked = project("-c -d");
    assert_eq!(checked, format!("{} - project inherit flag is not set\n", path_arg(&top)));
    for words in ["-C -p 5", "-C -r -0", "-p 5 -k", "-s -d", "-0", "-k", "-p 5 -d", ""] {
        let path = if words.is_empty() { "" } else { path_arg(&top) };
        nas.run_failing(&format!("zfs project {words} {path}"), 2);
    }
}

fn snapshot_names(nas: &TestNas) -> String {
    nas.run_ok("zfs list -H -o name -t snapshot")
}

#[test]
fn snapshot_directory_takes_and_destroys_snapshots() {
    let nas = TestNas::new("snapshot-admin", 1);
    fs::create_dir_all(nas.state_dir()).unwrap();
    let config = nas.state_dir().join("config.toml");
    fs::write(&config, "[mounts]\nsnapshot_admin = true\n").unwrap();
    nas.create_pool("tank", 1);
    if cannot_mount() {
        return;
    }
    let root = nas.altroot().join("tank");
    fs::write(root.join("file"), "then").unwrap();
    let dir = root.join(".zfs/snapshot");
    let mode = |dir: &Path| fs::metadata(dir).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o777);
    fs::create_dir(dir.join("one")).unwrap();
    assert!(fs::create_dir(dir.join("one")).is_err());
    assert!(fs::write(dir.join("two"), "x").is_err());
    assert_eq!(snapshot_names(&nas), "tank@one\n");
    fs::rename(dir.join("one"), dir.join("two")).unwrap();
    assert_eq!(snapshot_names(&nas), "tank@two\n");
    nas.run_ok("zfs hold keep tank@two");
    assert!(fs::remove_dir(dir.join("two")).is_err());
    nas.run_ok("zfs release keep tank@two");
    fs::remove_dir(dir.join("two")).unwrap();
    assert_eq!(snapshot_names(&nas), "");
    // as with OpenZFS nobody can unless the configuration says so
    fs::write(&config, "").unwrap();
    nas.run_ok("serve --stop");
    nas.run_ok("zpool list tank");
    assert_eq!(mode(&dir), 0o555);
    assert!(fs::create_dir(dir.join("three")).is_err());
    assert_eq!(snapshot_names(&nas), "");
}

#[test]
fn list_and_get_take_paths() {
    let nas = create_mounted("paths");
    if cannot_mount() {
        return;
    }
    nas.run_ok("zfs create tank/fs");
    let dir = nas.altroot().join("tank/fs");
    fs::create_dir(dir.join("below")).unwrap();
    let dir = path_arg(&dir);
    assert_eq!(nas.run_ok(&format!("zfs list -H -o name {dir}/below")), "tank/fs\n");
    assert_eq!(
        nas.run_ok(&format!("zfs get -H -o name,value type {dir}")),
        "tank/fs\tfilesystem\n"
    );
    nas.run_failing(&format!("zfs list {dir}/none"), 2);
    nas.run_failing("zfs list /", 2);
}

#[test]
fn unmount_leaves_legacy_mounts_to_umount() {
    let nas = create_mounted("legacy");
    if cannot_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    nas.run_ok("zfs create -o mountpoint=legacy tank/fs");
    let dir = nas.0.join("legacy");
    fs::create_dir(&dir).unwrap();
    nas.run_ok(&format!("mount.zfs tank/fs {}", path_arg(&dir)));
    let why = nas.run_failing("zfs unmount tank/fs", 1);
    assert!(why.contains("cannot unmount 'tank/fs': legacy mountpoint"), "{why}");
    let done = Command::new("umount").arg(&dir).status().unwrap();
    assert!(done.success());
    nas.run_ok("zfs destroy tank/fs");
}

#[test]
fn wait_ends_with_the_last_removed_file() {
    let nas = create_mounted("wait");
    nas.run_failing("zfs wait -t scrub tank", 2);
    nas.run_ok("zfs wait tank");
    if cannot_mount() {
        return;
    }
    let path = nas.altroot().join("tank/file");
    let open = fs::File::create(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let state = nas.state_dir();
    let args = ["zfs", "wait", "-t", "deleteq", "tank", "--state", path_arg(&state)];
    let mut waiting = Command::new(env!("CARGO_BIN_EXE_poolhouse"))
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let ended = waiting.try_wait().unwrap();
    drop(open);
    nas.wait_until(|| waiting_ended(&waiting));
    let status = waiting.wait().unwrap();
    assert!(ended.is_none() && status.success(), "{ended:?} {status:?}");
}

/// Whether a child process has ended and is not waited for yet.
fn waiting_ended(child: &std::process::Child) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
    stat.rsplit(") ").next().is_none_or(|rest| rest.starts_with('Z'))
}

#[test]
fn diff_h_prints_names_as_they_are() {
    let nas = create_mounted("diff-h");
    if cannot_mount() {
        return;
    }
    nas.run_ok("zfs snapshot tank@a");
    fs::write(nas.altroot().join("tank/zażółć gęślą"), "x").unwrap();
    assert!(nas.run_ok("zfs diff tank@a").contains("/za\\0305\\0274"));
    assert!(nas.run_ok("zfs diff -h tank@a").contains("/zażółć gęślą\n"));
}

#[test]
fn utf8only_off_ends_inherited_normalization() {
    let nas = create_unmounted("normalization");
    nas.run_ok("zfs create -o canmount=off -o normalization=formC tank/fs");
    nas.run_ok("zfs create -o canmount=off -o utf8only=off tank/fs/plain");
    assert_eq!(property(&nas, "normalization", "tank/fs/plain"), "none");
    assert_eq!(property(&nas, "utf8only", "tank/fs/plain"), "off");
    nas.run_failing("zfs create -o utf8only=off -o normalization=formC tank/fs/other", 1);
}
