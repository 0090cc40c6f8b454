//! The daemon as the dashboard sees it.

use std::sync::{Arc, Weak};
use std::time::Instant;

use api::{DriveDetails, Overview, Refusal};
use axum::body::Body;
use axum::http::Request;
use tower_service::Service;
use web::{ApiReply, ApiRequest, Backend};

use crate::auth::Peer;
use crate::context::Context;
use crate::events::unix_seconds;
use crate::web_tls::WebTls;
use crate::{Error, Result, environment, state_file};

/// The largest answer of the API that a page shows, in bytes.
const MAX_ANSWER: usize = 64 << 20;

/// The daemon behind the dashboard. It keeps the context by a weak reference: the context has the routes.
pub(crate) struct DashboardBackend {
    context: Weak<Context>,
    started: Instant,
    tls: Arc<WebTls>,
}

impl DashboardBackend {
    pub(crate) fn new(context: &Arc<Context>, tls: Arc<WebTls>) -> Self {
        Self { context: Arc::downgrade(context), started: Instant::now(), tls }
    }

    fn context(&self) -> Result<Arc<Context>> {
        let why = "the daemon is shutting down";
        self.context.upgrade().ok_or_else(|| Error::refused_error(why))
    }

    fn write_users(&self, users: Option<&str>) -> Result<()> {
        let path = self.context()?.state_dir.web_users();
        let Some(users) = users else {
            return match std::fs::remove_file(&path) {
                Err(why) if why.kind() != std::io::ErrorKind::NotFound => {
                    Err(Error::file_error(&path, &why))
                }
                _ => Ok(()),
            };
        };
        state_file::replace(&path, users.as_bytes())
    }

    fn read_users(&self) -> Result<Option<String>> {
        let path = self.context()?.state_dir.web_users();
        match std::fs::read_to_string(&path) {
            Ok(users) => Ok(Some(users)),
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(why) => Err(Error::file_error(&path, &why)),
        }
    }
}

/// Sends a request to the API within this process, as the daemon's own user.
async fn send(routes: axum::Router, request: ApiRequest) -> std::result::Result<Vec<u8>, String> {
    let ApiRequest { method, encoded, command } = request;
    let peer = Peer::from_uid(rustix::process::geteuid().as_raw());
    let built = Request::builder()
        .method(method.as_str())
        .uri(encoded.target)
        .header(api::COMMAND_HEADER, api::encode_command(&command))
        .extension(peer)
        .body(Body::from(encoded.body));
    let request = built.map_err(|why| why.to_string())?;
    let mut routes = routes;
    let Ok(response) = routes.call(request).await;
    let (head, body) = response.into_parts();
    let body = axum::body::to_bytes(body, MAX_ANSWER).await.map_err(|why| why.to_string())?;
    if head.status.is_success() {
        return Ok(body.to_vec());
    }
    let refusal: std::result::Result<Refusal, _> = serde_json::from_slice(&body);
    Err(refusal.map_or_else(|why| why.to_string(), |refusal| refusal.error))
}

/// An error as a sentence.
fn sentence<T>(result: Result<T>) -> std::result::Result<T, String> {
    result.map_err(|why| why.to_string())
}

impl Backend for DashboardBackend {
    fn overview(&self) -> Arc<Overview> {
        self.context().map(|context| context.overview.latest()).unwrap_or_default()
    }

    fn drive(&self, drive: &str) -> std::result::Result<DriveDetails, String> {
        sentence(
            self.context().and_then(|context| {
                context.drives.details(&context.overview.latest().drives, drive)
            }),
        )
    }

    fn call(&self, request: ApiRequest) -> ApiReply {
        let routes = self.context().ok().and_then(|context| context.routes.get().cloned());
        Box::pin(async move {
            let routes = routes.ok_or("the daemon is shutting down")?;
            send(routes, request).await
        })
    }

    fn load_users(&self) -> std::result::Result<Option<String>, String> {
        sentence(self.read_users())
    }

    fn save_users(&self, users: Option<&str>) -> std::result::Result<(), String> {
        sentence(self.write_users(users))
    }

    fn root_certificate(&self) -> Option<String> {
        self.tls.root_certificate().ok().flatten()
    }

    fn fill_random(&self, bytes: &mut [u8]) -> std::result::Result<(), String> {
        environment::fill_random(bytes).map_err(|why| format!("no random numbers: {why}"))
    }

    fn monotonic_seconds(&self) -> u64 {
        self.started.elapsed().as_secs()
    }

    fn unix_seconds(&self) -> u64 {
        unix_seconds()
    }

    fn log(&self, line: &str) {
        if let Ok(context) = self.context() {
            context.log.write_line(line);
        }
    }
}
