//! Destroying datasets: all is planned first, and done in batches, between which other requests have
//! their turn and the request may be cancelled.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::pool::DestroyPlan;
use parking_lot::MutexGuard;

use super::datasets::list_subtree;
use super::destroy_plan::{DestroyScope, plan_destroy};
use super::mounts::UnmountOptions;
use super::{Daemon, ManagedPool, value_response};
use crate::cancel::Cancel;
use crate::{DestroyedDatasets, Error, Response, Result};

/// How often the daemon looks again whether a volume is closed, and the time between: the kernel reports
/// it a little after a program has closed one.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(40);

impl Daemon {
    /// Destroys what `name` names, with what depends on it as far as `doom` says. `force`: what programs
    /// use is unmounted, too. `dry`: only gives the names.
    pub(super) fn destroy(
        &self,
        name: &str,
        doom: DestroyScope,
        (force, dry): (bool, bool),
        cancel: &Cancel,
    ) -> Result<Response> {
        let pool = self.pool_of_dataset(name)?;
        let mut changing = pool.dataset_lock.lock();
        let head = name.split(['@', '#']).next().unwrap_or(name);
        if !name.contains(['/', '@', '#']) && !doom.recursive {
            return Err(Error::refused_error(format!(
                "'{name}' is the pool's own file system: `zpool destroy {name}` destroys the pool, \
                 `zfs destroy -r {name}` what is in it"
            )));
        }
        // clones may be anywhere in the pool
        let all = list_subtree(&pool.handle, pool.handle.name())?;
        if !all.iter().any(|dataset| dataset.name == head) {
            return Err(engine::Error::NoSuchDataset { name: head.to_owned() }.into());
        }
        let names = plan_destroy(&all, name, doom)?;
        if !dry && !names.is_empty() {
            let plan = DestroyPlan::new(names.clone(), doom.defer);
            let how = UnmountOptions { force, keep_dirs: false };
            self.destroy_in_batches(&pool, plan, how, cancel, &mut changing)?;
        }
        value_response(&DestroyedDatasets { names })
    }

    /// Carries a plan out. Nothing is destroyed if something of it is in use.
    fn destroy_in_batches(
        &self,
        pool: &ManagedPool,
        mut plan: DestroyPlan,
        how: UnmountOptions,
        cancel: &Cancel,
        changing: &mut MutexGuard<'_, ()>,
    ) -> Result<()> {
        let mut gone = pool.unmount_all_of(plan.names(), how)?;
        pool.wait_closed(plan.names())?;
        let mut destroy = || -> Result<()> {
            while !plan.next_names().is_empty() {
                pool.handle.destroy_batch(&mut plan)?;
                if plan.next_names().is_empty() {
                    break;
                }
                if cancel.is_cancelled() || self.shutting_down.load(Ordering::Acquire) {
                    return Err(interrupted(&plan));
                }
                MutexGuard::bump(changing);
                // another request may have mounted something of it
                pool.unmount_all_of(plan.next_names(), how)?;
            }
            Ok(())
        };
        let done = destroy();
        if done.is_err() {
            let left: HashSet<&str> = plan.names_left().iter().map(String::as_str).collect();
            gone.retain(|gone| left.contains(gone.dataset.as_str()));
            pool.restore_mounts(&gone);
        }
        done
    }
}

fn interrupted(plan: &DestroyPlan) -> Error {
    Error::refused_error(format!(
        "interrupted: {} of {} datasets are destroyed, and the others are as they were",
        plan.done(),
        plan.names().len()
    ))
}

impl ManagedPool {
    /// Unmounts those of the datasets that are mounted.
    fn unmount_all_of(
        &self,
        names: &[String],
        how: UnmountOptions,
    ) -> Result<Vec<super::mounts::SavedMount>> {
        let heads = names.iter().filter(|name| !name.contains(['@', '#']));
        let heads: HashSet<&str> = heads.map(String::as_str).collect();
        if heads.is_empty() {
            return Ok(Vec::new());
        }
        self.unmount_selected(&|dataset| heads.contains(dataset), how)
    }

    /// Waits a moment for programs to close volumes.
    fn wait_closed(&self, names: &[String]) -> Result<()> {
        for _ in 0..TRIES {
            if !self.handle.is_any_volume_held(names)? {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Destroys datasets of which nothing is mounted any more.
    pub(super) fn destroy_all(&self, names: &[String]) -> Result<()> {
        self.wait_closed(names)?;
        Ok(self.handle.destroy_all(names, false)?)
    }
}
