//! The alerts: the open ones with the next step, and those that ended.

use ::alerts::{Alert, AlertState};
use api::{AlertList, Role};
use maud::{Markup, html};

use super::format::{ago, local};
use super::{Page, action_link, aged, do_path, frame, severity_class};
use crate::answers::Shown;
use crate::dashboard::Visit;

/// The page of alerts.
pub(crate) fn alerts(list: &Shown<AlertList>, now: u64, visit: &Visit) -> Page {
    let AlertList { alerts, channels, undelivered } = &list.value;
    let is_open = |alert: &&Alert| alert.state == AlertState::Open;
    frame(
        "poolhouse: alerts",
        "/alerts",
        visit,
        &html! {
            h1 { "Alerts" }
            (aged(list.age))
            section id="open" class="card" data-live {
                h2 { "Open" }
                @if !alerts.iter().any(|alert| is_open(&alert)) { p class="hint" { "None." } }
                ul class="alerts" { @for alert in alerts.iter().filter(is_open) { (item(alert, now, visit)) } }
            }
            section class="card" {
                h2 { "Messages" }
                @if channels.is_empty() {
                    p { "Nobody is notified. Set a channel, for example:" }
                    p { code { "poolhouse config set alerts.ntfy https://ntfy.sh/TOPIC" } }
                } @else { p { "Each problem is sent once, and again when it gets worse, by " (channels.join(", ")) "." } }
                @for sentence in undelivered { p class="complaint" { (sentence) } }
            }
            section class="card" {
                h2 { "Ended" }
                ul class="alerts" {
                    @for alert in alerts.iter().filter(|alert| !is_open(alert)) {
                        li { strong { (alert.title) } " " span class="hint" { "began " (local(alert.began)) } }
                    }
                }
            }
        },
    )
}

/// An open alert.
pub(super) fn item(alert: &Alert, now: u64, visit: &Visit) -> Markup {
    html! {
        li {
            div class="row" {
                div {
                    span class={ "badge " (severity_class(alert.severity)) } { (alert.severity.as_str()) }
                    @if alert.is_acknowledged { " " span class="badge unknown" { "acknowledged" } }
                    " " strong { (alert.title) } " "
                    span class="hint" title=(local(alert.began)) { (ago(alert.began, now)) }
                }
                @if !alert.is_acknowledged {
                    (action_link(visit, Role::Operate, &do_path("acknowledge", &[("key", &alert.key)]), "Acknowledge…"))
                }
            }
            (alert.sentence) " " (alert.action)
        }
    }
}
