//! Drives that come to a pool and go.

use std::path::PathBuf;

use engine::held::{Groups, NewVdev, Purpose, Shape};

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
        let pool = self.pool(name)?;
        let _changing = pool.changing.lock();
        let new: Vec<NewVdev> = vdevs.iter().map(vdev).collect();
        pool.held.add_drives(&new, force)?;
        self.log.say(&format!("pool '{name}' has more drives"));
        self.remember()
    }

    /// Lets drives of a pool go.
    pub(super) fn remove_drives(&self, name: &str, drives: &[String]) -> Result<()> {
        let pool = self.pool(name)?;
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
