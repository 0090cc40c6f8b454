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
    nas.refused(&format!("zpool add tank cache {}", arg(spare)), 11);
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
    nas.refused(&format!("zpool replace tank {} {}", arg(one), arg(two)), 11);
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
    while !is_over() {
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
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
        let (outer, inner) = (Nas::new(&format!("{name}-o"), 1), Nas::new(&format!("{name}-i"), 0));
        outer.create("-O compression=lz4 base", 1);
        let nested = Self { inner, outer };
        File::create(nested.drive()).unwrap().set_len(128 << 20).unwrap();
        let root = nested.inner.root();
        let drive = nested.drive();
        nested.inner.good(&format!("zpool create -R {} tank {}", arg(&root), arg(&drive)));
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
    assert_eq!(refused.status, 15, "{}{}", refused.out, refused.err);
    assert_eq!(nas.good("zpool list -Ho health"), "SUSPENDED\n");
    assert_eq!(nas.run("zpool clear tank").status, 15, "it is away still");
    assert!(!nested.keep("three", "nowhere"));
    nested.put_back();
    let cleared = nas.run("zpool clear tank");
    assert_eq!(cleared.status, 0, "{}", cleared.err);
    assert_eq!(nas.good("zpool list -Ho health"), "ONLINE\n");
    nas.good("zfs create tank/later");
    assert!(nested.keep("after", "it is back"));
    // whether it went on or was taken over anew, what was promised is there
    for (name, content) in [("one", "first"), ("two", "second"), ("after", "it is back")] {
        assert_eq!(nested.read(name).as_deref(), Some(content), "{name}");
    }
    nas.good("zpool export tank");
    let base = nested.outer.root().join("base");
    nas.good(&format!("zpool import -R {} -d {} tank", arg(&nas.root()), arg(&base)));
    assert_eq!(nested.read("after").as_deref(), Some("it is back"));
    nas.good("zpool export tank");
    let verified = run(&["rescue", "verify", "-d", arg(&base), "tank"]);
    assert_eq!(verified.status, 0, "{}{}", verified.out, verified.err);
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
    assert_eq!(refused.status, 15, "{}{}", refused.out, refused.err);
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
