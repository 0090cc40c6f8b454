//! The upgrade of a file system to a newer version (`zfs upgrade`).

use ondisk::version;
use serde::{Deserialize, Serialize};

use super::Pool;
use super::history::record_dataset_event;
use crate::pool::handles::Datasets;
use crate::{Error, Result};

/// The newest version of file systems.
pub const FILESYSTEM_VERSION: u64 = 5;

/// The result of a file system's upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesystemUpgrade {
    /// The version before, 1 to 5.
    pub old_version: u64,
    /// The version after; the same where nothing was changed.
    pub new_version: u64,
}

impl Datasets<'_> {
    /// Upgrades a file system to a version, or to the newest one (none). One that is as new already is not changed.
    /// The file system must have no doors: it is closed, and the next one who opens it gets the new version.
    ///
    /// # Errors
    ///
    /// The version does not exist, or is newer than the pool's own version allows, or older than that of the file
    /// system.
    pub fn upgrade_filesystem(
        self,
        name: &str,
        to_version: Option<u64>,
    ) -> Result<FilesystemUpgrade> {
        self.pool.check_writable()?;
        let wanted = to_version.unwrap_or(FILESYSTEM_VERSION);
        self.pool.check_filesystem_version(name, wanted)?;
        let fs = self.pool.datasets().filesystem(name)?;
        let failed = |why: zpl::Error| Error::Unreadable {
            subject: format!("'{name}'"),
            why: why.to_string(),
        };
        let tx = self.pool.0.spa.begin_dataset_tx(fs.dataset());
        let tx = tx.map_err(|error| self.pool.explain_error(&error))?;
        let mut random = || self.pool.0.environment.random_u64();
        let old_version =
            zpl::upgrade_fs(fs.dataset().objset(), &tx, wanted, &mut random).map_err(failed)?;
        drop((tx, fs));
        if old_version > wanted {
            return Err(Error::Refused {
                what: format!("Can not downgrade; already at version {old_version}"),
            });
        }
        if old_version < wanted {
            self.pool.close_dataset(name)?;
            let (dataset, detail) = (name.to_owned(), format!("from {old_version} to {wanted}"));
            self.pool.run_sync_task(move |active, change| {
                record_dataset_event(active, change, "upgrade", &dataset, &detail);
                Ok(())
            })?;
        }
        Ok(FilesystemUpgrade { old_version, new_version: wanted })
    }

    /// Upgrades a file system to a version in its written form: 1 to 5, or `current`.
    ///
    /// # Errors
    ///
    /// As those of [`Self::upgrade_filesystem`].
    pub fn set_filesystem_version(self, name: &str, version: &str) -> Result<()> {
        let wanted = match version {
            "current" => FILESYSTEM_VERSION,
            text => text.parse().map_err(|_| Error::Usage {
                what: format!("'{text}' is not a version of file systems: it is 1 to 5"),
            })?,
        };
        self.pool.datasets().upgrade_filesystem(name, Some(wanted)).map(drop)
    }
}

impl Pool {
    /// Refuses a version that does not exist, or that the pool's own version does not have.
    fn check_filesystem_version(&self, name: &str, wanted: u64) -> Result<()> {
        if !(1..=FILESYSTEM_VERSION).contains(&wanted) {
            let what = format!("'{wanted}' is not a version of file systems: it is 1 to 5");
            return Err(Error::Usage { what });
        }
        if wanted <= version::filesystem_version(self.0.spa.config().version) {
            return Ok(());
        }
        let needed = match wanted {
            5 => version::SYSTEM_ATTRIBUTES,
            4 => version::USERSPACE,
            _ => version::UNIQUE_ACCURATE,
        };
        let what = format!(
            "{name}: can not be upgraded; the pool version needs to first be upgraded\nto version {needed}"
        );
        Err(Error::Refused { what })
    }
}
