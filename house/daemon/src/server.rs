//! The daemon's life: it imports its pools again, starts its services, serves calls until a client
//! or a signal ends it, and closes its pools.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

use crate::context::Context;
use crate::http::{self, Connections};
use crate::log::Log;
use crate::memory::{Heap, MemoryPressure};
use crate::router::Router;
use crate::services::{self, Service};
use crate::{Error, Result, StateDir, environment};

/// How a daemon runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// On a terminal, which shows the log as well.
    Foreground,
    /// In a session of its own.
    Background,
}

/// The time that running calls have to finish when the daemon ends.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// The interval at which the file of the socket is checked.
const SOCKET_CHECK: Duration = Duration::from_millis(500);

/// Runs the daemon of a state directory until a signal or a call ends it. `memory`: the bytes that
/// it may use; without it, a quarter of the memory. `return_free_memory` is the allocator's
/// function that returns unused pages to the system.
pub fn serve(
    state_dir: &StateDir,
    mode: Mode,
    memory: Option<u64>,
    return_free_memory: fn(),
) -> Result<()> {
    if mode == Mode::Background {
        // it may lead a session already
        let _ = rustix::process::setsid();
    }
    state_dir.create_dirs()?;
    let _lock = state_dir.lock()?;
    allow_many_files();
    environment::configure_huge_pages(memory);
    let log = Arc::new(Log::open(state_dir, mode == Mode::Foreground)?);
    let (version, pid) = (env!("CARGO_PKG_VERSION"), std::process::id());
    log.write_line(&format!("poolhouse {version} starts as process {pid}"));
    let host = environment::host_environment(memory)?;
    let pressure = MemoryPressure::new(environment::memory_limit(memory), &host.cache);
    let context = Context::new(state_dir.clone(), log, host)?;
    let services = services::all(&context);
    context.events.set_services(services.clone());
    let heap = Heap::new(return_free_memory);
    let started =
        context.pools.reimport_pools().and_then(|()| run(&context, &services, &heap, pressure));
    context.pools.shut_down();
    context.events.set_services(Vec::new());
    context.log.write_line("poolhouse ends");
    started
}

/// Serves calls until a client or a signal ends the daemon.
fn run(
    context: &Arc<Context>,
    services: &[Arc<dyn Service>],
    heap: &Heap,
    pressure: MemoryPressure,
) -> Result<()> {
    let socket = context.state_dir.socket();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|why| Error::file_error(&socket, &why))?;
    let done = runtime.block_on(async {
        tokio::spawn(pressure.watch(heap.clone()));
        let mut router = Router::new(Arc::clone(&context.pools), heap.clone());
        for service in services {
            Arc::clone(service).calls(&mut router);
        }
        let routes = context.routes.get_or_init(|| router.into_routes());
        let listener = http::bind(&socket)?;
        for service in services {
            if let Err(why) = service.start(context) {
                context
                    .log
                    .write_line(&format!("service {} does not start: {why}", service.name()));
            }
        }
        context.log.write_line(&format!("listening on {}", socket.display()));
        notify_init(sd_notify::NotifyState::Ready);
        let done = accept(context, listener, routes).await;
        notify_init(sd_notify::NotifyState::Stopping);
        for service in services.iter().rev() {
            service.stop();
        }
        done
    });
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    done
}

/// Notifies systemd, if it started the daemon. Units that are ordered after the daemon start once
/// it is ready: its pools are imported and mounted then.
fn notify_init(state: sd_notify::NotifyState<'_>) {
    // without systemd no process listens
    let _ = sd_notify::notify(&[state]);
}

/// Raises the limit of open files as far as this process may: each mount has one.
fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    // with fewer files, mounts fail one by one with the reason
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Binds the socket again if its file was removed: no client would reach the daemon any more.
fn bind_again(context: &Context, socket: &Path) -> Option<UnixListener> {
    if socket.exists() {
        return None;
    }
    let bound = context.state_dir.create_dirs().and_then(|()| http::bind(socket));
    let (shown, file) = (socket.display(), "the file of the socket was removed");
    match bound {
        Ok(listener) => {
            context.log.write_line(&format!("{file}: listening on {shown} again"));
            Some(listener)
        }
        Err(why) => {
            context.log.write_line(&format!("{file}, and cannot be made again: {why}"));
            None
        }
    }
}

async fn accept(
    context: &Context,
    mut listener: UnixListener,
    routes: &axum::Router,
) -> Result<()> {
    let socket = context.state_dir.socket();
    let failed = |why: std::io::Error| Error::file_error(&socket, &why);
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let connections = Connections::default();
    let mut open = JoinSet::new();
    let mut checks = tokio::time::interval(SOCKET_CHECK);
    loop {
        tokio::select! {
            _ = checks.tick() => {
                if let Some(again) = bind_again(context, &socket) {
                    listener = again;
                }
            }
            stream = listener.accept() => match stream {
                Ok((stream, _)) => {
                    open.spawn(http::serve_unix(stream, routes.clone(), connections.clone()));
                }
                Err(why) => {
                    context.log.write_line(&format!("no connection can be accepted: {why}"));
                    tokio::time::sleep(http::ACCEPT_PAUSE).await;
                }
            },
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            () = context.stop.notified() => break,
            Some(_) = open.join_next() => {}
        }
    }
    drop(listener);
    let _ = std::fs::remove_file(&socket);
    context.end_long_polls();
    let rest = async { while open.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, rest).await;
    Ok(())
}
