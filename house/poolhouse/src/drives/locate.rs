//! `poolhouse drives locate` and `poolhouse drives learn`: finding drives in the case.

use std::io::{self, BufRead, Write};

use api::{Drive, DriveList, LocateDrive, LocateMethod, SetConfig};
use health::BayMap;
use serde_json::json;

use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Failure, Outcome, run_for_each};
use crate::print;

/// The seconds for which a light blinks at each prompt.
const LEARN_SECONDS: u64 = 600;
/// The rows and columns of a map, at most.
const MAX_SIDE: usize = 64;

/// Let the lights of drives blink
#[derive(clap::Args, Debug)]
#[command(
    after_help = "If the enclosure has a locate light for the slot, that is switched on. Otherwise the drive is read in
pulses of a second, so that its activity light blinks; that wakes the drive.

Examples:
  poolhouse drives locate sda
  poolhouse drives locate --seconds 300 WD-WCC7K1234567
  poolhouse drives locate --off sda"
)]
pub(super) struct LocateArgs {
    /// End it
    #[arg(long, conflicts_with = "seconds")]
    off: bool,
    /// How long it blinks
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// The drives
    #[arg(value_name = "DRIVE", required = true)]
    drives: Vec<String>,
}

/// Draw the map of bays: one drive after the other blinks, and you enter its bay
#[derive(clap::Args, Debug)]
#[command(after_help = "Drives in the map are skipped. The map is saved after each answer.

Examples:
  poolhouse drives learn 4x6      four rows of six bays")]
pub(super) struct LearnArgs {
    /// The rows and columns of the case
    #[arg(value_name = "ROWSxCOLUMNS", value_parser = parse_size)]
    size: (usize, usize),
}

/// The rows and columns of "4x6".
fn parse_size(text: &str) -> Result<(usize, usize), String> {
    let side = |text: &str| text.parse().ok().filter(|side| (1..=MAX_SIDE).contains(side));
    let sides =
        text.split_once('x').and_then(|(rows, columns)| Some((side(rows)?, side(columns)?)));
    sides.ok_or_else(|| format!("rows and columns are 1 to {MAX_SIDE}, as in 4x6"))
}

pub(super) fn run(args: &LocateArgs, daemon: &DaemonArgs) -> CommandResult {
    run_for_each(&args.drives, |drive| {
        let seconds = if args.off { 0 } else { args.seconds };
        let method = daemon.request(&LocateDrive { drive: drive.clone(), seconds })?;
        if daemon.json {
            print::json(&json!({ "drive": drive, "method": method }))?;
            return Ok(Outcome::Complete);
        }
        print::line(&match method {
            LocateMethod::SlotLight => format!("{drive}: the light of its slot is on"),
            LocateMethod::ActivityLight => {
                format!("{drive}: its activity light blinks, a second on and a second off")
            }
            LocateMethod::Off => format!("{drive}: off"),
        })?;
        Ok(Outcome::Complete)
    })
}

/// Prompts for the bay of each drive without one.
pub(super) fn learn(args: &LearnArgs, list: &DriveList, daemon: &DaemonArgs) -> CommandResult {
    let (rows, columns) = args.size;
    let mut map = enlarge(&list.bays, rows, columns);
    let unplaced = list.drives.iter().filter(|drive| drive.bay.is_none());
    let unplaced: Vec<_> = unplaced.filter(|drive| drive.serial.is_some()).collect();
    if unplaced.is_empty() {
        print::line("every drive has its bay; see: poolhouse drives map")?;
    }
    let mut input = io::stdin().lock();
    for drive in unplaced {
        let off = LocateDrive { drive: drive.id().to_owned(), seconds: 0 };
        daemon.request(&LocateDrive { seconds: LEARN_SECONDS, ..off.clone() })?;
        let answer = ask_bay(drive, &map, &mut input);
        daemon.request(&off)?;
        match answer? {
            BayReply::Bay(row, column) => {
                if let Some(bay) = map.rows.get_mut(row).and_then(|row| row.get_mut(column)) {
                    bay.clone_from(&drive.id().to_owned());
                }
                save(&map, daemon)?;
            }
            BayReply::Skip => {}
            BayReply::End => break,
        }
    }
    Ok(Outcome::Complete)
}

/// A reply to the prompt.
enum BayReply {
    /// Row and column, counted from 0.
    Bay(usize, usize),
    /// Not this drive.
    Skip,
    /// The input ended.
    End,
}

fn ask_bay(drive: &Drive, map: &BayMap, input: &mut impl BufRead) -> Result<BayReply, Failure> {
    let model = drive.model.as_deref().unwrap_or("unknown model");
    loop {
        let mut out = io::stdout().lock();
        write!(out, "{} ({model}, {}) blinks. ROW-COLUMN (empty: skip): ", drive.name, drive.id())?;
        out.flush()?;
        let mut line = String::new();
        if input.read_line(&mut line)? == 0 {
            return Ok(BayReply::End);
        }
        let line = line.trim();
        if line.is_empty() {
            return Ok(BayReply::Skip);
        }
        match free_bay(line, map) {
            Ok((row, column)) => return Ok(BayReply::Bay(row, column)),
            Err(why) => print::error(&why),
        }
    }
}

/// The row and column of "2-3", counted from 0, if that bay is free.
fn free_bay(text: &str, map: &BayMap) -> Result<(usize, usize), String> {
    let number = |text: &str| text.trim().parse::<usize>().ok()?.checked_sub(1);
    let bay = text.split_once('-').and_then(|(row, column)| Some((number(row)?, number(column)?)));
    let (row, column) = bay.ok_or("a bay is ROW-COLUMN, as 2-3, counted from the upper left")?;
    match map.rows.get(row).and_then(|row| row.get(column)) {
        None => Err(format!("bay {text} does not exist")),
        Some(serial) if !serial.is_empty() => Err(format!("bay {text} has the drive {serial}")),
        Some(_) => Ok((row, column)),
    }
}

/// The map with at least these numbers of rows and columns.
fn enlarge(map: &BayMap, rows: usize, columns: usize) -> BayMap {
    let mut rows_of = map.rows.clone();
    rows_of.resize(rows_of.len().max(rows), Vec::new());
    for row in &mut rows_of {
        row.resize(row.len().max(columns), String::new());
    }
    BayMap { rows: rows_of }
}

fn save(map: &BayMap, daemon: &DaemonArgs) -> Result<(), Failure> {
    daemon.request(&SetConfig {
        section: "bays".to_owned(),
        field: "rows".to_owned(),
        value: Some(json!(map.rows).to_string()),
    })
}

#[cfg(test)]
mod tests {
    use health::BayMap;

    use super::{enlarge, free_bay, parse_size};

    #[test]
    fn answers_name_free_bays() {
        let map = BayMap { rows: vec![vec!["A".to_owned()]] };
        let map = enlarge(&map, 2, 3);
        assert_eq!(map.rows, [["A", "", ""], ["", "", ""]]);
        assert_eq!(free_bay("2-3", &map), Ok((1, 2)));
        for wrong in ["1-1", "3-1", "0-1", "1-4", "x", "1", "-1-2", ""] {
            assert!(free_bay(wrong, &map).is_err(), "{wrong}");
        }
        assert_eq!(enlarge(&map, 1, 1).rows.len(), 2);
    }

    #[test]
    fn sizes_are_rows_and_columns() {
        assert_eq!(parse_size("4x6"), Ok((4, 6)));
        for wrong in ["4", "0x6", "4x65", "x", "4x6x2", ""] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }
}
