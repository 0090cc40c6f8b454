//! Findings about drives: a slow drive, a slow port, a shared bus.

use super::disk_runner::{DiskRates, mean};
use super::drives::Drive;
use crate::bench_result::Unit;
use crate::drive_info::DriveInfo;
use crate::formatting::{format_value, percent};
use crate::run_quality::join_names;

/// Slower than its like by more than chance or age.
const SLOW_RATIO: f64 = 0.75;
/// A disk turns as fast at its inner end, where a track is about half as long.
const FLAT_RATIO: f64 = 0.92;
/// Together they reach less than alone by more than chance.
const SHARED_RATIO: f64 = 0.85;
const CPU_BOUND_THRESHOLD: f64 = 0.9;

/// The facts about one drive.
struct DriveSummary<'a> {
    name: &'a str,
    info: &'a DriveInfo,
    /// Bytes a second from the outer to the inner end.
    zone_rates: Vec<f64>,
}

/// The facts about drives that were read at once.
struct DriveGroup<'a> {
    controller: Option<&'a str>,
    drives: &'a [usize],
    rates: Vec<f64>,
    cpu_busy: f64,
}

impl DriveSummary<'_> {
    fn outer_rate(&self) -> f64 {
        self.zone_rates.first().copied().unwrap_or(0.0)
    }
}

/// The sentences.
pub(super) fn findings(drives: &[Drive], found: &DiskRates, complete: bool) -> Vec<String> {
    let figures: Vec<DriveSummary<'_>> = (drives.iter().zip(&found.zone_rates))
        .map(|(drive, zones)| DriveSummary {
            name: drive.name(),
            info: &drive.info,
            zone_rates: zones
                .iter()
                .filter(|runs| !runs.is_empty())
                .map(|runs| mean(runs))
                .collect(),
        })
        .collect();
    let groups: Vec<DriveGroup<'_>> = (found.groups.iter())
        .map(|group| DriveGroup {
            controller: group.controller.as_deref(),
            drives: &group.drives,
            rates: group.rates.iter().map(|runs| mean(runs)).collect(),
            cpu_busy: mean(&group.cpu_busy),
        })
        .collect();
    if complete { collect_findings(&figures, &groups) } else { Vec::new() }
}

fn collect_findings(figures: &[DriveSummary<'_>], groups: &[DriveGroup<'_>]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    all.extend((0..figures.len()).filter_map(|index| slow_drive_finding(figures, index)));
    all.extend(figures.iter().filter_map(flat_rate_finding));
    all.extend(shared_bus_findings(figures, groups));
    all.extend(groups.last().and_then(|group| lagging_drive_finding(figures, group)));
    if all.is_empty() && figures.len() > 1 {
        all.push("No drive is slower than its like, and all together are as fast as alone.".into());
    }
    all
}

fn format_rate(value: f64) -> String {
    format_value(value, Unit::BytesPerSecond)
}

/// A drive that is slower than others of its kind.
fn slow_drive_finding(figures: &[DriveSummary<'_>], index: usize) -> Option<String> {
    let drive = figures.get(index)?;
    let alike = |other: &&DriveSummary<'_>| other.info.rotates == drive.info.rotates;
    let others = figures.iter().enumerate().filter(|(other, _)| *other != index);
    let mut peers: Vec<f64> =
        others.map(|(_, other)| other).filter(alike).map(DriveSummary::outer_rate).collect();
    peers.sort_by(f64::total_cmp);
    let median = *peers.get(peers.len() / 2)?;
    let part = drive.outer_rate() / median;
    let title = drive.info.title();
    let link = drive.info.link.as_deref();
    let link = link.map(|link| format!(" (its link runs at {link})")).unwrap_or_default();
    (peers.len() > 1 && part < SLOW_RATIO).then(|| {
        format!(
            "{title} reads {} where its like read {}: {} of it. The drive, its cable or its port \
             is slow{link}; in another slot it shows which.",
            format_rate(drive.outer_rate()),
            format_rate(median),
            percent(part)
        )
    })
}

/// A disk that is as fast at its inner as at its outer end.
fn flat_rate_finding(drive: &DriveSummary<'_>) -> Option<String> {
    let (outer, inner) = (drive.outer_rate(), drive.zone_rates.last().copied()?);
    let is_disk = drive.info.rotates == Some(true) && drive.info.model.is_some();
    let link = match &drive.info.link {
        Some(link) => format!("port ({link})"),
        None => "port".to_owned(),
    };
    (is_disk && drive.zone_rates.len() > 2 && inner > FLAT_RATIO * outer).then(|| {
        format!(
            "{} reads {} from its outer to its inner end alike, where a disk slows down to about \
             half: not the disk limits it, but its {link}, cable or enclosure.",
            drive.name,
            format_rate(outer)
        )
    })
}

/// Drives that are slower together than one after the other: those of a controller first, and all
/// of them only if no controller explains it.
fn shared_bus_findings(figures: &[DriveSummary<'_>], groups: &[DriveGroup<'_>]) -> Vec<String> {
    let sums = |group: &DriveGroup<'_>| {
        let alone: f64 = group_members(figures, group).map(DriveSummary::outer_rate).sum();
        (group.rates.iter().sum::<f64>(), alone)
    };
    let is_shared = |group: &&DriveGroup<'_>| {
        let (together, alone) = sums(group);
        alone > 0.0 && together < SHARED_RATIO * alone
    };
    let one = |group: &DriveGroup<'_>| {
        let (together, alone) = sums(group);
        let names: Vec<&str> = group_members(figures, group).map(|drive| drive.name).collect();
        let part = percent(together / alone);
        format!(
            "{} read {} at once, {part} of the {} that they read one at a time: {}",
            join_names(&names),
            format_rate(together),
            format_rate(alone),
            shared_limit_reason(figures, group, together)
        )
    };
    let (single, all): (Vec<&DriveGroup<'_>>, Vec<&DriveGroup<'_>>) =
        groups.iter().filter(is_shared).partition(|group| group.controller.is_some());
    let chosen = if single.is_empty() { all } else { single };
    chosen.into_iter().map(one).collect()
}

fn group_members<'a>(
    figures: &'a [DriveSummary<'a>],
    group: &'a DriveGroup<'a>,
) -> impl Iterator<Item = &'a DriveSummary<'a>> {
    group.drives.iter().filter_map(|index| figures.get(*index))
}

/// The shared part that may be too slow.
fn shared_limit_reason(
    figures: &[DriveSummary<'_>],
    group: &DriveGroup<'_>,
    together: f64,
) -> String {
    if group.cpu_busy > CPU_BOUND_THRESHOLD {
        return format!(
            "the processors were busy ({:.0} %) and are the limit.",
            group.cpu_busy * 100.0
        );
    }
    let mut controllers: Vec<&DriveInfo> = group_members(figures, group).map(|d| d.info).collect();
    controllers.dedup_by(|a, b| a.controller == b.controller);
    let [facts] = controllers.as_slice() else {
        return "something that they all share is the limit (processors were not: a bus, an \
                expander, the chipset)."
            .to_owned();
    };
    match (&facts.controller, &facts.controller_link, facts.controller_bytes_per_second) {
        (Some(address), Some(link), Some(most)) if together > 0.5 * most => format!(
            "they share the controller {address}, whose bus ({link}, {} at most) is full.",
            format_rate(most)
        ),
        (Some(address), _, _) => format!(
            "they share the controller {address}: it, or a port or expander behind it, is the limit."
        ),
        _ => "something that they share is the limit.".to_owned(),
    }
}

/// A drive that loses much when all are read at once, where most lose little.
fn lagging_drive_finding(figures: &[DriveSummary<'_>], group: &DriveGroup<'_>) -> Option<String> {
    let parts: Vec<(&str, f64, f64)> = group_members(figures, group)
        .zip(&group.rates)
        .filter(|(drive, _)| drive.outer_rate() > 0.0)
        .map(|(drive, rate)| (drive.name, *rate, rate / drive.outer_rate()))
        .collect();
    let well = parts.iter().filter(|(_, _, part)| *part > SHARED_RATIO).count();
    let bad: Vec<String> = (parts.iter())
        .filter(|(_, _, part)| *part < SLOW_RATIO)
        .map(|(name, together, _)| format!("{name} ({})", format_rate(*together)))
        .collect();
    let bad: Vec<&str> = bad.iter().map(String::as_str).collect();
    (!bad.is_empty() && well > bad.len()).then(|| {
        format!(
            "While all are read, {} fall behind, and the others do not: they share a port or a \
             lane with each other or with another device.",
            join_names(&bad)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::{DriveGroup, DriveSummary, collect_findings};
    use crate::drive_info::DriveInfo;

    fn drive_info(controller: &str) -> DriveInfo {
        DriveInfo {
            name: "sdx".into(),
            model: Some("ACME".into()),
            rotates: Some(true),
            controller: Some(controller.into()),
            controller_link: Some("2.5 GT/s PCIe x1".into()),
            controller_bytes_per_second: Some(250e6),
            ..DriveInfo::default()
        }
    }

    fn findings_text(zones: &[[f64; 3]], facts: &[DriveInfo], groups: &[DriveGroup<'_>]) -> String {
        let names = ["sda", "sdb", "sdc", "sdd"];
        let figures: Vec<DriveSummary<'_>> = (zones.iter().zip(facts).zip(names))
            .map(|((zones, facts), name)| DriveSummary {
                name,
                info: facts,
                zone_rates: zones.iter().map(|rate| rate * 1e6).collect(),
            })
            .collect();
        collect_findings(&figures, groups).join("\n")
    }

    fn group<'a>(
        controller: Option<&'a str>,
        drives: &'a [usize],
        rates: &[f64],
    ) -> DriveGroup<'a> {
        let rates = rates.iter().map(|rate| rate * 1e6).collect();
        DriveGroup { controller, drives, rates, cpu_busy: 0.1 }
    }

    const NORMAL_RATES: [f64; 3] = [180.0, 150.0, 95.0];

    #[test]
    fn equal_drives_give_no_warning() {
        let facts = vec![drive_info("0000:01:00.0"); 3];
        let all = [group(None, &[0, 1, 2], &[179.0, 180.0, 178.0])];
        assert!(findings_text(&[NORMAL_RATES; 3], &facts, &all).starts_with("No drive is slower"));
    }

    #[test]
    fn flat_rate_reveals_slow_port() {
        let facts = vec![drive_info("0000:01:00.0"); 3];
        let text = findings_text(&[NORMAL_RATES, [87.0, 87.0, 86.0], NORMAL_RATES], &facts, &[]);
        assert!(text.contains("87.0 MB/s where its like read 180 MB/s: 48 % of it"), "{text}");
        assert!(
            text.contains("sdb reads 87.0 MB/s from its outer to its inner end alike"),
            "{text}"
        );
    }

    #[test]
    fn narrow_bus_is_reported() {
        let narrow = drive_info("0000:03:00.0");
        let facts =
            [drive_info("0000:01:00.0"), drive_info("0000:01:00.0"), narrow.clone(), narrow];
        let groups = [
            group(Some("0000:01:00.0"), &[0, 1], &[180.0, 178.0]),
            group(Some("0000:03:00.0"), &[2, 3], &[74.0, 73.0]),
            group(None, &[0, 1, 2, 3], &[180.0, 180.0, 74.0, 73.0]),
        ];
        let text = findings_text(&[NORMAL_RATES; 4], &facts, &groups);
        assert!(text.contains("sdc and sdd read 147 MB/s at once, 41 % of the 360 MB/s"), "{text}");
        assert!(
            text.contains("0000:03:00.0, whose bus (2.5 GT/s PCIe x1, 250 MB/s at most)"),
            "{text}"
        );
        assert!(!text.contains("sda, sdb"), "one explanation is enough: {text}");
    }

    #[test]
    fn shared_limit_without_controller_is_reported() {
        let facts = [drive_info("0000:01:00.0"), drive_info("0000:02:00.0")];
        let mut all = [group(None, &[0, 1], &[100.0, 100.0])];
        let text = findings_text(&[NORMAL_RATES; 2], &facts, &all);
        assert!(text.contains("something that they all share"), "{text}");
        all[0].cpu_busy = 0.99;
        assert!(
            findings_text(&[NORMAL_RATES; 2], &facts, &all).contains("processors were busy (99 %)")
        );
    }

    #[test]
    fn lagging_drive_is_reported() {
        let facts = vec![drive_info("0000:01:00.0"); 4];
        let all = [group(None, &[0, 1, 2, 3], &[180.0, 180.0, 180.0, 90.0])];
        let text = findings_text(&[NORMAL_RATES; 4], &facts, &all);
        assert!(text.contains("sdd (90.0 MB/s) fall behind"), "{text}");
    }
}
