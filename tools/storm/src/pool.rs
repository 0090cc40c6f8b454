//! The pools that workloads run on.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use device::{Device, MemoryDevice};
use engine::pool::{
    CreateOptions, Environment, ImportOptions, NewPool, NewVdev, Pool, Rewind, VdevRole,
    create_on_devices_with, import_devices_with,
};
use sim::{DiskArray, Random};

use crate::model::Model;
use crate::op::{FileOp, Op};

/// How the drives of a pool stand together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the field's name of it")]
pub enum PoolLayout {
    Single,
    Mirror,
    Raidz1,
    /// A raidz1 without its last drive.
    Degraded,
    /// A single drive, in a pool that has no features.
    Legacy,
}

/// The pool's name.
pub(crate) const POOL: &str = "tank";
/// Bytes of a drive.
const DEVICE_SIZE: u64 = 64 << 20;
/// When the pool was made, in seconds since 1970.
pub(crate) const POOL_CREATED_AT: i64 = 1_700_000_000;

/// A pool before a workload.
#[derive(Debug)]
pub struct BasePool {
    pub(crate) devices: Vec<MemoryDevice>,
    pub(crate) model: Model,
    /// The time, in seconds since 1970.
    pub(crate) now: i64,
}

impl PoolLayout {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Single, Self::Mirror, Self::Raidz1, Self::Degraded, Self::Legacy];

    fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Mirror => "mirror",
            Self::Raidz1 => "raidz1",
            Self::Degraded => "degraded",
            Self::Legacy => "plain",
        }
    }

    fn device_count(self) -> usize {
        match self {
            Self::Single | Self::Legacy => 1,
            Self::Mirror => 2,
            Self::Raidz1 | Self::Degraded => 3,
        }
    }

    fn vdev(self) -> NewVdev {
        let shape = match self {
            Self::Single | Self::Legacy => engine::pool::VdevLayout::Single,
            Self::Mirror => engine::pool::VdevLayout::Mirror,
            Self::Raidz1 | Self::Degraded => engine::pool::VdevLayout::Raidz(1),
        };
        let drives = (0..self.device_count()).map(|index| PathBuf::from(format!("/disk{index}")));
        NewVdev { layout: shape, drives: drives.collect(), role: VdevRole::Data }
    }

    /// Makes a pool on blank drives, with a few files.
    pub fn create_base(self) -> Result<BasePool, String> {
        let storm = DiskArray::new(&vec![DEVICE_SIZE; self.device_count()]);
        let held = self.create_pool(&storm, 0)?;
        let mut model = Model::new(POOL, POOL_CREATED_AT);
        let mut now = POOL_CREATED_AT;
        for op in initial_ops() {
            now += 1;
            op.apply_to_model(&mut model, now);
            op.apply_to_pool(&held, now)?;
        }
        drop(held);
        let mut drives: Vec<_> = storm.disks().iter().map(|disk| disk.memory()).collect();
        if self == Self::Degraded {
            drives.pop();
        }
        Ok(BasePool { devices: drives, model, now })
    }

    /// Makes a pool on the drives of a storm.
    pub(crate) fn create_pool(self, storm: &DiskArray, seed: u64) -> Result<Pool, String> {
        let property = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let (compression, features) =
            if self == Self::Legacy { ("lzjb", "legacy") } else { ("lz4", "off") };
        let wishes = CreateOptions::parse(&[property("compatibility", features)], false);
        let new = NewPool {
            name: POOL.to_owned(),
            vdevs: vec![self.vdev()],
            // raidz leaves gaps with small sectors only where blocks are small
            ashift: Some(if self == Self::Mirror { 12 } else { 9 }),
            properties: vec![property("recordsize", "4096"), property("compression", compression)],
            force: false,
        };
        let made = wishes.and_then(|all| {
            create_on_devices_with(&new, all, &storm.devices(), &environment(seed))
        });
        made.map_err(|error| error.to_string())
    }
}

/// The content of a pool before a workload.
fn initial_ops() -> Vec<Op> {
    let path = |path: &str| path.to_owned();
    let write = |to: &str, length, seed| FileOp::Write { path: path(to), offset: 0, length, seed };
    let acts = [
        FileOp::Create { path: path("f") },
        write("f", 30_000, 1),
        FileOp::Mkdir { path: path("d") },
        FileOp::Create { path: path("d/a") },
        write("d/a", 700, 2),
        FileOp::Mkdir { path: path("e") },
        FileOp::Link { path: path("f"), to: path("d/b") },
    ];
    let mut ops: Vec<Op> =
        acts.into_iter().map(|act| Op::File { dataset: POOL.to_owned(), op: act }).collect();
    ops.push(Op::Sync);
    ops
}

/// Takes the pool on some drives over.
pub(crate) fn import_pool(devices: &[Arc<dyn Device>], seed: u64) -> Result<Pool, String> {
    import_rewound_pool(devices, Rewind::No, seed)
}

/// The same, unchanged.
pub(crate) fn import_rewound_pool(
    devices: &[Arc<dyn Device>],
    rewind: Rewind,
    seed: u64,
) -> Result<Pool, String> {
    let how = ImportOptions { rewind, ..ImportOptions::default() };
    let pool = import_devices_with(devices, POOL, &how, &environment(seed))
        .map_err(|error| error.to_string())?;
    match pool.datasets().take_replay_failures().first() {
        Some(log) => Err(log.to_string()),
        None => Ok(pool),
    }
}

/// An environment, from a seed. One thread alone works on a sync, so that a run is the same
/// each time.
pub(crate) fn environment(seed: u64) -> Environment {
    let chance = Mutex::new(Random::new(seed));
    Environment {
        random: Arc::new(move |bytes| {
            let mut chance = chance.lock().unwrap_or_else(PoisonError::into_inner);
            for part in bytes.chunks_mut(8) {
                part.copy_from_slice(&chance.next_u64().to_le_bytes()[..part.len()]);
            }
        }),
        now: Arc::new(|| (POOL_CREATED_AT.unsigned_abs(), 0)),
        workers: 1,
        max_dirty: 64 << 20,
        cache: engine::pool::MemoryBudget::default(),
        host: (0x1234, "here".to_owned()),
    }
}

impl fmt::Display for PoolLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for PoolLayout {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|shape| shape.name() == text);
        found.ok_or_else(|| format!("'{text}' is not a shape"))
    }
}
