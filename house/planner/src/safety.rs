//! The chance of losing the pool: a Markov chain for each vdev.
//!
//! ```text
//! n drives of which t may fail; a drive fails at rate f, and is rebuilt at rate r
//!
//!        n f         (n-1) f               (n-t) f
//!   (0) -----> (1) ----------> ... (t) ------------> lost
//!       <-----     <----------
//!         r            2 r
//! ```
//!
//! An unreadable sector matters when no redundancy is left, on the way into state t: then a file is
//! damaged (OpenZFS names it, and keeps metadata twice or more), but the pool stands. So there are
//! two chances: of losing the pool, and of losing anything at all. A vdev without redundancy meets
//! its unreadable sectors in scrubs, one a month.

use serde::Serialize;

use crate::capacity::{VdevPlan, float};
use crate::class::Drive;
use crate::words::Kind;

/// Hours of a year.
pub(crate) const HOURS_A_YEAR: f64 = 8766.0;
/// How often a pool without redundancy is read through in a year.
pub(crate) const SCRUBS_A_YEAR: f64 = 12.0;
/// The time of a chain is cut in halves so often.
const HALVINGS: u32 = 28;

/// Chances, each 0 to 1.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Safety {
    /// Of losing the pool within a year.
    pub lost_1_year: f64,
    /// Within 5 years.
    pub lost_5_years: f64,
    /// Of losing the pool or at least one block within a year.
    pub damaged_1_year: f64,
    /// Within 5 years.
    pub damaged_5_years: f64,
    /// How many drives may fail at once, whichever they are.
    pub tolerance: usize,
}

/// What can happen to a vdev, and how often.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hazard {
    /// Drives.
    pub(crate) width: usize,
    /// Drives that may fail.
    pub(crate) tolerance: usize,
    /// Failures of a drive in an hour.
    pub(crate) failures: f64,
    /// Hours from a failure until the drive is rebuilt.
    pub(crate) repair_hours: f64,
    /// Chance that a rebuild without redundancy meets an unreadable sector.
    pub(crate) unreadable: f64,
    /// Times an hour that a vdev without any redundancy meets one.
    pub(crate) decay: f64,
}

impl Hazard {
    /// Of a vdev that is rebuilt in `resilver` hours, `wait` hours after a failure.
    pub(crate) fn new(vdev: &VdevPlan, drive: &Drive, fill: f64, resilver: f64, wait: f64) -> Self {
        let width = vdev.drives.len();
        let bits = float(vdev.child_bytes) * fill * 8.0;
        // with none to spare, a rebuild needs every drive that is left; a dRAID's only its rows'
        let read = match vdev.group.kind {
            Kind::Mirror => 1.0,
            Kind::Draid { data, .. } => float(data.into()),
            _ => float((width - vdev.tolerance) as u64),
        };
        let meets = |count: f64| -(count * bits * (-drive.unreadable_per_bit).ln_1p()).exp_m1();
        let decay = if vdev.tolerance == 0 {
            bits * drive.unreadable_per_bit * SCRUBS_A_YEAR / HOURS_A_YEAR
        } else {
            0.0
        };
        let waits = match vdev.group.kind {
            Kind::Draid { spares, .. } if spares > 0 => 0.0,
            _ => wait,
        };
        Self {
            width,
            tolerance: vdev.tolerance,
            failures: drive.failures_per_hour(),
            repair_hours: (resilver + waits).max(1.0 / 60.0),
            unreadable: meets(read),
            decay,
        }
    }

    /// The chance to end in the last state within `hours`. Where `strict`, that is any damage.
    pub(crate) fn chance(&self, hours: f64, strict: bool) -> f64 {
        let (states, repair) = (self.tolerance + 1, 1.0 / self.repair_hours);
        let mut rates = Square::zero(states + 1);
        for failed in 0..states {
            let rate = float((self.width - failed) as u64) * self.failures;
            let last = failed + 1 == self.tolerance;
            let harmed = if strict && last { self.unreadable } else { 0.0 };
            rates.add(failed, failed + 1, rate * (1.0 - harmed));
            rates.add(failed, states, rate * harmed);
            if failed > 0 {
                rates.add(failed, failed - 1, repair * float(failed as u64));
            }
        }
        if strict {
            rates.add(0, states, self.decay);
        }
        rates.after(hours).at(0, states)
    }
}

/// The chances of a pool whose vdevs are in such hazard: it is lost when one of them is.
pub(crate) fn safety(hazards: &[Hazard]) -> Safety {
    let any = |hours: f64, strict: bool| {
        let mut known: Vec<(Hazard, f64)> = Vec::new();
        let mut sum = 0.0;
        for hazard in hazards {
            let same = known.iter().find(|(other, _)| other.same(hazard)).map(|(_, ln)| *ln);
            let ln = same.unwrap_or_else(|| (-hazard.chance(hours, strict).min(1.0)).ln_1p());
            if same.is_none() {
                known.push((*hazard, ln));
            }
            sum += ln;
        }
        -f64::exp_m1(sum)
    };
    Safety {
        lost_1_year: any(HOURS_A_YEAR, false),
        lost_5_years: any(5.0 * HOURS_A_YEAR, false),
        damaged_1_year: any(HOURS_A_YEAR, true),
        damaged_5_years: any(5.0 * HOURS_A_YEAR, true),
        tolerance: hazards.iter().map(|hazard| hazard.tolerance).min().unwrap_or(0),
    }
}

impl Hazard {
    /// Whether two have the same chances.
    #[expect(clippy::float_cmp, reason = "the same figures give the same bits")]
    fn same(&self, other: &Self) -> bool {
        (self.width, self.tolerance) == (other.width, other.tolerance)
            && self.repair_hours == other.repair_hours
            && self.unreadable == other.unreadable
            && self.decay == other.decay
    }
}

/// A square matrix.
#[derive(Clone, Debug)]
struct Square {
    side: usize,
    cells: Vec<f64>,
}

impl Square {
    fn zero(side: usize) -> Self {
        Self { side, cells: vec![0.0; side * side] }
    }

    fn at(&self, row: usize, column: usize) -> f64 {
        self.cells[row * self.side + column]
    }

    /// Adds a rate of going from one state to another.
    fn add(&mut self, from: usize, to: usize, rate: f64) {
        if from != to {
            self.cells[from * self.side + to] += rate;
            self.cells[from * self.side + from] -= rate;
        }
    }

    fn times(&self, other: &Self) -> Self {
        let mut product = Self::zero(self.side);
        for row in 0..self.side {
            for column in 0..self.side {
                let terms = (0..self.side).map(|k| self.at(row, k) * other.at(k, column));
                product.cells[row * self.side + column] = terms.sum();
            }
        }
        product
    }

    /// Of rates: the chances of going from state to state in a time. A short step, doubled often:
    /// all terms stay positive, so that the smallest chances keep their digits.
    fn after(&self, hours: f64) -> Self {
        let step = hours / f64::from(2_u32.pow(HALVINGS));
        let twice = self.times(self);
        let mut chances = self.clone();
        for (index, cell) in chances.cells.iter_mut().enumerate() {
            let one = if index % (self.side + 1) == 0 { 1.0 } else { 0.0 };
            *cell = one + step * *cell + step * step / 2.0 * twice.cells[index];
        }
        for _ in 0..HALVINGS {
            chances = chances.times(&chances);
            chances.normalise();
        }
        chances
    }

    /// Makes each row add up to 1, by its diagonal, which alone has lost digits.
    fn normalise(&mut self) {
        for row in 0..self.side {
            let others: f64 = (0..self.side).filter(|c| *c != row).map(|c| self.at(row, c)).sum();
            self.cells[row * self.side + row] = (1.0 - others).max(0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{HOURS_A_YEAR, Hazard, safety};

    fn hazard(width: usize, tolerance: usize) -> Hazard {
        let failures = -(-0.05_f64).ln_1p() / HOURS_A_YEAR;
        Hazard { width, tolerance, failures, repair_hours: 24.0, unreadable: 0.1, decay: 0.0 }
    }

    fn near(a: f64, b: f64, part: f64) {
        assert!((a - b).abs() <= part * b.abs(), "{a} is not near {b}");
    }

    #[test]
    fn a_single_drive_fails_as_often_as_drives_do() {
        near(hazard(1, 0).chance(HOURS_A_YEAR, false), 0.05, 1e-6);
        near(hazard(1, 0).chance(5.0 * HOURS_A_YEAR, false), 1.0 - 0.95_f64.powi(5), 1e-6);
    }

    #[test]
    fn mirrors_and_parities_are_lost_as_the_formulas_say() {
        // for rare failures: n (n-1) ... (n-t) f^(t+1) times repair^t / t! an hour
        let f = hazard(2, 1).failures;
        near(hazard(2, 1).chance(HOURS_A_YEAR, false), 2.0 * f * f * 24.0 * HOURS_A_YEAR, 1e-2);
        let triple = 6.0 * 5.0 * 4.0 * f.powi(3) * 24.0_f64.powi(2) / 2.0;
        near(hazard(6, 2).chance(HOURS_A_YEAR, false), triple * HOURS_A_YEAR, 2e-2);
        let fourth = 12.0 * 11.0 * 10.0 * 9.0 * f.powi(4) * 24.0_f64.powi(3) / 6.0;
        near(hazard(12, 3).chance(HOURS_A_YEAR, false), fourth * HOURS_A_YEAR, 3e-2);
    }

    #[test]
    fn unreadable_sectors_count_when_nothing_is_left() {
        let f = hazard(6, 1).failures;
        // the first failure of a raidz1 is damage with the chance of an unreadable sector
        let expected = 1.0 - (-6.0 * f * 0.1 * HOURS_A_YEAR).exp();
        near(hazard(6, 1).chance(HOURS_A_YEAR, true), expected, 0.1);
        assert!(hazard(6, 2).chance(HOURS_A_YEAR, true) > hazard(6, 2).chance(HOURS_A_YEAR, false));
    }

    #[test]
    fn a_pool_is_lost_with_any_of_its_vdevs() {
        let one = safety(&[hazard(6, 1)]).lost_5_years;
        let three = safety(&[hazard(6, 1), hazard(6, 1), hazard(6, 1)]).lost_5_years;
        near(three, 1.0 - (1.0 - one).powi(3), 1e-9);
    }
}
