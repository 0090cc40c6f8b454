//! Runs as they come in, kept by what was measured; what of them is there makes a result at any
//! time, also if the work is interrupted.

use std::time::Duration;

use crate::histogram::Histogram;
use crate::number::{float, per_second};
use crate::record::{Measure, Unit};
use crate::timed::Ran;

/// All runs so far.
#[derive(Default)]
pub(crate) struct Tally(Vec<Entry>);

/// What is measured.
pub(crate) struct Name {
    pub(crate) id: String,
    pub(crate) what: String,
    pub(crate) group: String,
    pub(crate) unit: Unit,
}

struct Entry {
    name: Name,
    runs: Vec<f64>,
    shortest: Duration,
    histogram: Histogram,
    busy: Vec<f64>,
    cached: Vec<f64>,
}

impl Tally {
    /// Adds a run.
    pub(crate) fn add(&mut self, name: Name, ran: &Ran, cached: Option<f64>) {
        let figure = match name.unit {
            Unit::Rate => per_second(ran.bytes, ran.time),
            Unit::Bits => 8.0 * per_second(ran.bytes, ran.time),
            Unit::Operations => per_second(ran.operations, ran.time),
            Unit::Milliseconds => ran.time.as_secs_f64() * 1000.0,
        };
        let entry = self.entry(name);
        entry.runs.push(figure);
        entry.shortest = entry.shortest.min(ran.time);
        entry.histogram.merge(&ran.histogram);
        entry.busy.extend(ran.busy);
        entry.cached.extend(cached);
    }

    /// Adds a run of which the figure is known.
    pub(crate) fn add_figure(
        &mut self,
        name: Name,
        figure: f64,
        time: Duration,
        busy: Option<f64>,
    ) {
        let entry = self.entry(name);
        entry.runs.push(figure);
        entry.shortest = entry.shortest.min(time);
        entry.busy.extend(busy);
    }

    fn entry(&mut self, name: Name) -> &mut Entry {
        let index = self.0.iter().position(|entry| entry.name.id == name.id);
        let index = index.unwrap_or_else(|| {
            self.0.push(Entry {
                name,
                runs: Vec::new(),
                shortest: Duration::MAX,
                histogram: Histogram::default(),
                busy: Vec::new(),
                cached: Vec::new(),
            });
            self.0.len() - 1
        });
        &mut self.0[index]
    }

    /// What came out so far.
    pub(crate) fn measures(self) -> Vec<Measure> {
        self.0.into_iter().map(Entry::measure).collect()
    }
}

impl Entry {
    fn measure(self) -> Measure {
        let Name { id, what, group, unit } = self.name;
        Measure {
            latency: self.histogram.latency(),
            processors_busy: mean(&self.busy),
            found_in_cache: mean(&self.cached),
            ..Measure::new(&id, &what, &group, unit)
                .with_runs(self.runs, self.shortest.as_secs_f64())
        }
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / float(values.len() as u64))
}
