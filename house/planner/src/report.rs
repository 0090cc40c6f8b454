//! A plan as text for a terminal: one layout in full, several as a table.

use std::fmt::Write;

use units::human_bytes;

use crate::capacity::{ratio, to_f64};
use crate::plan::{LayoutPlan, Plan};

const TB: u64 = 1_000_000_000_000;

/// The plan as text.
pub fn format_plan(plan: &Plan) -> String {
    let mut out = String::new();
    match plan.layouts.as_slice() {
        [one] => write_layout(&mut out, one),
        several => write_table(&mut out, several),
    }
    out.push_str("\nSizes are exact. The rest is estimated, supposing:\n");
    for assumption in &plan.assumptions {
        out.push_str(&wrap_list_item(assumption));
    }
    out
}

/// A probability, formatted.
pub(crate) fn format_chance(part: f64) -> String {
    if part >= 0.1 {
        format!("{:.0} %", part * 100.0)
    } else if part >= 1e-4 {
        format!("{:.2} %", part * 100.0)
    } else if part < 1e-12 {
        "< 1e-12".to_owned()
    } else {
        format!("{part:.0e}")
    }
}

/// Bytes a second.
pub(crate) fn format_rate(bytes: f64) -> String {
    if bytes >= 1e10 {
        format!("{:.1} GB/s", bytes / 1e9)
    } else {
        format!("{:.0} MB/s", bytes / 1e6)
    }
}

/// Hours, or days.
pub(crate) fn format_duration(hours: f64) -> String {
    match hours {
        h if h <= 0.0 => "-".to_owned(),
        h if h < 48.0 => format!("{h:.1} h"),
        h => format!("{:.1} d", h / 24.0),
    }
}

/// Bytes in decimal TB.
pub(crate) fn format_terabytes(bytes: u64) -> String {
    format!("{:.2} TB", ratio(bytes, TB))
}

/// A part of all in percent.
pub(crate) fn format_percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

fn write_layout(out: &mut String, plan: &LayoutPlan) {
    let mut line = |name: &str, value: String| {
        let _ = writeln!(out, "{name:<22}{value}");
    };
    line("layout", plan.layout.clone());
    line(
        "drives",
        format!("{} in all ({})", format_terabytes(plan.raw_bytes), human_bytes(plan.raw_bytes)),
    );
    line(
        "zpool list shows",
        format!("{} ({} bytes)", human_bytes(plan.size_bytes), plan.size_bytes),
    );
    line("zfs list shows", format!("{} ({} bytes)", plan.usable_shown, plan.usable_bytes));
    line("df shows", format!("{} or a little less", human_bytes(plan.df_bytes)));
    line("advertised net", format_terabytes(plan.net_bytes));
    line("usable of raw", format_percent(plan.efficiency));
    line("your records fit", format!("{}, not compressed", human_bytes(plan.mix_fits_bytes)));
    out.push_str("\nwhere the bytes go (parity and padding for blocks of 128K)\n");
    for (name, bytes) in plan.account.parts() {
        if bytes > 0 {
            let part = ratio(bytes, plan.raw_bytes);
            let _ =
                writeln!(out, "  {name:<12}{:>8}  {:>7}", human_bytes(bytes), format_percent(part));
        }
    }
    write_vdevs(out, plan);
    write_records(out, plan);
    write_estimates(out, plan);
}

fn write_vdevs(out: &mut String, plan: &LayoutPlan) {
    let _ = writeln!(out, "\n  {:<22}{:>18}{:>12}{:>8}", "vdev", "asize", "metaslabs", "each");
    // the same ones in a row are one line
    for same in plan.vdevs.chunk_by(|a, b| (&a.layout, a.asize) == (&b.layout, b.asize)) {
        let Some(vdev) = same.first() else { continue };
        let name = match same.len() {
            1 => vdev.layout.clone(),
            count => format!("{count} x {}", vdev.layout),
        };
        let each = human_bytes(1_u64.checked_shl(vdev.metaslab_shift).unwrap_or(0));
        let _ = writeln!(out, "  {name:<22}{:>18}{:>12}{each:>8}", vdev.asize, vdev.metaslabs);
    }
}

fn write_records(out: &mut String, plan: &LayoutPlan) {
    let _ = writeln!(
        out,
        "\n  {:<10}{:>8}{:>9}{:>9}{:>9}",
        "records", "data", "parity", "padding", "fits"
    );
    for record in &plan.records {
        let _ = writeln!(
            out,
            "  {:<10}{:>8}{:>9}{:>9}{:>9}",
            human_bytes(record.record_bytes),
            format_percent(record.efficiency),
            format_percent(record.parity),
            format_percent(record.padding),
            human_bytes(record.fits_bytes)
        );
    }
}

fn write_estimates(out: &mut String, plan: &LayoutPlan) {
    let (speed, safety, cost) = (&plan.speed, &plan.safety, &plan.cost);
    out.push('\n');
    let mut line = |name: &str, value: String| {
        let _ = writeln!(out, "{name:<22}{value}");
    };
    let (read, write) = (format_rate(speed.sequential_read), format_rate(speed.sequential_write));
    line("sequential", format!("read {read}, write {write}"));
    let (reads, writes) = (speed.random_reads, speed.random_writes);
    line("random records", format!("read {reads:.0}/s, write {writes:.0}/s"));
    line("resilver", format_duration(speed.resilver_hours));
    line("drives that may fail", safety.tolerance.to_string());
    let pair = |one: f64, five: f64| {
        format!("{} in a year, {} in 5", format_chance(one), format_chance(five))
    };
    line("chance: lost", pair(safety.lost_1_year, safety.lost_5_years));
    line("chance: damaged", pair(safety.damaged_1_year, safety.damaged_5_years));
    if let Some(played) = &plan.simulation {
        let [low, high] = played.lost_5_years_between.map(format_chance);
        let seen = |part: f64| format!("{:.0}", part * to_f64(played.plays));
        let (lost, damaged) = (seen(played.lost_5_years), seen(played.damaged_5_years));
        let odds = format!("{lost} times of {} in 5 years", played.plays);
        line("played: lost", format!("{odds} (a chance between {low} and {high})"));
        line("played: damaged", format!("{damaged} times"));
    }
    if let (Some(price), Some(each)) = (cost.price, cost.price_per_usable_tib) {
        line("price", format!("{price:.2} euros, {each:.2} for each usable TiB"));
    }
    line("power", format!("{:.0} W, {:.0} euros a year", cost.watts, cost.power_per_year));
    if plan.needs_force {
        line("note", "zpool create wants -f: vdevs differ, or drives within one".to_owned());
    }
}

fn write_table(out: &mut String, plans: &[LayoutPlan]) {
    let priced = plans.iter().any(|plan| plan.cost.price.is_some());
    let names: Vec<String> = plans.iter().map(|plan| abbreviate_layout(&plan.layout)).collect();
    let width = names.iter().map(String::len).max().unwrap_or(0).max("LAYOUT".len());
    let _ = write!(
        out,
        "  {:width$} {:>7} {:>4} {:>4} {:>8} {:>8} {:>6} {:>7} {:>8}",
        "LAYOUT", "USABLE", "RAW", "FAIL", "LOST 5Y", "DAMAGED", "MB/s", "RANDOM", "RESILVER"
    );
    out.push_str(if priced { "  PER TiB\n" } else { "\n" });
    for (plan, name) in plans.iter().zip(&names) {
        let _ = write!(
            out,
            "{} {name:width$} {:>7} {:>3.0}% {:>4} {:>8} {:>8} {:>6.0} {:>7.0} {:>8}",
            if plan.pareto_best { '*' } else { ' ' },
            plan.usable_shown,
            plan.efficiency * 100.0,
            plan.safety.tolerance,
            format_chance(plan.safety.lost_5_years),
            format_chance(plan.safety.damaged_5_years),
            plan.speed.sequential_read / 1e6,
            plan.speed.random_reads,
            format_duration(plan.speed.resilver_hours),
        );
        match plan.cost.price_per_usable_tib {
            Some(price) => {
                let _ = writeln!(out, " {price:>8.2}");
            }
            None => out.push('\n'),
        }
    }
    out.push_str(
        "\n* no other is better in room, safety and random speed at once.\nRAW: usable part of all \
         bytes.  FAIL: drives that may fail at once.  MB/s: sequential reads.\nRANDOM: records \
         read a second.  PER TiB: euros for each usable TiB.\n",
    );
}

/// A layout with the same groups in a row counted: `3 x raidz2 8`.
pub(crate) fn abbreviate_layout(layout: &str) -> String {
    let mut groups: Vec<(String, usize)> = Vec::new();
    let mut words = layout.split(' ').peekable();
    while let Some(word) = words.next() {
        let group = match words.next_if(|next| next.bytes().all(|byte| byte.is_ascii_digit())) {
            Some(count) => format!("{word} {count}"),
            None => word.to_owned(),
        };
        match groups.last_mut() {
            Some((last, count)) if *last == group => *count += 1,
            _ => groups.push((group, 1)),
        }
    }
    let one = |(group, count): &(String, usize)| match count {
        1 => group.clone(),
        _ => format!("{count} x {group}"),
    };
    groups.iter().map(one).collect::<Vec<_>>().join(" + ")
}

/// A sentence in lines of a terminal, as a list's item.
fn wrap_list_item(text: &str) -> String {
    let mut lines = String::from(" -");
    let mut column = 2;
    for word in text.split_whitespace() {
        if column + 1 + word.len() > 80 {
            lines.push_str("\n  ");
            column = 2;
        }
        lines.push(' ');
        lines.push_str(word);
        column += 1 + word.len();
    }
    lines.push('\n');
    lines
}

#[cfg(test)]
mod tests {
    use super::{abbreviate_layout, format_chance, wrap_list_item};

    #[test]
    fn repeated_groups_are_counted() {
        assert_eq!(
            abbreviate_layout("mirror 2 mirror 2 mirror 3 spare 1"),
            "2 x mirror 2 + mirror 3 + spare 1"
        );
        assert_eq!(abbreviate_layout("draid2:8d:24c:1s draid2:8d:24c:1s"), "2 x draid2:8d:24c:1s");
    }

    #[test]
    fn chances_are_formatted_by_magnitude() {
        assert_eq!(format_chance(0.256), "26 %");
        assert_eq!(format_chance(0.00123), "0.12 %");
        assert_eq!(format_chance(3.2e-7), "3e-7");
        assert_eq!(format_chance(0.0), "< 1e-12");
    }

    #[test]
    fn long_sentences_wrap_at_80_columns() {
        let text = wrap_list_item(&"word ".repeat(60));
        assert!(text.lines().all(|line| line.len() <= 80));
    }
}
