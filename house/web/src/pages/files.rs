//! The time slider: a folder at any snapshot and now, and the files of it restored.

use api::{FileEntry, Role};
use engine::dataset::Dataset;
use maud::{Markup, html};
use units::human_bytes;

use super::format::local;
use super::{ACTIONS, Page, action_link, aged, dataset_path, do_path, files_path, frame};
use crate::answers::Shown;
use crate::dashboard::Visit;

/// The page of a folder. `at` is the snapshot; empty: now.
pub(crate) fn files(
    dataset: &str,
    at: &str,
    path: &str,
    snapshots: &[Dataset],
    files: &Result<Shown<Vec<FileEntry>>, String>,
    visit: &Visit,
) -> Page {
    let shown_at = if at.is_empty() { "now" } else { at };
    frame(
        &format!("poolhouse: {dataset}/{path} {shown_at}"),
        "/datasets",
        visit,
        &html! {
            h1 { "Files of " a href=(dataset_path(dataset)) { (dataset) } ", " (shown_at) }
            section class="card" { (slider(dataset, at, path, snapshots)) }
            section class="card" {
                (crumbs(dataset, at, path))
                @match files {
                    Err(why) => p class="complaint" role="alert" { (why) },
                    Ok(files) => {
                        (aged(files.age))
                        (table(dataset, at, path, &files.value, visit))
                    },
                }
            }
        },
    )
}

/// The moments, the oldest first: a slider for a pointer, and the same as links.
fn slider(dataset: &str, at: &str, path: &str, snapshots: &[Dataset]) -> Markup {
    let names = snapshots.iter().map(|it| it.name.split_once('@').map_or("", |(_, name)| name));
    let moments: Vec<&str> = names.chain([""]).collect();
    let chosen = moments.iter().position(|moment| *moment == at).unwrap_or(moments.len() - 1);
    let time = |at: usize| {
        let taken = snapshots.get(at).and_then(|it| it.property_value("creation")?.parse().ok());
        taken.map_or_else(|| "now".to_owned(), local)
    };
    html! {
        label for="time" { "Moment" }
        input id="time" type="range" min="0" max=(moments.len() - 1) value=(chosen) data-slider
            aria-valuetext=(time(chosen));
        ol class="moments" {
            @for (index, moment) in moments.iter().enumerate() {
                @let current = (index == chosen).then_some("true");
                li {
                    a href=(files_path(dataset, moment, path)) aria-current=[current] title=(time(index)) {
                        @if moment.is_empty() { "now" } @else { (moment) }
                    }
                }
            }
        }
    }
}

fn crumbs(dataset: &str, at: &str, path: &str) -> Markup {
    let mut so_far = String::new();
    let parts: Vec<_> = (path.split('/').filter(|part| !part.is_empty()))
        .map(|part| {
            so_far = if so_far.is_empty() { part.to_owned() } else { format!("{so_far}/{part}") };
            (part, so_far.clone())
        })
        .collect();
    html! {
        p class="crumbs" {
            a href=(files_path(dataset, at, "")) { (dataset) }
            @for (part, whole) in &parts { " / " a href=(files_path(dataset, at, whole)) { (part) } }
        }
    }
}

fn table(dataset: &str, at: &str, path: &str, files: &[FileEntry], visit: &Visit) -> Markup {
    html! {
        @if files.is_empty() { p class="hint" { "The folder is empty." } } @else {
            div class="scroll" tabindex="0" { table {
                thead { tr { th { "Name" } th class="number" { "Size" } th { "Changed" } th { (ACTIONS) } } }
                tbody { @for file in files { (row(dataset, at, path, file, visit)) } }
            } }
        }
    }
}

fn row(dataset: &str, at: &str, path: &str, file: &FileEntry, visit: &Visit) -> Markup {
    let full = if path.is_empty() { file.name.clone() } else { format!("{path}/{}", file.name) };
    let (is_dir, is_file) = (file.file_type == "/", file.file_type == "F");
    let changed = u64::try_from(file.modified).map_or_else(|_| "–".to_owned(), local);
    html! {
        tr {
            td {
                @if is_dir && file.is_exact { a href=(files_path(dataset, at, &full)) { (file.name) "/" } }
                @else { (file.name) }
            }
            td class="number" { @if is_file { (human_bytes(file.size)) } }
            td { (changed) }
            td class="actions" {
                @if is_file && file.is_exact && !at.is_empty() {
                    @let snapshot = format!("{dataset}@{at}");
                    @let path = do_path("restore", &[("snapshot", &snapshot), ("path", &full)]);
                    (action_link(visit, Role::Administer, &path, "Restore…"))
                } @else if is_dir && file.is_exact && !at.is_empty() {
                    @let snapshot = format!("{dataset}@{at}");
                    @let fields = [("snapshot", snapshot.as_str()), ("path", &full), ("folder", "1")];
                    (action_link(visit, Role::Administer, &do_path("restore", &fields), "Restore…"))
                }
            }
        }
    }
}
