//! Results side by side, with the change in percent and what of it is noise.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;

use crate::Error;
use crate::present::{aligned, figure, percent, plus_minus};
use crate::record::{Record, Unit};
use crate::statistics::{Change, Summary};

/// Several results side by side; the first is what the others are compared with.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// A column for each result.
    pub columns: Vec<Column>,
    /// A row for each thing that was measured.
    pub rows: Vec<Row>,
    /// What else than the subject differs, in sentences: such results are not comparable.
    pub warnings: Vec<String>,
}

/// One of the results.
#[derive(Clone, Debug, Serialize)]
pub struct Column {
    /// What the user calls it.
    pub label: String,
    /// What was measured.
    pub subject: String,
    /// When.
    pub started: String,
    /// On which machine.
    pub machine: String,
}

/// One thing measured.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name for programs.
    pub id: String,
    /// Its name for people.
    pub what: String,
    /// What it is drawn with.
    pub group: String,
    /// What its figures are.
    pub unit: Unit,
    /// For each column what came out, if it was measured.
    pub cells: Vec<Option<Cell>>,
}

/// What came out in one result.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Cell {
    /// The mean, and how sure it is.
    pub summary: Summary,
    /// Against the first column.
    pub change: Option<Change>,
}

/// Puts results side by side.
pub fn compare(records: &[Record]) -> Result<Comparison, Error> {
    let Some((first, others)) = records.split_first().filter(|(_, others)| !others.is_empty())
    else {
        return Err(Error::asked("two results or more are compared"));
    };
    if let Some(other) = others.iter().find(|other| other.kind != first.kind) {
        return Err(Error::asked(format!(
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
                cells: records.iter().map(|record| cell(record, first, &measure.id)).collect(),
            });
        }
    }
    let columns = labels(records).into_iter().zip(records);
    let columns = columns.map(|(label, record)| Column {
        label,
        subject: record.subject.clone(),
        started: record.started.clone(),
        machine: record.machine.sentence(),
    });
    Ok(Comparison { columns: columns.collect(), rows, warnings: warnings(records) })
}

fn cell(record: &Record, first: &Record, id: &str) -> Option<Cell> {
    let measure = record.measure(id)?;
    let before = first.measure(id).filter(|_| !std::ptr::eq(record, first));
    let change = before.and_then(|before| Change::between(&before.runs, &measure.runs));
    Some(Cell { summary: measure.summary?, change })
}

/// The results' labels, told apart where two are alike.
fn labels(records: &[Record]) -> Vec<String> {
    let alike = |label: &str| records.iter().filter(|other| other.label == label).count() > 1;
    let label = |(index, record): (usize, &Record)| {
        if alike(&record.label) {
            format!("{} ({})", record.label, index + 1)
        } else {
            record.label.clone()
        }
    };
    records.iter().enumerate().map(label).collect()
}

/// Settings that differ, and results that are not whole.
fn warnings(records: &[Record]) -> Vec<String> {
    let mut all = Vec::new();
    let mut names: Vec<&String> =
        records.iter().flat_map(|record| record.settings.keys()).collect();
    names.sort();
    names.dedup();
    for name in names {
        let values = records.iter().map(|record| record.settings.get(name));
        let words: Vec<String> = values
            .map(|value| value.map_or_else(|| "unknown".to_owned(), |value| shown(name, value)))
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

fn shown(name: &str, value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) if name.ends_with("bytes") => {
            number.as_u64().map_or_else(|| number.to_string(), units::human_bytes)
        }
        other => other.to_string(),
    }
}

impl Change {
    /// In percent, with what it is worth: `+12 %`, `+1.2 % ~` within the noise, `?` not known.
    pub fn text(&self) -> String {
        let mark = match self.is_noise {
            Some(false) => "",
            Some(true) => " ~",
            None => " ?",
        };
        let sign = if self.part >= 0.0 { "+" } else { "" };
        format!("{sign}{}{mark}", percent(self.part))
    }
}

/// What the marks of [`Change::text`] mean.
pub(crate) const MARKS: &str =
    "~ is within the noise (95 %); ? cannot be told, as there is one run only";

impl Comparison {
    /// For a terminal.
    pub fn text(&self) -> String {
        let mut head = vec![String::new()];
        for (index, column) in self.columns.iter().enumerate() {
            head.extend([column.label.clone(), "95 %".to_owned()]);
            head.extend((index > 0).then(|| "change".to_owned()));
        }
        let mut rows = vec![head];
        rows.extend(self.rows.iter().map(Row::cells));
        let mut out = aligned(&rows);
        let _ = writeln!(out, "\n{MARKS}");
        for warning in &self.warnings {
            let _ = writeln!(out, "careful: {warning}");
        }
        out
    }
}

impl Row {
    /// Its words: the name, then mean, confidence and (from the second on) change.
    pub(crate) fn cells(&self) -> Vec<String> {
        let mut words = vec![self.what.clone()];
        for (index, cell) in self.cells.iter().enumerate() {
            let mean = cell.map(|cell| figure(cell.summary.mean, self.unit));
            words.push(mean.unwrap_or_else(|| "-".to_owned()));
            words.push(cell.map(|cell| plus_minus(&cell.summary)).unwrap_or_default());
            if index > 0 {
                let change = cell.and_then(|cell| cell.change);
                words.push(change.map(|change| change.text()).unwrap_or_default());
            }
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::compare;
    use crate::record::{Kind, Measure, Record, Unit};
    use crate::statistics::Change;

    fn record(label: &str, runs: &[f64]) -> Record {
        let measure = Measure::new("read-1m-q1", "sequential read 1M", "sequential", Unit::Rate);
        Record { measures: vec![measure.with_runs(runs.to_vec(), 10.0)], ..Record::empty(label) }
    }

    #[test]
    fn changes_stand_beside_the_figures() {
        let records = [
            record("ashift 9", &[100e6, 101e6, 99e6]),
            record("ashift 12", &[120e6, 121e6, 119e6]),
            record("ashift 12", &[100e6, 102e6, 98e6]),
        ];
        let comparison = compare(&records).unwrap();
        let text = comparison.text();
        for part in ["ashift 9", "ashift 12 (2)", "ashift 12 (3)", "+20 %", "0.0 % ~", "100 MB/s"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(comparison.warnings.is_empty());
    }

    #[test]
    fn what_cannot_be_compared_is_said() {
        let (first, mut second) = (record("a", &[1.0]), record("b", &[2.0]));
        second.settings.insert("data".into(), "zeros".into());
        second.complete = false;
        let comparison = compare(&[first.clone(), second.clone()]).unwrap();
        assert_eq!(comparison.warnings.len(), 2, "{:?}", comparison.warnings);
        assert!(comparison.text().contains("+100 % ?"), "{}", comparison.text());
        second.kind = Kind::Net;
        assert!(compare(&[first.clone(), second]).is_err());
        assert!(compare(&[first]).is_err());
    }

    #[test]
    fn measures_that_one_lacks_are_blank() {
        let mut second = record("b", &[1.0, 2.0]);
        second.measures[0].id = "other".to_owned();
        let comparison = compare(&[record("a", &[1.0, 2.0]), second]).unwrap();
        assert_eq!(comparison.rows.len(), 2);
        assert!(comparison.rows[0].cells[1].is_none() && comparison.rows[1].cells[0].is_none());
    }

    #[test]
    fn marks() {
        let text = |part, is_noise| Change { part, is_noise }.text();
        assert_eq!(text(-0.125, Some(false)), "-12 %");
        assert_eq!(text(0.0123, Some(true)), "+1.2 % ~");
        assert_eq!(text(0.5, None), "+50 % ?");
    }
}
