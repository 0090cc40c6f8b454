//! Compares the expected with the measured figures of an array, and names the limit: the drives, a
//! bus that they share, the processors, or the network.
//!
//! Each of them has a maximum; the least one is the limit. If the measured figure is far
//! below even that, no known limit explains it, and the report states that.

use serde::Serialize;
use serde_json::Value;

use crate::Error;
use crate::bench_result::{BenchKind, BenchResult, Measure, Unit};
use crate::formatting::{align_columns, format_value, percent};
use crate::number::to_f64;

/// The expectations of a plan, from the planner.
#[derive(Clone, Debug)]
pub struct ExpectedRates {
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
    pub block_size: u64,
    /// The share of parity or copies in the written bytes.
    pub redundant_fraction: f64,
}

/// A possible limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Bottleneck {
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
    /// No known limit.
    Unknown,
}

impl Bottleneck {
    fn description(self) -> &'static str {
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
pub struct BottleneckRow {
    /// The workload.
    pub what: String,
    /// The unit of the figures.
    pub unit: Unit,
    /// The expected figure of the drives.
    pub expected: f64,
    /// The measured figure.
    pub measured: f64,
    /// The least that anything allows.
    pub allowed: f64,
    /// The limit's figure.
    pub limit: Bottleneck,
    /// In a sentence.
    pub sentence: String,
}

/// All kinds of work.
#[derive(Clone, Debug, Serialize)]
pub struct BottleneckReport {
    /// The layout, in words.
    pub layout: String,
    /// Each kind of work that was measured.
    pub rows: Vec<BottleneckRow>,
}

/// The drive figures of a result, for a plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DriveRates {
    /// Sequential reads of one drive in the mean of its zones and of all drives, bytes a second.
    pub bytes_per_second: f64,
    /// Random reads of one drive, operations a second; of many at a time.
    pub operations_per_second: f64,
}

/// The share of a limit from which it explains the measured figure.
const EXPLAINED_FRACTION: f64 = 0.7;
const CPU_BOUND_THRESHOLD: f64 = 0.9;

/// The figures of one drive of a result.
pub fn drive_rates(disk: &BenchResult) -> Result<DriveRates, Error> {
    let no =
        |what: &str| Error::invalid_request(format!("'{}' has no {what} of drives", disk.label));
    let zones = disk.facts.get("zones").and_then(Value::as_array);
    let points = zones.into_iter().flatten().filter_map(|zone| zone.get("points")?.as_array());
    let rates: Vec<f64> = points.flatten().filter_map(|point| point.get(1)?.as_f64()).collect();
    let operations: Vec<f64> = (disk.measures.iter())
        .filter(|measure| measure.id.ends_with("/random-read-4k-q32"))
        .filter_map(|measure| Some(measure.summary?.mean))
        .collect();
    Ok(DriveRates {
        bytes_per_second: mean(&rates).ok_or_else(|| no("zones"))?,
        operations_per_second: mean(&operations).ok_or_else(|| no("random reads"))?,
    })
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / to_f64(values.len() as u64))
}

/// The part of the drives' speed that is left when all are read at once.
fn shared_bus_fraction(disk: &BenchResult) -> Option<f64> {
    let groups = disk.facts.get("together")?.as_array()?;
    let all = groups.iter().find(|group| group.get("controller").is_some_and(Value::is_null))?;
    let rates = all.get("bytes_per_second")?.as_array()?.iter().filter_map(Value::as_f64);
    let together: f64 = rates.sum();
    let outer = disk.measures.iter().filter(|measure| measure.id.ends_with("/read-1m-outer"));
    let alone: f64 = outer.filter_map(|measure| Some(measure.summary?.mean)).sum();
    (alone > 0.0).then(|| (together / alone).min(1.0))
}

/// The best of some measures.
fn best_measure(record: &BenchResult, fits: impl Fn(&str) -> bool) -> Option<&Measure> {
    let mean = |measure: &&Measure| measure.summary.map_or(0.0, |summary| summary.mean);
    let of = record.measures.iter().filter(|measure| fits(&measure.id));
    of.filter(|measure| measure.summary.is_some()).max_by(|a, b| mean(a).total_cmp(&mean(b)))
}

/// Assesses a measured folder or array; results of drives and network refine it.
pub fn find_bottlenecks(
    expected: &ExpectedRates,
    path: &BenchResult,
    disk: Option<&BenchResult>,
    net: Option<&BenchResult>,
) -> Result<BottleneckReport, Error> {
    let fits: [(Option<&BenchResult>, &[BenchKind]); 3] = [
        (Some(path), &[BenchKind::Path, BenchKind::Array]),
        (disk, &[BenchKind::Disk]),
        (net, &[BenchKind::Net]),
    ];
    for (record, kinds) in fits {
        if let Some(record) = record.filter(|record| !kinds.contains(&record.kind)) {
            let wanted: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
            let (found, wanted) = (record.kind.name(), wanted.join(" or "));
            let what = format!("'{}' measures a {found}; a {wanted} is expected", record.label);
            return Err(Error::invalid_request(what));
        }
    }
    let scene = BottleneckInputs {
        expected,
        bus_fraction: disk.and_then(shared_bus_fraction),
        net_result: net,
    };
    let random = |verb: &str| {
        // the largest block that one record holds: each operation then moves one record
        let size = |id: &str| {
            let text = id.strip_prefix(verb)?.strip_suffix("-q32")?;
            units::parse_bytes(text).filter(|size| *size <= expected.block_size)
        };
        let of = path.measures.iter().filter_map(|measure| Some((size(&measure.id)?, measure)));
        of.max_by_key(|(size, _)| *size).map(|(_, measure)| measure)
    };
    let work = [
        (
            best_measure(path, |id| id.starts_with("write-") || id.starts_with("rewrite-")),
            expected.write,
            Direction::Write,
        ),
        (best_measure(path, |id| id.starts_with("read-")), expected.read, Direction::Read),
        (random("random-read-"), expected.random_reads, Direction::Read),
        (random("random-write-"), expected.random_writes, Direction::Write),
    ];
    let rows: Vec<BottleneckRow> = (work.into_iter())
        .filter_map(|(measure, figure, work)| scene.compare_measure(measure?, figure, work))
        .collect();
    if rows.is_empty() {
        let what = format!("'{}' has neither reads nor writes to compare", path.label);
        return Err(Error::invalid_request(what));
    }
    Ok(BottleneckReport { layout: expected.layout.clone(), rows })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Read,
    Write,
}

struct BottleneckInputs<'a> {
    expected: &'a ExpectedRates,
    /// The part of the drives' speed that their bus leaves them.
    bus_fraction: Option<f64>,
    net_result: Option<&'a BenchResult>,
}

impl BottleneckInputs<'_> {
    fn compare_measure(
        &self,
        measure: &Measure,
        expected: f64,
        work: Direction,
    ) -> Option<BottleneckRow> {
        let measured = measure.summary?.mean;
        let mut allowed = vec![(Bottleneck::Drives, expected)];
        if measure.unit == Unit::BytesPerSecond {
            allowed.extend(self.bus_fraction.map(|part| (Bottleneck::Bus, expected * part)));
            allowed.extend(self.network_rate(work).map(|rate| (Bottleneck::Network, rate)));
        }
        let (least, most) = allowed.into_iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
        let busy = measure.processors_busy.is_some_and(|part| part > CPU_BOUND_THRESHOLD);
        let limit = if measured >= EXPLAINED_FRACTION * most {
            least
        } else if busy && work == Direction::Write && self.expected.redundant_fraction > 0.0 {
            Bottleneck::Parity
        } else if busy {
            Bottleneck::Processors
        } else {
            Bottleneck::Unknown
        };
        let sentence = self.describe(measure, measured, (expected, most), limit);
        Some(BottleneckRow {
            what: measure.what.clone(),
            unit: measure.unit,
            expected,
            measured,
            allowed: most,
            limit,
            sentence,
        })
    }

    /// The network's rate in bytes a second: reads come from the other end.
    fn network_rate(&self, work: Direction) -> Option<f64> {
        let way = if work == Direction::Read { "down-" } else { "up-" };
        let is_plain = |id: &str| id.starts_with(way) && !id.contains("buffer");
        Some(best_measure(self.net_result?, is_plain)?.summary?.mean / 8.0)
    }

    fn describe(
        &self,
        measure: &Measure,
        measured: f64,
        (expected, allowed): (f64, f64),
        limit: Bottleneck,
    ) -> String {
        let shown = |value| format_value(value, measure.unit);
        let mut text = format!(
            "{}: {} measured, {} of the {} that the drives should give.",
            measure.what,
            shown(measured),
            percent(measured / expected.max(f64::MIN_POSITIVE)),
            shown(expected)
        );
        text += &match limit {
            Bottleneck::Unknown => format!(
                " Nothing that is known explains it ({} are allowed): caches, fragments, record \
                 sizes, other users, or figures of the drives that are too good.",
                shown(allowed)
            ),
            Bottleneck::Drives if measured > 1.3 * expected => {
                " More than expected: caches, compression, or drives better than supposed.".into()
            }
            limit => format!(" The limit is {}.", limit.description()),
        };
        let redundant = self.expected.redundant_fraction;
        if measure.id.contains("write") && redundant > 0.0 && limit == Bottleneck::Drives {
            text += &format!(" {} of what they write is parity or copies.", percent(redundant));
        }
        text
    }
}

impl BottleneckReport {
    /// For a terminal.
    pub fn to_text(&self) -> String {
        let head = ["", "expected", "measured", "of it", "limit"].map(str::to_owned).to_vec();
        let mut rows = vec![head];
        for row in &self.rows {
            rows.push(vec![
                row.what.clone(),
                format_value(row.expected, row.unit),
                format_value(row.measured, row.unit),
                percent(row.measured / row.expected.max(f64::MIN_POSITIVE)),
                row.limit.description().to_owned(),
            ]);
        }
        let mut out = format!("{}\n\n{}\n", self.layout, align_columns(&rows));
        for row in &self.rows {
            out.push_str(&crate::formatting::wrap_list_item(&row.sentence));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Bottleneck, ExpectedRates, drive_rates, find_bottlenecks};
    use crate::bench_result::{BenchKind, BenchResult, Measure, Unit};

    const EXPECTED: fn() -> ExpectedRates = || ExpectedRates {
        layout: "raidz2 6".into(),
        write: 720e6,
        read: 720e6,
        random_reads: 150.0,
        random_writes: 90.0,
        block_size: 128 << 10,
        redundant_fraction: 1.0 / 3.0,
    };

    fn path_result(figures: &[(&str, f64)], busy: f64) -> BenchResult {
        let unit = |id: &str| {
            if id.starts_with("random") { Unit::OperationsPerSecond } else { Unit::BytesPerSecond }
        };
        let measure = |(id, value): &(&str, f64)| Measure {
            processors_busy: Some(busy),
            ..Measure::new(id, id, "g", unit(id)).with_runs(vec![*value, *value], 10.0)
        };
        BenchResult {
            measures: figures.iter().map(measure).collect(),
            ..BenchResult::empty("tank")
        }
    }

    fn disk_result() -> BenchResult {
        let mut record = path_result(
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
        record.kind = BenchKind::Disk;
        record
    }

    fn bottlenecks(
        record: &BenchResult,
        disk: Option<&BenchResult>,
        net: Option<&BenchResult>,
    ) -> Vec<Bottleneck> {
        let judgement = find_bottlenecks(&EXPECTED(), record, disk, net).unwrap();
        assert!(judgement.to_text().contains("raidz2 6"));
        judgement.rows.iter().map(|row| row.limit).collect()
    }

    #[test]
    fn bottleneck_is_identified() {
        let good = path_result(
            &[("write-1m-q1", 650e6), ("read-1m-q8", 700e6), ("random-read-128k-q32", 140.0)],
            0.3,
        );
        assert_eq!(bottlenecks(&good, None, None), [Bottleneck::Drives; 3]);
        let half = path_result(&[("write-1m-q1", 330e6), ("read-1m-q8", 340e6)], 0.3);
        assert_eq!(bottlenecks(&half, Some(&disk_result()), None), [Bottleneck::Bus; 2]);
        assert_eq!(bottlenecks(&half, None, None), [Bottleneck::Unknown; 2]);
        let busy = path_result(&[("write-1m-q1", 330e6), ("read-1m-q8", 340e6)], 0.97);
        assert_eq!(bottlenecks(&busy, None, None), [Bottleneck::Parity, Bottleneck::Processors]);
        let mut net = path_result(&[("up-1", 940e6), ("down-4", 941e6)], 0.1);
        net.kind = BenchKind::Net;
        let share = path_result(&[("write-1m-q1", 105e6), ("read-1m-q8", 112e6)], 0.1);
        assert_eq!(bottlenecks(&share, None, Some(&net)), [Bottleneck::Network; 2]);
    }

    #[test]
    fn drive_rates_come_from_disk_result() {
        let figures = drive_rates(&disk_result()).unwrap();
        assert!((figures.bytes_per_second - 140e6).abs() < 1.0);
        assert!((figures.operations_per_second - 190.0).abs() < 1e-9);
        assert!(drive_rates(&path_result(&[], 0.0)).is_err());
        assert!(
            find_bottlenecks(&EXPECTED(), &disk_result(), None, None).is_err(),
            "drives are not folders"
        );
        assert!(
            find_bottlenecks(&EXPECTED(), &path_result(&[], 0.0), None, None).is_err(),
            "nothing to compare"
        );
    }
}
