//! `poolhouse drives list`.

use std::io;

use api::{Drive, DriveList};
use health::Grade;

use super::{format_or_dash, format_size};
use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Outcome};
use crate::print;
use crate::table::{Align, Table};

pub(super) fn run(list: &DriveList, daemon: &DaemonArgs) -> CommandResult {
    let is_failing = list.drives.iter().any(|drive| drive.verdict.grade == Grade::Failing);
    if daemon.json {
        print::json(list)?;
        return Ok(Outcome::complete_unless(is_failing));
    }
    if list.drives.is_empty() {
        print::line(
            "no drives: /sys/block lists none, and config.toml names none ([[health.drives]])",
        )?;
        return Ok(Outcome::Complete);
    }
    let mut table = Table::with_header(&[
        ("BAY", Align::Left),
        ("DEVICE", Align::Left),
        ("SERIAL", Align::Left),
        ("MODEL", Align::Left),
        ("SIZE", Align::Right),
        ("TEMP", Align::Right),
        ("HOURS", Align::Right),
        ("POOL", Align::Left),
        ("HEALTH", Align::Left),
    ]);
    for drive in &list.drives {
        table.add_row(row(drive));
    }
    table.print(&mut io::stdout().lock())?;
    print::line(&format!("\n{}", list.power.sentence()))?;
    let mut is_first = true;
    for drive in list.drives.iter().filter(|drive| drive.verdict.grade != Grade::Ok) {
        if std::mem::take(&mut is_first) {
            print::line("")?;
        }
        let sentence = crate::table::escape_control(&drive.verdict.sentence);
        print::line(&format!("{}: {sentence}", drive.name))?;
    }
    Ok(Outcome::complete_unless(is_failing))
}

fn row(drive: &Drive) -> [String; 9] {
    let place = drive.place.as_ref().map(|place| format!("{}/{}", place.pool, place.vdev));
    let health = match drive.verdict.grade {
        grade if drive.is_asleep => format!("{} (asleep)", grade.as_str()),
        grade => grade.as_str().to_owned(),
    };
    [
        format_or_dash(drive.bay.as_ref()),
        drive.name.clone(),
        format_or_dash(drive.serial.as_ref()),
        format_or_dash(drive.model.as_ref()),
        format_size(drive.size),
        format_or_dash(drive.temperature.map(|celsius| format!("{celsius} °C"))),
        format_or_dash(drive.power_on_hours),
        format_or_dash(place),
        health,
    ]
}
