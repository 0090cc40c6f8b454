//! Drives that come to a pool and go.

use std::path::{Path, PathBuf};

use engine::pool::{self, DraidLayout, NewVdev, Pool};

use super::Daemon;
use crate::{Result, VdevLayout, VdevRole};

impl Daemon {
    /// Adds drives to a pool.
    pub(super) fn add_drives(
        &self,
        name: &str,
        vdevs: &[(VdevLayout, VdevRole, Vec<PathBuf>)],
        force: bool,
    ) -> Result<()> {
        let pool = self.writable_pool(name)?;
        let _changing = pool.dataset_lock.lock();
        let new: Vec<NewVdev> = vdevs.iter().map(to_new_vdev).collect();
        pool.handle.add_drives(&new, force).map_err(|why| self.in_use_error(why))?;
        self.log.write_line(&format!("pool '{name}' has more drives"));
        self.save_pools()
    }

    /// Has a drive take the place of another, and get all that it is to have.
    pub(super) fn replace_drive(
        &self,
        name: &str,
        old: &str,
        new: Option<&Path>,
        force: bool,
    ) -> Result<()> {
        let pool = self.writable_pool(name)?;
        let _changing = pool.dataset_lock.lock();
        pool.handle.replace_drive(old, new, force).map_err(|why| self.in_use_error(why))?;
        self.log.write_line(&format!("pool '{name}': drive '{old}' is being replaced"));
        self.start_resilver(&pool.handle)
    }

    /// Puts a drive beside another, and has it get all that it is to have.
    pub(super) fn attach_drive(
        &self,
        name: &str,
        beside: &str,
        new: &Path,
        force: bool,
    ) -> Result<()> {
        let pool = self.writable_pool(name)?;
        let _changing = pool.dataset_lock.lock();
        pool.handle.attach_drive(beside, new, force).map_err(|why| self.in_use_error(why))?;
        self.log
            .write_line(&format!("pool '{name}': '{}' is put beside '{beside}'", new.display()));
        self.start_resilver(&pool.handle)
    }

    fn start_resilver(&self, held: &Pool) -> Result<()> {
        held.start_resilver();
        self.save_pools()
    }

    /// Takes a drive out of a mirror.
    pub(super) fn detach_drive(&self, name: &str, drive: &str) -> Result<()> {
        let pool = self.writable_pool(name)?;
        let _changing = pool.dataset_lock.lock();
        pool.handle.detach_drive(drive)?;
        self.log.write_line(&format!("pool '{name}': drive '{drive}' is detached"));
        self.save_pools()
    }

    /// Has all of a pool read and mended, or no more.
    pub(super) fn scrub(&self, name: &str, stop: bool) -> Result<()> {
        let held = &self.pool(name)?.handle;
        let done = if stop { held.stop_scrub() } else { held.start_scrub() };
        Ok(done?)
    }

    /// Lets drives of a pool go.
    pub(super) fn remove_drives(&self, name: &str, drives: &[String]) -> Result<()> {
        let pool = self.writable_pool(name)?;
        let _changing = pool.dataset_lock.lock();
        pool.handle.remove_drives(drives)?;
        self.log.write_line(&format!("pool '{name}' has fewer drives: {}", drives.join(" ")));
        self.save_pools()
    }
}

/// A top-level vdev, as the engine has it.
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
