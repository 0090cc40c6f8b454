//! Destroying datasets in batches, one txg each.
//!
//! One txg with thousands of destroyed snapshots would block every thread that waits for a txg.
//! Between two batches the caller may stop: the pool then lacks the datasets of the finished
//! batches, and nothing else.

use std::sync::Arc;

use dsl::write::{self, SyncTaskContext};
use spa::ActivePool;
use units::ObjsetId;

use super::history::{dataset_id, record_event_with_id};
use super::open_volumes::DatasetHolds;
use crate::pool::handles::Datasets;
use crate::{Error, Result};

/// Datasets that are destroyed with one txg.
const BATCH: usize = 256;

/// Datasets to destroy, in their order, and how far that has come.
#[derive(Debug)]
pub struct DestroyPlan {
    names: Arc<Vec<String>>,
    /// The snapshots among the names, with their identity when the first batch was destroyed: a
    /// later snapshot with such a name is another.
    snapshots: Option<Arc<Vec<ObjsetId>>>,
    /// Held or cloned snapshots are destroyed when they are neither any more.
    later: bool,
    done: usize,
}

impl DestroyPlan {
    /// Plans to destroy file systems, volumes, snapshots (`FS@SNAP`) and bookmarks (`FS#MARK`),
    /// each after its dependents. With `later`, a snapshot that is held or cloned is destroyed as
    /// soon as it is neither.
    pub fn new(names: Vec<String>, later: bool) -> Self {
        Self { names: Arc::new(names), snapshots: None, later, done: 0 }
    }

    /// The names of the next batch; none: all is destroyed.
    pub fn next_names(&self) -> &[String] {
        let end = (self.done + BATCH).min(self.names.len());
        self.names.get(self.done..end).unwrap_or_default()
    }

    /// All names, in their order.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The names that are not destroyed yet.
    pub fn names_left(&self) -> &[String] {
        self.names.get(self.done..).unwrap_or_default()
    }

    /// How many of the datasets are destroyed.
    pub fn done(&self) -> usize {
        self.done
    }
}

impl Datasets<'_> {
    /// Destroys a file system, a volume, a snapshot or a bookmark that nothing depends on.
    pub fn destroy(self, name: &str) -> Result<()> {
        self.pool.datasets().destroy_all(&[name.to_owned()], false)
    }

    /// Destroys datasets by a plan, batch after batch.
    pub fn destroy_all(self, names: &[String], later: bool) -> Result<()> {
        let mut plan = DestroyPlan::new(names.to_vec(), later);
        while !plan.next_names().is_empty() {
            self.pool.datasets().destroy_batch(&mut plan)?;
        }
        Ok(())
    }

    /// Destroys the next batch of a plan, all with one txg. Before the first batch the whole plan
    /// is checked: nothing is destroyed if a dataset is missing, a snapshot is held, or a volume or
    /// snapshot is open ([`Volumes::open`](crate::pool::Volumes::open),
    /// [`Volumes::open_snapshot`](crate::pool::Volumes::open_snapshot)). The batch ends at
    /// the first dataset with a dependent that is not destroyed before it.
    pub fn destroy_batch(self, plan: &mut DestroyPlan) -> Result<()> {
        let batch = plan.next_names().to_vec();
        let (names, known, later) = (Arc::clone(&plan.names), plan.snapshots.clone(), plan.later);
        let (first, count, used) = (plan.done, batch.len(), self.pool.0.dataset_holds.clone());
        let found = self.pool.run_retiring_task(&batch, move |active, change| {
            let snapshots = match known {
                Some(known) => known,
                None => Arc::new(check_all(change, &names, later, &used)?),
            };
            let batch = names.iter().zip(snapshots.iter().copied()).skip(first).take(count);
            let batch: Vec<_> = batch.map(|(name, id)| (name.as_str(), id)).collect();
            destroy_now(active, change, &batch, later, &used)?;
            Ok(snapshots)
        })?;
        plan.snapshots = Some(found);
        plan.done += count;
        Ok(())
    }
}

/// The file system or volume of a dataset's name.
fn head_of(name: &str) -> &str {
    name.split_once('@').map_or(name, |(head, _)| head)
}

/// Whether two names are of snapshots of one file system or volume.
fn are_siblings(one: &str, other: &str) -> bool {
    one.contains('@') && other.contains('@') && head_of(one) == head_of(other)
}

/// Whether a name is that of a file system or volume.
fn is_head(name: &str) -> bool {
    !name.contains(['@', '#'])
}

/// Finds the snapshots among the names; for others the number is 0. Refuses what cannot be destroyed.
fn check_all(
    change: &SyncTaskContext<'_>,
    names: &[String],
    later: bool,
    used: &DatasetHolds,
) -> Result<Vec<ObjsetId>> {
    let mut found = Vec::with_capacity(names.len());
    for siblings in names.chunk_by(|one, other| are_siblings(one, other)) {
        let Some(name) = siblings.first() else { continue };
        let (head, failed) = (head_of(name), |error| Error::from_dsl_error(head_of(name), &error));
        if is_head(name) {
            used.check_not_held(change, name).map_err(failed)?;
        }
        if head.len() == name.len() {
            found.push(ObjsetId::default());
            continue;
        }
        let parts: Vec<&str> = siblings.iter().filter_map(|name| part_of(name)).collect();
        let ids = write::find_snapshots(change, head, &parts).map_err(failed)?;
        for (name, id) in siblings.iter().zip(&ids) {
            used.check_id_not_held(*id, name).map_err(failed)?;
            if !later && write::is_held(change, *id).map_err(failed)? {
                return Err(failed(dsl::Error::Held { name: name.clone() }));
            }
        }
        found.extend(ids);
    }
    Ok(found)
}

/// The part of a snapshot's name behind the `@`.
fn part_of(name: &str) -> Option<&str> {
    name.split_once('@').map(|(_, part)| part)
}

/// Destroys one batch: snapshots of one file system that follow one another in it at once.
fn destroy_now(
    active: &ActivePool,
    change: &SyncTaskContext<'_>,
    batch: &[(&str, ObjsetId)],
    later: bool,
    used: &DatasetHolds,
) -> Result<()> {
    for (name, _) in batch.iter().filter(|(name, _)| is_head(name)) {
        let failed = |error: dsl::Error| Error::from_dsl_error(name, &error);
        // a program may have opened it since the batch before
        used.check_not_held(change, name).map_err(failed)?;
        write::destroy_recv_clone(change, name).map_err(failed)?;
    }
    for (name, id) in batch.iter().filter(|(name, _)| name.contains('@')) {
        let failed = |error: dsl::Error| Error::from_dsl_error(name, &error);
        used.check_id_not_held(*id, name).map_err(failed)?;
    }
    for siblings in batch.chunk_by(|(one, _), (other, _)| are_siblings(one, other)) {
        let Some((name, _)) = siblings.first() else { continue };
        let failed = |error: dsl::Error| Error::from_dsl_error(head_of(name), &error);
        if part_of(name).is_some() {
            let parts = siblings.iter().filter_map(|(name, id)| Some((part_of(name)?, *id)));
            let parts: Vec<_> = parts.collect();
            write::destroy_snapshots(change, head_of(name), &parts, later).map_err(failed)?;
            for (name, id) in siblings {
                record_event_with_id(active, change, "destroy", (name, *id), "");
            }
        } else if name.contains('#') {
            let id = dataset_id(change, name);
            write::destroy_bookmark(change, name).map_err(failed)?;
            record_event_with_id(active, change, "destroy", (name, id), "");
        } else {
            let id = write::head_id(change, name).map_err(failed)?;
            write::destroy(change, name).map_err(failed)?;
            active.close_dataset(id);
            record_event_with_id(active, change, "destroy", (name, id), "");
        }
    }
    Ok(())
}
