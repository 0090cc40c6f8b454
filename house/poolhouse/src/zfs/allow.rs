//! `zfs allow` and `zfs unallow`.

use std::collections::{BTreeMap, BTreeSet};

use api::{AllowPermissions, DatasetPermissions, GetPermissions, RemovePermissions};
use engine::pool::{DelegationKey, DelegationScope, Grantee, check_permission_name};

use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::print;

/// The width of a dataset's line.
const TITLE_WIDTH: usize = 70;

/// Delegate permissions to ordinary users, or show which are
#[derive(clap::Args, Debug)]
#[command(
    after_help = "With a dataset alone it shows the permissions that are delegated there and above.
Permissions are allow, bookmark, change-key, clone, create, destroy, diff, hold, load-key, mount, promote, receive,
release, rename, rollback, send, share, snapshot, userprop, userquota and the like, names of properties, and sets
(@name). Creating and destroying need mount as well.

Examples:
  poolhouse zfs allow anna create,mount,snapshot tank/home/anna
  poolhouse zfs allow -g staff -d @backup tank
  poolhouse zfs allow -s @backup snapshot,hold,send tank
  poolhouse zfs allow tank/home"
)]
pub(super) struct AllowArgs {
    #[command(flatten)]
    who: WhoArgs,
    /// WHO PERMISSION,... DATASET, or a dataset to show
    #[arg(value_name = "WORD", required = true, num_args = 1..=3)]
    words: Vec<String>,
}

/// Take delegated permissions back
#[derive(clap::Args, Debug)]
#[command(after_help = "Without names of permissions all of them are revoked.

Examples:
  poolhouse zfs unallow anna snapshot tank/home/anna
  poolhouse zfs unallow -r everyone tank")]
pub(super) struct UnallowArgs {
    #[command(flatten)]
    who: WhoArgs,
    /// Also in the datasets below
    #[arg(short = 'r')]
    recursive: bool,
    /// WHO [PERMISSION,...] DATASET
    #[arg(value_name = "WORD", required = true, num_args = 1..=3)]
    words: Vec<String>,
}

/// The subjects of permissions.
#[derive(clap::Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "options of zfs(8)")]
struct WhoArgs {
    /// Only for the dataset itself
    #[arg(short = 'l')]
    local: bool,
    /// Only for the datasets below
    #[arg(short = 'd')]
    descendent: bool,
    /// WHO are users
    #[arg(short = 'u', conflicts_with_all = ["groups", "everyone", "creator", "set"])]
    users: bool,
    /// WHO are groups
    #[arg(short = 'g', conflicts_with_all = ["everyone", "creator", "set"])]
    groups: bool,
    /// For everyone; there is no WHO
    #[arg(short = 'e', conflicts_with_all = ["creator", "set"])]
    everyone: bool,
    /// For the creator of a descendant, on that dataset; there is no WHO
    #[arg(short = 'c', conflicts_with_all = ["set", "local", "descendent"])]
    creator: bool,
    /// Define a set; WHO is its name (@name)
    #[arg(short = 's', conflicts_with_all = ["local", "descendent"])]
    set: bool,
}

/// A command line without its options.
struct Words<'a> {
    who: &'a str,
    permissions: Option<&'a str>,
    dataset: &'a str,
}

impl WhoArgs {
    fn is_given(&self) -> bool {
        let Self { local, descendent, users, groups, everyone, creator, set } = self;
        [local, descendent, users, groups, everyone, creator, set].into_iter().any(|it| *it)
    }

    /// Sorts the words of a command line.
    fn sort_words<'a>(&self, words: &'a [String]) -> Result<Words<'a>, Failure> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let has_who = !self.everyone && !self.creator;
        match (words.as_slice(), has_who) {
            ([who, permissions, dataset], true) => {
                Ok(Words { who, permissions: Some(permissions), dataset })
            }
            ([who, dataset], true) => Ok(Words { who, permissions: None, dataset }),
            ([permissions, dataset], false) => {
                Ok(Words { who: "", permissions: Some(permissions), dataset })
            }
            ([dataset], false) => Ok(Words { who: "", permissions: None, dataset }),
            _ => Err(Failure::usage("give WHO, permissions and a dataset, in this order")),
        }
    }

    /// The users, groups, everyone, the creator or the set that a word means.
    fn grantees(&self, who: &str) -> Result<Vec<Grantee>, Failure> {
        if self.everyone || who == "everyone" && !self.users && !self.groups && !self.set {
            return Ok(vec![Grantee::Everyone]);
        }
        if self.creator {
            return Ok(vec![Grantee::Creator]);
        }
        if self.set {
            check_permission_name(who).map_err(|why| Failure::usage(why.to_string()))?;
            let set = Grantee::Set(who.to_owned());
            return if who.starts_with('@') {
                Ok(vec![set])
            } else {
                Err(Failure::usage(format!("'{who}': the name of a permission set begins with @")))
            };
        }
        who.split(',').map(|name| self.user_or_group(name)).collect()
    }

    fn user_or_group(&self, name: &str) -> Result<Grantee, Failure> {
        let failed = |why: nix::errno::Errno| Failure::usage(format!("'{name}': {why}"));
        if !self.groups {
            let user = nix::unistd::User::from_name(name).map_err(failed)?;
            let uid = user.map(|user| user.uid.as_raw()).or_else(|| name.parse().ok());
            if let Some(uid) = uid {
                return Ok(Grantee::User(uid.into()));
            }
        }
        if !self.users {
            let group = nix::unistd::Group::from_name(name).map_err(failed)?;
            let gid = group.map(|group| group.gid.as_raw()).or_else(|| name.parse().ok());
            if let Some(gid) = gid {
                return Ok(Grantee::Group(gid.into()));
            }
        }
        let kind = if self.groups { "group" } else { "user" };
        Err(Failure::usage(format!("invalid {kind} '{name}': this machine does not know it")))
    }

    /// The keys and names of permissions of a request. Without names all keys of the grantees have none.
    fn entries(&self, words: &Words<'_>) -> Result<Vec<(String, Vec<String>)>, Failure> {
        let scopes: &[_] = match (self.local, self.descendent) {
            _ if self.creator || self.set => &[DelegationScope::None],
            (true, false) => &[DelegationScope::Local],
            (false, true) => &[DelegationScope::Descendent],
            _ => &[DelegationScope::Local, DelegationScope::Descendent],
        };
        let names: Option<Vec<&str>> = words.permissions.map(|names| names.split(',').collect());
        for name in names.iter().flatten() {
            check_permission_name(name).map_err(|why| Failure::usage(why.to_string()))?;
        }
        let mut entries = Vec::new();
        for grantee in self.grantees(words.who)? {
            for scope in scopes {
                for holds_sets in [false, true] {
                    let key = DelegationKey { grantee: grantee.clone(), scope: *scope, holds_sets };
                    let is_own = |name: &&&str| name.starts_with('@') == holds_sets;
                    let own: Option<Vec<String>> = names.as_ref().map(|names| {
                        names.iter().filter(is_own).map(|name| (*name).to_owned()).collect()
                    });
                    match own {
                        Some(own) if own.is_empty() => (),
                        own => entries.push((key.to_string(), own.unwrap_or_default())),
                    }
                }
            }
        }
        Ok(entries)
    }
}

impl AllowArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        if let ([name], false) = (self.words.as_slice(), self.who.is_given()) {
            return show(name, asking);
        }
        let words = self.who.sort_words(&self.words)?;
        if words.permissions.is_none() {
            return Err(Failure::usage("the permissions are missing"));
        }
        let entries = self.who.entries(&words)?;
        asking.execute(&AllowPermissions { name: words.dataset.to_owned(), entries })
    }
}

impl UnallowArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        let words = self.who.sort_words(&self.words)?;
        let entries = self.who.entries(&words)?;
        let (name, recursive) = (words.dataset.to_owned(), self.recursive);
        asking.execute(&RemovePermissions { name, entries, recursive })
    }
}

fn show(name: &str, asking: &DaemonArgs) -> CommandResult {
    let levels = asking.request(&GetPermissions { name: name.to_owned() })?;
    if asking.json {
        print::json(&levels)?;
        return Ok(Outcome::Complete);
    }
    for level in &levels {
        print::line(format_level(level).trim_end())?;
    }
    Ok(Outcome::Complete)
}

/// Permissions by their subjects.
type Lines = BTreeMap<Grantee, BTreeSet<String>>;

/// The text of zfs(8).
fn format_level(level: &DatasetPermissions) -> String {
    let title = format!("---- Permissions on {} ", level.dataset);
    let mut text = format!("{title:-<TITLE_WIDTH$}\n");
    let [mut sets, mut created, mut local, mut descendent, mut both] =
        [(); 5].map(|()| Lines::new());
    for (key, names) in &level.entries {
        let Some(DelegationKey { grantee, scope, .. }) = DelegationKey::parse(key) else {
            continue;
        };
        let lines = match (&grantee, scope) {
            (Grantee::Set(_), _) => &mut sets,
            (Grantee::Creator, _) => &mut created,
            (_, DelegationScope::Local) => &mut local,
            _ => &mut descendent,
        };
        lines.entry(grantee).or_default().extend(names.iter().cloned());
    }
    // a subject with the same permissions on the dataset and below is printed once
    local.retain(|grantee, names| {
        let same = descendent.get(grantee) == Some(names);
        if same {
            descendent.remove(grantee);
            both.insert(grantee.clone(), names.clone());
        }
        !same
    });
    for (title, lines) in [
        ("Permission sets", sets),
        ("Create time permissions", created),
        ("Local permissions", local),
        ("Descendent permissions", descendent),
        ("Local+Descendent permissions", both),
    ] {
        if !lines.is_empty() {
            text.extend([title, ":\n"]);
        }
        for (grantee, names) in lines {
            let names = Vec::from_iter(names).join(",");
            text += &format!("\t{}{names}\n", name_of(&grantee));
        }
    }
    text
}

/// A grantee in words, with a space behind; nothing for creators.
fn name_of(grantee: &Grantee) -> String {
    match grantee {
        Grantee::User(uid) => {
            let id = u32::try_from(*uid).ok().map(nix::unistd::Uid::from_raw);
            let user = id.and_then(|id| nix::unistd::User::from_uid(id).ok().flatten());
            format!("user {} ", user.map_or_else(|| uid.to_string(), |user| user.name))
        }
        Grantee::Group(gid) => {
            let id = u32::try_from(*gid).ok().map(nix::unistd::Gid::from_raw);
            let group = id.and_then(|id| nix::unistd::Group::from_gid(id).ok().flatten());
            format!("group {} ", group.map_or_else(|| gid.to_string(), |group| group.name))
        }
        Grantee::Everyone => "everyone ".to_owned(),
        Grantee::Creator => String::new(),
        Grantee::Set(name) => format!("{name} "),
    }
}

#[cfg(test)]
mod tests {
    use api::DatasetPermissions;

    use super::format_level;

    #[test]
    fn permissions_are_shown_as_zfs_does() {
        let entry = |(key, names): (&str, &[&str])| {
            (key.to_owned(), names.iter().map(|name| (*name).to_owned()).collect())
        };
        let entries: [(&str, &[&str]); 7] = [
            ("s-$@backup", &["hold", "send"]),
            ("c-$", &["destroy"]),
            ("ul$0", &["mount"]),
            ("ud$0", &["mount"]),
            ("Ud$0", &[]),
            ("el$", &["snapshot"]),
            ("gd$4000000", &["clone"]),
        ];
        let level = DatasetPermissions {
            dataset: "tank/a".to_owned(),
            entries: entries.map(entry).to_vec(),
        };
        let wanted = "---- Permissions on tank/a -------------------------------------------\n\
            Permission sets:\n\t@backup hold,send\n\
            Create time permissions:\n\tdestroy\n\
            Local permissions:\n\teveryone snapshot\n\
            Descendent permissions:\n\tgroup 4000000 clone\n\
            Local+Descendent permissions:\n\tuser root mount\n";
        assert_eq!(format_level(&level), wanted);
    }
}
