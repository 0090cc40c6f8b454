//! The pages before a session, questions before a change, and errors.

use maud::{Markup, html};

use super::{Page, bare_frame, csrf_field, frame, segment};
use crate::actions::Action;
use crate::dashboard::Visit;
use crate::forms::Form;
use crate::setup::SetupTarget;

/// The page of a dashboard without users.
pub(crate) fn off() -> Page {
    bare_frame(
        "poolhouse: off",
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
pub(crate) fn login(why: Option<&str>, has_ca: bool) -> Page {
    bare_frame(
        "poolhouse: log in",
        &html! {
            section class="card narrow" {
                h1 { "Log in" }
                (complaint(why))
                form method="post" action="/login" {
                    label for="name" { "Name" }
                    input id="name" name="name" value=(api::FIRST_USER) required autocomplete="username"
                        autocapitalize="none" spellcheck="false";
                    label for="password" { "Password" }
                    input id="password" type="password" name="password" required autofocus
                        autocomplete="current-password";
                    label for="code" { "One-time code, if you turned it on" }
                    input id="code" name="code" inputmode="numeric" autocomplete="one-time-code";
                    button { "Log in" }
                }
                p class="hint" { "Forgotten? On the machine, type " code { "poolhouse web setup" } "." }
                @if has_ca {
                    p class="hint" {
                        "Does the browser warn of the certificate? Install the "
                        a href="/ca.crt" { "root certificate" } " of this machine."
                    }
                }
            }
        },
    )
}

/// The page on which a password is set.
pub(crate) fn setup(token: &str, target: &SetupTarget, why: Option<&str>) -> Page {
    bare_frame(
        "poolhouse: set a password",
        &html! {
            section class="card narrow" {
                h1 { "Set the password of " (target.name) }
                p { "This user may " strong { (target.role.as_str()) } "." }
                (complaint(why))
                form method="post" action={ "/setup/" (segment(token)) } {
                    (new_password())
                    button { "Set the password" }
                }
            }
        },
    )
}

/// The fields of a new password.
pub(super) fn new_password() -> Markup {
    html! {
        label for="password" { "Password, 10 characters or more" }
        input id="password" type="password" name="password" required minlength="10"
            autocomplete="new-password";
        label for="repeated" { "The same again" }
        input id="repeated" type="password" name="repeated" required minlength="10"
            autocomplete="new-password";
    }
}

/// A sentence about something that did not work.
pub(crate) fn error(why: &str) -> Page {
    bare_frame(
        "poolhouse",
        &html! {
            section class="card narrow" {
                h1 { "That did not work" }
                p role="alert" { (why) }
                p { a href="/" { "Back to the overview" } }
            }
        },
    )
}

/// The result of an action that has more to show than a page.
pub(crate) fn notice(title: &str, text: &Markup, next: &str, visit: &Visit) -> Page {
    frame(
        &format!("poolhouse: {title}"),
        "",
        visit,
        &html! {
            section class="card narrow" {
                h1 { (title) }
                (text)
                p { a class="button" href=(next) { "Continue" } }
            }
        },
    )
}

/// Asks before an action.
pub(crate) fn confirm(
    name: &str,
    action: &Action,
    form: &Form,
    why: Option<&str>,
    visit: &Visit,
) -> Page {
    frame(
        &format!("poolhouse: {}", action.title),
        "",
        visit,
        &html! {
            section class="card narrow" {
                h1 { (action.title) "?" }
                p { (action.consequence) }
                p { "The command is:" }
                p { code class="command" { "poolhouse " (action.request.command) } }
                (complaint(why))
                @if visit.role < action.role {
                    p class="complaint" role="alert" {
                        "Your role is " (visit.role.as_str()) "; this needs the role " (action.role.as_str()) "."
                    }
                    p { a class="button quiet" href=(action.next) { "Back" } }
                } @else {
                    form method="post" action={ "/do/" (name) } {
                        (csrf_field(visit))
                        @for (field, value) in form.pairs() {
                            @if field != "csrf" && field != "typed" {
                                input type="hidden" name=(field) value=(value);
                            }
                        }
                        @if let Some(typed) = &action.typed {
                            label for="typed" { "Type " strong { (typed) } " to confirm" }
                            input id="typed" name="typed" required autocomplete="off" autocapitalize="none"
                                spellcheck="false" autofocus;
                        }
                        button class=[action.typed.is_some().then_some("danger")] { "Run it" }
                        a class="button quiet" href=(action.next) { "Cancel" }
                    }
                }
            }
        },
    )
}

pub(super) fn complaint(why: Option<&str>) -> Markup {
    html! { @if let Some(why) = why { p class="complaint" role="alert" { (why) } } }
}
