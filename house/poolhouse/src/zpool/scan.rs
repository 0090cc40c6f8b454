//! The `scan:` lines of `zpool status`, and the damaged files, in the words of zpool(8).

use std::io::{self, Write};

use engine::pool::{PoolStatus, ScanKind, ScanStatus};
use units::human_space;

use crate::table::escape_control;
use crate::time::format_date;

/// The most damaged files shown.
const MAX_DAMAGED_SHOWN: usize = 100;
/// Bytes a second below which a time left would be wrong.
const MIN_RATE_FOR_ESTIMATE: u64 = 10 << 20;

/// Prints the lines of a scan.
pub(super) fn print_scan(scan: &ScanStatus, out: &mut dyn Write) -> io::Result<()> {
    let vdev = scan.rebuild.as_ref().map_or_else(String::new, |vdev| format!(" ({vdev})"));
    let word = &format!("{}{vdev}", scan_word(scan.scan));
    let written = human_space(scan.written);
    let time = format_duration(scan.ended.saturating_sub(scan.started));
    let (errors, ended) = (scan.errors, format_date(scan.ended));
    match (scan.state.as_str(), scan.scan) {
        ("scanning" | "paused", ScanKind::ErrorScrub) => print_error_scrub(scan, out),
        ("scanning" | "paused", _) => print_progress(scan, word, out),
        ("finished", ScanKind::Scrub) => {
            let line =
                format!("scrub repaired {written} in {time} with {errors} errors on {ended}");
            writeln!(out, "  scan: {line}")
        }
        ("finished", ScanKind::Resilver) => {
            let line = format!("{written} in {time} with {errors} errors on {ended}");
            writeln!(out, "  scan: resilvered{vdev} {line}")
        }
        ("finished", ScanKind::ErrorScrub) => {
            writeln!(out, " scrub: scrubbed {} error blocks in {time} on {ended}", scan.scanned)
        }
        (other, _) => writeln!(out, "{} {word} {other} on {ended}", heading(scan.scan)),
    }
}

/// The heading of the first line; error scrubs have one of their own.
const fn heading(scan: ScanKind) -> &'static str {
    match scan {
        ScanKind::Scrub | ScanKind::Resilver => "  scan:",
        ScanKind::ErrorScrub => " scrub:",
    }
}

const fn scan_word(scan: ScanKind) -> &'static str {
    match scan {
        ScanKind::Scrub => "scrub",
        ScanKind::Resilver => "resilver",
        ScanKind::ErrorScrub => "error scrub",
    }
}

/// Prints the files with damage that is known.
pub(super) fn print_damaged(pool: &PoolStatus, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\nerrors: Permanent errors have been detected in the following files:\n")?;
    for name in pool.data_errors.iter().take(MAX_DAMAGED_SHOWN) {
        writeln!(out, "        {}", escape_control(name))?;
    }
    let more = pool.data_errors.len().checked_sub(MAX_DAMAGED_SHOWN);
    if let Some(more) = more.filter(|more| *more > 0) {
        writeln!(out, "        and {more} more (--json tells all)")?;
    }
    Ok(())
}

/// The line with the time of the beginning, or of the pause.
fn print_start(scan: &ScanStatus, word: &str, out: &mut dyn Write) -> io::Result<()> {
    let (started, heading) = (format_date(scan.started), heading(scan.scan));
    if scan.is_scanning() {
        return writeln!(out, "{heading} {word} in progress since {started}");
    }
    writeln!(out, "{heading} {word} paused since {}", format_date(scan.paused))?;
    writeln!(out, "\t{word} started on {started}")
}

fn print_progress(scan: &ScanStatus, word: &str, out: &mut dyn Write) -> io::Result<()> {
    print_start(scan, word, out)?;
    let total = human_space(scan.total);
    let rate = |rate: u64| match rate {
        rate if rate > 0 && scan.is_scanning() => format!(" at {}/s", human_space(rate)),
        _ => String::new(),
    };
    writeln!(
        out,
        "\t{} / {total} scanned{}, {} / {total} issued{}",
        human_space(scan.scanned),
        rate(scan.scan_rate),
        human_space(scan.issued),
        rate(scan.issue_rate)
    )?;
    let verb = if scan.scan == ScanKind::Scrub { "repaired" } else { "resilvered" };
    let done = percent(scan.issued, scan.total);
    write!(out, "\t{} {verb}, {done} done", human_space(scan.written))?;
    if !scan.is_scanning() {
        return writeln!(out);
    }
    let left = scan.progress().and_then(|progress| progress.seconds_left);
    let is_known = scan.issue_rate >= MIN_RATE_FOR_ESTIMATE && scan.issued <= scan.total;
    match left.filter(|_| is_known) {
        Some(left) => writeln!(out, ", {} to go", format_duration(left)),
        None => writeln!(out, ", no estimated completion time"),
    }
}

fn print_error_scrub(scan: &ScanStatus, out: &mut dyn Write) -> io::Result<()> {
    print_start(scan, "error scrub", out)?;
    let (done, blocks) = (percent(scan.scanned, scan.total), scan.scanned);
    writeln!(out, "\t{done} done, issued I/O for {blocks} error blocks")
}

/// With two digits behind the point.
fn percent(done: u64, total: u64) -> String {
    let hundredths = u128::from(done) * 10_000;
    let hundredths = hundredths.checked_div(u128::from(total)).unwrap_or(0);
    format!("{}.{:02}%", hundredths / 100, hundredths % 100)
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
            paused: if state == "paused" { 1_000_000_005 } else { 0 },
            scanned: 1 << 30,
            issued: 1 << 30,
            total: 4 << 30,
            scan_rate: 200 << 20,
            issue_rate: 100 << 20,
            read: 1 << 29,
            written: 3 << 20,
            errors: 0,
            damage: Vec::new(),
            rebuild: None,
        }
    }

    fn printed(scan: &ScanStatus) -> String {
        let mut out = Vec::new();
        print_scan(scan, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn sequential_rebuild_names_its_vdev() {
        let rebuild = |state| ScanStatus {
            rebuild: Some("mirror-0".to_owned()),
            ..sample_scan(ScanKind::Resilver, state)
        };
        let text = printed(&rebuild("scanning"));
        assert!(text.contains("  scan: resilver (mirror-0) in progress since "), "{text}");
        let text = printed(&rebuild("finished"));
        let line = "  scan: resilvered (mirror-0) 3M in 00:00:10 with 0 errors on ";
        assert!(text.contains(line), "{text}");
        let text = printed(&rebuild("canceled"));
        assert!(text.contains("  scan: resilver (mirror-0) canceled on "), "{text}");
    }

    #[test]
    fn running_scan_has_lines_of_zpool() {
        let text = printed(&sample_scan(ScanKind::Resilver, "scanning"));
        assert!(text.contains("resilver in progress since "), "{text}");
        assert!(text.contains("\t1G / 4G scanned at 200M/s, 1G / 4G issued at 100M/s\n"), "{text}");
        assert!(text.contains("\t3M resilvered, 25.00% done, 00:00:30 to go\n"), "{text}");
        let slow = ScanStatus { issue_rate: 9 << 20, ..sample_scan(ScanKind::Scrub, "scanning") };
        assert!(printed(&slow).contains("25.00% done, no estimated completion time"));
        let paused = printed(&sample_scan(ScanKind::Scrub, "paused"));
        assert!(paused.contains("  scan: scrub paused since "), "{paused}");
        assert!(paused.contains("\tscrub started on "), "{paused}");
        assert!(paused.contains("1G / 4G scanned, 1G / 4G issued\n"), "{paused}");
        assert!(paused.ends_with("\t3M repaired, 25.00% done\n"), "{paused}");
    }

    #[test]
    fn error_scrub_has_lines_of_zpool() {
        let blocks =
            |state| ScanStatus { scanned: 1, total: 4, ..sample_scan(ScanKind::ErrorScrub, state) };
        let text = printed(&blocks("scanning"));
        assert!(text.starts_with(" scrub: error scrub in progress since "), "{text}");
        assert!(text.contains("\t25.00% done, issued I/O for 1 error blocks\n"), "{text}");
        let text = printed(&blocks("finished"));
        assert!(text.contains(" scrub: scrubbed 1 error blocks in 00:00:10 on "), "{text}");
        let text = printed(&blocks("canceled"));
        assert!(text.contains(" scrub: error scrub canceled on "), "{text}");
    }

    #[test]
    fn ended_scan_has_lines_of_zpool() {
        let text = printed(&sample_scan(ScanKind::Resilver, "finished"));
        assert!(text.starts_with("  scan: resilvered 3M in 00:00:10 with 0 errors on "), "{text}");
        assert!(
            printed(&sample_scan(ScanKind::Scrub, "canceled"))
                .starts_with("  scan: scrub canceled on ")
        );
        assert_eq!(format_duration(90_061), "1 days 01:01:01");
    }
}
