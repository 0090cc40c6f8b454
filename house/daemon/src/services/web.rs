//! The service of the API and the dashboard on TCP. A program shows the token of the daemon, which is in the file
//! `token` of the state directory, and has the rights of the daemon's own user. A browser shows the dashboard,
//! which serves nothing until a password is set.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::Arc;

use api::{DashboardLinks, DashboardStatus, GetDashboard, SetUpDashboard, TurnOffDashboard};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::task::JoinHandle;
use web::{Dashboard, SETUP_MINUTES};

use super::Service;
use crate::auth::Token;
use crate::config::{Config, Listen};
use crate::context::Context;
use crate::dashboard_backend::DashboardBackend;
use crate::router::Router;
use crate::{Error, Result, http};

/// The section `[web]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct WebConfig {
    /// The addresses; none: the API is on the Unix socket only.
    pub(crate) listen: Listen,
}

/// The service of the API and the dashboard on TCP.
pub(super) struct WebService {
    context: Arc<Context>,
    /// The dashboard, or why there is none.
    dashboard: std::result::Result<Arc<Dashboard>, String>,
    /// The open listeners. A connection outlives its listener.
    listeners: Mutex<BTreeMap<SocketAddr, JoinHandle<()>>>,
}

impl WebService {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        let backend = Arc::new(DashboardBackend::new(context));
        let (context, dashboard) = (Arc::clone(context), Dashboard::new(backend));
        Self { context, dashboard, listeners: Mutex::default() }
    }

    fn dashboard(&self) -> Result<&Arc<Dashboard>> {
        self.dashboard.as_ref().map_err(Error::refused_error)
    }

    /// Makes a setup link for each address.
    fn set_up(&self) -> Result<DashboardLinks> {
        let web: WebConfig = self.context.config.current().section("web");
        let addresses = web.listen.addresses();
        if addresses.is_empty() {
            let why = "the dashboard listens nowhere; set its address first, as: \
                       poolhouse config set web.listen 127.0.0.1:8080";
            return Err(Error::refused_error(why));
        }
        let path = self.dashboard()?.make_setup_link().map_err(Error::refused_error)?;
        let link = |address: &SocketAddr| format!("http://{}{path}", reachable(*address));
        Ok(DashboardLinks { links: addresses.iter().map(link).collect(), minutes: SETUP_MINUTES })
    }

    fn status(&self) -> Result<DashboardStatus> {
        let dashboard = self.dashboard()?;
        Ok(DashboardStatus {
            addresses: self.listeners.lock().keys().copied().collect(),
            has_password: dashboard.is_on(),
            sessions: dashboard.session_count(),
        })
    }

    fn open(&self, address: SocketAddr) -> Result<JoinHandle<()>> {
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
        self.context.log.write_line(&format!("the API listens on {bound}"));
        if !bound.ip().is_loopback() {
            self.context.log.write_line(&format!(
                "the API on {bound} is not encrypted: a listener in the network can read the token and the dashboard's password"
            ));
        }
        let log = Arc::clone(&self.context.log);
        let dashboard = Arc::clone(self.dashboard()?);
        let context = Arc::downgrade(&self.context);
        let routes = http::TcpRoutes { token: Arc::new(token), api: routes, dashboard, context };
        Ok(tokio::spawn(http::accept_tcp(listener, routes, log)))
    }
}

impl Service for WebService {
    fn name(&self) -> &'static str {
        "web"
    }

    fn calls(self: Arc<Self>, router: &mut Router) {
        let service = Arc::clone(&self);
        router.add(move |_: &SetUpDashboard, _| service.set_up());
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
        let wanted = web.listen.addresses();
        let mut listeners = self.listeners.lock();
        for (address, task) in listeners.extract_if(.., |address, _| !wanted.contains(address)) {
            task.abort();
            self.context.log.write_line(&format!("the API no longer listens on {address}"));
        }
        let mut failed = Vec::new();
        for address in wanted
            .iter()
            .filter(|address| !listeners.contains_key(*address))
            .copied()
            .collect::<Vec<_>>()
        {
            match self.open(address) {
                Ok(task) => {
                    listeners.insert(address, task);
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
