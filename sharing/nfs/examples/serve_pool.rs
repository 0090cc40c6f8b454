//! Serves the file systems of a pool in memory over NFS, for clients to try.
//!
//! ```text
//! cargo run -p nfs --example serve_pool -- 127.0.0.1:12049        a lease of 15 s
//! cargo run -p nfs --example serve_pool -- 127.0.0.1:12049 45     a lease of 45 s
//! mount -t nfs -o vers=4.2,port=12049 127.0.0.1:/tank /mnt
//! mount -t nfs -o vers=3,nolock,proto=tcp,port=12049,mountproto=tcp,mountport=12049 127.0.0.1:/tank /mnt
//! ```
//!
//! It obeys lines of standard input: `restart` stops the server, imports the pool again and starts a new server;
//! `status` prints the state; `quit`, or the end of the input, ends it. `ready` is printed when it serves.
//! `unlink FILE`, `rename FROM TO`, `link FILE NEW` and `chmod MODE FILE` do that in /tank as a program on this machine
//! would, and print `done`.

use std::io::{BufRead, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use engine::pool::{
    Environment, MemoryBudget, NewDataset, NewPool, NewVdev, Pool, VdevLayout, VdevRole,
};
use nfs::{ClientRule, Export, Secret, Server, ServerOptions, Squash};
use posix::{Credentials, Ino, RenameMode, RenameRequest, SetAttributes, Time};
use vfs::{Context, DoorId, DynFileSystem, PoolFileSystem};

const DRIVE_BYTES: u64 = 1 << 30;
const DATASETS: [&str; 2] = ["tank", "tank/child"];

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    Time {
        seconds: i64::try_from(since.as_secs()).expect("a time in 64 bits"),
        nanoseconds: since.subsec_nanos(),
    }
}

fn environment() -> Environment {
    Environment {
        random: Arc::new(|bytes| {
            let flags = rustix::rand::GetRandomFlags::empty();
            rustix::rand::getrandom(bytes, flags).expect("random numbers");
        }),
        now: Arc::new(|| (now().seconds.cast_unsigned(), now().nanoseconds)),
        workers: 2,
        max_dirty: 64 << 20,
        cache: MemoryBudget::default(),
        host: (0x1234, "here".to_owned()),
    }
}

fn create_pool(drive: &Arc<dyn device::Device>) -> Pool {
    let drives = vec![PathBuf::from("drive")];
    let vdevs = vec![NewVdev { layout: VdevLayout::Single, drives, role: VdevRole::Data }];
    let properties = [("acltype", "nfsv4"), ("xattr", "sa")];
    let properties =
        properties.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let new = NewPool { name: "tank".to_owned(), vdevs, ashift: None, properties, force: false };
    let drives = [Arc::clone(drive)];
    let pool = engine::pool::create_on_devices(&new, &drives, &environment()).expect("a pool");
    let child = NewDataset { name: "tank/child".to_owned(), properties: Vec::new() };
    pool.datasets().create_filesystem(&child).expect("a file system");
    pool
}

/// Serves the pool. Returns its topmost file system as well.
fn serve(
    pool: &Pool,
    (listen, lease): (SocketAddr, Duration),
    clients: &Path,
) -> (Server, Arc<DynFileSystem>) {
    let secret = Secret::new([7; 32]);
    let client_list = Some(clients.to_owned());
    let options =
        ServerOptions { listen: vec![listen], lease, client_list, ..ServerOptions::new(secret) };
    let exports = DATASETS.map(|dataset| {
        let filesystem = PoolFileSystem::open(pool, dataset, now).expect("a file system");
        let filesystem: Arc<DynFileSystem> = Arc::new(filesystem);
        let network = "0.0.0.0/0".parse().expect("a network");
        let rule = ClientRule { squash: Squash::Nobody, ..ClientRule::new(network) };
        let (path, door) = (format!("/{dataset}"), DoorId::new_unique());
        Export { path, filesystem, door, rules: vec![rule] }
    });
    let top = Arc::clone(&exports[0].filesystem);
    (Server::start(&options, exports.to_vec()).expect("a server"), top)
}

/// The directory of a path in /tank, and the name in it.
fn find<'a>(fs: &DynFileSystem, context: &Context<'_>, path: &'a str) -> Option<(Ino, &'a [u8])> {
    let (dirs, name) = path.strip_prefix("/tank/")?.rsplit_once('/')?;
    let mut dir = fs.root().ok()?;
    for part in dirs.split('/') {
        dir = fs.lookup(context, dir, part.as_bytes()).ok()?.ino;
    }
    Some((dir, name.as_bytes()))
}

/// Changes a file as a local program.
fn change_file(fs: &DynFileSystem, words: &[&str]) -> Option<vfs::Result<()>> {
    let context = Context::new(&Credentials::ROOT, DoorId::new_unique());
    let place = |path| find(fs, &context, path);
    let file = |path| {
        let (dir, name) = place(path)?;
        Some(fs.lookup(&context, dir, name).ok()?.ino)
    };
    Some(match words {
        ["unlink", path] => {
            let (dir, name) = place(path)?;
            fs.unlink(&context, dir, name)
        }
        ["rename", from, to] => {
            let ((from_dir, from_name), (to_dir, to_name)) = (place(from)?, place(to)?);
            let mode = RenameMode::Replace;
            fs.rename(&context, &RenameRequest { from_dir, from_name, to_dir, to_name, mode })
        }
        ["link", path, new] => {
            let (dir, name) = place(new)?;
            fs.link(&context, file(path)?, dir, name).map(drop)
        }
        ["chmod", mode, path] => {
            let mode = Some(u32::from_str_radix(mode, 8).ok()?);
            let set = SetAttributes { mode, ..SetAttributes::default() };
            fs.set_attributes(&context, file(path)?, &set).map(drop)
        }
        _ => return None,
    })
}

fn say(text: &str) {
    println!("{text}");
    std::io::stdout().flush().expect("standard output");
}

fn main() {
    let listen = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:12049".to_owned());
    let listen: SocketAddr = listen.parse().expect("ADDRESS:PORT");
    let lease = std::env::args().nth(2).map_or(15, |lease| lease.parse().expect("seconds"));
    let listen = (listen, Duration::from_secs(lease));
    let clients = std::env::temp_dir().join(format!("nfs-clients-{}", std::process::id()));
    let drive: Arc<dyn device::Device> =
        Arc::new(device::MemoryDevice::zeroed("drive", DRIVE_BYTES));
    let mut pool = create_pool(&drive);
    let (served, mut top) = serve(&pool, listen, &clients);
    let mut server = Some(served);
    say("ready");
    for line in std::io::stdin().lock().lines() {
        match line.expect("standard input").trim() {
            "restart" => {
                let left = server.take().map_or(0, |server| server.stop());
                drop(top);
                assert_eq!(left, 0, "connections are left");
                pool.export().expect("an export");
                let drives = [Arc::clone(&drive)];
                let found = engine::pool::import_devices(&drives, "tank", &environment());
                pool = found.expect("the pool again");
                let served = serve(&pool, listen, &clients);
                (server, top) = (Some(served.0), served.1);
                say("ready");
            }
            "status" => say(&format!("{:#?}", server.as_ref().map(Server::status))),
            "quit" => break,
            line => {
                let words: Vec<&str> = line.split(' ').collect();
                match change_file(&*top, &words) {
                    Some(Ok(())) => say("done"),
                    Some(Err(why)) => say(&format!("failed: {why}")),
                    None => say("restart, status, quit, or a change of a file that exists"),
                }
            }
        }
    }
    drop((server, top));
    pool.export().expect("an export");
    let _ = std::fs::remove_file(clients);
}
