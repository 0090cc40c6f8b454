//! Serves the volumes of a new pool on files, to try initiators and to measure them.
//!
//! `cargo run -p iscsi --example serve_volume -- FOLDER ADDRESS MEGABYTES BLOCK [USER SECRET [USER SECRET]]` makes a pool on a
//! file in the folder, and serves volumes of it as LUN 0 and 1 of two targets until it is killed. BLOCK is the size of a
//! logical block: 512, with 16 KiB in the pool, or 4096, with 4 KiB. With a user and a secret initiators of the second
//! target prove who they are; with another user and secret, the target does too.

use std::collections::BTreeMap;
use std::error::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use engine::pool::{
    Environment, MemoryBudget, NewDataset, NewPool, NewVdev, Pool, VdevLayout, VdevRole,
};
use iscsi::{Chap, ChapUser, Discovery, Server, ServerOptions, Target};
use lun::{LunOptions, OpenUnit, Reservations, VolumeGuids, VolumeLun};

type Outcome<T> = Result<T, Box<dyn Error>>;

fn environment() -> Environment {
    Environment {
        random: Arc::new(|bytes| {
            rustix::rand::getrandom(bytes, rustix::rand::GetRandomFlags::empty())
                .expect("random bytes");
        }),
        now: Arc::new(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            (since.as_secs(), since.subsec_nanos())
        }),
        workers: 2,
        max_dirty: 256 << 20,
        cache: MemoryBudget::default(),
        host: (0x1234, "here".to_owned()),
    }
}

fn create_pool(folder: &Path, megabytes: u64) -> Outcome<Pool> {
    let drive = folder.join("drive");
    std::fs::File::create(&drive)?.set_len(megabytes << 22)?;
    let vdevs =
        vec![NewVdev { layout: VdevLayout::Single, drives: vec![drive], role: VdevRole::Data }];
    let (name, properties) = ("tank".to_owned(), Vec::new());
    let new = NewPool { name, vdevs, ashift: None, properties, force: true };
    Ok(engine::pool::create(&new, &environment())?)
}

fn unit(pool: &Pool, name: &str, size: u64, block_size: u32) -> Outcome<OpenUnit> {
    let new = NewDataset { name: name.to_owned(), properties: Vec::new() };
    let stored = if block_size == 4096 { 4096 } else { 16 << 10 };
    pool.volumes().create(&new, size, stored, true)?;
    let options = LunOptions { block_size, read_only: false };
    let unit = VolumeLun::open(pool, name, options, Reservations::default())?;
    let guids = VolumeGuids { pool: pool.guid(), volume: unit.guid() };
    Ok(OpenUnit { lun: Arc::new(unit), guids, volume: name.to_owned() })
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, address, megabytes, block_size, users @ ..] = &arguments[..] else {
        return Err("FOLDER ADDRESS MEGABYTES BLOCK [USER SECRET [USER SECRET]]".into());
    };
    let (address, megabytes): (SocketAddr, u64) = (address.parse()?, megabytes.parse()?);
    let block_size: u32 = block_size.parse()?;
    let users = users
        .as_chunks::<2>()
        .0
        .iter()
        .map(|[name, secret]| ChapUser::new(name, secret.as_bytes()))
        .collect::<Result<Vec<_>, _>>()?;
    let mut users = users.into_iter();
    let chap = users.next().map(|user| Chap::new(user, users.next())).transpose()?;
    let pool = create_pool(Path::new(folder), megabytes)?;
    let first = unit(&pool, "tank/first", megabytes << 20, block_size)?;
    let second = unit(&pool, "tank/second", 64 << 20, block_size)?;
    let target = |name: &str, unit: &OpenUnit, chap| Target {
        name: format!("iqn.2026-01.org.example:{name}"),
        alias: String::new(),
        networks: vec!["127.0.0.0/8".parse().expect("a network")],
        initiators: Vec::new(),
        chap,
        units: BTreeMap::from([(0, unit.clone()), (1, second.clone())]),
    };
    let targets = vec![target("disk", &first, None), target("chap", &first, chap)];
    let options = ServerOptions { listen: vec![address], ..ServerOptions::default() };
    let server = Server::start(
        &options,
        targets,
        Discovery::Open,
        Arc::new(|failed| println!("{failed:?}")),
    )?;
    println!("serving on {:?}", server.addresses());
    pool.background().run_txg_sync(Duration::from_secs(5), &AtomicBool::new(false))?;
    Ok(())
}
