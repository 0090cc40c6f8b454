//! Findings from figures, in sentences that name the number.

use crate::System;
use crate::bench_result::Measure;
use crate::machine::CpuTimes;

/// From where on the processors may be what limits.
const CPU_BOUND_THRESHOLD: f64 = 0.9;
/// From where on runs differ too much to be believed.
const MAX_SPREAD: f64 = 0.25;
/// The rate from which a cache must have served reads.
const MAX_CACHED_FRACTION: f64 = 0.02;

/// Names that one sentence has at most.
const MAX_LISTED_NAMES: usize = 4;
/// Part of the processors that may be busy before anything is measured.
const MAX_BACKGROUND_LOAD: f64 = 0.25;
/// How long the machine's load is sampled before.
const LOAD_SAMPLE_TIME: std::time::Duration = std::time::Duration::from_millis(300);

/// The part of the processors that is busy though nothing is measured yet.
pub(crate) fn measure_background_load(system: &System) -> Option<f64> {
    let before = CpuTimes::read(system)?;
    std::thread::sleep(LOAD_SAMPLE_TIME);
    before.busy_fraction_until(CpuTimes::read(system)?)
}

/// Whether something else kept the machine busy.
pub(crate) fn background_load_finding(before: Option<f64>) -> Option<String> {
    before.filter(|part| *part > MAX_BACKGROUND_LOAD).map(|part| {
        format!(
            "The machine was busy with something else ({:.0} % of its processors): the figures \
             say as much about that.",
            part * 100.0
        )
    })
}

/// Findings from the measures of a folder; `before` is the processor load before the
/// measurement.
pub(crate) fn path_findings(measures: &[Measure], before: Option<f64>) -> Vec<String> {
    let first = background_load_finding(before).or_else(|| cpu_bound_finding(measures));
    let mut all: Vec<String> = first.into_iter().collect();
    all.extend(cache_findings(measures));
    all.extend(spread_finding(measures));
    all
}

fn cpu_bound_finding(measures: &[Measure]) -> Option<String> {
    let busy: Vec<&str> = (measures.iter())
        .filter(|measure| measure.processors_busy.is_some_and(|part| part > CPU_BOUND_THRESHOLD))
        .map(|measure| measure.what.as_str())
        .collect();
    (!busy.is_empty()).then(|| {
        format!("All processors were busy, and may be what limits: {}.", join_names(&busy))
    })
}

fn cache_findings(measures: &[Measure]) -> impl Iterator<Item = String> {
    measures.iter().filter_map(|measure| {
        let part = measure.found_in_cache.filter(|part| *part > MAX_CACHED_FRACTION)?;
        Some(format!(
            "{}: {:.0} % of the data lay in this machine's memory and could not be taken out of \
             it, so the figure is too good.",
            measure.what,
            part * 100.0
        ))
    })
}

/// Names measures whose runs are unreliable.
pub(crate) fn spread_finding(measures: &[Measure]) -> Option<String> {
    let wide: Vec<String> = (measures.iter())
        .filter_map(|measure| {
            let part = measure.summary?.relative_error()?;
            (part > MAX_SPREAD).then(|| format!("{} (±{:.0} %)", measure.what, part * 100.0))
        })
        .collect();
    let wide: Vec<&str> = wide.iter().map(String::as_str).collect();
    (!wide.is_empty()).then(|| {
        format!(
            "Runs differ so much that their mean says little; more of them (--runs), or a quieter \
             machine, say more: {}.",
            join_names(&wide)
        )
    })
}

/// Words in a row.
pub(crate) fn join_names(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).to_owned(),
        many if many.len() > MAX_LISTED_NAMES => {
            let (shown, others) = many.split_at(MAX_LISTED_NAMES - 1);
            format!("{} and {} more", shown.join(", "), others.len())
        }
        [rest @ .., last] => format!("{} and {last}", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::path_findings;
    use crate::bench_result::{Measure, Unit};

    #[test]
    fn load_cache_and_spread_are_reported() {
        let measure = |id: &str, runs: &[f64]| {
            Measure::new(id, id, "g", Unit::BytesPerSecond).with_runs(runs.to_vec(), 1.0)
        };
        let calm = measure("calm", &[10.0, 10.1, 9.9]);
        assert_eq!(path_findings(std::slice::from_ref(&calm), Some(0.1)), [""; 0]);
        let mut busy = measure("busy", &[10.0, 10.0, 10.0]);
        busy.processors_busy = Some(0.97);
        let mut cached = measure("cached", &[10.0, 10.0, 10.0]);
        cached.found_in_cache = Some(0.5);
        let wide = measure("wide", &[5.0, 10.0, 15.0]);
        let all = [calm, busy, cached, wide];
        let said = path_findings(&all, None).join("\n");
        for part in ["limits: busy.", "cached: 50 %", "wide (±124 %)"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        let said = path_findings(&all, Some(0.7)).join("\n");
        assert!(said.contains("something else (70 %") && !said.contains("limits: busy"), "{said}");
    }
}
