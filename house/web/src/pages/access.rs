//! The pages before a session, questions before a change, and errors.

use maud::{Markup, html};

use super::{Page, csrf_field, frame, segment};

/// The page of a dashboard without a password.
pub(crate) fn off() -> Page {
    frame(
        "poolhouse: off",
        None,
        &html! {
            section class="card narrow" {
                h1 { "The dashboard is off" }
                p { "No password is set yet. On the machine, type:" }
                p { code { "poolhouse web setup" } }
            }
        },
    )
}

/// The login.
pub(crate) fn login(why: Option<&str>) -> Page {
    frame(
        "poolhouse: log in",
        None,
        &html! {
            section class="card narrow" {
                h1 { "Log in" }
                (complaint(why))
                form method="post" action="/login" {
                    label for="password" { "Password" }
                    input id="password" type="password" name="password" required autofocus
                        autocomplete="current-password";
                    button { "Log in" }
                }
                p class="hint" { "Forgotten? On the machine, type " code { "poolhouse web setup" } "." }
            }
        },
    )
}

/// The page on which the password is set.
pub(crate) fn setup(token: &str, why: Option<&str>) -> Page {
    frame(
        "poolhouse: set a password",
        None,
        &html! {
            section class="card narrow" {
                h1 { "Set the password" }
                (complaint(why))
                form method="post" action={ "/setup/" (segment(token)) } {
                    label for="password" { "Password, 10 characters or more" }
                    input id="password" type="password" name="password" required minlength="10"
                        autofocus autocomplete="new-password";
                    label for="repeated" { "The same again" }
                    input id="repeated" type="password" name="repeated" required minlength="10"
                        autocomplete="new-password";
                    button { "Set the password" }
                }
            }
        },
    )
}

/// A sentence about something that did not work.
pub(crate) fn error(why: &str) -> Page {
    frame(
        "poolhouse",
        None,
        &html! {
            section class="card narrow" {
                h1 { "That did not work" }
                p role="alert" { (why) }
                p { a href="/" { "Back to the overview" } }
            }
        },
    )
}

/// The command that starts or stops a scrub.
pub(crate) fn scrub_command(pool: &str, stop: bool) -> String {
    if stop { format!("zpool scrub -s {pool}") } else { format!("zpool scrub {pool}") }
}

/// Asks before a scrub starts or stops.
pub(crate) fn confirm_scrub(pool: &str, stop: bool, csrf: &str) -> Page {
    let (title, text) = if stop {
        ("Stop the scrub", "The scrub ends. Blocks that it has not read yet stay unchecked.")
    } else {
        (
            "Start a scrub",
            "It reads every block and repairs what is damaged. The pool stays in use, and is slower meanwhile.",
        )
    };
    frame(
        &format!("poolhouse: {title}"),
        Some(csrf),
        &html! {
            section class="card narrow" {
                h1 { (title) " of " (pool) "?" }
                p { (text) }
                p { "The command is " code { "poolhouse " (scrub_command(pool, stop)) } "." }
                form method="post" action={ "/pools/" (segment(pool)) "/scrub" } {
                    (csrf_field(csrf))
                    @if stop { input type="hidden" name="stop" value="1"; }
                    button { (title) }
                    a class="button quiet" href="/" { "Cancel" }
                }
            }
        },
    )
}

fn complaint(why: Option<&str>) -> Markup {
    html! { @if let Some(why) = why { p class="complaint" role="alert" { (why) } } }
}
