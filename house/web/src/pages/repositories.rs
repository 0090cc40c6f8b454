//! Repositories of backups: their state, and the snapshots in one of them.

use api::{RepositorySnapshot, RepositoryState, Role};
use maud::{Markup, html};
use units::human_bytes;

use super::files::Place;
use super::format::{ago, local};
use super::{ACTIONS, Page, action_form, action_link, aged, do_path, frame, repository_path};
use crate::answers::Shown;
use crate::dashboard::Visit;

/// The list of repositories on the page of copies.
pub(super) fn list(
    repositories: &Result<Shown<Vec<RepositoryState>>, String>,
    now: u64,
    visit: &Visit,
) -> Markup {
    html! {
        section id="repositories" class="card" data-live {
            h2 { "Backups" }
            @match repositories {
                Err(why) => p class="complaint" { (why) },
                Ok(shown) => {
                    (aged(shown.age))
                    @if shown.value.is_empty() {
                        p class="hint" {
                            "None. A repository keeps snapshots in a folder or a bucket, each one readable alone."
                        }
                    } @else { (table(&shown.value, now, visit)) }
                }
            }
        }
    }
}

fn table(repositories: &[RepositoryState], now: u64, visit: &Visit) -> Markup {
    html! {
        div class="scroll" tabindex="0" { table {
            thead { tr {
                th { "Repository" } th class="number" { "Snapshots" } th class="number" { "Stored" } th { "Newest" }
                th { (ACTIONS) }
            } }
            tbody { @for repository in repositories { (row(repository, now, visit)) } }
        } }
    }
}

fn row(repository: &RepositoryState, now: u64, visit: &Visit) -> Markup {
    let location = repository.location.as_str();
    let fields = [("location", location)];
    html! {
        tr {
            td {
                @if repository.problem.is_none() { a href=(repository_path(location)) { (location) } }
                @else { (location) }
                @if let Some(why) = &repository.problem { p class="complaint" { (why) } }
            }
            @if repository.problem.is_none() {
                td class="number" { (repository.snapshots) }
                td class="number" { (human_bytes(repository.stored)) }
                td {
                    @if let Some(time) = repository.newest { span title=(local(time)) { (ago(time, now)) } }
                    @else { "none" }
                }
            } @else { td class="number" { "–" } td class="number" { "–" } td { "–" } }
            td class="actions" {
                @if repository.problem.is_some() {
                    (action_link(visit, Role::Administer, &do_path("create-repository", &fields), "Create…")) " "
                }
                (action_link(visit, Role::Administer, &do_path("remove-repository", &fields), "Remove…"))
            }
        }
    }
}

/// The form that adds a repository to the configuration.
pub(super) fn new_repository() -> Markup {
    html! {
        h2 { "New repository" }
        (action_form("add-repository", &[], &html! {
            label for="place" { "Where: file:///FOLDER, or s3://BUCKET/FOLDER" }
            input id="place" name="location" required autocomplete="off" autocapitalize="none";
            label for="credentials" { "File on this machine with the bucket's keys; empty for a folder" }
            input id="credentials" name="credentials" autocomplete="off" autocapitalize="none";
            p class="hint" {
                "Its lines are " code { "AWS_ACCESS_KEY_ID=…" } ", " code { "AWS_SECRET_ACCESS_KEY=…" } ", "
                code { "AWS_REGION=…" } " and, for a service other than AWS, " code { "AWS_ENDPOINT_URL=…" }
                ". Only its owner may read it."
            }
            button { "Add…" }
        }))
    }
}

/// The form that backs a dataset up to one of the repositories.
pub(super) fn new_backup(repositories: &[RepositoryState]) -> Markup {
    let ready = repositories.iter().filter(|repository| repository.problem.is_none());
    html! {
        h2 { "Back up" }
        (action_form("backup", &[], &html! {
            datalist id="locations" { @for known in ready { option value=(known.location) {} } }
            label for="location" { "Repository" }
            input id="location" name="location" required list="locations" autocomplete="off" autocapitalize="none";
            label for="kept" { "Dataset: its snapshots, those that the repository has not yet" }
            input id="kept" name="dataset" required list="known" autocomplete="off" autocapitalize="none";
            label class="check" { input type="checkbox" name="recursive" value="1" checked; " also all datasets below" }
            button { "Back up…" }
        }))
    }
}

/// The page of a repository: the snapshots in it, those of a dataset together, the newest first.
pub(crate) fn repository(
    location: &str,
    snapshots: &Shown<Vec<RepositorySnapshot>>,
    now: u64,
    visit: &Visit,
) -> Page {
    let mut datasets: Vec<&str> = snapshots.value.iter().map(|it| it.dataset.as_str()).collect();
    datasets.dedup();
    frame(
        &format!("poolhouse: {location}"),
        "/copies",
        visit,
        &html! {
            h1 { "Backups in " (location) }
            (aged(snapshots.age))
            p class="hint" {
                "The command is " code { "poolhouse backup list " (location) } ". It reads the keys of a bucket from its \
                 environment, the daemon those of the section " code { "[[repository]]" } "."
            }
            @if datasets.is_empty() {
                section class="card" { p { "There is no snapshot in it yet." } p { a href="/copies" { "Back up a dataset" } } }
            }
            @for dataset in datasets {
                @let of_dataset: Vec<_> = snapshots.value.iter().filter(|it| it.dataset == dataset).collect();
                section class="card" { (snapshot_table(location, dataset, &of_dataset, now, visit)) }
            }
        },
    )
}

fn snapshot_table(
    location: &str,
    dataset: &str,
    snapshots: &[&RepositorySnapshot],
    now: u64,
    visit: &Visit,
) -> Markup {
    html! {
        h2 { (dataset) }
        div class="scroll" tabindex="0" { table {
            thead { tr {
                th { "Snapshot" } th { "Taken" } th class="number" { "Refers to" } th class="number" { "Added" }
                th { (ACTIONS) }
            } }
            tbody {
                @for snapshot in snapshots.iter().rev() {
                    tr {
                        td {
                            (snapshot.name)
                            @if snapshot.is_encrypted { " " span class="badge unknown" { "encrypted" } }
                            @if snapshot.is_volume { " " span class="badge unknown" { "volume" } }
                        }
                        td { span title=(local(snapshot.creation)) { (ago(snapshot.creation, now)) } }
                        td class="number" { (human_bytes(snapshot.referenced)) }
                        td class="number" { (human_bytes(snapshot.added)) }
                        td class="actions" { (snapshot_actions(location, snapshot, visit)) }
                    }
                }
            }
        } }
    }
}

/// The actions on a snapshot. Volumes and encrypted snapshots are restored by the command, which gets the key.
fn snapshot_actions(location: &str, snapshot: &RepositorySnapshot, visit: &Visit) -> Markup {
    let place = Place {
        repository: Some(location),
        dataset: &snapshot.dataset,
        at: &snapshot.name,
        ..Place::default()
    };
    html! {
        @if visit.role == Role::Administer {
            @if snapshot.is_volume || snapshot.is_encrypted {
                span class="hint" { "by " code { "poolhouse backup restore" } }
            } @else {
                a class="button small quiet" href=(place.path("")) { "Files" }
            }
        }
    }
}
