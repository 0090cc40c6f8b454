//! A daemon's drives: added, removed, replaced, pulled out and put in again.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;

use serde_json::Value;

use crate::command::{path_arg, run};
use crate::test_nas::{TestNas, cannot_mount};

#[test]
fn cache_drives_and_spares_come_and_go() {
    let nas = TestNas::new("extra", 4);
    nas.create_pool("-O canmount=off tank", 1);
    let drives = nas.drive_paths(4);
    let [_, cache, spare, other] = &drives[..] else { panic!("four drives") };
    nas.run_ok(&format!("zpool add tank cache {} spare {}", path_arg(cache), path_arg(spare)));
    let has = |wanted: &[&str]| {
        let text = nas.run_ok("zpool status tank");
        let words: Vec<String> = text.lines().map(|line| line.trim().to_owned()).collect();
        for row in wanted {
            let found = words.iter().any(|line| line.split_whitespace().eq(row.split(' ')));
            assert!(found, "'{row}' in {text}");
        }
    };
    let rows = [format!("{} ONLINE 0 0 0", path_arg(cache)), format!("{} AVAIL", path_arg(spare))];
    has(&["cache", "spares", &rows[0], &rows[1]]);
    nas.run_failing(&format!("zpool add tank cache {}", path_arg(spare)), 1);
    nas.run_failing(&format!("zpool remove tank {}", path_arg(other)), 1);
    let json: Value = serde_json::from_str(&nas.run_ok("zpool status --json tank")).unwrap();
    let pool = &json["pools"]["tank"];
    assert_eq!(pool["l2cache"][path_arg(cache)]["state"], "ONLINE");
    assert_eq!(pool["spares"][path_arg(spare)]["state"], "AVAIL");
    assert!(pool["poolhouse"]["cache_counts"]["memory_hits"].is_u64());
    // the daemon ends, and finds them again
    nas.run_ok("serve --stop");
    has(&["cache", "spares", &rows[0], &rows[1]]);
    nas.run_ok("zpool export tank");
    std::fs::remove_file(cache).unwrap();
    nas.run_ok(&format!("zpool import -d {} tank", path_arg(&nas.0.join("drives"))));
    has(&[&format!("{} UNAVAIL 0 0 0", path_arg(cache)), &rows[1]]);
    assert!(nas.run_ok("zpool status -x").contains("cache drives cannot be used"));
    nas.run_ok(&format!("zpool remove tank {} {}", path_arg(cache), path_arg(spare)));
    let text = nas.run_ok("zpool status tank");
    assert!(!text.contains("cache") && !text.contains("spares"), "{text}");
    assert!(nas.run_ok("zpool history tank").contains("zpool remove tank"));
}

#[test]
fn drives_are_replaced_and_repaired_by_commands() {
    let nas = TestNas::new("mend", 5);
    nas.create_pool("-O canmount=off tank raidz1", 3);
    let drives = nas.drive_paths(5);
    let [_, one, two, new, other] = &drives[..] else { panic!("five drives") };
    nas.run_ok("zfs create -V 8M tank/volume");
    nas.run_failing(&format!("zpool replace tank {} {}", path_arg(new), path_arg(other)), 255);
    nas.run_failing(&format!("zpool replace tank {} {}", path_arg(one), path_arg(two)), 1);
    nas.run_ok(&format!("zpool replace -w tank {} {}", path_arg(one), path_arg(new)));
    let text = nas.run_ok("zpool status tank");
    assert!(text.contains("scan: resilvered ") && text.contains("with 0 errors"), "{text}");
    assert!(text.contains(path_arg(new)) && !text.contains(path_arg(one)), "{text}");
    assert!(!text.contains("replacing"), "{text}");
    nas.run_ok("zpool scrub -w tank");
    let json: Value = serde_json::from_str(&nas.run_ok("zpool status --json tank")).unwrap();
    assert_eq!(
        (
            &json["pools"]["tank"]["scan_stats"]["function"],
            &json["pools"]["tank"]["scan_stats"]["errors"]
        ),
        (&"SCRUB".into(), &"0".into())
    );
    assert_eq!(json["pools"]["tank"]["scan_stats"]["state"], "FINISHED");
    nas.run_failing("zpool scrub -s tank", 1);
    nas.run_failing(&format!("zpool detach tank {}", path_arg(two)), 255);
    // a drive that is gone is replaced, even if the daemon ends meanwhile
    nas.run_ok("zpool export tank");
    std::fs::remove_file(two).unwrap();
    nas.run_ok(&format!("zpool import -d {} tank", path_arg(&nas.0.join("drives"))));
    assert!(nas.run_ok("zpool status tank").contains("DEGRADED"));
    nas.run_ok(&format!("zpool replace tank {} {}", path_arg(two), path_arg(other)));
    nas.run_ok("serve --stop");
    nas.run_ok("zpool status tank");
    let is_over = || {
        let text = nas.run_ok("zpool status tank");
        !text.contains("in progress") && !text.contains("replacing")
    };
    nas.wait_until(is_over);
    let text = nas.run_ok("zpool status -x");
    assert!(text.contains("all pools are healthy"), "{text}");
    nas.run_ok("zpool export tank");
}

#[test]
fn raidz_is_expanded_by_attach() {
    let nas = TestNas::new("expand", 5);
    nas.create_pool("-O canmount=off tank raidz1", 3);
    let drives = nas.drive_paths(5);
    let [_, _, _, new, next] = &drives[..] else { panic!("five drives") };
    nas.run_ok("zfs create -V 8M tank/volume");
    let size = |text: &str| -> u64 { text.trim().parse().unwrap() };
    let before = size(&nas.run_ok("zpool list -Hp -o size tank"));
    let why = nas.run_failing(&format!("zpool attach tank raidz2-0 {}", path_arg(new)), 255);
    assert!(why.contains("raidz2-0"), "{why}");
    nas.run_ok(&format!("zpool attach -w tank raidz1-0 {}", path_arg(new)));
    let text = nas.run_ok("zpool status tank");
    assert!(
        text.contains("expand: expanded raidz1-0 copied ") && text.contains(path_arg(new)),
        "{text}"
    );
    assert!(size(&nas.run_ok("zpool list -Hp -o size tank")) > before);
    let json: Value = serde_json::from_str(&nas.run_ok("zpool status --json tank")).unwrap();
    assert_eq!(json["pools"]["tank"]["raidz_expand_stats"]["state"], "FINISHED");
    assert!(nas.run_ok("zpool history -i tank").contains("raidz vdev expansion completed"));
    // a daemon that ends during a resilver continues it at its next start
    nas.run_ok(&format!("zpool attach tank raidz1-0 {}", path_arg(next)));
    nas.run_ok("serve --stop");
    nas.run_ok("zpool wait -t raidz_expand tank");
    let text = nas.run_ok("zpool status tank");
    assert!(text.contains("expand: expanded raidz1-0 copied "), "{text}");
    nas.wait_until(|| {
        nas.run_ok("zpool status tank").contains("expand: expanded raidz1-0 copied ")
    });
    // a scrub follows an expansion by itself
    nas.run_ok("zpool wait -t scrub tank");
    nas.run_ok("zpool scrub -w tank");
    assert!(nas.run_ok("zpool status tank").contains("with 0 errors"));
    nas.run_ok("zpool export tank");
}

#[test]
fn vdevs_are_added_and_logs_removed_by_commands() {
    let nas = TestNas::new("addvdev", 6);
    nas.create_pool("-O canmount=off tank mirror", 2);
    let drives = nas.drive_paths(6);
    let [_, _, one, two, log, last] = &drives[..] else { panic!("six drives") };
    let [one, two, log, last] = [one, two, log, last].map(|path| path_arg(path));
    let why = nas.run_failing(&format!("zpool add -n tank {one}"), 1);
    assert!(why.contains("mismatched replication level") && why.contains("'-f'"), "{why}");
    let why = nas.run_failing(&format!("zpool add -o ashift=13 tank mirror {one} {two}"), 1);
    assert!(why.contains("ashift=12"), "{why}");
    let shown = nas.run_ok(&format!("zpool add -n tank mirror {one} {two} log {log}"));
    let title = "would update 'tank' to the following configuration:\n\n\ttank\n\t  mirror-0\n";
    let new = format!("\t  mirror\n\t    {one}\n\t    {two}\n\tlogs\n\t  {log}\n");
    assert!(shown.starts_with(title) && shown.ends_with(&new), "{shown}");
    assert!(!nas.run_ok("zpool status tank").contains("mirror-1"));
    nas.run_ok(&format!("zpool add tank mirror {one} {two} log {log}"));
    let text = nas.run_ok("zpool status tank");
    assert!(text.contains("mirror-1") && text.contains("logs"), "{text}");
    // cache drives and spares have no ashift that could differ
    nas.run_ok("zpool set ashift=13 tank");
    nas.run_ok(&format!("zpool add -n tank cache {last}"));
    nas.run_ok("zfs create -V 8M tank/volume");
    nas.run_ok(&format!("zpool remove tank {log}"));
    assert!(!nas.run_ok("zpool status tank").contains("logs"));
    nas.run_failing(&format!("zpool labelclear {one}"), 1);
    // the label of a removed drive names no pool
    nas.run_ok(&format!("zpool labelclear {log}"));
    nas.run_failing(&format!("zpool labelclear {log}"), 1);
    nas.run_ok("zpool reopen tank");
    // a drive at a time, until all are larger
    File::options().write(true).open(last).unwrap().set_len(512 << 20).unwrap();
    nas.run_ok(&format!("zpool replace -w tank {one} {last}"));
    File::options().write(true).open(one).unwrap().set_len(512 << 20).unwrap();
    nas.run_ok(&format!("zpool replace -w tank {two} {one}"));
    let size = || nas.run_ok("zpool list -Hpo size").trim().parse::<u64>().unwrap();
    let before = size();
    nas.run_ok(&format!("zpool online -e tank {one}"));
    assert!(size() > before + (200 << 20), "{before} {}", size());
    // both grow while the pool has them open
    for drive in [one, last] {
        File::options().write(true).open(drive).unwrap().set_len(1 << 30).unwrap();
    }
    let more: u64 = nas.run_ok("zpool list -Hpo expandsize").trim().parse().unwrap();
    assert!(more > 400 << 20, "{more}");
    let before = size();
    nas.run_ok("zpool set autoexpand=on tank");
    nas.wait_until(|| size() == before + more);
    assert_eq!(nas.run_ok("zpool list -Hpo expandsize").trim(), "-");
    nas.run_ok("zpool export tank");
    let why = nas.run_failing(&format!("zpool labelclear {one}"), 1);
    assert!(why.contains("exported pool"), "{why}");
    let places = path_arg(&nas.0.join("drives")).to_owned();
    nas.run_ok(&format!("zpool import -d {places} tank"));
    nas.run_ok("zpool destroy tank");
    nas.run_ok(&format!("zpool labelclear {one}"));
}

#[test]
fn drives_go_offline_and_come_back_by_commands() {
    let nas = TestNas::new("offline", 2);
    nas.create_pool("-O canmount=off tank mirror", 2);
    let [one, two] = &nas.drive_paths(2)[..] else { panic!("two drives") };
    let (one, two) = (path_arg(one), path_arg(two));
    nas.run_ok(&format!("zpool offline tank {one}"));
    let text = nas.run_ok("zpool status tank");
    assert!(text.contains("taken offline by the administrator"), "{text}");
    assert!(text.contains("OFFLINE") && text.contains("DEGRADED"), "{text}");
    let why = nas.run_failing(&format!("zpool offline tank {two}"), 1);
    assert!(why.contains("no valid replicas"), "{why}");
    nas.run_ok("zfs create -V 8M tank/volume");
    // the daemon that comes after this one keeps it so
    nas.run_ok("serve --stop");
    assert!(nas.run_ok("zpool status tank").contains("OFFLINE"));
    nas.run_ok(&format!("zpool online -w tank {one}"));
    assert_eq!(nas.run_ok("zpool status -x"), "all pools are healthy\n");
    nas.run_ok(&format!("zpool offline -ft tank {two}"));
    assert!(nas.run_ok("zpool status tank").contains("external device fault"));
    nas.run_ok("zpool clear tank");
    nas.wait_until(|| nas.run_ok("zpool status -x") == "all pools are healthy\n");
    assert!(nas.run_ok("zpool history tank").contains("zpool offline tank"));
    nas.run_ok("zpool export tank");
}

#[test]
fn daemon_attaches_a_spare_to_a_failed_drive() {
    let nas = TestNas::new("standin", 3);
    let drives = nas.drive_paths(3);
    let [one, two, spare] = &drives[..] else { panic!("three drives") };
    let [one, two, spare] = [one, two, spare].map(|path| path_arg(path));
    nas.run_ok(&format!("zpool create -O canmount=off tank mirror {one} {two} spare {spare}"));
    nas.run_ok("zfs create -V 8M tank/volume");
    nas.run_ok(&format!("zpool offline -f tank {two}"));
    nas.wait_until(|| {
        let text = nas.run_ok("zpool status tank");
        text.contains("INUSE") && text.contains("scan: resilvered")
    });
    let text = nas.run_ok("zpool status tank");
    assert!(text.contains("spare-1") && text.contains("currently in use"), "{text}");
    assert!(nas.read_log().contains("stands in for it"), "{}", nas.read_log());
    // after a clear the drive is resilvered, and the spare is free again
    nas.run_ok("zpool clear tank");
    nas.wait_until(|| {
        let text = nas.run_ok("zpool status tank");
        text.contains("AVAIL") && !text.contains("spare-1")
    });
    // by command, and permanently
    nas.run_ok(&format!("zpool replace -w tank {one} {spare}"));
    assert!(nas.run_ok("zpool status tank").contains("spare-0"));
    nas.run_ok(&format!("zpool detach tank {one}"));
    let text = nas.run_ok("zpool status tank");
    assert!(!text.contains("spares") && text.contains(spare), "{text}");
    nas.run_ok("zpool export tank");
}

/// A NAS with a pool on a file in a file system of another NAS, which removes the drive and
/// brings it back under a new handle.
struct NestedNas {
    inner: TestNas,
    outer: TestNas,
}

impl NestedNas {
    fn new(name: &str) -> Self {
        Self::with_layout(name, "", 0)
    }

    /// A pool of this layout, with this many drives besides that one.
    fn with_layout(name: &str, layout: &str, own: usize) -> Self {
        let inner = TestNas::new(&format!("{name}-i"), own);
        let outer = TestNas::new(&format!("{name}-o"), 1);
        outer.create_pool("-O compression=lz4 base", 1);
        let nested = Self { inner, outer };
        File::create(nested.drive_path()).unwrap().set_len(128 << 20).unwrap();
        let drives: Vec<_> =
            nested.inner.drive_paths(own).into_iter().chain([nested.drive_path()]).collect();
        let drives: Vec<&str> = drives.iter().map(|drive| path_arg(drive)).collect();
        let (root, drives) = (nested.inner.altroot(), drives.join(" "));
        nested
            .inner
            .run_ok(&format!("zpool create -f -R {} tank {layout} {drives}", path_arg(&root)));
        nested
    }

    fn drive_path(&self) -> PathBuf {
        self.outer.altroot().join("base/drive.img")
    }

    fn pull_drive(&self) {
        self.outer.run_ok("zfs unmount -f base");
    }

    fn reinsert_drive(&self) {
        self.outer.run_ok("zfs mount base");
    }

    /// Writes a file and waits until it lasts; gives whether that could be.
    fn write_synced(&self, name: &str, content: &str) -> bool {
        let path = self.inner.altroot().join("tank").join(name);
        let written = File::create(path).and_then(|mut file| {
            file.write_all(content.as_bytes())?;
            file.sync_all()
        });
        written.is_ok()
    }

    /// Asserts that files have these contents.
    fn assert_contents(&self, files: &[(&str, &str)]) {
        for (name, content) in files {
            assert_eq!(self.read_file(name).as_deref(), Some(*content), "{name}");
        }
    }

    fn read_file(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.inner.altroot().join("tank").join(name)).ok()
    }
}

#[test]
fn reinserted_drive_is_used_again() {
    if cannot_mount() {
        return;
    }
    let nested = NestedNas::new("pulled");
    let nas = &nested.inner;
    nas.run_ok("zpool set failmode=continue tank");
    assert!(nested.write_synced("one", "first") && nested.write_synced("two", "second"));
    nested.pull_drive();
    let refused = nas.run("zfs create tank/late");
    assert_eq!(refused.status, 1, "{}{}", refused.stdout, refused.stderr);
    assert_eq!(nas.run_ok("zpool list -Ho health"), "SUSPENDED\n");
    assert_eq!(nas.run("zpool clear tank").status, 1, "it is still missing");
    assert!(!nested.write_synced("three", "nowhere"));
    nested.reinsert_drive();
    let cleared = nas.run("zpool clear tank");
    assert_eq!(cleared.status, 0, "{}", cleared.stderr);
    assert_eq!(nas.run_ok("zpool list -Ho health"), "ONLINE\n");
    nas.run_ok("zfs create tank/later");
    assert!(nested.write_synced("after", "it is back"));
    // whether it was resumed or imported again, acknowledged writes are there
    nested.assert_contents(&[("one", "first"), ("two", "second"), ("after", "it is back")]);
    nas.run_ok("zpool export tank");
    let base = nested.outer.altroot().join("base");
    nas.run_ok(&format!(
        "zpool import -R {} -d {} tank",
        path_arg(&nas.altroot()),
        path_arg(&base)
    ));
    assert_eq!(nested.read_file("after").as_deref(), Some("it is back"));
    nas.run_ok("zpool export tank");
    let verified = run(&["rescue", "verify", "-d", path_arg(&base), "tank"]);
    assert_eq!(verified.status, 0, "{}{}", verified.stdout, verified.stderr);
}

#[test]
fn reinserted_drive_is_used_under_its_new_name() {
    if cannot_mount() {
        return;
    }
    let nested = NestedNas::new("renamed");
    let nas = &nested.inner;
    nas.run_ok("zpool set failmode=continue tank");
    assert!(nested.write_synced("one", "first"));
    nested.pull_drive();
    assert_eq!(nas.run("zfs create tank/late").status, 1);
    assert_eq!(nas.run_ok("zpool list -Ho health"), "SUSPENDED\n");
    nested.reinsert_drive();
    let now = nested.drive_path().with_file_name("sdf.img");
    std::fs::rename(nested.drive_path(), &now).unwrap();
    nas.run_ok("zpool clear tank");
    assert!(nested.write_synced("after", "it is back"));
    // the old name is forgotten, also by later imports
    for restart in [false, true] {
        if restart {
            nas.run_ok("serve --stop");
        }
        assert_eq!(nas.run_ok("zpool list -Ho health"), "ONLINE\n");
        let text = nas.run_ok("zpool status tank");
        assert!(
            text.contains(path_arg(&now)) && !text.contains(path_arg(&nested.drive_path())),
            "{text}"
        );
    }
    nested.assert_contents(&[("one", "first"), ("after", "it is back")]);
    nas.run_ok("zpool export tank");
    let verified = run(&["rescue", "verify", "-d", path_arg(&now), "tank"]);
    assert_eq!(verified.status, 0, "{}{}", verified.stdout, verified.stderr);
}

#[test]
fn returned_drive_is_resilvered() {
    if cannot_mount() {
        return;
    }
    let nested = NestedNas::with_layout("went", "raidz1", 2);
    let nas = &nested.inner;
    assert!(nested.write_synced("one", "first"));
    // its later name, because the old one must not show it when it is back
    let now = nested.drive_path().with_file_name("sdf.img");
    std::fs::rename(nested.drive_path(), &now).unwrap();
    nested.pull_drive();
    assert!(nested.write_synced("two", "second"));
    nas.run_ok("zpool sync tank");
    assert_eq!(nas.run_ok("zpool list -Ho health"), "DEGRADED\n");
    let text = nas.run_ok("zpool status -x");
    assert!(
        text.contains("has been removed by the administrator") && text.contains("REMOVED"),
        "{text}"
    );
    let json: Value = serde_json::from_str(&nas.run_ok("zpool status --json tank")).unwrap();
    let (_, vdev) =
        json["pools"]["tank"]["vdevs"]["tank"]["vdevs"].as_object().unwrap().iter().next().unwrap();
    let third = vdev["vdevs"].as_object().unwrap().values().nth(2).unwrap();
    assert_eq!((&vdev["state"], &third["state"]), (&"DEGRADED".into(), &"REMOVED".into()));
    // it is put in again, and nobody gives a command
    nested.reinsert_drive();
    nas.wait_until(|| nas.run_ok("zpool status tank").contains(" with 0 errors"));
    let text = nas.run_ok("zpool status tank");
    assert!(text.contains("scan: resilvered") && text.contains(path_arg(&now)), "{text}");
    assert!(nas.run_ok("zpool status -x").contains("all pools are healthy"), "{text}");
    assert!(nas.read_log().contains("sdf.img' is back"), "{}", nas.read_log());
    nas.run_ok("zpool export tank");
    // it has the data written while it was missing
    std::fs::remove_file(&nas.drive_paths(1)[0]).unwrap();
    let places = format!("-d {} -d {}", path_arg(&nas.0.join("drives")), path_arg(&now));
    nas.run_ok(&format!("zpool import -R {} {places} tank", path_arg(&nas.altroot())));
    nested.assert_contents(&[("one", "first"), ("two", "second")]);
}

#[test]
fn pulled_drive_has_a_spare_until_it_returns() {
    if cannot_mount() {
        return;
    }
    let nested = NestedNas::with_layout("spared", "raidz1", 2);
    let nas = &nested.inner;
    let spare = nas.0.join("drives/spare.img");
    File::create(&spare).unwrap().set_len(256 << 20).unwrap();
    nas.run_ok(&format!("zpool add tank spare {}", path_arg(&spare)));
    assert!(nested.write_synced("one", "first"));
    let now = nested.drive_path().with_file_name("sdf.img");
    std::fs::rename(nested.drive_path(), &now).unwrap();
    nested.pull_drive();
    assert!(nested.write_synced("two", "second"));
    nas.run_ok("zpool sync tank");
    nas.wait_until(|| {
        let text = nas.run_ok("zpool status tank");
        text.contains("INUSE") && text.contains("scan: resilvered")
    });
    nested.reinsert_drive();
    nas.wait_until(|| {
        let text = nas.run_ok("zpool status tank");
        text.contains("AVAIL") && !text.contains("spare-2")
    });
    nas.wait_until(|| nas.run_ok("zpool status -x").contains("all pools are healthy"));
    nested.assert_contents(&[("one", "first"), ("two", "second")]);
}

#[test]
fn lost_drive_cache_is_reported() {
    if cannot_mount() {
        return;
    }
    let nested = NestedNas::new("unkept");
    let nas = &nested.inner;
    let words = "-o encryption=on -o keyformat=passphrase -o pbkdf2iters=100000";
    let key = nas.0.join("key");
    std::fs::write(&key, "correct horse battery staple").unwrap();
    nas.run_ok(&format!("zfs create {words} -o keylocation=file://{} tank/secret", path_arg(&key)));
    std::fs::remove_file(&key).unwrap();
    nas.run_ok("zpool set failmode=continue tank");
    assert!(nested.write_synced("one", "first") && nested.write_synced("secret/two", "second"));
    assert!(nested.write_synced("secret/three", "third"));
    // taken by the drive, and not kept when it goes
    std::fs::write(nas.altroot().join("tank/unkept"), vec![7; 3_000_000]).unwrap();
    nested.pull_drive();
    let refused = nas.run("zfs create tank/late");
    assert_eq!(refused.status, 1, "{}{}", refused.stdout, refused.stderr);
    nested.reinsert_drive();
    let mut cleared = nas.run("zpool clear tank");
    assert_eq!(cleared.status, 0, "{}{}", cleared.stderr, nas.read_log());
    // a pool that resumes has lost nothing; a pool that does not reports it
    if !cleared.stderr.contains("imported anew") {
        assert!(nas.altroot().join("tank/unkept").exists());
        cleared = nas.run("zpool status tank");
        assert_eq!(cleared.status, 0, "{}", cleared.stderr);
    }
    assert_eq!(nested.read_file("one").as_deref(), Some("first"));
    for (name, content) in [("secret/two", "second"), ("secret/three", "third")] {
        assert_eq!(nested.read_file(name).as_deref(), Some(content), "its key is still loaded");
    }
    assert_eq!(nas.run_ok("zpool list -Ho health"), "ONLINE\n");
    assert!(nested.write_synced("after", "it is back"));
}

#[test]
fn pool_with_a_lost_vdev_is_not_imported() {
    let nas = TestNas::new("part-lost", 2);
    nas.create_pool("-O canmount=off tank", 2);
    nas.run_ok("zpool export tank");
    let [_, second] = &nas.drive_paths(2)[..] else { panic!("two drives") };
    let away = nas.0.join("away.img");
    std::fs::rename(second, &away).unwrap();
    let place = format!("zpool import -d {}", path_arg(&nas.0.join("drives")));
    let why = nas.run_failing(&format!("{place} tank"), 1);
    assert!(why.contains("d1.img is missing") && why.contains("poolhouse rescue"), "{why}");
    let seen = nas.run_ok(&place);
    assert!(seen.contains("state: UNAVAIL") && seen.contains("whole vdevs are missing"), "{seen}");
    let why = nas.run_failing(&format!("{place} -a"), 1);
    assert!(why.contains("'tank' is not imported") && why.contains("d1.img is missing"), "{why}");
    assert_eq!(nas.run_ok("zpool list -H"), "");
    std::fs::rename(&away, second).unwrap();
    nas.run_ok(&format!("{place} tank"));
}

#[test]
fn lost_log_device_needs_import_m() {
    if cannot_mount() {
        return;
    }
    let nas = TestNas::new("lost-log", 2);
    let [_, log] = &nas.drive_paths(2)[..] else { panic!("two drives") };
    nas.create_pool("tank", 1);
    nas.run_ok("zpool destroy -f tank");
    let (root, data) = (nas.altroot(), nas.drive_paths(1));
    let words = format!("zpool create -f -R {} tank {}", path_arg(&root), path_arg(&data[0]));
    nas.run_ok(&format!("{words} log {}", path_arg(log)));
    let letter = root.join("tank/letter");
    let write = |text: &str| {
        let mut file = File::create(&letter).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.sync_all().unwrap();
    };
    write("old");
    nas.run_ok("zpool sync tank");
    // the log is empty: the pool can be imported without it
    nas.run_ok("zpool export tank");
    let away = nas.0.join("away.img");
    std::fs::rename(log, &away).unwrap();
    let place =
        format!("zpool import -R {} -d {}", path_arg(&root), path_arg(&nas.0.join("drives")));
    nas.run_ok(&format!("{place} tank"));
    assert!(nas.run_ok("zpool status tank").contains("UNAVAIL"));
    write("without a log");
    nas.run_ok("zpool export tank");
    std::fs::rename(&away, log).unwrap();
    nas.run_ok(&format!("{place} tank"));
    assert_eq!(std::fs::read_to_string(&letter).unwrap(), "without a log");
    // something is
    write("first");
    nas.run_ok("zpool sync tank");
    write("promised");
    crate::test_nas::kill_daemon(&nas.state_dir());
    std::fs::rename(log, &away).unwrap();
    let _ = std::process::Command::new("umount").arg("-l").arg(root.join("tank")).status();
    let text = nas.run_ok("zpool status tank");
    assert!(text.contains("state: UNAVAIL") && text.contains("`zpool import -m tank`"), "{text}");
    let why = nas.run_failing(&format!("{place} tank"), 1);
    assert!(why.contains("synchronous writes") && why.contains("-m"), "{why}");
    nas.run_ok(&format!("{place} -m tank"));
    let kept = std::fs::read_to_string(&letter).unwrap();
    // a txg may have synced the last one in time
    assert!(["first", "", "promised"].contains(&kept.as_str()), "{kept}");
    write("again");
    assert_eq!(std::fs::read_to_string(&letter).unwrap(), "again");
    nas.run_ok("zpool export tank");
    std::fs::rename(&away, log).unwrap();
    nas.run_ok(&format!("{place} tank"));
    assert_eq!(std::fs::read_to_string(&letter).unwrap(), "again");
}

#[test]
fn log_end_is_not_a_drive_error() {
    if cannot_mount() {
        return;
    }
    let nas = TestNas::new("log-end", 2);
    nas.create_pool("tank mirror", 2);
    let root = nas.altroot().join("tank");
    for name in ["one", "two"] {
        let mut file = File::create(root.join(name)).unwrap();
        file.write_all(name.as_bytes()).unwrap();
        file.sync_all().unwrap();
    }
    crate::test_nas::kill_daemon(&nas.state_dir());
    let text = nas.run_ok("zpool status tank");
    assert!(text.contains("No known data errors"), "{text}");
    assert_eq!(nas.run_ok("zpool status -x").trim(), "all pools are healthy");
    assert_eq!(std::fs::read_to_string(root.join("two")).unwrap(), "two");
}

#[test]
fn a_scrub_names_the_files_that_are_lost() {
    if cannot_mount() {
        return;
    }
    let nas = TestNas::new("lost-files", 1);
    nas.create_pool("-O compression=off tank", 1);
    let root = nas.altroot().join("tank");
    std::fs::create_dir(root.join("photos")).unwrap();
    let noise = crate::test_nas::random_bytes(300_000);
    std::fs::write(root.join("photos/cat"), &noise).unwrap();
    std::fs::write(root.join("whole"), "x").unwrap();
    nas.run_ok("zpool export tank");
    let drive = &nas.drive_paths(1)[0];
    let mut image = std::fs::read(drive).unwrap();
    let part = &noise[140_000..140_100];
    let at = image.windows(part.len()).position(|bytes| bytes == part).unwrap();
    image[at] ^= 1;
    std::fs::write(drive, &image).unwrap();
    nas.run_ok(&format!(
        "zpool import -R {} -d {} tank",
        path_arg(&nas.altroot()),
        path_arg(drive)
    ));
    nas.run_ok("zpool scrub -w tank");
    let text = nas.run_ok("zpool status -v tank");
    assert!(text.contains("with 1 errors"), "{text}");
    let lost = format!("{}/photos/cat: bytes 131072 to 262143", path_arg(&root));
    assert!(text.contains(&lost), "{text}");
    let json: Value = serde_json::from_str(&nas.run_ok("zpool status --json tank")).unwrap();
    assert_eq!(json["pools"]["tank"]["errlist"].as_array().unwrap().len(), 1);
    let why = std::fs::read(root.join("photos/cat")).unwrap_err();
    assert_eq!(why.raw_os_error(), Some(5));
    assert_eq!(std::fs::read_to_string(root.join("whole")).unwrap(), "x");
}

#[test]
fn pool_with_late_drives_is_imported_later() {
    let nas = TestNas::new("late", 4);
    let drives = nas.drive_paths(4);
    let [first, .., last] = &drives[..] else { panic!("four drives") };
    nas.create_pool("-O canmount=off tank", 2);
    let other = format!("zpool create -O canmount=off other {}", path_arg(last));
    nas.run_ok(&other);
    nas.run_ok("serve --stop");
    let away = nas.0.join("away.img");
    std::fs::rename(first, &away).unwrap();
    let text = nas.run_ok("zpool status");
    assert!(
        text.contains("pool: tank\n state: UNAVAIL\nstatus: The pool cannot be imported"),
        "{text}"
    );
    assert!(text.contains("pool: other\n state: ONLINE"), "{text}");
    assert!(!nas.run_ok("zpool status -x").contains("healthy"));
    let listed = nas.run_ok("zpool list -H -o name,size,health");
    assert!(listed.contains("tank\t-\tUNAVAIL\n"), "{listed}");
    let why = nas.run_failing("zfs list tank", 1);
    assert!(why.contains("d0.img is missing"), "{why}");
    // it is called otherwise now
    std::fs::rename(&away, nas.0.join("drives/elsewhere.img")).unwrap();
    nas.wait_until(|| nas.run("zfs list tank").status == 0);
    let text = nas.run_ok("zpool status tank");
    assert!(text.contains("state: ONLINE") && text.contains("elsewhere.img"), "{text}");
    // one that never comes is forgotten
    nas.run_ok("serve --stop");
    std::fs::remove_file(last).unwrap();
    assert!(nas.run_ok("zpool status other").contains("UNAVAIL"));
    nas.run_ok("zpool export other");
    nas.run_failing("zpool status other", 1);
    nas.run_ok("serve --stop");
    assert!(!nas.run_ok("zpool status").contains("other"));
}

#[test]
fn missing_drive_is_searched_at_daemon_start() {
    let nas = TestNas::new("came-back", 2);
    nas.create_pool("-O canmount=off tank mirror", 2);
    nas.run_ok("serve --stop");
    let [_, second] = &nas.drive_paths(2)[..] else { panic!("two drives") };
    let away = nas.0.join("away.img");
    std::fs::rename(second, &away).unwrap();
    assert!(nas.run_ok("zpool status tank").contains("DEGRADED"));
    nas.run_ok("zfs create -o canmount=off tank/meanwhile");
    nas.run_ok("serve --stop");
    std::fs::rename(&away, second).unwrap();
    let text = nas.run_ok("zpool status tank");
    assert!(text.contains("state: ONLINE"), "{text}");
}

#[test]
fn late_drive_is_used_without_command() {
    let nas = TestNas::new("came-late", 2);
    nas.create_pool("-O canmount=off tank mirror", 2);
    nas.run_ok("zpool export tank");
    let [first, second] = &nas.drive_paths(2)[..] else { panic!("two drives") };
    let away = nas.0.join("away.img");
    std::fs::rename(second, &away).unwrap();
    nas.run_ok(&format!("zpool import -d {} tank", path_arg(first)));
    assert!(nas.run_ok("zpool status tank").contains("DEGRADED"));
    nas.run_ok("zfs create -V 8M tank/meanwhile");
    std::fs::rename(&away, second).unwrap();
    let is_whole = |text: &str| text.contains("state: ONLINE") && text.contains("scan: resilvered");
    nas.wait_until(|| is_whole(&nas.run_ok("zpool status tank")));
    // it can do without the other now
    nas.run_ok("zpool export tank");
    std::fs::remove_file(first).unwrap();
    nas.run_ok(&format!("zpool import -d {} tank", path_arg(second)));
    nas.run_ok("zfs list tank/meanwhile");
}

#[test]
fn vdev_with_data_is_removed_by_command() {
    let nas = TestNas::new("removevdev", 4);
    nas.create_pool("-O canmount=off tank mirror", 2);
    let drives = nas.drive_paths(4);
    let (one, two) = (path_arg(&drives[2]), path_arg(&drives[3]));
    nas.run_ok(&format!("zpool add tank mirror {one} {two}"));
    nas.run_ok("zfs create -V 8M tank/volume");
    nas.run_failing("zpool remove -s tank", 1);
    let shown = nas.run_ok("zpool remove -n tank mirror-1");
    assert!(shown.contains("Memory that will be used after removing mirror-1: "), "{shown}");
    assert!(nas.run_ok("zpool status tank").contains("mirror-1"));
    nas.run_ok("zpool remove -w tank mirror-1");
    let text = nas.run_ok("zpool status tank");
    assert!(text.contains("remove: Removal of vdev 1 copied "), "{text}");
    assert!(!text.contains("mirror-1") && !text.contains("indirect"), "{text}");
    assert!(nas.run_ok("zpool list -v tank").contains("indirect-1"));
    let history = nas.run_ok("zpool history -i tank");
    assert!(history.contains("vdev remove started") && history.contains("vdev remove completed"));
    nas.run_ok(&format!("zpool add tank mirror {one} {two}"));
    nas.run_ok("zpool scrub -w tank");
    assert!(nas.run_ok("zpool status tank").contains("with 0 errors"));
    nas.run_ok("zpool export tank");
}

#[test]
fn mirrors_are_split_into_two_pools() {
    let nas = TestNas::new("split", 4);
    nas.create_pool("-O canmount=off tank mirror", 2);
    let drives = nas.drive_paths(4);
    let (one, two) = (path_arg(&drives[2]), path_arg(&drives[3]));
    nas.run_ok(&format!("zpool add tank mirror {one} {two}"));
    nas.run_ok("zfs create -V 8M tank/volume");
    let shown = nas.run_ok(&format!("zpool split -n tank copy {one}"));
    assert!(shown.contains("would create 'copy'") && shown.contains(one), "{shown}");
    nas.run_failing("zpool split tank tank", 1);
    nas.run_ok(&format!("zpool split -o comment=half -R /nowhere tank copy {one}"));
    assert!(nas.run_ok("zfs list -r copy").contains("copy/volume"));
    assert!(nas.run_ok("zpool get -Ho value comment copy").contains("half"));
    assert!(!nas.run_ok("zpool status tank").contains(one));
    nas.run_ok("zpool export copy");
    nas.run_ok("zpool export tank");
}
