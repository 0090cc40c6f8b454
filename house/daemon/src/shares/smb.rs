//! SMB shares: file systems for Windows, macOS and Linux clients.
//!
//! ```toml
//! [[share]]
//! protocol = "smb"
//! dataset = "tank/photos"      # a mounted file system
//! name = "photos"              # without it the last part of the name of the dataset
//! users = ["anna", "ben"]      # without it every Poolhouse user
//! networks = "192.168.1.0/24"  # without it every client; a user and a password are wanted anyway
//! read_only = true
//! hidden = true                # it is not listed, but can be opened by its name
//! guest = true                 # without a password, as the system user "nobody"
//! nfs4_acls = true             # permissions of Windows are the NFSv4 ACLs of the files (acltype=nfsv4)
//! time_machine = true          # a Mac of the one user backs up here, up to the quota of the dataset
//! ```
//!
//! The property sharesmb is `on` or `off`, as with OpenZFS on Linux; its share has the name of the dataset, in
//! which `_` replaces what a name of a share cannot have.

use serde::Deserialize;

use super::DatasetFacts;
use super::networks::{Networks, Words};

/// The longest name of a share that all clients can open, in characters.
const MAX_NAME: usize = 80;
/// Names of shares that servers use themselves.
const RESERVED_NAMES: [&str; 5] = ["global", "homes", "printers", "print$", "ipc$"];

/// The fields of `[[share]]` for SMB.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of the configuration")]
pub(crate) struct SmbFields {
    /// The name of the share; without it the last part of the name of the dataset.
    pub(crate) name: Option<String>,
    #[serde(default)]
    users: Words,
    #[serde(default = "Networks::all")]
    networks: Networks,
    #[serde(default)]
    read_only: bool,
    #[serde(default)]
    hidden: bool,
    #[serde(default)]
    guest: bool,
    #[serde(default)]
    pub(crate) nfs4_acls: bool,
    #[serde(default)]
    time_machine: bool,
}

/// The way in which a file system is served by SMB.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub(crate) struct SmbOptions {
    /// The Poolhouse users that may use it; none: all.
    pub(crate) users: Vec<String>,
    /// The networks whose clients may use it.
    pub(crate) networks: Networks,
    /// Clients may not write.
    pub(crate) read_only: bool,
    /// It is not in the list of shares.
    pub(crate) hidden: bool,
    /// It can be used without a password.
    pub(crate) guest: bool,
    /// It is a destination of Time Machine.
    pub(crate) time_machine: bool,
    /// Permissions of Windows are the NFSv4 ACLs of the files.
    pub(crate) nfs4_acls: bool,
    /// The most bytes that a Mac may use for backups; none: the dataset has no quota.
    pub(crate) max_size: Option<u64>,
}

impl SmbFields {
    /// Refuses invalid share names, and backups without a user.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.time_machine && (self.users.0.len() != 1 || self.guest || self.read_only) {
            return Err("time_machine = true: the share belongs to one user, who may write: \
                        users = \"NAME\", neither guest nor read_only"
                .to_owned());
        }
        let Some(name) = &self.name else { return Ok(()) };
        if is_share_name(name) {
            return Ok(());
        }
        Err(format!(
            "\"{name}\" cannot be the name of an SMB share: it has 1 to {MAX_NAME} characters, none of \
             \\ / [ ] : | < > + = ; , * ? \" %, and is not a name that servers use themselves"
        ))
    }

    /// The user whose Mac backs up to the share; none: it is an ordinary share.
    pub(crate) fn time_machine_user(&self) -> Option<&str> {
        self.users.0.first().filter(|_| self.time_machine).map(String::as_str)
    }

    /// The name of the share of a dataset.
    pub(crate) fn share_name(&self, dataset: &str) -> String {
        let last = dataset.rsplit('/').next().unwrap_or(dataset);
        self.name.clone().unwrap_or_else(|| valid_name(last))
    }

    /// The name of the share and the options.
    pub(crate) fn resolve(self, dataset: &DatasetFacts) -> (String, SmbOptions) {
        let name = self.share_name(&dataset.name);
        let options = SmbOptions {
            users: self.users.0,
            networks: self.networks,
            read_only: self.read_only,
            hidden: self.hidden,
            guest: self.guest,
            time_machine: self.time_machine,
            nfs4_acls: self.nfs4_acls,
            max_size: dataset.quota.filter(|_| self.time_machine),
        };
        (name, options)
    }
}

/// The share that the property sharesmb makes of a file system; nothing: it is off.
pub(crate) fn parse_sharesmb(
    dataset: &DatasetFacts,
    value: &str,
) -> Result<Option<(String, SmbOptions)>, String> {
    match value {
        "off" => Ok(None),
        "on" => {
            let options = SmbOptions {
                users: Vec::new(),
                networks: Networks::all(),
                read_only: false,
                hidden: false,
                guest: false,
                time_machine: false,
                nfs4_acls: false,
                max_size: None,
            };
            Ok(Some((valid_name(&dataset.name), options)))
        }
        _ => {
            Err("on and off are known; [[share]] in the configuration has more options".to_owned())
        }
    }
}

fn is_name_character(c: char) -> bool {
    !c.is_control() && !r#"\/[]:|<>+=;,*?"%"#.contains(c)
}

fn is_share_name(name: &str) -> bool {
    let length = name.chars().count();
    (1..=MAX_NAME).contains(&length)
        && name.chars().all(is_name_character)
        && name.trim() == name
        && !RESERVED_NAMES.contains(&name.to_lowercase().as_str())
}

/// A name with `_` for the characters that a name of a share cannot have.
fn valid_name(name: &str) -> String {
    let valid: String =
        name.chars().map(|c| if is_name_character(c) { c } else { '_' }).take(MAX_NAME).collect();
    if is_share_name(&valid) { valid } else { format!("{}_", valid.trim()) }
}

#[cfg(test)]
mod tests {
    use super::{is_share_name, parse_sharesmb, valid_name};
    use crate::shares::DatasetFacts;

    #[test]
    fn sharesmb_is_on_or_off() {
        let dataset = DatasetFacts { name: "tank/a b".to_owned(), ..DatasetFacts::default() };
        assert_eq!(parse_sharesmb(&dataset, "off"), Ok(None));
        let (name, options) = parse_sharesmb(&dataset, "on").unwrap().unwrap();
        assert!(name == "tank_a b" && !options.guest && options.users.is_empty());
        assert!(parse_sharesmb(&dataset, "guestok=true").is_err());
    }

    #[test]
    fn names_that_clients_cannot_open_are_refused() {
        assert!(
            is_share_name("photos") && is_share_name("Time Machine") && is_share_name("hidden$")
        );
        for name in ["", "a/b", "a]", "Global", "IPC$", " a", "a\n", &"x".repeat(81)] {
            assert!(!is_share_name(name), "{name}");
        }
        assert_eq!((valid_name("homes").as_str(), valid_name("a:b").as_str()), ("homes_", "a_b"));
    }
}
