//! A PID controller that cools: the output grows with the temperature.
//!
//! Drives report whole degrees, so that the temperature is smoothed first. The integral rests while the error is within
//! the resolution of the sensor, and while the output is at its bound.

/// Percent for each degree above the target.
const GAIN: f64 = 4.0;
/// The time in seconds in which a constant error doubles the output of the gain.
const INTEGRAL_SECONDS: f64 = 500.0;
/// The time in seconds by which the trend is looked ahead.
const DERIVATIVE_SECONDS: f64 = 60.0;
/// The time constant in seconds of the smoothing.
const SMOOTHING_SECONDS: f64 = 30.0;
/// The error in degrees within which the integral rests.
const RESOLUTION: f64 = 0.75;

/// A controller of one temperature.
#[derive(Clone, Debug)]
pub(crate) struct Pid {
    target: f64,
    smooth: Option<f64>,
    /// Percent.
    integral: f64,
}

impl Pid {
    pub(crate) fn new(target: f64) -> Self {
        Self { target, smooth: None, integral: 0.0 }
    }

    /// The output in percent, not below `min`, `seconds` after the last call.
    pub(crate) fn step(&mut self, temperature: f64, min: f64, seconds: f64) -> f64 {
        let before = self.smooth.unwrap_or(temperature);
        let smooth = before + (temperature - before) * (seconds / (SMOOTHING_SECONDS + seconds));
        self.smooth = Some(smooth);
        let error = smooth - self.target;
        let trend = (smooth - before) / seconds;
        let proportional = GAIN * (error + DERIVATIVE_SECONDS * trend);
        let output = proportional + self.integral;
        let is_bound = (output >= 100.0 && error > 0.0) || (output <= min && error < 0.0);
        if error.abs() > RESOLUTION && !is_bound {
            self.integral += GAIN * error * seconds / INTEGRAL_SECONDS;
        }
        self.integral = self.integral.clamp(0.0, 100.0);
        output.clamp(min, 100.0)
    }
}
