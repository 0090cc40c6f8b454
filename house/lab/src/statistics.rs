//! Statistics of a few runs: mean, confidence, and whether two differ significantly.
//!
//! Runs are few, so that Student's distribution is the right one: the half-width of the interval
//! that holds the true mean with 95 %, and Welch's test for two measures.

use serde::{Deserialize, Serialize};

/// 97.5 % quantiles of Student's distribution for 1 to 30 degrees of freedom.
const STUDENT_T_QUANTILES: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];
/// The same for the normal distribution.
const NORMAL_QUANTILE: f64 = 1.960;

/// A mean and how sure it is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The mean of the runs.
    pub mean: f64,
    /// Half the width of the interval that holds the true mean with 95 %; none for one run.
    pub plus_minus: Option<f64>,
    /// Runs.
    pub runs: usize,
}

impl Summary {
    /// Of some runs; none of no run.
    pub fn from_runs(runs: &[f64]) -> Option<Self> {
        let moments = Moments::from_runs(runs)?;
        let plus_minus = (runs.len() > 1)
            .then(|| t_quantile(moments.count - 1.0) * (moments.variance / moments.count).sqrt());
        Some(Self { mean: moments.mean, plus_minus, runs: runs.len() })
    }

    /// The half-width as a part of the mean.
    pub fn relative_error(&self) -> Option<f64> {
        self.plus_minus.filter(|_| self.mean > 0.0).map(|half| half / self.mean)
    }
}

/// The comparison of two measures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The second's mean less the first's, as a part of the first's.
    pub part: f64,
    /// Whether chance alone explains the difference (at 95 %); none if there are too few runs.
    pub is_noise: Option<bool>,
}

impl Change {
    /// From the runs of one measure to those of another; none if one has no runs.
    pub fn between(before: &[f64], after: &[f64]) -> Option<Self> {
        let (first, second) = (Moments::from_runs(before)?, Moments::from_runs(after)?);
        if first.mean <= 0.0 {
            return None;
        }
        let part = (second.mean - first.mean) / first.mean;
        let enough = before.len() > 1 && after.len() > 1;
        Some(Self { part, is_noise: enough.then(|| is_noise(first, second)) })
    }
}

#[derive(Clone, Copy)]
struct Moments {
    count: f64,
    mean: f64,
    variance: f64,
}

impl Moments {
    fn from_runs(runs: &[f64]) -> Option<Self> {
        if runs.is_empty() || !runs.iter().all(|run| run.is_finite()) {
            return None;
        }
        let count = f64::from(u32::try_from(runs.len()).ok()?);
        let mean = runs.iter().sum::<f64>() / count;
        let squares: f64 = runs.iter().map(|run| (run - mean).powi(2)).sum();
        Some(Self { count, mean, variance: squares / (count - 1.0).max(1.0) })
    }
}

/// Welch's test.
fn is_noise(a: Moments, b: Moments) -> bool {
    let (from_a, from_b) = (a.variance / a.count, b.variance / b.count);
    let both = from_a + from_b;
    let apart = (a.mean - b.mean).abs();
    if both <= 0.0 {
        return apart <= 0.0;
    }
    let freedom =
        both.powi(2) / (from_a.powi(2) / (a.count - 1.0) + from_b.powi(2) / (b.count - 1.0));
    apart / both.sqrt() < t_quantile(freedom)
}

/// The 97.5 % quantile for these degrees of freedom, interpolated between the table's rows.
fn t_quantile(freedom: f64) -> f64 {
    let row = |at: f64| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a row of the table, 1 to 30"
        )]
        let index = at.clamp(1.0, 30.0) as usize - 1;
        STUDENT_T_QUANTILES[index]
    };
    if !freedom.is_finite() {
        return NORMAL_QUANTILE;
    }
    if freedom >= 30.0 {
        return NORMAL_QUANTILE + (row(30.0) - NORMAL_QUANTILE) * 30.0 / freedom;
    }
    let (low, high) = (freedom.floor().max(1.0), freedom.ceil().max(1.0));
    row(low) + (row(high) - row(low)) * (freedom - low).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::{Change, Summary, t_quantile};

    #[test]
    fn three_runs_have_a_wide_interval() {
        let summary = Summary::from_runs(&[9.0, 10.0, 11.0]).unwrap();
        assert!((summary.mean - 10.0).abs() < 1e-12);
        // 4.303 / sqrt 3
        assert!((summary.plus_minus.unwrap() - 2.4843).abs() < 1e-3);
        assert_eq!(Summary::from_runs(&[5.0]).unwrap().plus_minus, None);
        assert_eq!(Summary::from_runs(&[]), None);
        assert_eq!(Summary::from_runs(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn noise_is_distinguished_from_change() {
        let change = |a: &[f64], b: &[f64]| Change::between(a, b).unwrap();
        let near = change(&[100.0, 103.0, 98.0], &[101.0, 104.0, 97.0]);
        assert_eq!(near.is_noise, Some(true));
        let far = change(&[100.0, 103.0, 98.0], &[120.0, 123.0, 118.0]);
        assert_eq!(far.is_noise, Some(false));
        assert!((far.part - 20.0 / (301.0 / 3.0)).abs() < 1e-9);
        assert_eq!(change(&[100.0], &[101.0, 102.0]).is_noise, None);
        assert_eq!(change(&[5.0, 5.0], &[5.0, 5.0]).is_noise, Some(true));
        assert_eq!(change(&[5.0, 5.0], &[6.0, 6.0]).is_noise, Some(false));
        assert_eq!(Change::between(&[0.0], &[1.0]), None);
    }

    #[test]
    fn quantiles_decrease_to_normal() {
        let mut last = f64::INFINITY;
        for step in 1..2000 {
            let now = t_quantile(f64::from(step) / 10.0);
            assert!(now <= last && now > 1.95, "{step}: {now} after {last}");
            last = now;
        }
        assert!((t_quantile(2.5) - 3.7425).abs() < 1e-9);
    }
}
