//! The service of pools and their devices.

use std::sync::Arc;

use api::{
    AddDevices, AttachDevice, CancelRemoval, ClearLabels, ClearPool, CreatePool, DestroyPool,
    DetachDevice, ExportPool, FindEncryptionRoots, FindImportablePools, GetPoolHistory,
    GetPoolProperties, GetRewindProgress, GetVdevProperties, ImportPools, ListPools, OfflineDevice,
    OnlineDevice, RemoveDevices, ReopenPools, ReplaceDevice, Reply, ScrubPool, SetPoolProperty,
    SetVdevProperty, SplitPool, StopRewindProbe, SyncPools,
};

use super::Service;
use crate::context::Context;
use crate::pools::Pools;
use crate::router::Router;

/// The service of pools and their devices.
pub(super) struct PoolService {
    pools: Arc<Pools>,
}

impl PoolService {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        Self { pools: Arc::clone(&context.pools) }
    }

    fn add_imports(&self, router: &mut Router) {
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &FindImportablePools, _| {
            Ok(pools.find_importable(&call.paths, call.destroyed))
        });
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &FindEncryptionRoots, _| {
            let which = (call.destroyed, call.rewind);
            pools.list_encryption_roots(&call.paths, call.name.as_deref(), which)
        });
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &ImportPools, caller| {
            let (value, warnings) = pools.import_pools(call, caller)?;
            Ok(Reply { value, warnings })
        });
        let pools = Arc::clone(&self.pools);
        router.add(move |_: &GetRewindProgress, _| Ok(pools.rewind_progress()));
        let pools = Arc::clone(&self.pools);
        router.add(move |_: &StopRewindProbe, _| {
            pools.stop_rewind_probe();
            Ok(())
        });
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &ExportPool, _| pools.export_pool(&call.name, call.force));
    }

    fn add_vdev_properties(&self, router: &mut Router) {
        let pools = Arc::clone(&self.pools);
        router
            .add(move |call: &GetVdevProperties, _| pools.vdev_properties(&call.name, &call.vdevs));
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &SetVdevProperty, _| pools.set_vdev_property(call));
    }

    fn add_devices(&self, router: &mut Router) {
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &AddDevices, _| pools.add_devices(call));
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &RemoveDevices, _| pools.remove_devices(call));
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &CancelRemoval, _| pools.cancel_removal(&call.name));
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &ReplaceDevice, _| pools.replace_device(call));
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &AttachDevice, _| pools.attach_device(call));
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &DetachDevice, _| pools.detach_device(&call.name, &call.device));
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &SplitPool, _| pools.split_pool(call));
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &OfflineDevice, _| pools.offline_device(call));
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &OnlineDevice, _| pools.online_device(call));
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &ReopenPools, _| pools.reopen_pools(&call.names));
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &ClearLabels, _| pools.clear_labels(&call.path, call.force));
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &ScrubPool, _| pools.scrub(call));
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &ClearPool, _| {
            Ok(Reply::with_warnings(pools.clear_pool(&call.name, call.device.as_deref())?))
        });
    }
}

impl Service for PoolService {
    fn name(&self) -> &'static str {
        "pools"
    }

    fn calls(self: Arc<Self>, router: &mut Router) {
        self.add_imports(router);
        self.add_devices(router);
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &ListPools, _| pools.pool_reports(&call.names, call.verbose));
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &CreatePool, _| pools.create_pool(call));
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &DestroyPool, _| pools.destroy_pool(&call.name, call.force));
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &GetPoolProperties, _| pools.pool_properties(&call.names));
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &SetPoolProperty, _| {
            pools.set_pool_property(&call.name, &call.property, &call.value)
        });
        self.add_vdev_properties(router);
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &SyncPools, _| pools.sync_pools(&call.names));
        let pools = Arc::clone(&self.pools);
        router
            .add(move |call: &GetPoolHistory, _| pools.pool_histories(&call.names, call.internal));
    }
}
