//! A daemon's drives: they come and go, are replaced and mended, pulled out and put in again.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;

use serde_json::Value;

use crate::nas::{Nas, cannot_mount};
use crate::poolhouse::{arg, run};

#[test]
fn cache_drives_and_spares_come_and_go() {
    let nas = Nas::new("extra", 4);
    nas.create("-O canmount=off tank", 1);
    let drives = nas.drives(4);
    let [_, cache, spare, other] = &drives[..] else { panic!("four drives") };
    nas.good(&format!("zpool add tank cache {} spare {}", arg(cache), arg(spare)));
    let has = |wanted: &[&str]| {
        let text = nas.good("zpool status tank");
        let words: Vec<String> = text.lines().map(|line| line.trim().to_owned()).collect();
        for row in wanted {
            let found = words.iter().any(|line| line.split_whitespace().eq(row.split(' ')));
            assert!(found, "'{row}' in {text}");
        }
    };
    let rows = [format!("{} ONLINE 0 0 0", arg(cache)), format!("{} AVAIL", arg(spare))];
    has(&["cache", "spares", &rows[0], &rows[1]]);
    nas.refused(&format!("zpool add tank cache {}", arg(spare)), 1);
    nas.refused(&format!("zpool add tank {}", arg(other)), 2);
    nas.refused(&format!("zpool remove tank {}", arg(other)), 2);
    let json: Value = serde_json::from_str(&nas.good("zpool status --json tank")).unwrap();
    assert_eq!(json[0]["caches"][0]["state"], "ONLINE");
    assert_eq!(json[0]["spares"][0]["state"], "AVAIL");
    assert!(json[0]["cache_counts"]["memory_hits"].is_u64());
    // the daemon ends, and finds them again
    nas.good("serve --stop");
    has(&["cache", "spares", &rows[0], &rows[1]]);
    nas.good("zpool export tank");
    std::fs::remove_file(cache).unwrap();
    nas.good(&format!("zpool import -d {} tank", arg(&nas.0.join("drives"))));
    has(&[&format!("{} UNAVAIL 0 0 0", arg(cache)), &rows[1]]);
    assert!(nas.good("zpool status -x").contains("cache drives cannot be used"));
    nas.good(&format!("zpool remove tank {} {}", arg(cache), arg(spare)));
    let text = nas.good("zpool status tank");
    assert!(!text.contains("cache") && !text.contains("spares"), "{text}");
    assert!(nas.good("zpool history tank").contains("zpool remove tank"));
}

#[test]
fn drives_are_replaced_and_mended_by_commands() {
    let nas = Nas::new("mend", 5);
    nas.create("-O canmount=off tank raidz1", 3);
    let drives = nas.drives(5);
    let [_, one, two, new, other] = &drives[..] else { panic!("five drives") };
    nas.good("zfs create -V 8M tank/volume");
    nas.refused(&format!("zpool replace tank {} {}", arg(new), arg(other)), 2);
    nas.refused(&format!("zpool replace tank {} {}", arg(one), arg(two)), 1);
    nas.good(&format!("zpool replace -w tank {} {}", arg(one), arg(new)));
    let text = nas.good("zpool status tank");
    assert!(text.contains("scan: resilvered ") && text.contains("with 0 errors"), "{text}");
    assert!(text.contains(arg(new)) && !text.contains(arg(one)), "{text}");
    assert!(!text.contains("replacing"), "{text}");
    nas.good("zpool scrub -w tank");
    let json: Value = serde_json::from_str(&nas.good("zpool status --json tank")).unwrap();
    assert_eq!(
        (&json[0]["scan"]["scan"], &json[0]["scan"]["errors"]),
        (&"scrub".into(), &0.into())
    );
    assert_eq!(json[0]["scan"]["state"], "finished");
    nas.refused("zpool scrub -s tank", 2);
    nas.refused(&format!("zpool detach tank {}", arg(two)), 2);
    // a drive that is gone is replaced, even if the daemon ends meanwhile
    nas.good("zpool export tank");
    std::fs::remove_file(two).unwrap();
    nas.good(&format!("zpool import -d {} tank", arg(&nas.0.join("drives"))));
    assert!(nas.good("zpool status tank").contains("DEGRADED"));
    nas.good(&format!("zpool replace tank {} {}", arg(two), arg(other)));
    nas.good("serve --stop");
    nas.good("zpool status tank");
    let is_over = || {
        let text = nas.good("zpool status tank");
        !text.contains("in progress") && !text.contains("replacing")
    };
    nas.until(is_over);
    let text = nas.good("zpool status -x");
    assert!(text.contains("all pools are healthy"), "{text}");
    nas.good("zpool export tank");
}

/// A NAS with a pool on a file in a file system of another NAS, which takes the drive away and
/// brings it back under a new handle.
struct Nested {
    inner: Nas,
    outer: Nas,
}

impl Nested {
    fn new(name: &str) -> Self {
        Self::with(name, "", 0)
    }

    /// Of this layout, with so many drives beside that one.
    fn with(name: &str, layout: &str, own: usize) -> Self {
        let inner = Nas::new(&format!("{name}-i"), own);
        let outer = Nas::new(&format!("{name}-o"), 1);
        outer.create("-O compression=lz4 base", 1);
        let nested = Self { inner, outer };
        File::create(nested.drive()).unwrap().set_len(128 << 20).unwrap();
        let drives: Vec<_> = nested.inner.drives(own).into_iter().chain([nested.drive()]).collect();
        let drives: Vec<&str> = drives.iter().map(|drive| arg(drive)).collect();
        let (root, drives) = (nested.inner.root(), drives.join(" "));
        nested.inner.good(&format!("zpool create -f -R {} tank {layout} {drives}", arg(&root)));
        nested
    }

    fn drive(&self) -> PathBuf {
        self.outer.root().join("base/drive.img")
    }

    fn pull(&self) {
        self.outer.good("zfs unmount -f base");
    }

    fn put_back(&self) {
        self.outer.good("zfs mount base");
    }

    /// Writes a file and waits until it lasts; gives whether that could be.
    fn keep(&self, name: &str, content: &str) -> bool {
        let path = self.inner.root().join("tank").join(name);
        let written = File::create(path).and_then(|mut file| {
            file.write_all(content.as_bytes())?;
            file.sync_all()
        });
        written.is_ok()
    }

    /// Asserts that files have these contents.
    fn holds(&self, files: &[(&str, &str)]) {
        for (name, content) in files {
            assert_eq!(self.read(name).as_deref(), Some(*content), "{name}");
        }
    }

    fn read(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.inner.root().join("tank").join(name)).ok()
    }
}

#[test]
fn a_drive_that_was_pulled_out_and_put_in_again_is_used_again() {
    if cannot_mount() {
        return;
    }
    let nested = Nested::new("pulled");
    let nas = &nested.inner;
    nas.good("zpool set failmode=continue tank");
    assert!(nested.keep("one", "first") && nested.keep("two", "second"));
    nested.pull();
    let refused = nas.run("zfs create tank/late");
    assert_eq!(refused.status, 1, "{}{}", refused.out, refused.err);
    assert_eq!(nas.good("zpool list -Ho health"), "SUSPENDED\n");
    assert_eq!(nas.run("zpool clear tank").status, 1, "it is away still");
    assert!(!nested.keep("three", "nowhere"));
    nested.put_back();
    let cleared = nas.run("zpool clear tank");
    assert_eq!(cleared.status, 0, "{}", cleared.err);
    assert_eq!(nas.good("zpool list -Ho health"), "ONLINE\n");
    nas.good("zfs create tank/later");
    assert!(nested.keep("after", "it is back"));
    // whether it went on or was taken over anew, what was promised is there
    nested.holds(&[("one", "first"), ("two", "second"), ("after", "it is back")]);
    nas.good("zpool export tank");
    let base = nested.outer.root().join("base");
    nas.good(&format!("zpool import -R {} -d {} tank", arg(&nas.root()), arg(&base)));
    assert_eq!(nested.read("after").as_deref(), Some("it is back"));
    nas.good("zpool export tank");
    let verified = run(&["rescue", "verify", "-d", arg(&base), "tank"]);
    assert_eq!(verified.status, 0, "{}{}", verified.out, verified.err);
}

#[test]
fn a_drive_that_was_put_in_again_is_used_under_its_new_name() {
    if cannot_mount() {
        return;
    }
    let nested = Nested::new("renamed");
    let nas = &nested.inner;
    nas.good("zpool set failmode=continue tank");
    assert!(nested.keep("one", "first"));
    nested.pull();
    assert_eq!(nas.run("zfs create tank/late").status, 1);
    assert_eq!(nas.good("zpool list -Ho health"), "SUSPENDED\n");
    nested.put_back();
    let now = nested.drive().with_file_name("sdf.img");
    std::fs::rename(nested.drive(), &now).unwrap();
    nas.good("zpool clear tank");
    assert!(nested.keep("after", "it is back"));
    // what was known of the old name is forgotten, also by who comes later
    for restart in [false, true] {
        if restart {
            nas.good("serve --stop");
        }
        assert_eq!(nas.good("zpool list -Ho health"), "ONLINE\n");
        let text = nas.good("zpool status tank");
        assert!(text.contains(arg(&now)) && !text.contains(arg(&nested.drive())), "{text}");
    }
    nested.holds(&[("one", "first"), ("after", "it is back")]);
    nas.good("zpool export tank");
    let verified = run(&["rescue", "verify", "-d", arg(&now), "tank"]);
    assert_eq!(verified.status, 0, "{}{}", verified.out, verified.err);
}

#[test]
fn a_drive_that_went_away_is_missed_and_made_whole_when_it_is_back() {
    if cannot_mount() {
        return;
    }
    let nested = Nested::with("went", "raidz1", 2);
    let nas = &nested.inner;
    assert!(nested.keep("one", "first"));
    // the name that it will have, as nobody may see it under the old one when it is back
    let now = nested.drive().with_file_name("sdf.img");
    std::fs::rename(nested.drive(), &now).unwrap();
    nested.pull();
    assert!(nested.keep("two", "second"));
    nas.good("zpool sync tank");
    assert_eq!(nas.good("zpool list -Ho health"), "DEGRADED\n");
    let text = nas.good("zpool status -x");
    assert!(text.contains("drives are missing") && text.contains("REMOVED"), "{text}");
    let json: Value = serde_json::from_str(&nas.good("zpool status --json tank")).unwrap();
    let vdev = &json[0]["vdevs"][0];
    assert_eq!(
        (&vdev["state"], &vdev["children"][2]["state"]),
        (&"DEGRADED".into(), &"REMOVED".into())
    );
    // it is put in again, and nobody gives a command
    nested.put_back();
    nas.until(|| nas.good("zpool status tank").contains(" with 0 errors"));
    let text = nas.good("zpool status tank");
    assert!(text.contains("scan: resilvered") && text.contains(arg(&now)), "{text}");
    assert!(nas.good("zpool status -x").contains("all pools are healthy"), "{text}");
    assert!(nas.log().contains("sdf.img' is back"), "{}", nas.log());
    nas.good("zpool export tank");
    // it has what was written while it was away
    std::fs::remove_file(&nas.drives(1)[0]).unwrap();
    let places = format!("-d {} -d {}", arg(&nas.0.join("drives")), arg(&now));
    nas.good(&format!("zpool import -R {} {places} tank", arg(&nas.root())));
    nested.holds(&[("one", "first"), ("two", "second")]);
}

#[test]
fn what_a_drive_did_not_keep_is_said_to_be_lost() {
    if cannot_mount() {
        return;
    }
    let nested = Nested::new("unkept");
    let nas = &nested.inner;
    let words = "-o encryption=on -o keyformat=passphrase -o pbkdf2iters=100000";
    let key = nas.0.join("key");
    std::fs::write(&key, "correct horse battery staple").unwrap();
    nas.good(&format!("zfs create {words} -o keylocation=file://{} tank/secret", arg(&key)));
    std::fs::remove_file(&key).unwrap();
    nas.good("zpool set failmode=continue tank");
    assert!(nested.keep("one", "first") && nested.keep("secret/two", "second"));
    assert!(nested.keep("secret/three", "third"));
    // taken by the drive, and not kept when it goes
    std::fs::write(nas.root().join("tank/unkept"), vec![7; 3_000_000]).unwrap();
    nested.pull();
    let refused = nas.run("zfs create tank/late");
    assert_eq!(refused.status, 1, "{}{}", refused.out, refused.err);
    nested.put_back();
    let mut cleared = nas.run("zpool clear tank");
    assert_eq!(cleared.status, 0, "{}{}", cleared.err, nas.log());
    // one that goes on has lost nothing; one that does not says so
    if !cleared.err.contains("taken over anew") {
        assert!(nas.root().join("tank/unkept").exists());
        cleared = nas.run("zpool status tank");
        assert_eq!(cleared.status, 0, "{}", cleared.err);
    }
    assert_eq!(nested.read("one").as_deref(), Some("first"));
    for (name, content) in [("secret/two", "second"), ("secret/three", "third")] {
        assert_eq!(nested.read(name).as_deref(), Some(content), "its key is known still");
    }
    assert_eq!(nas.good("zpool list -Ho health"), "ONLINE\n");
    assert!(nested.keep("after", "it is back"));
}

#[test]
fn a_pool_of_which_a_part_is_lost_is_not_taken_over() {
    let nas = Nas::new("part-lost", 2);
    nas.create("-O canmount=off tank", 2);
    nas.good("zpool export tank");
    let [_, second] = &nas.drives(2)[..] else { panic!("two drives") };
    let away = nas.0.join("away.img");
    std::fs::rename(second, &away).unwrap();
    let place = format!("zpool import -d {}", arg(&nas.0.join("drives")));
    let why = nas.refused(&format!("{place} tank"), 1);
    assert!(why.contains("d1.img is missing") && why.contains("poolhouse rescue"), "{why}");
    let seen = nas.good(&place);
    assert!(seen.contains("state: UNAVAIL") && seen.contains("whole vdevs are missing"), "{seen}");
    let why = nas.refused(&format!("{place} -a"), 1);
    assert!(why.contains("'tank' is not imported") && why.contains("d1.img is missing"), "{why}");
    assert_eq!(nas.good("zpool list -H"), "");
    std::fs::rename(&away, second).unwrap();
    nas.good(&format!("{place} tank"));
}

#[test]
fn a_lost_log_is_given_up_only_if_somebody_says_so() {
    if cannot_mount() {
        return;
    }
    let nas = Nas::new("lost-log", 2);
    let [_, log] = &nas.drives(2)[..] else { panic!("two drives") };
    nas.create("tank", 1);
    nas.good("zpool destroy -f tank");
    let (root, data) = (nas.root(), nas.drives(1));
    let words = format!("zpool create -f -R {} tank {}", arg(&root), arg(&data[0]));
    nas.good(&format!("{words} log {}", arg(log)));
    let letter = root.join("tank/letter");
    let write = |text: &str| {
        let mut file = File::create(&letter).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.sync_all().unwrap();
    };
    write("old");
    nas.good("zpool sync tank");
    // nothing is promised: it can do without
    nas.good("zpool export tank");
    let away = nas.0.join("away.img");
    std::fs::rename(log, &away).unwrap();
    let place = format!("zpool import -R {} -d {}", arg(&root), arg(&nas.0.join("drives")));
    nas.good(&format!("{place} tank"));
    assert!(nas.good("zpool status tank").contains("UNAVAIL"));
    write("without a log");
    nas.good("zpool export tank");
    std::fs::rename(&away, log).unwrap();
    nas.good(&format!("{place} tank"));
    assert_eq!(std::fs::read_to_string(&letter).unwrap(), "without a log");
    // something is
    write("first");
    nas.good("zpool sync tank");
    write("promised");
    crate::nas::kill(&nas.state());
    std::fs::rename(log, &away).unwrap();
    let _ = std::process::Command::new("umount").arg("-l").arg(root.join("tank")).status();
    let text = nas.good("zpool status tank");
    assert!(text.contains("state: UNAVAIL") && text.contains("`zpool import -m tank`"), "{text}");
    let why = nas.refused(&format!("{place} tank"), 1);
    assert!(why.contains("promised") && why.contains("-m"), "{why}");
    nas.good(&format!("{place} -m tank"));
    let kept = std::fs::read_to_string(&letter).unwrap();
    assert!(kept == "first" || kept.is_empty(), "{kept}");
    write("again");
    assert_eq!(std::fs::read_to_string(&letter).unwrap(), "again");
    nas.good("zpool export tank");
    std::fs::rename(&away, log).unwrap();
    nas.good(&format!("{place} tank"));
    assert_eq!(std::fs::read_to_string(&letter).unwrap(), "again");
}

#[test]
fn the_end_of_a_log_is_no_error_of_the_drives() {
    if cannot_mount() {
        return;
    }
    let nas = Nas::new("log-end", 2);
    nas.create("tank mirror", 2);
    let root = nas.root().join("tank");
    for name in ["one", "two"] {
        let mut file = File::create(root.join(name)).unwrap();
        file.write_all(name.as_bytes()).unwrap();
        file.sync_all().unwrap();
    }
    crate::nas::kill(&nas.state());
    let text = nas.good("zpool status tank");
    assert!(text.contains("No known data errors"), "{text}");
    assert_eq!(nas.good("zpool status -x").trim(), "all pools are healthy");
    assert_eq!(std::fs::read_to_string(root.join("two")).unwrap(), "two");
}

#[test]
fn a_scrub_names_the_files_that_are_lost() {
    if cannot_mount() {
        return;
    }
    let nas = Nas::new("lost-files", 1);
    nas.create("-O compression=off tank", 1);
    let root = nas.root().join("tank");
    std::fs::create_dir(root.join("photos")).unwrap();
    let noise = crate::nas::noise(300_000);
    std::fs::write(root.join("photos/cat"), &noise).unwrap();
    std::fs::write(root.join("whole"), "x").unwrap();
    nas.good("zpool export tank");
    let drive = &nas.drives(1)[0];
    let mut image = std::fs::read(drive).unwrap();
    let part = &noise[140_000..140_100];
    let at = image.windows(part.len()).position(|bytes| bytes == part).unwrap();
    image[at] ^= 1;
    std::fs::write(drive, &image).unwrap();
    nas.good(&format!("zpool import -R {} -d {} tank", arg(&nas.root()), arg(drive)));
    nas.good("zpool scrub -w tank");
    let text = nas.good("zpool status -v tank");
    assert!(text.contains("with 1 errors"), "{text}");
    assert!(text.contains("tank:/photos/cat: bytes 131072 to 262143"), "{text}");
    let json: Value = serde_json::from_str(&nas.good("zpool status --json tank")).unwrap();
    assert_eq!(json[0]["scan"]["damage"].as_array().unwrap().len(), 1);
    let why = std::fs::read(root.join("photos/cat")).unwrap_err();
    assert_eq!(why.raw_os_error(), Some(5));
    assert_eq!(std::fs::read_to_string(root.join("whole")).unwrap(), "x");
}

#[test]
fn a_pool_whose_drives_come_late_is_taken_over_then() {
    let nas = Nas::new("late", 4);
    let drives = nas.drives(4);
    let [first, .., last] = &drives[..] else { panic!("four drives") };
    nas.create("-O canmount=off tank", 2);
    let other = format!("zpool create -O canmount=off other {}", arg(last));
    nas.good(&other);
    nas.good("serve --stop");
    let away = nas.0.join("away.img");
    std::fs::rename(first, &away).unwrap();
    let text = nas.good("zpool status");
    assert!(text.contains("pool: tank\n state: UNAVAIL\nstatus: it was here"), "{text}");
    assert!(text.contains("pool: other\n state: ONLINE"), "{text}");
    assert!(!nas.good("zpool status -x").contains("healthy"));
    let listed = nas.good("zpool list -H -o name,size,health");
    assert!(listed.contains("tank\t-\tUNAVAIL\n"), "{listed}");
    let why = nas.refused("zfs list tank", 1);
    assert!(why.contains("d0.img is missing"), "{why}");
    // it is called otherwise now
    std::fs::rename(&away, nas.0.join("drives/elsewhere.img")).unwrap();
    nas.until(|| nas.run("zfs list tank").status == 0);
    let text = nas.good("zpool status tank");
    assert!(text.contains("state: ONLINE") && text.contains("elsewhere.img"), "{text}");
    // one that never comes is forgotten
    nas.good("serve --stop");
    std::fs::remove_file(last).unwrap();
    assert!(nas.good("zpool status other").contains("UNAVAIL"));
    nas.good("zpool export other");
    nas.refused("zpool status other", 1);
    nas.good("serve --stop");
    assert!(!nas.good("zpool status").contains("other"));
}

#[test]
fn a_drive_that_was_away_is_looked_for_when_the_daemon_starts() {
    let nas = Nas::new("came-back", 2);
    nas.create("-O canmount=off tank mirror", 2);
    nas.good("serve --stop");
    let [_, second] = &nas.drives(2)[..] else { panic!("two drives") };
    let away = nas.0.join("away.img");
    std::fs::rename(second, &away).unwrap();
    assert!(nas.good("zpool status tank").contains("DEGRADED"));
    nas.good("zfs create -o canmount=off tank/meanwhile");
    nas.good("serve --stop");
    std::fs::rename(&away, second).unwrap();
    let text = nas.good("zpool status tank");
    assert!(text.contains("state: ONLINE"), "{text}");
}

#[test]
fn a_drive_that_comes_late_is_used_without_a_word() {
    let nas = Nas::new("came-late", 2);
    nas.create("-O canmount=off tank mirror", 2);
    nas.good("zpool export tank");
    let [first, second] = &nas.drives(2)[..] else { panic!("two drives") };
    let away = nas.0.join("away.img");
    std::fs::rename(second, &away).unwrap();
    nas.good(&format!("zpool import -d {} tank", arg(first)));
    assert!(nas.good("zpool status tank").contains("DEGRADED"));
    nas.good("zfs create -V 8M tank/meanwhile");
    std::fs::rename(&away, second).unwrap();
    let is_whole = |text: &str| text.contains("state: ONLINE") && text.contains("scan: resilvered");
    nas.until(|| is_whole(&nas.good("zpool status tank")));
    // it can do without the other now
    nas.good("zpool export tank");
    std::fs::remove_file(first).unwrap();
    nas.good(&format!("zpool import -d {} tank", arg(second)));
    nas.good("zfs list tank/meanwhile");
}
