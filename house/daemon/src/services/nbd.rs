//! The service of NBD: volumes of `[[share]]` entries as network block devices.
//!
//! ```toml
//! [nbd]
//! listen = "192.168.1.5:10809"   # or a list, or a port alone (loopback); without it nothing listens
//! tls = "require"                # clients see no export without TLS; "allow": they choose; "off": no TLS
//! client_authority = "/etc/poolhouse/nbd-clients.pem"   # with "require": clients show a certificate of these roots
//! ```
//!
//! The certificate is that of the section `[web]`: the user's own, or one of the daemon's own CA.

use std::path::PathBuf;
use std::sync::Arc;

use ::nbd::{CertificateSource, Encryption, Export, Server, ServerOptions};
use api::{Protocol, ShareClient};
use lun::UnitTable;
use parking_lot::Mutex;
use serde::Deserialize;

use super::{Service, WebConfig};
use crate::config::{Config, Listen};
use crate::context::Context;
use crate::log::Log;
use crate::pools::Pools;
use crate::router::Router;
use crate::shares::listener::Listener;
use crate::shares::nbd::NbdOptions;
use crate::shares::volumes::{VolumeShare, VolumeShares};
use crate::shares::{ReleaseReason, ServerReport, Share, ShareProblem, ShareServer, ShareSet};
use crate::{Error, Result};

/// The section `[nbd]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NbdConfig {
    /// The addresses; none: nothing is served.
    listen: Listen,
    tls: TlsMode,
    /// The file with the roots of the certificates that clients must show; none: clients need no certificate.
    client_authority: Option<PathBuf>,
}

/// Whether connections are encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum TlsMode {
    /// None is.
    #[default]
    Off,
    /// Those of clients that start TLS.
    Allow,
    /// All are.
    Require,
}

/// The service of NBD.
pub(super) struct NbdService {
    pools: Arc<Pools>,
    log: Arc<Log>,
    units: Arc<UnitTable>,
    certificate: CertificateSource,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    config: NbdConfig,
    listener: Listener<Server>,
    volumes: VolumeShares<NbdOptions>,
}

impl NbdService {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        let (pools, log) = (Arc::clone(&context.pools), Arc::clone(&context.log));
        let units = Arc::clone(&context.units);
        let certificate = certificate_source(context);
        Self { pools, log, units, certificate, state: Mutex::default() }
    }

    /// Starts a server on the addresses of the configuration.
    fn start_server(&self, state: &mut State) -> Result<()> {
        let State { config, listener, volumes } = state;
        listener.restart(("NBD", &self.log), &config.listen, |listen| {
            let encryption = self.encryption(config)?;
            let options = ServerOptions { listen, ..ServerOptions::default() };
            Server::start(&options, exports(volumes), encryption).map_err(|why| why.to_string())
        })
    }

    fn encryption(&self, config: &NbdConfig) -> std::result::Result<Option<Encryption>, String> {
        if config.client_authority.is_some() && config.tls != TlsMode::Require {
            return Err(
                "nbd.client_authority needs nbd.tls = \"require\": clients without TLS show \
                        no certificate"
                    .to_owned(),
            );
        }
        if config.tls == TlsMode::Off {
            return Ok(None);
        }
        let certificate = match &config.client_authority {
            Some(path) => for_known_clients(Arc::clone(&self.certificate), path.clone()),
            None => Arc::clone(&self.certificate),
        };
        // a certificate that cannot be used is reported now, not by each connection
        certificate()?;
        let is_required = config.tls == TlsMode::Require;
        Ok(Some(Encryption { certificate, is_required }))
    }
}

/// A certificate for clients that show one of the roots in a file, which is read for each connection.
fn for_known_clients(certificate: CertificateSource, roots: PathBuf) -> CertificateSource {
    Arc::new(move || {
        let named = |why: String| format!("nbd.client_authority '{}': {why}", roots.display());
        let pem = std::fs::read(&roots).map_err(|why| named(why.to_string()))?;
        tls::with_client_roots(&*certificate()?, &pem).map_err(|why| named(why.to_string()))
    })
}

/// Gives the certificate of the section `[web]`, which may have been renewed since the last connection.
fn certificate_source(context: &Arc<Context>) -> CertificateSource {
    let context = Arc::downgrade(context);
    Arc::new(move || {
        let context = context.upgrade().ok_or("the daemon is shutting down")?;
        let web: WebConfig = context.config.current().section("web");
        let certificate = context.web_tls.server_config(&web);
        certificate.map_err(|why| {
            let line = format!("NBD has no certificate for TLS: {why}");
            context.log.write_line(&line);
            line
        })
    })
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
        let config: NbdConfig = config.section("nbd");
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
        let mut problems = Vec::new();
        let is_changed =
            state.volumes.update((&self.pools, &self.units), &shares.nbd, &mut problems);
        if let Some(server) = state.listener.server().filter(|_| is_changed)
            && let Err(why) = server.set_exports(exports(&state.volumes))
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
        if !force && let Some(server) = state.listener.server() {
            let clients = server.status().clients;
            let count = |share: &Share<NbdOptions>| {
                clients.iter().filter(|client| client.export.as_ref() == Some(&share.name)).count()
            };
            if let Some((share, count)) = state.volumes.find_used(datasets, count) {
                return Err(Error::refused_error(format!(
                    "'{}' is in use: NBD connections: {count}; disconnect the clients, or use -f",
                    share.dataset
                )));
            }
        }
        if state.volumes.release(datasets)
            && let Some(server) = state.listener.server()
        {
            let done = server.set_exports(exports(&state.volumes));
            done.map_err(|why| Error::refused_error(why.to_string()))?;
        }
        Ok(())
    }

    fn report(&self) -> ServerReport {
        let state = self.state.lock();
        state.listener.report(|server| {
            let status = server.status();
            let clients = status.clients.into_iter().filter_map(|client| {
                let shown = ShareClient {
                    address: client.address.to_string(),
                    user: None,
                    connected: Some(client.connected.as_secs()),
                    open: Some(client.in_flight),
                    read_bytes: Some(client.counters.read_bytes),
                    written_bytes: Some(client.counters.written_bytes),
                    ..ShareClient::default()
                };
                Some((client.export?, shown))
            });
            let clients = clients.collect();
            let (listening, log_waits) = (status.listening, state.volumes.log_waits());
            ServerReport { listening, clients, log_waits, ..ServerReport::default() }
        })
    }
}

fn exports(volumes: &VolumeShares<NbdOptions>) -> Vec<Export> {
    let export = |open: &VolumeShare<NbdOptions>| Export {
        name: open.share.name.clone(),
        description: open.share.dataset.clone(),
        networks: open.share.options.networks.as_slice().to_vec(),
        unit: Arc::clone(&open.unit.lun),
    };
    volumes.iter().map(export).collect()
}
