//! The service of the maintenance of pools: checkpoints.

use std::sync::Arc;

use api::CheckpointPool;

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
    }
}
