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

use crate::capacity::{VdevPlan, to_f64};
use crate::drive_spec::DriveSpec;
use crate::pool_layout::GroupKind;

/// Hours of a year.
pub(crate) const HOURS_PER_YEAR: f64 = 8766.0;
/// How often a pool without redundancy is read through in a year.
pub(crate) const SCRUBS_PER_YEAR: f64 = 12.0;
/// The time of a chain is cut in halves so often.
const TIME_HALVINGS: u32 = 28;

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

/// The failure events of a vdev, and their rates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailureModel {
    /// Drives.
    pub(crate) width: usize,
    /// Drives that may fail.
    pub(crate) tolerance: usize,
    /// Failures of a drive in an hour.
    pub(crate) failure_rate: f64,
    /// Hours from a failure until the drive is rebuilt.
    pub(crate) repair_hours: f64,
    /// Chance that a rebuild without redundancy meets an unreadable sector.
    pub(crate) rebuild_error_chance: f64,
    /// Times an hour that a vdev without any redundancy meets one.
    pub(crate) scrub_error_rate: f64,
}

impl FailureModel {
    /// Of a vdev that is rebuilt in `resilver` hours, `wait` hours after a failure.
    pub(crate) fn new(
        vdev: &VdevPlan,
        drive: &DriveSpec,
        fill: f64,
        resilver: f64,
        wait: f64,
    ) -> Self {
        let width = vdev.drives.len();
        let bits = to_f64(vdev.child_bytes) * fill * 8.0;
        // with none to spare, a rebuild needs every drive that is left; a dRAID's only its rows'
        let read = match vdev.group.kind {
            GroupKind::Mirror => 1.0,
            GroupKind::Draid { data, .. } => to_f64(data.into()),
            _ => to_f64((width - vdev.tolerance) as u64),
        };
        let meets = |count: f64| -(count * bits * (-drive.unreadable_per_bit).ln_1p()).exp_m1();
        let scrub_error_rate = if vdev.tolerance == 0 {
            bits * drive.unreadable_per_bit * SCRUBS_PER_YEAR / HOURS_PER_YEAR
        } else {
            0.0
        };
        let waits = match vdev.group.kind {
            GroupKind::Draid { spares, .. } if spares > 0 => 0.0,
            _ => wait,
        };
        Self {
            width,
            tolerance: vdev.tolerance,
            failure_rate: drive.failures_per_hour(),
            repair_hours: (resilver + waits).max(1.0 / 60.0),
            rebuild_error_chance: meets(read),
            scrub_error_rate,
        }
    }

    /// The chance to end in the last state within `hours`. Where `strict`, that is any damage.
    pub(crate) fn loss_chance(&self, hours: f64, strict: bool) -> f64 {
        let (states, repair) = (self.tolerance + 1, 1.0 / self.repair_hours);
        let mut rates = SquareMatrix::zero(states + 1);
        for failed in 0..states {
            let rate = to_f64((self.width - failed) as u64) * self.failure_rate;
            let last = failed + 1 == self.tolerance;
            let harmed = if strict && last { self.rebuild_error_chance } else { 0.0 };
            rates.add_rate(failed, failed + 1, rate * (1.0 - harmed));
            rates.add_rate(failed, states, rate * harmed);
            if failed > 0 {
                rates.add_rate(failed, failed - 1, repair * to_f64(failed as u64));
            }
        }
        if strict {
            rates.add_rate(0, states, self.scrub_error_rate);
        }
        rates.transition_chances(hours).cell(0, states)
    }
}

/// The probabilities of a pool with these vdevs: it is lost when one of them is.
pub(crate) fn pool_safety(hazards: &[FailureModel]) -> Safety {
    let any = |hours: f64, strict: bool| {
        let mut known: Vec<(FailureModel, f64)> = Vec::new();
        let mut sum = 0.0;
        for hazard in hazards {
            let same = known.iter().find(|(other, _)| other.is_same(hazard)).map(|(_, ln)| *ln);
            let ln = same.unwrap_or_else(|| (-hazard.loss_chance(hours, strict).min(1.0)).ln_1p());
            if same.is_none() {
                known.push((*hazard, ln));
            }
            sum += ln;
        }
        -f64::exp_m1(sum)
    };
    Safety {
        lost_1_year: any(HOURS_PER_YEAR, false),
        lost_5_years: any(5.0 * HOURS_PER_YEAR, false),
        damaged_1_year: any(HOURS_PER_YEAR, true),
        damaged_5_years: any(5.0 * HOURS_PER_YEAR, true),
        tolerance: hazards.iter().map(|hazard| hazard.tolerance).min().unwrap_or(0),
    }
}

impl FailureModel {
    /// Whether two have the same chances.
    #[expect(clippy::float_cmp, reason = "the same figures give the same bits")]
    fn is_same(&self, other: &Self) -> bool {
        (self.width, self.tolerance) == (other.width, other.tolerance)
            && self.repair_hours == other.repair_hours
            && self.rebuild_error_chance == other.rebuild_error_chance
            && self.scrub_error_rate == other.scrub_error_rate
    }
}

/// A square matrix.
#[derive(Clone, Debug)]
struct SquareMatrix {
    size: usize,
    cells: Vec<f64>,
}

impl SquareMatrix {
    fn zero(size: usize) -> Self {
        Self { size, cells: vec![0.0; size * size] }
    }

    fn cell(&self, row: usize, column: usize) -> f64 {
        self.cells[row * self.size + column]
    }

    /// Adds a rate of going from one state to another.
    fn add_rate(&mut self, from: usize, to: usize, rate: f64) {
        if from != to {
            self.cells[from * self.size + to] += rate;
            self.cells[from * self.size + from] -= rate;
        }
    }

    fn multiply(&self, other: &Self) -> Self {
        let mut product = Self::zero(self.size);
        for row in 0..self.size {
            for column in 0..self.size {
                let terms = (0..self.size).map(|k| self.cell(row, k) * other.cell(k, column));
                product.cells[row * self.size + column] = terms.sum();
            }
        }
        product
    }

    /// Of rates: the chances of going from state to state in a time. A short step, doubled often:
    /// all terms stay positive, so that the smallest chances keep their digits.
    fn transition_chances(&self, hours: f64) -> Self {
        let step = hours / f64::from(2_u32.pow(TIME_HALVINGS));
        let twice = self.multiply(self);
        let mut chances = self.clone();
        for (index, cell) in chances.cells.iter_mut().enumerate() {
            let one = if index % (self.size + 1) == 0 { 1.0 } else { 0.0 };
            *cell = one + step * *cell + step * step / 2.0 * twice.cells[index];
        }
        for _ in 0..TIME_HALVINGS {
            chances = chances.multiply(&chances);
            chances.normalise_rows();
        }
        chances
    }

    /// Makes each row add up to 1, by its diagonal, which alone has lost digits.
    fn normalise_rows(&mut self) {
        for row in 0..self.size {
            let others: f64 = (0..self.size).filter(|c| *c != row).map(|c| self.cell(row, c)).sum();
            self.cells[row * self.size + row] = (1.0 - others).max(0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FailureModel, HOURS_PER_YEAR, pool_safety};

    fn model(width: usize, tolerance: usize) -> FailureModel {
        let failures = -(-0.05_f64).ln_1p() / HOURS_PER_YEAR;
        FailureModel {
            width,
            tolerance,
            failure_rate: failures,
            repair_hours: 24.0,
            rebuild_error_chance: 0.1,
            scrub_error_rate: 0.0,
        }
    }

    fn assert_near(a: f64, b: f64, part: f64) {
        assert!((a - b).abs() <= part * b.abs(), "{a} is not near {b}");
    }

    #[test]
    fn single_drive_loss_matches_failure_rate() {
        assert_near(model(1, 0).loss_chance(HOURS_PER_YEAR, false), 0.05, 1e-6);
        assert_near(
            model(1, 0).loss_chance(5.0 * HOURS_PER_YEAR, false),
            1.0 - 0.95_f64.powi(5),
            1e-6,
        );
    }

    #[test]
    fn loss_chance_matches_closed_formulas() {
        // for rare failures: n (n-1) ... (n-t) f^(t+1) times repair^t / t! an hour
        let f = model(2, 1).failure_rate;
        assert_near(
            model(2, 1).loss_chance(HOURS_PER_YEAR, false),
            2.0 * f * f * 24.0 * HOURS_PER_YEAR,
            1e-2,
        );
        let triple = 6.0 * 5.0 * 4.0 * f.powi(3) * 24.0_f64.powi(2) / 2.0;
        assert_near(model(6, 2).loss_chance(HOURS_PER_YEAR, false), triple * HOURS_PER_YEAR, 2e-2);
        let fourth = 12.0 * 11.0 * 10.0 * 9.0 * f.powi(4) * 24.0_f64.powi(3) / 6.0;
        assert_near(model(12, 3).loss_chance(HOURS_PER_YEAR, false), fourth * HOURS_PER_YEAR, 3e-2);
    }

    #[test]
    fn unreadable_sectors_count_without_redundancy() {
        let f = model(6, 1).failure_rate;
        // the first failure of a raidz1 is damage with the chance of an unreadable sector
        let expected = 1.0 - (-6.0 * f * 0.1 * HOURS_PER_YEAR).exp();
        assert_near(model(6, 1).loss_chance(HOURS_PER_YEAR, true), expected, 0.1);
        assert!(
            model(6, 2).loss_chance(HOURS_PER_YEAR, true)
                > model(6, 2).loss_chance(HOURS_PER_YEAR, false)
        );
    }

    #[test]
    fn pool_is_lost_with_any_vdev() {
        let one = pool_safety(&[model(6, 1)]).lost_5_years;
        let three = pool_safety(&[model(6, 1), model(6, 1), model(6, 1)]).lost_5_years;
        assert_near(three, 1.0 - (1.0 - one).powi(3), 1e-9);
    }
}
