//! The service of NVMe/TCP: volumes of `[[share]]` entries as namespaces.
//!
//! ```toml
//! [nvme]
//! listen = "192.168.1.5:4420"   # or a list, or a port alone (loopback); without it nothing listens
//! ```

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;
use std::sync::Arc;

use ::nvmet::{DhChap, FailedLoginCallback, HostSecrets, Secret, Server, ServerOptions, Subsystem};
use api::{Protocol, ShareClient};
use lun::UnitTable;
use parking_lot::Mutex;
use serde::Deserialize;

use super::Service;
use crate::config::{Config, Listen};
use crate::context::Context;
use crate::log::Log;
use crate::pools::Pools;
use crate::router::Router;
use crate::shares::listener::Listener;
use crate::shares::nvme::NvmeOptions;
use crate::shares::volumes::{VolumeShare, VolumeShares};
use crate::shares::{ReleaseReason, ServerReport, Share, ShareProblem, ShareServer, ShareSet};
use crate::{Error, Result, secret_file};

/// The section `[nvme]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NvmeConfig {
    /// The addresses; none: nothing is served.
    listen: Listen,
    /// Refused with the reason.
    #[serde(deserialize_with = "refuse_tls")]
    tls: (),
}

/// There is no TLS of NVMe/TCP: an entry that asks for it must not look as if there was.
fn refuse_tls<'de, D: serde::Deserializer<'de>>(_: D) -> std::result::Result<(), D::Error> {
    Err(serde::de::Error::custom(
        "NVMe/TCP has no TLS here: use dhchap_secret_file, and a network that is protected otherwise",
    ))
}

/// The service of NVMe/TCP.
pub(super) struct NvmeService {
    pools: Arc<Pools>,
    log: Arc<Log>,
    units: Arc<UnitTable>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    listen: Listen,
    listener: Listener<Server>,
    volumes: VolumeShares<NvmeOptions>,
    /// The subsystems that are served.
    subsystems: Vec<Subsystem>,
}

impl NvmeService {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        let (pools, log) = (Arc::clone(&context.pools), Arc::clone(&context.log));
        Self { pools, log, units: Arc::clone(&context.units), state: Mutex::default() }
    }

    /// Starts a server on the addresses of the configuration.
    fn start_server(&self, state: &mut State) -> Result<()> {
        let log = Arc::clone(&self.log);
        let on_failed_login: FailedLoginCallback = Arc::new(move |failed| {
            log.write_line(&format!(
                "NVMe/TCP: {} at {} did not prove itself to {} (DH-HMAC-CHAP)",
                failed.host, failed.address, failed.subsystem
            ));
        });
        let State { listen, listener, subsystems, .. } = state;
        listener.restart(("NVMe/TCP", &self.log), listen, |listen| {
            let options = ServerOptions { listen, ..ServerOptions::default() };
            Server::start(&options, subsystems.clone(), on_failed_login)
        })
    }
}

impl Service for NvmeService {
    fn name(&self) -> &'static str {
        "nvme"
    }

    fn calls(self: Arc<Self>, _router: &mut Router) {}

    fn start(&self, context: &Arc<Context>) -> Result<()> {
        self.configure(&context.config.current())
    }

    fn configure(&self, config: &Config) -> Result<()> {
        let NvmeConfig { listen, .. } = config.section("nvme");
        let mut state = self.state.lock();
        if state.listen == listen && !state.listener.has_problem() {
            return Ok(());
        }
        state.listen = listen;
        self.start_server(&mut state)
    }

    fn share_server(&self) -> Option<&dyn ShareServer> {
        Some(self)
    }

    fn stop(&self) {
        let state = std::mem::take(&mut *self.state.lock());
        drop(state);
    }
}

impl ShareServer for NvmeService {
    fn protocol(&self) -> Protocol {
        Protocol::Nvme
    }

    fn set_shares(&self, shares: &ShareSet) -> Vec<ShareProblem> {
        let mut state = self.state.lock();
        let State { volumes, subsystems, .. } = &mut *state;
        let mut problems = Vec::new();
        volumes.update((&self.pools, &self.units), &shares.nvme, &mut problems);
        *subsystems = build_subsystems(volumes, &mut problems);
        // what is as before stays undisturbed
        if let Some(server) = state.listener.server()
            && let Err(why) = server.set_subsystems(state.subsystems.clone())
        {
            let why = why.to_string();
            self.log.write_line(&why);
            for open in state.volumes.iter() {
                problems.push(open.share.problem(Protocol::Nvme, &why));
            }
        }
        problems
    }

    fn release(
        &self,
        datasets: &dyn Fn(&str) -> bool,
        reason: ReleaseReason,
        force: bool,
    ) -> Result<()> {
        if reason == ReleaseReason::Unmount {
            return Ok(());
        }
        let mut state = self.state.lock();
        if !force && let Some(server) = state.listener.server() {
            let controllers = server.status().controllers;
            let count = |share: &Share<NvmeOptions>| {
                let name = Some(&share.name);
                controllers.iter().filter(|found| found.subsystem.as_ref() == name).count()
            };
            if let Some((share, count)) = state.volumes.find_used(datasets, count) {
                return Err(Error::refused_error(format!(
                    "'{}' is in use: NVMe/TCP hosts: {count}; type `nvme disconnect -n {}` on them, or use -f",
                    share.dataset, share.name
                )));
            }
        }
        if state.volumes.release(datasets) {
            state.subsystems = build_subsystems(&state.volumes, &mut Vec::new());
            if let Some(server) = state.listener.server() {
                let done = server.set_subsystems(state.subsystems.clone());
                done.map_err(|why| Error::refused_error(why.to_string()))?;
            }
        }
        Ok(())
    }

    fn report(&self) -> ServerReport {
        let state = self.state.lock();
        state.listener.report(|server| {
            let status = server.status();
            let clients = status.controllers.into_iter().filter_map(|controller| {
                let shown = ShareClient {
                    address: controller.address.to_string(),
                    user: Some(controller.host),
                    connected: Some(controller.connected.as_secs()),
                    open: Some(controller.in_flight),
                    read_bytes: Some(controller.counters.read_bytes),
                    written_bytes: Some(controller.counters.written_bytes),
                    ..ShareClient::default()
                };
                Some((controller.subsystem?, shown))
            });
            let clients = clients.collect();
            let (listening, log_waits) = (status.listening, state.volumes.log_waits());
            ServerReport { listening, clients, log_waits, ..ServerReport::default() }
        })
    }
}

/// The subsystems of the open volumes. A subsystem without the secrets that it needs is not served.
fn build_subsystems(
    volumes: &VolumeShares<NvmeOptions>,
    problems: &mut Vec<ShareProblem>,
) -> Vec<Subsystem> {
    let mut subsystems: BTreeMap<&str, (Subsystem, &NvmeOptions)> = BTreeMap::new();
    for VolumeShare { share, unit } in volumes.iter() {
        let options = &share.options;
        let mut refuse = |why: &str| problems.push(share.problem(Protocol::Nvme, why));
        let (subsystem, first) = match subsystems.entry(&share.name) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => match read_secrets(options) {
                Ok(authentication) => entry.insert((new_subsystem(share, authentication), options)),
                Err(why) => {
                    refuse(&why);
                    continue;
                }
            },
        };
        let access = |of: &NvmeOptions| {
            let secrets = (of.secret_file.clone(), of.controller_secret_file.clone());
            (of.networks.clone(), of.hosts.clone(), secrets)
        };
        if access(first) != access(options) {
            refuse(
                "another namespace of its subsystem has other networks, hosts or secrets: give all \
                 namespaces of a subsystem the same",
            );
            continue;
        }
        subsystem.namespaces.insert(options.namespace, unit.clone());
    }
    subsystems.into_values().map(|(subsystem, _)| subsystem).collect()
}

fn new_subsystem(share: &Share<NvmeOptions>, authentication: Option<DhChap>) -> Subsystem {
    Subsystem {
        name: share.name.clone(),
        networks: share.options.networks.as_slice().to_vec(),
        hosts: share.options.hosts.clone(),
        authentication,
        namespaces: BTreeMap::new(),
    }
}

/// The secrets of DH-HMAC-CHAP.
fn read_secrets(options: &NvmeOptions) -> std::result::Result<Option<DhChap>, String> {
    let Some(hosts) = &options.secret_file else { return Ok(None) };
    let hosts = read_secret_file(hosts, parse_host_secrets)?;
    let controller = options.controller_secret_file.as_deref();
    let parse = |text: &str| Secret::parse(text.trim()).map_err(|why| why.to_string());
    let controller = controller.map(|path| read_secret_file(path, parse)).transpose()?;
    DhChap::new(hosts, controller).map(Some).map_err(|why| why.to_string())
}

fn read_secret_file<T>(
    path: &Path,
    parse: impl Fn(&str) -> std::result::Result<T, String>,
) -> std::result::Result<T, String> {
    let read = secret_file::read(path).and_then(|bytes| {
        parse(std::str::from_utf8(&bytes).map_err(|_| "it is not a text".to_owned())?)
    });
    read.map_err(|why| format!("the file {} cannot be used: {why}", path.display()))
}

/// One secret for all hosts, or lines with a host's name and its secret.
fn parse_host_secrets(text: &str) -> std::result::Result<HostSecrets, String> {
    let parse = |secret: &str| Secret::parse(secret).map_err(|why| why.to_string());
    let lines = text.lines().map(str::trim);
    let lines: Vec<&str> =
        lines.filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    if let [secret] = lines[..]
        && !secret.contains(char::is_whitespace)
    {
        return parse(secret).map(HostSecrets::Shared);
    }
    let mut secrets = BTreeMap::new();
    for line in lines {
        let (host, secret) = line
            .split_once(char::is_whitespace)
            .ok_or("each line has the name of a host, and its secret")?;
        if secrets.insert(host.to_owned(), parse(secret.trim())?).is_some() {
            return Err(format!("the host {host} has two secrets"));
        }
    }
    if secrets.is_empty() {
        return Err("it has no secret; make one by `nvme gen-dhchap-key`".to_owned());
    }
    Ok(HostSecrets::Own(secrets))
}
