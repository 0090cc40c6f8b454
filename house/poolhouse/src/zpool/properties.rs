//! `poolhouse zpool get` and `set`.

use std::io;

use api::{GetPoolProperties, PoolReport, SetPoolProperty};
use engine::pool::PoolProperty;
use serde::Serialize;

use super::{list, query_reports};
use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::print;
use crate::property_values::parse_assignment;
use crate::table::{Align, Table};

/// The columns there are.
const COLUMNS: [&str; 4] = ["name", "property", "value", "source"];
/// Computed properties of pools.
const STATUS_PROPERTIES: [&str; 10] = [
    "size",
    "capacity",
    "altroot",
    "health",
    "dedupratio",
    "free",
    "allocated",
    "fragmentation",
    "expandsize",
    "checkpoint",
];

/// Show properties of pools
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  poolhouse zpool get all tank
  poolhouse zpool get -Hp -o value size,free tank")]
pub(super) struct GetArgs {
    /// No head, columns separated by tabs
    #[arg(short = 'H')]
    scripted: bool,
    /// Exact numbers
    #[arg(short = 'p')]
    parsable: bool,
    /// These columns: name, property, value, source
    #[arg(short = 'o', value_name = "FIELD", value_delimiter = ',')]
    columns: Vec<String>,
    /// Properties with commas between them, or `all`
    #[arg(value_name = "PROPERTY,...")]
    properties: String,
    /// Pools; none: all
    #[arg(value_name = "POOL")]
    pools: Vec<String>,
}

/// Set a property of a pool
#[derive(clap::Args, Debug)]
#[command(
    after_help = "A feature is enabled with feature@NAME=enabled; it cannot be disabled again.

Examples:
  poolhouse zpool set failmode=continue tank
  poolhouse zpool set comment='the box in the cellar' tank
  poolhouse zpool set org.example:owner=anna tank        a property of your own; an empty value removes it"
)]
pub(super) struct SetArgs {
    /// The property and its value
    #[arg(value_name = "NAME=VALUE", value_parser = parse_assignment)]
    property: (String, String),
    /// The pool
    pool: String,
}

/// A user property that is not set.
fn unset_user_property(name: &str) -> PoolProperty {
    let (value, source) = ("-".to_owned(), "default".to_owned());
    PoolProperty { name: name.to_owned(), value, source }
}

/// A pool and its properties.
#[derive(Serialize)]
struct PoolProperties {
    name: String,
    properties: Vec<PoolProperty>,
}

impl SetArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        let (property, value) = &self.property;
        let (property, value) = (list::full_name(property).to_owned(), value.clone());
        asking.execute(&SetPoolProperty { name: self.pool.clone(), property, value })
    }
}

impl GetArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        let columns = self.resolve_columns()?;
        let kept: Vec<(String, Vec<PoolProperty>)> =
            asking.request(&GetPoolProperties { names: self.pools.clone() })?;
        let mut rows = Vec::new();
        for report in query_reports(asking, &self.pools)? {
            let own = kept.iter().find(|(name, _)| *name == report.status.name);
            rows.push(self.select_properties(&report, own.map_or(&[][..], |(_, own)| own))?);
        }
        if asking.json {
            print::json(&rows)?;
            return Ok(Outcome::Complete);
        }
        let mut table = Table::new(vec![Align::Left; columns.len()]);
        if !self.scripted {
            table.add_row(columns.iter().map(|column| column.to_uppercase()));
        }
        for row in &rows {
            for property in &row.properties {
                table.add_row(columns.iter().map(|column| match *column {
                    "name" => row.name.clone(),
                    "property" => property.name.clone(),
                    "value" => list::format_property(property, self.parsable),
                    _ => property.source.clone(),
                }));
            }
        }
        let mut out = io::stdout().lock();
        if self.scripted {
            table.print_tab_separated(&mut out)?;
        } else {
            table.print(&mut out)?;
        }
        Ok(Outcome::Complete)
    }

    fn resolve_columns(&self) -> Result<Vec<&'static str>, Failure> {
        if self.columns.is_empty() || self.columns.iter().any(|column| column == "all") {
            return Ok(COLUMNS.to_vec());
        }
        let known = |asked: &String| COLUMNS.into_iter().find(|column| column == asked);
        let unknown = |asked| {
            Failure::usage(format!(
                "-o {asked}: this column does not exist; choose from: {}",
                COLUMNS.join(", ")
            ))
        };
        self.columns.iter().map(|asked| known(asked).ok_or_else(|| unknown(asked))).collect()
    }

    fn select_properties(
        &self,
        report: &PoolReport,
        own: &[PoolProperty],
    ) -> Result<PoolProperties, Failure> {
        let figures = STATUS_PROPERTIES.iter().map(|name| PoolProperty {
            name: (*name).to_owned(),
            value: list::format_cell(report, name, self.parsable),
            source: match (*name, &report.altroot) {
                ("altroot", Some(_)) => "local",
                ("altroot", None) => "default",
                _ => "-",
            }
            .to_owned(),
        });
        let mut all: Vec<PoolProperty> = figures.chain(own.iter().cloned()).collect();
        if !self.properties.split(',').any(|name| name == "all") {
            let mut chosen = Vec::new();
            let name = PoolProperty {
                name: "name".to_owned(),
                value: report.status.name.clone(),
                source: "-".to_owned(),
            };
            for asked in self.properties.split(',') {
                let full = list::full_name(asked);
                let mut known = all.iter().chain([&name]);
                let found = known.find(|property| property.name == full);
                if found.is_none() && full.contains(':') {
                    chosen.push(unset_user_property(full));
                    continue;
                }
                chosen.push(found.cloned().ok_or_else(|| {
                    Failure::usage(format!("{asked}: pools do not have this property here"))
                })?);
            }
            all = chosen;
        }
        Ok(PoolProperties { name: report.status.name.clone(), properties: all })
    }
}
