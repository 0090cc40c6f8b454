//! `zfs userspace`, `zfs groupspace` and `zfs projectspace`.

use std::cmp::Ordering;
use std::io::{self, Write};

use api::{ListOwnerUsage, OwnerKind};
use engine::dataset::OwnerUsage;
use units::human_space;

use super::select::dataset_of;
use super::sort_keys::SortKeys;
use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::print;
use crate::table::{Align, Table};

/// The columns, in their usual order.
const FIELDS: [&str; 6] = ["type", "name", "used", "quota", "objused", "objquota"];
/// The types of zfs-userspace(8): the name of each in the output, and its kind of owners.
const TYPES: [(&str, &str, OwnerKind); 4] = [
    ("posixuser", POSIX_USER, OwnerKind::User),
    ("smbuser", "SMB User", OwnerKind::User),
    ("posixgroup", POSIX_GROUP, OwnerKind::Group),
    ("smbgroup", "SMB Group", OwnerKind::Group),
];
/// Types with numeric system IDs as names.
const POSIX_USER: &str = "POSIX User";
const POSIX_GROUP: &str = "POSIX Group";

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
    /// Translate Windows identities to POSIX ones; no mapping is known here
    #[arg(short = 'i')]
    translate: bool,
    /// Only these types: all, posixuser, smbuser, posixgroup, smbgroup
    #[arg(short = 't', value_name = "TYPE", value_delimiter = ',')]
    types: Vec<String>,
}

impl NamedSpaceArgs {
    /// Lists the space of the requested types, by default `usual`.
    pub(super) fn run(&self, usual: OwnerKind, asking: &DaemonArgs) -> CommandResult {
        let is_known =
            |name: &String| name == "all" || TYPES.iter().any(|(known, ..)| known == name);
        if let Some(name) = self.types.iter().find(|name| !is_known(name)) {
            return Err(Failure::usage(format!("invalid type '{name}'")));
        }
        let is_wanted = |(name, _, kind): &&(&str, &str, OwnerKind)| match &self.types[..] {
            [] => *kind == usual,
            types => types.iter().any(|wanted| wanted == "all" || wanted == name),
        };
        let wanted: Vec<_> = TYPES.iter().filter(is_wanted).collect();
        let mut owners = Vec::new();
        for kind in [OwnerKind::User, OwnerKind::Group] {
            if wanted.iter().any(|(_, _, of)| *of == kind) {
                owners.extend(self.space.request(kind, asking)?);
            }
        }
        owners.retain(|owner| wanted.iter().any(|(_, shown, _)| *shown == owner.kind));
        if !self.numeric {
            owners.iter_mut().for_each(resolve_name);
        }
        self.space.print(owners, asking)
    }
}

impl SpaceArgs {
    /// Lists the space of projects.
    pub(super) fn run_for_projects(&self, asking: &DaemonArgs) -> CommandResult {
        self.print(self.request(OwnerKind::Project, asking)?, asking)
    }

    fn request(&self, kind: OwnerKind, asking: &DaemonArgs) -> Result<Vec<OwnerUsage>, Failure> {
        asking.request(&ListOwnerUsage { dataset: dataset_of(&self.target, asking)?, kind })
    }

    fn print(&self, mut owners: Vec<OwnerUsage>, asking: &DaemonArgs) -> CommandResult {
        let fields = self.check_fields()?;
        owners.sort_by(|one, other| self.compare(one, other));
        if asking.json {
            print::json(&owners)?;
            return Ok(Outcome::Complete);
        }
        let right = |field: &&str| {
            if matches!(*field, "type" | "name") { Align::Left } else { Align::Right }
        };
        let mut table = Table::new(fields.iter().map(right).collect::<Vec<_>>());
        if !self.scripted {
            table.add_row(fields.iter().map(|field| field.to_uppercase()));
        }
        for owner in &owners {
            table.add_row(fields.iter().map(|field| format_field(owner, field, self.parsable)));
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

    /// The columns to show. A sort key that is not a column is refused as well.
    fn check_fields(&self) -> Result<Vec<&'static str>, Failure> {
        let find = |name: &str| {
            FIELDS.into_iter().find(|field| *field == name).ok_or_else(|| {
                Failure::usage(format!("'{name}' is not a column; {}", FIELDS.join(", ")))
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

    /// The order of owners: by the sort keys, then by type and name.
    fn compare(&self, one: &OwnerUsage, other: &OwnerUsage) -> Ordering {
        let mut order = Ordering::Equal;
        for key in &self.sort_keys.0 {
            let next = compare_field(one, other, &key.property);
            order = order.then(if key.descending { next.reverse() } else { next });
        }
        order
            .then_with(|| compare_field(one, other, "type"))
            .then_with(|| compare_field(one, other, "name"))
    }
}

fn number(owner: &OwnerUsage, field: &str) -> Option<u64> {
    match field {
        "used" => owner.used,
        "quota" => owner.quota,
        "objused" => owner.objects_used,
        _ => owner.object_quota,
    }
}

fn format_field(owner: &OwnerUsage, field: &str, parsable: bool) -> String {
    match (field, number(owner, field)) {
        ("type", _) => owner.kind.clone(),
        ("name", _) => owner.name.clone(),
        ("quota" | "objquota", None | Some(0)) => if parsable { "0" } else { "none" }.to_owned(),
        (_, None) => "-".to_owned(),
        ("used" | "quota", Some(bytes)) if !parsable => human_space(bytes),
        (_, Some(number)) => number.to_string(),
    }
}

fn compare_field(one: &OwnerUsage, other: &OwnerUsage, field: &str) -> Ordering {
    match field {
        "type" => one.kind.cmp(&other.kind),
        // numbers come in their order, before names
        "name" => match (one.name.parse::<u64>(), other.name.parse::<u64>()) {
            (Ok(one), Ok(other)) => one.cmp(&other),
            (Ok(_), Err(_)) => Ordering::Less,
            (Err(_), Ok(_)) => Ordering::Greater,
            (Err(_), Err(_)) => one.name.cmp(&other.name),
        },
        field => number(one, field).cmp(&number(other, field)),
    }
}

/// Replaces the number of a user or group by the name that the system has for it.
fn resolve_name(owner: &mut OwnerUsage) {
    let id = owner.name.parse().ok();
    let name = match owner.kind.as_str() {
        POSIX_USER => id.and_then(user_name),
        POSIX_GROUP => id.and_then(group_name),
        _ => None,
    };
    owner.name = name.unwrap_or_else(|| std::mem::take(&mut owner.name));
}

fn user_name(id: u32) -> Option<String> {
    nix::unistd::User::from_uid(id.into()).ok().flatten().map(|user| user.name)
}

fn group_name(id: u32) -> Option<String> {
    nix::unistd::Group::from_gid(id.into()).ok().flatten().map(|group| group.name)
}
