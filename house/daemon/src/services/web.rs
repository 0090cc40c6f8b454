//! The service of the API and the dashboard on TCP. A program shows a token of the daemon, which is in a file of the
//! state directory. With that of `token` it has the rights of the daemon's own user, with that of
//! `token-operate` it cares for drives, scrubs and snapshots, with that of `token-look` it looks. A browser shows the
//! dashboard, which serves nothing until a password is set.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;

use api::{
    DashboardLinks, DashboardStatus, GetDashboard, GetRootCertificate, ListDashboardUsers,
    RemoveDashboardUser, SetUpDashboard, TurnOffDashboard,
};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::task::JoinHandle;
use web::{Dashboard, SETUP_MINUTES};

use super::{ACME_SECTION, Service};
use crate::auth::Token;
use crate::config::{Config, Listen};
use crate::context::Context;
use crate::dashboard_backend::DashboardBackend;
use crate::router::Router;
use crate::web_tls::WebTls;
use crate::{Error, Result, http};

/// The section `[web]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct WebConfig {
    /// The addresses; none: the API is on the Unix socket only.
    pub(crate) listen: Listen,
    /// Whether connections are encrypted.
    tls: TlsMode,
    /// A certificate in PEM, with those between it and its root; none: one of the daemon's own CA.
    pub(crate) certificate: Option<PathBuf>,
    /// Its private key in PEM.
    pub(crate) key: Option<PathBuf>,
    /// Further names of this machine for the certificate of the daemon's own CA.
    pub(crate) names: Vec<String>,
}

/// Whether connections are encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum TlsMode {
    /// On all addresses but loopback, and everywhere with a certificate of the user.
    #[default]
    Auto,
    /// On all addresses.
    On,
    /// On no address: a proxy encrypts, or the network is trusted.
    Off,
}

impl WebConfig {
    /// Whether connections to an address are encrypted.
    pub(crate) fn is_encrypted(&self, address: SocketAddr) -> bool {
        match self.tls {
            TlsMode::Auto => !address.ip().is_loopback() || self.certificate.is_some(),
            TlsMode::On => true,
            TlsMode::Off => false,
        }
    }

    /// The part that an open listener depends on.
    fn mode_of(&self, address: SocketAddr) -> (SocketAddr, bool) {
        (address, self.is_encrypted(address))
    }
}

/// The service of the API and the dashboard on TCP.
pub(super) struct WebService {
    context: Arc<Context>,
    /// The dashboard, or why there is none.
    dashboard: std::result::Result<Arc<Dashboard>, String>,
    /// The open listeners by address, and whether they encrypt. A connection outlives its listener.
    listeners: Mutex<BTreeMap<(SocketAddr, bool), JoinHandle<()>>>,
    tls: Arc<WebTls>,
}

impl WebService {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        let tls = Arc::clone(&context.web_tls);
        let backend = Arc::new(DashboardBackend::new(context, Arc::clone(&tls)));
        let (context, dashboard) = (Arc::clone(context), Dashboard::new(backend));
        Self { context, dashboard, listeners: Mutex::default(), tls }
    }

    fn dashboard(&self) -> Result<&Arc<Dashboard>> {
        self.dashboard.as_ref().map_err(Error::refused_error)
    }

    /// Makes a setup link for each address.
    fn set_up(&self, call: &SetUpDashboard) -> Result<DashboardLinks> {
        let web: WebConfig = self.context.config.current().section("web");
        let addresses = web.listen.addresses();
        if addresses.is_empty() {
            let why = "the dashboard listens nowhere; set its address first, as: \
                       poolhouse config set web.listen 127.0.0.1:8080";
            return Err(Error::refused_error(why));
        }
        let path = self.dashboard()?.make_setup_link(call).map_err(Error::refused_error)?;
        let scheme = |address| if web.is_encrypted(address) { "https" } else { "http" };
        let link =
            |address: &SocketAddr| format!("{}://{}{path}", scheme(*address), reachable(*address));
        Ok(DashboardLinks { links: addresses.iter().map(link).collect(), minutes: SETUP_MINUTES })
    }

    fn status(&self) -> Result<DashboardStatus> {
        let dashboard = self.dashboard()?;
        Ok(DashboardStatus {
            addresses: self.listeners.lock().keys().map(|(address, _)| *address).collect(),
            has_password: dashboard.is_on(),
            sessions: dashboard.session_count(),
            certificate: self
                .context
                .acme
                .status(&self.context.config.current().section(ACME_SECTION)),
        })
    }

    fn open(&self, address: SocketAddr, is_encrypted: bool) -> Result<JoinHandle<()>> {
        let failed = |why: std::io::Error| {
            let why = engine::error::io_error_text(&why);
            Error::refused_error(format!("the API cannot listen on {address}: {why}"))
        };
        let token = Token::load_or_create(&self.context.state_dir)?;
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
        let Some(routes) = self.context.routes.get().cloned() else {
            return Err(Error::refused_error("the API has no calls yet"));
        };
        if is_encrypted {
            // a certificate that cannot be used is reported now, not by each connection
            self.tls.acceptor(&self.context.config.current().section("web"))?;
        }
        let with = if is_encrypted { " with TLS" } else { "" };
        self.context.log.write_line(&format!("the API listens on {bound}{with}"));
        if !bound.ip().is_loopback() && !is_encrypted {
            self.context.log.write_line(&format!(
                "the API on {bound} is not encrypted: a listener in the network can read the token and passwords"
            ));
        }
        let log = Arc::clone(&self.context.log);
        let dashboard = Arc::clone(self.dashboard()?);
        let context = Arc::downgrade(&self.context);
        let tls = is_encrypted.then(|| Arc::clone(&self.tls));
        let routes =
            http::TcpRoutes { token: Arc::new(token), api: routes, dashboard, context, tls };
        Ok(tokio::spawn(http::accept_tcp(listener, routes, log)))
    }
}

impl Service for WebService {
    fn name(&self) -> &'static str {
        "web"
    }

    fn calls(self: Arc<Self>, router: &mut Router) {
        let service = Arc::clone(&self);
        router.add(move |call: &SetUpDashboard, _| service.set_up(call));
        let service = Arc::clone(&self);
        router.add(move |_: &ListDashboardUsers, _| Ok(service.dashboard()?.users()));
        let service = Arc::clone(&self);
        router.add(move |call: &RemoveDashboardUser, _| {
            service.dashboard()?.remove_user(&call.name).map_err(Error::refused_error)
        });
        let service = Arc::clone(&self);
        router.add(move |_: &GetRootCertificate, _| service.tls.root_certificate());
        let service = Arc::clone(&self);
        router.add(move |_: &GetDashboard, _| service.status());
        router.add(move |_: &TurnOffDashboard, _| {
            self.dashboard()?.turn_off().map_err(Error::refused_error)
        });
    }

    fn start(&self, context: &Arc<Context>) -> Result<()> {
        self.configure(&context.config.current())
    }

    fn configure(&self, config: &Config) -> Result<()> {
        let web: WebConfig = config.section("web");
        let addresses = web.listen.addresses();
        let wanted: Vec<_> = addresses.iter().map(|address| web.mode_of(*address)).collect();
        let mut listeners = self.listeners.lock();
        for ((address, _), task) in listeners.extract_if(.., |key, _| !wanted.contains(key)) {
            task.abort();
            self.context.log.write_line(&format!("the API no longer listens on {address}"));
        }
        let mut failed = Vec::new();
        for key in wanted {
            if listeners.contains_key(&key) {
                continue;
            }
            match self.open(key.0, key.1) {
                Ok(task) => {
                    listeners.insert(key, task);
                }
                Err(why) => failed.push(why.to_string()),
            }
        }
        if failed.is_empty() { Ok(()) } else { Err(Error::refused_error(failed.join("; "))) }
    }

    fn stop(&self) {
        for task in std::mem::take(&mut *self.listeners.lock()).into_values() {
            task.abort();
        }
    }
}

/// The address in a link: a listener on all addresses is reached by loopback.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}
