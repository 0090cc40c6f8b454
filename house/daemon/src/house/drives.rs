//! Drives that come to a pool and go.

use std::path::{Path, PathBuf};

use engine::held::{Groups, Held, NewVdev, Purpose, Shape};

use super::House;
use crate::{Group, Result, Role};

impl House {
    /// Adds drives to a pool.
    pub(super) fn add_drives(
        &self,
        name: &str,
        vdevs: &[(Group, Role, Vec<PathBuf>)],
        force: bool,
    ) -> Result<()> {
        let pool = self.pool_to_change(name)?;
        let _changing = pool.changing.lock();
        let new: Vec<NewVdev> = vdevs.iter().map(vdev).collect();
        pool.held.add_drives(&new, force).map_err(|why| self.in_use_here(why))?;
        self.log.say(&format!("pool '{name}' has more drives"));
        self.remember()
    }

    /// Has a drive take the place of another, and get all that it is to have.
    pub(super) fn replace_drive(
        &self,
        name: &str,
        old: &str,
        new: Option<&Path>,
        force: bool,
    ) -> Result<()> {
        let pool = self.pool_to_change(name)?;
        let _changing = pool.changing.lock();
        pool.held.replace(old, new, force).map_err(|why| self.in_use_here(why))?;
        self.log.say(&format!("pool '{name}': drive '{old}' is being replaced"));
        self.has_more(&pool.held)
    }

    /// Puts a drive beside another, and has it get all that it is to have.
    pub(super) fn attach_drive(
        &self,
        name: &str,
        beside: &str,
        new: &Path,
        force: bool,
    ) -> Result<()> {
        let pool = self.pool_to_change(name)?;
        let _changing = pool.changing.lock();
        pool.held.attach(beside, new, force).map_err(|why| self.in_use_here(why))?;
        self.log.say(&format!("pool '{name}': '{}' is put beside '{beside}'", new.display()));
        self.has_more(&pool.held)
    }

    fn has_more(&self, held: &Held) -> Result<()> {
        held.start_resilver();
        self.remember()
    }

    /// Takes a drive out of a mirror.
    pub(super) fn detach_drive(&self, name: &str, drive: &str) -> Result<()> {
        let pool = self.pool_to_change(name)?;
        let _changing = pool.changing.lock();
        pool.held.detach(drive)?;
        self.log.say(&format!("pool '{name}': drive '{drive}' is detached"));
        self.remember()
    }

    /// Has all of a pool read and mended, or no more.
    pub(super) fn scrub(&self, name: &str, stop: bool) -> Result<()> {
        let held = &self.pool(name)?.held;
        let done = if stop { held.stop_scrub() } else { held.start_scrub() };
        Ok(done?)
    }

    /// Lets drives of a pool go.
    pub(super) fn remove_drives(&self, name: &str, drives: &[String]) -> Result<()> {
        let pool = self.pool_to_change(name)?;
        let _changing = pool.changing.lock();
        pool.held.remove_drives(drives)?;
        self.log.say(&format!("pool '{name}' has fewer drives: {}", drives.join(" ")));
        self.remember()
    }
}

/// A top-level vdev, as the engine has it.
pub(super) fn vdev((group, role, drives): &(Group, Role, Vec<PathBuf>)) -> NewVdev {
    NewVdev {
        shape: match group {
            Group::Single => Shape::Single,
            Group::Mirror => Shape::Mirror,
            Group::Raidz(parity) => Shape::Raidz(*parity),
            Group::Draid { parity, data, spares } => {
                let (parity, data, spares) = (*parity, *data, *spares);
                Shape::Draid(Groups { parity, data, spares })
            }
        },
        drives: drives.clone(),
        purpose: match role {
            Role::Data => Purpose::Data,
            Role::Log => Purpose::Log,
            Role::Special => Purpose::Special,
            Role::Dedup => Purpose::Dedup,
            Role::Spare => Purpose::Spare,
            Role::Cache => Purpose::Cache,
        },
    }
}
