//! The service of NBD: volumes of `[[share]]` entries as network block devices.
//!
//! ```toml
//! [nbd]
//! listen = "192.168.1.5:10809"   # or a list, or a port alone (loopback); without it nothing listens
//! ```

use std::sync::Arc;

use ::nbd::{Export, Server, ServerOptions};
use api::{Protocol, ShareClient, pool_of};
use lun::{Lun, LunOptions, Reservations, SnapshotLun, VolumeLun};
use parking_lot::Mutex;
use serde::Deserialize;

use super::Service;
use crate::config::{Config, Listen};
use crate::context::Context;
use crate::log::Log;
use crate::pools::Pools;
use crate::router::Router;
use crate::shares::nbd::NbdOptions;
use crate::shares::{ReleaseReason, ServerReport, Share, ShareProblem, ShareServer, ShareSet};
use crate::{Error, Result};

/// The section `[nbd]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NbdConfig {
    /// The addresses; none: nothing is served.
    listen: Listen,
}

/// The service of NBD.
pub(super) struct NbdService {
    pools: Arc<Pools>,
    log: Arc<Log>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    listen: Listen,
    server: Option<Server>,
    /// The reason why there is no server, though addresses are configured.
    problem: Option<String>,
    exports: Vec<OpenExport>,
}

/// A share whose volume is open.
struct OpenExport {
    share: Share<NbdOptions>,
    unit: Arc<dyn Lun>,
}

impl NbdService {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        let (pools, log) = (Arc::clone(&context.pools), Arc::clone(&context.log));
        Self { pools, log, state: Mutex::default() }
    }

    /// Opens the volume of a share.
    fn open_unit(&self, share: &Share<NbdOptions>) -> std::result::Result<Arc<dyn Lun>, String> {
        let pool = self.pools.pool(pool_of(&share.dataset)).map_err(|why| why.to_string())?;
        let options = LunOptions { read_only: share.options.read_only, ..LunOptions::default() };
        let (pool, name) = (&pool.handle, share.dataset.as_str());
        let unit: Arc<dyn Lun> = if name.contains('@') {
            Arc::new(SnapshotLun::open(pool, name, options).map_err(|why| why.to_string())?)
        } else {
            // NBD has no reservations
            let unit = VolumeLun::open(pool, name, options, Reservations::default());
            Arc::new(unit.map_err(|why| why.to_string())?)
        };
        Ok(unit)
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
        match Server::start(&options, exports(&state.exports)) {
            Ok(server) => {
                for address in server.addresses() {
                    self.log.write_line(&format!("NBD listens on {address}"));
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

impl Service for NbdService {
    fn name(&self) -> &'static str {
        "nbd"
    }

    fn calls(self: Arc<Self>, _router: &mut Router) {}

    fn start(&self, context: &Arc<Context>) -> Result<()> {
        self.configure(&context.config.current())
    }

    fn configure(&self, config: &Config) -> Result<()> {
        let NbdConfig { listen } = config.section("nbd");
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

impl ShareServer for NbdService {
    fn protocol(&self) -> Protocol {
        Protocol::Nbd
    }

    fn set_shares(&self, shares: &ShareSet) -> Vec<ShareProblem> {
        let mut state = self.state.lock();
        let mut before = std::mem::take(&mut state.exports);
        let (mut problems, mut is_changed) = (Vec::new(), before.len() != shares.nbd.len());
        for share in &shares.nbd {
            // the source is the line in the file, which changes when other shares come and go
            let same = |open: &OpenExport| {
                (&open.share.dataset, &open.share.name, &open.share.options)
                    == (&share.dataset, &share.name, &share.options)
                    // a volume of the same name may have taken its place
                    && !matches!(open.unit.space(), Err(lun::Error::Gone))
            };
            if let Some(at) = before.iter().position(same) {
                state.exports.push(before.swap_remove(at));
                continue;
            }
            is_changed = true;
            match self.open_unit(share) {
                Ok(unit) => state.exports.push(OpenExport { share: share.clone(), unit }),
                Err(why) => problems.push(share.problem(Protocol::Nbd, why)),
            }
        }
        if let Some(server) = state.server.as_ref().filter(|_| is_changed)
            && let Err(why) = server.set_exports(exports(&state.exports))
        {
            // names were checked when the shares were resolved
            self.log.write_line(&why.to_string());
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
            let names: Vec<_> =
                status.clients.iter().filter_map(|client| client.export.as_ref()).collect();
            let is_used = |open: &&OpenExport| {
                datasets(&open.share.dataset) && names.contains(&&open.share.name)
            };
            if let Some(open) = state.exports.iter().find(is_used) {
                let count = names.iter().filter(|name| ***name == open.share.name).count();
                return Err(in_use(&open.share.dataset, count));
            }
        }
        let count = state.exports.len();
        state.exports.retain(|open| !datasets(&open.share.dataset));
        if let Some(server) = state.server.as_ref().filter(|_| count != state.exports.len()) {
            let done = server.set_exports(exports(&state.exports));
            done.map_err(|why| Error::refused_error(why.to_string()))?;
        }
        Ok(())
    }

    fn report(&self) -> ServerReport {
        let state = self.state.lock();
        let Some(server) = &state.server else {
            return ServerReport { problem: state.problem.clone(), ..ServerReport::default() };
        };
        let status = server.status();
        let clients = status.clients.into_iter().filter_map(|client| {
            let shown = ShareClient {
                address: client.address.to_string(),
                user: None,
                connected: Some(client.connected.as_secs()),
                open: Some(client.in_flight),
                read_bytes: Some(client.counters.read_bytes),
                written_bytes: Some(client.counters.written_bytes),
            };
            Some((client.export?, shown))
        });
        let clients = clients.collect();
        ServerReport { listening: status.listening, clients, ..ServerReport::default() }
    }
}

fn in_use(dataset: &str, clients: usize) -> Error {
    Error::refused_error(format!(
        "'{dataset}' is in use: NBD connections: {clients}; disconnect the clients, or use -f"
    ))
}

fn exports(open: &[OpenExport]) -> Vec<Export> {
    let export = |open: &OpenExport| Export {
        name: open.share.name.clone(),
        description: open.share.dataset.clone(),
        networks: open.share.options.networks.as_slice().to_vec(),
        unit: Arc::clone(&open.unit),
    };
    open.iter().map(export).collect()
}
