//! The service of iSCSI: volumes of `[[share]]` entries as SCSI disks.
//!
//! ```toml
//! [iscsi]
//! listen = "192.168.1.5:3260"   # or a list, or a port alone (loopback); without it nothing listens
//! discovery_chap_user = "anna"  # initiators prove themselves before they learn the names of targets
//! discovery_chap_secret_file = "/etc/poolhouse/chap"
//! discovery_mutual_user = "nas" # the server proves itself, too
//! discovery_mutual_secret_file = "/etc/poolhouse/chap-mutual"
//! space_warning = 10            # initiators are warned when less of a unit's size is left, in percent; 0: never
//! ```
//!
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use ::iscsi::{
    Chap, ChapUser, Discovery, FailedLogin, FailedLoginCallback, Server, ServerOptions, Target,
};
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
use crate::shares::iscsi::{ChapUser as ChapUserFile, IscsiOptions};
use crate::shares::listener::Listener;
use crate::shares::volumes::{VolumeShare, VolumeShares};
use crate::shares::{ReleaseReason, ServerReport, Share, ShareProblem, ShareServer, ShareSet};
use crate::{Error, Result, secret_file};

/// The section `[iscsi]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct IscsiConfig {
    /// The addresses; none: nothing is served.
    listen: Listen,
    discovery_chap_user: Option<String>,
    discovery_chap_secret_file: Option<PathBuf>,
    discovery_mutual_user: Option<String>,
    discovery_mutual_secret_file: Option<PathBuf>,
    /// Percent of a unit's size. None: [`ServerOptions::space_warning`].
    space_warning: Option<SpaceWarning>,
}

/// A part of a unit's size in percent, of which 0 means never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "u8")]
struct SpaceWarning(u8);

impl TryFrom<u8> for SpaceWarning {
    type Error = String;

    fn try_from(percent: u8) -> std::result::Result<Self, String> {
        if percent > 100 {
            return Err(format!("space_warning is {percent}, and must be from 0 to 100 percent"));
        }
        Ok(Self(percent))
    }
}

impl IscsiConfig {
    /// The space below which initiators are warned.
    fn space_warning(&self) -> u8 {
        self.space_warning.map_or(ServerOptions::default().space_warning, |percent| percent.0)
    }

    /// The initiators that may discover targets, with the secrets of CHAP.
    fn read_discovery(&self) -> std::result::Result<Discovery, String> {
        let pair = |name: &Option<String>, file: &Option<PathBuf>, kind: &str| match (name, file) {
            (Some(name), Some(file)) => {
                let user = ChapUserFile { name: name.clone(), secret_file: file.clone() };
                read_chap_user(&user).map(Some)
            }
            (None, None) => Ok(None),
            _ => Err(format!(
                "iscsi.discovery_{kind}_user and iscsi.discovery_{kind}_secret_file belong together"
            )),
        };
        let initiator = pair(&self.discovery_chap_user, &self.discovery_chap_secret_file, "chap")?;
        let target =
            pair(&self.discovery_mutual_user, &self.discovery_mutual_secret_file, "mutual")?;
        match (initiator, target) {
            (Some(initiator), target) => {
                let chap = Chap::new(initiator, target).map_err(|why| why.to_string())?;
                Ok(Discovery::Chap(chap))
            }
            (None, Some(_)) => Err("iscsi.discovery_mutual_user needs iscsi.discovery_chap_user: \
                                    the initiator proves itself first"
                .to_owned()),
            (None, None) => Ok(Discovery::Open),
        }
    }
}

/// The line of the log about a login that was refused.
fn failed_login_line(failed: &FailedLogin) -> String {
    let FailedLogin { address, initiator, target, lacks_proof } = failed;
    let to = target.as_deref().unwrap_or("discovery");
    if *lacks_proof {
        format!("iSCSI: {initiator} at {address} did not prove itself to {to} (CHAP)")
    } else {
        format!("iSCSI: {initiator} at {address} is not among the initiators of {to}")
    }
}

/// The service of iSCSI.
pub(super) struct IscsiService {
    pools: Arc<Pools>,
    log: Arc<Log>,
    units: Arc<UnitTable>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    config: IscsiConfig,
    listener: Listener<Server>,
    /// Why no initiator can discover targets, though CHAP is configured.
    discovery_problem: Option<String>,
    volumes: VolumeShares<IscsiOptions>,
    /// The targets that are served.
    targets: Vec<Target>,
}

impl IscsiService {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        let (pools, log) = (Arc::clone(&context.pools), Arc::clone(&context.log));
        Self { pools, log, units: Arc::clone(&context.units), state: Mutex::default() }
    }

    /// Starts a server on the addresses of the configuration.
    fn start_server(&self, state: &mut State) -> Result<()> {
        let log = Arc::clone(&self.log);
        let on_failed_login: FailedLoginCallback =
            Arc::new(move |failed| log.write_line(&failed_login_line(failed)));
        let discovery = self.read_discovery(state);
        let State { config, listener, targets, .. } = state;
        listener.restart(("iSCSI", &self.log), &config.listen, |listen| {
            let space_warning = config.space_warning();
            let options = ServerOptions { listen, space_warning, ..ServerOptions::default() };
            Server::start(&options, targets.clone(), discovery, on_failed_login)
        })
    }

    /// The initiators that may discover targets. Discovery is closed while the secrets cannot be read.
    fn read_discovery(&self, state: &mut State) -> Discovery {
        let read = state.config.read_discovery();
        state.discovery_problem = read.as_ref().err().map(|why| {
            let line = format!("iSCSI: no initiator can discover targets: {why}");
            self.log.write_line(&line);
            line
        });
        read.unwrap_or(Discovery::Closed)
    }
}

impl Service for IscsiService {
    fn name(&self) -> &'static str {
        "iscsi"
    }

    fn calls(self: Arc<Self>, _router: &mut Router) {}

    fn start(&self, context: &Arc<Context>) -> Result<()> {
        self.configure(&context.config.current())
    }

    fn configure(&self, config: &Config) -> Result<()> {
        let config: IscsiConfig = config.section("iscsi");
        let mut state = self.state.lock();
        let is_same_listen = state.config.listen == config.listen;
        state.config = config;
        if !is_same_listen || state.listener.has_problem() {
            return self.start_server(&mut state);
        }
        // the files may have other secrets now
        let discovery = self.read_discovery(&mut state);
        if let Some(server) = state.listener.server() {
            server.set_discovery(discovery);
            server.set_space_warning(state.config.space_warning());
        }
        Ok(())
    }

    fn share_server(&self) -> Option<&dyn ShareServer> {
        Some(self)
    }

    fn stop(&self) {
        let state = std::mem::take(&mut *self.state.lock());
        drop(state);
    }
}

impl ShareServer for IscsiService {
    fn protocol(&self) -> Protocol {
        Protocol::Iscsi
    }

    fn set_shares(&self, shares: &ShareSet) -> Vec<ShareProblem> {
        let mut state = self.state.lock();
        let State { volumes, targets, .. } = &mut *state;
        let mut problems = Vec::new();
        volumes.update((&self.pools, &self.units), &shares.iscsi, &mut problems);
        *targets = build_targets(volumes, &mut problems);
        // what is as before stays undisturbed; secrets may be others in the same files
        if let Some(server) = state.listener.server()
            && let Err(why) = server.set_targets(state.targets.clone())
        {
            let why = why.to_string();
            self.log.write_line(&why);
            for open in state.volumes.iter() {
                problems.push(open.share.problem(Protocol::Iscsi, &why));
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
            let sessions = server.status().sessions;
            let count = |share: &Share<IscsiOptions>| {
                let target = Some(&share.name);
                sessions.iter().filter(|session| session.target.as_ref() == target).count()
            };
            if let Some((share, count)) = state.volumes.find_used(datasets, count) {
                return Err(Error::refused_error(format!(
                    "'{}' is in use: iSCSI sessions: {count}; log the initiators out, or use -f",
                    share.dataset
                )));
            }
        }
        if state.volumes.release(datasets) {
            state.targets = build_targets(&state.volumes, &mut Vec::new());
            if let Some(server) = state.listener.server() {
                let done = server.set_targets(state.targets.clone());
                done.map_err(|why| Error::refused_error(why.to_string()))?;
            }
        }
        Ok(())
    }

    fn report(&self) -> ServerReport {
        let state = self.state.lock();
        let note = state.discovery_problem.clone();
        state.listener.report(|server| {
            let status = server.status();
            let clients = status.sessions.into_iter().filter_map(|session| {
                let shown = ShareClient {
                    address: session.address.to_string(),
                    user: Some(session.initiator),
                    connected: Some(session.connected.as_secs()),
                    open: Some(session.in_flight),
                    read_bytes: Some(session.counters.read_bytes),
                    written_bytes: Some(session.counters.written_bytes),
                    ..ShareClient::default()
                };
                Some((session.target?, shown))
            });
            let clients = clients.collect();
            let (listening, log_waits) = (status.listening, state.volumes.log_waits());
            ServerReport { listening, clients, log_waits, note, ..ServerReport::default() }
        })
    }
}

/// The targets of the open volumes. A target without the secrets that it needs is not served.
fn build_targets(
    volumes: &VolumeShares<IscsiOptions>,
    problems: &mut Vec<ShareProblem>,
) -> Vec<Target> {
    let mut targets: BTreeMap<&str, (Target, &IscsiOptions)> = BTreeMap::new();
    for VolumeShare { share, unit } in volumes.iter() {
        let options = &share.options;
        let mut refuse = |why: &str| problems.push(share.problem(Protocol::Iscsi, why));
        let (target, first) = match targets.entry(&share.name) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => match read_chap(options) {
                Ok(chap) => entry.insert((new_target(share, chap), options)),
                Err(why) => {
                    refuse(&why);
                    continue;
                }
            },
        };
        let access = |of: &IscsiOptions| {
            (of.networks.clone(), of.initiators.clone(), of.chap.clone(), of.mutual.clone())
        };
        if access(first) != access(options) {
            refuse(
                "another logical unit of its target has other networks, initiators or CHAP users: \
                 give all units of a target the same",
            );
            continue;
        }
        target.units.insert(options.lun, unit.clone());
    }
    targets.into_values().map(|(target, _)| target).collect()
}

fn new_target(share: &Share<IscsiOptions>, chap: Option<Chap>) -> Target {
    Target {
        name: share.name.clone(),
        alias: String::new(),
        networks: share.options.networks.as_slice().to_vec(),
        initiators: share.options.initiators.clone(),
        chap,
        units: BTreeMap::new(),
    }
}

/// The users of CHAP with their secrets.
fn read_chap(options: &IscsiOptions) -> std::result::Result<Option<Chap>, String> {
    let Some(initiator) = &options.chap else { return Ok(None) };
    let initiator = read_chap_user(initiator)?;
    let target = options.mutual.as_ref().map(read_chap_user).transpose()?;
    Chap::new(initiator, target).map(Some).map_err(|why| why.to_string())
}

fn read_chap_user(user: &ChapUserFile) -> std::result::Result<ChapUser, String> {
    let path = user.secret_file.display();
    let secret = secret_file::read(&user.secret_file)
        .map_err(|why| format!("the CHAP secret in {path} cannot be used: {why}"))?;
    ChapUser::new(&user.name, secret.trim_ascii()).map_err(|why| why.to_string())
}
