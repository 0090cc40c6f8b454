//! Destroying datasets: all is planned first, and done in batches, between which other requests have
//! their turn and the request may be cancelled.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::held::DestroyPlan;
use parking_lot::MutexGuard;

use super::datasets::list;
use super::doomed::{Doom, doomed};
use super::mounts::Unmount;
use super::{House, Pool, give};
use crate::cancel::Cancel;
use crate::{Answer, Destroyed, Error, Result};

/// How often the daemon looks again whether a volume is closed, and the time between: the kernel reports
/// it a little after a program has closed one.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(40);

impl House {
    /// Destroys what `name` names, with what depends on it as far as `doom` says. `force`: what programs
    /// use is unmounted, too. `dry`: only gives the names.
    pub(super) fn destroy(
        &self,
        name: &str,
        doom: Doom,
        (force, dry): (bool, bool),
        cancel: &Cancel,
    ) -> Result<Answer> {
        let pool = self.pool_of(name)?;
        let mut changing = pool.changing.lock();
        let head = name.split(['@', '#']).next().unwrap_or(name);
        if !name.contains(['/', '@', '#']) && !doom.recursive {
            return Err(Error::refused(format!(
                "'{name}' is the pool's own file system: `zpool destroy {name}` destroys the pool, \
                 `zfs destroy -r {name}` what is in it"
            )));
        }
        // clones may be anywhere in the pool
        let all = list(&pool.held, pool.held.name())?;
        if !all.iter().any(|dataset| dataset.name == head) {
            return Err(engine::Error::NoSuchDataset { name: head.to_owned() }.into());
        }
        let names = doomed(&all, name, doom)?;
        if !dry && !names.is_empty() {
            let plan = DestroyPlan::new(names.clone(), doom.later);
            let how = Unmount { force, keeps_folders: false };
            self.destroy_in_batches(&pool, plan, how, cancel, &mut changing)?;
        }
        give(&Destroyed { names })
    }

    /// Carries a plan out. Nothing is destroyed if something of it is in use.
    fn destroy_in_batches(
        &self,
        pool: &Pool,
        mut plan: DestroyPlan,
        how: Unmount,
        cancel: &Cancel,
        changing: &mut MutexGuard<'_, ()>,
    ) -> Result<()> {
        let mut gone = pool.unmount_all_of(plan.names(), how)?;
        pool.wait_closed(plan.names())?;
        let mut destroy = || -> Result<()> {
            while !plan.next_names().is_empty() {
                pool.held.destroy_batch(&mut plan)?;
                if plan.next_names().is_empty() {
                    break;
                }
                if cancel.is_cancelled() || self.leaving.load(Ordering::Acquire) {
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
            pool.mount_again(&gone);
        }
        done
    }
}

fn interrupted(plan: &DestroyPlan) -> Error {
    Error::refused(format!(
        "interrupted: {} of {} datasets are destroyed, and the others are as they were",
        plan.done(),
        plan.names().len()
    ))
}

impl Pool {
    /// Unmounts those of the datasets that are mounted.
    fn unmount_all_of(&self, names: &[String], how: Unmount) -> Result<Vec<super::mounts::Gone>> {
        let heads = names.iter().filter(|name| !name.contains(['@', '#']));
        let heads: HashSet<&str> = heads.map(String::as_str).collect();
        if heads.is_empty() {
            return Ok(Vec::new());
        }
        self.unmount(&|dataset| heads.contains(dataset), how)
    }

    /// Waits a moment for programs to close volumes.
    fn wait_closed(&self, names: &[String]) -> Result<()> {
        for _ in 0..TRIES {
            if !self.held.is_any_open(names)? {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Destroys datasets of which nothing is mounted any more.
    pub(super) fn destroy_all(&self, names: &[String]) -> Result<()> {
        self.wait_closed(names)?;
        Ok(self.held.destroy_all(names, false)?)
    }
}
