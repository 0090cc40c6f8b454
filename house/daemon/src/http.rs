//! The Unix socket of the daemon, and HTTP/1.1 on its connections.

use std::collections::HashMap;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{UnixListener, UnixStream};
use tower_service::Service;

use crate::auth::Peer;
use crate::{Error, Result};

/// Every local user may connect: `auth` decides what a user may do.
const SOCKET_MODE: u32 = 0o666;
/// The connections of a user that may not change anything, at most: none keeps the others out.
const MAX_CONNECTIONS: usize = 32;
/// The time that a client may take to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Creates the socket. The caller holds the lock of the state directory.
pub(crate) fn bind(path: &Path) -> Result<UnixListener> {
    let failed = |why: io::Error| Error::file_error(path, &why);
    // the socket gets its name after its mode, so that every connection finds the right mode
    let fresh = path.with_extension("new");
    let _ = std::fs::remove_file(&fresh);
    let listener = UnixListener::bind(&fresh).map_err(failed)?;
    std::fs::set_permissions(&fresh, Permissions::from_mode(SOCKET_MODE)).map_err(failed)?;
    std::fs::rename(&fresh, path).map_err(failed)?;
    Ok(listener)
}

/// The number of open connections of each user.
#[derive(Clone, Default)]
pub(crate) struct Connections(Arc<Mutex<HashMap<u32, usize>>>);

/// An open connection of a user.
struct Connection {
    connections: Connections,
    uid: u32,
}

impl Connections {
    /// Counts a connection; nothing if the user has too many.
    fn open(&self, peer: Peer) -> Option<Connection> {
        let mut counts = self.0.lock();
        let count = counts.entry(peer.uid).or_default();
        if !peer.is_owner && *count >= MAX_CONNECTIONS {
            return None;
        }
        *count += 1;
        Some(Connection { connections: self.clone(), uid: peer.uid })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut counts = self.connections.0.lock();
        if let Some(count) = counts.get_mut(&self.uid) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.uid);
            }
        }
    }
}

/// Serves a connection to the Unix socket until it ends.
pub(crate) async fn serve_unix(stream: UnixStream, routes: axum::Router, connections: Connections) {
    let Ok(peer) = Peer::from_socket(&stream) else { return };
    let Some(_open) = connections.open(peer) else { return };
    serve_stream(stream, peer, routes).await;
}

/// Serves one request of a peer.
async fn serve_stream(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Peer,
    routes: axum::Router,
) {
    let answer = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer);
        routes.clone().call(request)
    });
    // a client that hangs up wants no answer
    let _ = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), answer)
        .await;
}

#[cfg(test)]
mod tests {
    use super::{Connections, MAX_CONNECTIONS};
    use crate::auth::Peer;

    #[test]
    fn a_user_cannot_take_all_connections() {
        let connections = Connections::default();
        let other = Peer { uid: 1000, is_owner: false };
        let mut open: Vec<_> =
            (0..MAX_CONNECTIONS).filter_map(|_| connections.open(other)).collect();
        assert_eq!(open.len(), MAX_CONNECTIONS);
        assert!(connections.open(other).is_none());
        assert!(connections.open(Peer { uid: 1001, is_owner: false }).is_some());
        assert!(connections.open(Peer { uid: 0, is_owner: true }).is_some());
        open.pop();
        assert!(connections.open(other).is_some());
    }
}
