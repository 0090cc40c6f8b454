//! A daemon's mounts: their folders, users and lifetimes.

use std::fs::{File, FileTimes};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use rustix::fs::OFlags;

use crate::command::path_arg;
use crate::test_nas::{
    TestNas, cannot_mount, kill_daemon, mount_options, mount_source, random_bytes,
};

#[test]
fn file_systems_are_mounted_while_imported() {
    if cannot_mount() {
        return;
    }
    let nas = TestNas::new("mounted", 6);
    nas.create_pool("tank raidz2", 6);
    let (tank, media) = (nas.altroot().join("tank"), nas.altroot().join("tank/media"));
    nas.run_ok("zfs create tank/media");
    assert_eq!(mount_source(&tank).as_deref(), Some("tank"));
    assert_eq!(mount_source(&media).as_deref(), Some("tank/media"));
    assert_eq!(nas.run_ok("zfs get -Ho value mounted tank/media"), "yes\n");
    let shown = nas.run_ok("zfs mount");
    assert!(shown.contains("tank/media") && shown.contains(path_arg(&media)), "{shown}");
    std::fs::write(media.join("letter"), "dear grandma").unwrap();
    nas.run_ok("zfs snapshot tank/media@sent");
    std::fs::write(media.join("letter"), "all wrong").unwrap();

    // the daemon ends, two drives fail, and the next command starts it again
    nas.run_ok("serve --stop");
    assert_eq!(mount_source(&media), None);
    for drive in nas.drive_paths(2) {
        std::fs::remove_file(drive).unwrap();
    }
    nas.run_ok("zpool status tank");
    assert_eq!(std::fs::read_to_string(media.join("letter")).unwrap(), "all wrong");
    let before = media.join(".zfs/snapshot/sent/letter");
    assert_eq!(std::fs::read_to_string(before).unwrap(), "dear grandma");

    // synced data survives a kill; the dead mounts of the killed daemon are removed
    let mut last = File::create(media.join("last")).unwrap();
    last.write_all(b"synced").unwrap();
    last.sync_all().unwrap();
    drop(last);
    kill_daemon(&nas.state_dir());
    nas.run_ok("zpool status tank");
    assert_eq!(std::fs::read_to_string(media.join("last")).unwrap(), "synced");

    // after the rollback the folder for the nested mount is gone
    nas.run_ok("zfs create tank/media/film");
    let film = media.join("film");
    let within = File::create(film.join("reel")).unwrap();
    nas.run_failing("zfs rollback tank/media@sent", 1);
    drop(within);
    nas.run_ok("zfs rollback tank/media@sent");
    assert_eq!(std::fs::read_to_string(media.join("letter")).unwrap(), "dear grandma");
    assert!(!media.join("last").exists());
    assert_eq!(mount_source(&film).as_deref(), Some("tank/media/film"));
    assert!(film.join("reel").exists());

    // if it exists, programs in it stay there, and so do those in the file system that is rolled
    // back
    nas.run_ok("zfs snapshot tank/media@later");
    std::fs::write(media.join("letter"), "all wrong").unwrap();
    let (there, within) = (File::open(&media).unwrap(), File::create(film.join("more")).unwrap());
    nas.run_ok("zfs rollback tank/media@later");
    assert_eq!(std::fs::read_to_string(media.join("letter")).unwrap(), "dear grandma");
    assert_eq!(there.metadata().unwrap().ino(), std::fs::metadata(&media).unwrap().ino());
    assert_eq!(within.metadata().unwrap().ino(), film.join("more").metadata().unwrap().ino());
    drop((there, within));
    nas.run_ok("zpool export tank");
    assert_eq!((mount_source(&tank), mount_source(&media)), (None, None));
    assert!(!media.exists(), "folders made for it go with it");
}

/// Runs `poolhouse` as another user than root; none: this machine cannot.
fn run_as_user(state: &Path, words: &str) -> Option<(bool, String)> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_poolhouse"));
    command.args(words.split_whitespace()).arg("--state").arg(state).stdin(Stdio::null());
    let output = of_user(&mut command).output().ok()?;
    Some((output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned()))
}

/// Has a program run as an ordinary user, unless this one does.
fn of_user(command: &mut Command) -> &mut Command {
    if rustix::process::geteuid().is_root() {
        command.uid(65534).gid(65534);
    }
    command
}

#[test]
fn users_have_file_systems_of_their_own() {
    let nas = TestNas::new("user", 1);
    let drive = nas.drive_paths(1).remove(0);
    for path in [&nas.0, &drive, &nas.0.join("drives")] {
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(path, Some(65534), Some(65534)).unwrap();
        }
    }
    let (state, root) = (nas.state_dir(), nas.altroot());
    let user = |words: &str| run_as_user(&state, words);
    if cannot_mount() || !user("zpool list").is_some_and(|(good, _)| good) {
        eprintln!("nothing is tried as an ordinary user: this program is out of their reach");
        return;
    }
    let create = format!("zpool create -R {} tank {}", path_arg(&root), path_arg(&drive));
    let (good, said) = user(&create).unwrap();
    assert_eq!(good, said.is_empty(), "{said}");
    if good {
        // the root of each belongs to the user
        let (good, said) = user("zfs create -o mountpoint=/beside tank/x").unwrap();
        assert_eq!((good, said.as_str()), (true, ""));
        assert_eq!(mount_source(&root.join("beside")).as_deref(), Some("tank/x"));
    } else {
        eprintln!("nothing is mounted by an ordinary user: {said}");
    }
    assert_eq!(user("zpool export tank"), Some((true, String::new())));
    assert_eq!(user("serve --stop"), Some((true, String::new())));
    assert_eq!(mount_source(&root.join("tank")), None);
}

/// Whether /etc/fuse.conf lets an ordinary user mount one file system within another.
fn may_allow_others() -> bool {
    let allowed = std::fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
    allowed.lines().any(|line| line.trim() == "user_allow_other")
}

#[test]
fn command_fails_if_file_system_cannot_be_mounted() {
    let nas = TestNas::new("stock", 2);
    let drives = nas.drive_paths(2);
    for path in drives.iter().chain([&nas.0, &nas.0.join("drives")]) {
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(path, Some(65534), Some(65534)).unwrap();
        }
    }
    let (state, root) = (nas.state_dir(), nas.altroot());
    let user = |words: &str| run_as_user(&state, words);
    if cannot_mount() || may_allow_others() || !user("zpool list").is_some_and(|(good, _)| good) {
        eprintln!("left out: it takes FUSE, and /etc/fuse.conf without user_allow_other");
        return;
    }
    let create = |at: &Path, name: &str, drive: &Path| {
        user(&format!("zpool create -R {} {name} {}", path_arg(at), path_arg(drive))).unwrap()
    };
    let (good, said) = create(&root, "tank", &drives[0]);
    if !good {
        eprintln!("left out: nothing is mounted by an ordinary user: {said}");
        user("serve --stop");
        return;
    }
    // a mount below the parent's is impossible: the file system is created without a folder, which
    // nothing can fill by mistake
    let tells = |said: String, words: &str| {
        assert!(said.contains("user_allow_other") && said.contains(words), "{said}");
        // root cannot look into another user's mount
        let left = of_user(Command::new("ls").arg(root.join("tank"))).output().unwrap();
        assert_eq!((left.status.success(), &left.stdout[..]), (true, &b""[..]));
    };
    let fails = |(good, said): (bool, String), words: &str| {
        assert!(!good, "{said}");
        tells(said, words);
    };
    let made = "filesystem successfully created, but not mounted";
    fails(user("zfs create tank/a").unwrap(), made);
    fails(user("zfs create -p tank/b/c").unwrap(), made);
    assert_eq!(user("zfs list tank/a tank/b/c"), Some((true, String::new())));
    assert_eq!(user("zfs snapshot tank/a@s"), Some((true, String::new())));
    fails(user("zfs clone tank/a@s tank/d").unwrap(), made);
    fails(user("zfs mount tank/a").unwrap(), "tank/a");
    fails(user("zfs mount -a").unwrap(), "cannot mount 'tank/b/c'");
    fails(create(&root.join("tank/deep/below"), "second", &drives[1]), "is not mounted");
    assert_eq!(user("zpool export second"), Some((true, String::new())));
    assert_eq!(user("zpool export tank"), Some((true, String::new())));
    let import =
        format!("zpool import -R {} -d {} tank", path_arg(&root), path_arg(&nas.0.join("drives")));
    let (good, said) = user(&import).unwrap();
    // as with OpenZFS
    assert!(good, "{said}");
    tells(said, "Import was successful, but unable to mount some datasets");
    assert_eq!(user("zpool export tank"), Some((true, String::new())));
    assert_eq!(user("serve --stop"), Some((true, String::new())));
}

#[test]
fn pools_may_be_mounted_within_each_other() {
    if cannot_mount() {
        return;
    }
    let nas = TestNas::new("nested", 2);
    let [first, second] = &nas.drive_paths(2)[..] else { panic!("two drives") };
    let root = nas.altroot();
    // the inner one is first by name, and both begin with more than one slash
    for (name, place, drive) in [("outer", "//o", first), ("inner", "//o/i", second)] {
        let words =
            format!("zpool create -R {} -m {place} {name} {}", path_arg(&root), path_arg(drive));
        nas.run_ok(&words);
    }
    std::fs::write(root.join("o/i/file"), "inner").unwrap();
    let is_there = || {
        assert_eq!(mount_source(&root.join("o")).as_deref(), Some("outer"));
        assert_eq!(mount_source(&root.join("o/i")).as_deref(), Some("inner"));
        assert_eq!(std::fs::read(root.join("o/i/file")).unwrap(), b"inner");
    };
    is_there();
    nas.run_ok("serve --stop");
    nas.run_ok("zpool list");
    is_there();
    nas.run_ok("zfs unmount -a");
    nas.run_ok("zfs mount -a");
    is_there();
    nas.run_ok("zpool export -a");
    let drives = nas.0.join("drives");
    nas.run_ok(&format!("zpool import -a -R {} -d {}", path_arg(&root), path_arg(&drives)));
    is_there();
}

#[test]
fn properties_determine_mountpoints() {
    if cannot_mount() {
        return;
    }
    let nas = TestNas::new("places", 2);
    nas.create_pool("-m /pool tank mirror", 2);
    let root = nas.altroot();
    nas.run_ok("zfs create -p tank/a/b");
    assert_eq!(mount_source(&root.join("pool/a/b")).as_deref(), Some("tank/a/b"));
    nas.run_ok("zfs set mountpoint=/elsewhere tank/a");
    assert_eq!(mount_source(&root.join("pool/a")), None);
    assert_eq!(mount_source(&root.join("elsewhere")).as_deref(), Some("tank/a"));
    assert_eq!(mount_source(&root.join("elsewhere/b")).as_deref(), Some("tank/a/b"));
    let shown = nas.run_ok("zfs get -Ho value mountpoint tank/a tank");
    let wanted = format!("{0}/pool\n{0}/elsewhere\n", path_arg(&root));
    assert_eq!(shown, wanted, "as zfs(8) shows them behind an altroot");
    nas.run_ok("zfs rename tank/a/b tank/c");
    assert_eq!(mount_source(&root.join("pool/c")).as_deref(), Some("tank/c"));

    // open files stay, unless by force
    let open = File::create(root.join("pool/c/open")).unwrap();
    assert!(nas.run_failing("zfs unmount tank/c", 1).contains("in use"));
    assert!(nas.run_failing("zpool export tank", 1).contains("in use"));
    assert_eq!(
        mount_source(&root.join("elsewhere")).as_deref(),
        Some("tank/a"),
        "all stay mounted"
    );
    nas.run_ok("zfs unmount -f tank/c");
    drop(open);
    assert_eq!(mount_source(&root.join("pool/c")), None);
    nas.run_ok("zfs mount tank/c");
    assert!(nas.run_failing("zfs mount tank/c", 1).contains("mounted already"));

    nas.run_ok("zfs set readonly=on tank/c");
    let refused = std::fs::write(root.join("pool/c/more"), "x").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    nas.run_ok("zfs set canmount=off tank/c");
    assert_eq!(mount_source(&root.join("pool/c")), None);
    assert!(nas.run_failing("zfs mount tank/c", 1).contains("canmount=off"));
    nas.run_ok("zfs set mountpoint=none tank/a");
    assert_eq!(mount_source(&root.join("elsewhere")), None);
    nas.run_ok("zfs unmount -a");
    assert_eq!(nas.run_ok("zfs mount"), "");
    nas.run_ok("zfs mount -a");
    assert_eq!(mount_source(&root.join("pool")).as_deref(), Some("tank"));
    // a mount in a folder is unmounted even if a later mount covers it
    nas.run_ok("zfs create -u tank/up");
    nas.run_ok("zfs create tank/up/down");
    let down = root.join("pool/up/down");
    assert_eq!(mount_source(&down).as_deref(), Some("tank/up/down"));
    nas.run_ok("zfs mount tank/up");
    nas.run_ok("zfs unmount -a");
    assert_eq!((nas.run_ok("zfs mount"), mount_source(&down)), (String::new(), None));
    nas.run_ok("zfs mount -a");
    // canmount=noauto: mounted and unmounted by command only
    nas.run_ok("zfs create -o canmount=noauto -o mountpoint=/apart tank/apart");
    nas.run_ok("zfs mount tank/apart");
    nas.run_ok("zfs unmount -a");
    assert_eq!(nas.run_ok("zfs mount").split_whitespace().next(), Some("tank/apart"));
    nas.run_ok("zfs destroy tank/apart");
    nas.run_ok("zfs mount -a");
    nas.run_ok("zfs create -u tank/quiet");
    assert_eq!(mount_source(&root.join("pool/quiet")), None);
    nas.run_ok("zfs destroy tank/quiet");
    nas.run_ok("zpool destroy tank");
}

#[test]
fn busy_mount_follows_its_properties() {
    if cannot_mount() {
        return;
    }
    let nas = TestNas::new("follows", 1);
    nas.create_pool("tank", 1);
    nas.run_ok("zfs create tank/a");
    let dir = nas.altroot().join("tank/a");
    let mut open = File::create(dir.join("open")).unwrap();
    open.write_all(b"one").unwrap();
    nas.run_ok("zfs set readonly=on tank");
    let refused = open.write_all(b"two").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    drop(open);
    let mut open = File::open(dir.join("open")).unwrap();
    nas.run_ok("zfs set readonly=on exec=off tank/a");
    nas.run_ok("zfs set readonly=off devices=off tank/a");
    let is_root = std::fs::metadata(&nas.0).unwrap().uid() == 0;
    if is_root {
        let options = mount_options(&dir);
        for wanted in ["rw", "noexec", "nodev", "nosuid"] {
            let is_wanted = wanted != "nosuid";
            assert_eq!(options.iter().any(|it| it == wanted), is_wanted, "{wanted}: {options:?}");
        }
        std::fs::write(dir.join("more"), "three").unwrap();
        nas.run_ok("zfs inherit readonly tank/a");
        assert!(std::fs::write(dir.join("more"), "four").is_err());
    }
    let mut read = String::new();
    open.read_to_string(&mut read).unwrap();
    assert_eq!(read, "one");
}

#[test]
fn only_former_mounts_are_restored() {
    if cannot_mount() {
        return;
    }
    let nas = TestNas::new("again", 1);
    nas.create_pool("tank", 1);
    nas.run_ok("zfs create -p tank/a/b");
    nas.run_ok("zfs create tank/a/c");
    nas.run_ok("zfs unmount tank/a/b");
    let mounted = |now: &str, wanted: [&str; 3]| {
        let shown = nas.run_ok(&format!("zfs list -rHo name,mounted {now}"));
        let shown: Vec<_> = shown.lines().map(|line| line.split('\t').nth(1).unwrap()).collect();
        assert_eq!(shown, wanted, "{now} and its content");
    };
    nas.run_ok("zfs set exec=off tank/a");
    mounted("tank/a", ["yes", "no", "yes"]);
    nas.run_ok("zfs set canmount=noauto tank/a");
    nas.run_ok("zfs set canmount=on tank/a/b");
    mounted("tank/a", ["yes", "no", "yes"]);
    nas.run_ok("zfs rename tank/a tank/d");
    mounted("tank/d", ["yes", "no", "yes"]);
    nas.run_ok("zfs snapshot tank/d@before");
    nas.run_ok("zfs rollback tank/d@before");
    nas.run_ok("zfs inherit exec tank/d");
    mounted("tank/d", ["yes", "no", "yes"]);
    nas.run_ok("zfs set canmount=off tank/d");
    mounted("tank/d", ["no", "no", "yes"]);
    // a new mountpoint also mounts the file system there
    nas.run_ok("zfs set mountpoint=/elsewhere tank/d/b");
    mounted("tank/d", ["no", "yes", "yes"]);
}

#[test]
fn mount_options_can_be_given() {
    if cannot_mount() {
        return;
    }
    let nas = TestNas::new("how", 1);
    nas.create_pool("tank", 1);
    nas.run_ok("zfs create -p tank/a/b");
    let dir = nas.altroot().join("tank/a");
    std::fs::write(dir.join("letter"), "dear grandma").unwrap();
    nas.run_ok("zfs unmount tank/a");
    nas.run_failing("zfs mount -o ro,nonsense tank/a", 1);
    nas.run_failing("zfs mount -o lazytime tank/a", 1);
    nas.run_ok("zfs mount -R -o nosuid,noexec tank/a");
    for dir in [&dir, &dir.join("b")] {
        let options = mount_options(dir);
        assert!(["nosuid", "noexec"].iter().all(|word| options.iter().any(|it| it == word)));
    }
    nas.run_ok("zfs unmount tank/a");
    nas.run_ok("zfs mount -o ro tank/a");
    let refused = std::fs::write(dir.join("more"), "x").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    nas.run_ok("zfs set devices=off tank/a");
    assert!(mount_options(&dir).contains(&"ro".to_owned()), "until it is unmounted");
    nas.run_ok("zfs unmount tank/a");
    nas.run_ok("zfs mount -a");
    std::fs::write(dir.join("letter"), "dear grandpa").unwrap();

    // a non-empty folder is covered only with overlay=on
    nas.run_ok("zfs unmount tank/a");
    std::fs::create_dir_all(dir.join("mine")).unwrap();
    nas.run_ok("zfs set overlay=off tank/a");
    assert!(nas.run_failing("zfs mount tank/a", 1).contains("overlay=off"));
    nas.run_ok("zfs mount -O tank/a");
    assert_eq!(std::fs::read_to_string(dir.join("letter")).unwrap(), "dear grandpa");
}

#[test]
fn temporary_mount_options_survive_a_restart() {
    if cannot_mount() {
        return;
    }
    let nas = TestNas::new("comes-back", 1);
    nas.create_pool("tank", 1);
    nas.run_ok("zfs create -p tank/a/b");
    let root = nas.altroot().join("tank");
    nas.run_ok("zfs unmount tank/a");
    nas.run_ok("zfs mount -R -o ro tank/a");
    let read_only = |wanted: [(&str, &str); 2]| {
        for (name, source) in wanted {
            let told = nas.run_ok(&format!("zfs get -Ho value,source readonly tank/{name}"));
            assert_eq!(told, format!("on\t{source}\n"), "{name}");
            assert!(mount_options(&root.join(name)).contains(&"ro".to_owned()), "{name}");
        }
    };
    read_only([("a", "temporary"), ("a/b", "temporary")]);
    assert!(
        nas.run_ok("zfs get -rHo name -s temporary all tank").lines().eq(["tank/a", "tank/a/b"])
    );
    nas.run_ok("zfs rename tank/a tank/c");
    nas.run_ok("zfs snapshot -r tank/c@before");
    nas.run_ok("zfs rollback tank/c@before");
    read_only([("c", "temporary"), ("c/b", "temporary")]);
    let stays = File::open(root.join("c")).unwrap();
    nas.run_ok("zfs snapshot tank/c@later");
    nas.run_failing("zfs unmount tank/c", 1);
    // programs in a file system that is rolled back may stay, but not those in a destroyed clone
    nas.run_ok("zfs clone tank/c@later tank/clone");
    let within = File::open(nas.altroot().join("tank/clone")).unwrap();
    nas.run_failing("zfs rollback -R tank/c@before", 1);
    nas.run_ok("zfs list tank/c@later");
    drop(within);
    nas.run_ok("zfs rollback -R tank/c@before");
    nas.run_failing("zfs list tank/c@later", 1);
    nas.run_failing("zfs list tank/clone", 1);
    assert!(stays.metadata().unwrap().is_dir());
    drop(stays);
    read_only([("c", "temporary"), ("c/b", "temporary")]);
    // a set property counts from then on, but not for descendants with their own value
    nas.run_ok("zfs set readonly=on tank/c/b");
    nas.run_ok("zfs set readonly=off exec=off tank/c");
    std::fs::write(root.join("c/letter"), "dear grandma").unwrap();
    read_only([("c/b", "local"); 2]);
    nas.run_ok("zfs inherit readonly tank/c/b");
    std::fs::write(root.join("c/b/letter"), "dear grandpa").unwrap();
    // a mount can be remounted with other options
    nas.run_ok("zfs mount -o remount,ro tank/c");
    read_only([("c", "temporary"); 2]);
    nas.run_ok("zfs mount -o remount,rw tank/c");
    std::fs::write(root.join("c/letter"), "dear grandma").unwrap();
    nas.run_failing("zfs mount -o remount,colour tank/c", 1);
    // and it stays there, whatever its properties are
    nas.run_ok("zfs set -u mountpoint=/elsewhere tank/c");
    assert_eq!(mount_source(&root.join("c")).as_deref(), Some("tank/c"));
    nas.run_ok("zfs unmount tank/c");
    nas.run_failing("zfs mount -o remount,ro tank/c", 1);
    nas.run_ok("zfs mount -R tank/c tank");
    assert_eq!(mount_source(&nas.altroot().join("elsewhere/b")).as_deref(), Some("tank/c/b"));
}

#[test]
fn atime_is_updated_despite_cached_pages() {
    if cannot_mount() {
        return;
    }
    let nas = TestNas::new("noted", 1);
    nas.create_pool("tank", 1);
    let letter = nas.altroot().join("tank/letter");
    std::fs::write(&letter, "dear grandma").unwrap();
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let is_noted = || {
        let file = File::options().write(true).open(&letter).unwrap();
        file.set_times(FileTimes::new().set_accessed(old)).unwrap();
        assert_eq!(std::fs::metadata(&letter).unwrap().accessed().unwrap(), old);
        assert_eq!(std::fs::read_to_string(&letter).unwrap(), "dear grandma");
        std::fs::metadata(&letter).unwrap().accessed().unwrap() > old
    };
    for words in ["atime=on relatime=off", "relatime=on"] {
        nas.run_ok(&format!("zfs set {words} tank"));
        assert!((0..3).all(|_| is_noted()), "{words}");
    }
    // a backup with O_NOATIME leaves no trace
    let file = File::options().write(true).open(&letter).unwrap();
    file.set_times(FileTimes::new().set_accessed(old)).unwrap();
    let noatime = i32::try_from(OFlags::NOATIME.bits()).unwrap();
    let mut secretly = File::options().read(true).custom_flags(noatime).open(&letter).unwrap();
    let mut text = String::new();
    secretly.read_to_string(&mut text).unwrap();
    drop(secretly);
    assert_eq!(text, "dear grandma");
    assert_eq!(std::fs::metadata(&letter).unwrap().accessed().unwrap(), old);
    nas.run_ok("zfs set atime=off tank");
    assert!(!is_noted());
    assert!(mount_options(&nas.altroot().join("tank")).contains(&"noatime".to_owned()));
    nas.run_ok("zfs set atime=on tank");
    assert!(is_noted());
    nas.run_ok("zfs mount -o remount,noatime tank");
    assert!(!is_noted());
    assert_eq!(nas.run_ok("zfs get -Ho value,source atime tank"), "off\ttemporary\n");
    nas.run_ok("zfs mount -o remount,atime tank");
    assert!(is_noted());
    // a reader without write permission leaves no trace
    let before = std::fs::metadata(&letter).unwrap().accessed().unwrap();
    nas.run_ok("zfs set relatime=off tank");
    nas.run_ok("zfs mount -o remount,ro tank");
    std::fs::read_to_string(&letter).unwrap();
    assert_eq!(std::fs::metadata(&letter).unwrap().accessed().unwrap(), before);
}

#[test]
fn a_quota_can_be_used_up() {
    if cannot_mount() {
        return;
    }
    let nas = TestNas::new("used-up", 1);
    nas.create_pool("tank", 1);
    for property in ["quota", "refquota"] {
        nas.run_ok(&format!("zfs create -o {property}=10M tank/{property}"));
        let dir = nas.altroot().join("tank").join(property);
        let left = nas.run_ok(&format!("zfs get -Hp -o value available tank/{property}"));
        let left: usize = left.trim().parse().unwrap();
        let mut file = File::create(dir.join("film")).unwrap();
        // the indirect blocks take some space as well
        file.write_all(&random_bytes(left - (256 << 10))).unwrap();
        let more = random_bytes(64 << 10);
        let refused =
            (0..16).find_map(|_| file.write_all(&more).and_then(|()| file.sync_all()).err());
        assert_eq!(refused.unwrap().kind(), std::io::ErrorKind::QuotaExceeded);
        let used = nas.run_ok(&format!("zfs get -Hp -o value used tank/{property}"));
        let used: u64 = used.trim().parse().unwrap();
        assert!(((10 << 20)..(12 << 20)).contains(&used), "{used}");
        drop(file);
        std::fs::remove_file(dir.join("film")).unwrap();
        std::fs::write(dir.join("letter"), "dear grandma").unwrap();
    }
}

#[test]
fn destroyed_snapshot_leaves_the_snapshot_folder() {
    if cannot_mount() {
        return;
    }
    let nas = TestNas::new("gone", 1);
    nas.create_pool("tank", 1);
    let dir = nas.altroot().join("tank");
    std::fs::write(dir.join("letter"), "dear grandma").unwrap();
    nas.run_ok("zfs snapshot tank@one");
    let letter = dir.join(".zfs/snapshot/one/letter");
    assert_eq!(std::fs::read_to_string(&letter).unwrap(), "dear grandma");
    // what lists it looks at each
    let listed = Command::new("ls").arg("-l").arg(dir.join(".zfs/snapshot")).output().unwrap();
    assert!(String::from_utf8_lossy(&listed.stdout).contains("one"));
    nas.run_ok("zfs destroy tank@one");
    assert!(!letter.exists() && !dir.join(".zfs/snapshot/one").exists());
    std::fs::write(dir.join("letter"), "dear grandpa").unwrap();
    nas.run_ok("zfs snapshot tank@one");
    assert_eq!(std::fs::read_to_string(&letter).unwrap(), "dear grandpa");
}

#[test]
fn mount_l_loads_keys() {
    if cannot_mount() {
        return;
    }
    let nas = TestNas::new("unlock", 1);
    nas.create_pool("tank", 1);
    let key = nas.0.join("key");
    std::fs::write(&key, "correct horse battery staple").unwrap();
    let place = format!("-o keylocation=file://{}", path_arg(&key));
    let words = "-o encryption=on -o keyformat=passphrase -o pbkdf2iters=100000";
    nas.run_ok(&format!("zfs create {words} {place} tank/private"));
    nas.run_ok("zfs create tank/private/letters");
    let letters = nas.altroot().join("tank/private/letters");
    let facts = "zfs get -Ho value keystatus,mounted tank/private/letters";
    nas.run_ok(&format!("zfs unmount -u {}", path_arg(&nas.altroot().join("tank/private"))));
    assert_eq!(nas.run_ok(facts), "unavailable\nno\n");
    nas.run_failing("zfs mount tank/private/letters", 1);
    nas.run_ok("zfs mount -l tank/private/letters");
    assert_eq!(nas.run_ok(facts), "available\nyes\n");
    assert_eq!(mount_source(&letters).as_deref(), Some("tank/private/letters"));
    // its key is another's, which is not mounted
    nas.run_ok("zfs unmount -u tank/private/letters");
    assert_eq!(nas.run_ok(facts), "available\nno\n");
    nas.run_ok("zfs unload-key tank/private");
    nas.run_ok("zfs mount -l -a");
    assert_eq!(nas.run_ok(facts), "available\nyes\n");
    // what else has its key stays as it is, and so does that
    nas.run_ok("zfs snapshot tank/private@one");
    nas.run_ok("zfs clone tank/private@one tank/copy");
    let why = nas.run_failing("zfs unmount -u tank/private", 1);
    assert!(why.contains("tank/copy"), "{why}");
    assert_eq!(nas.run_ok(facts), "available\nyes\n");
    nas.run_ok("zfs unmount tank/copy");
    nas.run_ok("zfs unmount -u -a");
    assert_eq!(nas.run_ok(facts), "unavailable\nno\n");
}

#[test]
fn volumes_that_are_open_are_not_destroyed() {
    if cannot_mount() {
        return;
    }
    let nas = TestNas::new("busy-volume", 1);
    nas.create_pool("tank", 1);
    nas.run_ok("zfs create tank/a");
    nas.run_ok("zfs create -V 8M tank/a/disk");
    let path = nas.altroot().join("tank/a/.zfs/volume/disk");
    let open = File::open(&path).unwrap();
    for words in ["tank/a/disk", "-f tank/a/disk", "-r tank/a"] {
        let why = nas.run_failing(&format!("zfs destroy {words}"), 1);
        assert!(why.contains("busy") || why.contains("in use"), "{words}: {why}");
    }
    drop(open);
    nas.run_ok("zfs destroy tank/a/disk");
    // a forced unmount works: the references to the volume end with the mount
    nas.run_ok("zfs create -V 8M tank/a/disk");
    let mut open = File::open(&path).unwrap();
    nas.run_ok("zfs destroy -rf tank/a");
    assert!(open.read(&mut [0]).is_err());
}
