//! A dataset: its space and its snapshots, and the files that changed since a snapshot.

use api::{FileChange, Role};
use engine::dataset::Dataset;
use maud::{Markup, html};

use super::datasets::size;
use super::format::{ago, local};
use super::{
    ACTIONS, Page, action_form, action_link, aged, dataset_path, do_path, files_path, frame,
};
use crate::answers::Shown;
use crate::dashboard::Visit;

/// The properties that the table of snapshots shows.
pub(crate) const PROPERTIES: [&str; 4] = ["used", "referenced", "creation", "available"];
/// The properties that tell whether the key is missing.
pub(crate) const KEY_PROPERTIES: [&str; 3] = ["encryptionroot", "keystatus", "keyformat"];
/// The changes that a page shows.
const MAX_CHANGES: usize = 1000;

/// The page of a dataset. The first of the list is the dataset, the others are its snapshots, the oldest first.
/// `properties` has the dataset with the properties that can be set.
pub(crate) fn dataset(
    name: &str,
    list: &Shown<Vec<Dataset>>,
    properties: Option<&Dataset>,
    now: u64,
    visit: &Visit,
) -> Page {
    let (heads, snapshots): (Vec<_>, Vec<_>) =
        list.value.iter().partition(|dataset| dataset.kind != "snapshot");
    let suggested = format!("manual-{}", local(now).replace(' ', "_").replace(':', "-"));
    frame(
        &format!("poolhouse: {name}"),
        "/datasets",
        visit,
        &html! {
            h1 { (name) }
            (aged(list.age))
            @for head in heads {
                p class="hint" { (size(head, "used")) " used, " (size(head, "available")) " available" }
            }
            @if let Some(root) = properties.and_then(locked_root) { (unlock(name, root, visit)) }
            section id="snapshots" class="card" data-live {
                h2 { "Snapshots" }
                @if snapshots.is_empty() { p class="hint" { "None." } } @else {
                    div class="scroll" tabindex="0" { table {
                        thead { tr {
                            th { "Snapshot" } th { "Taken" } th class="number" { "Frees" }
                            th class="number" { "Refers to" } th { (ACTIONS) }
                        } }
                        tbody {
                            @for (at, snapshot) in snapshots.iter().rev().enumerate() { (row(snapshot, at == 0, now, visit)) }
                        }
                    } }
                    p class="hint" { "\"Frees\" is the space that returns if only this snapshot is destroyed." }
                }
            }
            @if visit.role >= Role::Operate {
                section class="card" {
                    h2 { "Take a snapshot" }
                    (action_form("snapshot", &[("dataset", name)], &html! {
                        label for="name" { "Name" }
                        input id="name" name="name" required value=(suggested) autocomplete="off" autocapitalize="none";
                        label class="check" { input type="checkbox" name="recursive" value="1"; " also of all datasets below" }
                        button { "Take it…" }
                    }))
                }
            }
            @if let Some(dataset) = properties {
                section class="card" { (super::properties::table(dataset, visit)) }
            }
        },
    )
}

/// The encryption root of a dataset whose key is not loaded, and the format of the key.
fn locked_root(dataset: &Dataset) -> Option<(&str, &str)> {
    let value = |name: &str| dataset.property_value(name);
    let root = value("encryptionroot").filter(|root| !matches!(*root, "" | "-"))?;
    (value("keystatus") == Some("unavailable"))
        .then_some((root, value("keyformat").unwrap_or("passphrase")))
}

/// The form for the key. It is sent in the body, and in no address or command line.
fn unlock(dataset: &str, (root, format): (&str, &str), visit: &Visit) -> Markup {
    html! {
        section id="unlock" class="card" {
            h2 { "The key is not loaded" }
            p { "Its data cannot be read until the key of " (root) " is typed. The command is "
                code { "poolhouse zfs load-key " (root) } "." }
            @if visit.role == Role::Administer && format != "raw" {
                form method="post" action="/unlock" class="action" {
                    (super::csrf_field(visit))
                    input type="hidden" name="root" value=(root);
                    input type="hidden" name="dataset" value=(dataset);
                    label for="key" { @if format == "hex" { "Key: 64 hexadecimal digits" } @else { "Passphrase" } }
                    input id="key" name="key" type="password" required autocomplete="off";
                    button { "Unlock and mount" }
                }
            }
        }
    }
}

fn row(snapshot: &Dataset, is_newest: bool, now: u64, visit: &Visit) -> Markup {
    let full = snapshot.name.as_str();
    let short = full.split_once('@').map_or(full, |(_, name)| name);
    let creation = snapshot.property_value("creation").and_then(|time| time.parse().ok());
    let newer = if is_newest { "" } else { "1" };
    html! {
        tr {
            td { (short) }
            td { @if let Some(time) = creation { span title=(local(time)) { (ago(time, now)) } } }
            td class="number" { (size(snapshot, "used")) }
            td class="number" { (size(snapshot, "referenced")) }
            td class="actions" {
                @let head = full.split('@').next().unwrap_or(full);
                @if visit.role == Role::Administer {
                    a class="button small quiet" href=(files_path(head, short, "")) { "Files" }
                    a class="button small quiet" href=(changes_path(head, full)) { "Changes" }
                }
                @let path = do_path("rollback", &[("snapshot", full), ("newer", newer)]);
                (action_link(visit, Role::Administer, &path, "Roll back…"))
                @let path = do_path("destroy-snapshot", &[("snapshot", full)]);
                (action_link(visit, Role::Administer, &path, "Destroy…"))
            }
        }
    }
}

/// The path of the changes since a snapshot.
fn changes_path(dataset: &str, snapshot: &str) -> String {
    format!("{}/changes?from={}", dataset_path(dataset), super::segment(snapshot))
}

/// The files that changed since a snapshot.
pub(crate) fn changes(from: &str, list: &Shown<Vec<FileChange>>, visit: &Visit) -> Page {
    let word = |change: &str| match change {
        "+" => "added",
        "-" => "removed",
        "R" => "renamed",
        _ => "modified",
    };
    let head = from.split('@').next().unwrap_or(from);
    frame(
        &format!("poolhouse: changes since {from}"),
        "/datasets",
        visit,
        &html! {
            h1 { "Changes since " (from) }
            (aged(list.age))
            p {
                "The command is " code { "poolhouse zfs diff " (from) } ". "
                a href=(dataset_path(head)) { "Back to the snapshots" }
            }
            section class="card" {
                @if list.value.is_empty() { p class="hint" { "No file changed." } }
                div class="scroll" tabindex="0" { table {
                    tbody { @for change in list.value.iter().take(MAX_CHANGES) {
                        tr {
                            td { (word(&change.change)) }
                            td { (change.path) @if let Some(to) = &change.to { " → " (to) } }
                        }
                    } }
                } }
                @if list.value.len() > MAX_CHANGES {
                    p class="hint" { "and " (list.value.len() - MAX_CHANGES) " more" }
                }
            }
        },
    )
}
