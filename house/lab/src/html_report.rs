//! Results as one page, which stands by itself and can be read on a phone.

use picture::{Page, Svg, Table};
use serde_json::Value;

use crate::Error;
use crate::bench_result::BenchResult;
use crate::compare::{CHANGE_LEGEND, Comparison, compare};
use crate::formatting::{column_headings, measure_row};
use crate::plot::{self, Plot};

/// The page of one result or several.
pub fn render_page(records: &[BenchResult]) -> Result<String, Error> {
    let [first, others @ ..] = records else {
        return Err(Error::invalid_request("no result is given"));
    };
    let mut page = Page::new(&page_title(first, others.len()));
    // results of one kind are compared; others stand on their own
    if let Ok(comparison) = compare(records) {
        add_comparison(&mut page, &comparison);
    }
    for record in records {
        if !others.is_empty() {
            page.add_subsection(&format!("{}: {}", record.label, record.subject));
        }
        add_result(&mut page, record);
    }
    Ok(page.finish())
}

fn page_title(first: &BenchResult, others: usize) -> String {
    match others {
        0 => format!("{} of {}", first.kind.title(), first.subject),
        _ => format!("{} of {} and {others} more", first.kind.title(), first.subject),
    }
}

fn add_comparison(page: &mut Page, comparison: &Comparison) {
    page.add_section("Side by side", CHANGE_LEGEND);
    if !comparison.warnings.is_empty() {
        page.add_paragraph("Careful, as these are not the same:");
        page.add_list(&comparison.warnings);
    }
    let mut head = vec![String::new()];
    for (index, column) in comparison.columns.iter().enumerate() {
        head.extend([column.label.clone(), "95 %".to_owned()]);
        head.extend((index > 0).then(|| "change".to_owned()));
    }
    let mut table = Table::new(head);
    for row in &comparison.rows {
        table.add_row(false, row.text_cells());
    }
    page.add_table(&table);
    add_plots(page, &plot::comparison_plots(comparison));
}

fn add_result(page: &mut Page, record: &BenchResult) {
    let whole = if record.complete { "" } else { " It was interrupted, and is not whole." };
    page.add_note(&format!(
        "{}, {:.0} s. {}.{whole}",
        record.started,
        record.seconds,
        record.machine.description()
    ));
    if !record.findings.is_empty() {
        page.add_list(&record.findings);
    }
    page.add_section("Figures", "The mean of all runs and the interval that holds it with 95 %; of single operations the time that half of them took at most, and 99 %; the part of the processors that was busy.");
    let mut table = Table::new(column_headings());
    for measure in &record.measures {
        table.add_row(false, measure_row(measure));
    }
    page.add_table(&table);
    add_plots(page, &plot::result_plots(record));
    page.add_section("How it was measured", "");
    page.add_list(condition_lines(record));
    if !record.notes.is_empty() {
        page.add_section("Notes", "");
        page.add_list(&record.notes);
    }
}

/// Settings, drives and versions in words.
fn condition_lines(record: &BenchResult) -> Vec<String> {
    let mut all: Vec<String> = (record.settings.iter())
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| format!("{}: {}", name.replace('_', " "), format_setting(name, value)))
        .collect();
    for drive in &record.drives {
        let size = units::human_bytes(drive.size_bytes);
        let link = drive.link.as_deref().map(|link| format!(", {link}")).unwrap_or_default();
        all.push(format!("drive {}: {size}{link}", drive.title()));
    }
    for (program, version) in &record.versions {
        all.push(format!("{program} {version}"));
    }
    all
}

fn format_setting(name: &str, value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
        Value::Number(number) if name.ends_with("bytes") => {
            number.as_u64().map_or_else(|| number.to_string(), units::human_bytes)
        }
        Value::Array(items) => {
            items.iter().map(|item| format_setting(name, item)).collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}

fn add_plots(page: &mut Page, named: &[Plot]) {
    let svgs: Vec<&Svg> = named.iter().map(|named| &named.svg).collect();
    page.add_pictures(svgs);
}
