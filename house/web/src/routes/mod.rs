//! From a request to a page. All requests go through [`Dashboard::answer`], which checks the session.

mod access;
mod show;

use std::sync::Arc;

use api::{DashboardLinks, Reply, Role};
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use maud::html;
use percent_encoding::percent_decode_str;

use crate::actions;
use crate::answers::Change;
use crate::dashboard::{Dashboard, Visit};
use crate::forms::{Form, clear_cookie, is_cross_site, session_cookie};
use crate::pages::{self, Page};
use crate::{ClientAddress, IsEncrypted};

/// The largest form in bytes.
const MAX_FORM_BYTES: usize = 64 << 10;
/// The header of a page's own background requests, which do not extend the session.
const LIVE_HEADER: &str = "x-live";
/// The headers of every answer. Styles and scripts come from this server only, and no page can be framed.
const HEADERS: [(&str, &str); 8] = [
    (
        "content-security-policy",
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; \
         form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    ("x-frame-options", "DENY"),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
    ("cache-control", "no-store"),
];
/// The policy of a page with a style of its own: nothing else is loaded or run, and no form leads on.
const STAND_ALONE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; \
                                  frame-ancestors 'none'; sandbox";
const STYLE: &str = include_str!("../../assets/style.css");
const SCRIPT: &str = include_str!("../../assets/live.js");

/// Marks a response whose page has a style of its own.
#[derive(Clone, Copy)]
struct OwnStyle;

/// A request that was taken apart.
struct Parts {
    method: Method,
    /// The segments of the path, decoded.
    segments: Vec<String>,
    query: Form,
    headers: HeaderMap,
    client: Option<ClientAddress>,
    /// It came by TLS.
    is_encrypted: bool,
    form: Form,
}

impl Dashboard {
    /// Answers a request. The server adds a [`ClientAddress`] to the request, and [`IsEncrypted`].
    pub async fn answer(self: Arc<Self>, request: Request) -> Response {
        let mut response = match take_apart(request).await {
            Ok(parts) => self.pass_gate(parts).await,
            Err(status) => error(status, "This request cannot be read."),
        };
        let has_own_policy = response.extensions().get::<OwnStyle>().is_some();
        for (name, value) in HEADERS {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        if has_own_policy {
            let policy = HeaderValue::from_static(STAND_ALONE_POLICY);
            response.headers_mut().insert("content-security-policy", policy);
        }
        response
    }

    /// The gate: without a user nothing is served, and without a session nothing but the login.
    async fn pass_gate(self: Arc<Self>, parts: Parts) -> Response {
        let segments: Vec<&str> = parts.segments.iter().map(String::as_str).collect();
        let is_post = match parts.method {
            Method::GET => false,
            Method::POST => true,
            _ => return error(StatusCode::METHOD_NOT_ALLOWED, "Only GET and POST are answered."),
        };
        if is_post && is_cross_site(&parts.headers) {
            return error(StatusCode::FORBIDDEN, "The form was sent from another site.");
        }
        match segments.as_slice() {
            ["assets", name] if !is_post => return asset(name),
            ["setup", token] => return self.set_up_page(token, &parts, is_post).await,
            _ if !self.is_on() => return page(StatusCode::NOT_FOUND, pages::off()),
            ["login"] => return self.login_page(&parts, is_post).await,
            ["ca.crt"] if !is_post => return self.root_certificate(),
            _ => {}
        }
        let cookie = session_cookie(&parts.headers).unwrap_or_default();
        let is_live = parts.headers.contains_key(LIVE_HEADER);
        let Some(visit) = self.visit(cookie, !is_live) else {
            return if !is_post && !is_live {
                redirect("/login", None)
            } else {
                error(StatusCode::UNAUTHORIZED, "The session has ended. Log in again.")
            };
        };
        if !is_post {
            return self.show(&segments, &parts.query, &visit).await;
        }
        if !visit.csrf.matches(parts.form.field("csrf")) {
            return error(StatusCode::FORBIDDEN, "The form is too old. Load the page again.");
        }
        self.change(&segments, &parts.form, cookie, &visit).await
    }

    /// The changes that a session may make.
    async fn change(
        self: &Arc<Self>,
        segments: &[&str],
        form: &Form,
        cookie: &str,
        visit: &Visit,
    ) -> Response {
        match segments {
            ["logout"] => {
                self.close_session(cookie);
                redirect("/login", clear_cookie())
            }
            ["do", name] => self.run_action(name, form, visit).await,
            ["account", part] => self.change_account(part, form, cookie, visit).await,
            ["share-users"] if visit.role == Role::Administer => self.add_share_user(form).await,
            ["unlock"] if visit.role == Role::Administer => self.unlock(form, visit).await,
            ["share-users" | "unlock"] => {
                error(StatusCode::FORBIDDEN, "This needs the role administer.")
            }
            _ => error(StatusCode::NOT_FOUND, "There is no such action."),
        }
    }

    /// Runs an action, after the question was answered.
    async fn run_action(self: &Arc<Self>, name: &str, form: &Form, visit: &Visit) -> Response {
        let action = match actions::find(name, form) {
            Ok(action) => action,
            Err(why) => return error(StatusCode::UNPROCESSABLE_ENTITY, &why),
        };
        if visit.role < action.role {
            let why = format!("This needs the role {}.", action.role.as_str());
            return error(StatusCode::FORBIDDEN, &why);
        }
        if action.typed.as_deref().is_some_and(|typed| form.field("typed") != typed) {
            let why = "The name is not the same. Nothing was changed.";
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            return page(status, pages::confirm(name, &action, form, Some(why), visit));
        }
        self.backend.log(&format!("dashboard: {}: {}", visit.user, action.request.command));
        match self.make_change(action.request.clone()).await {
            Ok(Change::Done(body)) if name == "invite" => invitation(&body, &action.next, visit),
            Ok(Change::Done(body)) => warnings_or_next(&body, &action.next, visit),
            Ok(Change::Running) => {
                let text = html! { p { "It takes longer, and goes on in the background. The jobs show its progress." } };
                page(StatusCode::ACCEPTED, pages::notice(&action.title, &text, &action.next, visit))
            }
            Err(why) => {
                page(StatusCode::CONFLICT, pages::confirm(name, &action, form, Some(&why), visit))
            }
        }
    }

    fn root_certificate(&self) -> Response {
        let Some(pem) = self.backend.root_certificate() else {
            return error(StatusCode::NOT_FOUND, "This machine has no certificate of its own.");
        };
        let mut response = Response::new(Body::from(pem));
        let kind = HeaderValue::from_static("application/x-x509-ca-cert");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }
}

/// The page with the link of an invitation. The link is shown once.
fn invitation(body: &[u8], next: &str, visit: &Visit) -> Response {
    let Ok(reply) = serde_json::from_slice::<Reply<DashboardLinks>>(body) else {
        return error(StatusCode::INTERNAL_SERVER_ERROR, "The daemon gave no link.");
    };
    let text = html! {
        p { "Give this link to the user. It holds for " (reply.value.minutes) " minutes, and works once:" }
        @for link in &reply.value.links { p { code class="command" { (link) } } }
    };
    page(StatusCode::OK, pages::notice("The invitation", &text, next, visit))
}

/// Shows the warnings of a change that succeeded, or goes on.
fn warnings_or_next(body: &[u8], next: &str, visit: &Visit) -> Response {
    let reply = serde_json::from_slice::<Reply<serde_json::Value>>(body);
    let warnings = reply.map(|reply| reply.warnings).unwrap_or_default();
    if warnings.is_empty() {
        return redirect(next, None);
    }
    let text = html! { @for warning in &warnings { p { (warning) } } };
    page(StatusCode::OK, pages::notice("Done, with warnings", &text, next, visit))
}

async fn take_apart(request: Request) -> Result<Parts, StatusCode> {
    let (head, body) = request.into_parts();
    let decode =
        |segment: &str| percent_decode_str(segment).decode_utf8().map(std::borrow::Cow::into_owned);
    let segments: Result<Vec<_>, _> = head.uri.path().split('/').skip(1).map(decode).collect();
    let segments = segments.map_err(|_| StatusCode::BAD_REQUEST)?;
    let body = axum::body::to_bytes(body, MAX_FORM_BYTES).await;
    let body = body.map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?;
    Ok(Parts {
        method: head.method,
        segments,
        query: Form::parse(head.uri.query().unwrap_or_default().as_bytes()),
        headers: head.headers,
        client: head.extensions.get().copied(),
        is_encrypted: head.extensions.get::<IsEncrypted>().is_some(),
        form: Form::parse(&body),
    })
}

/// A file that the program contains.
fn asset(name: &str) -> Response {
    let (kind, text) = match name {
        "style.css" => ("text/css; charset=utf-8", STYLE),
        "live.js" => ("text/javascript; charset=utf-8", SCRIPT),
        _ => return error(StatusCode::NOT_FOUND, "There is no such file."),
    };
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn page(status: StatusCode, page: Page) -> Response {
    let mut response = Response::new(Body::from(page.into_string()));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// A page that stands by itself, with a style of its own and without scripts.
fn stand_alone(html: String) -> Response {
    let mut response = Response::new(Body::from(html));
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response.extensions_mut().insert(OwnStyle);
    response
}

fn error(status: StatusCode, why: &str) -> Response {
    page(status, pages::error(why))
}

/// Leads to another page by GET.
fn redirect(to: &str, cookie: Option<HeaderValue>) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    if let Ok(to) = HeaderValue::from_str(to) {
        response.headers_mut().insert(header::LOCATION, to);
    }
    if let Some(cookie) = cookie {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}
