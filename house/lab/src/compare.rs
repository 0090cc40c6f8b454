//! Results side by side, with the change in percent and what of it is noise.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;

use crate::Error;
use crate::bench_result::{BenchResult, Unit};
use crate::formatting::{align_columns, format_plus_minus, format_value, percent};
use crate::statistics::{Change, Summary};

/// Several results side by side; the first is the base of the comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// A column for each result.
    pub columns: Vec<Column>,
    /// A row for each thing that was measured.
    pub rows: Vec<Row>,
    /// Differences besides the subject, in sentences: such results are not comparable.
    pub warnings: Vec<String>,
}

/// One of the results.
#[derive(Clone, Debug, Serialize)]
pub struct Column {
    /// The user's label.
    pub label: String,
    /// The subject.
    pub subject: String,
    /// When.
    pub started: String,
    /// On which machine.
    pub machine: String,
}

/// One thing measured.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name in JSON.
    pub id: String,
    /// Its name for a user.
    pub what: String,
    /// Its chart.
    pub group: String,
    /// The unit of its figures.
    pub unit: Unit,
    /// For each column the figures, if it was measured.
    pub cells: Vec<Option<Cell>>,
}

/// The figures of one result.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Cell {
    /// The mean, and how sure it is.
    pub summary: Summary,
    /// Against the first column.
    pub change: Option<Change>,
}

/// Puts results side by side.
pub fn compare(records: &[BenchResult]) -> Result<Comparison, Error> {
    let Some((first, others)) = records.split_first().filter(|(_, others)| !others.is_empty())
    else {
        return Err(Error::invalid_request("two results or more are compared"));
    };
    if let Some(other) = others.iter().find(|other| other.kind != first.kind) {
        return Err(Error::invalid_request(format!(
            "'{}' measures a {} and '{}' a {}: there is nothing to compare",
            first.label,
            first.kind.name(),
            other.label,
            other.kind.name()
        )));
    }
    let mut rows: Vec<Row> = Vec::new();
    for measure in records.iter().flat_map(|record| &record.measures) {
        if !rows.iter().any(|row| row.id == measure.id) {
            rows.push(Row {
                id: measure.id.clone(),
                what: measure.what.clone(),
                group: measure.group.clone(),
                unit: measure.unit,
                cells: records
                    .iter()
                    .map(|record| build_cell(record, first, &measure.id))
                    .collect(),
            });
        }
    }
    let columns = unique_labels(records).into_iter().zip(records);
    let columns = columns.map(|(label, record)| Column {
        label,
        subject: record.subject.clone(),
        started: record.started.clone(),
        machine: record.machine.description(),
    });
    Ok(Comparison { columns: columns.collect(), rows, warnings: warnings(records) })
}

fn build_cell(record: &BenchResult, first: &BenchResult, id: &str) -> Option<Cell> {
    let measure = record.measure(id)?;
    let before = first.measure(id).filter(|_| !std::ptr::eq(record, first));
    let change = before.and_then(|before| Change::between(&before.runs, &measure.runs));
    Some(Cell { summary: measure.summary?, change })
}

/// The results' labels, made distinct if two are equal.
fn unique_labels(records: &[BenchResult]) -> Vec<String> {
    let alike = |label: &str| records.iter().filter(|other| other.label == label).count() > 1;
    let label = |(index, record): (usize, &BenchResult)| {
        if alike(&record.label) {
            format!("{} ({})", record.label, index + 1)
        } else {
            record.label.clone()
        }
    };
    records.iter().enumerate().map(label).collect()
}

/// Settings that differ, and results that are not whole.
fn warnings(records: &[BenchResult]) -> Vec<String> {
    let mut all = Vec::new();
    let mut names: Vec<&String> =
        records.iter().flat_map(|record| record.settings.keys()).collect();
    names.sort();
    names.dedup();
    for name in names {
        let values = records.iter().map(|record| record.settings.get(name));
        let words: Vec<String> = values
            .map(|value| {
                value.map_or_else(|| "unknown".to_owned(), |value| format_setting(name, value))
            })
            .collect();
        if words.windows(2).any(|pair| pair[0] != pair[1]) {
            all.push(format!("not the same {}: {}", name.replace('_', " "), words.join(", ")));
        }
    }
    for record in records.iter().filter(|record| !record.complete) {
        all.push(format!("'{}' was interrupted, and is not whole", record.label));
    }
    all
}

fn format_setting(name: &str, value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) if name.ends_with("bytes") => {
            number.as_u64().map_or_else(|| number.to_string(), units::human_bytes)
        }
        other => other.to_string(),
    }
}

impl Change {
    /// In percent, with its significance: `+12 %`, `+1.2 % ~` within the noise, `?` not known.
    pub fn to_text(self) -> String {
        let mark = match self.is_noise {
            Some(false) => "",
            Some(true) => " ~",
            None => " ?",
        };
        let sign = if self.part >= 0.0 { "+" } else { "" };
        format!("{sign}{}{mark}", percent(self.part))
    }
}

/// The legend of [`Change::to_text`].
pub(crate) const CHANGE_LEGEND: &str =
    "~ is within the noise (95 %); ? is unknown with one run only";

impl Comparison {
    /// For a terminal.
    pub fn to_text(&self) -> String {
        let mut head = vec![String::new()];
        for (index, column) in self.columns.iter().enumerate() {
            head.extend([column.label.clone(), "95 %".to_owned()]);
            head.extend((index > 0).then(|| "change".to_owned()));
        }
        let mut rows = vec![head];
        rows.extend(self.rows.iter().map(Row::text_cells));
        let mut out = align_columns(&rows);
        let _ = writeln!(out, "\n{CHANGE_LEGEND}");
        for warning in &self.warnings {
            let _ = writeln!(out, "careful: {warning}");
        }
        out
    }
}

impl Row {
    /// Its words: the name, then mean, confidence and (from the second on) change.
    pub(crate) fn text_cells(&self) -> Vec<String> {
        let mut words = vec![self.what.clone()];
        for (index, cell) in self.cells.iter().enumerate() {
            let mean = cell.map(|cell| format_value(cell.summary.mean, self.unit));
            words.push(mean.unwrap_or_else(|| "-".to_owned()));
            words.push(cell.map(|cell| format_plus_minus(&cell.summary)).unwrap_or_default());
            if index > 0 {
                let change = cell.and_then(|cell| cell.change);
                words.push(change.map(Change::to_text).unwrap_or_default());
            }
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::compare;
    use crate::bench_result::{BenchKind, BenchResult, Measure, Unit};
    use crate::statistics::Change;

    fn result(label: &str, runs: &[f64]) -> BenchResult {
        let measure =
            Measure::new("read-1m-q1", "sequential read 1M", "sequential", Unit::BytesPerSecond);
        BenchResult {
            measures: vec![measure.with_runs(runs.to_vec(), 10.0)],
            ..BenchResult::empty(label)
        }
    }

    #[test]
    fn comparison_shows_changes_per_column() {
        let records = [
            result("ashift 9", &[100e6, 101e6, 99e6]),
            result("ashift 12", &[120e6, 121e6, 119e6]),
            result("ashift 12", &[100e6, 102e6, 98e6]),
        ];
        let comparison = compare(&records).unwrap();
        let text = comparison.to_text();
        for part in ["ashift 9", "ashift 12 (2)", "ashift 12 (3)", "+20 %", "0.0 % ~", "100 MB/s"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(comparison.warnings.is_empty());
    }

    #[test]
    fn incomparable_results_warn_or_fail() {
        let (first, mut second) = (result("a", &[1.0]), result("b", &[2.0]));
        second.settings.insert("data".into(), "zeros".into());
        second.complete = false;
        let comparison = compare(&[first.clone(), second.clone()]).unwrap();
        assert_eq!(comparison.warnings.len(), 2, "{:?}", comparison.warnings);
        assert!(comparison.to_text().contains("+100 % ?"), "{}", comparison.to_text());
        second.kind = BenchKind::Net;
        assert!(compare(&[first.clone(), second]).is_err());
        assert!(compare(&[first]).is_err());
    }

    #[test]
    fn missing_measures_are_blank() {
        let mut second = result("b", &[1.0, 2.0]);
        second.measures[0].id = "other".to_owned();
        let comparison = compare(&[result("a", &[1.0, 2.0]), second]).unwrap();
        assert_eq!(comparison.rows.len(), 2);
        assert!(comparison.rows[0].cells[1].is_none() && comparison.rows[1].cells[0].is_none());
    }

    #[test]
    fn change_marks_show_noise() {
        let text = |part, is_noise| Change { part, is_noise }.to_text();
        assert_eq!(text(-0.125, Some(false)), "-12 %");
        assert_eq!(text(0.0123, Some(true)), "+1.2 % ~");
        assert_eq!(text(0.5, None), "+50 % ?");
    }
}
