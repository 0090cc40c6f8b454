//! Looking for pools: from paths to what can be opened.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::Device;
use ondisk::label::PoolState;
use spa::{Candidate, Labelled};
use units::{Guid, Txg};

use crate::pool::Pool;
use crate::summary::{self, PoolSummary};
use crate::{Error, OpenOptions, Result, event::Event};

/// What was found at some paths.
#[derive(Debug)]
pub struct Search {
    paths: Vec<PathBuf>,
    found: device::Found,
    pools: Vec<Candidate>,
    others: Vec<Labelled>,
}

/// Looks for pools at paths: folders, images, disks, partitions.
pub fn search(paths: &[PathBuf]) -> Search {
    Search::of(paths.to_vec(), device::probe(paths))
}

/// Looks for pools on devices that are open already.
pub fn search_on(devices: &[Arc<dyn Device>]) -> Search {
    let found = device::Found { devices: devices.to_vec(), ..device::Found::default() };
    Search::of(Vec::new(), found)
}

impl Search {
    fn of(paths: Vec<PathBuf>, found: device::Found) -> Self {
        let (pools, others) = spa::scan(&found.devices);
        Self { paths, found, pools, others }
    }

    /// Only those pools that were destroyed, or only those that were not.
    pub(crate) fn only(mut self, destroyed: bool) -> Self {
        self.pools.retain(|pool| {
            let newest = pool.devices.iter().max_by_key(|device| device.synced());
            let state = newest.map(|device| device.config.pool.state);
            (state == Some(PoolState::Destroyed)) == destroyed
        });
        self
    }

    /// Describes every pool that was found, by name. Each is opened, to say whether it can be.
    pub fn summaries(&self, options: &OpenOptions) -> Vec<PoolSummary> {
        let describe =
            |pool| summary::describe(pool, &self.others, &Self::open_found(pool, options));
        self.pools.iter().map(describe).collect()
    }

    /// Devices with the label of a spare or a cache: whose they are, only their pools know.
    pub fn others(&self) -> Vec<summary::OtherDevice> {
        self.others.iter().map(summary::other).collect()
    }

    /// The same with their labels.
    pub(crate) fn others_found(&self) -> &[Labelled] {
        &self.others
    }

    /// What could not be opened.
    pub fn refused(&self) -> Vec<Error> {
        self.found.refused.iter().map(Error::of_device).collect()
    }

    /// Files and devices without a label.
    pub fn unlabelled(&self) -> Vec<String> {
        let labelled: Vec<&str> = self
            .pools
            .iter()
            .flat_map(|pool| &pool.devices)
            .chain(&self.others)
            .map(|labelled| labelled.device.name())
            .collect();
        let names = self.found.devices.iter().map(|device| device.name());
        let blank = names.filter(|name| {
            let parts = format!("{name} (partition ");
            !labelled.contains(name) && !labelled.iter().any(|other| other.starts_with(&parts))
        });
        blank.map(str::to_owned).collect()
    }

    /// Why there is no pool at all, if so.
    pub fn nothing(&self) -> Option<Error> {
        if !self.pools.is_empty() {
            return None;
        }
        if let Some(refused) = self.found.refused.first() {
            return Some(Error::of_device(refused));
        }
        if let [path] = self.paths.as_slice()
            && path.is_dir()
            && self.found.devices.is_empty()
        {
            return Some(Error::EmptyFolder { path: path.display().to_string() });
        }
        Some(Error::NoPool { paths: self.shown_paths() })
    }

    fn shown_paths(&self) -> Vec<String> {
        self.paths.iter().map(|path| path.display().to_string()).collect()
    }

    /// Opens the pool of that name or guid.
    pub fn open(&self, wanted: &str, options: &OpenOptions) -> Result<Pool> {
        let candidate = self.choose(wanted)?;
        if let Some(busy) = self.busy(candidate) {
            return Err(busy);
        }
        let mut pool = Self::open_found(candidate, options)?;
        let named = |path: &str| self.paths.iter().any(|own| own.to_string_lossy() == path);
        for refused in &self.found.refused {
            let error = Error::of_device(refused);
            let (device::Error::Open { path, .. } | device::Error::Kind { path }) = refused else {
                continue;
            };
            if named(path) {
                pool.add_event(Event::Refused { reason: error.to_string() });
            }
        }
        Ok(pool)
    }

    pub(crate) fn choose(&self, wanted: &str) -> Result<&Candidate> {
        if let Some(nothing) = self.nothing() {
            return Err(nothing);
        }
        let named: Vec<&Candidate> =
            self.pools.iter().filter(|pool| pool.name() == wanted).collect();
        match named.as_slice() {
            [one] => return Ok(one),
            [] => {}
            several => {
                let guids = several.iter().map(|pool| pool.guid.get()).collect();
                return Err(Error::Ambiguous { name: wanted.to_owned(), guids });
            }
        }
        let guid = wanted.parse().ok().map(Guid::new);
        let found = self.pools.iter().find(|pool| Some(pool.guid) == guid);
        found.ok_or_else(|| match self.found.refused.first() {
            Some(refused) => Error::of_device(refused),
            None => Error::NoSuchPool {
                wanted: wanted.to_owned(),
                paths: self.shown_paths(),
                found: self.pools.iter().map(|pool| format!("'{}'", pool.name())).collect(),
            },
        })
    }

    /// A device in use that is, or may well be, one of the pool's.
    fn busy(&self, candidate: &Candidate) -> Option<Error> {
        let lacks = summary::trees(candidate, None)
            .iter()
            .any(|tree| candidate.leaves(tree).any(|leaf| leaf.device.is_none()));
        self.found.refused.iter().find_map(|refused| {
            let device::Error::Busy { path } = refused else { return None };
            let named = self.paths.iter().any(|own| own.to_string_lossy() == *path);
            (named || lacks).then(|| Error::InUse { path: path.clone() })
        })
    }

    /// Refuses a pool of which another program has a drive open, by the path that the label remembers: a
    /// copy of that drive must not take its place.
    pub(crate) fn check_originals_free(&self, candidate: &Candidate) -> Result<()> {
        let trees = summary::trees(candidate, None);
        let leaves = trees.iter().flat_map(|tree| candidate.leaves(tree));
        let remembered: Vec<String> = leaves.map(|leaf| leaf.path).collect();
        for refused in &self.found.refused {
            let device::Error::Busy { path } = refused else { continue };
            let is_it = |leaf: &String| device::is_same(Path::new(leaf), Path::new(path));
            if remembered.iter().any(is_it) {
                return Err(Error::InUse { path: path.clone() });
            }
        }
        Ok(())
    }

    fn open_found(candidate: &Candidate, options: &OpenOptions) -> Result<Pool> {
        let opened = candidate.open(&options.below());
        let opened = opened.map_err(|error| explain(candidate, error))?;
        let name = opened.name().to_owned();
        let usable = spa::capacity::usable(&opened);
        let facts = dsl::PoolFacts { name: name.clone(), usable };
        let tree = dsl::Tree::open(opened.mos().clone(), facts)
            .map_err(|error| Error::Damaged { pool: name, why: error.to_string() })?;
        let events = events(candidate, &opened);
        Ok(Pool::new(opened, tree, events, options))
    }
}

/// What the user should know of a pool that could be opened.
fn events(candidate: &Candidate, pool: &spa::Pool) -> Vec<Event> {
    let mut events = Vec::new();
    for tree in summary::trees(candidate, Some(pool)) {
        let name = summary::vdev_name(&tree);
        if let Some(lacking) = summary::lacking(&tree, candidate) {
            events.push(Event::Lost { vdev: name, devices: lacking.missing });
            continue;
        }
        for leaf in candidate.leaves(&tree).filter(|leaf| leaf.device.is_none()) {
            events.push(Event::Missing { device: leaf.path, vdev: name.clone() });
        }
    }
    for device in &candidate.devices {
        let path = device.device.name().to_owned();
        if let Some((size, wanted)) = summary::truncated(device) {
            events.push(Event::Truncated { path: path.clone(), size, wanted });
        }
        let newest = summary::newest_sibling(candidate, device);
        let member = summary::trees(candidate, Some(pool))
            .iter()
            .any(|tree| tree.leaves().any(|leaf| leaf.guid == device.guid()));
        if member && device.synced() < newest && device.synced() != Txg::ZERO {
            events.push(Event::Stale { path, txg: device.synced().get() });
        }
    }
    events.extend(candidate.duplicates.iter().map(Event::duplicate));
    let newest = candidate.newest().map_or(0, |uberblock| uberblock.txg.get());
    if pool.txg().get() < newest {
        events.push(Event::Older { txg: pool.txg().get(), newest });
    }
    events
}

/// Why a pool could not be opened, as a person wants to know it.
pub(crate) fn explain(candidate: &Candidate, error: spa::Error) -> Error {
    let pool = candidate.name().to_owned();
    match error {
        spa::Error::Version { version } => Error::Version { pool, version },
        spa::Error::Features { guids } => Error::Features { pool, features: guids },
        spa::Error::NoCheckpoint => Error::NoCheckpoint { pool },
        spa::Error::NoUberblock { wanted: Some(txg) } => {
            let standing = candidate.uberblocks().iter().map(|found| found.txg.get()).collect();
            Error::NoSuchTxg { pool, txg: txg.get(), standing }
        }
        spa::Error::Vdev(vdev::Error::UnknownKind(kind)) => {
            Error::Unsupported { what: format!("pool '{pool}' has a vdev of kind '{kind}'") }
        }
        other => {
            let mut lacking = summary::all_lacking(candidate);
            lacking.retain(|each| each.devices == 0 || !each.missing.is_empty());
            if !lacking.is_empty() {
                return Error::Missing { pool, lacking };
            }
            let cut = candidate.devices.iter().find_map(|device| {
                let path = device.device.name().to_owned();
                summary::truncated(device).map(|(size, wanted)| (path, size, wanted))
            });
            match cut {
                Some((path, size, wanted)) => Error::Truncated { path, pool, size, wanted },
                None => Error::Damaged { pool, why: other.to_string() },
            }
        }
    }
}
