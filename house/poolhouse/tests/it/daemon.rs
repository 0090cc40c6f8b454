//! A daemon in a folder of its own: pools are made, filled with datasets, mounted, found again after
//! it ended and after it was killed, and given up.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::poolhouse::{Run, arg, run};

/// A daemon's folder, with sparse files for drives. In the end the daemon ends, and all goes.
struct Nas(PathBuf);

impl Nas {
    fn new(name: &str, drives: usize) -> Self {
        // short: a socket has a path of 107 bytes at most
        let path = std::env::temp_dir().join(format!("ph-{name}-{}", std::process::id()));
        let nas = Self(path);
        std::fs::create_dir_all(nas.0.join("drives")).unwrap();
        for drive in nas.drives(drives) {
            File::create(drive).unwrap().set_len(256 << 20).unwrap();
        }
        nas
    }

    fn drives(&self, count: usize) -> Vec<PathBuf> {
        (0..count).map(|index| self.0.join(format!("drives/d{index}.img"))).collect()
    }

    fn state(&self) -> PathBuf {
        self.0.join("state")
    }

    /// Runs `poolhouse` with the daemon of this folder.
    fn run(&self, words: &str) -> Run {
        let state = self.state();
        let mut args: Vec<&str> = words.split_whitespace().collect();
        args.extend(["--state", arg(&state)]);
        run(&args)
    }

    fn good(&self, words: &str) -> String {
        let run = self.run(words);
        assert_eq!(run.status, 0, "{words}: {}{}", run.err, self.log());
        run.out
    }

    fn refused(&self, words: &str, status: i32) -> String {
        let run = self.run(words);
        assert_eq!(run.status, status, "{words}: {}{}", run.out, run.err);
        run.err
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.state().join("log")).unwrap_or_default()
    }

    fn create(&self, words: &str, count: usize) {
        let drives: Vec<_> = self.drives(count).iter().map(|path| arg(path).to_owned()).collect();
        let root = self.root();
        self.good(&format!("zpool create -R {} {words} {}", arg(&root), drives.join(" ")));
    }

    /// What stands before the mountpoints.
    fn root(&self) -> PathBuf {
        self.0.join("root")
    }
}

impl Drop for Nas {
    fn drop(&mut self) {
        self.run("serve --stop");
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Kills whoever answers there, as a power cut would.
fn kill(state: &Path) {
    let log = std::fs::read_to_string(state.join("log")).unwrap();
    let pid = log.lines().filter_map(|line| line.split(" as process ").nth(1)).next_back().unwrap();
    let killed = Command::new("kill").args(["-9", pid]).stdin(Stdio::null()).status().unwrap();
    assert!(killed.success());
    while Path::new("/proc").join(pid).join("exe").exists() {
        std::thread::yield_now();
    }
}

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

#[test]
fn encrypted_datasets_are_made_and_unlocked() {
    let nas = Nas::new("locked", 8);
    nas.create("-O canmount=off tank draid1:2d:1s", 5);
    assert!(nas.good("zpool status tank").contains("draid1"));
    let key = nas.0.join("key");
    std::fs::write(&key, "correct horse battery staple\n").unwrap();
    let place = format!("-o keylocation=file://{}", arg(&key));
    let words = "-o encryption=on -o keyformat=passphrase -o canmount=off";
    nas.refused(&format!("zfs create -o encryption=on {place} tank/private"), 2);
    nas.good(&format!("zfs create {words} {place} tank/private"));
    nas.good("zfs create -o canmount=off tank/private/letters");
    let facts = "zfs get -H -o value encryption,encryptionroot,keystatus tank/private/letters";
    assert_eq!(nas.good(facts), "aes-256-gcm\ntank/private\navailable\n");
    nas.good("zfs unload-key tank/private");
    assert_eq!(nas.good(facts), "aes-256-gcm\ntank/private\nunavailable\n");
    nas.refused("zfs create tank/private/more", 9);
    nas.refused("zfs load-key tank/private/letters", 2);
    nas.good("zfs load-key -a");
    nas.good("zfs create -o canmount=off tank/private/more");
    nas.good("zfs unload-key -r tank");
    std::fs::write(&key, "another phrase").unwrap();
    nas.refused("zfs load-key tank/private", 8);
}

#[test]
fn a_whole_pool_is_encrypted_and_its_key_is_changed() {
    let nas = Nas::new("rekeyed", 1);
    let [old, new] = ["old", "new"].map(|name| nas.0.join(name));
    std::fs::write(&old, "correct horse battery staple\n").unwrap();
    std::fs::write(&new, "5".repeat(64)).unwrap();
    let place = |path: &Path| format!("keylocation=file://{}", arg(path));
    let words = "-O canmount=off -O encryption=on -O keyformat=passphrase -O pbkdf2iters=100000";
    nas.create(&format!("{words} -O {} tank", place(&old)), 1);
    nas.good("zfs create tank/letters");
    let facts = "zfs get -H -o value encryption,encryptionroot,keyformat,keystatus tank/letters";
    assert_eq!(nas.good(facts), "aes-256-gcm\ntank\npassphrase\navailable\n");
    nas.good(&format!("zfs change-key -o keyformat=hex -o {} tank", place(&new)));
    nas.good("zpool export tank");
    let from = nas.0.join("drives");
    nas.good(&format!("zpool import -N -d {} tank", arg(&from)));
    assert_eq!(nas.good(facts), "aes-256-gcm\ntank\nhex\nunavailable\n");
    nas.refused(&format!("zfs load-key -L file://{} tank", arg(&old)), 8);
    nas.good("zpool export tank");
    nas.good(&format!("zpool import -l -d {} tank", arg(&from)));
    assert_eq!(nas.good(facts), "aes-256-gcm\ntank\nhex\navailable\n");
    nas.refused("zfs change-key -i tank", 2);
    // a key of its own from the same file, and back to the one above
    let own = format!("zfs change-key -o keyformat=hex -o {} tank/letters", place(&new));
    nas.good(&own);
    let root = "zfs get -H -o value encryptionroot tank/letters";
    assert_eq!(nas.good(root), "tank/letters\n");
    nas.good("zfs unmount -a");
    nas.good("zfs unload-key -a");
    nas.refused("zfs change-key -i tank/letters", 9);
    nas.good("zfs change-key -l -i tank/letters");
    assert_eq!(nas.good(root), "tank\n");
    let told = nas.good("zpool history -il tank");
    for secret in ["correct horse", "55555"] {
        assert!(!told.contains(secret) && !nas.log().contains(secret), "{told}");
    }
    for wanted in ["zpool create -R", "zfs change-key -o", "zpool import -l", "zpool export tank"] {
        assert!(told.contains(wanted), "{wanted}: {told}");
    }
}

#[test]
fn a_killed_daemon_reads_keys_that_promises_need() {
    if cannot_mount() {
        return;
    }
    let nas = Nas::new("promised", 1);
    nas.create("tank", 1);
    let key = nas.0.join("key");
    std::fs::write(&key, "correct horse battery staple").unwrap();
    let words = "-o encryption=on -o keyformat=passphrase -o pbkdf2iters=100000";
    nas.good(&format!("zfs create {words} -o keylocation=file://{} tank/secret", arg(&key)));
    let letter = nas.root().join("tank/secret/letter");
    let mut file = File::create(&letter).unwrap();
    // the first promise takes a group, in which the log comes to be
    for word in [&b"promised"[..], b" twice"] {
        file.write_all(word).unwrap();
        file.sync_all().unwrap();
    }
    drop(file);
    kill(&nas.state());
    // without its key the pool cannot be had, and the log says why
    let away = nas.0.join("away");
    std::fs::rename(&key, &away).unwrap();
    nas.refused("zfs list tank", 3);
    assert!(nas.log().contains("zpool import -l tank"), "{}", nas.log());
    nas.good("serve --stop");
    std::fs::rename(&away, &key).unwrap();
    nas.good("zfs list tank");
    assert_eq!(std::fs::read(&letter).unwrap(), b"promised twice");
}

#[test]
fn a_pool_outlasts_its_daemon() {
    let nas = Nas::new("outlasts", 6);
    nas.create("-o ashift=12 -O compression=zstd -O canmount=off tank raidz2", 6);
    assert!(nas.good("zpool status tank").contains("raidz2-0"));
    nas.good("zfs create -p -o recordsize=1M tank/media/films");
    nas.good("zfs set org.example:owner=grandma atime=off tank/media");
    nas.good("zfs snapshot -r tank@one");
    nas.good("zfs clone tank/media@one tank/heir");
    assert_eq!(
        nas.good("zfs list -H -o name -t all"),
        "tank\ntank@one\ntank/heir\ntank/media\ntank/media@one\ntank/media/films\n\
         tank/media/films@one\n"
    );
    nas.good("serve --stop");
    assert!(!nas.state().join("socket").exists());

    let got =
        nas.good("zfs get -Hp -o name,value,source org.example:owner,recordsize tank/media/films");
    assert_eq!(
        got,
        "tank/media/films\tgrandma\tinherited from tank/media\n\
                     tank/media/films\t1048576\tlocal\n"
    );
    assert_eq!(nas.good("zfs list -Ho name -t snapshot tank/media"), "tank/media@one\n");

    kill(&nas.state());
    nas.good("zfs promote tank/heir");
    assert_eq!(nas.good("zfs get -Ho value origin tank/media"), "tank/heir@one\n");
    nas.good("zfs inherit -r atime tank");
    assert_eq!(nas.good("zfs get -Ho value,source atime tank/media"), "on\tdefault\n");
    assert!(nas.refused("zfs destroy tank/heir", 14).contains("use -r"));
    assert!(nas.good("zfs destroy -Rnv tank/heir").contains("would destroy tank/media\n"));
    nas.good("zfs rename tank/media/films tank/films");
    nas.good("zfs destroy -R tank/heir");
    assert_eq!(nas.good("zfs list -Ho name"), "tank\ntank/films\n");
    nas.good("zpool destroy tank");
    assert_eq!(nas.good("zpool list"), "no pools available\n");
}

#[test]
fn a_pool_moves_from_one_daemon_to_another() {
    let (here, there) = (Nas::new("here", 3), Nas::new("there", 0));
    here.create("tank mirror", 3);
    here.good("zfs create tank/a");
    let drives = here.0.join("drives");
    let root = there.root();
    let import = format!("zpool import -d {} -R {} tank", arg(&drives), arg(&root));
    assert_eq!(there.run(&import).status, 11, "two daemons never have one pool");
    here.good("zpool export tank");
    let found = there.good(&format!("zpool import -d {}", arg(&drives)));
    assert!(found.contains("pool: tank") && found.contains("mirror-0"), "{found}");
    there.good(&import);
    assert_eq!(there.good("zfs list -Ho name"), "tank\ntank/a\n");
    assert_eq!(here.good("zpool list -Ho name"), "");
}

#[test]
fn pools_have_properties_and_come_back_under_other_names() {
    let nas = Nas::new("named", 2);
    nas.create("-o failmode=continue -o comment=cellar -o feature@draid=disabled tank mirror", 2);
    assert_eq!(
        nas.good(
            "zpool get -Ho property,value,source failmode,comment,autotrim,feature@draid tank"
        ),
        "failmode\tcontinue\tlocal\ncomment\tcellar\tlocal\nautotrim\toff\tdefault\n\
         feature@draid\tdisabled\tlocal\n"
    );
    nas.good("zpool set autotrim=on tank");
    assert_eq!(nas.good("zpool get -Ho value autotrim tank"), "on\n");
    assert!(nas.refused("zpool set colour=red tank", 2).contains("no such property"));
    let figures = "zpool get -Hp -o value capacity,dedupratio,fragmentation,expandsize tank";
    let told = nas.good(figures);
    let told: Vec<&str> = told.lines().collect();
    let broken = format!("{}%", told[2]);
    assert_eq!((told[0], told[1], told[3]), ("0", "1.00", "-"));
    // few metaslabs are in use, and those have long ranges
    assert!(told[2].parse::<u64>().is_ok_and(|figure| (1..20).contains(&figure)), "{broken}");
    let listed = nas.good("zpool list -v tank");
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(
        lines[0].split_whitespace().collect::<Vec<_>>().join(" "),
        "NAME SIZE ALLOC FREE CKPOINT EXPANDSZ FRAG CAP DEDUP HEALTH ALTROOT"
    );
    let words = |line: usize| lines[line].split_whitespace().collect::<Vec<_>>();
    assert_eq!(&words(1)[6..9], &[broken.as_str(), "0%", "1.00x"], "{listed}");
    assert_eq!(
        (words(2)[0], words(2)[6], words(2)[9]),
        ("mirror-0", broken.as_str(), "ONLINE"),
        "{listed}"
    );
    assert_eq!((words(3)[1], words(3)[2], words(3)[7]), ("256M", "-", "-"), "{listed}");
    nas.good("zpool destroy tank");
    let drives = nas.0.join("drives");
    let (drives, root) = (arg(&drives).to_owned(), nas.root());
    let shown = nas.good(&format!("zpool import -d {drives}"));
    assert!(shown.contains("no pools available"), "{shown}");
    let shown = nas.good(&format!("zpool import -D -d {drives}"));
    assert!(shown.contains("pool: tank") && shown.contains("-D"), "{shown}");
    nas.good(&format!("zpool import -D -d {drives} -o altroot={} tank vault", arg(&root)));
    assert_eq!(nas.good("zpool list -Ho name,health"), "vault\tONLINE\n");
    assert_eq!(nas.good("zpool get -Ho value comment vault"), "cellar\n");
}

#[test]
fn commands_are_written_down_and_errors_are_cleared() {
    let nas = Nas::new("history", 1);
    nas.create("tank", 1);
    nas.good("zfs create -o atime=off tank/child");
    nas.good("zfs snapshot tank/child@one");
    nas.refused("zfs create tank/child", 14);
    nas.good("zpool clear tank");
    assert_eq!(nas.good("zpool list -Ho name,health"), "tank\tONLINE\n");
    let told = nas.good("zpool history tank");
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[0], "History for 'tank':");
    assert!(lines[1].contains(" zpool create -R") && !told.contains("[txg:"), "{told}");
    let told = nas.good("zpool history -i");
    assert!(
        told.contains("] create tank/child (") && told.contains("] set tank/child ("),
        "{told}"
    );
    assert!(nas.good("zpool history -l tank").contains("[user "));
    nas.good("serve --stop");
    assert!(nas.good("zpool history -i tank").contains("] open pool version 5000; software"));
    nas.good("zpool export tank");
    let drives = nas.0.join("drives");
    nas.good(&format!("zpool import -R {} -d {} tank", arg(&nas.root()), arg(&drives)));
    let told = nas.good("zpool history -i tank");
    assert!(told.contains("] import pool version 5000") && told.contains(" zpool import -R"));
    nas.good("zpool export tank");
    let told = run(&["inspect", "history", "-d", arg(&drives), "tank"]).out;
    for wanted in [
        "zpool create -R",
        "zfs create -o atime=off tank/child",
        "zfs snapshot tank/child@one",
        "zpool clear tank",
        "zpool export tank",
    ] {
        assert!(told.contains(wanted), "{wanted}: {told}");
    }
    assert!(!told.contains("zfs create tank/child"), "what was refused: {told}");
}

#[test]
fn a_pool_without_two_of_its_drives_is_taken_over() {
    let nas = Nas::new("degraded", 6);
    nas.create("tank raidz2", 6);
    nas.good("zfs create tank/a");
    nas.good("serve --stop");
    for drive in nas.drives(2) {
        std::fs::remove_file(drive).unwrap();
    }
    assert_eq!(nas.good("zpool list -Ho health tank"), "DEGRADED\n");
    let status: Value = serde_json::from_str(&nas.good("zpool status --json")).unwrap();
    assert_eq!(status[0]["vdevs"][0]["children"][1]["state"], "UNAVAIL");
    nas.good("zfs create tank/b");
    nas.good("serve --stop");
    assert_eq!(nas.good("zfs list -Ho name"), "tank\ntank/a\ntank/b\n");
}

#[test]
fn what_cannot_be_is_refused_in_sentences() {
    let nas = Nas::new("refused", 2);
    let drives = nas.drives(2);
    let (a, b) = (arg(&drives[0]), arg(&drives[1]));
    for (words, status, why) in [
        (format!("zpool create tank mirror {a}"), 2, "mirror needs 2 drives"),
        (format!("zpool create mirror {a}"), 2, "reserved"),
        (format!("zpool create tank {a} {a}"), 2, "named twice"),
        (format!("zpool create tank mirror {a} {b} /no/such"), 10, "/no/such"),
        (format!("zpool create -o ashift=7 tank {a}"), 2, "9 to 16"),
        (format!("zpool create -O colour=red tank {a}"), 14, "colour"),
        ("zfs create tank/a".to_owned(), 3, "no pool 'tank'"),
        ("zpool export tank".to_owned(), 3, "no pool 'tank'"),
    ] {
        let err = nas.refused(&words, status);
        assert!(err.contains(why), "{words}: {err}");
    }
    let (long, foreign) = (nas.0.join("drives/long"), nas.0.join("drives/foreign"));
    File::create(&long).unwrap().set_len(1 << 30).unwrap();
    let mut bytes = vec![0; 128 << 20];
    bytes[..4].copy_from_slice(b"XFSB");
    std::fs::write(&foreign, bytes).unwrap();
    for (vdevs, status, why) in [
        (format!("mirror {a} {}", arg(&long)), 2, "unlike sizes"),
        (arg(&foreign).to_owned(), 11, "holds an xfs file system"),
    ] {
        let err = nas.refused(&format!("zpool create tank {vdevs}"), status);
        assert!(err.contains(why) && err.contains("use -f"), "{err}");
    }
    nas.create("tank mirror", 2);
    let taken = nas.refused(&format!("zpool create other {a}"), 11);
    assert!(taken.contains(a), "{taken}");
    nas.good("zfs create tank/a");
    for (words, status, why) in [
        ("zfs create tank/a", 14, "exist"),
        ("zfs create tank/no/such", 12, "tank/no"),
        ("zfs create -o recordsize=3 tank/b", 14, "recordsize"),
        ("zfs set used=1 tank/a", 14, "cannot be changed"),
        ("zfs destroy tank/none", 12, "tank/none"),
        ("zfs destroy tank", 14, "zpool destroy"),
        ("zfs rollback tank/a@none", 12, "tank/a@none"),
        ("zfs promote tank/a", 14, "clone"),
    ] {
        let err = nas.refused(words, status);
        assert!(err.contains(why), "{words}: {err}");
    }
    assert_eq!(nas.good("zfs list -Ho name"), "tank\ntank/a\n", "nothing is half made");
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

/// The source of what is mounted at a folder, as the kernel says it.
fn source(dir: &Path) -> Option<String> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let at = |line: &str| line.split(' ').nth(1) == dir.to_str();
    mounts.lines().rfind(|line| at(line)).map(|line| line.split(' ').next().unwrap().to_owned())
}

/// A machine without FUSE has nothing to be mounted with.
fn cannot_mount() -> bool {
    let cannot = !Path::new("/dev/fuse").exists();
    if cannot {
        eprintln!("nothing is mounted: there is no /dev/fuse");
    }
    cannot
}

#[test]
fn file_systems_are_mounted_while_their_pool_is_there() {
    if cannot_mount() {
        return;
    }
    let nas = Nas::new("mounted", 6);
    nas.create("tank raidz2", 6);
    let (tank, media) = (nas.root().join("tank"), nas.root().join("tank/media"));
    nas.good("zfs create tank/media");
    assert_eq!(source(&tank).as_deref(), Some("tank"));
    assert_eq!(source(&media).as_deref(), Some("tank/media"));
    assert_eq!(nas.good("zfs get -Ho value mounted tank/media"), "yes\n");
    let shown = nas.good("zfs mount");
    assert!(shown.contains("tank/media") && shown.contains(arg(&media)), "{shown}");
    std::fs::write(media.join("letter"), "dear grandma").unwrap();
    nas.good("zfs snapshot tank/media@sent");
    std::fs::write(media.join("letter"), "all wrong").unwrap();

    // the daemon ends, two drives die, and whoever asks next starts it again
    nas.good("serve --stop");
    assert_eq!(source(&media), None);
    for drive in nas.drives(2) {
        std::fs::remove_file(drive).unwrap();
    }
    nas.good("zpool status tank");
    assert_eq!(std::fs::read_to_string(media.join("letter")).unwrap(), "all wrong");
    let before = media.join(".zfs/snapshot/sent/letter");
    assert_eq!(std::fs::read_to_string(before).unwrap(), "dear grandma");

    // what is synced outlasts a kill; what the killed one left mounted is taken away
    let mut last = File::create(media.join("last")).unwrap();
    last.write_all(b"synced").unwrap();
    last.sync_all().unwrap();
    drop(last);
    kill(&nas.state());
    nas.good("zpool status tank");
    assert_eq!(std::fs::read_to_string(media.join("last")).unwrap(), "synced");

    nas.good("zfs rollback tank/media@sent");
    assert_eq!(std::fs::read_to_string(media.join("letter")).unwrap(), "dear grandma");
    assert!(!media.join("last").exists());
    nas.good("zpool export tank");
    assert_eq!((source(&tank), source(&media)), (None, None));
    assert!(!media.exists(), "folders made for it go with it");
}

/// Runs `poolhouse` as somebody who is not root; none: that cannot be done here.
fn as_user(state: &Path, words: &str) -> Option<(bool, String)> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_poolhouse"));
    command.args(words.split_whitespace()).arg("--state").arg(state).stdin(Stdio::null());
    if rustix::process::geteuid().is_root() {
        command.uid(65534).gid(65534);
    }
    let output = command.output().ok()?;
    Some((output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned()))
}

#[test]
fn users_have_file_systems_of_their_own() {
    let nas = Nas::new("user", 1);
    let drive = nas.drives(1).remove(0);
    for path in [&nas.0, &drive, &nas.0.join("drives")] {
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(path, Some(65534), Some(65534)).unwrap();
        }
    }
    let (state, root) = (nas.state(), nas.root());
    let user = |words: &str| as_user(&state, words);
    if cannot_mount() || !user("zpool list").is_some_and(|(good, _)| good) {
        eprintln!("nothing is tried as an ordinary user: this program is out of their reach");
        return;
    }
    let create = format!("zpool create -R {} tank {}", arg(&root), arg(&drive));
    let (good, said) = user(&create).unwrap();
    assert!(good, "{said}");
    if said.is_empty() {
        // the root of each belongs to the user
        let (good, said) = user("zfs create -o mountpoint=/beside tank/x").unwrap();
        assert_eq!((good, said.as_str()), (true, ""));
        assert_eq!(source(&root.join("beside")).as_deref(), Some("tank/x"));
        let (good, said) = user("zfs create tank/x/y").unwrap();
        assert!(good && (said.is_empty() || said.contains("user_allow_other")), "{said}");
    } else {
        eprintln!("nothing is mounted by an ordinary user: {said}");
    }
    assert_eq!(user("zpool export tank"), Some((true, String::new())));
    assert_eq!(user("serve --stop"), Some((true, String::new())));
    assert_eq!(source(&root.join("tank")), None);
}

#[test]
fn properties_say_where_file_systems_are_mounted() {
    if cannot_mount() {
        return;
    }
    let nas = Nas::new("places", 2);
    nas.create("-m /pool tank mirror", 2);
    let root = nas.root();
    nas.good("zfs create -p tank/a/b");
    assert_eq!(source(&root.join("pool/a/b")).as_deref(), Some("tank/a/b"));
    nas.good("zfs set mountpoint=/elsewhere tank/a");
    assert_eq!(source(&root.join("pool/a")), None);
    assert_eq!(source(&root.join("elsewhere")).as_deref(), Some("tank/a"));
    assert_eq!(source(&root.join("elsewhere/b")).as_deref(), Some("tank/a/b"));
    let shown = nas.good("zfs get -Ho value mountpoint tank/a tank");
    let wanted = format!("{0}/elsewhere\n{0}/pool\n", arg(&root));
    assert_eq!(shown, wanted, "as zfs(8) shows them behind an altroot");
    nas.good("zfs rename tank/a/b tank/c");
    assert_eq!(source(&root.join("pool/c")).as_deref(), Some("tank/c"));

    // what is open stays, unless by force
    let open = File::create(root.join("pool/c/open")).unwrap();
    assert!(nas.refused("zfs unmount tank/c", 14).contains("in use"));
    assert!(nas.refused("zpool export tank", 14).contains("in use"));
    assert_eq!(source(&root.join("elsewhere")).as_deref(), Some("tank/a"), "all stay mounted");
    nas.good("zfs unmount -f tank/c");
    drop(open);
    assert_eq!(source(&root.join("pool/c")), None);
    nas.good("zfs mount tank/c");
    assert!(nas.refused("zfs mount tank/c", 14).contains("mounted already"));

    nas.good("zfs set readonly=on tank/c");
    let refused = std::fs::write(root.join("pool/c/more"), "x").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    nas.good("zfs set canmount=off tank/c");
    assert_eq!(source(&root.join("pool/c")), None);
    assert!(nas.refused("zfs mount tank/c", 14).contains("canmount=off"));
    nas.good("zfs set mountpoint=none tank/a");
    assert_eq!(source(&root.join("elsewhere")), None);
    nas.good("zfs unmount -a");
    assert_eq!(nas.good("zfs mount"), "");
    nas.good("zfs mount -a");
    assert_eq!(source(&root.join("pool")).as_deref(), Some("tank"));
    // what is mounted in a folder goes even if something was mounted over that later
    nas.good("zfs create -o canmount=noauto tank/up");
    nas.good("zfs create tank/up/down");
    let down = root.join("pool/up/down");
    assert_eq!(source(&down).as_deref(), Some("tank/up/down"));
    nas.good("zfs mount tank/up");
    nas.good("zfs unmount -a");
    assert_eq!((nas.good("zfs mount"), source(&down)), (String::new(), None));
    nas.good("zfs mount -a");
    nas.good("zfs create -u tank/quiet");
    assert_eq!(source(&root.join("pool/quiet")), None);
    nas.good("zfs destroy tank/quiet");
    nas.good("zpool destroy tank");
}
