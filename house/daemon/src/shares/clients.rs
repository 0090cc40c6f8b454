//! The clients of an NFS share: networks as in `networks`, names of hosts, patterns of names, and netgroups.
//!
//! ```toml
//! networks = "10.0.0.0/24"
//! networks = ["192.168.1.7", "mac.lan"]    # the server looks the name up, again and again
//! networks = "*.lan"                       # hosts whose address has such a name, which leads to that address
//! networks = "pc[1-4].lan"                 # the same, with a list of characters
//! networks = "@staff"                      # the hosts of a netgroup of the system's name service
//! ```

use std::net::IpAddr;

use nfs::Clients;
use serde::Deserialize;

use super::networks::{Networks, Words, parse_networks};

/// A list of clients.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Words")]
pub(crate) struct ClientList(Vec<Clients>);

impl ClientList {
    /// This machine alone.
    pub(crate) fn loopback() -> Self {
        Self(Networks::loopback().as_slice().iter().copied().map(Clients::Network).collect())
    }

    /// The clients.
    pub(crate) fn as_slice(&self) -> &[Clients] {
        &self.0
    }
}

impl TryFrom<Words> for ClientList {
    type Error = String;

    fn try_from(Words(words): Words) -> Result<Self, String> {
        let all = words.iter().map(|word| parse_clients(word)).collect::<Result<Vec<_>, _>>()?;
        Ok(Self(all.concat()))
    }
}

/// Parses `ADDRESS`, `ADDRESS/LENGTH`, `*`, the name of a host, a pattern such as `*.lan`, or a netgroup such as `@staff`.
pub(crate) fn parse_clients(text: &str) -> Result<Vec<Clients>, String> {
    match parse_networks(text) {
        Ok(networks) => return Ok(networks.into_iter().map(Clients::Network).collect()),
        // digits and colons are a mistyped address, and a slash is a network
        Err(why) if !is_host_name(text) && !text.contains(PATTERN) && !text.starts_with('@') => {
            return Err(why);
        }
        Err(_) => {}
    }
    if let Some(group) = text.strip_prefix('@') {
        if !is_group_name(group) {
            return Err(format!(
                "\"{text}\" is neither a network nor a netgroup, such as \"@staff\""
            ));
        }
        return Ok(vec![Clients::Netgroup(group.to_owned())]);
    }
    if !text.contains(PATTERN) {
        return Ok(vec![Clients::Host(text.to_ascii_lowercase())]);
    }
    let plain = without_lists(text).map(|text| text.replace(['*', '?'], "a"));
    if !plain.is_some_and(|text| is_host_name(&text)) {
        return Err(format!("\"{text}\" is not a pattern of names, such as \"*.lan\""));
    }
    Ok(vec![Clients::Pattern(text.trim_end_matches('.').to_ascii_lowercase())])
}

/// The characters of patterns.
const PATTERN: [char; 3] = ['*', '?', '['];

/// A pattern with a letter in place of each list of characters; none: a list has no end, or strange members.
fn without_lists(text: &str) -> Option<String> {
    let mut lists = text.split('[');
    let mut plain = lists.next()?.to_owned();
    for list in lists {
        let (members, rest) = list.split_once(']')?;
        let members = members.strip_prefix(['!', '^']).unwrap_or(members);
        let is_member = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if members.is_empty() || !members.bytes().all(is_member) {
            return None;
        }
        plain.push('a');
        plain.push_str(rest);
    }
    Some(plain)
}

/// Whether a text may be the name of a netgroup.
fn is_group_name(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let has_letter = text.bytes().any(|byte| byte.is_ascii_alphabetic());
    has_letter && text.len() <= 255 && !text.starts_with('-') && text.bytes().all(is_part)
}

/// Whether a text may be the name of a host: labels of letters, digits and hyphens, of which the last has a letter.
fn is_host_name(text: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    let name = text.strip_suffix('.').unwrap_or(text);
    let last = name.rsplit('.').next().unwrap_or(name);
    name.len() <= 253
        && name.split('.').all(is_label)
        && last.bytes().any(|byte| byte.is_ascii_alphabetic())
        && text.parse::<IpAddr>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_networks_or_host_names() {
        let parsed = |text: &str| -> Vec<String> {
            parse_clients(text).unwrap().iter().map(ToString::to_string).collect()
        };
        assert_eq!(parsed("10.0.0.7"), ["10.0.0.7/32"]);
        assert_eq!(parsed("*"), ["0.0.0.0/0", "::/0"]);
        for name in ["nas", "mac.lan", "a-1.b_c.example."] {
            assert_eq!(parse_clients(name), Ok(vec![Clients::Host(name.to_owned())]));
        }
        assert_eq!(parsed("Mac.LAN"), ["mac.lan"]);
        for pattern in ["*.lan", "pc-?", "a*.*.example", "pc[1-4].lan", "*.[!ab]x.lan"] {
            assert_eq!(parse_clients(pattern), Ok(vec![Clients::Pattern(pattern.to_owned())]));
        }
        for group in ["staff", "Lab-2_b.c"] {
            let text = format!("@{group}");
            assert_eq!(parse_clients(&text), Ok(vec![Clients::Netgroup(group.to_owned())]));
            assert_eq!(parsed(&text), [text]);
        }
        for (text, why) in [
            ("@", "nor a netgroup"),
            ("@-a", "nor a netgroup"),
            ("@a b", "nor a netgroup"),
            ("@10.0.0.300", "nor a netgroup"),
            ("*.l n", "is not a pattern"),
            ("*.[ab.lan", "is not a pattern"),
            ("*.[].lan", "is not a pattern"),
            ("pc[a/b].lan", "is not a pattern"),
            ("10.0.0.300", "is not a network"),
            ("10.0.0.0/40", "is not a network"),
            ("a b", "is not a network"),
            ("-a", "is not a network"),
            ("a..b", "is not a network"),
            ("", "is not a network"),
        ] {
            let found = parse_clients(text).unwrap_err();
            assert!(found.contains(why), "{text}: {found}");
        }
    }
}
