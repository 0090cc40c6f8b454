//! From a request to a page. All requests go through [`Dashboard::answer`], which checks the
//! session.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use percent_encoding::percent_decode_str;

use crate::dashboard::{Dashboard, LoginError, SetupError};
use crate::forms::{Form, clear_cookie, is_cross_site, session_cookie, set_cookie};
use crate::pages::{self, Page};
use crate::sessions::Secret;
use crate::{Backend, ClientAddress};

/// The largest form in bytes.
const MAX_FORM_BYTES: usize = 64 << 10;
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
const STYLE: &str = include_str!("../assets/style.css");
const SCRIPT: &str = include_str!("../assets/live.js");

/// A request that was taken apart.
struct Parts {
    method: Method,
    /// The segments of the path, decoded.
    segments: Vec<String>,
    query: Form,
    headers: HeaderMap,
    client: Option<ClientAddress>,
    form: Form,
}

impl Dashboard {
    /// Answers a request. The server adds a [`ClientAddress`] to the request.
    pub async fn answer(self: Arc<Self>, request: Request) -> Response {
        let mut response = match take_apart(request).await {
            Ok(parts) => self.pass_gate(parts).await,
            Err(status) => error(status, "This request cannot be read."),
        };
        for (name, value) in HEADERS {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }

    /// The gate: without a password nothing is served, and without a session nothing but the login.
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
            _ => {}
        }
        let cookie = session_cookie(&parts.headers).unwrap_or_default();
        let is_poll = segments.as_slice() == ["live"];
        let Some(csrf) = self.session(cookie, !is_poll) else {
            return if !is_post && !is_poll {
                redirect("/login", None)
            } else {
                error(StatusCode::UNAUTHORIZED, "The session has ended. Log in again.")
            };
        };
        if !is_post {
            return self.show(&segments, &parts.query, &csrf);
        }
        if !csrf.matches(parts.form.field("csrf")) {
            return error(StatusCode::FORBIDDEN, "The form is too old. Load the page again.");
        }
        self.change(&segments, &parts.form, cookie).await
    }

    /// The pages of a session.
    fn show(&self, segments: &[&str], query: &Form, csrf: &Secret) -> Response {
        let backend = &self.backend;
        match segments {
            [""] => {
                let (overview, now) = (backend.overview(), backend.unix_seconds());
                page(StatusCode::OK, pages::overview(&overview, now, &csrf.0))
            }
            ["live"] => {
                let (overview, now) = (backend.overview(), backend.unix_seconds());
                html(StatusCode::OK, pages::overview_sections(&overview, now).into_string())
            }
            ["drives", drive] => match backend.drive(drive) {
                Ok(details) => {
                    let now = backend.unix_seconds();
                    page(StatusCode::OK, pages::drive(&details, now, &csrf.0))
                }
                Err(why) => error(StatusCode::NOT_FOUND, &why),
            },
            ["pools", pool, "scrub"] => {
                let overview = backend.overview();
                let is_known = overview.pools.iter().any(|known| known.status.name == **pool);
                if !is_known {
                    return error(StatusCode::NOT_FOUND, "There is no such pool.");
                }
                let stop = query.field("stop") == "1";
                page(StatusCode::OK, pages::confirm_scrub(pool, stop, &csrf.0))
            }
            _ => error(StatusCode::NOT_FOUND, "There is no such page."),
        }
    }

    /// The changes that a session may make.
    async fn change(&self, segments: &[&str], form: &Form, cookie: &str) -> Response {
        match segments {
            ["logout"] => {
                self.close_session(cookie);
                redirect("/login", clear_cookie())
            }
            ["drives", drive, "note"] => {
                let (name, next) = ((*drive).to_owned(), pages::drive_path(drive));
                self.run(&next, move |backend| backend.note_drive(&name)).await
            }
            ["drives", drive, "locate"] => {
                let (name, next) = ((*drive).to_owned(), pages::drive_path(drive));
                self.run(&next, move |backend| backend.locate_drive(&name)).await
            }
            ["pools", pool, "scrub"] => {
                let (name, stop) = ((*pool).to_owned(), form.field("stop") == "1");
                let command = pages::scrub_command(&name, stop);
                self.run("/", move |backend| backend.scrub(&name, stop, &command)).await
            }
            _ => error(StatusCode::NOT_FOUND, "There is no such action."),
        }
    }

    /// Makes a change on a thread that may block, and leads to the next page.
    async fn run(
        &self,
        next: &str,
        work: impl FnOnce(&dyn Backend) -> Result<(), String> + Send + 'static,
    ) -> Response {
        let backend = Arc::clone(&self.backend);
        match tokio::task::spawn_blocking(move || work(&*backend)).await {
            Ok(Ok(())) => redirect(next, None),
            Ok(Err(why)) => error(StatusCode::CONFLICT, &why),
            Err(why) => error(StatusCode::INTERNAL_SERVER_ERROR, &why.to_string()),
        }
    }

    async fn login_page(self: &Arc<Self>, parts: &Parts, is_post: bool) -> Response {
        if !is_post {
            return page(StatusCode::OK, pages::login(None));
        }
        let Some(ClientAddress(address)) = parts.client else {
            return error(StatusCode::BAD_REQUEST, "The address of the client is not known.");
        };
        match self.log_in(address, parts.form.field("password").to_owned()).await {
            Ok(cookie) => {
                // the browser's session ends: no older cookie stays valid
                self.close_session(session_cookie(&parts.headers).unwrap_or_default());
                redirect("/", set_cookie(&cookie.0))
            }
            Err(LoginError::WrongPassword) => {
                let why = "The password is wrong.";
                page(StatusCode::UNAUTHORIZED, pages::login(Some(why)))
            }
            Err(LoginError::TooEarly(seconds)) => {
                let why = format!("Too many wrong passwords. Wait {seconds} seconds.");
                let mut response = page(StatusCode::TOO_MANY_REQUESTS, pages::login(Some(&why)));
                response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
                response
            }
            Err(LoginError::Failed(why)) => error(StatusCode::INTERNAL_SERVER_ERROR, &why),
        }
    }

    async fn set_up_page(self: &Arc<Self>, token: &str, parts: &Parts, is_post: bool) -> Response {
        if !is_post && self.holds_setup_link(token) {
            return page(StatusCode::OK, pages::setup(token, None));
        }
        let form = &parts.form;
        let password = form.field("password").to_owned();
        let outcome = if is_post {
            self.set_up(token, password, form.field("repeated")).await
        } else {
            Err(SetupError::NoLink)
        };
        match outcome {
            Ok(cookie) => redirect("/", set_cookie(&cookie.0)),
            Err(SetupError::NoLink) => {
                let why = "This link does not hold any more. Make another: poolhouse web setup";
                error(StatusCode::NOT_FOUND, why)
            }
            Err(SetupError::Refused(why)) => {
                page(StatusCode::UNPROCESSABLE_ENTITY, pages::setup(token, Some(&why)))
            }
            Err(SetupError::Failed(why)) => error(StatusCode::INTERNAL_SERVER_ERROR, &why),
        }
    }
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

fn html(status: StatusCode, text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn page(status: StatusCode, page: Page) -> Response {
    html(status, page.into_string())
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
