//! The service of the maintenance of pools: checkpoints, guids, upgrades, and the requests of their drives.

use std::sync::Arc;

use api::{ChangePoolGuid, CheckpointPool, GetIoStats, ListUpgrades, SweepDrives, UpgradePool};

use super::Service;
use crate::context::Context;
use crate::pools::Pools;
use crate::router::Router;

/// The service of the maintenance of pools.
pub(super) struct MaintenanceService {
    pools: Arc<Pools>,
}

impl MaintenanceService {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        Self { pools: Arc::clone(&context.pools) }
    }
}

impl Service for MaintenanceService {
    fn name(&self) -> &'static str {
        "maintenance"
    }

    fn calls(self: Arc<Self>, router: &mut Router) {
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &CheckpointPool, _| pools.checkpoint_pool(&call.name, call.discard));
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &ChangePoolGuid, _| pools.change_pool_guid(&call.name, call.guid));
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &ListUpgrades, _| pools.list_upgrades(&call.names));
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &UpgradePool, _| pools.upgrade_pool(&call.name, call.version));
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &SweepDrives, _| pools.sweep_drives(call));
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &GetIoStats, _| pools.io_stats(&call.names));
    }
}
