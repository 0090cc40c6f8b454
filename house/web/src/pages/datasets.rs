//! The table of file systems and volumes.

use api::Role;
use engine::dataset::Dataset;
use maud::{Markup, html};
use units::human_bytes;

use super::{Page, action_form, aged, dataset_path, frame};
use crate::answers::Shown;
use crate::dashboard::Visit;

/// The properties that the table shows.
pub(crate) const PROPERTIES: [&str; 5] =
    ["used", "available", "usedbysnapshots", "mountpoint", "mounted"];

/// The page of datasets.
pub(crate) fn datasets(list: &Shown<Vec<Dataset>>, visit: &Visit) -> Page {
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
                            th class="number" { "Available" } th { "Directory" }
                        } }
                        tbody { @for dataset in &list.value { (row(dataset)) } }
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

fn row(dataset: &Dataset) -> Markup {
    let depth = dataset.name.matches('/').count().min(3);
    let is_volume = dataset.kind == "volume";
    html! {
        tr {
            td class={ "depth" (depth) } {
                a href=(dataset_path(&dataset.name)) { (dataset.name) }
                @if is_volume { " " span class="hint" { "volume" } }
            }
            td class="number" { (size(dataset, "used")) }
            td class="number" { (size(dataset, "usedbysnapshots")) }
            td class="number" { (size(dataset, "available")) }
            td { @if !is_volume { (dataset.property_value("mountpoint").unwrap_or("–")) } }
        }
    }
}

/// A property in bytes, as people read it.
pub(super) fn size(dataset: &Dataset, property: &str) -> String {
    let bytes = dataset.property_value(property).and_then(|value| value.parse().ok());
    bytes.map_or_else(|| "–".to_owned(), human_bytes)
}
