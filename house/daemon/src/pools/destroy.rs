//! Destruction of datasets: all of it is planned first, and done in batches. Between two batches other changes
//! of the pool have their turn, and the user may cancel the rest.
//!
//! Destruction that takes more than one batch is a job.
//!
//! If a part of a recursive destruction is in use, the rest is destroyed one dataset after another, as with OpenZFS. What
//! is in use stays, and so does all that it depends on.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use api::{DestroyDatasets, DestroyedDatasets, Event};
use engine::pool::DestroyPlan;
use parking_lot::MutexGuard;

use super::datasets::list_subtree;
use super::destroy_plan::{DestroyScope, map_dependents, plan_destroy};
use super::{ManagedPool, Pools};
use crate::auth::Caller;
use crate::events::ChangeOptions;
use crate::jobs::{RunningJob, StepControl};
use crate::{Error, Result};

/// The number of times that the daemon looks whether a volume is closed, and the pause between: the kernel
/// reports it a little after a program closed one.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(40);

/// Whether a destruction continues.
struct Progress<'a> {
    caller: &'a Caller,
    control: Arc<StepControl>,
}

impl Progress<'_> {
    fn is_cancelled(&self) -> bool {
        self.caller.cancel.is_cancelled() || self.control.is_cancelled()
    }
}

impl Pools {
    /// Destroys the datasets of a call, with their dependents as far as the call allows.
    pub(crate) fn destroy(
        &self,
        call: &DestroyDatasets,
        caller: &Caller,
    ) -> Result<DestroyedDatasets> {
        let name = call.name.as_str();
        let recursive = call.recursive || call.clones;
        let scope = DestroyScope { recursive, clones: call.clones, defer: call.defer };
        let pool = self.pool_of_dataset(name)?;
        let mut changing = pool.dataset_lock.lock();
        let head = name.split(['@', '#']).next().unwrap_or(name);
        if !name.contains(['/', '@', '#']) && !scope.recursive {
            return Err(Error::refused_error(format!(
                "cannot destroy '{name}': operation does not apply to pools\nuse 'zfs destroy -r {name}' to destroy \
                 all datasets in the pool\nuse 'zpool destroy {name}' to destroy the pool itself"
            )));
        }
        // clones may be anywhere in the pool
        let all = list_subtree(&pool.handle, pool.handle.name())?;
        if !all.iter().any(|dataset| dataset.name == head) {
            return Err(engine::Error::NoSuchDataset { name: head.to_owned() }.into());
        }
        let names = plan_destroy(&all, name, scope)?;
        let is_measured = call.measure && name.contains('@');
        let reclaimed = is_measured.then(|| pool.reclaimed_by(&names)).transpose()?;
        if call.dry_run || names.is_empty() {
            return Ok(DestroyedDatasets { reclaimed, names });
        }
        let mut plan = DestroyPlan::new(names.clone(), scope.defer);
        let control = Arc::new(StepControl::new(names.len(), "datasets"));
        let is_long = plan.next_names().len() < names.len();
        let job = is_long.then(|| {
            let control = Arc::clone(&control);
            self.jobs.start("destroy", name, caller.peer.uid, control)
        });
        let progress = Progress { caller, control };
        let options = ChangeOptions { force: call.force, ..ChangeOptions::default() };
        let mut done =
            self.destroy_in_batches(&pool, &mut plan, &options, &progress, &mut changing);
        let has_heads = names.iter().any(|name| !name.contains(['@', '#']));
        let is_refused = done.is_err() && plan.done() == 0 && !progress.is_cancelled();
        if is_refused && scope.recursive && has_heads {
            let dependents = map_dependents(&all);
            let order = Order { names: &names, dependents: &dependents, later: scope.defer };
            done = self.destroy_what_is_unused(&pool, &order, &options, &progress);
        }
        end_job(job, &done, &progress);
        done.map(|()| DestroyedDatasets { names, reclaimed })
    }

    /// Executes a plan. Nothing is destroyed if a part of it is in use at the beginning.
    fn destroy_in_batches(
        &self,
        pool: &ManagedPool,
        plan: &mut DestroyPlan,
        options: &ChangeOptions,
        progress: &Progress<'_>,
        changing: &mut MutexGuard<'_, ()>,
    ) -> Result<()> {
        let events = |names: &[String]| -> Vec<Event> {
            names.iter().map(|name| Event::destroyed(name)).collect()
        };
        self.prepare_changes(&events(plan.names()), options)?;
        let mut destroy = || -> Result<()> {
            pool.wait_closed(plan.names())?;
            while !plan.next_names().is_empty() {
                let batch = events(plan.next_names());
                pool.handle.datasets().destroy_batch(plan)?;
                progress.control.set_done(plan.done());
                // nothing is left that a service could fail to follow
                self.events.publish(&batch, options);
                if plan.next_names().is_empty() {
                    break;
                }
                if progress.is_cancelled() || self.shutting_down.load(Ordering::Acquire) {
                    return Err(interrupted(plan.done(), plan.names().len()));
                }
                MutexGuard::bump(changing);
                // another call may have mounted some of it
                self.prepare_changes(&events(plan.next_names()), options)?;
            }
            Ok(())
        };
        let done = destroy();
        if done.is_err() {
            self.events.abandon(&events(plan.names_left()));
        }
        done
    }
}

impl Pools {
    /// Destroys each dataset of a plan that is not in use, and on which nothing depends that is. The error names the
    /// others. Snapshots that follow one another in the plan are destroyed together, or not at all.
    fn destroy_what_is_unused(
        &self,
        pool: &ManagedPool,
        order: &Order<'_>,
        options: &ChangeOptions,
        progress: &Progress<'_>,
    ) -> Result<()> {
        let (mut kept, mut failed, mut done) = (HashSet::<&str>::new(), Vec::new(), 0);
        let are_snapshots = |one: &String, other: &String| one.contains('@') && other.contains('@');
        for group in order.names.chunk_by(are_snapshots) {
            if progress.is_cancelled() || self.shutting_down.load(Ordering::Acquire) {
                return Err(interrupted(done, order.names.len()));
            }
            let needed = group.iter().find(|name| order.is_needed(name, &kept));
            let destroyed = match needed {
                Some(name) => {
                    Err(Error::refused_error(format!("cannot destroy '{name}': dataset is busy")))
                }
                None => self.destroy_group(pool, group, order.later, options),
            };
            match destroyed {
                Ok(()) => done += group.len(),
                Err(why) => {
                    kept.extend(group.iter().map(String::as_str));
                    failed.push(why);
                }
            }
            progress.control.set_done(done);
        }
        let Some(first) = failed.first() else { return Ok(()) };
        let said: Vec<String> = failed.iter().map(ToString::to_string).collect();
        Err(Error::Reported { message: said.join("\n"), status: first.status() })
    }

    fn destroy_group(
        &self,
        pool: &ManagedPool,
        names: &[String],
        later: bool,
        options: &ChangeOptions,
    ) -> Result<()> {
        let coming: Vec<_> = names.iter().map(|name| Event::destroyed(name)).collect();
        self.change(&coming, options, || {
            pool.wait_closed(names)?;
            Ok(pool.handle.datasets().destroy_all(names, later)?)
        })
        .map(drop)
    }
}

/// The order in which datasets are destroyed, and the datasets that depend on each.
struct Order<'a> {
    names: &'a [String],
    dependents: &'a HashMap<&'a str, Vec<&'a str>>,
    /// Held or cloned snapshots are destroyed when they are neither any more.
    later: bool,
}

impl Order<'_> {
    /// Whether one of the datasets that stay depends on a dataset.
    fn is_needed(&self, name: &str, kept: &HashSet<&str>) -> bool {
        let mut all = self.dependents.get(name).into_iter().flatten();
        all.any(|dependent| kept.contains(dependent))
    }
}

/// Ends the job of a destruction.
fn end_job(job: Option<RunningJob>, done: &Result<()>, progress: &Progress<'_>) {
    match (job, done) {
        (None, _) => (),
        (Some(job), Ok(())) => job.finish(),
        (Some(job), Err(why)) if progress.is_cancelled() => job.cancelled(why.to_string()),
        (Some(job), Err(why)) => job.fail(why.to_string()),
    }
}

fn interrupted(done: usize, all: usize) -> Error {
    Error::refused_error(format!(
        "interrupted: {done} of {all} datasets are destroyed, and the others are as they were"
    ))
}

impl ManagedPool {
    /// Waits a moment for programs to close volumes.
    fn wait_closed(&self, names: &[String]) -> Result<()> {
        for _ in 0..TRIES {
            if !self.handle.volumes().is_any_held(names)? {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Bytes that the pool gets back if snapshots are destroyed together.
    fn reclaimed_by(&self, names: &[String]) -> Result<u64> {
        let mut by_head = BTreeMap::<&str, Vec<&str>>::new();
        for (head, snapshot) in names.iter().filter_map(|name| name.split_once('@')) {
            by_head.entry(head).or_default().push(snapshot);
        }
        let mut reclaimed = 0_u64;
        for (head, snapshots) in by_head {
            reclaimed += self.handle.snapshots().reclaimed(head, &snapshots)?;
        }
        Ok(reclaimed)
    }

    /// Destroys datasets that are not mounted.
    pub(super) fn destroy_all(&self, names: &[String]) -> Result<()> {
        self.wait_closed(names)?;
        Ok(self.handle.datasets().destroy_all(names, false)?)
    }
}
