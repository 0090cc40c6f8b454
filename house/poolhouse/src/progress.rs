//! A progress bar on a terminal: bytes, rate, time left.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A progress bar; it is shown on a terminal only.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
}

const SIZED_TEMPLATE: &str = "{bar:24} {percent:>3}% {bytes:>11} of {total_bytes:<11} {bytes_per_sec:>13} {eta:>4} left {msg}";
const UNSIZED_TEMPLATE: &str = "{spinner} {bytes:>11} {bytes_per_sec:>13} {elapsed:>4} {msg}";

impl Progress {
    /// A bar for this many bytes; 0: unknown.
    pub(crate) fn new(total: u64, quiet: bool) -> Self {
        let seen = !quiet && std::io::stderr().is_terminal();
        let target = if seen { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target((total > 0).then_some(total), target);
        let form = if total > 0 { SIZED_TEMPLATE } else { UNSIZED_TEMPLATE };
        if let Ok(style) = ProgressStyle::with_template(form) {
            bar.set_style(style.progress_chars("━━╌"));
        }
        if seen {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Self { bar }
    }

    /// Adds this many finished bytes.
    pub(crate) fn add_bytes(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    /// Sets the present step.
    pub(crate) fn set_message(&self, what: &str) {
        if !self.bar.is_hidden() {
            let short: String = what.chars().rev().take(40).collect();
            self.bar.set_message(short.chars().rev().collect::<String>());
        }
    }

    /// Prints a line above the bar.
    pub(crate) fn print_warning(&self, what: &dyn std::fmt::Display) {
        self.bar.suspend(|| crate::print::warning(what));
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
