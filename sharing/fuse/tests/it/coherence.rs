//! A mount beside an in-process client of the same file system: each sees every change of the other at once.
//!
//! A separate program works through the mount and keeps a model on the system's own file system. It
//! reaches the in-process client, which is in the process of the test, over a socket: a line a
//! request, a line a response.
//!
//! ```text
//! STEP state    do the step that this state of the random numbers gives        ok, or failed
//! TREE          say what the in-process client sees                            the tree, as a line
//! RUN seed n    do n steps of a seed meanwhile                                 begun
//! WAIT          wait until they are done                                       done
//! ```
//!
//! It takes /dev/fuse.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fuse::MountOptions;

use crate::client;
use crate::coherence_step::{InProcess, Step, step_names};
use crate::mapping::Mapping;
use crate::mounted_fixture::can_mount;
use crate::mounted_pool::{MountedPool, Random, read_tree};

/// Steps of a seed, done by turns.
const STEPS: u64 = 30;
/// Steps of each side that are done at the same time.
const CONCURRENT_STEPS: u64 = 120;
/// How long the other door may take to handle a change.
const HANDLING: Duration = Duration::from_secs(30);

/// The in-process client, and the thread that serves the program.
struct Server {
    address: String,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(client: InProcess, address: &Path) -> Self {
        let listener = UnixListener::bind(address).unwrap();
        let thread = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            serve(&client, &stream);
        });
        Self { address: address.to_str().unwrap().to_owned(), thread: Some(thread) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // a program that never came: its connection ends at once
        drop(UnixStream::connect(&self.address));
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking(), "the in-process client failed");
    }
}

/// Handles requests until the program ends.
fn serve(client: &InProcess, mut stream: &UnixStream) {
    let lines = BufReader::new(stream).lines();
    let mut running: Option<JoinHandle<()>> = None;
    for line in lines.map_while(io::Result::ok) {
        let words: Vec<&str> = line.split(' ').collect();
        let response = match words[..] {
            ["STEP", state] => {
                let done = client.apply(&Step::roll(&mut Random(state.parse().unwrap())));
                client.wait_until_handled(Instant::now() + HANDLING);
                if done.is_ok() { "ok".to_owned() } else { "failed".to_owned() }
            }
            ["RUN", seed, count] => {
                let mut random = Random(seed.parse().unwrap());
                let (client, count): (_, u64) = (client.clone(), count.parse().unwrap());
                running = Some(std::thread::spawn(move || {
                    for _ in 0..count {
                        // steps of the other side may be in the way
                        let _ = client.apply(&Step::roll(&mut random));
                    }
                }));
                "begun".to_owned()
            }
            ["WAIT"] => {
                running.take().unwrap().join().unwrap();
                client.wait_until_handled(Instant::now() + HANDLING);
                "done".to_owned()
            }
            ["TREE"] => format!("{:?}", client.read_tree()),
            _ => panic!("{line}"),
        };
        if writeln!(stream, "{response}").is_err() {
            return;
        }
    }
}

/// The program's end of the socket.
struct Peer(BufReader<UnixStream>);

impl Peer {
    fn ask(&mut self, request: &str) -> String {
        let mut response = String::new();
        writeln!(self.0.get_mut(), "{request}").unwrap();
        self.0.read_line(&mut response).unwrap();
        response.trim_end().to_owned()
    }
}

/// The visible state of a tree: by path the mode, the link count of other files than directories,
/// and a hash of the content.
pub(crate) type Tree = BTreeMap<String, (u32, u64, u64)>;

pub(crate) fn hash_of(content: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    hasher.finish()
}

fn summary(root: &Path) -> Tree {
    let seen = read_tree(root).into_iter();
    seen.map(|(path, (mode, links, content))| {
        (path.to_str().unwrap().to_owned(), (mode, links, hash_of(&content)))
    })
    .collect()
}

/// A file that stays open through both doors, even if it is renamed or removed.
struct OpenPair {
    ours: File,
    model: File,
}

impl OpenPair {
    fn open(ours: &Path, model: &Path, name: &str) -> Option<Self> {
        let open = |root: &Path| OpenOptions::new().read(true).write(true).open(root.join(name));
        let (ours, model) = (open(ours), open(model));
        assert_eq!(ours.is_ok(), model.is_ok(), "{name}: {ours:?}, {model:?}");
        Some(Self { ours: ours.ok()?, model: model.ok()? })
    }

    fn compare(&self, after: &str) {
        let facts = |file: &File| {
            let found = file.metadata().unwrap();
            (found.len(), found.mode(), found.nlink())
        };
        assert_eq!(facts(&self.ours), facts(&self.model), "an open file, {after}");
        let read = |file: &File| {
            let mut bytes = vec![0; usize::try_from(facts(file).0).unwrap()];
            file.read_exact_at(&mut bytes, 0).unwrap();
            bytes
        };
        let (ours, model) = (read(&self.ours), read(&self.model));
        let differs = ours.iter().zip(&model).position(|(one, other)| one != other);
        assert_eq!(differs, None, "an open file of {} bytes, {after}", model.len());
    }

    /// Changes a byte through a mapping on both sides.
    fn write_mapped(&self, at: u64) {
        // a mapping ends where the kernel believes that the file ends
        let size = self.ours.metadata().unwrap().len();
        if size > 0 {
            let length = usize::try_from(size).unwrap();
            for file in [&self.ours, &self.model] {
                let mut mapping = Mapping::new(file, length).unwrap();
                mapping.write(usize::try_from(at % size).unwrap(), b"m");
                mapping.sync().unwrap();
            }
        }
    }
}

/// The object of every name that a step can use. A listing would make the kernel look all of them
/// up again.
fn look_up_all(root: &Path) -> Vec<Option<(u32, u64, u64, u64)>> {
    let look_up = |name: &String| {
        let path = root.join(name);
        let found = fs::symlink_metadata(&path).ok()?;
        let content = if found.is_file() {
            fs::read(&path).ok()?
        } else if found.is_symlink() {
            fs::read_link(&path).ok()?.into_os_string().into_encoded_bytes()
        } else {
            Vec::new()
        };
        let (links, size) = if found.is_dir() { (0, 0) } else { (found.nlink(), found.len()) };
        Some((found.mode(), links, size, hash_of(&content)))
    };
    step_names().iter().map(look_up).collect()
}

/// The steps of a seed, done by turns through the mount and by the in-process client, and to the model.
fn compare_seed(ours: &Path, model: &Path, peer: &mut Peer, seed: u64) {
    let mut random = Random(seed);
    for side in [ours, model] {
        fs::create_dir_all(side.join("a/c")).unwrap();
        fs::create_dir_all(side.join("b")).unwrap();
    }
    let mut open: Vec<OpenPair> = Vec::new();
    for number in 0..STEPS {
        let after = format!("seed {seed}, step {number}");
        let is_other = random.next_below(3) > 0;
        let state = random.0;
        let step = Step::roll(&mut random);
        let wanted = step.apply_to_dir(model);
        let done = if is_other {
            peer.ask(&format!("STEP {state}")) == "ok"
        } else {
            step.apply_to_dir(ours).is_ok()
        };
        assert_eq!(done, wanted.is_ok(), "{after}: {step:?}, {wanted:?}");
        match random.next_below(6) {
            0 => open.extend(OpenPair::open(ours, model, step.path())),
            1 if !open.is_empty() => drop(open.remove(0)),
            2 => open.iter().for_each(|pair| pair.write_mapped(number * 4099)),
            _ => {}
        }
        let after = format!("{after}: {step:?} by {}", if is_other { "the other" } else { "us" });
        for pair in &open {
            pair.compare(&after);
        }
        assert_eq!(look_up_all(ours), look_up_all(model), "{after}, of {:?}", step_names());
        if number % 4 == 3 {
            let wanted = summary(model);
            assert_eq!(summary(ours), wanted, "{after}");
            assert_eq!(peer.ask("TREE"), format!("{wanted:?}"), "{after}, the other's view");
        }
    }
    drop(open);
    for side in [ours, model] {
        for entry in fs::read_dir(side).unwrap() {
            let path = entry.unwrap().path();
            let is_dir = fs::symlink_metadata(&path).unwrap().is_dir();
            if is_dir { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
        }
    }
}

/// Both sides work at the same time; when they are done they see the same.
fn run_concurrently(ours: &Path, peer: &mut Peer, seed: u64) {
    assert_eq!(peer.ask(&format!("RUN {} {CONCURRENT_STEPS}", seed ^ 0x5eed)), "begun");
    let mut random = Random(seed);
    for number in 0..CONCURRENT_STEPS {
        // the other side may have removed what this one needs
        let _ = fs::create_dir_all(ours.join("a/c"));
        let _ = Step::roll(&mut random).apply_to_dir(ours);
        if number % 8 == 0 {
            // names, attributes and pages come into the kernel's cache
            for name in step_names() {
                let _ = fs::read(ours.join(name));
            }
        }
    }
    assert_eq!(peer.ask("WAIT"), "done");
    let found = look_up_all(ours);
    let seen = format!("{:?}", summary(ours));
    assert_eq!(seen, peer.ask("TREE"), "seed {seed}, concurrent");
    // the listing made the kernel look all names up again
    assert_eq!(found, look_up_all(ours), "seed {seed}, concurrent, of {:?}", step_names());
}

#[test]
#[ignore = "a program that other tests of this file start"]
fn client_compares_both_doors() {
    let Some(words) = client::arguments() else { return };
    let [ours, model, socket, first, last] = &words[..] else { panic!("{words:?}") };
    let mut peer = Peer(BufReader::new(UnixStream::connect(socket).unwrap()));
    for seed in first.parse().unwrap()..last.parse().unwrap() {
        compare_seed(ours.as_ref(), model.as_ref(), &mut peer, seed);
    }
    for seed in first.parse().unwrap()..last.parse().unwrap() {
        if seed % 8 == 0 {
            run_concurrently(ours.as_ref(), &mut peer, seed);
        }
    }
}

fn compare_seeds(name: &str, seeds: std::ops::Range<u64>, limit: Duration) {
    if !can_mount() {
        return;
    }
    let place = MountedPool::create(name);
    let socket = place.output().with_extension("socket");
    let server = Server::start(InProcess::new(&place.fs), &socket);
    let (ours, model, output) = (place.mountpoint(), place.model_dir(), place.output());
    let paths = [&ours, &model, &socket].map(|path| path.to_str().unwrap().to_owned());
    let words = [&paths[0], &paths[1], &paths[2], &seeds.start.to_string(), &seeds.end.to_string()];
    let words = words.map(|word| &word[..]);
    client::run_test("coherence::client_compares_both_doors", &words, limit, &output);
    drop(server);
    place.export_and_verify();
}

#[test]
fn mount_and_in_process_client_stay_coherent() {
    compare_seeds("coherence", 0..1000, Duration::from_mins(15));
}

#[test]
#[ignore = "takes minutes"]
fn mount_and_in_process_client_stay_coherent_long() {
    compare_seeds("coherence-long", 1000..10_000, Duration::from_hours(1));
}

#[test]
#[ignore = "a program that another test starts"]
fn client_uses_two_mounts() {
    let Some(words) = client::arguments() else { return };
    let dirs = [Path::new(&words[0]), Path::new(&words[1])];
    std::thread::scope(|threads| {
        for (seed, dir) in (1..).zip(dirs) {
            threads.spawn(move || {
                let mut random = Random(seed);
                for _ in 0..1500 {
                    let _ = Step::roll(&mut random).apply_to_dir(dir);
                    let _ = fs::read(dir.join("f0"));
                }
            });
        }
    });
    // a mount does not wait for another: the last changes may be on their way
    let last = Instant::now() + HANDLING;
    while look_up_all(dirs[0]) != look_up_all(dirs[1]) {
        assert!(Instant::now() < last, "the mounts differ");
        std::thread::yield_now();
    }
    assert_eq!(summary(dirs[0]), summary(dirs[1]));
}

#[test]
fn two_mounts_change_the_same_files() {
    if !can_mount() {
        return;
    }
    let place = MountedPool::create("coherence-two");
    let other = place.output().with_extension("other");
    let allow_other = rustix::process::geteuid().is_root();
    let options = MountOptions { allow_other, ..MountOptions::default() };
    let (mut second, _) =
        fuse::mount_filesystem(&place.fs, vfs::DoorId::new_unique(), &other, &options).unwrap();
    let words = [place.mountpoint(), other].map(|path| path.to_str().unwrap().to_owned());
    let words = [&words[0][..], &words[1][..]];
    let limit = Duration::from_mins(1);
    client::run_test("coherence::client_uses_two_mounts", &words, limit, &place.output());
    assert!(second.unmount(), "it is in use");
    drop(second);
    place.export_and_verify();
}

#[test]
#[ignore = "a program that another test starts"]
fn client_maps_while_others_write() {
    let Some(words) = client::arguments() else { return };
    let [dir, socket] = &words[..] else { panic!("{words:?}") };
    let mut peer = Peer(BufReader::new(UnixStream::connect(socket).unwrap()));
    let file = Path::new(dir).join("f0");
    fs::write(&file, vec![1; 64 << 10]).unwrap();
    let open = OpenOptions::new().read(true).write(true).open(&file).unwrap();
    let mut mapping = Mapping::new(&open, 64 << 10).unwrap();
    let mut random = Random(7);
    for round in 0..60_u8 {
        // dirty pages, which the kernel writes out within the invalidation
        mapping.write(usize::from(round % 8) * 8192, &[round; 100]);
        let write = loop {
            let state = random.0;
            let step = Step::roll(&mut random);
            if matches!(&step, Step::Append { path, .. } if path == "f0") {
                break state;
            }
        };
        assert_eq!(peer.ask(&format!("STEP {write}")), "ok");
        let mut found = [0; 100];
        open.read_exact_at(&mut found, u64::from(round % 8) * 8192).unwrap();
        assert_eq!(found, [round; 100]);
    }
    mapping.sync().unwrap();
    drop(mapping);
    let wanted = fs::read(&file).unwrap();
    assert!(wanted.len() > 64 << 10);
    let tree = peer.ask("TREE");
    assert!(tree.contains(&hash_of(&wanted).to_string()), "{tree}");
}

#[test]
fn dirty_mapped_pages_block_no_invalidation() {
    if !can_mount() {
        return;
    }
    let place = MountedPool::create("coherence-mapped");
    let socket = place.output().with_extension("socket");
    let server = Server::start(InProcess::new(&place.fs), &socket);
    let words = [place.mountpoint(), socket].map(|path| path.to_str().unwrap().to_owned());
    let words = [&words[0][..], &words[1][..]];
    let limit = Duration::from_mins(1);
    client::run_test("coherence::client_maps_while_others_write", &words, limit, &place.output());
    drop(server);
    place.export_and_verify();
}

#[test]
#[ignore = "a program that another test starts"]
fn client_sees_changes_after_lost_ones() {
    let Some(words) = client::arguments() else { return };
    let [dir, socket] = &words[..] else { panic!("{words:?}") };
    let mut peer = Peer(BufReader::new(UnixStream::connect(socket).unwrap()));
    let dir = Path::new(dir);
    fs::create_dir_all(dir.join("a/c")).unwrap();
    for name in ["f0", "a/f1", "a/c/f2"] {
        fs::write(dir.join(name), name).unwrap();
    }
    // everything is in the kernel's cache, also missing names
    let before = summary(dir);
    assert!(fs::metadata(dir.join("a/new")).is_err());
    assert_eq!(peer.ask("WAIT"), "done");
    assert_eq!(fs::read(dir.join("a/new")).unwrap(), b"nnn");
    assert_eq!(fs::read(dir.join("f0")).unwrap(), b"nnnnn");
    assert_eq!(fs::read(dir.join("a/c/f2")).unwrap(), [b'n'; 100]);
    assert!(fs::metadata(dir.join("a/f1")).is_err());
    assert_ne!(summary(dir), before);
    assert_eq!(format!("{:?}", summary(dir)), peer.ask("TREE"));
}

#[test]
fn mount_recovers_from_lost_changes() {
    if !can_mount() {
        return;
    }
    let place = MountedPool::create("coherence-lost");
    let socket = place.output().with_extension("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let changing = InProcess::new(&place.fs);
    let mount = place.mount.as_ref().unwrap().1.door();
    let address = socket.to_str().unwrap().to_owned();
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        if lines.next().is_none() {
            return;
        }
        changing.change_unheard(mount);
        writeln!(stream, "done").unwrap();
        serve(&changing, &stream);
    });
    let server = Server { address: address.clone(), thread: Some(thread) };
    let dir = place.mountpoint();
    let words = [dir.to_str().unwrap(), &address];
    let limit = Duration::from_mins(1);
    let name = "coherence::client_sees_changes_after_lost_ones";
    client::run_test(name, &words, limit, &place.output());
    drop(server);
    place.export_and_verify();
}
