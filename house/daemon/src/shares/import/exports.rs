//! `/etc/exports` of the kernel's NFS server, as exports(5) describes it.
//!
//! ```text
//! # comment
//! DIRECTORY [-OPTIONS] CLIENT[(OPTIONS)]...     a line that ends with \ continues in the next one
//! "/with space"  /with\040space                 names with spaces
//! ```
//!
//! Without options a client may only read, its root is squashed, and its source port must be below 1024.

use std::path::PathBuf;

use api::Protocol;
use ipnet::{IpNet, Ipv4Net};

use super::chap::FoundChap;
use super::{Found, FoundShare, Skipped, field, quoted_list};
use crate::shares::clients::parse_clients;
use crate::shares::nfs::IGNORED;

/// The options of a client, as they count.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ClientOptions {
    writes: bool,
    settings: Settings,
}

/// Options that a `[[share]]` has for all its clients.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Settings {
    squashes_root: bool,
    squashes_all: bool,
    anonuid: u32,
    anongid: u32,
    privileged_ports: bool,
}

const NOBODY: u32 = 65534;

/// Reads a file.
pub(super) fn parse(text: &str) -> Found {
    let lines = joined_lines(text).into_iter();
    lines.filter_map(|(number, line)| parse_line(number, &line).transpose()).collect()
}

/// The lines with their numbers, continued ones joined, without comments.
fn joined_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut continues = false;
    for (at, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let (part, goes_on) = match line.strip_suffix('\\') {
            Some(part) => (part, true),
            None => (line, false),
        };
        match lines.last_mut().filter(|_| continues) {
            Some((_, whole)) => whole.push_str(part),
            None => lines.push((at + 1, part.to_owned())),
        }
        continues = goes_on;
    }
    lines
}

fn parse_line(number: usize, line: &str) -> Result<Option<FoundShare>, Skipped> {
    let origin = format!("line {number}");
    let skip = |why: String| (origin.clone(), why);
    let words = split_words(line).map_err(skip)?;
    let Some((path, clients)) = words.split_first() else { return Ok(None) };
    let mut defaults = Vec::new();
    let (mut writers, mut readers) = (Vec::new(), Vec::new());
    let mut settings: Option<Settings> = None;
    let mut ignored = Vec::new();
    for client in clients {
        if let Some(options) = client.strip_prefix('-') {
            defaults.push(options.to_owned());
            continue;
        }
        let (host, own) = match client.split_once('(') {
            Some((host, own)) => (host, own.trim_end_matches(')')),
            None => (client.as_str(), ""),
        };
        let options = defaults.iter().map(String::as_str).chain([own]);
        let options = client_options(options, &mut ignored).map_err(skip)?;
        let network = network_of(host).map_err(skip)?;
        if settings.as_ref().is_some_and(|known| *known != options.settings) {
            return Err(skip(
                "its clients have different options of squashing or ports, and a [[share]] has one \
                 for all: add it by hand"
                    .to_owned(),
            ));
        }
        settings = Some(options.settings);
        if options.writes { &mut writers } else { &mut readers }.push(network);
    }
    let Some(settings) = settings else { return Err(skip("it names no clients".to_owned())) };
    let options = share_options(&writers, &readers, &settings);
    let (protocol, path) = (Protocol::Nfs, PathBuf::from(path));
    Ok(Some(FoundShare { origin, protocol, path, options, ignored, chap: FoundChap::default() }))
}

/// Splits a line at spaces that are neither quoted nor in parentheses.
fn split_words(line: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word) = (Vec::new(), String::new());
    let mut is_quoted = false;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' => is_quoted = !is_quoted,
            '\\' => {
                let digits: String = (0..3).filter_map(|_| chars.next()).collect();
                let code = u8::from_str_radix(&digits, 8).ok().filter(u8::is_ascii);
                word.push(char::from(code.ok_or(format!("\\{digits} is not an octal number"))?));
            }
            c if c.is_whitespace() && !is_quoted => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            c => word.push(c),
        }
    }
    if is_quoted {
        return Err("a quotation mark is not closed".to_owned());
    }
    if !word.is_empty() {
        words.push(word);
    }
    Ok(words)
}

fn client_options<'a>(
    lists: impl Iterator<Item = &'a str>,
    ignored: &mut Vec<String>,
) -> Result<ClientOptions, String> {
    let settings = Settings {
        squashes_root: true,
        squashes_all: false,
        anonuid: NOBODY,
        anongid: NOBODY,
        privileged_ports: true,
    };
    let mut options = ClientOptions { writes: false, settings };
    for word in lists.flat_map(|list| list.split(',')).map(str::trim).filter(|it| !it.is_empty()) {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let id = || value.parse().map_err(|_| format!("{word}: a number is expected"));
        let settings = &mut options.settings;
        match name {
            "rw" => options.writes = true,
            "ro" => options.writes = false,
            "root_squash" => settings.squashes_root = true,
            "no_root_squash" => settings.squashes_root = false,
            "all_squash" => settings.squashes_all = true,
            "no_all_squash" => settings.squashes_all = false,
            "secure" => settings.privileged_ports = true,
            "insecure" => settings.privileged_ports = false,
            "anonuid" => settings.anonuid = id()?,
            "anongid" => settings.anongid = id()?,
            "sec" if value.split(':').any(|flavor| flavor == "sys") => (),
            "sec" => return Err(format!("{word}: this version has sec=sys alone")),
            _ if IGNORED.contains(&name) => {
                if !ignored.iter().any(|it| it == word) {
                    ignored.push(word.to_owned());
                }
            }
            _ => return Err(format!("its option {word} is not known: add it by hand")),
        }
    }
    Ok(options)
}

/// A client in the form of `[[share]]`.
fn network_of(host: &str) -> Result<String, String> {
    if host.is_empty() || host == "*" {
        return Ok("*".to_owned());
    }
    let netmask = host.split_once('/').and_then(|(address, mask)| {
        Ipv4Net::with_netmask(address.parse().ok()?, mask.parse().ok()?).ok()
    });
    if let Some(network) = netmask {
        return Ok(IpNet::V4(network.trunc()).to_string());
    }
    parse_clients(host).map(|_| host.to_owned()).map_err(|why| format!("its client {why}"))
}

fn share_options(
    writers: &[String],
    readers: &[String],
    settings: &Settings,
) -> Vec<(String, String)> {
    let mut options = Vec::new();
    let lists = [("networks", writers), ("read_only_networks", readers)];
    for (name, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
        options.push(field(name, quoted_list(list.iter().map(String::as_str))));
    }
    match (settings.squashes_all, settings.squashes_root) {
        (true, _) => options.push(field("squash", "\"all\"")),
        (false, false) => options.push(field("squash", "\"none\"")),
        (false, true) => (),
    }
    for (name, id) in [("anonuid", settings.anonuid), ("anongid", settings.anongid)] {
        if id != NOBODY {
            options.push(field(name, id.to_string()));
        }
    }
    if settings.privileged_ports {
        options.push(field("privileged_ports", "true"));
    }
    options
}
