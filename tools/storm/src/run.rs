//! A workload on a pool, and the expected state of the pool as of each txg.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use sim::{DiskArray, Random};

use crate::model::Model;
use crate::op::Op;
use crate::pool::{BasePool, import_pool};
use crate::tree::Tree;
use crate::{PoolLayout, Workload};

/// A finished operation, and the expected state after it.
#[derive(Debug)]
pub(crate) struct Step {
    /// How many requests there were when it began.
    pub(crate) requests_before: usize,
    /// And when it was done.
    pub(crate) requests_after: usize,
    /// The last txg on the drives by then.
    pub(crate) txg: u64,
    pub(crate) op: Op,
    pub(crate) model: Model,
}

/// A workload that ran on a pool.
#[derive(Debug)]
pub struct Run {
    pub(crate) layout: PoolLayout,
    pub(crate) workload: Workload,
    pub(crate) array: DiskArray,
    /// The finished operations; the first is the pool before.
    pub(crate) steps: Vec<Step>,
}

impl Run {
    /// Lets a workload run on a copy of a pool, with a sync at its end.
    pub fn new(shape: PoolLayout, base: &BasePool, workload: Workload) -> Result<Self, String> {
        let (run, trouble) = Self::with_faults(shape, base, workload, &|_, _| {})?;
        trouble.map_or(Ok(run), |why| Err(format!("{shape}:{workload}: {why}")))
    }

    /// The same; before each operation `harm` may do something to the drives. Ends with the first
    /// operation that fails, and gives why it did.
    pub fn with_faults(
        shape: PoolLayout,
        base: &BasePool,
        workload: Workload,
        harm: &dyn Fn(usize, &DiskArray),
    ) -> Result<(Self, Option<String>), String> {
        let storm = DiskArray::from_memory(base.devices.clone());
        let seed = workload.seed();
        let mut chance = Random::new(seed);
        let pool = import_pool(&storm.devices(), seed)?;
        let mut model = base.model.clone();
        let (op, txg) = (Op::Sync, pool.txg());
        let first = Step { requests_before: 0, requests_after: 0, txg, op, model: model.clone() };
        let mut run = Self { layout: shape, workload, array: storm, steps: vec![first] };
        for place in 0..=workload.length() {
            let op = if place == workload.length() {
                Op::Sync
            } else {
                workload.op(place, &model, &mut chance)
            };
            harm(place, &run.array);
            let now = base.now + 1 + i64::try_from(place).unwrap_or(0);
            let from = run.array.journal().len();
            let trouble = op.apply_to_pool(&pool, now).err();
            op.apply_to_model(&mut model, now);
            let (mut to, mut txg) = (run.array.journal().len(), pool.txg());
            if trouble.is_some() {
                // whether an unfinished operation is there is known to the drives alone
                (to, txg) = (usize::MAX, txg + 1);
            }
            run.steps.push(Step {
                requests_before: from,
                requests_after: to,
                txg,
                op,
                model: model.clone(),
            });
            if trouble.is_some() {
                return Ok((run, trouble));
            }
        }
        Ok((run, None))
    }

    /// The finished operations.
    pub fn ops(&self) -> impl Iterator<Item = &Op> {
        self.steps.iter().skip(1).map(|step| &step.op)
    }

    /// How many moments there are at which it can be cut.
    pub fn cut_point_count(&self) -> usize {
        self.array.journal().len() + 1
    }

    /// The possible states of a pool found at a txg after this many requests; an error if it cannot
    /// be at that txg.
    pub(crate) fn allowed_states(&self, at: usize, txg: u64) -> Result<Vec<AllowedState>, String> {
        let least =
            self.steps.iter().filter(|step| step.requests_after <= at).map(|step| step.txg).max();
        if Some(txg) < least {
            return Err(format!("the pool is at txg {txg}, and {least:?} was there already"));
        }
        let bases =
            self.steps_around_txg(txg).ok_or_else(|| format!("txg {txg} was never written"))?;
        if self.steps[*bases.end()].requests_before > at {
            return Err(format!("the pool is at txg {txg}, which was not begun yet"));
        }
        Ok(bases.map(|base| self.allowed_with_logs(at, base)).collect())
    }

    /// The steps after which the pool may be as of a txg: after the one that wrote it, whose own
    /// change may be in it, or be the first behind it.
    fn steps_around_txg(&self, txg: u64) -> Option<RangeInclusive<usize>> {
        let by = self.steps.iter().position(|step| step.txg >= txg)?;
        let step = &self.steps[by];
        let unsure = matches!(step.op, Op::File { .. }) || txg < step.txg;
        Some(by.saturating_sub(usize::from(unsure))..=by)
    }

    /// The possible states as of a txg that was on the drives during the run, without intent logs.
    pub(crate) fn models_at_txg(&self, txg: u64) -> Vec<&Model> {
        let bases = self.steps_around_txg(txg).filter(|_| txg >= self.steps[0].txg);
        bases.into_iter().flatten().map(|base| &self.steps[base].model).collect()
    }

    /// The possible states of a pool at step `base` with its intent logs: all fsynced changes until
    /// then, and maybe the change that was being fsynced.
    fn allowed_with_logs(&self, at: usize, base: usize) -> AllowedState {
        let later = || (base + 1..).zip(self.steps.iter().skip(base + 1));
        let model = &self.steps[base].model;
        let trees = |set: &String| {
            let mine = || {
                later().filter(|(_, s)| matches!(&s.op, Op::Fsync { dataset: own } if own == set))
            };
            let done =
                mine().filter(|(_, step)| step.requests_after <= at).map(|(index, _)| index).max();
            let begun =
                mine().filter(|(_, step)| step.requests_before < at).map(|(index, _)| index).max();
            let least = done.unwrap_or(base);
            // one that had nothing to write is done as soon as it begins
            let most = begun.unwrap_or(base).max(least);
            let trees = (least..=most).filter_map(|index| {
                let tree = Arc::clone(&self.steps[index].model.datasets.get(set)?.tree);
                Some((tree, index == base))
            });
            trees.collect()
        };
        let heads = model.datasets.keys().map(|set| (set.clone(), trees(set))).collect();
        AllowedState { model: model.clone(), heads }
    }
}

/// A possible state of a pool.
pub(crate) struct AllowedState {
    /// As of its txg.
    pub(crate) model: Model,
    /// The possible states of each file system with its log; whether that is the state as of the
    /// txg, including the times of files, which logs do not have.
    pub(crate) heads: BTreeMap<String, Vec<(Arc<Tree>, bool)>>,
}
