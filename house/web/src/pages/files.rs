//! The time slider: a folder of a file system at any snapshot, and the files of it restored. The snapshots are those of a
//! pool, or those in a repository of backups.

use api::{FileEntry, Role};
use maud::{Markup, html};
use units::human_bytes;

use super::format::local;
use super::{ACTIONS, Page, action_link, aged, dataset_path, do_path, frame, repository_path};
use crate::answers::Shown;
use crate::dashboard::Visit;

/// A folder at a moment.
#[derive(Clone, Copy, Default)]
pub(crate) struct Place<'a> {
    /// The repository that has the snapshot; none: a pool has it.
    pub(crate) repository: Option<&'a str>,
    /// The file system.
    pub(crate) dataset: &'a str,
    /// The name of the snapshot; empty: now.
    pub(crate) at: &'a str,
    /// The folder, from the root on.
    pub(crate) folder: &'a str,
    /// The file system that gets what is restored; empty: that of the snapshot.
    pub(crate) into: &'a str,
}

/// A snapshot of the slider: its name, and when it was taken.
pub(crate) struct Moment {
    pub(crate) name: String,
    pub(crate) time: Option<u64>,
}

impl Place<'_> {
    /// The path of the page of a folder at this moment.
    pub(crate) fn path(&self, folder: &str) -> String {
        self.path_at(self.at, folder)
    }

    fn path_at(&self, at: &str, folder: &str) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        let Some(location) = self.repository else {
            query.extend_pairs([("at", at), ("path", folder)]);
            return format!("{}/files?{}", dataset_path(self.dataset), query.finish());
        };
        query.extend_pairs([("location", location), ("dataset", self.dataset)]);
        query.extend_pairs([("at", at), ("path", folder), ("into", self.into)]);
        format!("/repositories/files?{}", query.finish())
    }

    /// The path of the question whether a name of the folder is restored; none: it is of now.
    fn restore_path(&self, path: &str, is_folder: bool) -> Option<String> {
        if self.at.is_empty() {
            return None;
        }
        let snapshot = format!("{}@{}", self.dataset, self.at);
        let mut fields = vec![("snapshot", snapshot.as_str()), ("path", path)];
        fields.extend(is_folder.then_some(("folder", "1")));
        fields.extend(self.repository.map(|location| ("repository", location)));
        fields.extend((!self.into.is_empty()).then_some(("into", self.into)));
        Some(do_path("restore", &fields))
    }
}

/// The page of a folder. `moments` has the snapshots, the oldest first.
pub(crate) fn files(
    place: Place<'_>,
    moments: &[Moment],
    files: &Result<Shown<Vec<FileEntry>>, String>,
    datasets: &[String],
    visit: &Visit,
) -> Page {
    let Place { dataset, at, folder, .. } = place;
    let shown_at = if at.is_empty() { "now" } else { at };
    let tab = if place.repository.is_some() { "/copies" } else { "/datasets" };
    frame(
        &format!("poolhouse: {dataset}/{folder} {shown_at}"),
        tab,
        visit,
        &html! {
            h1 {
                "Files of "
                @match place.repository {
                    None => a href=(dataset_path(dataset)) { (dataset) },
                    Some(location) => { (dataset) " in " a href=(repository_path(location)) { (location) } }
                }
                ", " (shown_at)
            }
            section class="card" { (slider(place, moments)) }
            @if place.repository.is_some() { section class="card" { (target_form(place, datasets)) } }
            section class="card" {
                (crumbs(place))
                @match files {
                    Err(why) => p class="complaint" role="alert" { (why) },
                    Ok(files) => {
                        (aged(files.age))
                        (table(place, &files.value, visit))
                    },
                }
            }
        },
    )
}

/// The moments, the oldest first: a slider for a pointer, and the same as links.
fn slider(place: Place<'_>, snapshots: &[Moment]) -> Markup {
    let now = place.repository.is_none().then_some(("", None));
    let moments: Vec<(&str, Option<u64>)> =
        snapshots.iter().map(|it| (it.name.as_str(), it.time)).chain(now).collect();
    let last = moments.len().max(1) - 1;
    let chosen = moments.iter().position(|(name, _)| *name == place.at).unwrap_or(last);
    let time = |at: usize| {
        let taken = moments.get(at).and_then(|(_, time)| *time);
        taken.map_or_else(|| "now".to_owned(), local)
    };
    html! {
        label for="time" { "Moment" }
        input id="time" type="range" min="0" max=(last) value=(chosen) data-slider aria-valuetext=(time(chosen));
        ol class="moments" {
            @for (index, (moment, _)) in moments.iter().enumerate() {
                @let current = (index == chosen).then_some("true");
                li {
                    a href=(place.path_at(moment, place.folder)) aria-current=[current] title=(time(index)) {
                        @if moment.is_empty() { "now" } @else { (moment) }
                    }
                }
            }
        }
    }
}

/// The form that chooses where restored files go: the file system of the snapshot may be gone.
fn target_form(place: Place<'_>, datasets: &[String]) -> Markup {
    let into = if place.into.is_empty() { place.dataset } else { place.into };
    let is_known = datasets.iter().any(|name| name == into);
    let location = place.repository.unwrap_or_default();
    let fixed = [
        ("location", location),
        ("dataset", place.dataset),
        ("at", place.at),
        ("path", place.folder),
    ];
    html! {
        form method="get" action="/repositories/files" class="action" {
            @for (name, value) in fixed { input type="hidden" name=(name) value=(value); }
            label for="into" { "Restored files go to the file system" }
            span class="inline" {
                select id="into" name="into" {
                    @if !is_known { option value=(into) selected { (into) " (not imported)" } }
                    @for name in datasets { option value=(name) selected[name == into] { (name) } }
                }
                button class="small" { "Choose" }
            }
        }
    }
}

fn crumbs(place: Place<'_>) -> Markup {
    let mut so_far = String::new();
    let parts: Vec<_> = (place.folder.split('/').filter(|part| !part.is_empty()))
        .map(|part| {
            so_far = if so_far.is_empty() { part.to_owned() } else { format!("{so_far}/{part}") };
            (part, so_far.clone())
        })
        .collect();
    html! {
        p class="crumbs" {
            a href=(place.path("")) { (place.dataset) }
            @for (part, whole) in &parts { " / " a href=(place.path(whole)) { (part) } }
        }
    }
}

fn table(place: Place<'_>, files: &[FileEntry], visit: &Visit) -> Markup {
    html! {
        @if files.is_empty() { p class="hint" { "The folder is empty." } } @else {
            div class="scroll" tabindex="0" { table {
                thead { tr { th { "Name" } th class="number" { "Size" } th { "Changed" } th { (ACTIONS) } } }
                tbody { @for file in files { (row(place, file, visit)) } }
            } }
        }
    }
}

fn row(place: Place<'_>, file: &FileEntry, visit: &Visit) -> Markup {
    let folder = place.folder;
    let full =
        if folder.is_empty() { file.name.clone() } else { format!("{folder}/{}", file.name) };
    let (is_dir, is_file) = (file.file_type == "/", file.file_type == "F");
    let changed = u64::try_from(file.modified).map_or_else(|_| "–".to_owned(), local);
    let restored = (is_dir || is_file) && file.is_exact;
    html! {
        tr {
            td {
                @if is_dir && file.is_exact { a href=(place.path(&full)) { (file.name) "/" } }
                @else { (file.name) }
            }
            td class="number" { @if is_file { (human_bytes(file.size)) } }
            td { (changed) }
            td class="actions" {
                @if restored && let Some(path) = place.restore_path(&full, is_dir) {
                    (action_link(visit, Role::Administer, &path, "Restore…"))
                }
            }
        }
    }
}
