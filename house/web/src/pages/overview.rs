//! The first page: all on one.

use api::{EventRecord, Overview, Role};
use health::Grade;
use maud::{Markup, html};

use super::format::{ago, local, span};
use super::{
    Page, action_link, alerts, bays, drives, environment, events, frame, grade_class, jobs, pools,
    replace_path,
};
use crate::dashboard::Visit;

/// The age in seconds from which an overview is called old.
const OLD: u64 = 15;

/// The first page. Each section that changes while the page is open has an id, by which the script exchanges it.
pub(crate) fn overview(overview: &Overview, now: u64, visit: &Visit) -> Page {
    let title = format!("{}: {}", overview.host, overview.grade.as_str());
    frame(&title, "/", visit, &sections(overview, now, visit))
}

fn sections(overview: &Overview, now: u64, visit: &Visit) -> Markup {
    html! {
        section id="verdict" class={ "verdict " (grade_class(overview.grade)) } aria-live="polite" data-live {
            h1 { (overview.host) }
            p { (overview.sentence) }
            (replace_links(overview, visit))
        }
        section id="age" data-live {
            @let age = now.checked_sub(overview.time).filter(|age| *age > OLD);
            @if overview.time == 0 {
                p class="complaint" { "The daemon has just started and looks at pools and drives." }
            } @else if let Some(age) = age {
                p class="complaint" role="alert" {
                    "This is " (span(age)) " old: a pool or a drive keeps the daemon waiting."
                }
            }
        }
        div class="columns" {
            div {
                section id="pools" class="card" data-live { (pools::pools(overview, now, visit)) }
                section id="bays" class="card" data-live { (bays::map(&overview.drives, None)) }
                @if overview.ups.is_some() || overview.fans.is_some() {
                    section id="environment" class="card" data-live {
                        (environment::section(overview.ups.as_ref(), overview.fans.as_ref()))
                    }
                }
                section id="jobs" class="card" data-live { (jobs::table(&overview.jobs, now, visit)) }
                section id="mounts" class="card" data-live { (mount_table(overview)) }
            }
            div {
                section id="drives" class="card" data-live { (drives::table(&overview.drives)) }
                section id="alerts" class="card" data-live { (alert_list(overview, now, visit)) }
                section id="events" class="card" data-live { (event_table(&overview.events, now)) }
            }
        }
    }
}

/// From the verdict on a failing drive straight to the guide that replaces it.
fn replace_links(overview: &Overview, visit: &Visit) -> Markup {
    let failing = overview.drives.drives.iter().filter(|it| it.verdict.grade == Grade::Failing);
    html! {
        @for (drive, place) in failing.filter_map(|it| Some((it, it.place.as_ref()?))) {
            @let label = format!("Replace {}…", drive.name);
            (action_link(visit, Role::Operate, &replace_path(&place.pool, &place.device), &label))
        }
    }
}

fn alert_list(overview: &Overview, now: u64, visit: &Visit) -> Markup {
    html! {
        h2 { a href="/alerts" { "Alerts" } }
        @if overview.alerts.is_empty() { p class="hint" { "None." } }
        ul class="alerts" { @for alert in &overview.alerts { (alerts::item(alert, now, visit)) } }
    }
}

fn mount_table(overview: &Overview) -> Markup {
    html! {
        h2 { "Mounts" }
        @if overview.mounts.is_empty() { p class="hint" { "None." } } @else {
            div class="scroll" tabindex="0" { table {
                thead { tr { th { "Dataset" } th { "Directory" } } }
                tbody {
                    @for (dataset, directory) in &overview.mounts {
                        tr { td { (dataset) } td { (directory.display()) } }
                    }
                }
            } }
        }
    }
}

fn event_table(events: &[EventRecord], now: u64) -> Markup {
    html! {
        h2 { "Events" }
        @if events.is_empty() { p class="hint" { "None." } } @else {
            div class="scroll short" tabindex="0" { table {
                tbody {
                    @for record in events.iter().rev() {
                        tr {
                            td class="hint" title=(local(record.time)) { (ago(record.time, now)) }
                            td { (events::sentence(&record.event)) }
                        }
                    }
                }
            } }
        }
    }
}
