//! The service of mounts: file systems are mounted as their pools and properties come, change and go.
//!
//! ```toml
//! [mounts]
//! snapshot_admin = true   # mkdir, rmdir and mv in .zfs/snapshot take, destroy and rename snapshots
//! ```

use std::sync::Arc;

use api::{Event, ListMounts, Mount, Unmount};

use serde::Deserialize;

use super::Service;
use crate::Result;
use crate::config::Config;
use crate::context::Context;
use crate::events::ChangeOptions;
use crate::pools::mounts::mount_all_pools;
use crate::pools::{ManagedPool, Pools};
use crate::router::Router;

/// The name of the section.
pub(super) const SECTION: &str = "mounts";

/// The section `[mounts]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MountsConfig {
    /// Whether snapshots can be changed by `.zfs/snapshot`, by those who have the permissions.
    snapshot_admin: bool,
}

/// The service of mounts.
pub(super) struct MountService {
    pools: Arc<Pools>,
}

impl MountService {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        Self { pools: Arc::clone(&context.pools) }
    }

    /// The pool that events concern; nothing if it is gone. All events of one change concern one pool.
    fn pool_of(&self, events: &[Event]) -> Option<Arc<ManagedPool>> {
        self.pools.pool(events.iter().find_map(Event::pool)?).ok()
    }
}

impl Service for MountService {
    fn name(&self) -> &'static str {
        "mounts"
    }

    fn calls(self: Arc<Self>, router: &mut Router) {
        let pools = Arc::clone(&self.pools);
        router.add(move |_: &ListMounts, _| {
            Ok(pools.all().iter().flat_map(|pool| pool.mounted_filesystems()).collect::<Vec<_>>())
        });
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &Mount, _| pools.mount(call));
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &Unmount, _| pools.unmount(call));
    }

    fn start(&self, context: &Arc<Context>) -> Result<()> {
        self.configure(&context.config.current())
    }

    fn configure(&self, config: &Config) -> Result<()> {
        let config: MountsConfig = config.section(SECTION);
        self.pools.allow_snapshot_admin(config.snapshot_admin);
        Ok(())
    }

    fn prepare(&self, coming: &[Event], options: &ChangeOptions) -> Result<()> {
        self.pool_of(coming).map_or(Ok(()), |pool| pool.prepare_mounts(coming, options))
    }

    fn abandon(&self, coming: &[Event]) {
        if let Some(pool) = self.pool_of(coming) {
            pool.abandon_mounts(coming);
        }
    }

    fn on_events(&self, events: &[Event], options: &ChangeOptions) -> Vec<String> {
        let come = events.iter().filter_map(|event| match event {
            Event::PoolCreated { pool } | Event::PoolImported { pool } => Some(pool),
            _ => None,
        });
        let come: Vec<_> = come.filter_map(|name| self.pools.pool(name).ok()).collect();
        if !come.is_empty() && !options.keep_mounts {
            return mount_all_pools(&come, &options.overrides);
        }
        self.pool_of(events).map_or_else(Vec::new, |pool| pool.follow_changes(events, options))
    }
}
