//! `zfs upgrade`: gives a file system a newer version. Its mounts end for a moment, and those below it.

use api::{Reply, UpgradeFilesystem};
use engine::pool::FilesystemUpgrade;

use super::mounts::{UnmountOptions, is_within};
use super::{ManagedPool, Pools};
use crate::Result;

impl Pools {
    pub(crate) fn upgrade_filesystem(
        &self,
        call: &UpgradeFilesystem,
    ) -> Result<Reply<FilesystemUpgrade>> {
        let name = call.name.as_str();
        self.change_dataset(name, |pool| {
            let upgrade = || Ok(pool.handle.datasets().upgrade_filesystem(name, call.version)?);
            let (value, warnings) = pool.while_unmounted(name, upgrade)?;
            Ok(Reply { value, warnings })
        })
    }
}

impl ManagedPool {
    /// Sets the property version. Returns a sentence for each file system that could not be mounted again.
    pub(super) fn set_filesystem_version(&self, name: &str, version: &str) -> Result<Vec<String>> {
        let upgrade = || Ok(self.handle.datasets().set_filesystem_version(name, version)?);
        self.while_unmounted(name, upgrade).map(|((), warnings)| warnings)
    }

    /// Changes a file system that no door has open, and mounts it again.
    fn while_unmounted<T>(
        &self,
        name: &str,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<(T, Vec<String>)> {
        let how = UnmountOptions { force: false, keep_dirs: true };
        let gone = self.unmount_selected(&|dataset| is_within(dataset, name), how)?;
        // a removed file that a client has open would not outlast the close
        let done = self.filesystems.check_closed(&|dataset| dataset == name).and_then(|()| work());
        let warnings = self.restore_mounts(&gone);
        Ok((done?, warnings))
    }
}
