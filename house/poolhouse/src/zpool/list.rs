//! `poolhouse zpool list`.

use std::io::{self, Write};

use api::{GetPoolProperties, PoolReport};
use engine::pool::{PoolProperty, PoolStatus, VdevStatus};
use serde_json::{Map, Value};
use units::human_bytes;

use super::pool_columns::column_shape;
use super::properties::all_properties;
use super::repeat::RepeatArgs;
use super::report_json::{pool_head, vdev_head};
use crate::daemon::DaemonArgs;
use crate::json::{self, JsonArgs, NumberStyle};
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::table::Table;

/// The default columns.
const DEFAULT_COLUMNS: [&str; 11] = [
    "name",
    "size",
    "allocated",
    "free",
    "checkpoint",
    "expandsize",
    "fragmentation",
    "capacity",
    "dedupratio",
    "health",
    "altroot",
];

/// List pools and how full they are
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Columns: name, size, allocated, free, checkpoint, expandsize, fragmentation, capacity,
dedupratio, health, altroot, and all other properties (`poolhouse zpool get all`).

Examples:
  poolhouse zpool list
  poolhouse zpool list -Hp -o name,free tank
  poolhouse zpool list tank 60 10       each minute, ten times"
)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command")]
pub(super) struct Args {
    /// No head, columns separated by tabs
    #[arg(short = 'H')]
    scripted: bool,
    /// Exact numbers
    #[arg(short = 'p')]
    parsable: bool,
    /// These columns
    #[arg(short = 'o', value_name = "PROPERTY", value_delimiter = ',')]
    columns: Vec<String>,
    /// Include the vdevs
    #[arg(short = 'v')]
    verbose: bool,
    /// Whole paths of drives, as is done without it
    #[arg(short = 'P')]
    _paths: bool,
    #[command(flatten)]
    json: JsonArgs,
    #[command(flatten)]
    repeat: RepeatArgs,
}

pub(super) fn run(args: &Args, asking: &DaemonArgs) -> CommandResult {
    let columns = resolve_columns(&args.columns);
    args.repeat.run_repeatedly(asking, false, |found, pools, first| {
        let own = query_properties(&columns, pools, asking)?;
        let columns = &expand_all(&columns, &found, &own);
        print_pools(&found, (columns, &own), args, first, asking)
    })
}

fn print_pools(
    found: &[PoolReport],
    (columns, own): (&[String], &[(String, Vec<PoolProperty>)]),
    args: &Args,
    first: bool,
    asking: &DaemonArgs,
) -> CommandResult {
    if asking.json {
        let style = NumberStyle { integers: args.json.integers, exact: args.parsable };
        let facts = found.iter().map(|pool| {
            let own = own.iter().find(|(name, _)| *name == pool.status.name);
            (
                pool.status.name.clone(),
                pool_facts(pool, columns, own.map_or(&[], |own| &own.1), args, style),
            )
        });
        json::print("zpool list", "pools", facts.collect())?;
        return Ok(Outcome::Complete);
    }
    let mut out = io::stdout().lock();
    if found.is_empty() && !args.scripted {
        writeln!(out, "no pools available")?;
        return Ok(Outcome::Complete);
    }
    let heads: Vec<String> = columns.iter().map(|column| column_header(column)).collect();
    let shapes = columns.iter().zip(&heads).map(|(column, head)| column_shape(column, head));
    let mut table = Table::with_shapes(&shapes.collect::<Vec<_>>());
    if !args.scripted && (first || args.verbose) {
        table.add_row(heads);
    }
    for pool in found {
        table.add_row(columns.iter().map(|column| {
            let of = own.iter().find(|(name, _)| *name == pool.status.name);
            let found = of.and_then(|(_, own)| own.iter().find(|it| it.name == *column));
            found.map_or_else(
                || format_cell(pool, column, args.parsable),
                |it| format_property(it, args.parsable),
            )
        }));
        if args.verbose {
            add_vdevs(&mut table, columns, &pool.status, args);
        }
    }
    if args.scripted {
        table.print_tab_separated(&mut out)?;
    } else {
        table.print(&mut out)?;
    }
    Ok(Outcome::Complete)
}

/// The heads of columns that differ from the names of their properties. Each is also a name of its property.
const COLUMN_NAMES: [(&str, &str); 13] = [
    ("allocated", "alloc"),
    ("autoexpand", "expand"),
    ("autoreplace", "replace"),
    ("bcloneratio", "bclone_ratio"),
    ("bclonesaved", "bclone_saved"),
    ("bcloneused", "bclone_used"),
    ("capacity", "cap"),
    ("checkpoint", "ckpoint"),
    ("dedupratio", "dedup"),
    ("expandsize", "expandsz"),
    ("fragmentation", "frag"),
    ("listsnapshots", "listsnaps"),
    ("readonly", "rdonly"),
];

/// A column or property by its full name.
pub(super) fn full_name(name: &str) -> &str {
    let named = COLUMN_NAMES.iter().find(|(_, column)| column.eq_ignore_ascii_case(name));
    named.map_or(name, |(full, _)| full)
}

/// The columns by their full names.
fn resolve_columns(asked: &[String]) -> Vec<String> {
    if asked.is_empty() {
        return DEFAULT_COLUMNS.map(str::to_owned).to_vec();
    }
    let full = |column: &String| match full_name(column) {
        name if DEFAULT_COLUMNS.iter().any(|known| known.eq_ignore_ascii_case(name)) => {
            name.to_lowercase()
        }
        name => name.to_owned(),
    };
    asked.iter().map(full).collect()
}

/// The columns, with all properties in place of `all`.
fn expand_all(
    columns: &[String],
    found: &[PoolReport],
    own: &[(String, Vec<PoolProperty>)],
) -> Vec<String> {
    if !columns.iter().any(|column| column == "all") {
        return columns.to_vec();
    }
    let mut all = vec!["name".to_owned()];
    for report in found {
        let own = own.iter().find(|(name, _)| *name == report.status.name);
        for property in all_properties(report, own.map_or(&[], |own| &own.1), false) {
            if !all.contains(&property.name) && !property.name.contains(':') {
                all.push(property.name);
            }
        }
    }
    all
}

/// The properties of pools, if a column shows one that is no figure.
fn query_properties(
    columns: &[String],
    pools: &[String],
    asking: &DaemonArgs,
) -> Result<Vec<(String, Vec<PoolProperty>)>, Failure> {
    let is_all = columns.iter().any(|column| column == "all");
    let other = |column: &&String| !DEFAULT_COLUMNS.contains(&column.as_str()) && *column != "guid";
    let others: Vec<&String> = columns.iter().filter(other).collect();
    if others.is_empty() {
        return Ok(Vec::new());
    }
    let all: Vec<(String, Vec<PoolProperty>)> =
        asking.request(&GetPoolProperties { names: pools.to_vec() })?;
    for column in others.into_iter().filter(|_| !is_all) {
        let known =
            |(_, own): &(String, Vec<PoolProperty>)| own.iter().any(|it| it.name == *column);
        let is_user = column.contains(':');
        if !all.is_empty() && !is_user && !all.iter().any(known) {
            return Err(Failure::usage(format!("bad property list: invalid property '{column}'")));
        }
    }
    Ok(all)
}

/// The value of a property; sizes in short form, unless -p is given.
pub(super) fn format_property(property: &PoolProperty, parsable: bool) -> String {
    let size = property.value.parse().ok().filter(|_| !parsable);
    match (property.name.as_str(), size) {
        (
            "freeing" | "leaked" | "bcloneused" | "bclonesaved" | "dedup_table_size"
            | "dedup_table_quota",
            Some(size),
        ) => human_bytes(size),
        ("bcloneratio", _) if !parsable => format!("{}x", property.value),
        _ => property.value.clone(),
    }
}

fn column_header(column: &str) -> String {
    let named = COLUMN_NAMES.iter().find(|(name, _)| *name == column);
    named.map_or(column, |(_, short)| short).to_uppercase()
}

/// A pool as `zpool list -j` has it.
fn pool_facts(
    pool: &PoolReport,
    columns: &[String],
    own: &[PoolProperty],
    args: &Args,
    style: NumberStyle,
) -> Value {
    let shown = columns.iter().filter(|column| *column != "name");
    let properties = shown.map(|column| {
        let (text, source) = match own.iter().find(|it| it.name == *column) {
            Some(it) => (format_property(it, style.is_exact()), it.source.as_str()),
            None => (format_cell(pool, column, style.is_exact()), cell_source(pool, column)),
        };
        (column.clone(), json::property(&style.value(text), source))
    });
    let mut facts = pool_head(&pool.status, style);
    facts.insert("properties".to_owned(), Value::Object(properties.collect()));
    facts.shift_insert(1, "type".to_owned(), "POOL".into());
    if args.verbose {
        let vdevs = pool.status.vdevs.iter().filter(|vdev| vdev.class.is_none());
        let vdevs = vdevs.map(|vdev| (vdev.name.clone(), vdev_facts(vdev, 1, columns, style)));
        facts.insert("vdevs".to_owned(), Value::Object(vdevs.collect()));
    }
    Value::Object(facts)
}

fn vdev_facts(vdev: &VdevStatus, depth: usize, columns: &[String], style: NumberStyle) -> Value {
    let mut facts = vdev_head(vdev, vdev.class.as_deref().unwrap_or("normal"), style);
    let shown = columns.iter().filter(|column| !matches!(column.as_str(), "name" | "altroot"));
    let properties = shown.map(|column| {
        let text = vdev_cell(vdev, depth, column, style.is_exact());
        (column.clone(), json::property(&style.value(text), "-"))
    });
    facts.insert("properties".to_owned(), Value::Object(properties.collect()));
    let children = vdev.children.iter();
    let children: Map<_, _> = children
        .map(|child| (child.name.clone(), vdev_facts(child, depth + 1, columns, style)))
        .collect();
    if !children.is_empty() {
        facts.insert("vdevs".to_owned(), Value::Object(children));
    }
    Value::Object(facts)
}

/// Where a figure comes from, as `zpool get` shows it.
pub(super) fn cell_source(pool: &PoolReport, column: &str) -> &'static str {
    match (column, &pool.altroot) {
        ("altroot", Some(_)) => "local",
        ("altroot", None) => "default",
        _ => "-",
    }
}

pub(super) fn format_cell(pool: &PoolReport, column: &str, parsable: bool) -> String {
    let status = &pool.status;
    let bytes = |bytes: u64| if parsable { bytes.to_string() } else { human_bytes(bytes) };
    match column {
        "name" => status.name.clone(),
        "size" | "allocated" | "free" | "capacity" | "dedupratio" if status.is_unavailable() => {
            "-".to_owned()
        }
        "size" => bytes(status.size),
        "allocated" => bytes(status.allocated),
        "free" => bytes(status.size.saturating_sub(status.allocated)),
        "capacity" => {
            let part = status.allocated.saturating_mul(100).checked_div(status.size).unwrap_or(0);
            if parsable { part.to_string() } else { format!("{part}%") }
        }
        "health" => status.state.clone(),
        "checkpoint" => {
            status.checkpoint.as_ref().map_or_else(|| "-".to_owned(), |kept| bytes(kept.bytes))
        }
        "expandsize" => {
            let more: u64 = status.vdevs.iter().map(|vdev| vdev.expandable).sum();
            if more > 0 { bytes(more) } else { "-".to_owned() }
        }
        "fragmentation" => format_percent(status.fragmentation, parsable),
        "dedupratio" => {
            let (whole, part) = (status.dedup_ratio / 100, status.dedup_ratio % 100);
            format!("{whole}.{part:02}{}", if parsable { "" } else { "x" })
        }
        "guid" => status.guid.to_string(),
        "altroot" => {
            pool.altroot.as_ref().map_or_else(|| "-".to_owned(), |root| root.display().to_string())
        }
        _ => "-".to_owned(),
    }
}

/// A share of a hundred; none: it is not known.
fn format_percent(share: Option<u64>, parsable: bool) -> String {
    match share {
        None => "-".to_owned(),
        Some(share) if parsable => share.to_string(),
        Some(share) => format!("{share}%"),
    }
}

/// The vdevs, each class that is not for data below its own head.
fn add_vdevs(table: &mut Table, columns: &[String], pool: &PoolStatus, args: &Args) {
    let of = |class: Option<&str>| {
        let own = pool.vdevs.iter().filter(|vdev| vdev.class.as_deref() == class);
        own.collect::<Vec<_>>()
    };
    for vdev in of(None) {
        add_vdev(table, columns, (vdev, 1), args);
    }
    for (head, all) in [
        ("dedup", of(Some("dedup"))),
        ("special", of(Some("special"))),
        ("logs", of(Some("log"))),
        ("cache", pool.caches.iter().collect()),
        ("spare", pool.spares.iter().collect()),
    ] {
        if !all.is_empty() {
            table.add_row(columns.iter().map(|column| match column.as_str() {
                "name" => head.to_owned(),
                "altroot" => String::new(),
                _ => "-".to_owned(),
            }));
        }
        for vdev in all {
            add_vdev(table, columns, (vdev, 1), args);
        }
    }
}

fn add_vdev(
    table: &mut Table,
    columns: &[String],
    (vdev, depth): (&VdevStatus, usize),
    args: &Args,
) {
    let cells = columns.iter().filter_map(|column| match column.as_str() {
        "name" if args.scripted => Some(format!("\t{}", args.repeat.vdev_name(vdev))),
        "name" => Some(format!("{}{}", "  ".repeat(depth), args.repeat.vdev_name(vdev))),
        // as zpool(8) does it
        "altroot" => None,
        column => Some(vdev_cell(vdev, depth, column, args.parsable)),
    });
    table.add_text_row(cells);
    vdev.children.iter().for_each(|child| add_vdev(table, columns, (child, depth + 1), args));
}

/// The value of a column for a vdev so many levels below the pool.
fn vdev_cell(vdev: &VdevStatus, depth: usize, column: &str, parsable: bool) -> String {
    let bytes = |bytes: u64| if parsable { bytes.to_string() } else { human_bytes(bytes) };
    let size = if vdev.physical_size > 0 { vdev.physical_size } else { vdev.size };
    // a spare, or a drive that is not there, has nothing in it that is known
    let is_top = depth == 1 && vdev.size > 0;
    match column {
        "health" => vdev.state.clone(),
        "size" if size > 0 => bytes(size),
        "allocated" if is_top => bytes(vdev.allocated),
        "free" if is_top => bytes(vdev.size.saturating_sub(vdev.allocated)),
        "expandsize" if is_top && vdev.expandable > 0 => bytes(vdev.expandable),
        "fragmentation" if is_top => format_percent(vdev.fragmentation, parsable),
        "capacity" if is_top => format_fill(vdev.allocated, vdev.size, parsable),
        _ => "-".to_owned(),
    }
}

/// How full a vdev is, with as many digits as zpool(8) shows.
fn format_fill(allocated: u64, size: u64, parsable: bool) -> String {
    let hundredths = allocated.saturating_mul(10_000).checked_div(size).unwrap_or(0);
    let (whole, part) = (hundredths / 100, hundredths % 100);
    match hundredths {
        _ if parsable => whole.to_string(),
        0..1000 => format!("{whole}.{part:02}%"),
        1000..10_000 => format!("{whole}.{}%", part / 10),
        _ => format!("{whole}%"),
    }
}

#[cfg(test)]
mod tests {
    use super::{column_header, resolve_columns};

    #[test]
    fn columns_have_short_names() {
        let asked = ["cap", "ALLOC"].map(str::to_owned);
        assert_eq!(resolve_columns(&asked), ["capacity", "allocated"]);
        assert_eq!(column_header("capacity"), "CAP");
    }
}
