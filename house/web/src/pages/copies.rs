//! Copies: replicas with their newest safe copy, repositories of backups, the snapshots of policies, and the forms that set
//! them up.

use api::{PolicyStatus, ReplicaStatus, RepositoryState, Role};
use maud::{Markup, html};

use super::format::{ago, local};
use super::{ACTIONS, Page, action_form, action_link, aged, do_path, frame, repositories};
use crate::answers::Shown;
use crate::dashboard::Visit;

/// The page of copies.
pub(crate) fn copies(
    replicas: &Shown<Vec<ReplicaStatus>>,
    policies: &Shown<Vec<PolicyStatus>>,
    backups: &Result<Shown<Vec<RepositoryState>>, String>,
    datasets: &[String],
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
                        "None. A replica is a copy of datasets in another pool, here or on another host."
                    }
                }
                @for replica in &replicas.value { (replica_card(replica, now, visit)) }
            }
            (repositories::list(backups, now, visit))
            section id="policies" class="card" data-live {
                div class="row" {
                    h2 { "Automatic snapshots" }
                    @if !policies.value.is_empty() {
                        (action_link(visit, Role::Administer, &do_path("run-policies", &[]), "Run now…"))
                    }
                }
                (policy_table(&policies.value, now, visit))
            }
            @if visit.role == Role::Administer {
                datalist id="known" { @for name in datasets { option value=(name) {} } }
                div class="columns" {
                    section class="card" { (new_replica()) }
                    div {
                        @let known = backups.as_ref().map(|shown| shown.value.as_slice());
                        section class="card" { (repositories::new_backup(known.unwrap_or_default())) }
                        section class="card" { (repositories::new_repository()) }
                        section class="card" { (new_policy()) }
                    }
                }
            }
        },
    )
}

fn replica_card(replica: &ReplicaStatus, now: u64, visit: &Visit) -> Markup {
    html! {
        article class="pool" {
            div class="row" {
                h3 { (replica.name) " " span class="hint" { "to " (replica.target) } }
                span {
                    @let path = do_path("replicate", &[("name", &replica.name)]);
                    (action_link(visit, Role::Operate, &path, "Run now…")) " "
                    @let path = do_path("remove-replica", &[("name", &replica.name)]);
                    (action_link(visit, Role::Administer, &path, "Remove…"))
                }
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

/// Whether a row is the first of its dataset, and of a policy that names this dataset: those below follow.
fn names_policy(policies: &[PolicyStatus], at: usize) -> bool {
    let Some(dataset) = policies.get(at).map(|policy| policy.dataset.as_str()) else {
        return false;
    };
    let is_above = |other: &str| dataset.strip_prefix(other).is_some_and(|it| it.starts_with('/'));
    policies.iter().position(|policy| policy.dataset == dataset) == Some(at)
        && !policies.iter().any(|policy| is_above(&policy.dataset))
}

fn policy_table(policies: &[PolicyStatus], now: u64, visit: &Visit) -> Markup {
    html! {
        @if policies.is_empty() {
            p class="hint" {
                "None."
            }
        } @else {
            div class="scroll" tabindex="0" { table {
                thead { tr {
                    th { "Dataset" } th { "Kind" } th class="number" { "Kept" } th class="number" { "Of" }
                    th { "Newest" } th { span class="unseen" { "Due" } } th { (ACTIONS) }
                } }
                tbody {
                    @for (at, policy) in policies.iter().enumerate() {
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
                            td class="actions" {
                                @if names_policy(policies, at) {
                                    @let path = do_path("remove-policy", &[("dataset", &policy.dataset)]);
                                    (action_link(visit, Role::Administer, &path, "Remove…"))
                                }
                            }
                        }
                    }
                }
            } }
        }
    }
}

fn new_replica() -> Markup {
    html! {
        h2 { "New replica" }
        (action_form("add-replica", &[], &html! {
            label for="replica" { "Name: letters, digits, - and _" }
            input id="replica" name="name" required autocomplete="off" autocapitalize="none";
            label for="source" { "What is copied: a dataset, with all below it" }
            input id="source" name="source" required list="known" autocomplete="off" autocapitalize="none";
            label for="target" { "Where to, for example usb/photos or ssh://root@otherhost/pool/photos" }
            input id="target" name="target" required autocomplete="off" autocapitalize="none";
            label for="every" { "How often" }
            select id="every" name="every" {
                @for word in ["hourly", "daily", "weekly", "monthly"] { option value=(word) { (word) } }
            }
            label for="max-age" { "Alert when the newest copy is older, for example 2d; empty: never" }
            input id="max-age" name="max-age" autocomplete="off";
            label for="window" { "Only at these hours, for example 22:00-06:00; empty: at any time" }
            input id="window" name="window" autocomplete="off";
            label for="rate" { "Bytes per second at most, for example 20M; empty: no limit" }
            input id="rate" name="rate" autocomplete="off";
            label for="wake" { "Wake the other host by Wake-on-LAN: its hardware address; empty: it is on" }
            input id="wake" name="wake" autocomplete="off";
            button { "Set up…" }
        }))
    }
}

fn new_policy() -> Markup {
    html! {
        h2 { "New automatic snapshots" }
        (action_form("add-policy", &[], &html! {
            label for="policy" { "Dataset; all below it follow" }
            input id="policy" name="dataset" required list="known" autocomplete="off" autocapitalize="none";
            @for (kind, kept) in [("hourly", "24"), ("daily", "30"), ("weekly", "8"), ("monthly", "6")] {
                label for=(kind) { "Kept " (kind) " snapshots" }
                input id=(kind) name=(kind) type="number" min="0" value=(kept);
            }
            button { "Set up…" }
        }))
    }
}
