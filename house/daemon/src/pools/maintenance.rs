//! Maintenance of pools: checkpoints, guids, upgrades, and the requests of their drives.

use api::SweepDrives;
use engine::pool::{PoolIoStats, UpgradeResult, UpgradeStatus};

use super::Pools;
use crate::Result;

impl Pools {
    /// Makes a checkpoint of a pool, or discards it.
    pub(crate) fn checkpoint_pool(&self, name: &str, discard: bool) -> Result<()> {
        let pool = self.writable_pool(name)?;
        let _changing = pool.dataset_lock.lock();
        let done = if discard {
            pool.handle.activities().discard_checkpoint()
        } else {
            pool.handle.activities().create_checkpoint()
        };
        Ok(done?)
    }

    /// Gives a pool another guid.
    pub(crate) fn change_pool_guid(&self, name: &str, guid: Option<u64>) -> Result<()> {
        let pool = self.writable_pool(name)?;
        let _importing = self.import_lock.lock();
        let _changing = pool.dataset_lock.lock();
        let new = pool.handle.set_guid(guid)?;
        self.log.write_line(&format!("pool '{name}' has guid {new}"));
        self.save_pools();
        Ok(())
    }

    /// Lists the versions and features that pools lack. No names: all pools.
    pub(crate) fn list_upgrades(&self, names: &[String]) -> Result<Vec<UpgradeStatus>> {
        let pools = self.select_pools(names)?;
        pools.iter().map(|pool| Ok(pool.handle.properties().upgrade_status()?)).collect()
    }

    /// Upgrades a pool.
    pub(crate) fn upgrade_pool(&self, name: &str, version: Option<u64>) -> Result<UpgradeResult> {
        let pool = self.writable_pool(name)?;
        let _changing = pool.dataset_lock.lock();
        Ok(pool.handle.properties().upgrade(version)?)
    }

    /// Starts, stops or ends work over the free space of drives.
    pub(crate) fn sweep_drives(&self, call: &SweepDrives) -> Result<()> {
        let pool = self.writable_pool(&call.name)?;
        let _changing = pool.dataset_lock.lock();
        let SweepDrives { kind, command, rate, .. } = *call;
        Ok(pool.handle.activities().command(&call.devices, kind, command, rate)?)
    }

    /// The requests of the drives of pools; none named: all.
    pub(crate) fn io_stats(&self, names: &[String]) -> Result<Vec<PoolIoStats>> {
        Ok(self.select_pools(names)?.iter().map(|pool| pool.handle.drives().io_stats()).collect())
    }
}
