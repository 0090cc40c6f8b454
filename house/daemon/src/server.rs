//! HTTP with JSON on a Unix socket.

use std::convert::Infallible;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use engine::pool::free_buffers;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request as HttpRequest, Response as HttpResponse, StatusCode, header};
use hyper_util::rt::TokioIo;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Map, Value, json};
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::cancel::Cancel;
use crate::daemon::Daemon;
use crate::log::Log;
use crate::{Error, Request, Response, Result, StateDir, environment};

/// How a daemon runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Somebody sits before it and reads what it says.
    Foreground,
    /// Nobody does: it leaves the session of who started it.
    Background,
}

/// What is asked has so many bytes at most.
const MAX_REQUEST_BYTES: usize = 16 << 20;
/// How long those who ask when it ends may take to hear their answer.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// Is the daemon at a place: takes over again what it had, and answers until it is told to end, by
/// a signal or by whoever may ask it. So many bytes of memory may be used; without a number, a
/// quarter of what there is. `return_free_memory` is the allocator's way to give pages that hold nothing
/// back to the system.
pub fn serve(
    place: &StateDir,
    manner: Mode,
    memory: Option<u64>,
    return_free_memory: fn(),
) -> Result<()> {
    if manner == Mode::Background {
        // it may lead a session already
        let _ = rustix::process::setsid();
    }
    place.create_dirs()?;
    let _lock = place.lock()?;
    allow_many_files();
    let log = Log::open(place, manner == Mode::Foreground)?;
    let house = Arc::new(Daemon::new(place.clone(), log, environment::host_environment(memory)?));
    let (version, pid) = (env!("CARGO_PKG_VERSION"), std::process::id());
    house.log.write_line(&format!("poolhouse {version} starts as process {pid}"));
    house.reimport_pools()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|why| Error::file_error(&place.socket(), &why))?;
    let done = runtime.block_on(listen(place, &house, Heap::new(return_free_memory)));
    house.shut_down();
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    house.log.write_line("poolhouse ends");
    done
}

/// Raises the limit of open files as far as this process may: each mount has one.
fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    // with fewer, mounts fail one by one and say why
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Returns memory to the system after requests that free some.
#[derive(Clone)]
struct Heap {
    return_free_memory: fn(),
    /// A return is due, and sees what is freed until then.
    is_due: Arc<AtomicBool>,
}

impl Heap {
    fn new(return_free_memory: fn()) -> Self {
        Self { return_free_memory, is_due: Arc::default() }
    }

    /// Returns what is free in a moment, and once more a little later: threads of what was exported or unmounted may
    /// still be ending.
    fn shrink_soon(&self) {
        if self.is_due.swap(true, Ordering::AcqRel) {
            return;
        }
        let heap = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(200)).await;
            heap.is_due.store(false, Ordering::Release);
            heap.shrink().await;
            tokio::time::sleep(Duration::from_millis(500)).await;
            heap.shrink().await;
        });
    }

    async fn shrink(&self) {
        let return_free_memory = self.return_free_memory;
        let shrink = move || {
            free_buffers();
            return_free_memory();
        };
        // a panic there is in the log
        let _ = tokio::task::spawn_blocking(shrink).await;
    }
}

async fn listen(place: &StateDir, house: &Arc<Daemon>, heap: Heap) -> Result<()> {
    let path = place.socket();
    let failed = |why: std::io::Error| Error::file_error(&path, &why);
    // who has the lock owns what lies there
    let _ = std::fs::remove_file(&path);
    // nobody else is to reach it, not even before its mode is set: it gets its name after that
    let fresh = path.with_extension("new");
    let _ = std::fs::remove_file(&fresh);
    let listener = UnixListener::bind(&fresh).map_err(failed)?;
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&fresh, mode).map_err(failed)?;
    std::fs::rename(&fresh, &path).map_err(failed)?;
    let mut ends = signal(SignalKind::terminate()).map_err(failed)?;
    let mut stops = signal(SignalKind::interrupt()).map_err(failed)?;
    let told = Arc::new(Notify::new());
    let mut talks = JoinSet::new();
    house.log.write_line(&format!("listening on {}", path.display()));
    loop {
        tokio::select! {
            stream = listener.accept() => match stream {
                Ok((stream, _)) => {
                    talks.spawn(serve_connection(stream, Arc::clone(house), Arc::clone(&told), heap.clone()));
                }
                Err(why) => {
                    house.log.write_line(&format!("nobody can be heard: {why}"));
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            _ = ends.recv() => break,
            _ = stops.recv() => break,
            () = told.notified() => break,
            Some(_) = talks.join_next() => {}
        }
    }
    drop(listener);
    let _ = std::fs::remove_file(&path);
    let rest = async { while talks.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, rest).await;
    Ok(())
}

async fn serve_connection(stream: UnixStream, house: Arc<Daemon>, told: Arc<Notify>, heap: Heap) {
    let answer = |request: HttpRequest<Incoming>| {
        let (house, told, heap) = (Arc::clone(&house), Arc::clone(&told), heap.clone());
        async move { Ok::<_, Infallible>(handle_http(request, house, &told, &heap).await) }
    };
    // whoever hangs up wanted no answer
    let _ = hyper::server::conn::http1::Builder::new()
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service_fn(answer))
        .await;
}

async fn handle_http(
    request: HttpRequest<Incoming>,
    house: Arc<Daemon>,
    told: &Notify,
    heap: &Heap,
) -> HttpResponse<Full<Bytes>> {
    let ask = match parse_request(request).await {
        Ok(ask) => ask,
        Err((status, what)) => {
            return json_response(status, &json!({ "error": what, "status": 2 }));
        }
    };
    if let Request::Stop {} = ask {
        told.notify_one();
    }
    let frees_memory = ask.frees_memory();
    let cancel = Cancel::default();
    // a client that hangs up has this future dropped
    let _on_hangup = cancel.on_drop();
    let answered = tokio::task::spawn_blocking(move || house.handle_request(ask, &cancel)).await;
    if frees_memory {
        heap.shrink_soon();
    }
    match answered {
        Ok(Ok(Response { value, warnings })) => {
            json_response(StatusCode::OK, &json!({ "value": value, "warnings": warnings }))
        }
        Ok(Err(why)) => {
            let refusal = json!({ "error": why.to_string(), "status": why.status() });
            json_response(StatusCode::CONFLICT, &refusal)
        }
        Err(_) => {
            let what = "the daemon failed at this: its log says where";
            json_response(
                StatusCode::INTERNAL_SERVER_ERROR,
                &json!({ "error": what, "status": 16 }),
            )
        }
    }
}

/// Those that only look.
const READ_ONLY_VERBS: [&str; 4] = ["hello", "pools", "datasets", "mounts"];

async fn parse_request(
    request: HttpRequest<Incoming>,
) -> std::result::Result<Request, (StatusCode, String)> {
    let (head, body) = request.into_parts();
    let verb = head.uri.path().strip_prefix("/v1/").unwrap_or_default().to_owned();
    let looks = head.method == Method::GET && READ_ONLY_VERBS.contains(&verb.as_str());
    if !looks && head.method != Method::POST {
        let what = format!("{} {}: POST /v1/VERB is wanted", head.method, head.uri.path());
        return Err((StatusCode::METHOD_NOT_ALLOWED, what));
    }
    let bad = |why: String| (StatusCode::BAD_REQUEST, format!("/v1/{verb}: {why}"));
    let body = Limited::new(body, MAX_REQUEST_BYTES)
        .collect()
        .await
        .map_err(|why| bad(why.to_string()))?;
    let body = body.to_bytes();
    let fields = if body.is_empty() {
        Value::Object(Map::new())
    } else {
        serde_json::from_slice(&body).map_err(|why| bad(why.to_string()))?
    };
    let ask = Value::Object(Map::from_iter([(verb.clone(), fields)]));
    serde_json::from_value(ask).map_err(|why| bad(why.to_string()))
}

fn json_response(status: StatusCode, body: &Value) -> HttpResponse<Full<Bytes>> {
    let mut response = HttpResponse::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = status;
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
