//! The calibration of a fan: it is slowed down until it stops, and then sped up until it turns.

use serde::{Deserialize, Serialize};

/// The steps in percent.
const STEP: u64 = 5;
/// The revolutions a minute below which a fan counts as still: a tachometer shows a few while it coasts.
const STILL: u64 = 60;

/// The result of a calibration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calibration {
    /// The revolutions a minute at each percent, slowing down.
    pub curve: Vec<(u64, u64)>,
    /// The lowest percent at which it still turned; 0: it never stood still.
    pub stop: u64,
    /// The lowest percent at which it started again.
    pub start: u64,
}

impl Calibration {
    /// The value for `min`: some reserve above the percent at which it stops.
    pub const fn min(&self) -> u64 {
        if self.stop == 0 { 0 } else { at_most_full(self.stop + STEP) }
    }
}

const fn at_most_full(percent: u64) -> u64 {
    if percent > 100 { 100 } else { percent }
}

/// Calibrates a fan. `measure` sets a percent, waits until the speed is steady, and returns the revolutions a minute;
/// it fails when the fan has no tachometer or a part becomes too hot. The caller sets full speed afterwards.
pub fn calibrate(
    mut measure: impl FnMut(u64) -> Result<u64, String>,
) -> Result<Calibration, String> {
    let mut curve = Vec::new();
    for percent in (0..=100).rev().step_by(usize::try_from(STEP).unwrap_or(1)) {
        let rpm = measure(percent)?;
        if percent == 100 && rpm < STILL {
            return Err(
                "the fan does not turn at 100 %: check its plug, and the number of its pwm"
                    .to_owned(),
            );
        }
        curve.push((percent, rpm));
        if rpm < STILL {
            break;
        }
    }
    let stop = match curve.last() {
        Some((percent, rpm)) if *rpm < STILL => at_most_full(percent + STEP),
        _ => return Ok(Calibration { curve, stop: 0, start: 0 }),
    };
    let mut percent = stop;
    while percent < 100 && measure(percent)? < STILL {
        percent += STEP;
    }
    Ok(Calibration { curve, stop, start: percent })
}
