//! The service of volume devices: each volume of an imported pool is a block device of this machine.
//!
//! ```toml
//! [zvol]
//! devices = "/dev/zvol"   # the directory of their links; "none": no devices
//! ```
//!
//! Without an entry root's usual daemon uses /dev/zvol, and other daemons make no devices. `volmode=none` keeps a
//! volume from having one, `snapdev=visible` gives its snapshots devices as well, which are read-only.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use api::{Event, pool_of};
use engine::KeyState;
use engine::dataset::{Dataset, DatasetQuery, Effects, has_effect};
use engine::pool::Pool;
use fuse::DetachOutcome;
use lun::UnitTable;
use parking_lot::Mutex;
use serde::Deserialize;

use super::Service;
use crate::config::Config;
use crate::context::Context;
use crate::events::{ChangeOptions, changes_datasets, takes_away};
use crate::log::Log;
use crate::pools::Pools;
use crate::router::Router;
use crate::volume_devices::{
    BackingDir, LinkDir, VOLUME_DEVICES, VolumeDevice, WantedDevice, clear_stale,
};
use crate::{Error, Result};

/// The device by which the kernel gives loop devices.
const LOOP_CONTROL: &str = "/dev/loop-control";

/// The section `[zvol]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ZvolConfig {
    /// The directory of links; "none": no devices. Without it the daemon decides.
    devices: Option<PathBuf>,
}

/// The service of volume devices.
pub(super) struct ZvolService {
    pools: Arc<Pools>,
    log: Arc<Log>,
    units: Arc<UnitTable>,
    /// The directory of the files behind the devices.
    backing_dir: PathBuf,
    is_system_daemon: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    links: Option<LinkDir>,
    /// Mounted when there is a first volume.
    backing: Option<BackingDir>,
    devices: Vec<VolumeDevice>,
    /// Datasets that changes in progress need.
    released: BTreeSet<String>,
    /// This machine has no loop devices or no FUSE; the log has the reason.
    is_unavailable: bool,
    /// Pools in which a volume has snapdev=visible.
    with_snapshots: BTreeSet<String>,
}

impl ZvolService {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        Self {
            pools: Arc::clone(&context.pools),
            log: Arc::clone(&context.log),
            units: Arc::clone(&context.units),
            backing_dir: context.state_dir.volume_files(),
            is_system_daemon: context.state_dir.is_system(),
            state: Mutex::default(),
        }
    }

    /// The directory of links that a configuration names; none: no devices.
    fn directory(&self, config: &ZvolConfig) -> Result<Option<PathBuf>> {
        let is_root = rustix::process::geteuid().is_root();
        match &config.devices {
            Some(dir) if dir.as_os_str() == "none" => Ok(None),
            Some(dir) if !dir.is_absolute() => Err(Error::refused_error(format!(
                "zvol.devices is '{}': name a directory by its full path, or \"none\"",
                dir.display()
            ))),
            Some(_) if !is_root => Err(Error::refused_error(
                "volumes have no devices: only a daemon of root can make block devices",
            )),
            Some(dir) => Ok(Some(dir.clone())),
            None => Ok((self.is_system_daemon && is_root).then(|| VOLUME_DEVICES.into())),
        }
    }

    /// Updates the devices of a pool to its volumes. Returns a sentence for each failure.
    fn sync_pool(&self, state: &mut State, name: &str) -> Vec<String> {
        let Some(links) = state.links.clone() else { return Vec::new() };
        let pool = self.pools.pool(name).ok().map(|pool| pool.handle.clone());
        let (wanted, mut failed) = match &pool {
            Some(pool) => match wanted_devices(pool) {
                Ok(wanted) => (wanted, Vec::new()),
                Err(why) => return vec![format!("devices of '{name}': {why}")],
            },
            None => Default::default(),
        };
        let WantedDevices { devices: wanted, shows_snapshots } = wanted;
        if shows_snapshots {
            state.with_snapshots.insert(name.to_owned());
        } else {
            state.with_snapshots.remove(name);
        }
        let is_free = |wanted: &WantedDevice| !state.released.contains(&wanted.name);
        let mut wanted: BTreeMap<u64, WantedDevice> =
            wanted.into_iter().filter(is_free).map(|device| (device.guid, device)).collect();
        if let Some(backing) = &state.backing {
            let devices = std::mem::take(&mut state.devices);
            for device in devices {
                if pool_of(device.name()) != name {
                    state.devices.push(device);
                    continue;
                }
                let wanted = if device.is_gone() { None } else { wanted.remove(&device.guid()) };
                let kept = keep_device(&links, backing, device, wanted, pool.is_none());
                match kept {
                    Ok(kept) => state.devices.extend(kept),
                    Err(why) => failed.push(why),
                }
            }
        }
        if let Some(pool) = pool.filter(|_| !wanted.is_empty()) {
            failed.extend(self.attach_all(state, &links, &pool, wanted.into_values()));
        }
        failed
    }

    /// Makes devices of volumes that have none.
    fn attach_all(
        &self,
        state: &mut State,
        links: &LinkDir,
        pool: &Pool,
        wanted: impl Iterator<Item = WantedDevice>,
    ) -> Vec<String> {
        if state.backing.is_none() {
            let mounted = match std::fs::metadata(LOOP_CONTROL) {
                Ok(_) => BackingDir::mount(&self.backing_dir),
                Err(why) => Err(format!("{LOOP_CONTROL}: {why}; does `modprobe loop` help?")),
            };
            match mounted {
                Ok(backing) => state.backing = Some(backing),
                Err(why) => {
                    // commands succeed without devices, and a container has none
                    if !std::mem::replace(&mut state.is_unavailable, true) {
                        self.log.write_line(&format!("volumes have no devices: {why}"));
                    }
                    return Vec::new();
                }
            }
        }
        let mut failed = Vec::new();
        let Some(backing) = &state.backing else { return failed };
        for wanted in wanted {
            let name = wanted.name.clone();
            match VolumeDevice::attach(backing, (pool, &self.units), wanted) {
                Ok(device) => {
                    if let Err(why) = links.create(&name, device.path()) {
                        let (link, device) = (links.path_of(&name), device.path());
                        let (link, device) = (link.display(), device.display());
                        failed.push(format!("{link} is not there ({device} is '{name}'): {why}"));
                    }
                    state.devices.push(device);
                }
                Err(why) => failed.push(format!("'{name}' has no device: {why}")),
            }
        }
        failed
    }

    fn sync_all(&self, state: &mut State) -> Vec<String> {
        let mut names: BTreeSet<String> =
            self.pools.all().iter().map(|pool| pool.handle.name().to_owned()).collect();
        names.extend(state.devices.iter().map(|device| pool_of(device.name()).to_owned()));
        names.iter().flat_map(|name| self.sync_pool(state, name)).collect()
    }

    /// Removes all devices.
    fn close_all(&self, state: &mut State) {
        for device in std::mem::take(&mut state.devices) {
            let Some(backing) = &state.backing else { continue };
            if let Err(why) = device.detach(backing, true) {
                self.log.write_line(&format!("{}: {why}", device.path().display()));
            }
            if let Some(links) = &state.links {
                links.remove(device.name(), device.path());
            }
        }
        state.backing = None;
    }

    fn log_all(&self, failed: Vec<String>) {
        for why in failed {
            self.log.write_line(&why);
        }
    }
}

/// Updates a device, or removes it if it is not wanted any more. A device that a program has open
/// stays for now.
fn keep_device(
    links: &LinkDir,
    backing: &BackingDir,
    mut device: VolumeDevice,
    wanted: Option<WantedDevice>,
    force: bool,
) -> std::result::Result<Option<VolumeDevice>, String> {
    let (name, path) = (device.name().to_owned(), device.path().to_owned());
    let failed = |why: std::io::Error| format!("the device of '{name}': {why}");
    let Some(wanted) = wanted else {
        let force = force || device.is_gone();
        let outcome = device.detach(backing, force).map_err(failed)?;
        if outcome == DetachOutcome::InUse && !force {
            return Ok(Some(device));
        }
        links.remove(&name, &path);
        return Ok(None);
    };
    if wanted.name != name {
        links.remove(&name, &path);
        links.create(&wanted.name, &path).map_err(failed)?;
    }
    device.update(backing, wanted).map_err(failed)?;
    Ok(Some(device))
}

/// The volumes and snapshots of a pool that are to have devices.
#[derive(Default)]
struct WantedDevices {
    devices: Vec<WantedDevice>,
    /// Whether a volume has snapdev=visible, so that its next snapshot is to have a device.
    shows_snapshots: bool,
}

fn wanted_devices(pool: &Pool) -> engine::Result<WantedDevices> {
    let query = |kind: &str, depth| DatasetQuery {
        kinds: vec![kind.to_owned()],
        depth,
        properties: ["guid", "volmode", "snapdev", "readonly"].map(str::to_owned).to_vec(),
    };
    let mut volumes = Vec::new();
    let mut add = |dataset: Dataset| volumes.push(dataset);
    pool.datasets().list(pool.name(), &query("volume", None), &mut add, &mut |_| ())?;
    let (mut all, mut shows_snapshots) = (Vec::new(), false);
    for volume in volumes {
        let value = |name| volume.property_value(name).unwrap_or_default();
        let is_whole = !matches!(pool.datasets().incomplete_kind(&volume.name), Ok(Some(_)));
        if value("volmode") == "none" || volume.key == KeyState::Locked || !is_whole {
            continue;
        }
        let has_partitions = value("volmode") != "dev";
        let is_read_only = value("readonly") == "on" || pool.is_read_only();
        if value("snapdev") == "visible" {
            shows_snapshots = true;
            let mut add = |snapshot: Dataset| {
                all.extend(wanted_device(&snapshot, true, has_partitions));
            };
            let query = query("snapshot", Some(1));
            pool.datasets().list(&volume.name, &query, &mut add, &mut |_| ())?;
        }
        all.extend(wanted_device(&volume, is_read_only, has_partitions));
    }
    Ok(WantedDevices { devices: all, shows_snapshots })
}

fn wanted_device(of: &Dataset, is_read_only: bool, has_partitions: bool) -> Option<WantedDevice> {
    let guid = of.property_value("guid")?.parse().ok()?;
    Some(WantedDevice { name: of.name.clone(), guid, is_read_only, has_partitions })
}

impl Service for ZvolService {
    fn name(&self) -> &'static str {
        "volume devices"
    }

    fn calls(self: Arc<Self>, _router: &mut Router) {}

    fn start(&self, context: &Arc<Context>) -> Result<()> {
        // a daemon that was killed left them
        clear_stale(&self.backing_dir);
        self.configure(&context.config.current())
    }

    fn configure(&self, config: &Config) -> Result<()> {
        let directory = self.directory(&config.section("zvol"));
        let links = directory.as_ref().ok().cloned().flatten().map(LinkDir::new);
        let mut state = self.state.lock();
        if state.links != links {
            self.close_all(&mut state);
            if let Some(links) = &links {
                links.remove_stale();
            }
            state.links = links;
            let failed = self.sync_all(&mut state);
            self.log_all(failed);
        }
        directory.map(drop)
    }

    fn prepare(&self, coming: &[Event], options: &ChangeOptions) -> Result<()> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let (Some(links), Some(backing)) = (&state.links, &state.backing) else { return Ok(()) };
        let mut busy = None;
        state.devices.retain(|device| {
            let is_needed = coming.iter().any(|event| takes_away(event, device.name()));
            if busy.is_some() || !is_needed {
                return true;
            }
            let outcome = device.detach(backing, options.force);
            if !options.force && outcome.as_ref().is_ok_and(|it| *it == DetachOutcome::InUse) {
                busy = Some(device.name().to_owned());
                return true;
            }
            state.released.insert(device.name().to_owned());
            links.remove(device.name(), device.path());
            false
        });
        let Some(name) = busy else { return Ok(()) };
        let link = links.path_of(&name);
        let pools: BTreeSet<&str> = coming.iter().filter_map(Event::pool).collect();
        state.released.retain(|name| !pools.contains(pool_of(name)));
        let failed = pools.iter().flat_map(|pool| self.sync_pool(state, pool)).collect();
        self.log_all(failed);
        Err(Error::refused_error(format!(
            "'{name}': dataset is busy: a program has {} open, or it is mounted; unmount it and end the \
             program",
            link.display()
        )))
    }

    fn abandon(&self, coming: &[Event]) {
        let failed = self.on_events(coming, &ChangeOptions::default());
        self.log_all(failed);
    }

    fn on_events(&self, events: &[Event], _options: &ChangeOptions) -> Vec<String> {
        let mut state = self.state.lock();
        if state.links.is_none() {
            return Vec::new();
        }
        let is_relevant = |event: &&Event| match event {
            Event::PropertySet { property, .. } => has_effect(property, Effects::DEVICE),
            Event::SnapshotCreated { snapshot: name }
            | Event::SnapshotDestroyed { snapshot: name } => {
                state.with_snapshots.contains(pool_of(name))
            }
            other => changes_datasets(other),
        };
        let relevant = events.iter().filter(is_relevant);
        let pools: BTreeSet<&str> = relevant.filter_map(Event::pool).collect();
        state.released.retain(|name| !pools.contains(pool_of(name)));
        pools.iter().flat_map(|pool| self.sync_pool(&mut state, pool)).collect()
    }

    fn stop(&self) {
        self.close_all(&mut self.state.lock());
    }
}
