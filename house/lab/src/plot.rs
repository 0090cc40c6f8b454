//! Pictures of results: bars for each kind of figure, and drives from their outer to their inner end.

use ::picture::Svg;
use ::picture::chart::{Bar, BarGroup, Scale, Trace, draw_bars, draw_traces};
use serde_json::Value;

use crate::bench_result::{BenchResult, Unit};
use crate::compare::{Cell, Comparison, Row};
use crate::formatting::{format_plus_minus, format_value};

/// A picture with the name of its file.
#[derive(Clone, Debug)]
pub struct Plot {
    /// The file's name without its ending.
    pub name: String,
    /// The picture.
    pub svg: Svg,
}

/// The pictures of a single result.
pub fn result_plots(record: &BenchResult) -> Vec<Plot> {
    let rows: Vec<Row> = (record.measures.iter())
        .map(|measure| Row {
            id: measure.id.clone(),
            what: measure.what.clone(),
            group: measure.group.clone(),
            unit: measure.unit,
            cells: vec![measure.summary.map(|summary| Cell { summary, change: None })],
        })
        .collect();
    let mut all = group_plots(&rows, std::slice::from_ref(&record.label), Scale::Common);
    all.extend(zone_plot(record));
    all
}

/// The pictures of several side by side.
pub fn comparison_plots(comparison: &Comparison) -> Vec<Plot> {
    let labels: Vec<String> =
        comparison.columns.iter().map(|column| column.label.clone()).collect();
    group_plots(&comparison.rows, &labels, Scale::PerGroup)
}

/// A picture for each group of measures with the same kind of figures.
fn group_plots(rows: &[Row], labels: &[String], scale: Scale) -> Vec<Plot> {
    let mut kinds: Vec<(&str, Unit)> = Vec::new();
    for row in rows {
        if !kinds.contains(&(&row.group, row.unit)) {
            kinds.push((&row.group, row.unit));
        }
    }
    let picture = |(group, unit): (&str, Unit)| {
        let of = rows.iter().filter(|row| row.group == group && row.unit == unit);
        let groups: Vec<BarGroup> = of.map(row_bars).collect();
        let longer =
            if unit == Unit::Milliseconds { "shorter is better" } else { "longer is better" };
        let title = format!("{}: {longer}", capitalize(group));
        let tail = match unit {
            Unit::BytesPerSecond | Unit::BitsPerSecond => "",
            Unit::OperationsPerSecond => "-operations",
            Unit::Milliseconds => "-latency",
        };
        let name = format!("{}{tail}", group.replace(|c: char| !c.is_ascii_alphanumeric(), "-"));
        Plot { name, svg: draw_bars(&title, labels, &groups, scale) }
    };
    kinds.into_iter().map(picture).collect()
}

fn row_bars(row: &Row) -> BarGroup {
    let cells = row.cells.iter().enumerate();
    let bars = cells.filter_map(|(series, cell)| {
        let summary = (*cell)?.summary;
        Some(Bar {
            series,
            value: summary.mean,
            plus_minus: summary.plus_minus.unwrap_or(0.0).min(summary.mean),
            label: format!(
                "{} {}",
                format_value(summary.mean, row.unit),
                format_plus_minus(&summary)
            ),
        })
    });
    BarGroup { name: row.what.clone(), bars: bars.collect() }
}

/// Drives from outer to inner, of a result that measured them.
fn zone_plot(record: &BenchResult) -> Option<Plot> {
    let zones = record.facts.get("zones")?.as_array()?;
    let point = |point: &Value| {
        let pair = point.as_array()?;
        Some((pair.first()?.as_f64()?, pair.get(1)?.as_f64()?))
    };
    let trace = |zone: &Value| {
        let name = zone.get("drive")?.as_str()?.to_owned();
        let points = zone.get("points")?.as_array()?.iter().filter_map(point).collect();
        Some(Trace { name, points })
    };
    let all: Vec<Trace> = zones.iter().filter_map(trace).collect();
    let title = "Sequential reads from the begin to the end of each drive";
    let svg = draw_traces(title, ("100 % (a disk's inner edge)", 100.0), &all, |rate| {
        format_value(rate, Unit::BytesPerSecond)
    });
    (!all.is_empty()).then(|| Plot { name: "zones".to_owned(), svg })
}

fn capitalize(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{comparison_plots, result_plots};
    use crate::bench_result::{BenchResult, Measure, Unit};
    use crate::compare::compare;

    fn result(label: &str) -> BenchResult {
        let measure = |id: &str, group: &str, unit| {
            Measure::new(id, id, group, unit).with_runs(vec![3.0, 4.0, 5.0], 1.0)
        };
        let measures = vec![
            measure("a", "sequential", Unit::BytesPerSecond),
            measure("b", "random reads", Unit::OperationsPerSecond),
            measure("c", "random reads", Unit::OperationsPerSecond),
        ];
        BenchResult { measures, ..BenchResult::empty(label) }
    }

    #[test]
    fn each_group_has_a_plot() {
        let mut one = result("one");
        let names =
            |all: Vec<super::Plot>| all.into_iter().map(|named| named.name).collect::<Vec<_>>();
        assert_eq!(names(result_plots(&one)), ["sequential", "random-reads-operations"]);
        let points = json!([{ "drive": "sda", "points": [[0.0, 2e8], [100.0, 1e8]] }]);
        one.facts.insert("zones".into(), points);
        assert_eq!(names(result_plots(&one)).last().map(String::as_str), Some("zones"));
        let both = compare(&[one, result("two")]).unwrap();
        assert_eq!(comparison_plots(&both).len(), 2);
    }
}
