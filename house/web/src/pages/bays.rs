//! The map of bays.

use api::DriveList;
use maud::{Markup, html};

use super::drives::temperature;
use super::{drive_path, grade_class};

/// The map. `marked` is the drive that a guide is about.
pub(super) fn map(list: &DriveList, marked: Option<&str>) -> Markup {
    html! {
        h2 { "Bays" }
        @if list.bays.is_empty() {
            p class="hint" { "No map is drawn. See " code { "poolhouse drives map" } "." }
        } @else {
            div class="scroll" tabindex="0" { table class="bays" {
                caption { "The case from the front" }
                tbody {
                    @for (row, bays) in (1..).zip(&list.bays.rows) {
                        tr {
                            @for (column, serial) in (1..).zip(bays) {
                                (bay(list, &format!("{row}-{column}"), serial.trim(), marked))
                            }
                        }
                    }
                }
            } }
        }
    }
}

fn bay(list: &DriveList, name: &str, serial: &str, marked: Option<&str>) -> Markup {
    let drive = list.drives.iter().find(|drive| drive.serial.as_deref() == Some(serial));
    html! {
        @if serial.is_empty() {
            td class="empty" { span class="hint" { (name) } " empty" }
        } @else if let Some(drive) = drive {
            @let grade = drive.verdict.grade;
            @let mark = if marked == Some(drive.id()) { " marked" } else { "" };
            td class={ (grade_class(grade)) (mark) } {
                span class="hint" { (name) } " "
                a href=(drive_path(drive.id())) { (drive.name) }
                br; (temperature(drive)) " · " (grade.as_str())
            }
        } @else {
            td class="failing" { span class="hint" { (name) } " absent" br; (serial) }
        }
    }
}
