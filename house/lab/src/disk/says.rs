//! What figures of drives say: a slow drive, a slow port, a bus that they share.

use super::drives::Drive;
use super::steps::{Found, mean};
use crate::drive::DriveFacts;
use crate::present::{figure, percent};
use crate::record::Unit;
use crate::verdict::listed;

/// Slower than its like by more than chance or age.
const SLOW: f64 = 0.75;
/// A disk turns as fast at its inner end, where a track is about half as long.
const FLAT: f64 = 0.92;
/// Together they reach less than alone by more than chance.
const SHARED: f64 = 0.85;
const BUSY: f64 = 0.9;

/// What is known of one drive.
struct Figures<'a> {
    name: &'a str,
    facts: &'a DriveFacts,
    /// Bytes a second from the outer to the inner end.
    zones: Vec<f64>,
}

/// What is known of drives that were read at once.
struct Group<'a> {
    controller: Option<&'a str>,
    drives: &'a [usize],
    rates: Vec<f64>,
    busy: f64,
}

impl Figures<'_> {
    fn outer(&self) -> f64 {
        self.zones.first().copied().unwrap_or(0.0)
    }
}

/// The sentences.
pub(super) fn findings(drives: &[Drive], found: &Found, complete: bool) -> Vec<String> {
    let figures: Vec<Figures<'_>> = (drives.iter().zip(&found.zones))
        .map(|(drive, zones)| Figures {
            name: drive.name(),
            facts: &drive.facts,
            zones: zones.iter().filter(|runs| !runs.is_empty()).map(|runs| mean(runs)).collect(),
        })
        .collect();
    let groups: Vec<Group<'_>> = (found.together.iter())
        .map(|group| Group {
            controller: group.controller.as_deref(),
            drives: &group.drives,
            rates: group.rates.iter().map(|runs| mean(runs)).collect(),
            busy: mean(&group.busy),
        })
        .collect();
    if complete { say(&figures, &groups) } else { Vec::new() }
}

fn say(figures: &[Figures<'_>], groups: &[Group<'_>]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    all.extend((0..figures.len()).filter_map(|index| slow(figures, index)));
    all.extend(figures.iter().filter_map(flat));
    all.extend(shared(figures, groups));
    all.extend(groups.last().and_then(|group| one_suffers(figures, group)));
    if all.is_empty() && figures.len() > 1 {
        all.push("No drive is slower than its like, and all together are as fast as alone.".into());
    }
    all
}

fn rate(value: f64) -> String {
    figure(value, Unit::Rate)
}

/// A drive that is slower than others of its kind.
fn slow(figures: &[Figures<'_>], index: usize) -> Option<String> {
    let drive = figures.get(index)?;
    let alike = |other: &&Figures<'_>| other.facts.rotates == drive.facts.rotates;
    let others = figures.iter().enumerate().filter(|(other, _)| *other != index);
    let mut peers: Vec<f64> =
        others.map(|(_, other)| other).filter(alike).map(Figures::outer).collect();
    peers.sort_by(f64::total_cmp);
    let median = *peers.get(peers.len() / 2)?;
    let part = drive.outer() / median;
    let title = drive.facts.title();
    let link = drive.facts.link.as_deref();
    let link = link.map(|link| format!(" (its link runs at {link})")).unwrap_or_default();
    (peers.len() > 1 && part < SLOW).then(|| {
        format!(
            "{title} reads {} where its like read {}: {} of it. The drive, its cable or its port \
             is slow{link}; in another slot it shows which.",
            rate(drive.outer()),
            rate(median),
            percent(part)
        )
    })
}

/// A disk that is as fast at its inner as at its outer end.
fn flat(drive: &Figures<'_>) -> Option<String> {
    let (outer, inner) = (drive.outer(), drive.zones.last().copied()?);
    let is_disk = drive.facts.rotates == Some(true) && drive.facts.model.is_some();
    let link = match &drive.facts.link {
        Some(link) => format!("port ({link})"),
        None => "port".to_owned(),
    };
    (is_disk && drive.zones.len() > 2 && inner > FLAT * outer).then(|| {
        format!(
            "{} reads {} from its outer to its inner end alike, where a disk slows down to about \
             half: not the disk limits it, but its {link}, cable or enclosure.",
            drive.name,
            rate(outer)
        )
    })
}

/// Drives that are slower together than one after the other: those of a controller first, and all
/// of them only if no controller explains it.
fn shared(figures: &[Figures<'_>], groups: &[Group<'_>]) -> Vec<String> {
    let sums = |group: &Group<'_>| {
        let alone: f64 = members(figures, group).map(Figures::outer).sum();
        (group.rates.iter().sum::<f64>(), alone)
    };
    let is_shared = |group: &&Group<'_>| {
        let (together, alone) = sums(group);
        alone > 0.0 && together < SHARED * alone
    };
    let one = |group: &Group<'_>| {
        let (together, alone) = sums(group);
        let names: Vec<&str> = members(figures, group).map(|drive| drive.name).collect();
        let part = percent(together / alone);
        format!(
            "{} read {} at once, {part} of the {} that they read one at a time: {}",
            listed(&names),
            rate(together),
            rate(alone),
            why(figures, group, together)
        )
    };
    let (single, all): (Vec<&Group<'_>>, Vec<&Group<'_>>) =
        groups.iter().filter(is_shared).partition(|group| group.controller.is_some());
    let chosen = if single.is_empty() { all } else { single };
    chosen.into_iter().map(one).collect()
}

fn members<'a>(
    figures: &'a [Figures<'a>],
    group: &'a Group<'a>,
) -> impl Iterator<Item = &'a Figures<'a>> {
    group.drives.iter().filter_map(|index| figures.get(*index))
}

/// What drives share that may be too slow for them.
fn why(figures: &[Figures<'_>], group: &Group<'_>, together: f64) -> String {
    if group.busy > BUSY {
        return format!(
            "the processors were busy ({:.0} %) and are the limit.",
            group.busy * 100.0
        );
    }
    let mut controllers: Vec<&DriveFacts> = members(figures, group).map(|d| d.facts).collect();
    controllers.dedup_by(|a, b| a.controller == b.controller);
    let [facts] = controllers.as_slice() else {
        return "something that they all share is the limit (processors were not: a bus, an \
                expander, the chipset)."
            .to_owned();
    };
    match (&facts.controller, &facts.controller_link, facts.controller_bytes_per_second) {
        (Some(address), Some(link), Some(most)) if together > 0.5 * most => format!(
            "they share the controller {address}, whose bus ({link}, {} at most) is full.",
            rate(most)
        ),
        (Some(address), _, _) => format!(
            "they share the controller {address}: it, or a port or expander behind it, is the limit."
        ),
        _ => "something that they share is the limit.".to_owned(),
    }
}

/// A drive that loses much when all are read at once, where most lose little.
fn one_suffers(figures: &[Figures<'_>], group: &Group<'_>) -> Option<String> {
    let parts: Vec<(&str, f64, f64)> = members(figures, group)
        .zip(&group.rates)
        .filter(|(drive, _)| drive.outer() > 0.0)
        .map(|(drive, rate)| (drive.name, *rate, rate / drive.outer()))
        .collect();
    let well = parts.iter().filter(|(_, _, part)| *part > SHARED).count();
    let bad: Vec<String> = (parts.iter())
        .filter(|(_, _, part)| *part < SLOW)
        .map(|(name, together, _)| format!("{name} ({})", rate(*together)))
        .collect();
    let bad: Vec<&str> = bad.iter().map(String::as_str).collect();
    (!bad.is_empty() && well > bad.len()).then(|| {
        format!(
            "While all are read, {} fall behind, and the others do not: they share a port or a \
             lane with each other or with another device.",
            listed(&bad)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::{Figures, Group, say};
    use crate::drive::DriveFacts;

    fn disk(controller: &str) -> DriveFacts {
        DriveFacts {
            name: "sdx".into(),
            model: Some("ACME".into()),
            rotates: Some(true),
            controller: Some(controller.into()),
            controller_link: Some("2.5 GT/s PCIe x1".into()),
            controller_bytes_per_second: Some(250e6),
            ..DriveFacts::default()
        }
    }

    fn said(zones: &[[f64; 3]], facts: &[DriveFacts], groups: &[Group<'_>]) -> String {
        let names = ["sda", "sdb", "sdc", "sdd"];
        let figures: Vec<Figures<'_>> = (zones.iter().zip(facts).zip(names))
            .map(|((zones, facts), name)| Figures {
                name,
                facts,
                zones: zones.iter().map(|rate| rate * 1e6).collect(),
            })
            .collect();
        say(&figures, groups).join("\n")
    }

    fn group<'a>(controller: Option<&'a str>, drives: &'a [usize], rates: &[f64]) -> Group<'a> {
        let rates = rates.iter().map(|rate| rate * 1e6).collect();
        Group { controller, drives, rates, busy: 0.1 }
    }

    const GOOD: [f64; 3] = [180.0, 150.0, 95.0];

    #[test]
    fn good_drives_are_called_good() {
        let facts = vec![disk("0000:01:00.0"); 3];
        let all = [group(None, &[0, 1, 2], &[179.0, 180.0, 178.0])];
        assert!(said(&[GOOD; 3], &facts, &all).starts_with("No drive is slower"));
    }

    #[test]
    fn a_slow_port_is_found_by_its_flat_line() {
        let facts = vec![disk("0000:01:00.0"); 3];
        let text = said(&[GOOD, [87.0, 87.0, 86.0], GOOD], &facts, &[]);
        assert!(text.contains("87.0 MB/s where its like read 180 MB/s: 48 % of it"), "{text}");
        assert!(
            text.contains("sdb reads 87.0 MB/s from its outer to its inner end alike"),
            "{text}"
        );
    }

    #[test]
    fn a_narrow_bus_is_named() {
        let narrow = disk("0000:03:00.0");
        let facts = [disk("0000:01:00.0"), disk("0000:01:00.0"), narrow.clone(), narrow];
        let groups = [
            group(Some("0000:01:00.0"), &[0, 1], &[180.0, 178.0]),
            group(Some("0000:03:00.0"), &[2, 3], &[74.0, 73.0]),
            group(None, &[0, 1, 2, 3], &[180.0, 180.0, 74.0, 73.0]),
        ];
        let text = said(&[GOOD; 4], &facts, &groups);
        assert!(text.contains("sdc and sdd read 147 MB/s at once, 41 % of the 360 MB/s"), "{text}");
        assert!(
            text.contains("0000:03:00.0, whose bus (2.5 GT/s PCIe x1, 250 MB/s at most)"),
            "{text}"
        );
        assert!(!text.contains("sda, sdb"), "one explanation is enough: {text}");
    }

    #[test]
    fn what_all_share_is_named_if_no_controller_explains_it() {
        let facts = [disk("0000:01:00.0"), disk("0000:02:00.0")];
        let mut all = [group(None, &[0, 1], &[100.0, 100.0])];
        let text = said(&[GOOD; 2], &facts, &all);
        assert!(text.contains("something that they all share"), "{text}");
        all[0].busy = 0.99;
        assert!(said(&[GOOD; 2], &facts, &all).contains("processors were busy (99 %)"));
    }

    #[test]
    fn one_that_suffers_is_named() {
        let facts = vec![disk("0000:01:00.0"); 4];
        let all = [group(None, &[0, 1, 2, 3], &[180.0, 180.0, 180.0, 90.0])];
        let text = said(&[GOOD; 4], &facts, &all);
        assert!(text.contains("sdd (90.0 MB/s) fall behind"), "{text}");
    }
}
