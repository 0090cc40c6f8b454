//! `poolhouse zfs get`.

use std::io::{self, Write};

use engine::dataset::{Dataset, Property};

use super::dataset_json::{createtxg, dataset_facts, request_createtxg};
use super::select::{SelectArgs, expand_property};
use crate::daemon::DaemonArgs;
use crate::json::{self, JsonArgs, NumberStyle};
use crate::outcome::{CommandResult, Failure};
use crate::property_values::format_value;
use crate::table::{Align, Table};

/// The columns there are, in the order of `-o all`.
const COLUMNS: [&str; 5] = ["name", "property", "value", "received", "source"];
/// The columns without `-o`.
const DEFAULT_COLUMNS: [&str; 4] = ["name", "property", "value", "source"];
/// Where properties may be set.
const SOURCES: [&str; 6] = ["local", "default", "inherited", "received", "temporary", "none"];

/// Show properties
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  poolhouse zfs get all tank/photos
  poolhouse zfs get -r -s local,inherited compression,recordsize tank
  poolhouse zfs get -Hp -o value used tank
  poolhouse zfs get userused@anna,userquota@anna tank/home")]
pub(super) struct Args {
    #[command(flatten)]
    select: SelectArgs,
    /// No head, columns separated by tabs
    #[arg(short = 'H')]
    scripted: bool,
    /// Exact numbers
    #[arg(short = 'p')]
    parsable: bool,
    /// These columns: name, property, value, received, source, or all
    #[arg(short = 'o', value_name = "FIELD", value_delimiter = ',')]
    columns: Vec<String>,
    /// Only values with these sources: local, default, inherited, received, temporary, none
    #[arg(short = 's', value_name = "SOURCE", value_delimiter = ',')]
    sources: Vec<String>,
    #[command(flatten)]
    json: JsonArgs,
    /// Properties with commas between them, or `all`
    #[arg(value_name = "PROPERTY,...")]
    properties: String,
    /// Datasets; none: all
    #[arg(value_name = "DATASET")]
    names: Vec<String>,
}

pub(super) fn run(args: &Args, asking: &DaemonArgs) -> CommandResult {
    let columns = match &args.columns[..] {
        [] => DEFAULT_COLUMNS.to_vec(),
        given => check_words("column name", given, &COLUMNS)?,
    };
    let sources = check_words("source", &args.sources, &SOURCES)?;
    let named = || args.properties.split(',');
    let all = named().any(|name| name == "all");
    let properties: Vec<String> = named().flat_map(expand_property).collect();
    let shown = if all { Vec::new() } else { properties };
    let mut asked: Vec<String> = shown.iter().filter(|name| *name != "name").cloned().collect();
    if asked.is_empty() && !all {
        // without arguments all are shown
        asked.push("type".to_owned());
    }
    if !all {
        request_createtxg(&mut asked, asking);
    }
    let (mut found, outcome) = args.select.query(&args.names, &asked, &[], asking)?;
    let txgs: Vec<u64> = found.iter().map(createtxg).collect();
    for dataset in &mut found {
        if !all {
            dataset.properties = shown.iter().map(|name| property_or_dash(dataset, name)).collect();
        }
        dataset.properties.retain(|property| sources.contains(&source_kind(property)));
    }
    if asking.json {
        let style = NumberStyle { integers: args.json.integers, exact: args.parsable };
        let facts = found
            .iter()
            .zip(txgs)
            .map(|(dataset, txg)| dataset_facts(dataset, txg, &dataset.properties, style));
        json::print("zfs get", "datasets", facts.collect())?;
        return Ok(outcome);
    }
    let mut out = io::BufWriter::new(io::stdout().lock());
    let table = build_table(&found, &columns, args);
    if args.scripted {
        table.print_tab_separated(&mut out)?;
    } else {
        table.print(&mut out)?;
    }
    out.flush()?;
    Ok(outcome)
}

/// A property of a dataset; `-` for one that it does not have.
pub(super) fn property_or_dash(dataset: &Dataset, name: &str) -> Property {
    let found = dataset.properties.iter().find(|property| property.name == name);
    found.cloned().unwrap_or_else(|| {
        let value = if name == "name" { &dataset.name } else { "-" };
        let (name, value) = (name.to_owned(), value.to_owned());
        Property { name, value, source: "-".to_owned(), received: None }
    })
}

/// The words that were given, if all are known; all there are, if none was.
fn check_words<'a>(
    kind: &str,
    given: &[String],
    words: &[&'a str],
) -> Result<Vec<&'a str>, Failure> {
    if given.is_empty() || given.iter().any(|word| word == "all") {
        return Ok(words.to_vec());
    }
    let find = |given: &String| {
        words.iter().copied().find(|word| word == given).ok_or_else(|| {
            Failure::usage(format!("invalid {kind} '{given}'\nchoose from: {}", words.join(", ")))
        })
    };
    given.iter().map(find).collect()
}

fn source_kind(property: &Property) -> &str {
    match property.source.as_str() {
        "-" => "none",
        source => source.split(' ').next().unwrap_or(source),
    }
}

fn build_table(found: &[Dataset], columns: &[&str], args: &Args) -> Table {
    let mut table = Table::new(vec![Align::Left; columns.len()]);
    if !args.scripted {
        table.add_row(columns.iter().map(|column| column.to_uppercase()));
    }
    for dataset in found {
        for property in &dataset.properties {
            table.add_text_row(columns.iter().map(|column| match *column {
                "name" => dataset.name.clone(),
                "property" => property.name.clone(),
                "value" => show_value(property, &property.value, args.parsable),
                "received" => match &property.received {
                    Some(value) => show_value(property, value, args.parsable),
                    None => "-".to_owned(),
                },
                _ => property.source.clone(),
            }));
        }
    }
    table
}

/// A value of a property, with numbers in full for programs.
fn show_value(property: &Property, value: &str, is_parsable: bool) -> String {
    if is_parsable { value.to_owned() } else { format_value(&property.name, value) }
}

#[cfg(test)]
mod tests {
    use super::{SOURCES, check_words};

    #[test]
    fn only_known_words_are_taken() {
        let words = |text: &str| {
            check_words("source", &[text.to_owned()], &SOURCES)
                .map(|found| found.len())
                .map_err(|_| ())
        };
        assert_eq!(words("local"), Ok(1));
        assert_eq!(words("all"), Ok(6));
        assert_eq!(words("elsewhere"), Err(()));
    }
}
