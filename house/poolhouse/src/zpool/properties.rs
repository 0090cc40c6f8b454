//! `poolhouse zpool get` and `set`.

use std::io;

use api::{
    GetPoolProperties, GetVdevProperties, ListPools, PoolReport, SetPoolProperty, SetVdevProperty,
};
use engine::pool::PoolProperty;
use serde_json::Value;

use super::pool_columns::property_rank;
use super::report_json::pool_head;
use super::{list, query_reports, vdev_properties};
use crate::daemon::DaemonArgs;
use crate::json::{self, JsonArgs, NumberStyle};
use crate::outcome::{CommandResult, Failure, Outcome};
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
  poolhouse zpool get -Hp -o value size,free tank
  poolhouse zpool get all tank all-vdevs           of its vdevs
  poolhouse zpool get comment tank raidz2-0 root   of a vdev, and of the root vdev")]
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
    #[command(flatten)]
    json: JsonArgs,
    /// Properties with commas between them, or `all`
    #[arg(value_name = "PROPERTY,...")]
    properties: String,
    /// Pools (none: all), or a pool and its vdevs
    #[arg(value_name = "POOL|POOL VDEV")]
    pools: Vec<String>,
}

/// Set a property of a pool
#[derive(clap::Args, Debug)]
#[command(
    after_help = "A feature is enabled with feature@NAME=enabled; it cannot be disabled again.

Examples:
  poolhouse zpool set failmode=continue tank
  poolhouse zpool set comment='the box in the cellar' tank
  poolhouse zpool set org.example:owner=anna tank        a property of your own; an empty value removes it
  poolhouse zpool set comment='bay 4' tank raidz2-0      of a vdev: its comment, or a property of your own"
)]
pub(super) struct SetArgs {
    /// The property and its value
    #[arg(value_name = "NAME=VALUE", value_parser = parse_assignment)]
    property: (String, String),
    /// The pool
    pool: String,
    /// The vdev: a drive, a name such as raidz2-0, or root
    vdev: Option<String>,
}

/// A user property that is not set.
fn unset_user_property(name: &str) -> PoolProperty {
    let (value, source) = ("-".to_owned(), "default".to_owned());
    PoolProperty { name: name.to_owned(), value, source }
}

/// A pool or vdev and its properties.
struct NamedProperties {
    name: String,
    properties: Vec<PoolProperty>,
}

impl SetArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        let (property, value) = &self.property;
        if let Some(vdev) = &self.vdev {
            let (name, property, value) = (self.pool.clone(), property.clone(), value.clone());
            let call =
                SetVdevProperty { name, vdev: vdev_properties::resolve(vdev), property, value };
            let subject = || format!("cannot set property for '{vdev}'");
            return asking.execute(&call).map_err(|why| why.with_subject(subject));
        }
        let (property, value) = (list::full_name(property).to_owned(), value.clone());
        let done = asking.execute(&SetPoolProperty { name: self.pool.clone(), property, value });
        done.map_err(|why| why.with_subject(|| format!("cannot set property for '{}'", self.pool)))
    }
}

impl GetArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        let columns = self.resolve_columns()?;
        if let Some((pool, vdevs)) = self.split_vdevs(asking)? {
            return self.run_for_vdevs(asking, pool, vdevs, &columns);
        }
        let kept: Vec<(String, Vec<PoolProperty>)> =
            asking.request(&GetPoolProperties { names: self.pools.clone() })?;
        let reports = query_reports(asking, &self.pools)?;
        let mut rows = Vec::new();
        for report in &reports {
            let own = kept.iter().find(|(name, _)| *name == report.status.name);
            rows.push(self.select_properties(report, own.map_or(&[][..], |(_, own)| own))?);
        }
        if asking.json {
            return self.print_json(&reports, &rows);
        }
        self.print_rows(&rows, &columns)
    }

    /// A pool and its vdevs, if the words behind the first one are not pools.
    fn split_vdevs(&self, asking: &DaemonArgs) -> Result<Option<(&str, &[String])>, Failure> {
        let [pool, vdevs @ ..] = &self.pools[..] else { return Ok(None) };
        if vdevs.is_empty() {
            return Ok(None);
        }
        let known = asking.request(&ListPools { names: Vec::new(), verbose: false })?;
        let is_pool = |word: &String| known.iter().any(|report| report.status.name == *word);
        Ok((is_pool(pool) && !vdevs.iter().any(is_pool)).then_some((pool, vdevs)))
    }

    fn run_for_vdevs(
        &self,
        asking: &DaemonArgs,
        pool: &str,
        vdevs: &[String],
        columns: &[&str],
    ) -> CommandResult {
        let vdevs = vdevs.iter().map(|word| vdev_properties::resolve(word)).collect();
        let found = asking.request(&GetVdevProperties { name: pool.to_owned(), vdevs })?;
        let mut rows = Vec::new();
        for vdev in found {
            let all = vdev.properties.into_iter();
            let all: Vec<_> = all.map(|it| vdev_properties::format(it, self.is_exact())).collect();
            rows.push(self.select_from(vdev.vdev, all)?);
        }
        if asking.json {
            let style = NumberStyle { integers: self.json.integers, exact: self.parsable };
            let vdevs = rows.iter().map(|row| {
                let facts = vec![("properties".to_owned(), property_facts(row, style))];
                (row.name.clone(), Value::Object(facts.into_iter().collect()))
            });
            json::print("zpool get", "vdevs", vdevs.collect())?;
            return Ok(Outcome::Complete);
        }
        self.print_rows(&rows, columns)
    }

    fn print_rows(&self, rows: &[NamedProperties], columns: &[&str]) -> CommandResult {
        let mut table = Table::new(vec![Align::Left; columns.len()]);
        if !self.scripted {
            table.add_row(columns.iter().map(|column| column.to_uppercase()));
        }
        for row in rows {
            for property in &row.properties {
                table.add_row(columns.iter().map(|column| match *column {
                    "name" => row.name.clone(),
                    "property" => property.name.clone(),
                    "value" => property.value.clone(),
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

    fn print_json(&self, reports: &[PoolReport], rows: &[NamedProperties]) -> CommandResult {
        let style = NumberStyle { integers: self.json.integers, exact: self.parsable };
        let pools = reports.iter().zip(rows).map(|(report, row)| {
            let mut facts = pool_head(&report.status, style);
            facts.shift_insert(1, "type".to_owned(), "POOL".into());
            facts.insert("properties".to_owned(), property_facts(row, style));
            (row.name.clone(), Value::Object(facts))
        });
        json::print("zpool get", "pools", pools.collect())?;
        Ok(Outcome::Complete)
    }

    fn resolve_columns(&self) -> Result<Vec<&'static str>, Failure> {
        if self.columns.is_empty() || self.columns.iter().any(|column| column == "all") {
            return Ok(COLUMNS.to_vec());
        }
        let known = |asked: &String| COLUMNS.into_iter().find(|column| column == asked);
        let unknown = |asked| {
            Failure::usage(format!(
                "invalid column name '{asked}'\nchoose from: {}",
                COLUMNS.join(", ")
            ))
        };
        self.columns.iter().map(|asked| known(asked).ok_or_else(|| unknown(asked))).collect()
    }

    fn select_properties(
        &self,
        report: &PoolReport,
        own: &[PoolProperty],
    ) -> Result<NamedProperties, Failure> {
        let all = all_properties(report, own, self.is_exact());
        self.select_from(report.status.name.clone(), all)
    }

    /// Those properties of a pool or vdev that the command names.
    fn select_from(
        &self,
        name: String,
        all: Vec<PoolProperty>,
    ) -> Result<NamedProperties, Failure> {
        if self.properties.split(',').any(|name| name == "all") {
            return Ok(NamedProperties { name, properties: all });
        }
        let mut properties = Vec::new();
        for asked in self.properties.split(',') {
            let full = list::full_name(asked);
            let found = match all.iter().find(|property| property.name == full) {
                Some(found) => found.clone(),
                None if full == "name" => figure("name", name.clone(), "-"),
                None if full.contains(':') => unset_user_property(full),
                None => {
                    let what = format!("bad property list: invalid property '{asked}'");
                    return Err(Failure::usage(what));
                }
            };
            properties.push(found);
        }
        Ok(NamedProperties { name, properties })
    }

    /// Whether sizes are exact.
    fn is_exact(&self) -> bool {
        self.parsable || self.json.integers
    }
}

fn property_facts(row: &NamedProperties, style: NumberStyle) -> Value {
    let facts = row.properties.iter().map(|property| {
        let value = style.value(property.value.clone());
        (property.name.clone(), json::property(&value, &property.source))
    });
    Value::Object(facts.collect())
}

/// All properties of a pool in the order of zpool(8): those that it stores, and its figures.
pub(super) fn all_properties(
    report: &PoolReport,
    own: &[PoolProperty],
    is_exact: bool,
) -> Vec<PoolProperty> {
    let figures = STATUS_PROPERTIES.iter().map(|name| {
        figure(name, list::format_cell(report, name, is_exact), list::cell_source(report, name))
    });
    let own =
        own.iter().map(|one| figure(&one.name, list::format_property(one, is_exact), &one.source));
    let mut all: Vec<PoolProperty> = figures.chain(own).collect();
    all.sort_by_key(|property| property_rank(&property.name));
    all
}

fn figure(name: &str, value: String, source: &str) -> PoolProperty {
    PoolProperty { name: name.to_owned(), value, source: source.to_owned() }
}
