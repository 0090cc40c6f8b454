//! Formats figures, and prints one result as a table for a terminal.

use std::fmt::Write as _;

use crate::bench_result::{BenchResult, Measure, Unit};
use crate::statistics::Summary;

/// Three digits that count, with a decimal unit.
pub fn format_value(value: f64, unit: Unit) -> String {
    let (steps, tail): (&[&str], &str) = match unit {
        Unit::BytesPerSecond => (&["", "k", "M", "G", "T"], "B/s"),
        Unit::BitsPerSecond => (&["", "k", "M", "G", "T"], "b/s"),
        Unit::OperationsPerSecond => (&[""], "/s"),
        Unit::Milliseconds => (&[""], " ms"),
    };
    let mut value = value;
    let mut step = 0;
    // what would be shown as 1000 is 1 of the next
    while value >= 999.5 && step + 1 < steps.len() {
        value /= 1000.0;
        step += 1;
    }
    let letter = steps.get(step).copied().unwrap_or_default();
    let space = if steps.len() > 1 { " " } else { "" };
    format!("{}{space}{letter}{tail}", format_digits(value))
}

/// Three digits, or more before the point.
fn format_digits(value: f64) -> String {
    match value.abs() {
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        v if v >= 0.0995 || v <= 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// A part in percent.
pub(crate) fn percent(part: f64) -> String {
    let digits = usize::from(part.abs() < 0.0995);
    format!("{:.digits$} %", part * 100.0)
}

/// How sure a mean is: `±3 %`.
pub(crate) fn format_plus_minus(summary: &Summary) -> String {
    match (summary.relative_error(), summary.plus_minus) {
        (Some(part), _) => format!("±{}", percent(part)),
        (None, Some(_)) => "-".to_owned(),
        (None, None) => "one run".to_owned(),
    }
}

/// Columns aligned: the first to the left, the others to the right.
pub(crate) fn align_columns(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let width = *width;
            let _ = match column {
                0 => write!(line, "{cell:width$}"),
                _ => write!(line, "  {cell:>width$}"),
            };
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// A result for a terminal.
pub fn format_result(record: &BenchResult) -> String {
    let mut out = format!("{} of {}", record.kind.title(), record.subject);
    let mount = record.facts.get("mount").and_then(|mount| mount.get("kind"));
    if let Some(kind) = mount.and_then(serde_json::Value::as_str).filter(|kind| !kind.is_empty()) {
        let _ = write!(out, " ({kind})");
    }
    let _ = writeln!(out, ", {}", if record.complete { "complete" } else { "INTERRUPTED" });
    let _ = writeln!(out, "{}\n", record.machine.description());
    let mut rows = vec![column_headings()];
    rows.extend(record.measures.iter().map(measure_row));
    out.push_str(&align_columns(&rows));
    for (title, sentences) in [("Findings:", &record.findings), ("Notes:", &record.notes)] {
        if !sentences.is_empty() {
            let _ = writeln!(out, "\n{title}");
        }
        for sentence in sentences {
            out.push_str(&wrap_list_item(sentence));
        }
    }
    out
}

/// The heads of the columns of [`measure_row`].
pub(crate) fn column_headings() -> Vec<String> {
    ["", "mean", "95 %", "runs", "median", "99 %", "busy"].map(str::to_owned).to_vec()
}

/// A measure as cells.
pub(crate) fn measure_row(measure: &Measure) -> Vec<String> {
    let time = |value: Option<f64>| {
        value.map_or_else(String::new, |ms| format_value(ms, Unit::Milliseconds))
    };
    let latency = measure.latency;
    vec![
        measure.what.clone(),
        measure.summary.map_or_else(|| "-".to_owned(), |all| format_value(all.mean, measure.unit)),
        measure.summary.as_ref().map(format_plus_minus).unwrap_or_default(),
        measure.runs.len().to_string(),
        time(latency.map(|latency| latency.median_ms)),
        time(latency.map(|latency| latency.p99_ms)),
        measure.processors_busy.map_or_else(String::new, |part| format!("{:.0} %", part * 100.0)),
    ]
}

/// A sentence as an item of a list, in lines of a terminal's width.
pub(crate) fn wrap_list_item(sentence: &str) -> String {
    const WIDTH: usize = 96;
    let mut out = String::from("*");
    let mut length = 1;
    for word in sentence.split_whitespace() {
        let more = word.chars().count() + 1;
        if length + more > WIDTH {
            out.push_str("\n ");
            length = 1;
        }
        out.push(' ');
        out.push_str(word);
        length += more;
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::{align_columns, format_value, wrap_list_item};
    use crate::bench_result::Unit;

    #[test]
    fn values_have_three_digits() {
        for (value, unit, text) in [
            (1_060_238_000.0, Unit::BytesPerSecond, "1.06 GB/s"),
            (999_600.0, Unit::BytesPerSecond, "1.00 MB/s"),
            (12_340_000.0, Unit::BytesPerSecond, "12.3 MB/s"),
            (941e6, Unit::BitsPerSecond, "941 Mb/s"),
            (54_995.2, Unit::OperationsPerSecond, "54995/s"),
            (7.0, Unit::OperationsPerSecond, "7.00/s"),
            (0.0721, Unit::Milliseconds, "0.072 ms"),
            (0.0, Unit::BytesPerSecond, "0.00 B/s"),
        ] {
            assert_eq!(format_value(value, unit), text);
        }
    }

    #[test]
    fn columns_are_aligned() {
        let rows = [vec!["a".into(), "1".into()], vec!["bcd".into(), "±22".into()]];
        assert_eq!(align_columns(&rows), "a      1\nbcd  ±22\n");
    }

    #[test]
    fn long_sentences_are_wrapped() {
        let text = wrap_list_item(&"word ".repeat(50));
        assert!(text.lines().count() == 3 && text.lines().all(|line| line.len() <= 97), "{text}");
    }
}
