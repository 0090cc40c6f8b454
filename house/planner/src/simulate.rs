//! The same chances by playing a pool's years many times, drive by drive (Monte Carlo).
//!
//! Where the Markov chain supposes that repairs end after any time, they take here exactly as long
//! as they take. Drives fail independently, and a rebuilt one is new. The random numbers come from
//! a seed, so that a result can be had again.

use serde::Serialize;

use crate::capacity::to_f64;
use crate::safety::{FailureModel, HOURS_PER_YEAR};

const SIMULATED_YEARS: f64 = 5.0;

/// The result of many simulations.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Simulation {
    /// How often 5 years were played.
    pub plays: u64,
    /// The seed of the random numbers.
    pub seed: u64,
    /// Part of them in which the pool was lost within a year.
    pub lost_1_year: f64,
    /// Within 5 years.
    pub lost_5_years: f64,
    /// In which the pool or a block was lost within a year.
    pub damaged_1_year: f64,
    /// Within 5 years.
    pub damaged_5_years: f64,
    /// The chance of losing the pool in 5 years lies between these with a certainty of 95 %.
    pub lost_5_years_between: [f64; 2],
}

/// Plays 5 years of a pool.
pub(crate) fn simulate(hazards: &[FailureModel], plays: u64, seed: u64) -> Simulation {
    let mut random = Random(seed);
    let mut counts = [0_u64; 4];
    for _ in 0..plays {
        let mut pool = FailureTimes::default();
        for hazard in hazards {
            pool = pool.earliest(simulate_vdev(hazard, &mut random));
        }
        let within = |when: f64, years: f64| u64::from(when <= years * HOURS_PER_YEAR);
        counts[0] += within(pool.lost_at, 1.0);
        counts[1] += within(pool.lost_at, SIMULATED_YEARS);
        counts[2] += within(pool.damaged_at, 1.0);
        counts[3] += within(pool.damaged_at, SIMULATED_YEARS);
    }
    let [lost_1_year, lost_5_years, damaged_1_year, damaged_5_years] =
        counts.map(|count| to_f64(count) / to_f64(plays.max(1)));
    Simulation {
        plays,
        seed,
        lost_1_year,
        lost_5_years,
        damaged_1_year,
        damaged_5_years,
        lost_5_years_between: wilson_interval(counts[1], plays),
    }
}

/// When things went wrong, hours from the start; never is infinity.
#[derive(Clone, Copy, Debug)]
struct FailureTimes {
    lost_at: f64,
    damaged_at: f64,
}

impl Default for FailureTimes {
    fn default() -> Self {
        Self { lost_at: f64::INFINITY, damaged_at: f64::INFINITY }
    }
}

impl FailureTimes {
    fn earliest(self, other: Self) -> Self {
        Self {
            lost_at: self.lost_at.min(other.lost_at),
            damaged_at: self.damaged_at.min(other.damaged_at),
        }
    }
}

/// Plays one vdev until it is lost or the years are over.
fn simulate_vdev(hazard: &FailureModel, random: &mut Random) -> FailureTimes {
    let mut fate = FailureTimes::default();
    if hazard.scrub_error_rate > 0.0 {
        fate.damaged_at = random.next_waiting_time(hazard.scrub_error_rate);
    }
    let (mut now, end) = (0.0, SIMULATED_YEARS * HOURS_PER_YEAR);
    // when the drives that have failed will be whole again
    let mut repairs: Vec<f64> = Vec::new();
    loop {
        // failures are memoryless, so the next failure can be drawn again each time
        let working = to_f64((hazard.width - repairs.len()) as u64);
        let failure = now + random.next_waiting_time(working * hazard.failure_rate);
        let repair = repairs.iter().copied().fold(f64::INFINITY, f64::min);
        now = failure.min(repair);
        if now > end {
            return fate;
        }
        if repair <= failure {
            repairs.retain(|when| *when > repair);
            continue;
        }
        repairs.push(now + hazard.repair_hours);
        if repairs.len() > hazard.tolerance {
            return fate.earliest(FailureTimes { lost_at: now, damaged_at: now });
        }
        if repairs.len() == hazard.tolerance && random.next_fraction() < hazard.rebuild_error_chance
        {
            fate.damaged_at = fate.damaged_at.min(now);
        }
    }
}

/// Wilson's interval for a part of `of`, 95 %.
fn wilson_interval(count: u64, of: u64) -> [f64; 2] {
    let (n, z) = (to_f64(of.max(1)), 1.96_f64);
    let part = to_f64(count) / n;
    let middle = part + z * z / (2.0 * n);
    let half = z * (part * (1.0 - part) / n + z * z / (4.0 * n * n)).sqrt();
    let scale = 1.0 + z * z / n;
    [((middle - half) / scale).max(0.0), ((middle + half) / scale).min(1.0)]
}

/// Random numbers from a seed (splitmix64).
struct Random(u64);

impl Random {
    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to below 1.
    fn next_fraction(&mut self) -> f64 {
        to_f64(self.next_u64() >> 11) / to_f64(1 << 53)
    }

    /// The random time until an event of this rate.
    fn next_waiting_time(&mut self, rate: f64) -> f64 {
        -(-self.next_fraction()).ln_1p() / rate
    }
}

#[cfg(test)]
mod tests {
    use super::{simulate, wilson_interval};
    use crate::safety::{FailureModel, HOURS_PER_YEAR, pool_safety};

    #[test]
    fn simulation_agrees_with_markov_chain() {
        let failures = -(-0.2_f64).ln_1p() / HOURS_PER_YEAR;
        let hazard = FailureModel {
            width: 6,
            tolerance: 1,
            failure_rate: failures,
            repair_hours: 100.0,
            rebuild_error_chance: 0.2,
            scrub_error_rate: 0.0,
        };
        let chain = pool_safety(&[hazard, hazard]);
        let played = simulate(&[hazard, hazard], 20_000, 7);
        // four standard errors of a part near a quarter, and what exact repairs change
        assert!((chain.lost_5_years - played.lost_5_years).abs() < 0.02, "{chain:?} {played:?}");
        assert!((chain.damaged_1_year - played.damaged_1_year).abs() < 0.02);
        let [low, high] = played.lost_5_years_between;
        assert!(low < played.lost_5_years && played.lost_5_years < high);
        let again = simulate(&[hazard, hazard], 20_000, 7);
        assert!((again.lost_5_years - played.lost_5_years).abs() < f64::EPSILON);
    }

    #[test]
    fn zero_losses_leave_nonzero_upper_bound() {
        let [low, high] = wilson_interval(0, 1000);
        assert!(low < 1e-12 && (0.003..0.005).contains(&high), "{low} {high}");
    }
}
