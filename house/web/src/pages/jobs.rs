//! The table of jobs.

use api::{Job, JobState, Role};
use maud::{Markup, html};

use super::format::{ago, local, percent, span};
use super::{ACTIONS, action_link, do_path};
use crate::dashboard::Visit;

pub(super) fn table(jobs: &[Job], now: u64, visit: &Visit) -> Markup {
    html! {
        h2 { "Jobs" }
        @if jobs.is_empty() { p class="hint" { "None." } } @else {
            div class="scroll" tabindex="0" { table {
                thead { tr { th { "Job" } th { "Of" } th { "State" } th { "Started" } th { (ACTIONS) } } }
                tbody {
                    @for job in jobs.iter().rev() {
                        tr {
                            td { (job.kind) }
                            td { (job.subject) }
                            td { (state(job, now)) }
                            td title=(local(job.started)) { (ago(job.started, now)) }
                            td class="actions" {
                                // the pool needs its resilver
                                @if job.state == JobState::Running && job.kind != "resilver" {
                                    @let path = do_path("cancel-job", &[("job", &job.id.to_string())]);
                                    (action_link(visit, Role::Operate, &path, "Cancel…"))
                                }
                            }
                        }
                    }
                }
            } }
        }
    }
}

fn state(job: &Job, now: u64) -> Markup {
    let progress = &job.progress;
    html! {
        @if job.state == JobState::Running && progress.total > 0 {
            @let done = percent(progress.done, progress.total);
            progress max="100" value=(done) aria-label={ (job.kind) " of " (job.subject) } { (done) " %" } " " (done) " %"
            @if let Some(left) = time_left(job, now) { ", " (span(left)) " left" }
        } @else { (job.state.as_str()) }
        @if let Some(line) = job.log.last() { br; span class="hint" { (line) } }
    }
}

/// The seconds that a job still takes at its speed so far.
fn time_left(job: &Job, now: u64) -> Option<u64> {
    let elapsed = now.checked_sub(job.started).filter(|elapsed| *elapsed > 0)?;
    let left = u128::from(job.progress.total.checked_sub(job.progress.done)?) * u128::from(elapsed);
    u64::try_from(left.checked_div(u128::from(job.progress.done))?).ok()
}
