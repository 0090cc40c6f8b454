//! The stages of a power failure. The state machine has no clock: each call gets the time.
//!
//! ```text
//! normal ──power fails──> on-battery ──quiet_after──> quiet ──limit, LB, no contact──> shutdown
//!    ^                        │                         │                                 │
//!    └────────────────────────┴── resume_after seconds on line power, no FSD ─────────────┘
//! any ── FSD ──> shutdown
//! ```

use serde::{Deserialize, Serialize};

use crate::{PowerSource, Reading, Thresholds};

/// The stage of a power failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Line power.
    #[default]
    Normal,
    /// The battery feeds this machine; all work continues.
    OnBattery,
    /// Scrubs and replication are stopped.
    Quiet,
    /// Pools are closed and the machine shuts down.
    ShutDown,
}

impl Stage {
    /// The word in tables and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::OnBattery => "on-battery",
            Self::Quiet => "quiet",
            Self::ShutDown => "shut-down",
        }
    }
}

/// The state machine.
#[derive(Clone, Debug, Default)]
pub struct PowerWatch {
    stage: Stage,
    /// When the power failed, in the seconds of the caller's clock.
    battery_since: Option<u64>,
    /// When line power came back, while the stage is not normal.
    line_since: Option<u64>,
    /// The time of the last reading, and whether it was on battery.
    last: Option<(u64, bool)>,
}

impl PowerWatch {
    /// The stage after the last look.
    pub const fn stage(&self) -> Stage {
        self.stage
    }

    /// The seconds on battery.
    pub fn battery_seconds(&self, now: u64) -> Option<u64> {
        self.battery_since.and_then(|since| now.checked_sub(since))
    }

    /// Takes a reading, or `None` when the UPS could not be read. `now` is a monotonic time in seconds.
    /// Returns the stage.
    pub fn observe(&mut self, reading: Option<&Reading>, limits: &Thresholds, now: u64) -> Stage {
        let Some(reading) = reading else {
            self.observe_silence(limits, now);
            return self.stage;
        };
        let is_on_battery = reading.source == PowerSource::Battery;
        self.last = Some((now, is_on_battery));
        if reading.is_forced_shutdown {
            self.line_since = None;
            self.stage = Stage::ShutDown;
        } else if is_on_battery {
            self.line_since = None;
            let seconds = now - *self.battery_since.get_or_insert(now);
            // a stage only ends by line power: the charge of some units rises when the load falls
            self.stage = self.stage.max(stage_on_battery(reading, limits, seconds));
        } else if self.stage != Stage::Normal {
            let seconds = now - *self.line_since.get_or_insert(now);
            if seconds >= limits.resume_after {
                (self.stage, self.battery_since, self.line_since) = (Stage::Normal, None, None);
            }
        }
        self.stage
    }

    /// A UPS that falls silent while its battery feeds this machine may have minutes left, or seconds.
    fn observe_silence(&mut self, limits: &Thresholds, now: u64) {
        let Some((time, true)) = self.last else { return };
        if now.checked_sub(time).is_some_and(|seconds| seconds >= limits.dead_time) {
            self.stage = Stage::ShutDown;
        }
    }
}

fn stage_on_battery(reading: &Reading, limits: &Thresholds, seconds: u64) -> Stage {
    let is_at_most = |value: Option<u64>, limit| value.is_some_and(|it| limit > 0 && it <= limit);
    let is_over = limits.shutdown_after > 0 && seconds >= limits.shutdown_after;
    let is_empty = is_at_most(reading.charge, limits.shutdown_charge)
        || is_at_most(reading.runtime, limits.shutdown_runtime);
    if reading.is_battery_low || is_over || is_empty {
        Stage::ShutDown
    } else if seconds >= limits.quiet_after {
        Stage::Quiet
    } else {
        Stage::OnBattery
    }
}
