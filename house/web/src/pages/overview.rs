//! The first page: all on one.

use alerts::Severity;
use api::{EventRecord, Job, JobState, Overview};
use maud::{Markup, html};

use super::format::{ago, local, percent, span};
use super::{Page, bays, drives, environment, events, frame, grade_class, pools};

/// The age in seconds from which an overview is called old.
const OLD: u64 = 15;

/// The first page.
pub(crate) fn overview(overview: &Overview, now: u64, csrf: &str) -> Page {
    let title = format!("{}: {}", overview.host, overview.grade.as_str());
    frame(
        &title,
        Some(csrf),
        &html! {
            p id="connection" class="complaint" role="alert" hidden { "The daemon does not answer. This page is old." }
            div id="live" { (overview_sections(overview, now)) }
        },
    )
}

/// The sections that change while the page is open. Each has an id, by which the script exchanges it.
pub(crate) fn overview_sections(overview: &Overview, now: u64) -> Markup {
    html! {
        section id="verdict" class={ "verdict " (grade_class(overview.grade)) } aria-live="polite" data-live {
            h1 { (overview.host) }
            p { (overview.sentence) }
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
                section id="pools" class="card" data-live { (pools::pools(overview, now)) }
                section id="bays" class="card" data-live { (bays::map(&overview.drives)) }
                @if overview.ups.is_some() || overview.fans.is_some() {
                    section id="environment" class="card" data-live {
                        (environment::section(overview.ups.as_ref(), overview.fans.as_ref()))
                    }
                }
                section id="jobs" class="card" data-live { (job_table(&overview.jobs, now)) }
                section id="mounts" class="card" data-live { (mount_table(overview)) }
            }
            div {
                section id="drives" class="card" data-live { (drives::table(&overview.drives)) }
                section id="alerts" class="card" data-live { (alert_list(overview, now)) }
                section id="events" class="card" data-live { (event_table(&overview.events, now)) }
            }
        }
    }
}

fn alert_list(overview: &Overview, now: u64) -> Markup {
    html! {
        h2 { "Alerts" }
        @if overview.alerts.is_empty() { p class="hint" { "None." } }
        ul class="alerts" {
            @for alert in &overview.alerts {
                li {
                    @let class = match alert.severity {
                        Severity::Critical => "failing",
                        Severity::Warning => "watch",
                        Severity::Notice => "unknown",
                    };
                    span class={ "badge " (class) } { (alert.severity.as_str()) }
                    " " strong { (alert.title) } " "
                    span class="hint" title=(local(alert.began)) { (ago(alert.began, now)) }
                    br;
                    (alert.sentence) " " (alert.action)
                }
            }
        }
    }
}

fn job_table(jobs: &[Job], now: u64) -> Markup {
    html! {
        h2 { "Jobs" }
        @if jobs.is_empty() { p class="hint" { "None." } } @else {
            div class="scroll" { table {
                thead { tr { th { "Job" } th { "Of" } th { "State" } th { "Started" } } }
                tbody {
                    @for job in jobs.iter().rev() {
                        tr {
                            td { (job.kind) }
                            td { (job.subject) }
                            td { (job_state(job)) }
                            td title=(local(job.started)) { (ago(job.started, now)) }
                        }
                    }
                }
            } }
        }
    }
}

fn job_state(job: &Job) -> Markup {
    let progress = &job.progress;
    html! {
        @if job.state == JobState::Running && progress.total > 0 {
            @let done = percent(progress.done, progress.total);
            progress max="100" value=(done) { (done) " %" } " " (done) " %"
        } @else { (job.state.as_str()) }
        @if let Some(line) = job.log.last() { br; span class="hint" { (line) } }
    }
}

fn mount_table(overview: &Overview) -> Markup {
    html! {
        h2 { "Mounts" }
        @if overview.mounts.is_empty() { p class="hint" { "None." } } @else {
            div class="scroll" { table {
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
        @if events.is_empty() { p class="hint" { "None since the daemon started." } } @else {
            div class="scroll short" { table {
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
