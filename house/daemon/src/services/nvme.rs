//! The service of NVMe/TCP: volumes of `[[share]]` entries as namespaces.
//!
//! ```toml
//! [nvme]
//! listen = "192.168.1.5:4420"   # or a list, or a port alone (loopback); without it nothing listens
//! ```
//!
//! Persistent reservations that hosts have kept over a restart (PTPL) are in the state directory, in
//! `nvme-reservations/UUID`, by the UUID of the namespace.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;
use std::sync::Arc;

use ::nvmet::{
    DhChap, FailedLoginCallback, HostSecrets, NamespaceId, Secret, Server, ServerOptions,
    Subsystem, SubsystemNamespace,
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
use crate::shares::nvme::NvmeOptions;
use crate::shares::{ReleaseReason, ServerReport, Share, ShareProblem, ShareServer, ShareSet};
use crate::{Error, Result, secret_file};

/// The section `[nvme]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NvmeConfig {
    /// The addresses; none: nothing is served.
    listen: Listen,
}

/// The service of NVMe/TCP.
pub(super) struct NvmeService {
    pools: Arc<Pools>,
    log: Arc<Log>,
    reservations: ReservationFiles,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    listen: Listen,
    server: Option<Server>,
    /// Why there is no server, though addresses are configured.
    problem: Option<String>,
    namespaces: Vec<OpenNamespace>,
    /// The subsystems that are served.
    subsystems: Vec<Subsystem>,
}

/// A share whose volume is open.
struct OpenNamespace {
    share: Share<NvmeOptions>,
    namespace: SubsystemNamespace,
}

impl NvmeService {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        let log = Arc::clone(&context.log);
        let directory = context.state_dir.nvme_reservations();
        Self {
            pools: Arc::clone(&context.pools),
            reservations: ReservationFiles::new(directory, Arc::clone(&log)),
            log,
            state: Mutex::default(),
        }
    }

    /// Opens the volume of a share.
    fn open_namespace(
        &self,
        share: &Share<NvmeOptions>,
    ) -> std::result::Result<SubsystemNamespace, String> {
        let pool = self.pools.pool(pool_of(&share.dataset)).map_err(|why| why.to_string())?;
        let options =
            LunOptions { block_size: share.options.block_size, read_only: share.options.read_only };
        let (pool, name) = (&pool.handle, share.dataset.as_str());
        let volume = share.dataset.clone();
        let id = |guid| NamespaceId::new(&VolumeGuids { pool: pool.guid(), volume: guid });
        if name.contains('@') {
            let unit = SnapshotLun::open(pool, name, options).map_err(|why| why.to_string())?;
            let id = id(unit.guid());
            let unit = Arc::new(unit);
            return Ok(SubsystemNamespace { unit, id, volume, reservation_store: None });
        }
        // the guid is known when the volume is open, and the reservations belong to it from the start
        let id = id(pool.open_volume(name).map_err(|why| why.to_string())?.0.guid());
        let file = id.to_text();
        let reservations = self.reservations.load(&file, name);
        let unit = VolumeLun::open(pool, name, options, reservations);
        let unit = Arc::new(unit.map_err(|why| why.to_string())?);
        let reservation_store = Some(self.reservations.store(&file));
        Ok(SubsystemNamespace { unit, id, volume, reservation_store })
    }

    /// Opens the volumes of shares, and keeps those that are open already.
    fn open_namespaces(
        &self,
        shares: &[Share<NvmeOptions>],
        state: &mut State,
    ) -> Vec<ShareProblem> {
        let mut before = std::mem::take(&mut state.namespaces);
        let mut problems = Vec::new();
        for share in shares {
            let is_alike = |open: &OpenNamespace| {
                let (old, new) = (&open.share.options, &share.options);
                (old.block_size, old.read_only) == (new.block_size, new.read_only)
                    // a volume of the same name may have taken its place
                    && !matches!(open.namespace.unit.space(), Err(lun::Error::Gone))
            };
            let same = |open: &OpenNamespace| open.share.dataset == share.dataset && is_alike(open);
            let namespace = if let Some(at) = before.iter().position(same) {
                Ok(before.swap_remove(at).namespace)
            } else {
                // a volume that was renamed stays open, and its hosts notice nothing
                self.open_namespace(share).map(|new| {
                    let same = |open: &OpenNamespace| open.namespace.id == new.id && is_alike(open);
                    match before.iter().position(same) {
                        Some(at) => {
                            let namespace = before.swap_remove(at).namespace;
                            SubsystemNamespace { volume: new.volume, ..namespace }
                        }
                        None => new,
                    }
                })
            };
            match namespace {
                Ok(namespace) => {
                    state.namespaces.push(OpenNamespace { share: share.clone(), namespace });
                }
                Err(why) => problems.push(share.problem(Protocol::Nvme, why)),
            }
        }
        problems
    }

    /// Starts a server on the addresses of the configuration.
    fn start_server(&self, state: &mut State) -> Result<()> {
        state.server = None;
        state.problem = None;
        let listen = state.listen.addresses();
        if listen.is_empty() {
            return Ok(());
        }
        let options = ServerOptions { listen: listen.to_vec(), ..ServerOptions::default() };
        let log = Arc::clone(&self.log);
        let on_failed_login: FailedLoginCallback = Arc::new(move |failed| {
            log.write_line(&format!(
                "NVMe/TCP: {} at {} did not prove itself to {} (DH-HMAC-CHAP)",
                failed.host, failed.address, failed.subsystem
            ));
        });
        match Server::start(&options, state.subsystems.clone(), on_failed_login) {
            Ok(server) => {
                for address in server.addresses() {
                    self.log.write_line(&format!("NVMe/TCP listens on {address}"));
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
        let NvmeConfig { listen } = config.section("nvme");
        let mut state = self.state.lock();
        if state.listen == listen && state.problem.is_none() {
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
        let mut problems = self.open_namespaces(&shares.nvme, &mut state);
        state.subsystems = build_subsystems(&state.namespaces, &mut problems);
        // what is as before stays undisturbed
        if let Some(server) = &state.server
            && let Err(why) = server.set_subsystems(state.subsystems.clone())
        {
            let why = why.to_string();
            self.log.write_line(&why);
            for open in &state.namespaces {
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
        if !force && let Some(server) = &state.server {
            let status = server.status();
            let hosts = |open: &OpenNamespace| {
                let name = Some(&open.share.name);
                status.controllers.iter().filter(|found| found.subsystem.as_ref() == name).count()
            };
            for open in state.namespaces.iter().filter(|open| datasets(&open.share.dataset)) {
                let count = hosts(open);
                if count > 0 {
                    return Err(Error::refused_error(format!(
                        "'{}' is in use: NVMe/TCP hosts: {count}; type `nvme disconnect -n {}` on them, or use -f",
                        open.share.dataset, open.share.name
                    )));
                }
            }
        }
        let count = state.namespaces.len();
        state.namespaces.retain(|open| !datasets(&open.share.dataset));
        if count != state.namespaces.len() {
            state.subsystems = build_subsystems(&state.namespaces, &mut Vec::new());
            if let Some(server) = &state.server {
                let done = server.set_subsystems(state.subsystems.clone());
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
        let clients = status.controllers.into_iter().filter_map(|controller| {
            let shown = ShareClient {
                address: controller.address.to_string(),
                user: Some(controller.host),
                connected: Some(controller.connected.as_secs()),
                open: Some(controller.in_flight),
                read_bytes: Some(controller.counters.read_bytes),
                written_bytes: Some(controller.counters.written_bytes),
            };
            Some((controller.subsystem?, shown))
        });
        ServerReport {
            listening: status.listening,
            problem: None,
            note: None,
            clients: clients.collect(),
        }
    }
}

/// The subsystems of the open volumes. A subsystem without the secrets that it needs is not served.
fn build_subsystems(open: &[OpenNamespace], problems: &mut Vec<ShareProblem>) -> Vec<Subsystem> {
    let mut subsystems: BTreeMap<&str, (Subsystem, &NvmeOptions)> = BTreeMap::new();
    for OpenNamespace { share, namespace } in open {
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
        subsystem.namespaces.insert(options.namespace, namespace.clone());
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
