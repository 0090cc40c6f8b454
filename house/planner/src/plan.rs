//! The input and result of a plan: one object for programs, from which reports and pictures are
//! made.

use serde::Serialize;
use units::Ashift;

use crate::capacity::{
    Capacity, CapacityOptions, RecordPlan, SpaceAccount, VdevPlan, ratio, to_f64, to_u64,
};
use crate::cost::{Cost, Prices};
use crate::drive_spec::{DriveClass, DriveSpec};
use crate::pool_layout::{GroupKind, PoolLayout};
use crate::rank::{self, Goal};
use crate::safety::{FailureModel, SCRUBS_PER_YEAR, Safety, pool_safety};
use crate::simulate::{Simulation, simulate};
use crate::speed::{Speed, resilver_hours};
use crate::{Error, RecordMix, SpaceRules};

/// The block sizes of every plan.
pub const RECORD_SIZES: [u64; 8] =
    [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 1 << 20, 4 << 20];

/// The input.
#[derive(Clone, Debug)]
pub struct PlanRequest {
    /// The drives, bytes each.
    pub drives: Vec<u64>,
    /// log2 of the sector.
    pub ashift: Ashift,
    /// Block sizes.
    pub records: RecordMix,
    /// Whether OpenZFS partitions the drives.
    pub whole_disks: bool,
    /// The OpenZFS release whose rules of slop space apply.
    pub rules: SpaceRules,
    /// The properties of each drive.
    pub drive: DriveSpec,
    /// Part of the pool that is in use, for resilver times and safety; 0 to 1.
    pub fill: f64,
    /// Hours from a drive's failure until its replacement begins to be filled.
    pub replacement_delay_hours: f64,
    /// The price of the drives.
    pub prices: Option<Prices>,
    /// The price of a kWh.
    pub price_per_kwh: f64,
    /// How often to play 5 years; 0 for not at all.
    pub simulation_runs: u64,
    /// The seed of those plays.
    pub seed: u64,
}

impl PlanRequest {
    /// The default input for these drives.
    pub fn new(drives: Vec<u64>, ashift: Ashift) -> Self {
        Self {
            drives,
            ashift,
            records: RecordMix::default(),
            whole_disks: false,
            rules: SpaceRules::default(),
            drive: DriveClass::default().into(),
            fill: 0.8,
            replacement_delay_hours: 24.0,
            prices: None,
            price_per_kwh: 0.30,
            simulation_runs: 0,
            seed: 1,
        }
    }

    fn validate(&self) -> Result<(), Error> {
        self.drive.validate()?;
        let hours = 0.0..1e6;
        for (what, value, range) in [
            ("the part in use", self.fill, &(0.0..1.000_001)),
            ("hours until a replacement", self.replacement_delay_hours, &hours),
            ("the price of a kWh", self.price_per_kwh, &hours),
        ] {
            if !range.contains(&value) {
                return Err(Error::OutOfRange { parameter: what, value });
            }
        }
        Ok(())
    }

    /// The assumptions of the estimates, in sentences.
    pub fn assumptions(&self) -> Vec<String> {
        let DriveSpec {
            bytes_per_second,
            operations_per_second,
            annual_failure_rate,
            unreadable_per_bit,
            ..
        } = self.drive;
        let wait = self.replacement_delay_hours;
        vec![
            format!(
                "A drive streams {:.0} MB/s and does {operations_per_second:.0} random operations \
                 a second; nothing but drives limits (no bus, CPU, or network).",
                bytes_per_second / 1e6
            ),
            format!(
                "{:.2} % of drives fail in a year, each by itself; one bit in {:.0e} cannot be \
                 read, the makers' worst figure. Batches that fail together, \
                 heat, power and people are not counted.",
                annual_failure_rate * 100.0,
                1.0 / unreadable_per_bit.max(f64::MIN_POSITIVE)
            ),
            format!(
                "The pool is {:.0} % full; a replacement begins {wait:.0} h after a failure (at \
                 once where there is a spare, which is taken to be replaced in time), and \
                 resilvers while the pool has nothing else to do, in runs of at most 1 MiB.",
                self.fill * 100.0
            ),
            format!(
                "\"Lost\" is the whole pool. \"Damaged\" is that, or a block that could not be \
                 read when no redundancy was left; a pool without any is scrubbed \
                 {SCRUBS_PER_YEAR:.0} times a year.",
            ),
            "Data are not compressed, and blocks are as large as the record size.".to_owned(),
        ]
    }
}

/// The figures of a layout.
#[derive(Clone, Debug, Serialize)]
pub struct LayoutPlan {
    /// The layout in zpool's words.
    pub layout: String,
    /// All drives, bytes.
    pub raw_bytes: u64,
    /// SIZE in `zpool list`, bytes.
    pub size_bytes: u64,
    /// USED + AVAIL of the empty pool's root dataset in `zfs list`, bytes.
    pub usable_bytes: u64,
    /// The same as `zfs list` shows it.
    pub usable_shown: String,
    /// The size that `df` shows; bytes, less up to a MiB that the empty pool's metadata takes.
    pub df_bytes: u64,
    /// Drives less parity and spares, as advertisements count; bytes.
    pub net_bytes: u64,
    /// The slop space, bytes.
    pub slop_bytes: u64,
    /// Part of the raw bytes that is usable.
    pub efficiency: f64,
    /// The top-level vdevs.
    pub vdevs: Vec<VdevPlan>,
    /// Where all bytes go.
    pub account: SpaceAccount,
    /// The capacity for each block size.
    pub records: Vec<RecordPlan>,
    /// The capacity for the chosen block sizes; bytes, not compressed.
    pub mix_fits_bytes: u64,
    /// Expected speed.
    pub speed: Speed,
    /// Chances of loss.
    pub safety: Safety,
    /// The same, simulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulation: Option<Simulation>,
    /// Money and power.
    pub cost: Cost,
    /// Whether no other layout of this plan is better in space, safety and speed at once.
    pub pareto_best: bool,
    /// Whether `zpool create` needs `-f`: its groups differ in type or redundancy.
    pub needs_force: bool,
}

impl LayoutPlan {
    /// Plans one layout.
    pub fn new(question: &PlanRequest, words: &PoolLayout) -> Result<Self, Error> {
        question.validate()?;
        let PlanRequest { ashift, whole_disks, rules, drive, fill, .. } = question;
        let taking = CapacityOptions { ashift: *ashift, whole_disks: *whole_disks, rules: *rules };
        let capacity = Capacity::new(words, &question.drives, taking, &question.records)?;
        let fits = |record| to_f64(capacity.record_plan(record).fits_bytes);
        let spared = words.0.iter().any(|group| group.kind == GroupKind::Spare);
        let wait = if spared { 0.0 } else { question.replacement_delay_hours };
        let hazards: Vec<FailureModel> = (capacity.vdevs.iter())
            .map(|vdev| {
                let resilver = resilver_hours(vdev, drive, &question.records, *fill);
                FailureModel::new(vdev, drive, *fill, resilver, wait)
            })
            .collect();
        let usable_bytes = capacity.account.usable_bytes;
        let raw_bytes = question.drives.iter().sum();
        let simulation = (question.simulation_runs > 0)
            .then(|| simulate(&hazards, question.simulation_runs, question.seed));
        Ok(Self {
            layout: words.to_string(),
            raw_bytes,
            size_bytes: capacity.size_bytes,
            usable_bytes,
            usable_shown: units::human_bytes(usable_bytes),
            df_bytes: capacity.df_bytes,
            net_bytes: capacity.net_bytes,
            slop_bytes: capacity.account.slop_bytes,
            efficiency: ratio(usable_bytes, raw_bytes),
            mix_fits_bytes: to_u64(question.records.harmonic_mean(fits)),
            records: RECORD_SIZES.iter().map(|record| capacity.record_plan(*record)).collect(),
            account: capacity.account,
            speed: Speed::new(&capacity.vdevs, drive, &question.records, *fill),
            safety: pool_safety(&hazards),
            simulation,
            cost: Cost::new(
                &question.drives,
                usable_bytes,
                question.prices.as_ref(),
                drive.watts,
                question.price_per_kwh,
            )?,
            pareto_best: true,
            needs_force: has_mixed_vdevs(&capacity.vdevs),
            vdevs: capacity.vdevs,
        })
    }
}

/// Whether vdevs differ in kind, width or redundancy, or drives in size within one.
fn has_mixed_vdevs(vdevs: &[VdevPlan]) -> bool {
    let kinds = vdevs.windows(2).any(|pair| pair[0].layout != pair[1].layout);
    kinds || vdevs.iter().any(|vdev| vdev.drives.iter().any(|drive| *drive != vdev.drives[0]))
}

/// The result.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// The figures of each layout; the best for the goal first, if there is one.
    pub layouts: Vec<LayoutPlan>,
    /// log2 of the sector.
    pub ashift: u32,
    /// The assumed properties of each drive.
    pub drive: DriveSpec,
    /// The assumptions of the estimates.
    pub assumptions: Vec<String>,
}

impl Plan {
    /// The figures of some layouts, in their order.
    pub fn for_layouts(question: &PlanRequest, layouts: &[PoolLayout]) -> Result<Self, Error> {
        let layouts = layouts.iter().map(|words| LayoutPlan::new(question, words));
        let mut layouts = layouts.collect::<Result<Vec<_>, _>>()?;
        rank::mark_pareto(&mut layouts);
        Ok(Self::assemble(question, layouts))
    }

    /// The figures of every sensible layout: the best for `goal` first, or in their order. Drives
    /// are used in the order of their sizes, the largest first.
    pub fn ranked(question: &PlanRequest, goal: Option<Goal>) -> Result<Self, Error> {
        let mut question = question.clone();
        question.drives.sort_unstable_by(|a, b| b.cmp(a));
        let words = rank::sensible_layouts(&question.drives);
        let layouts = words.iter().map(|words| LayoutPlan::new(&question, words));
        let mut layouts = layouts.collect::<Result<Vec<_>, _>>()?;
        if layouts.is_empty() {
            return Err(Error::NoSensibleLayout);
        }
        rank::mark_pareto(&mut layouts);
        if let Some(goal) = goal {
            rank::sort_by_goal(&mut layouts, goal);
        }
        Ok(Self::assemble(&question, layouts))
    }

    fn assemble(question: &PlanRequest, layouts: Vec<LayoutPlan>) -> Self {
        Self {
            layouts,
            ashift: question.ashift.get(),
            drive: question.drive,
            assumptions: question.assumptions(),
        }
    }
}
