//! The list of pools on disk, when the daemon is shutting down or cannot write it; and cancellation.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use api::{
    CreateFilesystem, CreatePool, DestroyDatasets, Event, JobState, ListFiles, MountOverrides,
    Mounting, PolicyRun, RenameDataset, RestoreFile, RestoreFolder, RollbackDataset, VdevLayout,
    VdevRole,
};
use engine::pool::Rewind;
use posix::access::OpenMode;
use posix::{
    Credentials, FileType, NewInode, SetAttributes, SetTime, Time, WriteOffset, XattrMode,
};
use vfs::{FileOffset, FileSystem as _, SharedFileSystem as _};

use super::filesystems::Door;
use super::unavailable::UnavailablePool;
use super::{ManagedPool, Pools};
use crate::auth::{Caller, Peer};
use crate::cancel::Cancel;
use crate::context::Context;
use crate::log::Log;
use crate::policy::PolicyConfig;
use crate::pool_cache::{self, SavedPool};
use crate::{StateDir, environment, services};

/// A daemon without a socket, with a pool, in a directory of its own.
struct TestDaemon {
    dir: PathBuf,
    state_dir: StateDir,
    context: Arc<Context>,
    pools: Arc<Pools>,
}

impl TestDaemon {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("poolhouse-{name}-{}", std::process::id()));
        let state_dir = StateDir::from_dir(&dir).unwrap();
        state_dir.create_dirs().unwrap();
        let log = Arc::new(Log::open(&state_dir, false).unwrap());
        let environment = environment::host_environment(Some(256 << 20)).unwrap();
        let context = Context::new(state_dir.clone(), log, environment).unwrap();
        context.events.set_services(services::all(&context));
        let pools = Arc::clone(&context.pools);
        let daemon = Self { dir, state_dir, context, pools };
        daemon.create_pool("tank").unwrap();
        daemon
    }

    fn create_pool(&self, name: &str) -> crate::Result<Mounting> {
        let drive = self.dir.join(format!("{name}.drive"));
        File::create(&drive).unwrap().set_len(96 << 20).unwrap();
        self.pools.create_pool(&CreatePool {
            name: name.to_owned(),
            temporary_name: None,
            vdevs: vec![(VdevLayout::Single, VdevRole::Data, vec![drive])],
            ashift: None,
            pool_properties: Vec::new(),
            no_default_features: false,
            filesystem_properties: vec![("mountpoint".to_owned(), "none".to_owned())],
            altroot: None,
            force: false,
            secret: None,
            dry_run: false,
        })
    }

    fn saved_names(&self) -> Vec<String> {
        pool_cache::load(&self.state_dir).unwrap().into_iter().map(|pool| pool.name).collect()
    }
}

impl Drop for TestDaemon {
    fn drop(&mut self) {
        self.context.events.set_services(Vec::new());
        let _ = fs::remove_dir_all(&self.dir);
    }
}

#[test]
fn policies_take_and_prune_snapshots() {
    let home = TestDaemon::new("policy");
    let create = |name: &str| CreateFilesystem {
        name: name.to_owned(),
        properties: Vec::new(),
        parents: false,
        no_mount: true,
        secret: None,
        dry_run: false,
    };
    home.pools.create_filesystem(&create("tank/a")).unwrap();
    let policies: Vec<PolicyConfig> =
        [toml_edit::de::from_str("dataset = 'tank'\nhourly = 1\ndaily = 1").unwrap()].into();
    let run = |hours: u64, safe: Option<u64>| {
        let now = (crate::events::unix_seconds() + hours * 3600, &jiff::tz::TimeZone::UTC);
        home.pools.run_policies(&policies, &|_| safe, now)
    };
    let first = run(0, None);
    assert_eq!((first.taken.len(), first.failed.len()), (4, 0), "{first:?}");
    let pool = home.pools.pool("tank").unwrap();
    let snapshots = |name: &str| pool.handle.snapshots().list(name).unwrap();
    let txgs = |name: &str| snapshots(name).iter().map(|it| it.txg).collect::<Vec<_>>();
    assert_eq!(txgs("tank"), txgs("tank/a"), "each kind is taken in one txg");
    assert_eq!(run(0, None), PolicyRun::default());
    // a replica has nothing yet
    let later = run(1, Some(0));
    let hourly = |names: &[String]| names.iter().filter(|name| name.ends_with("hourly")).count();
    assert_eq!((hourly(&later.taken), hourly(&later.kept)), (2, 2), "{later:?}");
    assert!(later.pruned.is_empty());
    // the clock makes one more snapshot due
    pool.handle
        .snapshots()
        .place_hold("mine", &[format!("tank@{}", snapshots("tank")[0].name)])
        .unwrap();
    let held = snapshots("tank")[0].name.clone();
    let last = run(2, Some(u64::MAX));
    assert_eq!(last.failed, Vec::<String>::new());
    let left = snapshots("tank");
    assert!(left.iter().any(|snapshot| snapshot.name == held), "a held snapshot stays");
    assert_eq!(snapshots("tank/a").iter().filter(|it| it.name.ends_with("hourly")).count(), 1);
}

#[test]
fn a_late_save_keeps_the_pools() {
    let home = TestDaemon::new("late");
    home.pools.shut_down();
    // as where another pool is exported just then
    home.pools.save_pools();
    assert_eq!(home.saved_names(), ["tank"]);
    let late = home.create_pool("late").unwrap_err().to_string();
    assert!(late.contains("the daemon is shutting down"), "{late}");
    assert_eq!(home.saved_names(), ["tank"]);
}

#[test]
fn an_exported_pool_is_not_mounted_again() {
    let home = TestDaemon::new("left");
    let pool = home.pools.pool("tank").unwrap();
    let dir = home.dir.join("mounted");
    pool.handle.properties().set("tank", "mountpoint", dir.to_str().unwrap()).unwrap();
    home.pools.export_pool("tank", false).unwrap();
    // a call found the pool before it was exported
    let late = pool.mount_filesystem("tank", &MountOverrides::default()).unwrap_err().to_string();
    assert!(late.contains("the pool is being exported"), "{late}");
    assert!(!dir.exists());
}

#[test]
fn concurrent_saves_keep_the_list_whole() {
    let home = TestDaemon::new("many");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            // as where devices of several pools are replaced
            scope.spawn(|| (0..50).for_each(|_| home.pools.save_pools()));
        }
    });
    assert_eq!(home.saved_names(), ["tank"]);
}

#[test]
fn export_finds_a_pool_that_was_just_imported() {
    let home = TestDaemon::new("taken");
    let house = &home.pools;
    let pool = house.imported.lock().remove("tank").unwrap();
    let waits = SavedPool {
        name: "tank".to_owned(),
        guid: pool.handle.guid(),
        drives: pool.handle.drives().known(),
        altroot: None,
        cachefile: super::cachefile::Cachefile::Default,
        read_only: false,
        temporary: false,
        rewind: Rewind::No,
    };
    let why = engine::Error::NoSuchDataset { name: "tank".to_owned() };
    house.unavailable.lock().push(UnavailablePool::new(waits, &why));
    // its devices appeared
    let moving = house.import_lock.lock();
    let (sender, told) = channel();
    std::thread::scope(|scope| {
        scope.spawn(move || sender.send(house.forget_unavailable("tank").is_some()).unwrap());
        let early = told.recv_timeout(Duration::from_millis(300));
        house.imported.lock().insert("tank".to_owned(), pool);
        house.unavailable.lock().clear();
        drop(moving);
        // it is imported, and can be exported
        let is_forgotten = early.unwrap_or_else(|_| told.recv().unwrap());
        assert!(!is_forgotten);
    });
    assert_eq!(home.saved_names(), ["tank"]);
    house.export_pool("tank", false).unwrap();
}

#[test]
fn pools_are_exported_without_their_list() {
    let home = TestDaemon::new("unsaved");
    assert_eq!(home.pools.unsaved_warning(), None);
    // the list is written to this name first
    let new = home.state_dir.pool_cache().with_extension("new");
    fs::create_dir(&new).unwrap();
    home.create_pool("other").unwrap();
    assert!(home.pools.unsaved_warning().unwrap().contains("pools.json"));
    home.pools.export_pool("tank", false).unwrap();
    assert_eq!(home.saved_names(), ["tank"]);
    fs::remove_dir(&new).unwrap();
    home.pools.save_pools();
    assert_eq!(home.pools.unsaved_warning(), None);
    assert_eq!(home.saved_names(), ["other"]);
}

#[test]
fn a_cancelled_destroy_stops_after_a_batch() {
    let home = TestDaemon::new("cancelled");
    let pool = home.pools.pool("tank").unwrap();
    let names: Vec<String> = (0..300).map(|number| format!("tank@{number}")).collect();
    for name in &names {
        pool.handle.snapshots().create(std::slice::from_ref(name)).unwrap();
    }
    let destroy = |cancel: Cancel| {
        let caller = Caller { peer: Peer::from_uid(0), cancel };
        home.pools.destroy(&destroy_call("tank@%"), &caller).map(drop)
    };
    let cancel = Cancel::default();
    drop(cancel.on_drop());
    let why = destroy(cancel).unwrap_err().to_string();
    let left = pool.handle.snapshots().list("tank").unwrap().len();
    assert!((1..300).contains(&left), "{left}");
    assert!(why.contains(&format!("interrupted: {} of 300", 300 - left)), "{why}");
    let job = home.context.jobs.list().remove(0);
    let (state, done) = (job.state, job.progress.done);
    assert_eq!((state, done, job.progress.total), (JobState::Cancelled, 300 - left as u64, 300));
    destroy(Cancel::default()).unwrap();
    assert!(pool.handle.snapshots().list("tank").unwrap().is_empty());
    // the rest fits into one batch, which is not a job
    assert_eq!(home.context.jobs.list().len(), 1);
    let events = home.context.events.after(None).events;
    let destroyed = |name: &String| {
        let event = Event::SnapshotDestroyed { snapshot: name.clone() };
        events.iter().filter(|record| record.event == event).count() == 1
    };
    assert!(names.iter().all(destroyed));
    home.pools.shut_down();
}

/// Creates a file system without a mountpoint.
fn create_unmounted(pool: &ManagedPool, name: &str) {
    let properties = vec![("mountpoint".to_owned(), "none".to_owned())];
    let new = engine::pool::NewDataset { name: name.to_owned(), properties };
    pool.handle.datasets().create_filesystem(&new).unwrap();
}

fn destroy_call(name: &str) -> DestroyDatasets {
    DestroyDatasets { name: name.to_owned(), ..DestroyDatasets::default() }
}

/// Runs a shell command on a mount of this process, with a time limit. Returns its output; none: it failed.
fn run_shell(script: &str) -> Option<String> {
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "20", "sh", "-c", script]).stdin(Stdio::null());
    let done = command.output().expect("timeout(1) and sh(1)");
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    done.status.success().then_some(text)
}

/// Whether this machine can mount; if not, prints so.
fn can_mount() -> bool {
    let opens = File::options().read(true).write(true).open("/dev/fuse").is_ok();
    if !opens || !rustix::process::geteuid().is_root() {
        eprintln!("skipped: it takes /dev/fuse, as root");
        return false;
    }
    true
}

/// A server in this process that has a door into a file system.
struct InProcess(Door);

impl InProcess {
    fn open(daemon: &TestDaemon, dataset: &str) -> Self {
        let pool = daemon.pools.pool("tank").unwrap();
        Self(pool.filesystems.open_door(dataset, "the test").unwrap())
    }

    fn context(&self) -> vfs::Context<'static> {
        vfs::Context::new(&Credentials::ROOT, self.0.id())
    }

    fn write(&self, name: &str, text: &str) {
        let (fs, context) = (self.0.filesystem(), self.context());
        let new = NewInode { mode: 0o644, ..NewInode::default() };
        let (entry, create) = ((fs.root_ino(), name.as_bytes()), vfs::CreateMode::OpenExisting);
        let made = fs.create_and_open(&context, entry, &new, create, OpenMode::READ_WRITE).unwrap();
        fs.write(&context, &made.file, WriteOffset::At(0), text.as_bytes()).unwrap();
        assert!(fs.changes().wait_until_handled(self.0.id(), Instant::now() + LIMIT));
    }

    fn read(&self, name: &str) -> String {
        let (fs, context) = (self.0.filesystem(), self.context());
        let found = fs.lookup(&context, fs.root_ino(), name.as_bytes()).unwrap();
        let file = &fs.open(&context, found.ino, OpenMode::READ).unwrap();
        let mut bytes = [0; 100];
        let count = fs.read(&context, FileOffset { file, offset: 0 }, &mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    }
}

const LIMIT: Duration = Duration::from_secs(20);

impl TestDaemon {
    /// Creates tank/fs, mounted on a directory.
    fn create_mounted(&self) -> PathBuf {
        let dir = self.dir.join("mounted");
        let place = ("mountpoint".to_owned(), dir.to_str().unwrap().to_owned());
        let made = self.pools.create_filesystem(&CreateFilesystem {
            name: "tank/fs".to_owned(),
            properties: vec![place],
            parents: false,
            no_mount: false,
            secret: None,
            dry_run: false,
        });
        assert!(made.unwrap().failed.is_empty());
        dir
    }
}

#[test]
fn mounts_and_servers_see_each_others_changes() {
    if !can_mount() {
        return;
    }
    let home = TestDaemon::new("doors");
    let (dir, server) = (home.create_mounted(), InProcess::open(&home, "tank/fs"));
    let shell = |script: &str| run_shell(&format!("cd {} && {script}", dir.display()));
    server.write("a", "first");
    assert_eq!(shell("cat a").as_deref(), Some("first"));
    server.write("a", "other");
    assert_eq!(shell("cat a; printf second > a; printf new > b").as_deref(), Some("other"));
    assert_eq!((server.read("a"), server.read("b")), ("second".to_owned(), "new".to_owned()));
    shell("mv b c").unwrap();
    assert_eq!(server.read("c"), "new");
    // the file is the same one for both, and so are its locks
    let (fs, context) = (server.0.filesystem(), server.context());
    let ino = fs.lookup(&context, fs.root_ino(), b"a").unwrap().ino;
    assert_eq!(shell("stat -c %i a").unwrap().trim(), ino.to_string());
    assert!(fs.locks().held_locks(ino).is_empty());
    drop(server);
    home.pools.export_pool("tank", false).unwrap();
}

#[test]
fn doors_stay_open_over_renames_and_rollbacks() {
    let home = TestDaemon::new("renamed");
    let pool = home.pools.pool("tank").unwrap();
    create_unmounted(&pool, "tank/fs");
    let server = InProcess::open(&home, "tank/fs");
    server.write("a", "before");
    pool.handle.snapshots().create(&["tank/fs@now".to_owned()]).unwrap();
    server.write("a", "behind");
    home.pools
        .rename_dataset(&RenameDataset {
            name: "tank/fs".to_owned(),
            to: "tank/moved".to_owned(),
            recursive: false,
            parents: false,
            force: false,
            keep_mounts: false,
        })
        .unwrap();
    assert_eq!(
        (&*server.0.filesystem().dataset(), server.read("a").as_str()),
        ("tank/moved", "behind")
    );
    // a door that is opened under the new name shares the file system
    let other = InProcess::open(&home, "tank/moved");
    let heard = other.0.filesystem().changes().subscribe(other.0.id(), 10, || {});
    let (closer, fs, new) = (heard.closer(), server.0.filesystem(), NewInode::default());
    fs.create(&server.context(), fs.root_ino(), b"b", &new).unwrap();
    assert_eq!(heard.take_waiting().changes.len(), 1);
    let listener = std::thread::spawn(move || {
        let is_overflow = heard.next_batch().is_some_and(|batch| batch.is_overflow);
        // the next call means that the batch is handled
        heard.next_batch();
        is_overflow
    });
    home.pools
        .rollback(&RollbackDataset {
            snapshot: "tank/moved@now".to_owned(),
            destroy_newer: false,
            destroy_clones: false,
            force: false,
        })
        .unwrap();
    assert_eq!(server.read("a"), "before");
    closer.close();
    assert!(listener.join().unwrap(), "the rollback was not announced");
    drop((other, server));
    assert!(pool.filesystems.find("tank/moved").is_none());
    home.pools.export_pool("tank", false).unwrap();
}

#[test]
fn files_are_restored_beside_present_ones() {
    let home = TestDaemon::new("restored");
    let pool = home.pools.pool("tank").unwrap();
    create_unmounted(&pool, "tank/fs");
    let server = InProcess::open(&home, "tank/fs");
    server.write("letter.txt", "before");
    let (fs, context) = (server.0.filesystem(), server.context());
    let ino = fs.lookup(&context, fs.root_ino(), b"letter.txt").unwrap().ino;
    let given = SetAttributes { mode: Some(0o4640), uid: Some(7), ..SetAttributes::default() };
    fs.set_attributes(&context, ino, &given).unwrap();
    fs.set_xattr(&context, ino, b"user.tag", Some(b"blue"), XattrMode::Any).unwrap();
    pool.handle.snapshots().create(&["tank/fs@monday".to_owned()]).unwrap();
    server.write("letter.txt", "behind");
    let (snapshot, path) = ("tank/fs@monday".to_owned(), "/letter.txt".to_owned());
    let reader = home.pools.snapshot_reader(&snapshot).unwrap();
    let listed = ListFiles { dataset: snapshot.clone(), ..ListFiles::default() };
    let listed = super::list_files(&reader, &listed).unwrap();
    assert_eq!((listed.len(), listed[0].name.as_str(), listed[0].size), (1, "letter.txt", 6));
    let call = RestoreFile { snapshot, path, ..RestoreFile::default() };
    let restore = |call: &RestoreFile| home.pools.restore_file(&reader, call);
    assert_eq!(restore(&call).unwrap(), "/letter (monday).txt");
    assert_eq!(restore(&call).unwrap(), "/letter (monday).txt 2");
    assert_eq!(server.read("letter.txt"), "behind");
    assert_eq!(server.read("letter (monday).txt"), "before");
    let restored = fs.lookup(&context, fs.root_ino(), b"letter (monday).txt").unwrap();
    assert_eq!((restored.mode & 0o7777, restored.uid), (0o4640, 7));
    let tag = fs.xattr(&context, restored.ino, b"user.tag").unwrap();
    assert_eq!(tag.as_deref(), Some(&b"blue"[..]));
    let missing = RestoreFile { path: "/none".to_owned(), ..call };
    assert!(restore(&missing).unwrap_err().to_string().contains("there is no"));
    drop(server);
    home.pools.export_pool("tank", false).unwrap();
}

#[test]
fn files_are_restored_out_of_repositories() {
    let home = TestDaemon::new("restored-backup");
    let pool = home.pools.pool("tank").unwrap();
    for name in ["tank/fs", "tank/new"] {
        create_unmounted(&pool, name);
    }
    let server = InProcess::open(&home, "tank/fs");
    let (fs, context) = (server.0.filesystem(), server.context());
    let new = NewInode { kind: FileType::Directory, mode: 0o750, ..NewInode::default() };
    let album = fs.create(&context, fs.root_ino(), b"album", &new).unwrap().ino;
    server.write("letter.txt", "before");
    let letter = fs.lookup(&context, fs.root_ino(), b"letter.txt").unwrap().ino;
    fs.link(&context, letter, album, b"letter.txt").unwrap();
    pool.handle.snapshots().create(&["tank/fs@monday".to_owned()]).unwrap();
    let location = format!("file://{}", home.dir.join("backup").display());
    let config = crate::config::Config::default();
    let create = api::CreateRepository { location: location.clone() };
    crate::repositories::create(&config, &create).unwrap();
    let store = bucket::open(&location, false, None).unwrap();
    let repository = engine::backup::BackupRepository::open(store).unwrap();
    let targets = vec!["tank/fs@monday".to_owned()];
    let request = engine::pool::BackupRequest { targets, recursive: false, protect_until: None };
    pool.handle.streams().back_up(&repository, &request, &job::Job::default()).unwrap();
    // the pool has lost both: the repository has them still
    fs.unlink(&context, album, b"letter.txt").unwrap();
    fs.rmdir(&context, fs.root_ino(), b"album").unwrap();
    pool.handle.datasets().destroy("tank/fs@monday").unwrap();
    let found = crate::repositories::snapshots(&config, &location).unwrap();
    assert_eq!((found.len(), found[0].dataset.as_str(), found[0].is_volume), (1, "tank/fs", false));
    let read = || crate::repositories::reader(&config, &location, "tank/fs@monday").unwrap();
    let listed = ListFiles { dataset: "tank/fs@monday".to_owned(), ..ListFiles::default() };
    let names: Vec<_> =
        super::list_files(&read(), &listed).unwrap().into_iter().map(|it| it.name).collect();
    assert_eq!(names, ["album", "letter.txt"]);
    let mut call = RestoreFile {
        snapshot: "tank/fs@monday".to_owned(),
        path: "album/letter.txt".to_owned(),
        ..RestoreFile::default()
    };
    // its folder is gone, so that it comes to the nearest one
    assert_eq!(home.pools.restore_file(&read(), &call).unwrap(), "/letter (monday).txt");
    assert_eq!(server.read("letter (monday).txt"), "before");
    call.into = Some("tank/new".to_owned());
    assert_eq!(home.pools.restore_file(&read(), &call).unwrap(), "/letter (monday).txt");
    let other = InProcess::open(&home, "tank/new");
    assert_eq!(other.read("letter (monday).txt"), "before");
    drop((server, other));
    home.pools.export_pool("tank", false).unwrap();
}

#[test]
fn folders_are_restored_beside_present_ones() {
    let home = TestDaemon::new("restored-folder");
    let pool = home.pools.pool("tank").unwrap();
    create_unmounted(&pool, "tank/fs");
    let server = InProcess::open(&home, "tank/fs");
    let (fs, context) = (server.0.filesystem(), server.context());
    let create = |dir, name: &str, kind, target: &[u8]| {
        let new = NewInode { kind, mode: 0o640, target, ..NewInode::default() };
        fs.create(&context, dir, name.as_bytes(), &new).unwrap().ino
    };
    let folder = create(fs.root_ino(), "album", FileType::Directory, b"");
    let inner = create(folder, "2026", FileType::Directory, b"");
    server.write("letter.txt", "before");
    let letter = fs.lookup(&context, fs.root_ino(), b"letter.txt").unwrap().ino;
    fs.link(&context, letter, folder, b"one").unwrap();
    fs.link(&context, letter, inner, b"two").unwrap();
    create(inner, "link", FileType::Symlink, b"../one");
    let old = SetAttributes {
        mode: Some(0o1750),
        mtime: Some(SetTime::At(Time { seconds: 7, nanoseconds: 0 })),
        ..SetAttributes::default()
    };
    fs.set_attributes(&context, inner, &old).unwrap();
    pool.handle.snapshots().create(&["tank/fs@monday".to_owned()]).unwrap();
    fs.unlink(&context, inner, b"two").unwrap();
    let caller = Caller { peer: Peer::from_uid(0), cancel: Cancel::default() };
    let (snapshot, path) = ("tank/fs@monday".to_owned(), "/album".to_owned());
    let call = RestoreFolder { snapshot, path, ..RestoreFolder::default() };
    for (number, name) in ["album (monday)", "album (monday) 2"].iter().enumerate() {
        let reader = home.pools.snapshot_reader(&call.snapshot).unwrap();
        let started = home.pools.restore_folder(reader, &call, &caller).unwrap();
        assert_eq!(started.path, format!("/{name}"));
        let state = || home.context.jobs.list()[number].clone();
        let end = Instant::now() + Duration::from_mins(1);
        while state().state == JobState::Running && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(state().state, JobState::Finished, "{:?}", state().log);
        assert!(state().log[0].starts_with("4 names were restored"), "{:?}", state().log);
    }
    let find = |dir, name: &str| fs.lookup(&context, dir, name.as_bytes()).unwrap();
    let restored = find(fs.root_ino(), "album (monday)").ino;
    let year = find(restored, "2026");
    assert_eq!((year.mode & 0o7777, year.mtime.seconds), (0o1750, 7));
    let (one, two) = (find(restored, "one"), find(year.ino, "two"));
    assert_eq!((one.ino, one.nlink, one.size), (two.ino, 2, 6));
    assert_eq!(fs.read_link(&context, find(year.ino, "link").ino).unwrap(), b"../one");
    assert!(fs.lookup(&context, inner, b"two").is_err(), "the present folder stays");
    drop(server);
    home.pools.export_pool("tank", false).unwrap();
}

#[test]
fn open_doors_keep_a_pool_from_ending() {
    let home = TestDaemon::new("used");
    let pool = home.pools.pool("tank").unwrap();
    create_unmounted(&pool, "tank/fs");
    let server = InProcess::open(&home, "tank/fs");
    let caller = Caller { peer: Peer::from_uid(0), cancel: Cancel::default() };
    let why = home.pools.destroy(&destroy_call("tank/fs"), &caller).unwrap_err().to_string();
    assert!(why.contains("'tank/fs' is in use by the test"), "{why}");
    let why = home.pools.export_pool("tank", false).unwrap_err().to_string();
    assert!(why.contains("'tank/fs' is in use by the test"), "{why}");
    server.write("a", "goes on");
    drop(server);
    home.pools.destroy(&destroy_call("tank/fs"), &caller).unwrap();
    home.pools.export_pool("tank", false).unwrap();
}

#[test]
fn cachefile_names_pools_until_their_export() {
    let home = TestDaemon::new("cachefile");
    let file = home.dir.join("zpool.cache");
    let names = || -> Vec<String> {
        engine::read_cachefile(&file).unwrap().into_iter().map(|pool| pool.name).collect()
    };
    let set = |pool: &str, value: &str| home.pools.set_pool_property(pool, "cachefile", value);
    home.create_pool("other").unwrap();
    for pool in ["tank", "other"] {
        set(pool, file.to_str().unwrap()).unwrap();
    }
    assert_eq!(names(), ["other", "tank"]);
    let shown = home.pools.pool_properties(&["tank".to_owned()]).unwrap().remove(0).1;
    let shown = shown.into_iter().find(|property| property.name == "cachefile").unwrap();
    assert_eq!((shown.value.as_str(), shown.source.as_str()), (file.to_str().unwrap(), "local"));
    home.pools.export_pool("other", false).unwrap();
    assert_eq!(names(), ["tank"]);
    set("tank", "none").unwrap();
    assert!(!file.exists());
    // the daemon's own list has the pool still
    assert_eq!(home.saved_names(), ["tank"]);
    assert!(set("tank", "relative").unwrap_err().to_string().contains("an absolute path"));
}
