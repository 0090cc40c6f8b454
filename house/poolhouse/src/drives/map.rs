//! `poolhouse drives map`.

use api::{Drive, DriveList};
use serde_json::json;

use super::{View, format_or_dash};
use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Outcome};
use crate::print;
use crate::table::escape_control;

/// Show the bays of the case
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Draw the map once: the rows from top to bottom, each from left to right, with the serial number of
the drive in each bay; \"\" is an empty bay. `drives learn` prompts for them.

Examples:
  poolhouse drives learn 4x6
  poolhouse config set bays.rows '[[\"WD-WX12\", \"ZL2A0PCB\"], [\"ZL2A0PCD\", \"\"]]'
  poolhouse drives map
  poolhouse drives map temp"
)]
pub(super) struct MapArgs {
    /// The value shown in the bays
    #[arg(value_enum, default_value_t)]
    view: View,
}

/// A bay as it is printed: two lines.
type Cell = [String; 2];

pub(super) fn run(args: &MapArgs, list: &DriveList, daemon: &DaemonArgs) -> CommandResult {
    if daemon.json {
        let bays = list.bays.bays().map(|(bay, serial)| {
            let drive = drive_in(list, serial).map(|drive| &drive.name);
            json!({ "bay": bay.to_string(), "serial": serial, "device": drive })
        });
        print::json(&bays.collect::<Vec<_>>())?;
        return Ok(Outcome::Complete);
    }
    if list.bays.is_empty() {
        let serials: Vec<_> = list.drives.iter().filter_map(|drive| drive.serial.clone()).collect();
        print::line("no bays are drawn yet; draw them with: poolhouse drives learn ROWSxCOLUMNS")?;
        print::line("or, with all drives in one row:")?;
        print::line(&format!("  poolhouse config set bays.rows '[{}]'", json!(serials)))?;
        return Ok(Outcome::Complete);
    }
    let rows = list.bays.rows.iter().map(|row| {
        row.iter().map(|serial| cell(list, serial.trim(), args.view)).collect::<Vec<_>>()
    });
    for line in draw(&rows.collect::<Vec<_>>()) {
        print::line(&line)?;
    }
    Ok(Outcome::Complete)
}

fn drive_in<'a>(list: &'a DriveList, serial: &str) -> Option<&'a Drive> {
    list.drives.iter().find(|drive| drive.serial.as_deref() == Some(serial))
}

fn cell(list: &DriveList, serial: &str, view: View) -> Cell {
    if serial.is_empty() {
        return ["empty".to_owned(), String::new()];
    }
    let Some(drive) = drive_in(list, serial) else {
        return ["absent".to_owned(), escape_control(serial)];
    };
    let place = drive.place.as_ref().map(|place| format!("{}/{}", place.pool, place.vdev));
    let first = match view {
        View::Disk => format!("{} {}", drive.name, drive.verdict.grade.as_str()),
        View::Temp => {
            let asleep = if drive.is_asleep { " asleep" } else { "" };
            let celsius = drive.temperature.map(|celsius| format!("{celsius} °C"));
            format!("{}{asleep}", format_or_dash(celsius))
        }
        View::Serial => serial.to_owned(),
        View::Wwn => format_or_dash(drive.wwn.as_ref()),
    };
    let second = match view {
        View::Disk => format_or_dash(place),
        View::Temp | View::Serial | View::Wwn => drive.name.clone(),
    };
    [escape_control(&first), escape_control(&second)]
}

/// The rows as a grid with borders; all cells are as wide as the widest.
fn draw(rows: &[Vec<Cell>]) -> Vec<String> {
    let texts = rows.iter().flatten().flatten();
    let width = texts.map(|text| text.chars().count()).max().unwrap_or(0);
    let border = |count: usize| format!("+{}", format!("{}+", "-".repeat(width + 2)).repeat(count));
    let mut lines = Vec::new();
    for row in rows {
        lines.push(border(row.len()));
        for line in 0..2 {
            let texts = row.iter().filter_map(|cell| cell.get(line));
            let padded = texts.map(|text| format!(" {text:width$} |"));
            lines.push(format!("|{}", padded.collect::<String>()));
        }
        lines.push(border(row.len()));
    }
    lines.dedup();
    lines
}

#[cfg(test)]
mod tests {
    use api::{Drive, DriveList};
    use health::BayMap;

    use super::{View, cell, draw};

    #[test]
    fn bays_are_drawn_as_a_grid() {
        let drive = Drive {
            name: "sda".to_owned(),
            serial: Some("S1".to_owned()),
            temperature: Some(31),
            ..Drive::default()
        };
        let bays = BayMap { rows: vec![vec!["S1".to_owned(), String::new(), "S2".to_owned()]] };
        let list = DriveList { drives: vec![drive], bays, ..DriveList::default() };
        let row = |view| {
            vec![["S1", "", "S2"].into_iter().map(|it| cell(&list, it, view)).collect::<Vec<_>>()]
        };
        assert_eq!(
            draw(&row(View::Temp)),
            [
                "+--------+--------+--------+",
                "| 31 °C  | empty  | absent |",
                "| sda    |        | S2     |",
                "+--------+--------+--------+"
            ]
        );
        assert!(draw(&row(View::Disk))[1].starts_with("| sda ok | empty "));
    }
}
