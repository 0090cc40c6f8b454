//! From an HTTP request to a typed call and back.
//!
//! A service adds a handler per call. The router decodes the request, checks the user, runs the
//! handler on a thread that may block, records the command in the history of the pool, and encodes
//! the reply.

use std::future::Future;
use std::sync::Arc;

use api::{Call, Method, NeededPermission, Refusal, Reply};
use axum::Extension;
use axum::body::Body;
use axum::extract::{RawPathParams, Request};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::{MethodFilter, get, on};
use serde::Serialize;

use crate::auth::{Caller, Peer};
use crate::cancel::Cancel;
use crate::memory::Heap;
use crate::openapi::Description;
use crate::pools::Pools;
use crate::{Error, Result};

/// The largest body of a request, in bytes.
const MAX_REQUEST_BYTES: usize = 16 << 20;

/// The calls of all services.
pub(crate) struct Router {
    routes: axum::Router,
    description: Description,
    pools: Arc<Pools>,
    heap: Heap,
}

/// A request that was decoded, with its envelope.
struct Decoded<C> {
    call: C,
    caller: Caller,
    /// The line for the history of the pool.
    command: String,
}

impl Router {
    pub(crate) fn new(pools: Arc<Pools>, heap: Heap) -> Self {
        let (routes, description) = Default::default();
        Self { routes, description, pools, heap }
    }

    /// Adds a call. The handler may block.
    pub(crate) fn add<C, R>(
        &mut self,
        handler: impl Fn(&C, &Caller) -> Result<R> + Send + Sync + 'static,
    ) where
        C: Call,
        R: Into<Reply<C::Response>> + 'static,
    {
        let handler = Arc::new(handler);
        let (pools, heap) = (Arc::clone(&self.pools), self.heap.clone());
        self.add_async(move |call: C, caller, command| {
            let (handler, pools, heap) = (Arc::clone(&handler), Arc::clone(&pools), heap.clone());
            async move {
                let work = move || run_call(&*handler, &pools, &call, &caller, &command);
                let done = tokio::task::spawn_blocking(work).await;
                if C::FREES_MEMORY {
                    heap.shrink_soon();
                }
                done.unwrap_or(Err(Error::Panicked {}))
            }
        });
    }

    /// Adds a call whose handler never blocks.
    pub(crate) fn add_async<C, F>(
        &mut self,
        handler: impl Fn(C, Caller, String) -> F + Clone + Send + Sync + 'static,
    ) where
        C: Call,
        F: Future<Output = Result<Reply<C::Response>>> + Send,
    {
        let pools = Arc::clone(&self.pools);
        let route =
            move |Extension(peer): Extension<Peer>, fields: RawPathParams, request: Request| {
                let (handler, pools) = (handler.clone(), Arc::clone(&pools));
                async move {
                    let cancel = Cancel::default();
                    // the connection drops this future when the client hangs up
                    let _on_hangup = cancel.on_drop();
                    let decoded = match decode::<C>(peer, &fields, request, cancel.clone()).await {
                        Ok(decoded) => decoded,
                        Err(why) => return refuse(StatusCode::BAD_REQUEST, &why),
                    };
                    let Decoded { call, caller, command } = decoded;
                    let denied = peer.check(&call).err();
                    let denied = denied.map(|why| (why, call.needed_permissions()));
                    if let Some((why, needed)) = denied
                        && !is_delegated(&pools, peer, needed).await
                    {
                        return refuse(StatusCode::FORBIDDEN, &why);
                    }
                    match handler(call, caller, command).await {
                        Ok(reply) => respond(StatusCode::OK, &reply),
                        Err(why @ Error::Panicked {}) => {
                            refuse(StatusCode::INTERNAL_SERVER_ERROR, &why)
                        }
                        Err(why) => refuse(StatusCode::CONFLICT, &why),
                    }
                }
            };
        self.description.add::<C>();
        let routes = std::mem::take(&mut self.routes);
        let path = format!("{}{}", api::PREFIX, C::PATH);
        self.routes = routes.route(&path, on(method_filter(C::METHOD), route));
    }

    /// The routes of all calls.
    pub(crate) fn into_routes(self) -> axum::Router {
        let unknown = |request: Request| async move {
            let what =
                format!("{} {}: there is no such call", request.method(), request.uri().path());
            refuse(StatusCode::NOT_FOUND, &Error::usage_error(what))
        };
        let document = self.description.document();
        let description = get(move || async move { respond(StatusCode::OK, &document) });
        let routes = self.routes.route(&format!("{}/openapi.json", api::PREFIX), description);
        routes.fallback(unknown).method_not_allowed_fallback(unknown)
    }
}

/// Whether `zfs allow` delegated the permissions of a call to a user; none: the call cannot be
/// delegated.
async fn is_delegated(
    pools: &Arc<Pools>,
    peer: Peer,
    needed: Option<Vec<NeededPermission>>,
) -> bool {
    let Some(needed) = needed.filter(|_| peer.limit.is_none()) else { return false };
    let pools = Arc::clone(pools);
    // it reads the pool
    let checked = tokio::task::spawn_blocking(move || pools.is_permitted(peer, &needed)).await;
    matches!(checked, Ok(Ok(true)))
}

/// Runs a handler, and records the command in the history of the pool that it changes.
fn run_call<C: Call, R: Into<Reply<C::Response>>>(
    handler: &dyn Fn(&C, &Caller) -> Result<R>,
    pools: &Pools,
    call: &C,
    caller: &Caller,
    command: &str,
) -> Result<Reply<C::Response>> {
    let record = |pool: &str| pools.record_command(pool, command, caller.peer.uid);
    // a pool that leaves cannot be written to afterwards
    if let Some(pool) = call.removed_pool() {
        record(pool);
    }
    let mut reply: Reply<C::Response> = handler(call, caller)?.into();
    if C::CHANGES {
        reply.warnings.extend(pools.unsaved_warning());
        reply.warnings.extend(pools.cachefile_warning());
    }
    for pool in call.changed_pools(&reply.value) {
        record(&pool);
    }
    Ok(reply)
}

async fn decode<C: Call>(
    peer: Peer,
    fields: &RawPathParams,
    request: Request,
    cancel: Cancel,
) -> Result<Decoded<C>> {
    let (head, body) = request.into_parts();
    let target = head.uri.path().to_owned();
    let bad = |why: String| Error::usage_error(format!("{} {target}: {why}", head.method));
    let body = axum::body::to_bytes(body, MAX_REQUEST_BYTES).await;
    let body = body.map_err(|why| bad(why.to_string()))?;
    let fields: Vec<_> =
        fields.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let call = api::decode(&fields, head.uri.query(), &body).map_err(bad)?;
    let command =
        command_line(&head.headers).unwrap_or_else(|| format!("{} {target}", head.method));
    Ok(Decoded { call, caller: Caller { peer, cancel }, command })
}

fn command_line(headers: &HeaderMap) -> Option<String> {
    Some(api::decode_command(headers.get(api::COMMAND_HEADER)?.to_str().ok()?))
}

const fn method_filter(method: Method) -> MethodFilter {
    match method {
        Method::Get => MethodFilter::GET,
        Method::Post => MethodFilter::POST,
        Method::Put => MethodFilter::PUT,
        Method::Patch => MethodFilter::PATCH,
        Method::Delete => MethodFilter::DELETE,
    }
}

/// The reply to a request that failed.
pub(crate) fn refuse(status: StatusCode, why: &Error) -> Response {
    respond(status, &Refusal { error: why.to_string(), status: why.status() })
}

fn respond(status: StatusCode, body: &impl Serialize) -> Response {
    let (status, text) = match serde_json::to_vec(body) {
        Ok(text) => (status, text),
        Err(why) => (StatusCode::INTERNAL_SERVER_ERROR, why.to_string().into_bytes()),
    };
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
