//! Changes that retire a head: it is destroyed, rolled back, or renamed. No thread opens one
//! meanwhile, and handles of a head that no longer exists give errors from then on.

use std::collections::HashMap;

use dsl::write::{self, SyncTaskContext};
use spa::ActivePool;

use super::history::{dataset_id, record_event_with_id};
use super::{OpenVolume, Pool};
use crate::{Error, Result};

impl Pool {
    /// Runs a sync task that may retire these heads. Their transactions are held back meanwhile: in the task
    /// the heads have all changes that succeeded. The task closes the heads that it retires. Their intent
    /// logs are paused, since the log of a retired head could not be freed. Clones from snapshots are held back
    /// too, as the task may destroy snapshots.
    ///
    /// The task owns the gates: if the pool is suspended while the task runs, the caller returns before it.
    pub(super) fn run_retiring_task<T: Send + 'static>(
        &self,
        heads: &[String],
        work: impl FnOnce(&ActivePool, &SyncTaskContext<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (mut files, mut volumes) = (self.0.filesystems.lock(), self.0.volumes.lock());
        let (mut sets, mut retired) = (Vec::new(), Vec::new());
        let mut gates = vec![self.0.spa.close_snapshot_gate()];
        let mut heads = heads.iter().filter(|name| !name.contains(['@', '#'])).peekable();
        if heads.peek().is_some() {
            let _pin = self.pin();
            let tree = self.tree()?;
            for name in heads {
                let id = tree.find(name).ok().and_then(|dataset| dataset.id());
                if let Some(set) = id.and_then(|id| self.0.spa.dataset(id)) {
                    set.pause_log(true);
                    gates.push(self.0.spa.txgs().close_gate(set.gate()));
                    sets.push((name, set));
                }
            }
        }
        let done = self.run_sync_task(move |active, change| {
            let _gates = gates;
            work(active, change)
        });
        for (name, set) in sets {
            if set.is_retired() {
                files.remove(name);
                retired.extend(volumes.remove(name));
            } else {
                set.pause_log(false);
            }
        }
        drop((files, volumes));
        retired.iter().for_each(OpenVolume::notify_watchers);
        done
    }

    /// Runs a sync task that may destroy a snapshot, and retires no head that is open. Clones from snapshots are
    /// held back until the task has run.
    pub(super) fn run_destroying_task<T: Send + 'static>(
        &self,
        work: impl FnOnce(&ActivePool, &SyncTaskContext<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let gate = self.0.spa.close_snapshot_gate();
        self.run_sync_task(move |active, change| {
            let _gate = gate;
            work(active, change)
        })
    }

    /// Has something made, which nobody can open before this returns.
    pub(super) fn with_opens_blocked<T>(&self, make: impl FnOnce() -> Result<T>) -> Result<T> {
        let _nobody = (self.0.filesystems.lock(), self.0.volumes.lock());
        make()
    }

    /// Renames a head and all its descendants. Open handles stay valid.
    pub(super) fn rename_head_dataset(&self, from: &str, to: &str) -> Result<()> {
        self.find_parent(to)?;
        let (mut files, mut volumes) = (self.0.filesystems.lock(), self.0.volumes.lock());
        let (old, new) = (from.to_owned(), to.to_owned());
        self.run_sync_task(move |active, change| {
            let id = dataset_id(change, &old);
            write::rename(change, &old, &new)
                .map_err(|error| Error::from_dsl_error(&old, &error))?;
            record_event_with_id(active, change, "rename", (&old, id), &format!("-> {new}"));
            Ok(())
        })?;
        let moved = |name: &str| {
            let rest = name.strip_prefix(from)?;
            (rest.is_empty() || rest.starts_with('/')).then(|| format!("{to}{rest}"))
        };
        rename_open(&mut files, &moved);
        rename_open(&mut volumes, &moved);
        drop((files, volumes));
        // they inherit from others now
        self.refresh_properties();
        Ok(())
    }

    /// Syncs a head's dirty data, and closes it.
    pub(super) fn close_dataset(&self, name: &str) -> Result<()> {
        self.close_datasets_with(|close| close(name))
    }

    /// Runs work that closes heads. No thread opens one meanwhile.
    pub(super) fn close_datasets_with<T>(
        &self,
        work: impl FnOnce(&mut dyn FnMut(&str) -> Result<()>) -> Result<T>,
    ) -> Result<T> {
        let (mut files, mut volumes) = (self.0.filesystems.lock(), self.0.volumes.lock());
        let mut retired = Vec::new();
        let done = work(&mut |name| {
            files.remove(name);
            retired.extend(volumes.remove(name));
            self.retire_dataset(name)
        });
        drop((files, volumes));
        retired.iter().for_each(OpenVolume::notify_watchers);
        done
    }

    fn retire_dataset(&self, name: &str) -> Result<()> {
        let id = self.find_dataset(name)?.id();
        let Some(set) = id.and_then(|id| self.0.spa.dataset(id)) else { return Ok(()) };
        set.retire();
        let done = self.sync();
        if let Some(id) = id {
            self.0.spa.close_dataset(id);
        }
        done
    }
}

/// Renames the open heads.
fn rename_open<T>(open: &mut HashMap<String, T>, moved: &dyn Fn(&str) -> Option<String>) {
    let all = std::mem::take(open);
    let count = all.len();
    open.extend(all.into_iter().map(|(name, one)| (moved(&name).unwrap_or(name), one)));
    assert_eq!(open.len(), count, "each open dataset has a name of its own after a rename");
}
