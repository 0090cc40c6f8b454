//! What was expected of an array against what was measured, and what limits it: the drives, a bus
//! that they share, the processors, or the network.
//!
//! Each of them allows so much; the least of them is what limits. Where the measured figure is far
//! below even that, nothing that is known explains it, and that is said.

use serde::Serialize;
use serde_json::Value;

use crate::Error;
use crate::number::float;
use crate::present::{aligned, figure, percent};
use crate::record::{Kind, Measure, Record, Unit};

/// What a plan expects; the figures of whoever plans.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The layout, in words.
    pub layout: String,
    /// Sequential writes, bytes a second.
    pub write: f64,
    /// Sequential reads, bytes a second.
    pub read: f64,
    /// Random reads of a block, operations a second.
    pub random_reads: f64,
    /// Random writes of a block, operations a second.
    pub random_writes: f64,
    /// The block, bytes.
    pub block: u64,
    /// The part of what is written to drives that is parity or copies.
    pub redundant: f64,
}

/// What may limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// The drives themselves.
    Drives,
    /// Something that the drives share on the way.
    Bus,
    /// The network between.
    Network,
    /// The processors, with the sums of checksums and compression.
    Processors,
    /// The processors or drives, with the work of parity.
    Parity,
    /// Nothing that is known.
    Unknown,
}

impl Limit {
    fn words(self) -> &'static str {
        match self {
            Self::Drives => "the drives",
            Self::Bus => "the bus that the drives share",
            Self::Network => "the network",
            Self::Processors => "the processors",
            Self::Parity => "parity, which the processors are busy with",
            Self::Unknown => "nothing that is known",
        }
    }
}

/// One kind of work.
#[derive(Clone, Debug, Serialize)]
pub struct Judged {
    /// What was done.
    pub what: String,
    /// What the figures are.
    pub unit: Unit,
    /// What the drives should give.
    pub expected: f64,
    /// What was measured.
    pub measured: f64,
    /// The least that anything allows.
    pub allowed: f64,
    /// What that is.
    pub limit: Limit,
    /// In a sentence.
    pub sentence: String,
}

/// All kinds of work.
#[derive(Clone, Debug, Serialize)]
pub struct Judgement {
    /// The layout, in words.
    pub layout: String,
    /// Each kind of work that was measured.
    pub rows: Vec<Judged>,
}

/// What a result of drives says for a plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DriveFigures {
    /// Sequential reads of one drive in the mean of its zones and of all drives, bytes a second.
    pub bytes_per_second: f64,
    /// Random reads of one drive, operations a second; of many at a time.
    pub operations_per_second: f64,
}

/// From where on the measured figure is explained by what is allowed.
const EXPLAINED: f64 = 0.7;
const BUSY: f64 = 0.9;

/// What one of the drives of a result does.
pub fn drive_figures(disk: &Record) -> Result<DriveFigures, Error> {
    let no = |what: &str| Error::asked(format!("'{}' has no {what} of drives", disk.label));
    let zones = disk.facts.get("zones").and_then(Value::as_array);
    let points = zones.into_iter().flatten().filter_map(|zone| zone.get("points")?.as_array());
    let rates: Vec<f64> = points.flatten().filter_map(|point| point.get(1)?.as_f64()).collect();
    let operations: Vec<f64> = (disk.measures.iter())
        .filter(|measure| measure.id.ends_with("/random-read-4k-q32"))
        .filter_map(|measure| Some(measure.summary?.mean))
        .collect();
    Ok(DriveFigures {
        bytes_per_second: mean(&rates).ok_or_else(|| no("zones"))?,
        operations_per_second: mean(&operations).ok_or_else(|| no("random reads"))?,
    })
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / float(values.len() as u64))
}

/// The part of the drives' speed that is left when all are read at once.
fn together(disk: &Record) -> Option<f64> {
    let groups = disk.facts.get("together")?.as_array()?;
    let all = groups.iter().find(|group| group.get("controller").is_some_and(Value::is_null))?;
    let rates = all.get("bytes_per_second")?.as_array()?.iter().filter_map(Value::as_f64);
    let together: f64 = rates.sum();
    let outer = disk.measures.iter().filter(|measure| measure.id.ends_with("/read-1m-outer"));
    let alone: f64 = outer.filter_map(|measure| Some(measure.summary?.mean)).sum();
    (alone > 0.0).then(|| (together / alone).min(1.0))
}

/// The best of some measures.
fn best(record: &Record, fits: impl Fn(&str) -> bool) -> Option<&Measure> {
    let mean = |measure: &&Measure| measure.summary.map_or(0.0, |summary| summary.mean);
    let of = record.measures.iter().filter(|measure| fits(&measure.id));
    of.filter(|measure| measure.summary.is_some()).max_by(|a, b| mean(a).total_cmp(&mean(b)))
}

/// Judges a measured folder or array; drives and network, if they were measured too, say more.
pub fn judge(
    expected: &Expected,
    path: &Record,
    disk: Option<&Record>,
    net: Option<&Record>,
) -> Result<Judgement, Error> {
    let fits: [(Option<&Record>, &[Kind]); 3] =
        [(Some(path), &[Kind::Path, Kind::Array]), (disk, &[Kind::Disk]), (net, &[Kind::Net])];
    for (record, kinds) in fits {
        if let Some(record) = record.filter(|record| !kinds.contains(&record.kind)) {
            let wanted: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
            let (found, wanted) = (record.kind.name(), wanted.join(" or "));
            let what = format!("'{}' measures a {found}; a {wanted} is wanted", record.label);
            return Err(Error::asked(what));
        }
    }
    let scene = Scene { expected, bus: disk.and_then(together), net };
    let random = |verb: &str| {
        // the largest block that one record holds: each operation then moves one record
        let size = |id: &str| {
            let text = id.strip_prefix(verb)?.strip_suffix("-q32")?;
            units::parse_bytes(text).filter(|size| *size <= expected.block)
        };
        let of = path.measures.iter().filter_map(|measure| Some((size(&measure.id)?, measure)));
        of.max_by_key(|(size, _)| *size).map(|(_, measure)| measure)
    };
    let work = [
        (
            best(path, |id| id.starts_with("write-") || id.starts_with("rewrite-")),
            expected.write,
            Work::Write,
        ),
        (best(path, |id| id.starts_with("read-")), expected.read, Work::Read),
        (random("random-read-"), expected.random_reads, Work::Read),
        (random("random-write-"), expected.random_writes, Work::Write),
    ];
    let rows: Vec<Judged> = (work.into_iter())
        .filter_map(|(measure, figure, work)| scene.judge(measure?, figure, work))
        .collect();
    if rows.is_empty() {
        let what = format!("'{}' has neither reads nor writes to compare", path.label);
        return Err(Error::asked(what));
    }
    Ok(Judgement { layout: expected.layout.clone(), rows })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Read,
    Write,
}

struct Scene<'a> {
    expected: &'a Expected,
    /// The part of the drives' speed that their bus leaves them.
    bus: Option<f64>,
    net: Option<&'a Record>,
}

impl Scene<'_> {
    fn judge(&self, measure: &Measure, expected: f64, work: Work) -> Option<Judged> {
        let measured = measure.summary?.mean;
        let mut allowed = vec![(Limit::Drives, expected)];
        if measure.unit == Unit::Rate {
            allowed.extend(self.bus.map(|part| (Limit::Bus, expected * part)));
            allowed.extend(self.network(work).map(|rate| (Limit::Network, rate)));
        }
        let (least, most) = allowed.into_iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
        let busy = measure.processors_busy.is_some_and(|part| part > BUSY);
        let limit = if measured >= EXPLAINED * most {
            least
        } else if busy && work == Work::Write && self.expected.redundant > 0.0 {
            Limit::Parity
        } else if busy {
            Limit::Processors
        } else {
            Limit::Unknown
        };
        let sentence = self.sentence(measure, measured, (expected, most), limit);
        Some(Judged {
            what: measure.what.clone(),
            unit: measure.unit,
            expected,
            measured,
            allowed: most,
            limit,
            sentence,
        })
    }

    /// What the network carries, bytes a second: reads come from the other end.
    fn network(&self, work: Work) -> Option<f64> {
        let way = if work == Work::Read { "down-" } else { "up-" };
        let is_plain = |id: &str| id.starts_with(way) && !id.contains("buffer");
        Some(best(self.net?, is_plain)?.summary?.mean / 8.0)
    }

    fn sentence(
        &self,
        measure: &Measure,
        measured: f64,
        (expected, allowed): (f64, f64),
        limit: Limit,
    ) -> String {
        let shown = |value| figure(value, measure.unit);
        let mut text = format!(
            "{}: {} measured, {} of the {} that the drives should give.",
            measure.what,
            shown(measured),
            percent(measured / expected.max(f64::MIN_POSITIVE)),
            shown(expected)
        );
        text += &match limit {
            Limit::Unknown => format!(
                " Nothing that is known explains it ({} are allowed): caches, fragments, record \
                 sizes, other users, or figures of the drives that are too good.",
                shown(allowed)
            ),
            Limit::Drives if measured > 1.3 * expected => {
                " More than expected: caches, compression, or drives better than supposed.".into()
            }
            limit => format!(" The limit is {}.", limit.words()),
        };
        let redundant = self.expected.redundant;
        if measure.id.contains("write") && redundant > 0.0 && limit == Limit::Drives {
            text += &format!(" {} of what they write is parity or copies.", percent(redundant));
        }
        text
    }
}

impl Judgement {
    /// For a terminal.
    pub fn text(&self) -> String {
        let head = ["", "expected", "measured", "of it", "limit"].map(str::to_owned).to_vec();
        let mut rows = vec![head];
        for row in &self.rows {
            rows.push(vec![
                row.what.clone(),
                figure(row.expected, row.unit),
                figure(row.measured, row.unit),
                percent(row.measured / row.expected.max(f64::MIN_POSITIVE)),
                row.limit.words().to_owned(),
            ]);
        }
        let mut out = format!("{}\n\n{}\n", self.layout, aligned(&rows));
        for row in &self.rows {
            out.push_str(&crate::present::wrapped(&row.sentence));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Expected, Limit, drive_figures, judge};
    use crate::record::{Kind, Measure, Record, Unit};

    const EXPECTED: fn() -> Expected = || Expected {
        layout: "raidz2 6".into(),
        write: 720e6,
        read: 720e6,
        random_reads: 150.0,
        random_writes: 90.0,
        block: 128 << 10,
        redundant: 1.0 / 3.0,
    };

    fn path(figures: &[(&str, f64)], busy: f64) -> Record {
        let unit = |id: &str| if id.starts_with("random") { Unit::Operations } else { Unit::Rate };
        let measure = |(id, value): &(&str, f64)| Measure {
            processors_busy: Some(busy),
            ..Measure::new(id, id, "g", unit(id)).with_runs(vec![*value, *value], 10.0)
        };
        Record { measures: figures.iter().map(measure).collect(), ..Record::empty("tank") }
    }

    fn disk() -> Record {
        let mut record = path(
            &[
                ("sda/read-1m-outer", 180e6),
                ("sdb/read-1m-outer", 180e6),
                ("sda/random-read-4k-q32", 200.0),
                ("sdb/random-read-4k-q32", 180.0),
            ],
            0.1,
        );
        let facts = json!({
            "zones": [{ "drive": "sda", "points": [[0, 180e6], [100, 100e6]] }],
            "together": [{ "controller": null, "bytes_per_second": [90e6, 90e6] }],
        });
        record.facts = facts.as_object().unwrap().clone();
        record.kind = Kind::Disk;
        record
    }

    fn limits(record: &Record, disk: Option<&Record>, net: Option<&Record>) -> Vec<Limit> {
        let judgement = judge(&EXPECTED(), record, disk, net).unwrap();
        assert!(judgement.text().contains("raidz2 6"));
        judgement.rows.iter().map(|row| row.limit).collect()
    }

    #[test]
    fn what_limits_is_named() {
        let good = path(
            &[("write-1m-q1", 650e6), ("read-1m-q8", 700e6), ("random-read-128k-q32", 140.0)],
            0.3,
        );
        assert_eq!(limits(&good, None, None), [Limit::Drives; 3]);
        let half = path(&[("write-1m-q1", 330e6), ("read-1m-q8", 340e6)], 0.3);
        assert_eq!(limits(&half, Some(&disk()), None), [Limit::Bus; 2]);
        assert_eq!(limits(&half, None, None), [Limit::Unknown; 2]);
        let busy = path(&[("write-1m-q1", 330e6), ("read-1m-q8", 340e6)], 0.97);
        assert_eq!(limits(&busy, None, None), [Limit::Parity, Limit::Processors]);
        let mut net = path(&[("up-1", 940e6), ("down-4", 941e6)], 0.1);
        net.kind = Kind::Net;
        let share = path(&[("write-1m-q1", 105e6), ("read-1m-q8", 112e6)], 0.1);
        assert_eq!(limits(&share, None, Some(&net)), [Limit::Network; 2]);
    }

    #[test]
    fn drives_of_a_result_are_taken_for_the_plan() {
        let figures = drive_figures(&disk()).unwrap();
        assert!((figures.bytes_per_second - 140e6).abs() < 1.0);
        assert!((figures.operations_per_second - 190.0).abs() < 1e-9);
        assert!(drive_figures(&path(&[], 0.0)).is_err());
        assert!(judge(&EXPECTED(), &disk(), None, None).is_err(), "drives are no folder");
        assert!(judge(&EXPECTED(), &path(&[], 0.0), None, None).is_err(), "nothing to judge");
    }
}
