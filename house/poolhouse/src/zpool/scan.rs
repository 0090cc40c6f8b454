//! The progress or result of a scan, in the words of zpool(8).

use std::io::{self, Write};

use engine::pool::{ScanKind, ScanStatus};
use units::human_bytes;

use crate::table::escape_control;
use crate::time::format_date;

/// The most damaged files shown.
const MAX_DAMAGED_SHOWN: usize = 100;

/// Prints it on lines of its own.
pub(super) fn print_scan(scan: &ScanStatus, out: &mut dyn Write) -> io::Result<()> {
    let word = if scan.scan == ScanKind::Scrub { "scrub" } else { "resilver" };
    let written = human_bytes(scan.written);
    let time = format_duration(scan.ended.saturating_sub(scan.started));
    let (errors, ended) = (scan.errors, format_date(scan.ended));
    match scan.state.as_str() {
        "scanning" => return print_progress(scan, word, out),
        "finished" if scan.scan == ScanKind::Scrub => writeln!(
            out,
            "  scan: scrub repaired {written} in {time} with {errors} errors on {ended}"
        )?,
        "finished" => {
            writeln!(
                out,
                "  scan: resilvered {written} in {time} with {errors} errors on {ended}"
            )?;
        }
        other => writeln!(out, "  scan: {word} {other} on {ended}")?,
    }
    Ok(())
}

/// Prints the damaged files that the scan found.
pub(super) fn print_damaged(scan: &ScanStatus, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\nerrors: {} blocks cannot be read any more; they are of:\n", scan.errors)?;
    for name in scan.damage.iter().take(MAX_DAMAGED_SHOWN) {
        writeln!(out, "        {}", escape_control(name))?;
    }
    if let Some(more) = scan.damage.len().checked_sub(MAX_DAMAGED_SHOWN).filter(|more| *more > 0) {
        writeln!(out, "        and {more} more (--json lists all)")?;
    }
    Ok(())
}

fn print_progress(scan: &ScanStatus, word: &str, out: &mut dyn Write) -> io::Result<()> {
    let seconds = scan.ended.saturating_sub(scan.started).max(1);
    let (done, total) = (scan.scanned.min(scan.total), scan.total);
    let rate = done / seconds;
    writeln!(out, "  scan: {word} in progress since {}", format_date(scan.started))?;
    writeln!(
        out,
        "\t{} / {} scanned at {}/s, {} read",
        human_bytes(done),
        human_bytes(total),
        human_bytes(rate),
        human_bytes(scan.read)
    )?;
    let hundredths = done.saturating_mul(10_000).checked_div(total).unwrap_or(0);
    let left = match total.saturating_sub(done).checked_div(rate) {
        Some(left) => format!("{} to go", format_duration(left)),
        None => "no estimated completion time".to_owned(),
    };
    let verb = if scan.scan == ScanKind::Scrub { "repaired" } else { "resilvered" };
    let (whole, part) = (hundredths / 100, hundredths % 100);
    writeln!(out, "\t{} {verb}, {whole}.{part:02}% done, {left}", human_bytes(scan.written))
}

/// Hours, minutes and seconds, and days before them if there are any.
pub(super) fn format_duration(seconds: u64) -> String {
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let time = format!("{:02}:{:02}:{:02}", hours % 24, minutes % 60, seconds % 60);
    match hours / 24 {
        0 => time,
        days => format!("{days} days {time}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample_scan(scan: ScanKind, state: &str) -> ScanStatus {
        ScanStatus {
            scan,
            state: state.to_owned(),
            started: 1_000_000_000,
            ended: 1_000_000_010,
            scanned: 1 << 30,
            total: 4 << 30,
            read: 1 << 29,
            written: 3 << 20,
            errors: 0,
            damage: Vec::new(),
        }
    }

    fn printed(scan: &ScanStatus) -> String {
        let mut out = Vec::new();
        print_scan(scan, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn progress_is_printed() {
        let text = printed(&sample_scan(ScanKind::Resilver, "scanning"));
        assert!(text.contains("resilver in progress since "), "{text}");
        assert!(text.contains("25.00% done, 00:00:30 to go"), "{text}");
        let none = ScanStatus { scanned: 0, ..sample_scan(ScanKind::Scrub, "scanning") };
        assert!(printed(&none).contains("0.00% done, no estimated completion time"));
    }

    #[test]
    fn result_is_printed() {
        let text = printed(&sample_scan(ScanKind::Resilver, "finished"));
        assert!(text.starts_with("  scan: resilvered 3M in 00:00:10 with 0 errors on "), "{text}");
        assert!(
            printed(&sample_scan(ScanKind::Scrub, "canceled"))
                .starts_with("  scan: scrub canceled on ")
        );
        assert_eq!(format_duration(90_061), "1 days 01:01:01");
    }
}
