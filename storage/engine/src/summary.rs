//! Describes a pool without reading its datasets.

mod vdevs;

use ondisk::feature::FEATURES;
use ondisk::label::{Bias, VdevConfig};
use spa::{Candidate, LabeledDevice};

pub(crate) use vdevs::{
    newest_sibling_txg, top_vdevs, truncation, unavailable_vdev, unavailable_vdevs, vdev_name,
};

use crate::{Event, RescuePool, Result};

/// A pool that was found.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct PoolSummary {
    /// Its name.
    pub name: String,
    /// Its guid.
    pub guid: u64,
    /// "exported", "active" (in use when it was last written), "destroyed".
    pub state: String,
    /// Its version: 1 to 28, or 5000 for feature flags.
    pub version: u64,
    /// The newest txg, or the requested one.
    pub txg: u64,
    /// When that was written, seconds since 1970.
    pub time: u64,
    /// The last host that had it imported.
    pub host: Option<String>,
    /// The administrator's comment.
    pub comment: Option<String>,
    /// Bytes of its vdevs, parity included.
    pub size: u64,
    /// Bytes allocated, parity included; none where that cannot be read.
    pub allocated: Option<u64>,
    /// Whether it can be read, at least in part.
    pub readable: bool,
    /// Whether some of it is lost, as vdevs lack more devices than they can do without.
    pub has_missing_vdevs: bool,
    /// Why it cannot be read.
    pub reason: Option<String>,
    /// Why it can be read only, and not be changed, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only_reason: Option<String>,
    /// The exit status of commands that try to.
    pub status: u8,
    /// Other problems.
    pub warnings: Vec<String>,
    /// Its vdevs.
    pub vdevs: Vec<Vdev>,
    /// Its hot spares.
    pub spares: Vec<Vdev>,
    /// Its read caches.
    pub caches: Vec<Vdev>,
    /// Devices whose label names the pool, but which are no longer part of it.
    pub former_devices: Vec<String>,
    /// Its features.
    pub features: Vec<Feature>,
    /// The uberblocks that stand, newest first.
    pub uberblocks: Vec<RewindPoint>,
    /// The checkpoint, if it has one.
    pub checkpoint: Option<RewindPoint>,
}

/// A state of the pool that can be gone back to.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct RewindPoint {
    /// Its transaction group.
    pub txg: u64,
    /// When it was written, seconds since 1970.
    pub time: u64,
}

/// A vdev and those below it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Vdev {
    /// Its name in `zpool status`: "raidz2-0"; of a device the last part of its path.
    pub name: String,
    /// "disk", "file", "mirror", "raidz", "draid", "replacing", "spare", "indirect", ...
    pub kind: String,
    /// "log", "special" or "dedup"; none for common ones.
    pub class: Option<String>,
    /// Its guid.
    pub guid: u64,
    /// How it is.
    pub state: VdevState,
    /// The path by which the pool knows it.
    pub path: Option<String>,
    /// Where it was found.
    pub found: Option<String>,
    /// Bytes for data, of top-level vdevs; of devices found their size.
    pub size: Option<u64>,
    /// log2 of the smallest write, of top-level vdevs.
    pub ashift: Option<u64>,
    /// Of a stale device the newest transaction group that it knows.
    pub synced: Option<u64>,
    /// Its children.
    pub children: Vec<Self>,
}

/// How a vdev is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum VdevState {
    /// It is all there.
    Online,
    /// Something of it is missing, and it can do without.
    Degraded,
    /// It is missing, or lacks too many children.
    Missing,
    /// It is outdated: its data is older than that of the others.
    Stale,
    /// Its image is too short.
    Truncated,
    /// It was removed, and its blocks were moved.
    Removed,
}

impl std::fmt::Display for VdevState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Online => "online",
            Self::Degraded => "degraded",
            Self::Missing => "missing",
            Self::Stale => "stale",
            Self::Truncated => "truncated",
            Self::Removed => "removed",
        })
    }
}

/// A feature of a pool.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Feature {
    /// Its short name.
    pub name: String,
    /// Its guid: organization and name.
    pub guid: String,
    /// How many things use it; 0: it is enabled only.
    pub uses: u64,
    /// Whether the pool can be read without knowing it.
    pub read_only_compatible: bool,
    /// Whether this program knows it.
    pub known: bool,
}

/// A device that is a spare or a cache of some pool.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct AuxiliarySummary {
    /// Where it was found.
    pub path: String,
    /// "spare" or "cache".
    pub kind: String,
    /// Its guid.
    pub guid: u64,
}

pub(crate) fn summarize_found_auxiliary(labelled: &LabeledDevice) -> AuxiliarySummary {
    AuxiliarySummary {
        path: labelled.device.name().to_owned(),
        kind: labelled.config.pool.state.to_string(),
        guid: labelled.guid().get(),
    }
}

/// Describes a pool, with the result of opening it.
pub(crate) fn summarize_pool(
    candidate: &Candidate,
    others: &[LabeledDevice],
    opened: &Result<RescuePool>,
) -> PoolSummary {
    let pool = opened.as_ref().ok().map(RescuePool::spa);
    let failure = opened.as_ref().err();
    let label = candidate.config().map(|config| &config.pool);
    let mut trees = top_vdevs(candidate, pool);
    if let Some(pool) = pool {
        for top in &mut trees {
            top.bias = spa::capacity::allocation_bias(pool, top);
        }
    }
    let states: Vec<RewindPoint> = candidate.uberblocks().into_iter().map(rewind_point).collect();
    let now =
        pool.map_or_else(|| states.first().cloned(), |pool| Some(rewind_point(pool.uberblock())));
    let space = pool.and_then(|pool| pool.vdev_space().ok());
    let has_log = |top: &VdevConfig| top.is_log || top.bias == Some(Bias::Log);
    PoolSummary {
        name: candidate.name().to_owned(),
        guid: candidate.guid.get(),
        state: label.map_or_else(String::new, |label| label.state.to_string()),
        version: pool.map_or_else(
            || label.map_or(0, |label| label.version),
            |pool| pool.uberblock().version,
        ),
        txg: now.as_ref().map_or(0, |state| state.txg),
        time: now.as_ref().map_or(0, |state| state.time),
        host: label.and_then(|label| label.host_name.clone()),
        comment: label.and_then(|label| label.comment.clone()),
        size: trees.iter().filter(|top| !has_log(top)).filter_map(|top| top.asize).sum(),
        allocated: space.map(|tops| tops.iter().map(|top| top.allocated).sum()),
        readable: failure.is_none(),
        has_missing_vdevs: opened.as_ref().is_ok_and(|pool| {
            pool.events().iter().any(|event| matches!(event, Event::MissingVdev { .. }))
        }),
        reason: failure.map(ToString::to_string),
        read_only_reason: pool.and_then(spa::Pool::read_only_reason),
        status: failure.map_or(0, crate::Error::exit_status),
        warnings: opened.as_ref().map_or_else(
            |_| Vec::new(),
            |pool| pool.events().iter().map(Event::to_string).collect(),
        ),
        vdevs: trees.iter().map(|tree| vdevs::summarize_vdev(tree, candidate, true)).collect(),
        spares: auxiliary_vdevs(pool, "spares", others),
        caches: auxiliary_vdevs(pool, "l2cache", others),
        former_devices: find_former_devices(candidate, &trees),
        features: pool.map_or_else(Vec::new, features),
        uberblocks: states,
        checkpoint: pool
            .and_then(|pool| pool.checkpoint().ok().flatten())
            .as_ref()
            .map(rewind_point),
    }
}

fn rewind_point(uberblock: &ondisk::uberblock::Uberblock) -> RewindPoint {
    let txg = match uberblock.checkpoint_txg.get() {
        0 => uberblock.txg.get(),
        checkpoint => checkpoint,
    };
    RewindPoint { txg, time: uberblock.timestamp }
}

/// The devices that an entry of the pool's directory lists: spares, caches.
fn auxiliary_vdevs(pool: Option<&spa::Pool>, entry: &str, others: &[LabeledDevice]) -> Vec<Vdev> {
    let list = pool.and_then(|pool| pool.directory().nvlist(entry).ok().flatten());
    let Some(list) = list else { return Vec::new() };
    let configs = list.nvlists(entry).iter().filter_map(|each| VdevConfig::parse(each).ok());
    configs.map(|config| vdevs::summarize_auxiliary(&config, others)).collect()
}

fn find_former_devices(candidate: &Candidate, trees: &[VdevConfig]) -> Vec<String> {
    let known = |device: &&LabeledDevice| {
        let guid = device.guid();
        trees.iter().any(|tree| tree.leaves().any(|leaf| leaf.guid == guid))
    };
    let strangers = candidate.devices.iter().filter(|device| !known(device));
    strangers.map(|device| device.device.name().to_owned()).collect()
}

fn features(pool: &spa::Pool) -> Vec<Feature> {
    let plain = |feature: &spa::FeatureState| {
        let known = FEATURES.iter().find(|known| known.guid == feature.guid);
        let name = feature.guid.split_once(':').map_or(&*feature.guid, |(_, name)| name);
        Feature {
            name: known.map_or(name, |known| known.name).to_owned(),
            guid: feature.guid.clone(),
            uses: feature.refcount,
            read_only_compatible: feature.read_only_compatible,
            known: feature.is_supported,
        }
    };
    pool.features().iter().map(plain).collect()
}
