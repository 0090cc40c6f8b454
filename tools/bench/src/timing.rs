//! Runs programs, and measures them.

use std::process::{Command, Stdio};
use std::time::Instant;

/// Whether the program exists.
pub(crate) fn can_run(program: &str) -> bool {
    let null = || Stdio::null();
    Command::new(program).stdin(null()).stdout(null()).stderr(null()).status().is_ok()
}

/// The duration of a command, its output discarded. A failed command gives no figure.
pub(crate) fn time_command(command: &[String]) -> Result<f64, String> {
    let (program, words) = command.split_first().ok_or("an empty command")?;
    let begun = Instant::now();
    let done = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    let time = begun.elapsed().as_secs_f64();
    if done.status.success() {
        return Ok(time);
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(format!("{} ended with {}: {}", command.join(" "), done.status, said.trim()))
}

/// Times of two sides that took turns, after one turn each that does not count.
pub(crate) struct PairedTimes {
    pub(crate) ours: Vec<f64>,
    pub(crate) theirs: Vec<f64>,
}

impl PairedTimes {
    pub(crate) fn measure(
        rounds: usize,
        mut ours: impl FnMut() -> Result<f64, String>,
        mut theirs: impl FnMut() -> Result<f64, String>,
    ) -> Result<Self, String> {
        ours()?;
        theirs()?;
        let mut pair = Self { ours: Vec::new(), theirs: Vec::new() };
        for _ in 0..rounds.max(1) {
            pair.ours.push(ours()?);
            pair.theirs.push(theirs()?);
        }
        Ok(pair)
    }

    /// How many times as fast ours was: the median of the pairs' own ratios.
    pub(crate) fn speedup(&self) -> f64 {
        let ratios: Vec<f64> =
            self.ours.iter().zip(&self.theirs).map(|(ours, theirs)| theirs / ours).collect();
        median(&ratios)
    }
}

/// The middle of some figures.
pub(crate) fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[odd / 2],
        even => f64::midpoint(sorted[even / 2 - 1], sorted[even / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::{PairedTimes, median};

    #[test]
    fn median_handles_odd_even_and_empty() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn speedup_is_median_of_pair_ratios() {
        let pair = PairedTimes { ours: vec![1.0, 2.0, 4.0], theirs: vec![2.0, 8.0, 4.0] };
        assert!((pair.speedup() - 2.0).abs() < 1e-9);
    }
}
