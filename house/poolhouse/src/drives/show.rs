//! `poolhouse drives show`.

use std::io;

use api::{Drive, DriveDetails, GetDrive};
use health::Sample;

use super::{format_or_dash, format_size};
use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Outcome};
use crate::table::{Align, Table};
use crate::{print, time};

/// The samples that are shown; `--json` has all.
const SAMPLES: usize = 12;

pub(super) fn run(name: &str, daemon: &DaemonArgs) -> CommandResult {
    let details = daemon.request(&GetDrive { drive: name.to_owned() })?;
    if daemon.json {
        print::json(&details)?;
        return Ok(Outcome::Complete);
    }
    let DriveDetails { drive, samples, burn_in } = &details;
    print_facts(drive)?;
    print_findings(drive)?;
    print_attributes(drive)?;
    print_samples(samples)?;
    if let Some(report) = burn_in {
        print::line("\nburn-in:")?;
        super::burn_in::print_report(report)?;
    }
    Ok(Outcome::Complete)
}

fn print_facts(drive: &Drive) -> io::Result<()> {
    let place = drive.place.as_ref().map(|place| {
        format!(
            "{}/{}, {}, {} read, {} write, {} checksum errors",
            place.pool,
            place.vdev,
            place.state,
            place.read_errors,
            place.write_errors,
            place.checksum_errors
        )
    });
    let test = drive.self_test.as_ref().map(|test| {
        let at = test.hours.map_or_else(String::new, |hours| format!(" at {hours} hours"));
        format!("{}{at}: {}", test.kind, test.result)
    });
    let read_at = drive.read_at.map(|read_at| {
        let asleep = if drive.is_asleep { "; it sleeps since then" } else { "" };
        format!("{}{asleep}", time::format_local(read_at))
    });
    let mut table = Table::new([Align::Right, Align::Left]);
    for (name, value) in [
        ("drive:", Some(format!("{} ({})", drive.name, drive.path.display()))),
        ("model:", drive.model.clone()),
        ("serial:", drive.serial.clone()),
        ("wwn:", drive.wwn.clone()),
        ("firmware:", drive.firmware.clone()),
        ("size:", Some(format!("{}, {}", format_size(drive.size), drive.kind))),
        ("bay:", drive.bay.clone()),
        ("pool:", place),
        ("temperature:", drive.temperature.map(|celsius| format!("{celsius} °C"))),
        ("hours:", drive.power_on_hours.map(|hours| hours.to_string())),
        ("self-test:", test),
        ("read:", read_at),
        ("health:", Some(drive.verdict.grade.as_str().to_owned())),
        ("", Some(drive.verdict.sentence.clone())),
    ] {
        table.add_row([name.to_owned(), format_or_dash(value)]);
    }
    table.print(&mut io::stdout().lock())
}

fn print_findings(drive: &Drive) -> io::Result<()> {
    if drive.verdict.findings.is_empty() {
        return Ok(());
    }
    print::line("\nfindings:")?;
    let mut table = Table::new([Align::Left, Align::Left]).with_indent(2);
    for finding in &drive.verdict.findings {
        let grade = if finding.is_noted { "noted" } else { finding.grade.as_str() };
        table.add_row([grade.to_owned(), format!("{} {}", finding.sentence, finding.action)]);
    }
    table.print(&mut io::stdout().lock())
}

fn print_attributes(drive: &Drive) -> io::Result<()> {
    if drive.attributes.is_empty() {
        return Ok(());
    }
    print::line("\nattributes:")?;
    let mut table = Table::with_header(&[
        ("ID", Align::Right),
        ("NAME", Align::Left),
        ("VALUE", Align::Right),
        ("WORST", Align::Right),
        ("THRESH", Align::Right),
        ("RAW", Align::Left),
    ])
    .with_indent(2);
    for attribute in &drive.attributes {
        let failing = if attribute.is_failing { "  FAILING NOW" } else { "" };
        table.add_row([
            attribute.id.to_string(),
            attribute.name.clone(),
            attribute.value.to_string(),
            attribute.worst.to_string(),
            attribute.threshold.to_string(),
            format!("{}{failing}", attribute.raw),
        ]);
    }
    table.print(&mut io::stdout().lock())
}

/// Prints the latest samples with the counters that are not 0.
fn print_samples(samples: &[Sample]) -> io::Result<()> {
    if samples.is_empty() {
        return Ok(());
    }
    print::line("\nhistory:")?;
    let mut table = Table::new([Align::Left, Align::Right, Align::Left]).with_indent(2);
    let first = samples.len() - samples.len().min(SAMPLES);
    for sample in samples.iter().skip(first) {
        let counters = sample.counters.iter().filter(|(_, value)| **value > 0);
        let counters = counters.map(|(counter, value)| format!("{}={value}", counter.key()));
        table.add_row([
            time::format_minutes(sample.time),
            format_or_dash(sample.temperature.map(|celsius| format!("{celsius} °C"))),
            counters.collect::<Vec<_>>().join(" "),
        ]);
    }
    table.print(&mut io::stdout().lock())
}
