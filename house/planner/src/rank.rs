//! Which layouts make sense with some drives, and which of them serves a goal best.

use crate::plan::LayoutPlan;
use crate::pool_layout::{GroupKind, LayoutGroup, PoolLayout};

/// Drives left as hot spares at most when groups do not come out even.
const MAX_HOT_SPARES: usize = 2;
/// The widest suggested raidz: beyond it resilvers get too long for the gained space.
const MAX_RAIDZ_WIDTHS: [usize; 3] = [8, 14, 24];
/// The fewest drives for which dRAID is suggested.
const MIN_DRAID_DRIVES: usize = 12;
/// The longest lifetime that counts in the balance: beyond it space is worth more.
const BALANCE_NEGLIGIBLE_LOSS: f64 = 1e-6;
/// The weight of speed in the balance: twice the speed equals a fifth more space.
const BALANCE_SPEED_EXPONENT: f64 = 0.25;
/// A chance below which more safety no longer counts: the building burns more often.
const NEGLIGIBLE_LOSS: f64 = 1e-9;

/// The user's goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// The most space, with redundancy.
    Capacity,
    /// As little loss as possible.
    Safety,
    /// As many random operations, and as much throughput, as possible.
    Speed,
    /// Something of all.
    Balance,
}

impl Goal {
    /// By its name.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "capacity" => Self::Capacity,
            "safety" => Self::Safety,
            "speed" => Self::Speed,
            "balance" => Self::Balance,
            _ => return None,
        })
    }
}

/// All sensible layouts of `drives`, which should be sorted by size (then drives of different sizes
/// are never mixed, if there are enough of each size).
pub fn sensible_layouts(drives: &[u64]) -> Vec<PoolLayout> {
    let classes: Vec<usize> = drives.chunk_by(|a, b| a == b).map(<[u64]>::len).collect();
    let mut all: Vec<PoolLayout> = uniform_layouts(drives.len());
    if classes.len() > 1 {
        // the same family for each size of drives
        for family in 0..=3 {
            let parts: Option<Vec<LayoutGroup>> = classes
                .iter()
                .map(|count| groups_of_family(family, *count))
                .collect::<Option<Vec<_>>>()
                .map(|parts| parts.concat());
            all.extend(parts.map(PoolLayout));
        }
    }
    let mut seen = Vec::new();
    all.retain(|words| {
        let new = !seen.contains(words);
        seen.push(words.clone());
        new
    });
    all
}

/// Groups of one kind for drives of one size, if there are enough: mirrors, raidz1 to 3.
fn groups_of_family(family: u32, count: usize) -> Option<Vec<LayoutGroup>> {
    match family {
        0 => (count >= 2).then(|| {
            let mut groups = vec![LayoutGroup::new(GroupKind::Mirror, 2); count / 2];
            if count % 2 == 1 {
                groups[0].width = 3;
            }
            groups
        }),
        1 if count == 2 => Some(vec![LayoutGroup::new(GroupKind::Mirror, 2)]),
        parity => (count > parity as usize + 1)
            .then(|| vec![LayoutGroup::new(GroupKind::Raidz(parity), count)]),
    }
}

/// All ways to make equal groups of one kind.
fn uniform_layouts(count: usize) -> Vec<PoolLayout> {
    let mut all = vec![PoolLayout(vec![LayoutGroup::new(GroupKind::Stripe, count)])];
    let mut equal = |kind: GroupKind, width: usize| {
        let (groups, left) = (count / width, count % width);
        if groups > 0 && left <= MAX_HOT_SPARES {
            let mut words = vec![LayoutGroup::new(kind, width); groups];
            if left > 0 {
                words.push(LayoutGroup::new(GroupKind::Spare, left));
            }
            all.push(PoolLayout(words));
        }
    };
    equal(GroupKind::Mirror, 2);
    equal(GroupKind::Mirror, 3);
    for (parity, widest) in (1_u32..).zip(MAX_RAIDZ_WIDTHS) {
        let least = parity as usize + 2;
        for width in least..=widest.min(count) {
            equal(GroupKind::Raidz(parity), width);
        }
    }
    if count >= MIN_DRAID_DRIVES {
        for parity in 1..=3 {
            for data in [4, 8] {
                for spares in 1..=2 {
                    let needed = parity + data + spares;
                    if needed as usize <= count && count <= 255 {
                        equal(GroupKind::Draid { parity, data, spares }, count);
                    }
                }
            }
        }
    }
    all
}

/// Marks those that no other beats in capacity, safety and speed at once.
pub(crate) fn mark_pareto(plans: &mut [LayoutPlan]) {
    let merits: Vec<[f64; 3]> = plans.iter().map(merits).collect();
    for (plan, own) in plans.iter_mut().zip(&merits) {
        let beaten = merits.iter().any(|other| {
            let pairs = || other.iter().zip(own);
            pairs().all(|(theirs, mine)| theirs >= mine) && pairs().any(|(a, b)| a > b)
        });
        plan.pareto_best = !beaten;
    }
}

/// Space, safety, speed: more is better.
fn merits(plan: &LayoutPlan) -> [f64; 3] {
    let safety = -plan.safety.lost_5_years.max(NEGLIGIBLE_LOSS).log10();
    let speed = (plan.speed.random_reads * plan.speed.random_writes).sqrt();
    [plan.efficiency, safety, speed]
}

/// Sorts by a goal, the best first. Layouts without redundancy are last for any goal but speed.
pub(crate) fn sort_by_goal(plans: &mut [LayoutPlan], goal: Goal) {
    let best = plans.iter().map(merits).fold([f64::MIN_POSITIVE; 3], |mut best, own| {
        best.iter_mut().zip(own).for_each(|(best, own)| *best = best.max(own));
        best
    });
    let score = |plan: &LayoutPlan| {
        let merits = merits(plan);
        let [room, safety, speed] = [0, 1, 2].map(|index| merits[index].max(0.0) / best[index]);
        let streams = plan.speed.sequential_read + plan.speed.sequential_write;
        match goal {
            Goal::Capacity => [plan.efficiency, safety, speed],
            Goal::Safety => [-plan.safety.lost_5_years, room, speed],
            Goal::Speed => [speed, streams, safety],
            Goal::Balance => {
                let lost = plan.safety.lost_5_years.clamp(BALANCE_NEGLIGIBLE_LOSS, 1.0);
                let safe_enough = lost.log10() / BALANCE_NEGLIGIBLE_LOSS.log10();
                [room * safe_enough * speed.powf(BALANCE_SPEED_EXPONENT), safety, room]
            }
        }
    };
    plans.sort_by(|a, b| {
        let bare = |plan: &LayoutPlan| plan.safety.tolerance == 0 && goal != Goal::Speed;
        let ordered = bare(a).cmp(&bare(b));
        let (a, b) = (score(a), score(b));
        let pairs = a.iter().zip(&b);
        ordered.then(
            pairs.fold(std::cmp::Ordering::Equal, |so_far, (a, b)| so_far.then(b.total_cmp(a))),
        )
    });
}
