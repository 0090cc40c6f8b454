//! The service of NFS: file systems of `[[share]]` entries and of the property sharenfs, by the server of `nfs`.
//!
//! ```toml
//! [nfs]
//! listen = "192.168.1.5:2049"    # or a list, or a port alone (loopback); without it nothing listens
//! lease = 90                     # seconds after which the locks of a client that vanished are freed
//! portmapper = "auto"            # "off", or addresses for the portmapper of NFSv3 (see config/portmapper.rs)
//! ```

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ::nfs::{
    ClientRule, Clients, ConnectionStatus, Export, LogWaitStatus, PortmapperStatus, Secret, Server,
    ServerOptions,
};
use announce::MdnsService;
use api::{Protocol, ShareClient, pool_of};
use parking_lot::Mutex;
use serde::Deserialize;

use super::Service;
use crate::config::{Config, Listen, PortmapperSetting};
use crate::context::Context;
use crate::log::Log;
use crate::pools::Pools;
use crate::pools::filesystems::Door;
use crate::router::Router;
use crate::shares::listener::Listener;
use crate::shares::nfs::{NfsOptions, Squash};
use crate::shares::{ReleaseReason, ServerReport, Share, ShareProblem, ShareServer, ShareSet};
use crate::{Error, Result, StateDir, state_file};

/// The section `[nfs]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NfsConfig {
    /// The addresses; none: nothing is served.
    listen: Listen,
    /// Seconds without a request after which the state of a client is freed.
    lease: u32,
    /// How clients of NFSv3 learn the ports of the lock manager and of the other programs.
    portmapper: PortmapperSetting,
}

impl Default for NfsConfig {
    fn default() -> Self {
        Self { listen: Listen::default(), lease: 90, portmapper: PortmapperSetting::default() }
    }
}

/// The service of NFS.
pub(super) struct NfsService {
    pools: Arc<Pools>,
    log: Arc<Log>,
    state_dir: StateDir,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    config: NfsConfig,
    listener: Listener<Server>,
    exports: Vec<OpenExport>,
}

/// A share whose file system is open.
struct OpenExport {
    share: Share<NfsOptions>,
    door: Door,
}

impl NfsService {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        let (pools, log) = (Arc::clone(&context.pools), Arc::clone(&context.log));
        Self { pools, log, state_dir: context.state_dir.clone(), state: Mutex::default() }
    }

    fn open_door(&self, share: &Share<NfsOptions>) -> Result<Door> {
        let pool = self.pools.pool(pool_of(&share.dataset))?;
        pool.filesystems.open_door(&share.dataset, "NFS")
    }

    /// Starts a server on the addresses of the configuration.
    fn start_server(&self, state: &mut State) -> Result<()> {
        let State { config, listener, exports: open } = state;
        listener.restart(("NFS", &self.log), &config.listen, |listen| {
            let options = self.server_options(config, listen)?;
            let server = Server::start(&options, exports(open));
            server.map_err(|why| Error::refused_error(why.to_string()))
        })?;
        let status = listener.server().map(Server::status);
        let line = status.and_then(|status| describe_portmapper(&status.portmapper));
        if let Some(line) = line {
            self.log.write_line(&line);
        }
        Ok(())
    }

    fn server_options(&self, config: &NfsConfig, listen: Vec<SocketAddr>) -> Result<ServerOptions> {
        let digits = state_file::load_or_create_secret(&self.state_dir.nfs_secret())?;
        // the digits are the secret: a hash of them has the 32 bytes that are wanted
        let secret = Secret::from_text(&digits);
        let lease = Duration::from_secs(config.lease.into());
        let client_list = Some(self.state_dir.nfs_clients());
        let portmapper = config.portmapper.resolve(&listen);
        let lock_client_list = Some(self.state_dir.nfs_lock_clients());
        let host_name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Ok(ServerOptions {
            listen,
            lease,
            client_list,
            lock_client_list,
            portmapper,
            host_name,
            ..ServerOptions::new(secret)
        })
    }
}

impl Service for NfsService {
    fn name(&self) -> &'static str {
        "nfs"
    }

    fn calls(self: Arc<Self>, _router: &mut Router) {}

    fn start(&self, context: &Arc<Context>) -> Result<()> {
        self.configure(&context.config.current())
    }

    fn configure(&self, config: &Config) -> Result<()> {
        let config: NfsConfig = config.section("nfs");
        let mut state = self.state.lock();
        if state.config == config && !state.listener.has_problem() {
            return Ok(());
        }
        state.config = config;
        self.start_server(&mut state)
    }

    fn share_server(&self) -> Option<&dyn ShareServer> {
        Some(self)
    }

    fn stop(&self) {
        let mut state = std::mem::take(&mut *self.state.lock());
        // doors close after the server has released them
        drop(std::mem::take(&mut state.listener));
        drop(state.exports);
    }
}

impl ShareServer for NfsService {
    fn protocol(&self) -> Protocol {
        Protocol::Nfs
    }

    fn set_shares(&self, shares: &ShareSet) -> Vec<ShareProblem> {
        let mut state = self.state.lock();
        let mut before = std::mem::take(&mut state.exports);
        let (mut problems, mut is_changed) = (Vec::new(), before.len() != shares.nfs.len());
        for share in &shares.nfs {
            // a renamed file system stays open, and clients keep their handles, opens and locks
            let is_same = |open: &OpenExport| *open.door.filesystem().dataset() == *share.dataset;
            let known = before.iter().position(is_same).map(|at| before.swap_remove(at));
            let is_as_before = known.as_ref().is_some_and(|open| {
                open.share.name == share.name && open.share.options == share.options
            });
            is_changed |= !is_as_before;
            let door = known.map_or_else(|| self.open_door(share), |open| Ok(open.door));
            match door {
                Ok(door) => state.exports.push(OpenExport { share: share.clone(), door }),
                Err(why) => problems.push(share.problem(Protocol::Nfs, why)),
            }
        }
        if let Some(server) = state.listener.server().filter(|_| is_changed)
            && let Err(why) = server.set_exports(exports(&state.exports))
        {
            self.log.write_line(&why.to_string());
        }
        // doors close after the server has released them
        drop(before);
        problems
    }

    fn release(
        &self,
        datasets: &dyn Fn(&str) -> bool,
        reason: ReleaseReason,
        force: bool,
    ) -> Result<()> {
        // a file system is served whether it is mounted or not
        if reason == ReleaseReason::Unmount {
            return Ok(());
        }
        let mut state = self.state.lock();
        if !force && let Some(server) = state.listener.server() {
            let status = server.status();
            for open in state.exports.iter().filter(|open| datasets(&open.share.dataset)) {
                let export = status.exports.iter().find(|export| export.path == open.share.name);
                let opens = export.map_or(0, |export| export.opens);
                if opens > 0 {
                    return Err(Error::refused_error(format!(
                        "'{}' is in use: NFS clients have {opens} files open; close them, or use -f",
                        open.share.dataset
                    )));
                }
            }
        }
        let (released, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut state.exports)
            .into_iter()
            .partition(|open| datasets(&open.share.dataset));
        state.exports = kept;
        if let Some(server) = state.listener.server().filter(|_| !released.is_empty()) {
            let done = server.set_exports(exports(&state.exports));
            done.map_err(|why| Error::refused_error(why.to_string()))?;
        }
        drop(released);
        Ok(())
    }

    fn report(&self) -> ServerReport {
        let state = self.state.lock();
        state.listener.report(|server| {
            let status = server.status();
            let clients = status.connections.iter().flat_map(|connection| {
                let of_export = |path: &String| (path.clone(), share_client(connection));
                connection.exports.iter().map(of_export).collect::<Vec<_>>()
            });
            let (clients, note) = (clients.collect(), status_note(&status));
            ServerReport { listening: status.listening, clients, note, ..ServerReport::default() }
        })
    }

    fn announced(&self, host: &str) -> Vec<MdnsService> {
        let state = self.state.lock();
        let Some(server) = state.listener.server() else { return Vec::new() };
        let listening = server.status().listening;
        let Some(port) = listening.first().map(SocketAddr::port) else {
            return Vec::new();
        };
        let listening: Vec<_> = listening.iter().map(SocketAddr::ip).collect();
        let service = |open: &OpenExport| MdnsService {
            kind: "_nfs._tcp",
            instance: format!("{} on {host}", open.share.name),
            port,
            facts: vec![("path".to_owned(), open.share.name.clone())],
            listening: listening.clone(),
        };
        state.exports.iter().map(service).collect()
    }
}

/// The sentences for `share status`; none: all is well.
fn status_note(status: &::nfs::ServerStatus) -> Option<String> {
    let portmapper = match &status.portmapper {
        missing @ PortmapperStatus::Missing { .. } => describe_portmapper(missing),
        _ => None,
    };
    let sentences: Vec<String> =
        [portmapper, log_wait_note(&status.log_wait)].into_iter().flatten().collect();
    (!sentences.is_empty()).then(|| sentences.join(". "))
}

/// A sentence on how clients of NFSv3 find the server; none: nobody has asked for it.
fn describe_portmapper(status: &PortmapperStatus) -> Option<String> {
    match status {
        PortmapperStatus::Off => None,
        PortmapperStatus::Answers(addresses) => {
            let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            Some(format!("NFS answers as portmapper on {}", addresses.join(" and ")))
        }
        PortmapperStatus::Registered => {
            Some("NFS is registered with the rpcbind of this machine".to_owned())
        }
        PortmapperStatus::Missing { why } => Some(format!(
            "NFSv3 clients cannot find the ports of MOUNT and of locks: {why}. They mount with nolock, port=N and \
             mountport=N; NFSv4 clients need no portmapper. `poolhouse config set nfs.portmapper off` ends this note"
        )),
    }
}

/// Waits below this average are not worth a sentence.
const NOTEWORTHY_WAIT: Duration = Duration::from_millis(5);

/// A sentence on the time that clients wait until the drives have what they wrote; none: it is short.
fn log_wait_note(wait: &LogWaitStatus) -> Option<String> {
    let LogWaitStatus { waiting, waits, total, longest } = *wait;
    let mean = total.checked_div(u32::try_from(waits).ok()?)?;
    if mean < NOTEWORTHY_WAIT {
        return None;
    }
    let milliseconds = |time: Duration| format!("{} ms", time.as_millis());
    Some(format!(
        "NFS clients waited {waits} times until their changes were on the drives, for {} on average and {} at \
         most; {waiting} wait now. They wait when a program saves, closes or creates a file. A mirrored log device \
         with power-loss protection shortens that for small changes: `zpool add POOL log mirror DEVICE DEVICE`. \
         With `zfs set sync=disabled` they do not wait, and a power failure loses the last seconds of what they \
         wrote",
        milliseconds(mean),
        milliseconds(longest),
    ))
}

fn share_client(connection: &ConnectionStatus) -> ShareClient {
    ShareClient {
        address: connection.address.to_string(),
        user: None,
        connected: Some(connection.connected.as_secs()),
        open: Some(connection.in_flight),
        read_bytes: Some(connection.counters.read_bytes),
        written_bytes: Some(connection.counters.written_bytes),
        ..ShareClient::default()
    }
}

fn exports(open: &[OpenExport]) -> Vec<Export> {
    let export = |open: &OpenExport| Export {
        path: open.share.name.clone(),
        filesystem: Arc::new(open.door.filesystem().clone()),
        door: open.door.id(),
        rules: rules(&open.share.options),
    };
    open.iter().map(export).collect()
}

/// The rules, of which the first match counts: those of hosts come first, then patterns, then small networks.
fn rules(options: &NfsOptions) -> Vec<ClientRule> {
    let squash = match options.squash {
        Squash::Root => ::nfs::Squash::Root,
        Squash::All => ::nfs::Squash::All,
        Squash::None => ::nfs::Squash::Nobody,
    };
    let rule = |rule: &crate::shares::nfs::NfsRule| ClientRule {
        clients: rule.clients.clone(),
        is_writable: !rule.read_only,
        squash,
        anonymous: (options.anonuid, options.anongid),
        needs_reserved_port: options.privileged_ports,
    };
    let mut rules: Vec<ClientRule> = options.rules.iter().map(rule).collect();
    let precision = |rule: &ClientRule| match &rule.clients {
        Clients::Network(network) => network.prefix_len(),
        Clients::Netgroup(_) => u8::MAX - 2,
        Clients::Pattern(_) => u8::MAX - 1,
        Clients::Host(_) => u8::MAX,
    };
    rules.sort_by_key(|rule| std::cmp::Reverse(precision(rule)));
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_waits_for_drives_are_told() {
        let wait = |total: u64| LogWaitStatus {
            waiting: 2,
            waits: 10,
            total: Duration::from_millis(total),
            longest: Duration::from_millis(total / 2),
        };
        assert_eq!(log_wait_note(&LogWaitStatus::default()), None);
        assert_eq!(log_wait_note(&wait(49)), None);
        let note = log_wait_note(&wait(4000)).unwrap();
        for part in ["10 times", "400 ms on average", "2000 ms at most", "2 wait now", "zpool add"]
        {
            assert!(note.contains(part), "{note}");
        }
    }
}
