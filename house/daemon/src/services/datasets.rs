//! The service of datasets: file systems, volumes, snapshots, bookmarks, and their properties.

use std::sync::Arc;

use api::{
    AbortReceive, AllowPermissions, CloneSnapshot, CreateBookmark, CreateFilesystem,
    CreateSnapshots, CreateVolume, DestroyDatasets, GetDeleteQueue, GetPermissions,
    InheritProperty, ListDatasets, ListFileChanges, ListHolds, ListOwnerUsage, PlaceHold, PlanSend,
    PromoteClone, ReceiveStream, RedactSnapshot, ReleaseHold, RemovePermissions, RenameDataset,
    Reply, RollbackDataset, SendStream, SetProperties, UpgradeFilesystem,
};

use super::Service;
use crate::context::Context;
use crate::pools::Pools;
use crate::router::Router;

/// The service of datasets.
pub(super) struct DatasetService {
    pools: Arc<Pools>,
}

impl DatasetService {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        Self { pools: Arc::clone(&context.pools) }
    }

    fn add_creations(&self, router: &mut Router) {
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &CreateFilesystem, caller| {
            // root mounts it, and ordinary users choose no directories for that
            let has_mountpoint = call.properties.iter().any(|(name, _)| name == "mountpoint");
            let no_mount = call.no_mount || !caller.peer.is_owner && has_mountpoint;
            let mounting =
                pools.create_filesystem(&CreateFilesystem { no_mount, ..call.clone() })?;
            if !call.dry_run {
                pools.finish_creation(&call.name, caller.peer)?;
            }
            Ok(mounting)
        });
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &CreateVolume, caller| {
            let reply = pools.create_volume(call)?;
            if !call.dry_run {
                pools.allow_creator(&call.name, caller.peer)?;
            }
            Ok(reply)
        });
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &CreateSnapshots, _| pools.create_snapshots(call));
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &CreateBookmark, _| pools.create_bookmark(call));
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &RedactSnapshot, _| pools.redact_snapshot(call));
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &CloneSnapshot, caller| {
            let mounting = pools.clone_snapshot(call)?;
            pools.allow_creator(&call.name, caller.peer)?;
            Ok(mounting)
        });
    }
}

impl DatasetService {
    fn add_streams(&self, router: &mut Router) {
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &SendStream, caller| pools.send_stream(call, caller));
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &PlanSend, _| pools.plan_send(call));
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &ReceiveStream, caller| pools.receive_stream(call, caller));
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &AbortReceive, _| pools.abort_receive(call));
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &ListFileChanges, _| pools.list_file_changes(call));
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &PlaceHold, _| pools.place_hold(call));
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &ReleaseHold, _| pools.release_hold(call));
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &ListHolds, _| pools.list_holds(call));
    }
}

impl Service for DatasetService {
    fn name(&self) -> &'static str {
        "datasets"
    }

    fn calls(self: Arc<Self>, router: &mut Router) {
        self.add_creations(router);
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &ListDatasets, _| pools.list_datasets(call));
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &ListOwnerUsage, _| pools.list_owner_usage(call));
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &DestroyDatasets, caller| pools.destroy(call, caller));
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &SetProperties, caller| {
            // root mounts, and ordinary users choose no directories for that
            let keep_mounts = call.keep_mounts || !caller.peer.is_owner;
            pools.set_properties(&SetProperties { keep_mounts, ..call.clone() })
        });
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &InheritProperty, _| pools.inherit_property(call));
        let pools = Arc::clone(&self.pools);
        router
            .add(move |call: &RollbackDataset, _| Ok(Reply::with_warnings(pools.rollback(call)?)));
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &PromoteClone, caller| {
            pools.check_promote(call, caller.peer)?;
            pools.promote_clone(&call.name)
        });
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &RenameDataset, _| pools.rename_dataset(call));
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &GetDeleteQueue, _| {
            Ok(pools
                .pool_of_dataset(&call.name)?
                .handle
                .datasets()
                .has_unlinked_files(&call.name)?)
        });
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &UpgradeFilesystem, _| pools.upgrade_filesystem(call));
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &GetPermissions, _| pools.permissions(call));
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &AllowPermissions, _| pools.allow(call));
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &RemovePermissions, _| pools.unallow(call));
        self.add_streams(router);
    }
}
