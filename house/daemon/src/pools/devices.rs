//! Devices of a pool: added, removed, replaced, attached, detached; and scrubs.

use std::path::{Path, PathBuf};

use api::{
    AddDevices, AttachDevice, Event, OfflineDevice, OnlineDevice, RemoveDevices, ReplaceDevice,
    ScrubPool, SplitPool, VdevLayout, VdevRole,
};
use engine::pool::{
    self, AddOptions, DraidLayout, NewVdev, OfflineOptions, Pool, RemovalMemory, ScrubRange,
    SplitOptions, SplitVdev,
};

use super::{ManagedPool, Pools};
use crate::Result;

impl Pools {
    /// Adds top-level vdevs, cache devices and spares to a pool.
    pub(crate) fn add_devices(&self, call: &AddDevices) -> Result<()> {
        let name = &call.name;
        let pool = self.writable_pool(name)?;
        let _changing = pool.dataset_lock.lock();
        let new: Vec<NewVdev> = call.vdevs.iter().map(to_new_vdev).collect();
        let dry_run = call.dry_run;
        let options = AddOptions {
            force: call.force,
            allow_in_use: call.allow_in_use,
            allow_replication_mismatch: call.allow_replication_mismatch,
            allow_ashift_mismatch: call.allow_ashift_mismatch,
            ashift: call.ashift,
            dry_run,
        };
        pool.handle.vdevs().add(&new, options).map_err(|why| self.in_use_error(why))?;
        if dry_run {
            return Ok(());
        }
        self.log.write_line(&format!("pool '{name}' has new devices"));
        self.save_pools();
        Ok(())
    }

    /// Replaces a device, and starts a resilver.
    pub(crate) fn replace_device(&self, call: &ReplaceDevice) -> Result<()> {
        let ReplaceDevice { name, old, new, force, sequential, ashift } = call;
        let pool = self.writable_pool(name)?;
        let _changing = pool.dataset_lock.lock();
        ashift.map_or(Ok(()), |ashift| pool.handle.vdevs().check_ashift(old, ashift))?;
        let done = if *sequential {
            pool.handle.vdevs().rebuild(old, new.as_deref(), *force)
        } else {
            pool.handle.vdevs().replace(old, new.as_deref(), *force)
        };
        done.map_err(|why| self.in_use_error(why))?;
        self.log.write_line(&format!("pool '{name}': drive '{old}' is being replaced"));
        self.start_resilver(&pool.handle);
        Ok(())
    }

    /// Attaches a device beside another, and starts a resilver; or expands a raidz by it.
    pub(crate) fn attach_device(&self, call: &AttachDevice) -> Result<()> {
        let AttachDevice { name, existing: beside, new, force, sequential, ashift } = call;
        let pool = self.writable_pool(name)?;
        let _changing = pool.dataset_lock.lock();
        ashift.map_or(Ok(()), |ashift| pool.handle.vdevs().check_ashift(beside, ashift))?;
        let done = if *sequential {
            pool.handle.vdevs().attach_by_rebuild(beside, new, *force)
        } else {
            pool.handle.vdevs().attach(beside, new, *force)
        };
        done.map_err(|why| self.in_use_error(why))?;
        self.log
            .write_line(&format!("pool '{name}': '{}' is attached to '{beside}'", new.display()));
        if pool.handle.vdevs().is_raidz(beside) {
            self.save_pools();
        } else {
            self.start_resilver(&pool.handle);
        }
        Ok(())
    }

    fn start_resilver(&self, held: &Pool) {
        held.scans().start_resilver();
        self.save_pools();
    }

    /// Detaches a device from a mirror.
    pub(crate) fn detach_device(&self, name: &str, drive: &str) -> Result<()> {
        let pool = self.writable_pool(name)?;
        let _changing = pool.dataset_lock.lock();
        pool.handle.vdevs().detach(drive)?;
        self.log.write_line(&format!("pool '{name}': drive '{drive}' is detached"));
        self.save_pools();
        Ok(())
    }

    /// Splits one device off each mirror. The new pool is exported.
    pub(crate) fn split_pool(&self, call: &SplitPool) -> Result<Vec<SplitVdev>> {
        let SplitPool { name, new_name, devices, properties, dry_run } = call.clone();
        let pool = self.writable_pool(&name)?;
        let _changing = pool.dataset_lock.lock();
        if self.imported_names().iter().any(|(other, _)| *other == new_name) {
            return Err(engine::Error::NameTaken { pool: new_name }.into());
        }
        let options = SplitOptions { devices, properties, dry_run };
        let split = pool.handle.vdevs().split(&new_name, &options)?;
        if !dry_run {
            self.log.write_line(&format!("pool '{name}' is split: the new pool is '{new_name}'"));
            self.save_pools();
        }
        Ok(split)
    }

    /// Takes a device out of service.
    pub(crate) fn offline_device(&self, call: &OfflineDevice) -> Result<()> {
        let pool = self.writable_pool(&call.name)?;
        let _changing = pool.dataset_lock.lock();
        let options = OfflineOptions { temporary: call.temporary, fault: call.fault };
        pool.handle.drives().offline(&call.device, options)?;
        let (name, device) = (&call.name, &call.device);
        self.log.write_line(&format!("pool '{name}': device '{device}' is offline"));
        self.save_pools();
        Ok(())
    }

    /// Brings a device back into service, and starts a resilver; or expands its vdev.
    pub(crate) fn online_device(&self, call: &OnlineDevice) -> Result<()> {
        let (name, device) = (&call.name, &call.device);
        let pool = self.writable_pool(name)?;
        let _importing = self.import_lock.lock();
        let _changing = pool.dataset_lock.lock();
        pool.handle.drives().online(device)?;
        self.log.write_line(&format!("pool '{name}': device '{device}' is online"));
        if call.expand && pool.handle.drives().expand(device)? {
            self.log.write_line(&format!("pool '{name}': the vdev of '{device}' is expanded"));
        }
        if pool.handle.scans().needs_resilver() {
            pool.handle.scans().start_resilver();
        }
        self.save_pools();
        Ok(())
    }

    /// Opens missing devices of pools again.
    pub(crate) fn reopen_pools(&self, names: &[String]) -> Result<()> {
        for name in names {
            self.writable_pool(name)?;
        }
        let _importing = self.import_lock.lock();
        for pool in self.all() {
            let name = pool.handle.name();
            let is_wanted = names.is_empty() || names.iter().any(|wanted| wanted == name);
            if is_wanted && !pool.handle.is_read_only() {
                self.reopen_drives_of(&pool);
            }
        }
        Ok(())
    }

    /// Clears the labels of a device that no pool uses.
    pub(crate) fn clear_labels(&self, path: &Path, force: bool) -> Result<()> {
        engine::clear_labels(path, force).map_err(|why| self.in_use_error(why))?;
        self.log.write_line(&format!("the labels of '{}' are cleared", path.display()));
        Ok(())
    }

    /// Takes devices out of service that had too many errors of late.
    pub(super) fn diagnose_devices(&self, pool: &ManagedPool) {
        for found in pool.handle.drives().diagnose() {
            let (name, device, state) = (pool.handle.name(), found.device, found.state);
            self.log.write_line(&format!(
                "pool '{name}': device '{device}' had too many errors and is {state}: replace it with \
                 `zpool replace`, or run `zpool clear` if its cable or port was the cause"
            ));
        }
    }

    /// With autoexpand=on: has vdevs use the space of devices that have grown.
    pub(super) fn expand_grown_devices(&self, pool: &ManagedPool) {
        // the next look tries again
        let Some(_changing) = pool.dataset_lock.try_lock() else { return };
        if let Ok(grown @ 1..) = pool.handle.drives().expand_grown() {
            let name = pool.handle.name();
            self.log.write_line(&format!("pool '{name}': {grown} vdevs use grown devices in full"));
        }
    }

    /// Attaches hot spares to devices of these guids that are failed still, and starts a resilver.
    pub(super) fn activate_spares(&self, pool: &ManagedPool, failed: &[u64]) -> Result<()> {
        let _changing = pool.dataset_lock.lock();
        let activated = pool.handle.drives().activate_spares(failed)?;
        if activated.is_empty() {
            return Ok(());
        }
        let name = pool.handle.name();
        for spare in activated {
            let (device, spare) = (spare.failed, spare.spare);
            self.log.write_line(&format!(
                "pool '{name}': device '{device}' failed, and spare '{spare}' stands in for it"
            ));
            self.events.record(&[Event::SpareActivated { pool: name.to_owned(), device, spare }]);
        }
        self.start_resilver(&pool.handle);
        Ok(())
    }

    /// Starts, resumes, pauses or stops a scrub.
    pub(crate) fn scrub(&self, call: &ScrubPool) -> Result<()> {
        let handle = &self.pool(&call.name)?.handle;
        if call.stop {
            return Ok(handle.scans().stop_scrub()?);
        }
        if call.pause {
            return Ok(handle.scans().pause_scrub()?);
        }
        let range = match (call.errors_only, call.since_last_scrub) {
            (true, _) => ScrubRange::Errors,
            (false, true) => ScrubRange::SinceLastScrub,
            (false, false) => ScrubRange::All,
        };
        Ok(handle.scans().start_scrub(range)?)
    }

    /// Removes cache devices, spares and log vdevs, or begins to remove a vdev with data. Returns the memory
    /// that the mapping of each vdev with data takes.
    pub(crate) fn remove_devices(&self, call: &RemoveDevices) -> Result<Vec<RemovalMemory>> {
        let RemoveDevices { name, devices, dry_run } = call;
        let pool = self.writable_pool(name)?;
        let _changing = pool.dataset_lock.lock();
        let memory = pool.handle.vdevs().check_removal(devices)?;
        if *dry_run {
            return Ok(memory);
        }
        pool.handle.vdevs().remove(devices)?;
        let words = devices.join(" ");
        self.log.write_line(&if memory.is_empty() {
            format!("pool '{name}' lost devices by `remove`: {words}")
        } else {
            format!("pool '{name}': the removal of {words} has begun")
        });
        self.save_pools();
        Ok(memory)
    }

    /// Cancels the removal of a vdev with data.
    pub(crate) fn cancel_removal(&self, name: &str) -> Result<()> {
        let pool = self.writable_pool(name)?;
        let _changing = pool.dataset_lock.lock();
        pool.handle.activities().cancel_removal()?;
        self.log.write_line(&format!("pool '{name}': the removal of a vdev is cancelled"));
        Ok(())
    }
}

/// A top-level vdev as the engine takes it.
pub(super) fn to_new_vdev((group, role, drives): &(VdevLayout, VdevRole, Vec<PathBuf>)) -> NewVdev {
    NewVdev {
        layout: match group {
            VdevLayout::Single => pool::VdevLayout::Single,
            VdevLayout::Mirror => pool::VdevLayout::Mirror,
            VdevLayout::Raidz(parity) => pool::VdevLayout::Raidz(*parity),
            VdevLayout::Draid { parity, data, spares } => {
                let (parity, data, spares) = (*parity, *data, *spares);
                pool::VdevLayout::Draid(DraidLayout { parity, data, spares })
            }
        },
        drives: drives.clone(),
        role: match role {
            VdevRole::Data => pool::VdevRole::Data,
            VdevRole::Log => pool::VdevRole::Log,
            VdevRole::Special => pool::VdevRole::Special,
            VdevRole::Dedup => pool::VdevRole::Dedup,
            VdevRole::Spare => pool::VdevRole::Spare,
            VdevRole::Cache => pool::VdevRole::Cache,
        },
    }
}
