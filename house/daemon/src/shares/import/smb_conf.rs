//! `smb.conf` of Samba, as smb.conf(5) describes it.
//!
//! ```text
//! [global]             defaults of all shares
//! [NAME]
//!   option = value     ; or # begins a comment line; a line that ends with \ continues in the next one
//! ```
//!
//! Names of options have neither case nor spaces, and several have synonyms.

use std::collections::BTreeMap;
use std::path::PathBuf;

use api::Protocol;

use super::chap::FoundChap;
use super::{Found, FoundShare, Skipped, field, quoted, quoted_list};
use crate::shares::networks::parse_networks;

/// Sections that are not shares of directories.
const SPECIAL: [&str; 4] = ["global", "homes", "printers", "print$"];
/// Synonyms of options, and the names that count here. Spaces are removed.
#[rustfmt::skip] // a table
const SYNONYMS: [(&str, &str); 9] = [
    ("directory", "path"), ("writeable", "writable"), ("writeok", "writable"),
    ("browsable", "browseable"), ("public", "guestok"), ("allowhosts", "hostsallow"),
    ("denyhosts", "hostsdeny"), ("validuser", "validusers"), ("casesignames", "casesensitive"),
];
/// Options that restrict access, or that change whose rights clients have. A share with one of them
/// is not imported.
#[rustfmt::skip] // a table
const RESTRICTIVE: [&str; 12] = [
    "invalidusers", "readlist", "writelist", "adminusers", "hostsdeny", "forceuser", "forcegroup",
    "group", "guestonly", "onlyguest", "copy", "include",
];
/// Options with a meaning here.
#[rustfmt::skip] // a table
const KNOWN: [&str; 8] = [
    "path", "readonly", "writable", "validusers", "hostsallow", "browseable", "guestok", "fruit:timemachine",
];

/// The options of a section, by their names here.
type Options = BTreeMap<String, String>;

/// Reads a file.
pub(super) fn parse(text: &str) -> Found {
    let mut sections: Vec<(String, Options)> = Vec::new();
    for line in joined_lines(text) {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            sections.push((name.trim().to_owned(), Options::new()));
        } else if let (Some((name, value)), Some((_, options))) =
            (line.split_once('='), sections.last_mut())
        {
            options.insert(option_name(name), value.trim().to_owned());
        }
    }
    let is_global = |name: &str| name.eq_ignore_ascii_case("global");
    let defaults = sections.iter().find(|(name, _)| is_global(name)).map(|(_, options)| options);
    let defaults = defaults.cloned().unwrap_or_default();
    let shares = sections.into_iter().filter(|(name, _)| !is_global(name));
    shares.map(|(name, options)| read_share(&name, options, &defaults)).collect()
}

fn joined_lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut continues = false;
    for line in text.lines() {
        let (part, goes_on) = match line.strip_suffix('\\') {
            Some(part) => (part, true),
            None => (line, false),
        };
        match lines.last_mut().filter(|_| continues) {
            Some(whole) => whole.push_str(part),
            None => lines.push(part.to_owned()),
        }
        continues = goes_on;
    }
    lines
}

fn option_name(name: &str) -> String {
    let name: String = name.chars().filter(|c| !c.is_whitespace()).collect();
    let name = name.to_lowercase();
    let synonym = SYNONYMS.iter().find(|(synonym, _)| *synonym == name);
    synonym.map_or(name.clone(), |(_, known)| (*known).to_owned())
}

fn read_share(name: &str, own: Options, defaults: &Options) -> Result<FoundShare, Skipped> {
    let origin = format!("[{name}]");
    let skip = |why: &str| (origin.clone(), why.to_owned());
    if SPECIAL.iter().any(|special| special.eq_ignore_ascii_case(name)) {
        return Err(skip("it is not a share of one directory"));
    }
    let ignored = own.keys().filter(|it| !KNOWN.contains(&it.as_str())).cloned().collect();
    // options of [global] are the defaults of all shares
    let mut options = defaults.clone();
    options.extend(own);
    if let Some(option) = RESTRICTIVE.iter().find(|option| options.contains_key(**option)) {
        let why = format!("it has '{option}', which [[share]] does not have: add it by hand");
        return Err(skip(&why));
    }
    if options.get("available").is_some_and(|value| !is_on(value)) {
        return Err(skip("it is not available"));
    }
    let path = options.get("path").map(|path| path.trim_matches('"'));
    let path = path.ok_or_else(|| skip("it has no path"))?;
    if path.contains('%') {
        return Err(skip("its path has a variable, and [[share]] has one file system for all"));
    }
    let fields = share_options(name, &options).map_err(|why| skip(&why))?;
    let path = PathBuf::from(path.trim_end_matches('/'));
    Ok(FoundShare {
        origin,
        protocol: Protocol::Smb,
        path,
        options: fields,
        ignored,
        chap: FoundChap::default(),
    })
}

fn share_options(name: &str, options: &Options) -> Result<Vec<(String, String)>, String> {
    let mut fields = vec![field("name", quoted(name))];
    let flag = |option: &str| options.get(option).map(|value| is_on(value));
    let is_read_only = flag("readonly").or_else(|| flag("writable").map(|writes| !writes));
    // Samba's default
    if is_read_only.unwrap_or(true) {
        fields.push(field("read_only", "true"));
    }
    if let Some(users) = options.get("validusers").filter(|users| !users.is_empty()) {
        let users: Vec<&str> = words(users).collect();
        if let Some(other) = users.iter().find(|user| user.starts_with(['@', '+', '&', '%'])) {
            return Err(format!(
                "its valid users have '{other}', and [[share]] has users alone: name them, and import \
                 again"
            ));
        }
        fields.push(field("users", quoted_list(users)));
    }
    if let Some(hosts) = options.get("hostsallow").filter(|hosts| !hosts.is_empty()) {
        let networks = words(hosts).map(network_of).collect::<Result<Vec<_>, _>>()?;
        fields.push(field("networks", quoted_list(networks.iter().map(String::as_str))));
    }
    let flags = [
        ("hidden", flag("browseable").map(|is_shown| !is_shown)),
        ("guest", flag("guestok")),
        ("time_machine", flag("fruit:timemachine")),
    ];
    for (name, _) in flags.into_iter().filter(|(_, flag)| *flag == Some(true)) {
        fields.push(field(name, "true"));
    }
    Ok(fields)
}

fn words(value: &str) -> impl Iterator<Item = &str> {
    value.split([',', ' ', '\t']).map(|word| word.trim_matches('"')).filter(|word| !word.is_empty())
}

fn is_on(value: &str) -> bool {
    ["yes", "true", "1", "on"].iter().any(|word| value.eq_ignore_ascii_case(word))
}

/// A network of `hosts allow`: an address, a network, or the start of an address, such as `192.168.1.`.
fn network_of(host: &str) -> Result<String, String> {
    if host.eq_ignore_ascii_case("all") {
        return Ok("*".to_owned());
    }
    let parts: Vec<&str> = host.split('.').collect();
    if let ([start @ .., ""], true) = (&parts[..], (2..=4).contains(&parts.len())) {
        let zeros = std::iter::repeat_n("0", 4 - start.len());
        let address: Vec<&str> = start.iter().copied().chain(zeros).collect();
        let network = format!("{}/{}", address.join("."), 8 * start.len());
        if parse_networks(&network).is_ok() {
            return Ok(network);
        }
    }
    parse_networks(host).map(|_| host.to_owned()).map_err(|_| {
        format!(
            "its hosts allow has '{host}': [[share]] has addresses and networks alone. Write the \
             address there and import again"
        )
    })
}
