//! `poolhouse rescue list`: datasets, snapshots, bookmarks and volumes, and their properties.

use std::io::{self, Write};

use engine::KeyState;
use engine::dataset::{Dataset, DatasetQuery};

use crate::outcome::{CommandResult, Outcome};
use crate::pool_args::{PoolArgs, pool_name};
use crate::print;
use crate::property_values::{format_value, is_byte_property, parse_types};
use crate::table::{Align, Table};

/// The default columns.
const DEFAULT_COLUMNS: [&str; 8] =
    ["name", "type", "used", "available", "referenced", "compressratio", "origin", "creation"];
/// List datasets, snapshots, bookmarks and volumes, and their properties
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  poolhouse rescue list -d ~/images tank                   all datasets
  poolhouse rescue list -d ~/images -t filesystem tank/a   one kind, in and below a dataset
  poolhouse rescue list -d ~/images -o name,used -p tank   exact figures
  poolhouse rescue list -d ~/images -o all tank/a          all properties, with their sources")]
pub(crate) struct Args {
    /// The pool, by name or guid, or a dataset in it
    target: String,
    /// Only these: filesystem, volume, snapshot, bookmark, all
    #[arg(short = 't', long = "type", value_name = "TYPE", value_delimiter = ',')]
    types: Vec<String>,
    /// These properties, native or user's own; `all`: a line for each property, with its source
    #[arg(short = 'o', value_name = "PROPERTY", value_delimiter = ',')]
    columns: Vec<String>,
    /// Exact numbers
    #[arg(short = 'p', long)]
    parsable: bool,
    /// No head, columns separated by tabs
    #[arg(short = 'H', long)]
    scripted: bool,
    /// At most this many levels below the target
    #[arg(long, value_name = "LEVELS")]
    depth: Option<usize>,
    /// A line for each property, with its value and where it is set
    #[arg(long)]
    properties: bool,
}

pub(crate) fn run(args: &Args, common: &PoolArgs) -> CommandResult {
    let pool = common.open(pool_name(&args.target))?;
    let all = args.columns.iter().any(|column| column == "all");
    let columns = resolve_columns(args);
    let wanted = DatasetQuery {
        kinds: parse_types(&args.types)?,
        depth: args.depth,
        properties: if all || columns.is_empty() { Vec::new() } else { property_columns(&columns) },
    };
    let mut found = Vec::new();
    let mut incomplete = false;
    pool.list_datasets(&args.target, &wanted, &mut |dataset| found.push(dataset), &mut |event| {
        incomplete = true;
        print::warning(&event);
    })?;
    if common.json {
        print::json(&serde_json::json!({ "pool": pool.name(), "datasets": found }))?;
        return Ok(Outcome::complete_unless(incomplete));
    }
    let mut out = io::BufWriter::new(io::stdout().lock());
    let table = if all || args.properties {
        property_table(&found, args)
    } else {
        dataset_table(&found, &columns, args)
    };
    if args.scripted {
        table.print_tab_separated(&mut out)?;
    } else {
        table.print(&mut out)?;
    }
    out.flush()?;
    Ok(Outcome::complete_unless(incomplete))
}

/// The columns by their full names.
fn resolve_columns(args: &Args) -> Vec<String> {
    let full = |column: &String| match column.to_lowercase().as_str() {
        "avail" => "available".to_owned(),
        "refer" => "referenced".to_owned(),
        "ratio" => "compressratio".to_owned(),
        _ => column.clone(),
    };
    if args.properties {
        return args.columns.iter().map(full).collect();
    }
    match args.columns.as_slice() {
        [] => DEFAULT_COLUMNS.map(str::to_owned).to_vec(),
        chosen => chosen.iter().map(full).collect(),
    }
}

/// The name is not a property, and locked datasets are marked.
fn property_columns(columns: &[String]) -> Vec<String> {
    columns.iter().filter(|column| *column != "name").cloned().collect()
}

fn dataset_table(found: &[Dataset], columns: &[String], args: &Args) -> Table {
    let heads: Vec<(String, Align)> = columns.iter().map(|column| column_header(column)).collect();
    let aligns: Vec<Align> = heads.iter().map(|head| head.1).collect();
    let mut table = Table::new(aligns);
    if !args.scripted {
        table.add_row(heads.into_iter().map(|head| head.0));
    }
    for dataset in found {
        let cell = |column: &String| match column.as_str() {
            "name" => dataset.name.clone(),
            "type" if dataset.key == KeyState::Locked && !args.scripted && !args.parsable => {
                format!("{} (locked)", dataset.kind)
            }
            _ => dataset.property_value(column).map_or_else(
                || "-".to_owned(),
                |value| if args.parsable { value.to_owned() } else { format_value(column, value) },
            ),
        };
        table.add_row(columns.iter().map(cell));
    }
    table
}

fn property_table(found: &[Dataset], args: &Args) -> Table {
    let mut table = Table::new([Align::Left; 4]);
    if !args.scripted {
        table.add_row(["NAME", "PROPERTY", "VALUE", "SOURCE"].map(str::to_owned));
    }
    for dataset in found {
        for property in &dataset.properties {
            let value = if args.parsable {
                property.value.clone()
            } else {
                format_value(&property.name, &property.value)
            };
            let (name, source) = (property.name.clone(), property.source.clone());
            table.add_row([dataset.name.clone(), name, value, source]);
        }
    }
    table
}

/// A column's head and alignment.
fn column_header(column: &str) -> (String, Align) {
    let short = match column {
        "available" => "avail",
        "referenced" => "refer",
        "compressratio" => "ratio",
        other => other,
    };
    let is_number = is_byte_property(column) || column.ends_with("ratio");
    (short.to_uppercase(), if is_number { Align::Right } else { Align::Left })
}
