//! The server of a protocol: started on the addresses of its section, and started again when they change.

use std::fmt;
use std::net::SocketAddr;

use super::ServerReport;
use crate::config::Listen;
use crate::log::Log;
use crate::{Error, Result};

/// A server of one of the `sharing` crates.
pub(crate) trait NetworkServer {
    /// The addresses that it listens on, with the ports that the system chose.
    fn addresses(&self) -> Vec<SocketAddr>;
}

impl NetworkServer for ::iscsi::Server {
    fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses()
    }
}

impl NetworkServer for ::nbd::Server {
    fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses()
    }
}

impl NetworkServer for ::nfs::Server {
    fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses()
    }
}

impl NetworkServer for ::nvmet::Server {
    fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses()
    }
}

/// The server of a protocol, or the reason why there is none.
pub(crate) struct Listener<S> {
    server: Option<S>,
    /// The reason why there is no server, though addresses are configured.
    problem: Option<String>,
}

impl<S> Default for Listener<S> {
    fn default() -> Self {
        Self { server: None, problem: None }
    }
}

impl<S: NetworkServer> Listener<S> {
    /// Stops the server, and starts another one on some addresses; none: nothing listens.
    pub(crate) fn restart<E: fmt::Display>(
        &mut self,
        (protocol, log): (&str, &Log),
        listen: &Listen,
        start: impl FnOnce(Vec<SocketAddr>) -> std::result::Result<S, E>,
    ) -> Result<()> {
        *self = Self::default();
        let addresses = listen.addresses();
        if addresses.is_empty() {
            return Ok(());
        }
        match start(addresses.to_vec()) {
            Ok(server) => {
                for address in server.addresses() {
                    log.write_line(&format!("{protocol} listens on {address}"));
                }
                self.server = Some(server);
                Ok(())
            }
            Err(why) => {
                self.problem = Some(why.to_string());
                Err(Error::refused_error(why.to_string()))
            }
        }
    }

    /// The server, if there is one.
    pub(crate) fn server(&self) -> Option<&S> {
        self.server.as_ref()
    }

    /// Whether the server could not be started: the next change of the configuration tries again.
    pub(crate) fn has_problem(&self) -> bool {
        self.problem.is_some()
    }

    /// The state of the server, or its problem.
    pub(crate) fn report(&self, state: impl FnOnce(&S) -> ServerReport) -> ServerReport {
        match &self.server {
            Some(server) => state(server),
            None => ServerReport { problem: self.problem.clone(), ..ServerReport::default() },
        }
    }
}
