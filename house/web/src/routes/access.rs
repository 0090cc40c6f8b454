//! The login, setup links, and the account of a user.

use std::sync::Arc;

use api::{AddUser, LoadKey, Mount, MountOverrides, Secret};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use maud::html;

use super::{Parts, error, page, redirect};
use crate::dashboard::{Dashboard, Login, LoginError, SetupError, Visit};
use crate::forms::{Form, session_cookie, set_cookie};
use crate::pages;
use crate::{ApiRequest, ClientAddress};

impl Dashboard {
    pub(super) async fn login_page(self: &Arc<Self>, parts: &Parts, is_post: bool) -> Response {
        let has_ca = self.backend.root_certificate().is_some();
        if !is_post {
            return page(StatusCode::OK, pages::login(None, has_ca));
        }
        let Some(ClientAddress(address)) = parts.client else {
            return error(StatusCode::BAD_REQUEST, "The address of the client is not known.");
        };
        let field = |name: &str| parts.form.field(name).to_owned();
        let login = Login { name: field("name"), password: field("password"), code: field("code") };
        match self.log_in(address, login).await {
            Ok(cookie) => {
                // the browser's session ends: no older cookie stays valid
                self.close_session(session_cookie(&parts.headers).unwrap_or_default());
                redirect("/", set_cookie(&cookie.0, parts.is_encrypted))
            }
            Err(LoginError::Wrong) => {
                let why = "The name, the password or the code is wrong.";
                page(StatusCode::UNAUTHORIZED, pages::login(Some(why), has_ca))
            }
            Err(LoginError::TooEarly(seconds)) => {
                let why = format!("Too many failed logins. Wait {seconds} seconds.");
                let shown = pages::login(Some(&why), has_ca);
                let mut response = page(StatusCode::TOO_MANY_REQUESTS, shown);
                response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
                response
            }
            Err(LoginError::Failed(why)) => error(StatusCode::INTERNAL_SERVER_ERROR, &why),
        }
    }

    pub(super) async fn set_up_page(
        self: &Arc<Self>,
        token: &str,
        parts: &Parts,
        is_post: bool,
    ) -> Response {
        let Some(target) = self.setup_target(token) else {
            let why = "This link does not hold any more. Make another: poolhouse web setup";
            return error(StatusCode::NOT_FOUND, why);
        };
        if !is_post {
            return page(StatusCode::OK, pages::setup(token, &target, None));
        }
        let form = &parts.form;
        let password = form.field("password").to_owned();
        match self.set_up(token, password, form.field("repeated")).await {
            Ok(cookie) => redirect("/", set_cookie(&cookie.0, parts.is_encrypted)),
            Err(SetupError::NoLink) => {
                error(StatusCode::NOT_FOUND, "This link does not hold any more.")
            }
            Err(SetupError::Refused(why)) => {
                page(StatusCode::UNPROCESSABLE_ENTITY, pages::setup(token, &target, Some(&why)))
            }
            Err(SetupError::Failed(why)) => error(StatusCode::INTERNAL_SERVER_ERROR, &why),
        }
    }

    /// Changes of a user's own account.
    pub(super) async fn change_account(
        self: &Arc<Self>,
        part: &str,
        form: &Form,
        cookie: &str,
        visit: &Visit,
    ) -> Response {
        let refused =
            |why: &str| page(StatusCode::UNPROCESSABLE_ENTITY, pages::account(visit, Some(why)));
        match part {
            "password" => {
                let password = form.field("password").to_owned();
                let repeated = form.field("repeated");
                match self.change_password(visit, cookie, password, repeated).await {
                    Ok(()) => redirect("/account", None),
                    Err(SetupError::Refused(why)) => refused(&why),
                    Err(SetupError::NoLink) => refused("The user was removed."),
                    Err(SetupError::Failed(why)) => error(StatusCode::INTERNAL_SERVER_ERROR, &why),
                }
            }
            "totp" => {
                let secret = form.field("secret");
                match self.turn_totp_on(&visit.user, secret, form.field("code")) {
                    Ok(()) => redirect("/account", None),
                    Err(why) => {
                        let host = &self.backend.overview().host;
                        let shown = pages::totp(visit, host, secret, Some(&why));
                        page(StatusCode::UNPROCESSABLE_ENTITY, shown)
                    }
                }
            }
            "totp-off" => match self.turn_totp_off(&visit.user, form.field("code")) {
                Ok(()) => redirect("/account", None),
                Err(why) => refused(&why),
            },
            _ => error(StatusCode::NOT_FOUND, "There is no such action."),
        }
    }

    /// Adds a user of shares. The password is in the body only, never in an address or a command line.
    pub(super) async fn add_share_user(self: &Arc<Self>, form: &Form) -> Response {
        let call = form.required("name").and_then(|name| {
            let password = Secret(form.required("password")?.as_bytes().to_vec());
            let call = AddUser { name: name.to_owned(), system_user: None, password };
            ApiRequest::new(&call, &format!("user add {name}"))
        });
        let made = match call {
            Ok(request) => self.make_change(request).await.map(drop),
            Err(why) => Err(why),
        };
        match made {
            Ok(()) => redirect("/users", None),
            Err(why) => error(StatusCode::CONFLICT, &why),
        }
    }

    /// Loads a key, and mounts what it opens. The key is in the body only, never in an address or a command line.
    pub(super) async fn unlock(self: &Arc<Self>, form: &Form, visit: &Visit) -> Response {
        let call = form.required("root").and_then(|root| {
            let secret = Secret(form.required("key")?.as_bytes().to_vec());
            let load = LoadKey { name: root.to_owned(), secret, dry_run: false };
            let names = vec![root.to_owned()];
            let mount = Mount { names, recursive: true, overrides: MountOverrides::default() };
            let load = ApiRequest::new(&load, &format!("zfs load-key {root}"))?;
            Ok((load, ApiRequest::new(&mount, &format!("zfs mount -R {root}"))?))
        });
        let (load, mount) = match call {
            Ok(both) => both,
            Err(why) => return error(StatusCode::UNPROCESSABLE_ENTITY, &why),
        };
        let next = pages::dataset_path(form.field("dataset"));
        if let Err(why) = self.make_change(load).await {
            return error(StatusCode::CONFLICT, &why);
        }
        // a file system without a mountpoint cannot be mounted, and is unlocked all the same
        match self.make_change(mount).await {
            Ok(_) => redirect(&next, None),
            Err(why) => {
                let text = html! { p { "The key is loaded. Not everything is mounted: " (why) } };
                page(StatusCode::OK, pages::notice("Unlocked", &text, &next, visit))
            }
        }
    }
}
