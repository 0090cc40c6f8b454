//! Snapshots by policy: taken, all of one pool in one txg, and destroyed when they are surplus.

use std::collections::BTreeMap;

use api::{CreateBookmark, CreateSnapshots, Event, PolicyRun, PolicyStatus};
use jiff::tz::TimeZone;

use super::datasets::list_head_names;
use super::{ManagedPool, Pools};
use crate::Result;
use crate::events::ChangeOptions;
use crate::policy::{Period, PolicyConfig, automatic, policy_of, snapshot_name};

/// The last txg of a dataset that all its replicas have; `None`: the dataset has no replica.
pub(crate) type ReplicatedTxg<'a> = dyn Fn(&str) -> Option<u64> + 'a;

impl Pools {
    /// Takes due snapshots, and destroys surplus ones. Snapshots that a replica does
    /// not have yet stay.
    pub(crate) fn run_policies(
        &self,
        policies: &[PolicyConfig],
        replicated: &ReplicatedTxg<'_>,
        (now, zone): (u64, &TimeZone),
    ) -> PolicyRun {
        let mut run = PolicyRun::default();
        for pool in self.all() {
            let name = pool.handle.name().to_owned();
            let is_own = |policy: &&PolicyConfig| api::pool_of(&policy.dataset) == name;
            if pool.handle.is_read_only() || !policies.iter().any(|policy| is_own(&policy)) {
                continue;
            }
            if let Err(why) = self.take_due(&pool, policies, (now, zone), &mut run) {
                run.failed.push(why.to_string());
            }
            if let Err(why) = self.prune(&pool, policies, replicated, &mut run) {
                run.failed.push(why.to_string());
            }
        }
        run
    }

    fn take_due(
        &self,
        pool: &ManagedPool,
        policies: &[PolicyConfig],
        (now, zone): (u64, &TimeZone),
        run: &mut PolicyRun,
    ) -> Result<()> {
        let mut by_period: Vec<(Period, Vec<String>)> = Vec::new();
        for head in list_head_names(&pool.handle, pool.handle.name())? {
            let Some(policy) = policy_of(policies, &head) else { continue };
            if pool.handle.datasets().incomplete_kind(&head)?.is_some() {
                continue;
            }
            let snapshots = pool.handle.snapshots().list(&head)?;
            for period in policy.due(&snapshots, now, zone) {
                let Some(part) = snapshot_name(period, now, zone) else { continue };
                let name = format!("{head}@{part}");
                match by_period.iter_mut().find(|(known, _)| *known == period) {
                    Some((_, names)) => names.push(name),
                    None => by_period.push((period, vec![name])),
                }
            }
        }
        // a dataset has one snapshot a txg at most, so that each kind has a txg of its own
        for (_, names) in by_period {
            self.take_together(names, run);
        }
        Ok(())
    }

    /// Takes snapshots in one txg.
    fn take_together(&self, names: Vec<String>, run: &mut PolicyRun) {
        let create = |names: Vec<String>| {
            let call = CreateSnapshots { names, recursive: false, properties: Vec::new() };
            self.create_snapshots(&call)
        };
        if create(names.clone()).is_ok() {
            run.taken.extend(names);
            return;
        }
        // one that cannot be taken must not keep the others from it
        for name in names {
            match create(vec![name.clone()]) {
                Ok(_) => run.taken.push(name),
                Err(why) => run.failed.push(why.to_string()),
            }
        }
    }

    fn prune(
        &self,
        pool: &ManagedPool,
        policies: &[PolicyConfig],
        replicated: &ReplicatedTxg<'_>,
        run: &mut PolicyRun,
    ) -> Result<()> {
        for head in list_head_names(&pool.handle, pool.handle.name())? {
            let Some(policy) = policy_of(policies, &head) else { continue };
            let snapshots = pool.handle.snapshots().list(&head)?;
            let safe = replicated(&head);
            for snapshot in policy.surplus(&snapshots) {
                let name = format!("{head}@{}", snapshot.name);
                if safe.is_some_and(|safe| snapshot.txg > safe) {
                    run.kept.push(name);
                    continue;
                }
                if !pool.handle.snapshots().holds(&name)?.is_empty() {
                    continue;
                }
                match self.destroy_snapshot(&name) {
                    Ok(()) => run.pruned.push(name),
                    Err(why) => run.failed.push(why.to_string()),
                }
            }
        }
        Ok(())
    }

    /// Destroys a snapshot on which nothing depends.
    pub(crate) fn destroy_snapshot(&self, name: &str) -> Result<()> {
        let events = [Event::SnapshotDestroyed { snapshot: name.to_owned() }];
        self.change_dataset(name, |pool| {
            let work = || Ok(pool.handle.datasets().destroy(name)?);
            self.change(&events, &ChangeOptions::default(), work).map(drop)
        })
    }

    /// Lets the bookmark of a replica follow the newest snapshot that the replica has, so that the snapshot can
    /// be destroyed.
    pub(crate) fn move_replica_bookmark(
        &self,
        dataset: &str,
        replica: &str,
        snapshot: &str,
    ) -> Result<()> {
        let part = format!("replica_{replica}");
        let bookmark = format!("{dataset}#{part}");
        let snapshot = format!("{dataset}@{snapshot}");
        let pool = self.pool_of_dataset(dataset)?;
        let old =
            pool.handle.snapshots().bookmarks(dataset)?.into_iter().find(|it| it.name == part);
        if let Some(old) = old {
            let wanted = pool.handle.snapshots().list(dataset)?;
            if wanted.iter().any(|it| it.guid == old.guid && snapshot.ends_with(&it.name)) {
                return Ok(());
            }
            // the snapshot itself is the base until the next one is made
            self.change_dataset(dataset, |pool| Ok(pool.handle.datasets().destroy(&bookmark)?))?;
        }
        self.create_bookmark(&CreateBookmark { snapshot, bookmark }).map(drop)
    }

    /// The snapshots of each dataset that has a policy.
    pub(crate) fn policy_status(
        &self,
        policies: &[PolicyConfig],
        (now, zone): (u64, &TimeZone),
    ) -> Vec<PolicyStatus> {
        let mut found = BTreeMap::new();
        for pool in self.all() {
            let Ok(heads) = list_head_names(&pool.handle, pool.handle.name()) else { continue };
            for head in heads {
                let Some(policy) = policy_of(policies, &head) else { continue };
                let Ok(snapshots) = pool.handle.snapshots().list(&head) else { continue };
                let due = policy.due(&snapshots, now, zone);
                for period in Period::ALL {
                    let of_kind: Vec<_> = automatic(&snapshots, period).collect();
                    let newest = of_kind.iter().max_by_key(|snapshot| snapshot.txg);
                    let status = PolicyStatus {
                        dataset: head.clone(),
                        period: period.word().to_owned(),
                        keep: policy.keep(period),
                        count: of_kind.len(),
                        newest: newest.map(|snapshot| snapshot.name.clone()),
                        newest_time: newest.map(|snapshot| snapshot.created),
                        is_due: due.contains(&period),
                    };
                    if status.keep > 0 || status.count > 0 {
                        found.entry(head.clone()).or_insert_with(Vec::new).push(status);
                    }
                }
            }
        }
        found.into_values().flatten().collect()
    }
}
