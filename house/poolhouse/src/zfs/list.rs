//! `poolhouse zfs list`.

use std::io::{self, Write};

use engine::dataset::Dataset;

use super::dataset_columns::column_shape;
use super::dataset_json::{createtxg, dataset_facts, request_createtxg};
use super::get::property_or_dash;
use super::select::{SelectArgs, column_name, expand_property};
use super::sort_keys::{SortKey, SortKeys};
use crate::daemon::DaemonArgs;
use crate::json::{self, JsonArgs, NumberStyle};
use crate::outcome::CommandResult;
use crate::property_values::format_value;
use crate::table::Table;

/// The default columns.
const DEFAULT_COLUMNS: [&str; 5] = ["name", "used", "available", "referenced", "mountpoint"];

/// List datasets
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  poolhouse zfs list
  poolhouse zfs list -t snapshot -r tank
  poolhouse zfs list -Hp -o name,used -s used tank tank/photos
  poolhouse zfs list -o space                     what uses the space?")]
pub(super) struct Args {
    #[command(flatten)]
    select: SelectArgs,
    /// No head, columns separated by tabs
    #[arg(short = 'H')]
    scripted: bool,
    /// Exact numbers
    #[arg(short = 'p')]
    parsable: bool,
    /// These properties
    #[arg(short = 'o', value_name = "PROPERTY", value_delimiter = ',')]
    columns: Vec<String>,
    #[command(flatten)]
    json: JsonArgs,
    #[command(flatten)]
    sort_keys: SortKeys,
    /// Datasets; none: all
    #[arg(value_name = "DATASET")]
    names: Vec<String>,
}

pub(super) fn run(args: &Args, asking: &DaemonArgs) -> CommandResult {
    let columns: Vec<String> = if args.columns.is_empty() {
        DEFAULT_COLUMNS.map(str::to_owned).to_vec()
    } else {
        args.columns.iter().flat_map(|column| expand_property(column)).collect()
    };
    let keys = &args.sort_keys.0;
    let wanted = columns.iter().chain(keys.iter().map(|key| &key.property));
    let mut properties: Vec<String> = wanted.filter(|name| *name != "name").cloned().collect();
    if properties.is_empty() {
        // none at all would mean all
        properties.push("type".to_owned());
    }
    request_createtxg(&mut properties, asking);
    let (mut found, outcome) =
        args.select.query(&args.names, &properties, &["filesystem", "volume"], asking)?;
    sort_datasets(&mut found, keys);
    if asking.json {
        let style = NumberStyle { integers: args.json.integers, exact: args.parsable };
        let facts = found.iter().map(|dataset| {
            let shown = columns.iter().filter(|column| *column != "name");
            let shown: Vec<_> = shown.map(|column| property_or_dash(dataset, column)).collect();
            dataset_facts(dataset, createtxg(dataset), &shown, style)
        });
        json::print("zfs list", "datasets", facts.collect())?;
        return Ok(outcome);
    }
    let mut out = io::BufWriter::new(io::stdout().lock());
    if found.is_empty() && !args.scripted {
        writeln!(out, "no datasets available")?;
    } else {
        let table = build_table(&found, &columns, args);
        if args.scripted { table.print_tab_separated(&mut out)? } else { table.print(&mut out)? }
    }
    out.flush()?;
    Ok(outcome)
}

/// Sorts by the first key, equal ones by the next, and keeps the order of the rest.
pub(super) fn sort_datasets(found: &mut [Dataset], keys: &[SortKey]) {
    // the last key counts least
    for key in keys.iter().rev() {
        found.sort_by(|one, other| key.compare(one, other));
    }
}

fn build_table(found: &[Dataset], columns: &[String], args: &Args) -> Table {
    let heads: Vec<String> =
        columns.iter().map(|column| column_name(column).to_uppercase()).collect();
    let shapes: Vec<_> =
        columns.iter().zip(&heads).map(|(column, head)| column_shape(column, head)).collect();
    let mut table = if args.scripted { Table::new([]) } else { Table::with_shapes(&shapes) };
    if !args.scripted {
        table.add_row(heads);
    }
    for dataset in found {
        table.add_text_row(columns.iter().map(|column| match column.as_str() {
            "name" => dataset.name.clone(),
            _ => match dataset.property_value(column) {
                None | Some("") => "-".to_owned(),
                Some(value) if args.parsable => value.to_owned(),
                Some(value) => format_value(column, value),
            },
        }));
    }
    table
}
