//! The pages. A page is a function of its data; all text in it is escaped.

mod access;
mod bays;
mod drive;
mod drives;
mod environment;
mod events;
mod format;
mod overview;
mod pools;

use health::Grade;
use maud::{DOCTYPE, Markup, html};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

pub(crate) use access::{confirm_scrub, error, login, off, scrub_command, setup};
pub(crate) use drive::drive;
pub(crate) use overview::{overview, overview_sections};

/// A whole page.
pub(crate) type Page = Markup;

/// Characters that stand for themselves in a path segment.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The frame of every page.
fn frame(title: &str, csrf: Option<&str>, body: &Markup) -> Page {
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
                header class="top" {
                    a class="brand" href="/" { "poolhouse" }
                    @if let Some(csrf) = csrf {
                        form method="post" action="/logout" {
                            (csrf_field(csrf))
                            button class="quiet" { "Log out" }
                        }
                    }
                }
                main id="main" { (body) }
            }
        }
    }
}

/// The hidden field that each form of a session carries.
fn csrf_field(csrf: &str) -> Markup {
    html! { input type="hidden" name="csrf" value=(csrf); }
}

/// A text as a segment of a path.
fn segment(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT).to_string()
}

/// The path of a drive's page.
pub(crate) fn drive_path(id: &str) -> String {
    format!("/drives/{}", segment(id))
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

/// The class of a state of zpool(8).
fn state_class(state: &str) -> &'static str {
    match state {
        "ONLINE" | "AVAIL" | "INUSE" => "ok",
        "OFFLINE" => "unknown",
        "DEGRADED" => "watch",
        _ => "failing",
    }
}
