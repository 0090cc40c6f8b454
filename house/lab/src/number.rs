//! Converts counts to floating numbers and back, where rounding is harmless.

use std::time::Duration;

/// A count.
pub(crate) fn to_f64(count: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "measures have three digits that count")]
    {
        count as f64
    }
}

/// A part of all; 0 where there is nothing.
pub(crate) fn ratio(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { to_f64(part) / to_f64(all) }
}

/// A positive number without its fraction.
pub(crate) fn to_u64(number: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a cast of a float saturates"
    )]
    {
        number.max(0.0) as u64
    }
}

/// A count per time; 0 if there was none.
pub(crate) fn per_second(count: u64, time: Duration) -> f64 {
    let seconds = time.as_secs_f64();
    if seconds > 0.0 { to_f64(count) / seconds } else { 0.0 }
}

/// Seconds of a number, none below zero and none beyond a year.
pub(crate) fn to_duration(number: f64) -> Duration {
    Duration::from_secs_f64(if number.is_finite() { number.clamp(0.0, 3.2e7) } else { 0.0 })
}
