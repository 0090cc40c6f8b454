//! Searches for pools: from paths to openable pools.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::Device;
use ondisk::label::PoolState;
use spa::{Candidate, LabeledDevice};
use units::{Guid, Txg};

use crate::rescue::RescuePool;
use crate::summary::{self, PoolSummary};
use crate::{Error, OpenOptions, Result, event::Event};

/// The pools found at some paths.
#[derive(Debug)]
pub struct Search {
    paths: Vec<PathBuf>,
    probed: device::ProbeResult,
    candidates: Vec<Candidate>,
    auxiliary: Vec<LabeledDevice>,
}

/// Looks for pools at paths: folders, images, disks, partitions.
pub fn search(paths: &[PathBuf]) -> Search {
    Search::from_probed(paths.to_vec(), device::probe(paths))
}

/// The same; disks without a partition table are read from end to end, to find vdevs wherever they begin.
pub fn search_deep(paths: &[PathBuf]) -> Search {
    Search::from_probed(paths.to_vec(), device::probe_deep(paths))
}

/// Looks for pools on devices that are open already.
pub fn search_devices(devices: &[Arc<dyn Device>]) -> Search {
    let found = device::ProbeResult { devices: devices.to_vec(), ..device::ProbeResult::default() };
    Search::from_probed(Vec::new(), found)
}

impl Search {
    fn from_probed(paths: Vec<PathBuf>, probed: device::ProbeResult) -> Self {
        let (candidates, auxiliary) = spa::scan_devices(&probed.devices);
        Self { paths, probed, candidates, auxiliary }
    }

    /// Only destroyed pools, or only those that are not.
    pub(crate) fn filter_destroyed(mut self, destroyed: bool) -> Self {
        self.candidates.retain(|pool| {
            let newest = pool.devices.iter().max_by_key(|device| device.newest_txg());
            let state = newest.map(|device| device.config.pool.state);
            (state == Some(PoolState::Destroyed)) == destroyed
        });
        self
    }

    /// Describes every found pool, by name. Each is opened, to show whether it can be.
    pub fn summaries(&self, options: &OpenOptions) -> Vec<PoolSummary> {
        let describe = |pool| {
            summary::summarize_pool(pool, &self.auxiliary, &Self::open_candidate(pool, options))
        };
        self.candidates.iter().map(describe).collect()
    }

    /// Devices with the label of a spare or a cache: only their pools know them.
    pub fn auxiliary_devices(&self) -> Vec<summary::AuxiliarySummary> {
        self.auxiliary.iter().map(summary::summarize_found_auxiliary).collect()
    }

    /// The same with their labels.
    pub(crate) fn labelled_auxiliary(&self) -> &[LabeledDevice] {
        &self.auxiliary
    }

    /// The paths that could not be opened.
    pub fn open_errors(&self) -> Vec<Error> {
        self.probed.errors.iter().map(Error::from_device_error).collect()
    }

    /// Files and devices without a label.
    pub fn unlabelled(&self) -> Vec<String> {
        let labelled: Vec<&str> = self
            .candidates
            .iter()
            .flat_map(|pool| &pool.devices)
            .chain(&self.auxiliary)
            .map(|labelled| labelled.device.name())
            .collect();
        let names = self.probed.devices.iter().map(|device| device.name());
        let blank = names.filter(|name| {
            let parts = format!("{name} (partition ");
            !labelled.contains(name) && !labelled.iter().any(|other| other.starts_with(&parts))
        });
        blank.map(str::to_owned).collect()
    }

    /// The reason why no pool was found, if so.
    pub fn no_pool_error(&self) -> Option<Error> {
        if !self.candidates.is_empty() {
            return None;
        }
        if let Some(refused) = self.probed.errors.first() {
            return Some(Error::from_device_error(refused));
        }
        if let [path] = self.paths.as_slice()
            && path.is_dir()
            && self.probed.devices.is_empty()
        {
            return Some(Error::EmptyDirectory { path: path.display().to_string() });
        }
        Some(Error::NoPool { paths: self.display_paths() })
    }

    fn display_paths(&self) -> Vec<String> {
        self.paths.iter().map(|path| path.display().to_string()).collect()
    }

    /// Opens the pool of that name or guid.
    pub fn open(&self, wanted: &str, options: &OpenOptions) -> Result<RescuePool> {
        let candidate = self.find_candidate(wanted)?;
        if let Some(busy) = self.busy_error(candidate) {
            return Err(busy);
        }
        let mut pool = Self::open_candidate(candidate, options)?;
        let named = |path: &str| self.paths.iter().any(|own| own.to_string_lossy() == path);
        for refused in &self.probed.errors {
            let error = Error::from_device_error(refused);
            let (device::Error::Open { path, .. } | device::Error::UnsupportedType { path }) =
                refused
            else {
                continue;
            };
            if named(path) {
                pool.add_event(Event::OpenFailed { reason: error.to_string() });
            }
        }
        Ok(pool)
    }

    pub(crate) fn find_candidate(&self, wanted: &str) -> Result<&Candidate> {
        if let Some(nothing) = self.no_pool_error() {
            return Err(nothing);
        }
        let named: Vec<&Candidate> =
            self.candidates.iter().filter(|pool| pool.name() == wanted).collect();
        match named.as_slice() {
            [one] => return Ok(one),
            [] => {}
            several => {
                let guids = several.iter().map(|pool| pool.guid.get()).collect();
                return Err(Error::AmbiguousName { name: wanted.to_owned(), guids });
            }
        }
        let guid = wanted.parse().ok().map(Guid::new);
        let found = self.candidates.iter().find(|pool| Some(pool.guid) == guid);
        found.ok_or_else(|| match self.probed.errors.first() {
            Some(refused) => Error::from_device_error(refused),
            None => Error::NoSuchPool {
                name: wanted.to_owned(),
                paths: self.display_paths(),
                found: self.candidates.iter().map(|pool| format!("'{}'", pool.name())).collect(),
            },
        })
    }

    /// A device in use that is, or may well be, one of the pool's.
    fn busy_error(&self, candidate: &Candidate) -> Option<Error> {
        let lacks = summary::top_vdevs(candidate, None)
            .iter()
            .any(|tree| candidate.leaves(tree).any(|leaf| leaf.device.is_none()));
        self.probed.errors.iter().find_map(|refused| {
            let device::Error::WriteLocked { path } = refused else { return None };
            let named = self.paths.iter().any(|own| own.to_string_lossy() == *path);
            (named || lacks).then(|| Error::InUse { path: path.clone() })
        })
    }

    /// Refuses a pool of which another program has a drive open, by the path that the label remembers: a
    /// copy of that drive must not take its place. Drives of `foreign` belong to other pools now.
    pub(crate) fn check_originals_unused(
        &self,
        candidate: &Candidate,
        foreign: &[PathBuf],
    ) -> Result<()> {
        let trees = summary::top_vdevs(candidate, None);
        let leaves = trees.iter().flat_map(|tree| candidate.leaves(tree));
        let remembered: Vec<String> = leaves.map(|leaf| leaf.path).collect();
        for refused in &self.probed.errors {
            let device::Error::WriteLocked { path } = refused else { continue };
            let is_it = |leaf: &String| device::is_same_file(Path::new(leaf), Path::new(path));
            let is_foreign = foreign.iter().any(|own| device::is_same_file(own, Path::new(path)));
            if !is_foreign && remembered.iter().any(is_it) {
                return Err(Error::InUse { path: path.clone() });
            }
        }
        Ok(())
    }

    fn open_candidate(candidate: &Candidate, options: &OpenOptions) -> Result<RescuePool> {
        let opened = candidate.open(&options.to_spa());
        let opened = opened.map_err(|error| explain_error(candidate, error))?;
        let name = opened.name().to_owned();
        let usable = spa::capacity::usable_space(&opened);
        let facts = dsl::PoolInfo { name: name.clone(), usable_space: usable };
        let tree = dsl::DatasetTree::open(opened.mos().clone(), facts)
            .map_err(|error| Error::DamagedPool { pool: name, why: error.to_string() })?;
        let events = open_events(candidate, &opened);
        Ok(RescuePool::new(opened, tree, events, options))
    }
}

/// Events of a pool that could be opened.
fn open_events(candidate: &Candidate, pool: &spa::Pool) -> Vec<Event> {
    let mut events = Vec::new();
    for tree in summary::top_vdevs(candidate, Some(pool)) {
        let name = summary::vdev_name(&tree);
        if let Some(lacking) = summary::unavailable_vdev(&tree, candidate) {
            events.push(Event::MissingVdev { vdev: name, devices: lacking.missing });
            continue;
        }
        for leaf in candidate.leaves(&tree).filter(|leaf| leaf.device.is_none()) {
            events.push(Event::MissingDevice { device: leaf.path, vdev: name.clone() });
        }
    }
    for device in &candidate.devices {
        let path = device.device.name().to_owned();
        if let Some((size, wanted)) = summary::truncation(device) {
            events.push(Event::TruncatedDevice { path: path.clone(), size, required: wanted });
        }
        let newest = summary::newest_sibling_txg(candidate, device);
        let member = summary::top_vdevs(candidate, Some(pool))
            .iter()
            .any(|tree| tree.leaves().any(|leaf| leaf.guid == device.guid()));
        if member && device.newest_txg() < newest && device.newest_txg() != Txg::ZERO {
            events.push(Event::StaleDevice { path, txg: device.newest_txg().get() });
        }
    }
    events.extend(candidate.duplicates.iter().map(Event::from_duplicate));
    let newest = candidate.newest_uberblock().map_or(0, |uberblock| uberblock.txg.get());
    if pool.txg().get() < newest {
        events.push(Event::OlderTxg { txg: pool.txg().get(), newest });
    }
    events
}

/// Why a pool could not be opened, as a person wants to know it.
pub(crate) fn explain_error(candidate: &Candidate, error: spa::Error) -> Error {
    let pool = candidate.name().to_owned();
    match error {
        spa::Error::UnsupportedVersion { version } => Error::UnsupportedVersion { pool, version },
        spa::Error::UnsupportedFeatures { guids } => {
            Error::UnsupportedFeatures { pool, features: guids }
        }
        spa::Error::NoCheckpoint => Error::NoCheckpoint { pool },
        spa::Error::NoUberblock { requested: Some(txg) } => {
            let standing = candidate.uberblocks().iter().map(|found| found.txg.get()).collect();
            Error::NoSuchTxg { pool, txg: txg.get(), available: standing }
        }
        spa::Error::Vdev(vdev::Error::UnknownKind(kind)) => {
            Error::Unsupported { what: format!("pool '{pool}' has a vdev of kind '{kind}'") }
        }
        other => {
            let mut lacking = summary::unavailable_vdevs(candidate);
            lacking.retain(|each| each.devices == 0 || !each.missing.is_empty());
            if !lacking.is_empty() {
                return Error::MissingDevices { pool, vdevs: lacking };
            }
            let cut = candidate.devices.iter().find_map(|device| {
                let path = device.device.name().to_owned();
                summary::truncation(device).map(|(size, wanted)| (path, size, wanted))
            });
            match cut {
                Some((path, size, wanted)) => {
                    Error::Truncated { path, pool, size, required: wanted }
                }
                None => Error::DamagedPool { pool, why: other.to_string() },
            }
        }
    }
}
