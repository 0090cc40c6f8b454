//! The table of file systems and volumes.

use api::{CopyStatus, ReplicaStatus, Role};
use engine::dataset::Dataset;
use maud::{Markup, html};
use units::human_bytes;

use super::format::{ago, local};
use super::{Page, action_form, aged, dataset_path, frame};
use crate::answers::Shown;
use crate::dashboard::Visit;

/// The properties that the table shows.
pub(crate) const PROPERTIES: [&str; 6] =
    ["used", "available", "usedbysnapshots", "mountpoint", "mounted", "keystatus"];

/// The page of datasets, each with the newest of its snapshots that a replica holds.
pub(crate) fn datasets(
    list: &Shown<Vec<Dataset>>,
    replicas: &[ReplicaStatus],
    now: u64,
    visit: &Visit,
) -> Page {
    frame(
        "poolhouse: datasets",
        "/datasets",
        visit,
        &html! {
            h1 { "Datasets" }
            (aged(list.age))
            section id="datasets" class="card" data-live {
                @if list.value.is_empty() { p class="hint" { "No pool is imported." } } @else {
                    div class="scroll" tabindex="0" { table {
                        thead { tr {
                            th { "Dataset" } th class="number" { "Used" } th class="number" { "By snapshots" }
                            th class="number" { "Available" } th { "Directory" } th { "Newest safe copy" }
                        } }
                        tbody { @for dataset in &list.value { (row(dataset, replicas, now)) } }
                    } }
                }
            }
            @if visit.role == Role::Administer && !list.value.is_empty() {
                section class="card" {
                    h2 { "New file system" }
                    (action_form("create-filesystem", &[], &html! {
                        label for="name" { "Full name, for example tank/photos" }
                        input id="name" name="name" required autocomplete="off" autocapitalize="none";
                        button { "Create…" }
                    }))
                }
            }
        },
    )
}

/// The newest copy of a dataset; none: no replica copies the dataset.
fn safe_copy<'a>(dataset: &str, replicas: &'a [ReplicaStatus]) -> Option<&'a CopyStatus> {
    let copies = replicas.iter().flat_map(|replica| &replica.copies);
    copies.filter(|copy| copy.source == dataset).max_by_key(|copy| copy.snapshot_time)
}

fn row(dataset: &Dataset, replicas: &[ReplicaStatus], now: u64) -> Markup {
    let depth = dataset.name.matches('/').count().min(3);
    let is_volume = dataset.kind == "volume";
    html! {
        tr {
            td class={ "depth" (depth) } {
                a href=(dataset_path(&dataset.name)) { (dataset.name) }
                @if is_volume { " " span class="hint" { "volume" } }
                @if dataset.property_value("keystatus") == Some("unavailable") {
                    " " span class="badge watch" { "locked" }
                }
            }
            td class="number" { (size(dataset, "used")) }
            td class="number" { (size(dataset, "usedbysnapshots")) }
            td class="number" { (size(dataset, "available")) }
            td { @if !is_volume { (dataset.property_value("mountpoint").unwrap_or("–")) } }
            td {
                @match safe_copy(&dataset.name, replicas).map(|copy| copy.snapshot_time) {
                    Some(Some(time)) => span title=(local(time)) { (ago(time, now)) },
                    Some(None) => span class="badge failing" { "none" },
                    None => "–",
                }
            }
        }
    }
}

/// A property in bytes, as people read it.
pub(super) fn size(dataset: &Dataset, property: &str) -> String {
    let bytes = dataset.property_value(property).and_then(|value| value.parse().ok());
    bytes.map_or_else(|| "–".to_owned(), human_bytes)
}

#[cfg(test)]
mod tests {
    use api::{CopyStatus, ReplicaStatus};

    use super::safe_copy;

    #[test]
    fn newest_copy_of_all_replicas_counts() {
        let replica = |time| ReplicaStatus {
            copies: vec![CopyStatus {
                source: "tank/a".to_owned(),
                snapshot_time: time,
                ..CopyStatus::default()
            }],
            ..ReplicaStatus::default()
        };
        let both = [replica(Some(5)), replica(None), replica(Some(3))];
        let time = |dataset, replicas| safe_copy(dataset, replicas).map(|copy| copy.snapshot_time);
        assert_eq!(time("tank/a", &both), Some(Some(5)));
        assert_eq!(time("tank/a", &both[1..2]), Some(None));
        assert_eq!(time("tank", &both), None);
    }
}
