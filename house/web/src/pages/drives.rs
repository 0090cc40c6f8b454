//! The table of drives.

use api::{Drive, DriveList};
use maud::{Markup, html};

use super::format::{drive_size, or_dash};
use super::{drive_path, grade_class};

pub(super) fn table(list: &DriveList) -> Markup {
    html! {
        h2 { "Drives" }
        @if list.drives.is_empty() {
            p class="hint" { @if list.is_complete { "None." } @else { "They are being read for the first time." } }
        } @else {
            div class="scroll" tabindex="0" { table class="dense" {
                thead { tr {
                    th { "Bay" } th { "Drive" } th { "Model" } th class="number" { "Size" }
                    th class="number" { "Temp" } th { "Pool" } th { "Health" }
                } }
                tbody { @for drive in &list.drives { (row(drive)) } }
            } }
            p class="hint" { (list.power.sentence()) }
        }
    }
}

fn row(drive: &Drive) -> Markup {
    let place = drive.place.as_ref().map(|place| format!("{}/{}", place.pool, place.vdev));
    let grade = drive.verdict.grade;
    html! {
        tr {
            td { (or_dash(drive.bay.as_ref())) }
            td { a href=(drive_path(drive.id())) { (drive.name) } " " span class="hint" { (or_dash(drive.serial.as_ref())) } }
            td { (or_dash(drive.model.as_ref())) }
            td class="number" { (drive_size(drive.size)) }
            td class="number" { (temperature(drive)) }
            td { (or_dash(place)) }
            td title=(drive.verdict.sentence) { span class={ "badge " (grade_class(grade)) } { (grade.as_str()) } }
        }
    }
}

/// A drive in a list to choose from.
pub(super) fn summary(drive: &Drive) -> Markup {
    html! {
        strong { (drive.name) } " " (or_dash(drive.model.as_ref())) ", "
        (drive_size(drive.size)) ", " (temperature(drive))
        @if let Some(bay) = &drive.bay { ", bay " (bay) }
        " " span class={ "badge " (grade_class(drive.verdict.grade)) } {
            (drive.verdict.grade.as_str())
        }
    }
}

/// The temperature; of a sleeping drive it is old, and not shown.
pub(super) fn temperature(drive: &Drive) -> String {
    if drive.is_asleep {
        return "asleep".to_owned();
    }
    or_dash(drive.temperature.map(|celsius| format!("{celsius} °C")))
}
