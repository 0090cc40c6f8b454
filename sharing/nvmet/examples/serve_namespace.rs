//! Serves the volumes of a new pool on files, to try hosts and to measure them.
//!
//! `cargo run -p nvmet --example serve_namespace -- FOLDER ADDRESS MEGABYTES BLOCK [SECRET [SECRET]]` makes a pool on a file in
//! the folder, and serves two volumes of it as `nqn.2026-01.org.example:disk` and `nqn.2026-01.org.example:chap` until it
//! is killed. BLOCK is the size of a logical block: 512, with 16 KiB in the pool,
//! or 4096, with 4 KiB. With a secret of `nvme gen-dhchap-key` hosts of the second subsystem prove who they are; with
//! another one, the controller does too. Each line of standard input is a new size of the first volume in megabytes.

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
use lun::{LunOptions, OpenUnit, Reservations, VolumeGuids, VolumeLun};
use nvmet::{DhChap, HostSecrets, Secret, Server, ServerOptions, Subsystem};

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

fn namespace(pool: &Pool, name: &str, size: u64, block_size: u32) -> Outcome<OpenUnit> {
    let new = NewDataset { name: name.to_owned(), properties: Vec::new() };
    let stored = if block_size == 4096 { 4096 } else { 16 << 10 };
    pool.volumes().create(&new, size, stored, true)?;
    let options = LunOptions { block_size, read_only: false };
    let unit = VolumeLun::open(pool, name, options, Reservations::default())?;
    let guids = VolumeGuids { pool: pool.guid(), volume: unit.guid() };
    Ok(OpenUnit { lun: Arc::new(unit), guids, volume: name.to_owned() })
}

/// Resizes the first volume to each size that standard input has.
fn follow_sizes(pool: &Pool) -> Outcome<()> {
    for line in std::io::stdin().lines() {
        let megabytes: u64 = line?.trim().parse()?;
        let (volume, _hold) = pool.volumes().open("tank/first")?;
        volume.resize(megabytes << 20)?;
        println!("tank/first has {megabytes} MiB");
    }
    Ok(())
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, address, megabytes, block_size, secrets @ ..] = &arguments[..] else {
        return Err("FOLDER ADDRESS MEGABYTES BLOCK [SECRET [SECRET]]".into());
    };
    let (address, megabytes): (SocketAddr, u64) = (address.parse()?, megabytes.parse()?);
    let block_size: u32 = block_size.parse()?;
    let secrets = secrets.iter().map(|text| Secret::parse(text));
    let mut secrets = secrets.collect::<Result<Vec<_>, _>>()?.into_iter();
    let hosts = secrets.next().map(HostSecrets::Shared);
    let authentication = hosts.map(|hosts| DhChap::new(hosts, secrets.next())).transpose()?;
    let pool = create_pool(Path::new(folder), megabytes)?;
    let first = namespace(&pool, "tank/first", megabytes << 20, block_size)?;
    let second = namespace(&pool, "tank/second", 64 << 20, block_size)?;
    let subsystem = |name: &str, namespaces, authentication| Subsystem {
        name: format!("nqn.2026-01.org.example:{name}"),
        networks: vec!["127.0.0.0/8".parse().expect("a network")],
        hosts: Vec::new(),
        authentication,
        namespaces,
    };
    let subsystems = vec![
        subsystem("disk", BTreeMap::from([(1, first.clone())]), None),
        subsystem("chap", BTreeMap::from([(1, second)]), authentication),
    ];
    let options = ServerOptions { listen: vec![address], ..ServerOptions::default() };
    let report = Arc::new(|failed: &nvmet::FailedLogin| println!("{failed:?}"));
    let server = Server::start(&options, subsystems, report)?;
    println!("serving on {:?}", server.addresses());
    let resized = pool.clone();
    std::thread::spawn(move || {
        if let Err(why) = follow_sizes(&resized) {
            println!("{why}");
        }
    });
    pool.background().run_txg_sync(Duration::from_secs(5), &AtomicBool::new(false))?;
    Ok(())
}
