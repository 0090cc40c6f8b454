//! `poolhouse rescue list`: datasets, snapshots, bookmarks and volumes, and their properties.

use std::io::{self, Write};

use engine::KeyState;
use engine::dataset::{Dataset, Wanted};
use units::human_bytes;

use crate::common::{Common, pool_of};
use crate::outcome::{Done, Failure, Outcome};
use crate::table::{Align, Table, safe};
use crate::{print, time};

/// What is shown of each dataset if nobody says otherwise.
const COMMON: [&str; 8] =
    ["name", "type", "used", "available", "referenced", "compressratio", "origin", "creation"];
/// The kinds there are.
const KINDS: [&str; 4] = ["filesystem", "volume", "snapshot", "bookmark"];
/// Properties that are bytes, which people read in short form.
const BYTES: [&str; 20] = [
    "used",
    "available",
    "referenced",
    "quota",
    "reservation",
    "refquota",
    "refreservation",
    "volsize",
    "volblocksize",
    "recordsize",
    "usedbysnapshots",
    "usedbydataset",
    "usedbychildren",
    "usedbyrefreservation",
    "written",
    "logicalused",
    "logicalreferenced",
    "special_small_blocks",
    "dnodesize",
    "refquota",
];
/// Of those, where 0 means that there is none.
const NONE_IF_ZERO: [&str; 4] = ["quota", "reservation", "refquota", "refreservation"];

/// List datasets, snapshots, bookmarks and volumes, and their properties
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  poolhouse rescue list -d ~/images tank                   all there is
  poolhouse rescue list -d ~/images -t filesystem tank/a   one kind, in and below a dataset
  poolhouse rescue list -d ~/images -o name,used -p tank   exact figures
  poolhouse rescue list -d ~/images -o all tank/a          every property, and where it is set")]
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
    /// Not deeper than so many names below the target
    #[arg(long, value_name = "LEVELS")]
    depth: Option<usize>,
    /// A line for each property, with its value and where it is set
    #[arg(long)]
    properties: bool,
}

pub(crate) fn run(args: &Args, common: &Common) -> Done {
    let pool = common.open(pool_of(&args.target))?;
    let all = args.columns.iter().any(|column| column == "all");
    let columns = columns(args);
    let wanted = Wanted {
        kinds: kinds(&args.types)?,
        depth: args.depth,
        properties: if all || columns.is_empty() { Vec::new() } else { asked_for(&columns) },
    };
    let mut found = Vec::new();
    let mut incomplete = false;
    pool.list(&args.target, &wanted, &mut |dataset| found.push(dataset), &mut |event| {
        incomplete = true;
        print::warning(&event);
    })?;
    if common.json {
        print::json(&serde_json::json!({ "pool": pool.name(), "datasets": found }))?;
        return Ok(Outcome::unless(incomplete));
    }
    let mut out = io::BufWriter::new(io::stdout().lock());
    let table =
        if all || args.properties { long(&found, args) } else { short(&found, &columns, args) };
    if args.scripted {
        table.print_tabs(&mut out)?;
    } else {
        table.print(&mut out)?;
    }
    out.flush()?;
    Ok(Outcome::unless(incomplete))
}

fn kinds(types: &[String]) -> Result<Vec<String>, Failure> {
    let mut kinds = Vec::new();
    for name in types {
        let short = |kind: &&&str| kind.starts_with(name.trim_end_matches('s')) || name == "snap";
        match name.as_str() {
            "all" => return Ok(Vec::new()),
            "fs" => kinds.push("filesystem".to_owned()),
            "vol" => kinds.push("volume".to_owned()),
            "snap" => kinds.push("snapshot".to_owned()),
            _ => match KINDS.iter().find(short) {
                Some(kind) if !name.is_empty() => kinds.push((**kind).to_owned()),
                _ => {
                    let known = KINDS.join(", ");
                    let what = format!("-t {name}: there is no such type; {known}, all");
                    return Err(Failure::usage(what));
                }
            },
        }
    }
    Ok(kinds)
}

/// The columns by their full names.
fn columns(args: &Args) -> Vec<String> {
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
        [] => COMMON.map(str::to_owned).to_vec(),
        chosen => chosen.iter().map(full).collect(),
    }
}

/// The name is no property, and locked datasets are marked.
fn asked_for(columns: &[String]) -> Vec<String> {
    columns.iter().filter(|column| *column != "name").cloned().collect()
}

fn short(found: &[Dataset], columns: &[String], args: &Args) -> Table {
    let heads: Vec<(String, Align)> = columns.iter().map(|column| head(column)).collect();
    let aligns: Vec<Align> = heads.iter().map(|head| head.1).collect();
    let mut table = Table::new(aligns);
    if !args.scripted {
        table.row(heads.into_iter().map(|head| head.0));
    }
    for dataset in found {
        let cell = |column: &String| match column.as_str() {
            "name" => dataset.name.clone(),
            "type" if dataset.key == KeyState::Locked && !args.scripted && !args.parsable => {
                format!("{} (locked)", dataset.kind)
            }
            _ => dataset.value(column).map_or_else(
                || "-".to_owned(),
                |value| if args.parsable { value.to_owned() } else { readable(column, value) },
            ),
        };
        table.row(columns.iter().map(cell));
    }
    table
}

fn long(found: &[Dataset], args: &Args) -> Table {
    let mut table = Table::new([Align::Left; 4]);
    if !args.scripted {
        table.row(["NAME", "PROPERTY", "VALUE", "SOURCE"].map(str::to_owned));
    }
    for dataset in found {
        for property in &dataset.properties {
            let value = if args.parsable {
                property.value.clone()
            } else {
                readable(&property.name, &property.value)
            };
            let (name, source) = (property.name.clone(), property.source.clone());
            table.row([dataset.name.clone(), name, value, source]);
        }
    }
    table
}

/// A column's head and alignment.
fn head(column: &str) -> (String, Align) {
    let short = match column {
        "available" => "avail",
        "referenced" => "refer",
        "compressratio" => "ratio",
        other => other,
    };
    let is_number = BYTES.contains(&column) || column.ends_with("ratio");
    (short.to_uppercase(), if is_number { Align::Right } else { Align::Left })
}

/// A value as people read it.
fn readable(property: &str, value: &str) -> String {
    if property.ends_with("ratio") && value.parse::<f64>().is_ok() {
        return format!("{value}x");
    }
    let Ok(number) = value.parse::<u64>() else { return safe(value) };
    match property {
        "creation" | "snapshots_changed" => time::short(number),
        _ if number == 0 && NONE_IF_ZERO.contains(&property) => "none".to_owned(),
        _ if BYTES.contains(&property) => human_bytes(number),
        _ if property.starts_with("written@") => human_bytes(number),
        _ => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{kinds, readable};

    #[test]
    fn values_are_in_short_form() {
        assert_eq!(readable("used", "1536"), "1.50K");
        assert_eq!(readable("compressratio", "1.20"), "1.20x");
        assert_eq!(readable("quota", "0"), "none");
        assert_eq!(readable("guid", "12345678901"), "12345678901");
        assert_eq!(readable("org:note", "a\x1bb"), "a\\u{1b}b");
    }

    #[test]
    fn kinds_have_short_names() {
        let of = |names: &[&str]| {
            kinds(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).ok()
        };
        let all = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(of(&["fs", "vol"]), all(&["filesystem", "volume"]));
        assert_eq!(of(&["snapshots"]), all(&["snapshot"]));
        assert_eq!(of(&["all"]), all(&[]));
        assert_eq!(of(&["folder"]), None);
    }
}
