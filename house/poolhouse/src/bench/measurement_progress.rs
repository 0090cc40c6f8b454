//! The bar of a measurement: which step, and how much time is left by the plan.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lab::progress::Observer;

use crate::interrupt;

/// Watches a measurement on a terminal; where there is none, it only hears of Ctrl-C.
pub(crate) struct MeasurementProgress {
    bar: ProgressBar,
    step: Mutex<StepProgress>,
}

/// The running step, by the plan.
#[derive(Clone, Copy)]
struct StepProgress {
    started: Instant,
    duration: Duration,
    elapsed_before: Duration,
    total: Duration,
}

/// How often the bar moves on within a step.
const REFRESH_INTERVAL: Duration = Duration::from_millis(250);

impl MeasurementProgress {
    /// From now on Ctrl-C brings the measurement to a clean end.
    pub(crate) fn new(quiet: bool) -> Self {
        interrupt::install_handler();
        let seen = !quiet && std::io::stderr().is_terminal();
        let target = if seen { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(1000), target);
        if let Ok(style) =
            ProgressStyle::with_template("{bar:24} {percent:>3}% {prefix} left  {msg}")
        {
            bar.set_style(style.progress_chars("━━╌"));
        }
        let now = Instant::now();
        let step = StepProgress {
            started: now,
            duration: REFRESH_INTERVAL,
            elapsed_before: REFRESH_INTERVAL,
            total: REFRESH_INTERVAL,
        };
        Self { bar, step: Mutex::new(step) }
    }

    /// Does `work` while the bar moves on with the time.
    pub(crate) fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        let (ended, wait) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            if !self.bar.is_hidden() {
                scope.spawn(move || {
                    while wait.recv_timeout(REFRESH_INTERVAL)
                        == Err(std::sync::mpsc::RecvTimeoutError::Timeout)
                    {
                        self.refresh();
                    }
                });
            }
            let result = work();
            drop(ended);
            self.bar.finish_and_clear();
            result
        })
    }

    fn refresh(&self) {
        let step = *self.step.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let within = step.started.elapsed().min(step.duration);
        let (done, all) = (step.elapsed_before + within, step.total.max(REFRESH_INTERVAL));
        let thousandths = done.as_millis() * 1000 / all.as_millis().max(1);
        self.bar.set_position(u64::try_from(thousandths).unwrap_or(1000).min(1000));
        self.bar.set_prefix(format_remaining(all.saturating_sub(done)));
    }
}

/// `1:05 min`, `12 s`.
fn format_remaining(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3600 => format!("{}:{:02} min", seconds / 60, seconds % 60),
        seconds => format!("{}:{:02} h", seconds / 3600, seconds / 60 % 60),
    }
}

impl Observer for MeasurementProgress {
    fn is_cancelled(&self) -> bool {
        interrupt::is_interrupted()
    }

    fn step_started(&self, step: &str, takes: Duration, done: Duration, all: Duration) {
        *self.step.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = StepProgress {
            started: Instant::now(),
            duration: takes,
            elapsed_before: done,
            total: all,
        };
        if !self.bar.is_hidden() {
            self.bar.set_message(step.to_owned());
            self.refresh();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::format_remaining;

    #[test]
    fn time_left_is_short() {
        let text = |seconds| format_remaining(Duration::from_secs(seconds));
        assert_eq!(
            (text(7), text(65), text(3725)),
            ("7 s".into(), "1:05 min".into(), "1:02 h".into())
        );
    }
}
