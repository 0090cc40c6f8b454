//! The service of the API on TCP. A client shows the token of the daemon, which is in the file `token` of the
//! state directory, and has the rights of the daemon's own user.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Deserialize;
use tokio::task::JoinHandle;

use super::Service;
use crate::auth::Token;
use crate::config::{Config, Listen};
use crate::context::Context;
use crate::router::Router;
use crate::{Error, Result, http};

/// The section `[web]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct WebConfig {
    /// The addresses; none: the API is on the Unix socket only.
    pub(crate) listen: Listen,
}

/// The service of the API on TCP.
pub(super) struct WebService {
    context: Arc<Context>,
    /// The open listeners. A connection outlives its listener.
    listeners: Mutex<BTreeMap<SocketAddr, JoinHandle<()>>>,
}

impl WebService {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        Self { context: Arc::clone(context), listeners: Mutex::default() }
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
                "the API on {bound} is not encrypted: whoever reads the network can read the token"
            ));
        }
        let log = Arc::clone(&self.context.log);
        Ok(tokio::spawn(http::accept_tcp(listener, Arc::new(token), routes, log)))
    }
}

impl Service for WebService {
    fn name(&self) -> &'static str {
        "web"
    }

    fn calls(self: Arc<Self>, _router: &mut Router) {}

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
