//! The service of iSCSI: volumes of `[[share]]` entries as SCSI disks.
//!
//! ```toml
//! [iscsi]
//! listen = "192.168.1.5:3260"   # or a list, or a port alone (loopback); without it nothing listens
//! discovery_chap_user = "anna"  # initiators prove themselves before they learn the names of targets
//! discovery_chap_secret_file = "/etc/poolhouse/chap"
//! discovery_mutual_user = "nas" # the server proves itself, too
//! discovery_mutual_secret_file = "/etc/poolhouse/chap-mutual"
//! ```
//!
//! Persistent reservations that initiators have kept over a restart (APTPL) are in the state directory, in
//! `iscsi-reservations/ID`, by the id of the unit.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use ::iscsi::{
    Chap, ChapUser, Discovery, FailedLogin, FailedLoginCallback, Server, ServerOptions, Target,
    TargetUnit, UnitId,
};
use api::{Protocol, ShareClient, pool_of};
use lun::{LunOptions, SnapshotLun, VolumeGuids, VolumeLun};
use parking_lot::Mutex;
use serde::Deserialize;

use super::Service;
use crate::config::{Config, Listen};
use crate::context::Context;
use crate::log::Log;
use crate::pools::Pools;
use crate::reservation_files::ReservationFiles;
use crate::router::Router;
use crate::shares::iscsi::{ChapUser as ChapUserFile, IscsiOptions};
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
}

impl IscsiConfig {
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
    reservations: ReservationFiles,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    config: IscsiConfig,
    server: Option<Server>,
    /// Why there is no server, though addresses are configured.
    problem: Option<String>,
    /// Why no initiator can discover targets, though CHAP is configured.
    discovery_problem: Option<String>,
    units: Vec<OpenUnit>,
    /// The targets that are served.
    targets: Vec<Target>,
}

/// A share whose volume is open.
struct OpenUnit {
    share: Share<IscsiOptions>,
    unit: TargetUnit,
}

impl IscsiService {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        let log = Arc::clone(&context.log);
        let directory = context.state_dir.iscsi_reservations();
        Self {
            pools: Arc::clone(&context.pools),
            reservations: ReservationFiles::new(directory, Arc::clone(&log)),
            log,
            state: Mutex::default(),
        }
    }

    /// Opens the volume of a share.
    fn open_unit(&self, share: &Share<IscsiOptions>) -> std::result::Result<TargetUnit, String> {
        let pool = self.pools.pool(pool_of(&share.dataset)).map_err(|why| why.to_string())?;
        let options =
            LunOptions { block_size: share.options.block_size, read_only: share.options.read_only };
        let (pool, name) = (&pool.handle, share.dataset.as_str());
        let volume = share.dataset.clone();
        if name.contains('@') {
            let unit = SnapshotLun::open(pool, name, options).map_err(|why| why.to_string())?;
            let id = UnitId::new(&VolumeGuids { pool: pool.guid(), volume: unit.guid() });
            return Ok(TargetUnit { unit: Arc::new(unit), id, volume, reservation_store: None });
        }
        // the guid is known when the volume is open, and the reservations belong to it from the start
        let guid = pool.open_volume(name).map_err(|why| why.to_string())?.0.guid();
        let id = UnitId::new(&VolumeGuids { pool: pool.guid(), volume: guid });
        let file = id.to_string();
        let reservations = self.reservations.load(&file, name);
        let unit =
            VolumeLun::open(pool, name, options, reservations).map_err(|why| why.to_string())?;
        let reservation_store = Some(self.reservations.store(&file));
        Ok(TargetUnit { unit: Arc::new(unit), id, volume, reservation_store })
    }

    /// Opens the volumes of shares, and keeps those that are open already.
    fn open_units(&self, shares: &[Share<IscsiOptions>], state: &mut State) -> Vec<ShareProblem> {
        let mut before = std::mem::take(&mut state.units);
        let mut problems = Vec::new();
        for share in shares {
            let is_alike = |open: &OpenUnit| {
                let (old, new) = (&open.share.options, &share.options);
                (old.block_size, old.read_only) == (new.block_size, new.read_only)
            };
            let same = |open: &OpenUnit| open.share.dataset == share.dataset && is_alike(open);
            let unit = if let Some(at) = before.iter().position(same) {
                Ok(before.swap_remove(at).unit)
            } else {
                // a volume that was renamed stays open, and its initiators notice nothing
                self.open_unit(share).map(|new| {
                    let same = |open: &OpenUnit| open.unit.id == new.id && is_alike(open);
                    match before.iter().position(same) {
                        Some(at) => {
                            let unit = before.swap_remove(at).unit;
                            TargetUnit { volume: new.volume, ..unit }
                        }
                        None => new,
                    }
                })
            };
            match unit {
                Ok(unit) => state.units.push(OpenUnit { share: share.clone(), unit }),
                Err(why) => problems.push(share.problem(Protocol::Iscsi, why)),
            }
        }
        problems
    }

    /// Starts a server on the addresses of the configuration.
    fn start_server(&self, state: &mut State) -> Result<()> {
        state.server = None;
        state.problem = None;
        let listen = state.config.listen.addresses();
        if listen.is_empty() {
            return Ok(());
        }
        let options = ServerOptions { listen: listen.to_vec(), ..ServerOptions::default() };
        let log = Arc::clone(&self.log);
        let on_failed_login: FailedLoginCallback =
            Arc::new(move |failed| log.write_line(&failed_login_line(failed)));
        let discovery = self.read_discovery(state);
        match Server::start(&options, state.targets.clone(), discovery, on_failed_login) {
            Ok(server) => {
                for address in server.addresses() {
                    self.log.write_line(&format!("iSCSI listens on {address}"));
                }
                state.server = Some(server);
                Ok(())
            }
            Err(why) => {
                state.problem = Some(why.to_string());
                Err(Error::refused_error(why.to_string()))
            }
        }
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
        if !is_same_listen || state.problem.is_some() {
            return self.start_server(&mut state);
        }
        // the files may have other secrets now
        let discovery = self.read_discovery(&mut state);
        if let Some(server) = &state.server {
            server.set_discovery(discovery);
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
        let mut problems = self.open_units(&shares.iscsi, &mut state);
        state.targets = build_targets(&state.units, &mut problems);
        // what is as before stays undisturbed; secrets may be others in the same files
        if let Some(server) = &state.server
            && let Err(why) = server.set_targets(state.targets.clone())
        {
            let why = why.to_string();
            self.log.write_line(&why);
            for open in &state.units {
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
        if !force && let Some(server) = &state.server {
            let status = server.status();
            let sessions = |open: &OpenUnit| {
                let target = Some(&open.share.name);
                status.sessions.iter().filter(|session| session.target.as_ref() == target).count()
            };
            let needed = state.units.iter().filter(|open| datasets(&open.share.dataset));
            for open in needed {
                let count = sessions(open);
                if count > 0 {
                    return Err(Error::refused_error(format!(
                        "'{}' is in use: iSCSI sessions: {count}; log the initiators out, or use -f",
                        open.share.dataset
                    )));
                }
            }
        }
        let count = state.units.len();
        state.units.retain(|open| !datasets(&open.share.dataset));
        if count != state.units.len() {
            state.targets = build_targets(&state.units, &mut Vec::new());
            if let Some(server) = &state.server {
                let done = server.set_targets(state.targets.clone());
                done.map_err(|why| Error::refused_error(why.to_string()))?;
            }
        }
        Ok(())
    }

    fn report(&self) -> ServerReport {
        let state = self.state.lock();
        let Some(server) = &state.server else {
            return ServerReport { problem: state.problem.clone(), ..ServerReport::default() };
        };
        let status = server.status();
        let clients = status.sessions.into_iter().filter_map(|session| {
            let shown = ShareClient {
                address: session.address.to_string(),
                user: Some(session.initiator),
                connected: Some(session.connected.as_secs()),
                open: Some(session.in_flight),
                read_bytes: Some(session.counters.read_bytes),
                written_bytes: Some(session.counters.written_bytes),
            };
            Some((session.target?, shown))
        });
        let clients = clients.collect();
        let note = state.discovery_problem.clone();
        ServerReport { listening: status.listening, clients, note, ..ServerReport::default() }
    }
}

/// The targets of the open volumes. A target without the secrets that it needs is not served.
fn build_targets(units: &[OpenUnit], problems: &mut Vec<ShareProblem>) -> Vec<Target> {
    let mut targets: BTreeMap<&str, (Target, &IscsiOptions)> = BTreeMap::new();
    for OpenUnit { share, unit } in units {
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
