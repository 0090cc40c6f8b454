//! Copies: replicas with their newest safe copy, and the snapshots of policies.

use api::{PolicyStatus, ReplicaStatus, Role};
use maud::{Markup, html};

use super::format::{ago, local};
use super::{Page, action_link, aged, do_path, frame};
use crate::answers::Shown;
use crate::dashboard::Visit;

/// The page of copies.
pub(crate) fn copies(
    replicas: &Shown<Vec<ReplicaStatus>>,
    policies: &Shown<Vec<PolicyStatus>>,
    now: u64,
    visit: &Visit,
) -> Page {
    frame(
        "poolhouse: copies",
        "/copies",
        visit,
        &html! {
            h1 { "Copies" }
            (aged(replicas.age.or(policies.age)))
            section id="replicas" class="card" data-live {
                h2 { "Replicas" }
                @if replicas.value.is_empty() {
                    p class="hint" {
                        "None. A section [[replica]] of config.toml makes one; see "
                        code { "poolhouse replicate --help" } "."
                    }
                }
                @for replica in &replicas.value { (replica_card(replica, now, visit)) }
            }
            section id="policies" class="card" data-live {
                div class="row" {
                    h2 { "Automatic snapshots" }
                    @if !policies.value.is_empty() {
                        (action_link(visit, Role::Administer, &do_path("run-policies", &[]), "Run now…"))
                    }
                }
                (policy_table(&policies.value, now))
            }
        },
    )
}

fn replica_card(replica: &ReplicaStatus, now: u64, visit: &Visit) -> Markup {
    html! {
        article class="pool" {
            div class="row" {
                h3 { (replica.name) " " span class="hint" { "to " (replica.target) } }
                (action_link(visit, Role::Operate, &do_path("replicate", &[("name", &replica.name)]), "Run now…"))
            }
            @match (&replica.error, replica.succeeded) {
                (Some(why), _) => p class="complaint" { "The last try failed: " (why) },
                (None, Some(time)) => p { "Brought up to date " (ago(time, now)) "." },
                (None, None) => p class="hint" { "It has not run yet." },
            }
            @match (&replica.test_error, replica.tested) {
                (Some(why), _) => p class="complaint" { "The last test failed: " (why) },
                (None, Some(time)) => p { "Read back and found equal " (ago(time, now)) "." },
                (None, None) => {},
            }
            div class="scroll" tabindex="0" { table {
                thead { tr {
                    th { "Dataset" } th { "Newest safe copy" } th { "Taken" } th class="number" { "Missing snapshots" }
                } }
                tbody {
                    @for copy in &replica.copies {
                        tr {
                            td { (copy.source) }
                            td {
                                @if let Some(name) = &copy.snapshot { (name) }
                                @else { span class="badge failing" { "none" } }
                            }
                            td { @if let Some(time) = copy.snapshot_time { span title=(local(time)) { (ago(time, now)) } } }
                            td class="number" {
                                @match copy.missing { Some(count) => (count), None => "–" }
                            }
                        }
                    }
                }
            } }
        }
    }
}

fn policy_table(policies: &[PolicyStatus], now: u64) -> Markup {
    html! {
        @if policies.is_empty() {
            p class="hint" {
                "None. A section [[policy]] of config.toml takes some; see " code { "poolhouse policy --help" } "."
            }
        } @else {
            div class="scroll" tabindex="0" { table {
                thead { tr {
                    th { "Dataset" } th { "Kind" } th class="number" { "Kept" } th class="number" { "Of" }
                    th { "Newest" } th { span class="unseen" { "Due" } }
                } }
                tbody {
                    @for policy in policies {
                        tr {
                            td { (policy.dataset) }
                            td { (policy.period) }
                            td class="number" { (policy.count) }
                            td class="number" { (policy.keep) }
                            td {
                                @if let Some(time) = policy.newest_time { span title=(local(time)) { (ago(time, now)) } }
                                @else { "none" }
                            }
                            td { @if policy.is_due { span class="badge watch" { "due" } } }
                        }
                    }
                }
            } }
        }
    }
}
