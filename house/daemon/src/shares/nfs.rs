//! NFS shares: file systems for Unix clients.
//!
//! ```toml
//! [[share]]
//! protocol = "nfs"
//! dataset = "tank/media"
//! path = "/media"              # what clients mount; without it the mountpoint
//! networks = "10.0.0.0/24"     # clients that may read and write, also by name; without it this machine alone
//! read_only_networks = "*"     # further clients that may only read
//! squash = "root"              # root, all or none: which users of clients become the anonymous user
//! anonuid = 65534
//! anongid = 65534
//! privileged_ports = true      # refuse clients with a source port above 1023
//! ```
//!
//! The property sharenfs has the grammar of OpenZFS on Linux:
//!
//! ```text
//! on | off | OPTION[,OPTION]...
//! rw[=HOST[:HOST]...]   ro[=HOST[:HOST]...]     @NETWORK/LENGTH, ADDRESS, [IPV6], NAME, PATTERN or *
//! sec=FLAVOR[:FLAVOR]...   root_squash   no_root_squash   all_squash   no_all_squash
//! anonuid=UID   anongid=GID   anon=UID   secure   insecure
//! ```
//!
//! Options of exports(5) that change nothing for this server are accepted and ignored.

use nfs::Clients;
use serde::Deserialize;

use super::clients::{ClientList, parse_clients};

/// The user and group id of the anonymous user.
const NOBODY: u32 = 65534;

/// Options of exports(5) without effect here: writes are as stable as the protocol requires, and
/// file handles do not depend on directories.
#[rustfmt::skip] // a table
pub(super) const IGNORED: [&str; 20] = [
    "sync", "async", "wdelay", "no_wdelay", "hide", "nohide", "crossmnt", "subtree_check",
    "no_subtree_check", "secure_locks", "insecure_locks", "auth_nlm", "no_auth_nlm", "acl", "no_acl",
    "mountpoint", "mp", "fsid", "pnfs", "no_pnfs",
];
/// Options of exports(5) that this server cannot honour.
const UNSUPPORTED: [&str; 3] = ["refer", "replicas", "root_mapping"];
/// Security flavors; the server has the first one.
const FLAVORS: [&str; 6] = ["sys", "none", "krb5", "krb5i", "krb5p", "dh"];

/// The fields of `[[share]]` for NFS.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NfsFields {
    /// The path that clients mount; without it the mountpoint.
    pub(crate) path: Option<String>,
    networks: Option<ClientList>,
    read_only_networks: Option<ClientList>,
    #[serde(default)]
    squash: Squash,
    #[serde(default = "nobody")]
    anonuid: u32,
    #[serde(default = "nobody")]
    anongid: u32,
    #[serde(default)]
    privileged_ports: bool,
}

/// The users of clients that become the anonymous user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Squash {
    /// The user 0.
    #[default]
    Root,
    /// Every user.
    All,
    /// The user nobody.
    None,
}

/// The way in which a file system is served by NFS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NfsOptions {
    /// The clients that may use it. Of several rules for a client, one with its name counts, then that with the longest
    /// prefix.
    pub(crate) rules: Vec<NfsRule>,
    /// The users of clients that become the anonymous user.
    pub(crate) squash: Squash,
    /// The user id of the anonymous user.
    pub(crate) anonuid: u32,
    /// The group id of the anonymous user.
    pub(crate) anongid: u32,
    /// Clients must have a source port below 1024, which only their root can take.
    pub(crate) privileged_ports: bool,
}

/// Clients and their access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NfsRule {
    /// The clients.
    pub(crate) clients: Clients,
    /// They may not write.
    pub(crate) read_only: bool,
}

const fn nobody() -> u32 {
    NOBODY
}

impl NfsFields {
    /// Refuses paths that no client can mount.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Some(path) = &self.path else { return Ok(()) };
        let is_clean = |path: &str| {
            path.split('/').skip(1).all(|part| !matches!(part, "" | "." | "..")) || path == "/"
        };
        if path.starts_with('/') && is_clean(path) && path.len() <= 1024 {
            return Ok(());
        }
        Err(format!("\"{path}\" is not a path that clients can mount, such as \"/media\""))
    }

    /// The path, if it is given, and the options.
    pub(crate) fn resolve(self) -> (Option<String>, NfsOptions) {
        let is_closed = self.networks.is_none() && self.read_only_networks.is_none();
        let writers = self.networks.or_else(|| is_closed.then(ClientList::loopback));
        let rules = |clients: Option<ClientList>, read_only| {
            let clients = clients.as_ref().map_or(&[][..], ClientList::as_slice).to_vec();
            clients.into_iter().map(move |clients| NfsRule { clients, read_only })
        };
        let rules = rules(writers, false).chain(rules(self.read_only_networks, true)).collect();
        let options = NfsOptions {
            rules,
            squash: self.squash,
            anonuid: self.anonuid,
            anongid: self.anongid,
            privileged_ports: self.privileged_ports,
        };
        (self.path, options)
    }
}

/// The options of the property sharenfs; nothing: it is off.
pub(crate) fn parse_sharenfs(value: &str) -> Result<Option<NfsOptions>, String> {
    let mut options = NfsOptions {
        rules: Vec::new(),
        squash: Squash::Root,
        anonuid: NOBODY,
        anongid: NOBODY,
        privileged_ports: true,
    };
    let words = match value {
        "off" => return Ok(None),
        "on" => "rw",
        words => words,
    };
    for word in words.split(',') {
        let (name, argument) = match word.split_once('=') {
            Some((name, argument)) => (name, Some(argument)),
            None => (word, None),
        };
        apply_option(&mut options, name, argument)?;
    }
    if options.rules.is_empty() {
        return Err("it names no clients: rw or ro opens it to all, rw=@10.0.0.0/24 to a network"
            .to_owned());
    }
    Ok(Some(options))
}

fn apply_option(
    options: &mut NfsOptions,
    name: &str,
    argument: Option<&str>,
) -> Result<(), String> {
    let id = || {
        let number = argument.and_then(|text| text.parse().ok());
        number.ok_or_else(|| format!("{name} wants a user or group id: {name}=1000"))
    };
    match name {
        "rw" | "ro" => {
            for host in split_hosts(argument.unwrap_or("*")) {
                let clients = parse_clients(&host).map_err(|why| format!("{name}: {why}"))?;
                let rule = |clients| NfsRule { clients, read_only: name == "ro" };
                options.rules.extend(clients.into_iter().map(rule));
            }
        }
        "sec" => check_flavors(argument.unwrap_or_default())?,
        "root_squash" => options.squash = Squash::Root,
        "all_squash" => options.squash = Squash::All,
        "no_root_squash" => options.squash = Squash::None,
        "no_all_squash" if options.squash == Squash::All => options.squash = Squash::Root,
        "no_all_squash" => (),
        "anonuid" | "anon" => options.anonuid = id()?,
        "anongid" => options.anongid = id()?,
        "secure" => options.privileged_ports = true,
        "insecure" => options.privileged_ports = false,
        name if IGNORED.contains(&name) => (),
        name if UNSUPPORTED.contains(&name) => {
            return Err(format!("this NFS server does not have the option {name}"));
        }
        name => return Err(format!("there is no option '{name}'")),
    }
    Ok(())
}

/// The hosts of a list with colons. An IPv6 address is in brackets, as a list of characters of a pattern is; `@` marks a
/// network, or a netgroup.
fn split_hosts(list: &str) -> Vec<String> {
    let (mut hosts, mut is_in_brackets) = (vec![String::new()], false);
    for c in list.chars() {
        is_in_brackets = if is_in_brackets { c != ']' } else { c == '[' };
        match c {
            ':' if !is_in_brackets => hosts.push(String::new()),
            c => hosts.last_mut().expect("it begins with one").push(c),
        }
    }
    for address in hosts.iter_mut().filter(|host| host.contains(':')) {
        address.retain(|c| !['[', ']'].contains(&c));
    }
    let is_network =
        |host: &str| host.contains(['.', '/']) || !host.contains(|c: char| c.is_alphabetic());
    let network = |host: &String| match host.strip_prefix('@') {
        Some(network) if is_network(network) => network.to_owned(),
        _ => host.clone(),
    };
    hosts.iter().map(network).collect()
}

/// Refuses a list without sec=sys: a share for Kerberos alone is not opened without it.
fn check_flavors(list: &str) -> Result<(), String> {
    let mut flavors = list.split(':');
    if let Some(unknown) = flavors.clone().find(|flavor| !FLAVORS.contains(flavor)) {
        return Err(format!("there is no security flavor '{unknown}'"));
    }
    if flavors.any(|flavor| flavor == "sys") {
        return Ok(());
    }
    Err(format!("sec={list}: this NFS server has sec=sys only"))
}

#[cfg(test)]
mod tests {
    use super::{NfsOptions, Squash, parse_sharenfs};

    fn parsed(value: &str) -> NfsOptions {
        parse_sharenfs(value).unwrap().unwrap()
    }

    fn rules(value: &str) -> Vec<String> {
        let word = |read_only| if read_only { "ro" } else { "rw" };
        let rules = parsed(value).rules.into_iter();
        rules.map(|rule| format!("{} {}", word(rule.read_only), rule.clients)).collect()
    }

    #[test]
    fn sharenfs_has_the_grammar_of_openzfs() {
        assert_eq!(parse_sharenfs("off"), Ok(None));
        assert_eq!(rules("on"), ["rw 0.0.0.0/0", "rw ::/0"]);
        assert_eq!(rules("rw=mac.lan:10.0.0.1,ro=tv"), ["rw mac.lan", "rw 10.0.0.1/32", "ro tv"]);
        assert_eq!(rules("rw=*.lan:pc[1-4].lan"), ["rw *.lan", "rw pc[1-4].lan"]);
        assert_eq!(rules("rw=@staff:@10.0.0.0/24"), ["rw @staff", "rw 10.0.0.0/24"]);
        let value = "rw=@10.0.0.0/24:10.1.1.7,ro=[fd00::1/64]:@[fe80::]/10:*,sec=krb5:sys";
        assert_eq!(
            rules(value),
            [
                "rw 10.0.0.0/24",
                "rw 10.1.1.7/32",
                "ro fd00::/64",
                "ro fe80::/10",
                "ro 0.0.0.0/0",
                "ro ::/0"
            ]
        );
        let options = parsed("ro,no_root_squash,anonuid=7,anongid=8,insecure,crossmnt,fsid=0");
        assert_eq!((options.anonuid, options.anongid), (7, 8));
        assert!(options.squash == Squash::None && !options.privileged_ports);
        assert_eq!(parsed("rw,all_squash,no_all_squash").squash, Squash::Root);
    }

    #[test]
    fn options_that_cannot_be_honoured_are_refused() {
        for (value, why) in [
            ("rw,colour=red", "there is no option 'colour'"),
            ("root_squash", "it names no clients"),
            ("rw=@st@ff", "\"@st@ff\" is neither a network nor a netgroup"),
            ("rw,sec=krb5", "sec=sys only"),
            ("rw,sec=rot13", "no security flavor 'rot13'"),
            ("rw,anonuid=anna", "wants a user or group id"),
            ("rw,refer=/a@b", "does not have the option refer"),
            ("", "there is no option ''"),
        ] {
            let found = parse_sharenfs(value).unwrap_err();
            assert!(found.contains(why), "{value}: {found}");
        }
    }
}
