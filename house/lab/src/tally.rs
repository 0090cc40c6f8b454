//! Collects runs by measure. Their results are available at any time, also if the work is
//! interrupted.

use std::time::Duration;

use crate::bench_result::{Measure, Unit};
use crate::histogram::Histogram;
use crate::number::{per_second, to_f64};
use crate::timed_run::RunResult;

/// All runs so far.
#[derive(Default)]
pub(crate) struct Tally(Vec<Entry>);

/// The measures.
pub(crate) struct MeasureName {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) group: String,
    pub(crate) unit: Unit,
}

struct Entry {
    name: MeasureName,
    runs: Vec<f64>,
    shortest_run: Duration,
    histogram: Histogram,
    cpu_busy: Vec<f64>,
    cached_fractions: Vec<f64>,
}

impl Tally {
    /// Adds a run.
    pub(crate) fn add_run(&mut self, name: MeasureName, ran: &RunResult, cached: Option<f64>) {
        let figure = match name.unit {
            Unit::BytesPerSecond => per_second(ran.bytes, ran.duration),
            Unit::BitsPerSecond => 8.0 * per_second(ran.bytes, ran.duration),
            Unit::OperationsPerSecond => per_second(ran.operations, ran.duration),
            Unit::Milliseconds => ran.duration.as_secs_f64() * 1000.0,
        };
        let entry = self.entry(name);
        entry.runs.push(figure);
        entry.shortest_run = entry.shortest_run.min(ran.duration);
        entry.histogram.merge(&ran.histogram);
        entry.cpu_busy.extend(ran.cpu_busy);
        entry.cached_fractions.extend(cached);
    }

    /// Adds a run of which the figure is known.
    pub(crate) fn add_value(
        &mut self,
        name: MeasureName,
        figure: f64,
        time: Duration,
        busy: Option<f64>,
    ) {
        let entry = self.entry(name);
        entry.runs.push(figure);
        entry.shortest_run = entry.shortest_run.min(time);
        entry.cpu_busy.extend(busy);
    }

    fn entry(&mut self, name: MeasureName) -> &mut Entry {
        let index = self.0.iter().position(|entry| entry.name.id == name.id);
        let index = index.unwrap_or_else(|| {
            self.0.push(Entry {
                name,
                runs: Vec::new(),
                shortest_run: Duration::MAX,
                histogram: Histogram::default(),
                cpu_busy: Vec::new(),
                cached_fractions: Vec::new(),
            });
            self.0.len() - 1
        });
        &mut self.0[index]
    }

    /// The results so far.
    pub(crate) fn into_measures(self) -> Vec<Measure> {
        self.0.into_iter().map(Entry::into_measure).collect()
    }
}

impl Entry {
    fn into_measure(self) -> Measure {
        let MeasureName { id, title: what, group, unit } = self.name;
        Measure {
            latency: self.histogram.latency(),
            processors_busy: mean(&self.cpu_busy),
            found_in_cache: mean(&self.cached_fractions),
            ..Measure::new(&id, &what, &group, unit)
                .with_runs(self.runs, self.shortest_run.as_secs_f64())
        }
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / to_f64(values.len() as u64))
}
