//! `config.json` of the kernel's NVMe target, as nvmetcli writes it.
//!
//! ```text
//! hosts[]             nqn; a DH-HMAC-CHAP secret, if there is one
//! ports[]             addr.trtype (tcp, rdma, fc), subsystems[] (NQNs)
//! subsystems[]        nqn, attr.allow_any_host (0 or 1), allowed_hosts[] (NQNs)
//!  └ namespaces[]     nsid, enable (0 or 1), device.path
//! ```

use std::path::PathBuf;

use api::Protocol;
use serde::Deserialize;
use serde_json::Value;

use super::chap::FoundChap;
use super::{Found, FoundShare, Skipped, field, quoted, quoted_list};

/// Why a subsystem with DH-HMAC-CHAP is skipped.
const SECRETS_NOT_COPIED: &str = "its hosts have DH-HMAC-CHAP secrets, which are not copied: add it with \
                                  dhchap_secret_file (`poolhouse share add --help`)";

#[derive(Deserialize)]
struct SavedConfig {
    #[serde(default)]
    hosts: Vec<Value>,
    #[serde(default)]
    ports: Vec<Port>,
    #[serde(default)]
    subsystems: Vec<Subsystem>,
}

#[derive(Deserialize)]
struct Port {
    addr: Address,
    #[serde(default)]
    subsystems: Vec<String>,
}

#[derive(Deserialize)]
struct Address {
    trtype: String,
}

#[derive(Deserialize)]
struct Subsystem {
    nqn: String,
    #[serde(default)]
    attr: Attributes,
    #[serde(default)]
    allowed_hosts: Vec<String>,
    #[serde(default)]
    namespaces: Vec<Namespace>,
}

#[derive(Default, Deserialize)]
struct Attributes {
    #[serde(default)]
    allow_any_host: Value,
}

#[derive(Deserialize)]
struct Namespace {
    nsid: u32,
    #[serde(default)]
    enable: Value,
    device: Device,
}

#[derive(Deserialize)]
struct Device {
    path: PathBuf,
}

/// Reads a file.
pub(super) fn parse(text: &str) -> Found {
    let config: SavedConfig = match serde_json::from_str(text) {
        Ok(config) => config,
        Err(why) => {
            let why = format!("it is not a config.json of nvmetcli: {why}");
            return vec![Err(("the file".to_owned(), why))];
        }
    };
    let mut found = Vec::new();
    for subsystem in &config.subsystems {
        match check_subsystem(&config, subsystem) {
            Ok(()) => found.extend(
                subsystem.namespaces.iter().map(|namespace| read_namespace(subsystem, namespace)),
            ),
            Err(why) => found.push(Err((subsystem.nqn.clone(), why))),
        }
    }
    found
}

/// Whether a flag is set: nvmetcli writes numbers and texts.
fn is_set(flag: &Value) -> bool {
    flag.as_u64() == Some(1) || flag.as_str() == Some("1")
}

fn check_subsystem(config: &SavedConfig, subsystem: &Subsystem) -> Result<(), String> {
    let is_on_tcp = config
        .ports
        .iter()
        .any(|port| port.addr.trtype == "tcp" && port.subsystems.contains(&subsystem.nqn));
    if !is_on_tcp {
        return Err("no port of it is for TCP".to_owned());
    }
    let is_open = is_set(&subsystem.attr.allow_any_host);
    if !is_open && subsystem.allowed_hosts.is_empty() {
        return Err("it admits no host".to_owned());
    }
    let has_secret = |host: &Value| {
        let is_allowed = |nqn| subsystem.allowed_hosts.iter().any(|allowed| allowed == nqn);
        host["nqn"].as_str().is_some_and(is_allowed) && host.to_string().contains("DHHC-1:")
    };
    if config.hosts.iter().any(has_secret) {
        return Err(SECRETS_NOT_COPIED.to_owned());
    }
    Ok(())
}

fn read_namespace(subsystem: &Subsystem, namespace: &Namespace) -> Result<FoundShare, Skipped> {
    let origin = format!("{} namespace {}", subsystem.nqn, namespace.nsid);
    if !is_set(&namespace.enable) {
        return Err((origin, "it is not enabled".to_owned()));
    }
    let mut options = vec![
        field("nqn", quoted(&subsystem.nqn)),
        field("namespace", namespace.nsid.to_string()),
        // the kernel does not look at addresses of hosts
        field("networks", quoted("*")),
    ];
    if !is_set(&subsystem.attr.allow_any_host) {
        let hosts = subsystem.allowed_hosts.iter().map(String::as_str);
        options.push(field("hosts", quoted_list(hosts)));
    }
    let path = namespace.device.path.clone();
    Ok(FoundShare {
        origin,
        protocol: Protocol::Nvme,
        path,
        options,
        ignored: Vec::new(),
        chap: FoundChap::default(),
    })
}
