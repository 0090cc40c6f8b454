//! `zfs userspace`, `zfs groupspace` and `zfs projectspace`.

use std::cmp::Ordering;
use std::io::{self, Write};

use api::{ListMounts, ListOwnerSpace, OwnerKind};
use engine::dataset::OwnerSpace;
use serde::Serialize;
use units::human_bytes;

use super::sort_keys::SortKeys;
use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::print;
use crate::table::{Align, Table};

/// The columns, in their usual order.
const FIELDS: [&str; 6] = ["type", "name", "used", "quota", "objused", "objquota"];
/// The types of zfs-userspace(8) that a pool of this program can have: identities of Windows have no
/// entries of their own.
const TYPES: [(&str, &[OwnerKind]); 5] = [
    ("all", &[OwnerKind::User, OwnerKind::Group]),
    ("posixuser", &[OwnerKind::User]),
    ("posixgroup", &[OwnerKind::Group]),
    ("smbuser", &[]),
    ("smbgroup", &[]),
];

/// Show the space and quotas of each owner of files in a file system or snapshot
#[derive(clap::Args, Debug)]
#[command(after_help = "Owners are counted when a txg is written: the last seconds are missing.

Examples:
  poolhouse zfs userspace tank/home
  poolhouse zfs userspace -Hp -o name,used,quota -S used tank/home
  poolhouse zfs groupspace -n tank/home@monday
  poolhouse zfs projectspace tank/home")]
pub(super) struct SpaceArgs {
    /// No head, columns separated by tabs
    #[arg(short = 'H')]
    scripted: bool,
    /// Exact numbers
    #[arg(short = 'p')]
    parsable: bool,
    /// These columns: type, name, used, quota, objused, objquota
    #[arg(short = 'o', value_name = "FIELD", value_delimiter = ',')]
    fields: Vec<String>,
    #[command(flatten)]
    sort_keys: SortKeys,
    /// A file system, a snapshot, or a path in a mounted file system
    #[arg(value_name = "DATASET|PATH")]
    target: String,
}

/// The options that projects do not have.
#[derive(clap::Args, Debug)]
pub(super) struct NamedSpaceArgs {
    #[command(flatten)]
    space: SpaceArgs,
    /// Numbers in place of the names of users and groups
    #[arg(short = 'n')]
    numeric: bool,
    /// Take for identities of Windows what they are mapped to; there are none here
    #[arg(short = 'i')]
    translate: bool,
    /// Only these types: all, posixuser, smbuser, posixgroup, smbgroup
    #[arg(short = 't', value_name = "TYPE", value_delimiter = ',')]
    types: Vec<String>,
}

/// One line of the table.
#[derive(Debug, Serialize)]
struct Row {
    #[serde(rename = "type")]
    kind: &'static str,
    name: String,
    #[serde(flatten)]
    space: OwnerSpace,
}

impl NamedSpaceArgs {
    /// Lists the space of the types that were asked for, and of `usual` if none was.
    pub(super) fn run(&self, usual: OwnerKind, asking: &DaemonArgs) -> CommandResult {
        let mut kinds = Vec::new();
        for name in &self.types {
            let found = TYPES.iter().find(|(known, _)| known == name);
            let (_, more) =
                found.ok_or_else(|| Failure::usage(format!("-t {name}: there is no such type")))?;
            kinds.extend(
                more.iter().filter(|kind| !kinds.contains(*kind)).copied().collect::<Vec<_>>(),
            );
        }
        if self.types.is_empty() {
            kinds.push(usual);
        }
        self.space.print(&kinds, self.numeric, asking)
    }
}

impl SpaceArgs {
    /// Lists the space of projects.
    pub(super) fn run_for_projects(&self, asking: &DaemonArgs) -> CommandResult {
        self.print(&[OwnerKind::Project], true, asking)
    }

    fn print(&self, kinds: &[OwnerKind], numeric: bool, asking: &DaemonArgs) -> CommandResult {
        let fields = self.check_fields()?;
        let dataset = dataset_of(&self.target, asking)?;
        let mut rows = Vec::new();
        for kind in kinds {
            let call = ListOwnerSpace { dataset: dataset.clone(), kind: *kind };
            rows.extend(
                asking.request(&call)?.into_iter().map(|space| Row::new(*kind, space, numeric)),
            );
        }
        rows.sort_by(|one, other| self.compare(one, other));
        if asking.json {
            print::json(&rows)?;
            return Ok(Outcome::Complete);
        }
        let right = |field: &&str| {
            if matches!(*field, "type" | "name") { Align::Left } else { Align::Right }
        };
        let mut table = Table::new(fields.iter().map(right).collect::<Vec<_>>());
        if !self.scripted {
            table.add_row(fields.iter().map(|field| field.to_uppercase()));
        }
        for row in &rows {
            table.add_row(fields.iter().map(|field| row.cell(field, self.parsable)));
        }
        let mut out = io::BufWriter::new(io::stdout().lock());
        if self.scripted {
            table.print_tab_separated(&mut out)?;
        } else {
            table.print(&mut out)?;
        }
        out.flush()?;
        Ok(Outcome::Complete)
    }

    /// The columns to show. A sort key that is no column is refused as well.
    fn check_fields(&self) -> Result<Vec<&'static str>, Failure> {
        let find = |name: &str| {
            FIELDS.into_iter().find(|field| *field == name).ok_or_else(|| {
                Failure::usage(format!("'{name}' is no column; {}", FIELDS.join(", ")))
            })
        };
        for key in &self.sort_keys.0 {
            find(&key.property)?;
        }
        if self.fields.is_empty() {
            return Ok(FIELDS.to_vec());
        }
        self.fields.iter().map(|name| find(name)).collect()
    }

    /// The order of rows: by the sort keys, then by type and name.
    fn compare(&self, one: &Row, other: &Row) -> Ordering {
        let mut order = Ordering::Equal;
        for key in &self.sort_keys.0 {
            let next = one.compare_field(other, &key.property);
            order = order.then(if key.descending { next.reverse() } else { next });
        }
        order
            .then_with(|| one.compare_field(other, "type"))
            .then_with(|| one.compare_field(other, "name"))
    }
}

impl Row {
    fn new(kind: OwnerKind, space: OwnerSpace, numeric: bool) -> Self {
        let id = u32::try_from(space.id).ok().filter(|_| !numeric);
        let (kind, name) = match kind {
            OwnerKind::User => ("POSIX User", id.and_then(user_name)),
            OwnerKind::Group => ("POSIX Group", id.and_then(group_name)),
            OwnerKind::Project => ("Project", None),
        };
        Self { kind, name: name.unwrap_or_else(|| space.id.to_string()), space }
    }

    fn number(&self, field: &str) -> Option<u64> {
        match field {
            "used" => self.space.used,
            "quota" => self.space.quota,
            "objused" => self.space.objects_used,
            _ => self.space.object_quota,
        }
    }

    fn cell(&self, field: &str, parsable: bool) -> String {
        match (field, self.number(field)) {
            ("type", _) => self.kind.to_owned(),
            ("name", _) => self.name.clone(),
            ("quota" | "objquota", None | Some(0)) => "none".to_owned(),
            (_, None) => "-".to_owned(),
            ("used" | "quota", Some(bytes)) if !parsable => human_bytes(bytes),
            (_, Some(number)) => number.to_string(),
        }
    }

    fn compare_field(&self, other: &Self, field: &str) -> Ordering {
        match field {
            "type" => self.kind.cmp(other.kind),
            // numbers come in their order, before names
            "name" => match (self.name.parse::<u64>(), other.name.parse::<u64>()) {
                (Ok(one), Ok(other)) => one.cmp(&other),
                (Ok(_), Err(_)) => Ordering::Less,
                (Err(_), Ok(_)) => Ordering::Greater,
                (Err(_), Err(_)) => self.name.cmp(&other.name),
            },
            field => self.number(field).cmp(&other.number(field)),
        }
    }
}

fn user_name(id: u32) -> Option<String> {
    nix::unistd::User::from_uid(id.into()).ok().flatten().map(|user| user.name)
}

fn group_name(id: u32) -> Option<String> {
    nix::unistd::Group::from_gid(id.into()).ok().flatten().map(|group| group.name)
}

/// The dataset of a target. A path stands for the file system that is mounted there.
fn dataset_of(target: &str, asking: &DaemonArgs) -> Result<String, Failure> {
    if !target.starts_with(['/', '.']) {
        return Ok(target.to_owned());
    }
    let path =
        std::fs::canonicalize(target).map_err(|why| Failure::usage(format!("{target}: {why}")))?;
    let mounts = asking.request(&ListMounts {})?;
    let holding = mounts.into_iter().filter(|(_, mountpoint)| path.starts_with(mountpoint));
    let innermost = holding.max_by_key(|(_, mountpoint)| mountpoint.as_os_str().len());
    let (dataset, _) = innermost.ok_or_else(|| {
        Failure::usage(format!("{target}: no file system of a pool is mounted there"))
    })?;
    Ok(dataset)
}
