//! How long operations took: counts by duration, an eighth of a power of two each.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Steps between two powers of two, as bits.
const SUB_BUCKET_BITS: u32 = 3;
const BUCKET_COUNT: usize = (64 << SUB_BUCKET_BITS) as usize;

/// Counts of durations.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    longest: Duration,
}

/// The usual percentiles; milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[expect(clippy::struct_field_names, reason = "programs read the unit in the name")]
pub struct Latency {
    /// Half of all took less.
    pub median_ms: f64,
    /// All but one of a hundred took less.
    pub p99_ms: f64,
    /// All but one of a thousand took less.
    pub p999_ms: f64,
    /// The longest.
    pub longest_ms: f64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKET_COUNT], longest: Duration::ZERO }
    }
}

impl Histogram {
    /// Counts one.
    pub(crate) fn add(&mut self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        if let Some(count) = self.counts.get_mut(bucket_index(nanos)) {
            *count += 1;
        }
        self.longest = self.longest.max(took);
    }

    /// Takes in what another one counted.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.longest = self.longest.max(other.longest);
    }

    /// The usual percentiles; none if nothing was counted.
    pub(crate) fn latency(&self) -> Option<Latency> {
        let all: u64 = self.counts.iter().sum();
        (all > 0).then(|| Latency {
            median_ms: self.quantile_ms(all, 500),
            p99_ms: self.quantile_ms(all, 990),
            p999_ms: self.quantile_ms(all, 999),
            longest_ms: milliseconds(self.longest),
        })
    }

    /// The most that this many of a thousand took.
    fn quantile_ms(&self, all: u64, thousandths: u64) -> f64 {
        let wanted = (u128::from(all) * u128::from(thousandths)).div_ceil(1000);
        let mut seen = 0_u128;
        for (index, count) in self.counts.iter().enumerate() {
            seen += u128::from(*count);
            if seen >= wanted {
                let top = Duration::from_nanos(bucket_upper_bound(index));
                return milliseconds(top.min(self.longest));
            }
        }
        milliseconds(self.longest)
    }
}

/// A duration in milliseconds.
pub(crate) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

fn bucket_index(nanos: u64) -> usize {
    let nanos = nanos.max(1 << SUB_BUCKET_BITS);
    let power = nanos.ilog2();
    let step = (nanos >> (power - SUB_BUCKET_BITS)) & ((1 << SUB_BUCKET_BITS) - 1);
    ((power << SUB_BUCKET_BITS) as usize) | usize::try_from(step).unwrap_or(0)
}

/// The most nanoseconds that fall into a bucket.
fn bucket_upper_bound(index: usize) -> u64 {
    let power = u32::try_from(index >> SUB_BUCKET_BITS).unwrap_or(0).clamp(SUB_BUCKET_BITS, 63);
    let step = (index & ((1 << SUB_BUCKET_BITS) - 1)) as u64;
    let width = 1_u64 << (power - SUB_BUCKET_BITS);
    (1_u64 << power).saturating_add(width.saturating_mul(step)).saturating_add(width - 1)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Histogram, bucket_index, bucket_upper_bound};

    #[test]
    fn durations_lie_below_bucket_upper_bound() {
        for shift in 0..64 {
            for less in [0, 1, 3] {
                let nanos = (u64::MAX >> shift).saturating_sub(less);
                let index = bucket_index(nanos);
                assert!(nanos <= bucket_upper_bound(index), "{nanos}");
                assert!(nanos <= 8 || bucket_upper_bound(index) / 8 * 7 <= nanos, "{nanos}");
            }
        }
    }

    #[test]
    fn percentiles_are_approximate() {
        let mut all = Histogram::default();
        let mut slow = Histogram::default();
        for micros in 1..=990_u64 {
            all.add(Duration::from_micros(micros));
        }
        (0..10).for_each(|_| slow.add(Duration::from_millis(50)));
        all.merge(&slow);
        let latency = all.latency().unwrap();
        assert!((0.49..0.58).contains(&latency.median_ms), "{latency:?}");
        assert!((0.98..1.12).contains(&latency.p99_ms), "{latency:?}");
        assert!((latency.longest_ms - 50.0).abs() < 1e-9);
        assert!(Histogram::default().latency().is_none());
    }
}
