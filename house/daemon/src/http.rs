//! The Unix socket and the TCP ports of the daemon, and HTTP/1.1 on their connections.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fs::Permissions;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::Response;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tower_service::Service;
use web::{ClientAddress, Dashboard, IsEncrypted};

use crate::auth::{Peer, Token};
use crate::context::Context;
use crate::log::Log;
use crate::web_tls::WebTls;
use crate::{Error, Result, metrics, router};

/// Every local user may connect: `auth` decides what a user may do.
const SOCKET_MODE: u32 = 0o666;
/// The connections of a user that may not change anything, at most: none keeps the others out.
const MAX_CONNECTIONS: usize = 32;
/// The connections to a TCP port, at most.
const MAX_TCP_CONNECTIONS: usize = 256;
/// The pause after the system refused to accept a connection.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The action that a request without the token cannot do.
const NO_TOKEN: &str = "use the API without its token (Authorization: Bearer TOKEN)";
/// The time that a request to the dashboard may take.
const PAGE_TIMEOUT: Duration = Duration::from_mins(1);
/// The first byte of a TLS connection: the type of a handshake record.
const TLS_HANDSHAKE: u8 = 0x16;
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
    let answer = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer);
        routes.clone().call(request)
    });
    // a client that hangs up needs no reply
    let _ = connection().serve_connection(TokioIo::new(stream), answer).await;
}

/// The requests to a TCP port: of programs to the API, and of browsers to the dashboard.
#[derive(Clone)]
pub(crate) struct TcpRoutes {
    /// Each request to the API shows it.
    pub(crate) token: Arc<Token>,
    pub(crate) api: axum::Router,
    pub(crate) dashboard: Arc<Dashboard>,
    /// For the metrics. The context has the routes, so that it is not owned here.
    pub(crate) context: Weak<Context>,
    /// The certificate, if connections are encrypted.
    pub(crate) tls: Option<Arc<WebTls>>,
}

impl TcpRoutes {
    async fn answer(mut self, mut request: hyper::Request<Incoming>, client: IpAddr) -> Response {
        if request.uri().path() == "/metrics" {
            return self.answer_metrics(&request, client);
        }
        if !request.uri().path().starts_with("/api/") {
            request.extensions_mut().insert(ClientAddress(client));
            if self.tls.is_some() {
                request.extensions_mut().insert(IsEncrypted);
            }
            let answer = self.dashboard.answer(request.map(Body::new));
            return tokio::time::timeout(PAGE_TIMEOUT, answer).await.unwrap_or_else(|_| {
                let why = Error::refused_error("the request was not sent within a minute");
                router::refuse(StatusCode::REQUEST_TIMEOUT, &why)
            });
        }
        let Some(peer) = self.token.peer(request.headers()) else {
            let why = Error::PermissionDenied { action: NO_TOKEN.to_owned() };
            return router::refuse(StatusCode::UNAUTHORIZED, &why);
        };
        request.extensions_mut().insert(peer);
        let Ok(answer) = self.api.call(request).await;
        answer
    }
}

impl TcpRoutes {
    /// Answers a scrape of the metrics: with the token, or from this machine.
    fn answer_metrics(&self, request: &hyper::Request<Incoming>, client: IpAddr) -> Response {
        let headers = request.headers();
        if self.token.peer(headers).is_none() && !metrics::is_local(client, headers) {
            let why = Error::PermissionDenied { action: NO_TOKEN.to_owned() };
            return router::refuse(StatusCode::UNAUTHORIZED, &why);
        }
        let Some(context) = self.context.upgrade() else {
            let why = Error::refused_error("the daemon is shutting down");
            return router::refuse(StatusCode::SERVICE_UNAVAILABLE, &why);
        };
        let datasets = context.datasets.latest();
        let text = metrics::render(&context.overview.latest(), &datasets);
        let mut answer = Response::new(Body::from(text));
        let kind = header::HeaderValue::from_static(metrics::CONTENT_TYPE);
        answer.headers_mut().insert(header::CONTENT_TYPE, kind);
        answer
    }
}

/// Serves the connections to a TCP port.
pub(crate) async fn accept_tcp(listener: TcpListener, routes: TcpRoutes, log: Arc<Log>) {
    let open = Arc::new(Semaphore::new(MAX_TCP_CONNECTIONS));
    loop {
        let Ok(permit) = Arc::clone(&open).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, client)) => {
                let routes = routes.clone();
                tokio::spawn(async move {
                    let _permit = permit;
                    serve_tcp(stream, routes, client.ip()).await;
                });
            }
            Err(why) => {
                log.write_line(&format!("no TCP connection can be accepted: {why}"));
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves a TCP connection until it ends. A client that hangs up needs no reply.
async fn serve_tcp(stream: TcpStream, routes: TcpRoutes, client: IpAddr) {
    let Some(tls) = routes.tls.clone() else {
        return serve_routes(stream, routes, client).await;
    };
    // the daemon is shutting down
    let Some(context) = routes.context.upgrade() else { return };
    let mut first = [0];
    let peeked = tokio::time::timeout(HEAD_TIMEOUT, stream.peek(&mut first)).await;
    if !matches!(peeked, Ok(Ok(1))) {
        return;
    }
    if first != [TLS_HANDSHAKE] {
        let answer = |request: hyper::Request<Incoming>| async move {
            Ok::<_, Infallible>(lead_to_tls(&request))
        };
        let _ = connection().serve_connection(TokioIo::new(stream), service_fn(answer)).await;
        return;
    }
    let acceptor = match tls.acceptor(&context.config.current().section("web")) {
        Ok(acceptor) => acceptor,
        Err(why) => return context.log.write_line(&format!("no TLS connection: {why}")),
    };
    drop(context);
    let accepted = tokio::time::timeout(HEAD_TIMEOUT, acceptor.accept(stream)).await;
    if let Ok(Ok(stream)) = accepted {
        serve_routes(stream, routes, client).await;
    }
}

/// Serves the requests of a connection.
async fn serve_routes<S>(stream: S, routes: TcpRoutes, client: IpAddr)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let answer = move |request: hyper::Request<Incoming>| {
        let answer = routes.clone().answer(request, client);
        async move { Ok::<_, Infallible>(answer.await) }
    };
    let _ = connection().serve_connection(TokioIo::new(stream), service_fn(answer)).await;
}

/// The answer to a request without TLS where TLS is needed: a browser goes on with it.
fn lead_to_tls(request: &hyper::Request<Incoming>) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let target = host.map(|host| format!("https://{host}{path}"));
    let target = target.and_then(|target| header::HeaderValue::from_str(&target).ok());
    let is_page = request.method() == hyper::Method::GET && !path.starts_with("/api/");
    let Some(target) = target.filter(|_| is_page) else {
        let why = Error::refused_error("connections to this port are encrypted: use https");
        return router::refuse(StatusCode::UPGRADE_REQUIRED, &why);
    };
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
    response.headers_mut().insert(header::LOCATION, target);
    response
}

/// HTTP with one request a connection.
fn connection() -> hyper::server::conn::http1::Builder {
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).keep_alive(false);
    builder
}

#[cfg(test)]
mod tests {
    use super::{Connections, MAX_CONNECTIONS};
    use crate::auth::Peer;

    #[test]
    fn a_user_cannot_take_all_connections() {
        let connections = Connections::default();
        let peer = |uid, is_owner| Peer { is_owner, ..Peer::from_uid(uid) };
        let other = peer(1000, false);
        let mut open: Vec<_> =
            (0..MAX_CONNECTIONS).filter_map(|_| connections.open(other)).collect();
        assert_eq!(open.len(), MAX_CONNECTIONS);
        assert!(connections.open(other).is_none());
        assert!(connections.open(peer(1001, false)).is_some());
        assert!(connections.open(peer(0, true)).is_some());
        open.pop();
        assert!(connections.open(other).is_some());
    }
}
