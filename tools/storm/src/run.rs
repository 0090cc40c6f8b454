//! A workload on a pool, and what the pool must hold as of each txg.

use sim::{Seed, Storm};

use crate::model::Model;
use crate::op::Op;
use crate::pool::{Base, hold};
use crate::{Shape, Workload};

/// A txg that the pool can be found at.
#[derive(Debug)]
pub(crate) struct Point {
    pub(crate) txg: u64,
    /// From this request on it may be there.
    pub(crate) from: usize,
    /// From this request on it must be there, or a later one.
    pub(crate) to: usize,
    pub(crate) model: Model,
}

/// A workload that ran on a pool.
#[derive(Debug)]
pub struct Run {
    pub(crate) shape: Shape,
    pub(crate) workload: Workload,
    pub(crate) storm: Storm,
    pub(crate) points: Vec<Point>,
    /// What was done.
    pub ops: Vec<Op>,
}

impl Run {
    /// Lets a workload run on a copy of a pool, with a sync at its end.
    pub fn new(shape: Shape, base: &Base, workload: Workload) -> Result<Self, String> {
        let storm = Storm::from_memory(base.drives.clone());
        let seed = workload.seed();
        let mut chance = Seed::new(seed);
        let held = hold(&storm.devices(), seed)?;
        let mut model = base.model.clone();
        let first = Point { txg: held.txg(), from: 0, to: 0, model: model.clone() };
        let mut run = Self { shape, workload, storm, points: vec![first], ops: Vec::new() };
        for place in 0..=workload.length() {
            let op = if place == workload.length() {
                Op::Sync
            } else {
                workload.op(place, &model, &mut chance)
            };
            let now = base.now + 1 + i64::try_from(place).unwrap_or(0);
            let from = run.storm.journal().len();
            run.ops.push(op.clone());
            op.pool(&held, now).map_err(|why| format!("{shape}:{workload}: {why}"))?;
            op.model(&mut model, now);
            if op.syncs() {
                let to = run.storm.journal().len();
                run.points.push(Point { txg: held.txg(), from, to, model: model.clone() });
            }
        }
        Ok(run)
    }

    /// How many moments there are at which it can be cut.
    pub fn moments(&self) -> usize {
        self.storm.journal().len() + 1
    }
}
