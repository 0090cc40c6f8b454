//! The pages. A page is a function of its data; all text in it is escaped.

mod access;
mod account;
mod add_vdev;
mod alerts;
mod bays;
mod benchmarks;
mod copies;
mod dataset;
mod datasets;
mod drive;
mod drives;
mod environment;
mod events;
mod files;
mod format;
mod imports;
mod jobs;
mod new_pool;
mod overview;
mod pool;
mod pools;
mod properties;
mod replace;
mod repositories;
mod shares;
mod users;

use ::alerts::Severity;
use api::Role;
use health::Grade;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::dashboard::Visit;

pub(crate) use access::{confirm, error, login, notice, off, setup};
pub(crate) use account::{account, totp};
pub(crate) use add_vdev::{add_vdev, candidates, chosen_drives};
pub(crate) use alerts::alerts;
pub(crate) use benchmarks::benchmarks;
pub(crate) use copies::copies;
pub(crate) use dataset::{KEY_PROPERTIES, PROPERTIES as SNAPSHOT_PROPERTIES, changes, dataset};
pub(crate) use datasets::{PROPERTIES as DATASET_PROPERTIES, datasets};
pub(crate) use drive::drive;
pub(crate) use files::{Moment, Place, files};
pub(crate) use imports::imports;
pub(crate) use new_pool::new_pool;
pub(crate) use overview::overview;
pub(crate) use pool::pool;
pub(crate) use properties::EDITABLE as EDITABLE_PROPERTIES;
pub(crate) use replace::replace;
pub(crate) use repositories::repository;
pub(crate) use shares::shares;
pub(crate) use users::users;

/// A whole page.
pub(crate) type Page = Markup;

/// Characters that stand for themselves in a path segment.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The pages in the navigation.
const TABS: [(&str, &str); 8] = [
    ("/", "Overview"),
    ("/datasets", "Datasets"),
    ("/shares", "Shares"),
    ("/copies", "Copies"),
    ("/alerts", "Alerts"),
    ("/benchmarks", "Benchmarks"),
    ("/new-pool", "New pool"),
    ("/users", "Users"),
];

/// The frame of a page without a session.
fn bare_frame(title: &str, body: &Markup) -> Page {
    document(title, &html! { a class="brand" href="/" { "poolhouse" } }, body)
}

/// The frame of a page of a session. `tab` is the path of its page in the navigation.
fn frame(title: &str, tab: &str, visit: &Visit, body: &Markup) -> Page {
    let top = html! {
        a class="brand" href="/" { "poolhouse" }
        nav aria-label="Pages" {
            @for (path, name) in TABS {
                @if is_offered(path, visit) {
                    a href=(path) aria-current=[(path == tab).then_some("page")] { (name) }
                }
            }
        }
        a class="user" href="/account" aria-current=[(tab == "/account").then_some("page")] {
            (visit.user) " " span class="hint" { (visit.role.as_str()) }
        }
        form method="post" action="/logout" {
            (csrf_field(visit))
            button class="quiet small" { "Log out" }
        }
    };
    document(title, &top, body)
}

/// Pages on which only administrators can do something are not offered to others.
fn is_offered(path: &str, visit: &Visit) -> bool {
    !matches!(path, "/new-pool" | "/users") || visit.role == Role::Administer
}

fn document(title: &str, top: &Markup, body: &Markup) -> Page {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                link rel="stylesheet" href="/assets/style.css";
                script type="module" src="/assets/live.js" {}
            }
            body {
                a class="skip" href="#main" { "Skip to content" }
                header class="top" { (top) }
                main id="main" tabindex="-1" {
                    p id="connection" class="complaint" role="alert" hidden {
                        "The daemon does not answer. This page is old."
                    }
                    (body)
                }
            }
        }
    }
}

/// The heading of a column of buttons, for screen readers.
const ACTIONS: PreEscaped<&str> = PreEscaped("<span class=\"unseen\">Actions</span>");

/// The hidden field that each form of a session carries.
fn csrf_field(visit: &Visit) -> Markup {
    html! { input type="hidden" name="csrf" value=(visit.csrf.0); }
}

/// A link to the question of an action, for those who may run it. Links only open pages; forms change something.
fn action_link(visit: &Visit, role: Role, path: &str, label: &str) -> Markup {
    html! { @if visit.role >= role { a class="button small" href=(path) { (label) } } }
}

/// The start of a form that leads to the question of an action, with some fields of fixed values.
fn action_form(action: &str, fixed: &[(&str, &str)], body: &Markup) -> Markup {
    html! {
        form method="get" action={ "/do/" (action) } class="action" {
            @for (name, value) in fixed { input type="hidden" name=(name) value=(value); }
            (body)
        }
    }
}

/// A sentence about data that a new answer did not replace in time.
fn aged(age: Option<u64>) -> Markup {
    html! {
        @if let Some(age) = age {
            p class="complaint" role="alert" {
                "This is " (format::span(age)) " old: a pool or a drive keeps the daemon waiting."
            }
        }
    }
}

/// The path of the question of an action.
pub(crate) fn do_path(action: &str, fields: &[(&str, &str)]) -> String {
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    format!("/do/{action}?{query}")
}

/// A text as a segment of a path.
fn segment(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT).to_string()
}

/// The path of a drive's page.
pub(crate) fn drive_path(id: &str) -> String {
    format!("/drives/{}", segment(id))
}

/// The path of a pool's page.
pub(crate) fn pool_path(pool: &str) -> String {
    format!("/pools/{}", segment(pool))
}

/// The path of the page that adds drives to a pool.
fn add_path(pool: &str) -> String {
    format!("{}/add", pool_path(pool))
}

/// The path of the guide to replace a device.
pub(crate) fn replace_path(pool: &str, device: &str) -> String {
    format!("{}/replace/{}", pool_path(pool), segment(device))
}

/// The path of a dataset's page.
pub(crate) fn dataset_path(dataset: &str) -> String {
    format!("/datasets/{}", segment(dataset))
}

/// The path of a folder of a dataset, in a snapshot or, if that is empty, now.
pub(crate) fn files_path(dataset: &str, at: &str, path: &str) -> String {
    Place { dataset, at, ..Place::default() }.path(path)
}

/// The path of a repository's page.
pub(crate) fn repository_path(location: &str) -> String {
    format!("/repositories?location={}", segment(location))
}

/// The class of a grade, which gives it a colour. The word stands beside it, so that colour is never alone.
const fn grade_class(grade: Grade) -> &'static str {
    match grade {
        Grade::Ok => "ok",
        Grade::Unknown => "unknown",
        Grade::Watch => "watch",
        Grade::Failing => "failing",
    }
}

/// The class of a severity.
const fn severity_class(severity: Severity) -> &'static str {
    match severity {
        Severity::Critical => "failing",
        Severity::Warning => "watch",
        Severity::Notice => "unknown",
    }
}

/// The class of a state of zpool(8).
fn state_class(state: &str) -> &'static str {
    match state {
        "ONLINE" | "AVAIL" | "INUSE" => "ok",
        "OFFLINE" => "unknown",
        "DEGRADED" => "watch",
        _ => "failing",
    }
}
