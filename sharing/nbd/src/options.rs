//! Addresses and limits of a server.

use std::net::SocketAddr;
use std::time::Duration;

use crate::{Error, Result};

/// Addresses and limits of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerOptions {
    /// The addresses that the server listens on. The port of NBD is 10809; port 0 is a free one.
    pub listen: Vec<SocketAddr>,
    /// Connections at the same time. Further ones are closed at once.
    pub max_connections: usize,
    /// Threads of one connection: requests that run in parallel.
    pub threads_per_connection: usize,
    /// Bytes of data of one request, announced as the maximum block size.
    pub max_request_bytes: usize,
    /// Bytes of data of all requests of all connections that are in memory. One connection takes at most a quarter,
    /// or one request.
    pub max_buffered_bytes: usize,
    /// The time that a client has for the handshake, and for each MiB of a request or reply once it has begun. A
    /// connection that takes longer is closed. Between requests a client may wait for as long as it likes.
    pub stall_timeout: Duration,
    /// The time that the server waits for requests to end when it stops.
    pub stop_timeout: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            max_connections: 64,
            threads_per_connection: 16,
            max_request_bytes: 32 << 20,
            max_buffered_bytes: 256 << 20,
            stall_timeout: Duration::from_secs(30),
            stop_timeout: Duration::from_secs(5),
        }
    }
}

/// The protocol wants servers to take requests of at least this many bytes.
const LEAST_REQUEST_BYTES: usize = 64 << 10;
const MOST_REQUEST_BYTES: usize = 1 << 30;

impl ServerOptions {
    pub(crate) fn check(&self) -> Result<()> {
        let limits = [
            ("max_connections", self.max_connections, 1, 1 << 16),
            ("threads_per_connection", self.threads_per_connection, 1, 256),
            ("max_request_bytes", self.max_request_bytes, LEAST_REQUEST_BYTES, MOST_REQUEST_BYTES),
            ("max_buffered_bytes", self.max_buffered_bytes, self.max_request_bytes, usize::MAX),
        ];
        for (limit, found, least, most) in limits {
            if !(least..=most).contains(&found) {
                return Err(Error::Limit { limit, found, least, most });
            }
        }
        Ok(())
    }
}
