//! Makes a pool on sparse files, or takes over the one that is there, and mounts its root file
//! system, to be read and written, until standard input ends.
//!
//! ```text
//! live FOLDER MOUNTPOINT [LAYOUT FILES MIB [PROPERTY=VALUE ...]]
//! ```

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use engine::held::{Held, Memory, NewPool, NewVdev, Purpose, Shape, World, create, hold};
use fuse::LiveOptions;
use vfs::{Live, Time};

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn world() -> World {
    World {
        random: Arc::new(|bytes| {
            let file = std::fs::File::open("/dev/urandom");
            file.and_then(|mut file| file.read_exact(bytes)).expect("random bytes");
        }),
        now: Arc::new(|| (now().as_secs(), now().subsec_nanos())),
        workers: std::thread::available_parallelism().map_or(2, usize::from),
        dirty: 768 << 20,
        cache: Memory::default(),
        host: (0x1234, "here".to_owned()),
    }
}

fn take(folder: &Path, rest: &[String]) -> Held {
    let [shape, count, size, properties @ ..] = rest else {
        return hold(&[folder.to_owned()], "tank", true, &world()).expect("a pool");
    };
    let shape = match shape.as_str() {
        "mirror" => Shape::Mirror,
        "raidz1" => Shape::Raidz(1),
        "raidz2" => Shape::Raidz(2),
        _ => Shape::Single,
    };
    let count: usize = count.parse().expect("a count");
    let size: u64 = size.parse().expect("a size in MiB");
    let paths = (0..count).map(|index| folder.join(format!("d{index}.img")));
    let drives: Vec<PathBuf> = paths.collect();
    for path in &drives {
        let file = std::fs::File::create(path).expect("a file");
        file.set_len(size << 20).expect("room");
    }
    let pairs = properties.iter().filter_map(|pair| pair.split_once('='));
    let new = NewPool {
        name: "tank".to_owned(),
        vdevs: vec![NewVdev { shape, drives, purpose: Purpose::Data }],
        ashift: None,
        properties: pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        force: true,
    };
    create(&new, &world()).expect("a pool")
}

fn main() {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let [folder, dir, rest @ ..] = given.as_slice() else { panic!("live FOLDER MOUNTPOINT ...") };
    let held = take(Path::new(folder), rest);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| held.run(Duration::from_secs(5), &stop));
        let clock = || Time {
            seconds: i64::try_from(now().as_secs()).unwrap_or(0),
            nanoseconds: now().subsec_nanos(),
        };
        let live = Live::open(&held, "tank", clock).expect("a file system");
        let options = LiveOptions { allow_other: true, ..LiveOptions::default() };
        let mut mounted = fuse::mount_live(live, Path::new(dir), &options).expect("a mount");
        println!("mounted");
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        mounted.unmount();
        let _ = mounted.wait(Duration::from_mins(1));
        stop.store(true, Ordering::Release);
        if let Err(why) = held.sync() {
            println!("{why}");
        }
        writing.join().expect("no panic").unwrap_or_else(|why| println!("{why}"));
    });
    match held.export() {
        Ok(()) => println!("exported"),
        Err(why) => println!("{why}"),
    }
}
