//! What the figures of a network say: the part of the link that is reached, what limits it, and
//! what is worth changing.

use super::link::Link;
use super::talk::{Path, Way};
use crate::number::float;
use crate::present::{figure, percent};
use crate::record::{Measure, Unit};
use crate::statistics::Change;

/// A link is full that carries this part of what TCP can carry on it.
const FULL: f64 = 0.95;
/// A change that is worth the trouble.
const WORTH: f64 = 0.10;
/// Segments that are lost on a sound cable: fewer.
const LOST: f64 = 0.001;
/// Milliseconds that a full link may add.
const PATIENCE: f64 = 5.0;
const BUSY: f64 = 0.9;
/// Bytes that Ethernet adds to a packet, with the gap after it.
const FRAME: f64 = 38.0;

/// What is known besides the figures.
pub(super) struct Scene<'a> {
    pub(super) ours: &'a Link,
    pub(super) theirs: &'a Link,
    pub(super) path: &'a Path,
    /// The part of what this end and the other end sent that was sent again.
    pub(super) sent_again: [Option<f64>; 2],
    pub(super) most_window: Option<u64>,
    pub(super) streams: usize,
}

/// The sentences.
pub(super) fn findings(scene: &Scene<'_>, measures: &[Measure]) -> Vec<String> {
    let mut all = Vec::new();
    if scene.ours.is_loopback() {
        all.push(
            "Both ends are the same machine: these are figures of its memory, not of a network."
                .to_owned(),
        );
    } else {
        all.extend(Way::BOTH.into_iter().filter_map(|way| reached(scene, measures, way)));
        all.extend(ends_differ(scene));
        all.extend(links(scene));
        all.extend(windows(scene, measures));
    }
    all.extend(Way::BOTH.into_iter().filter_map(|way| better_buffer(measures, way)));
    all.extend(latency(measures));
    all.extend(lost(scene));
    all.extend(packets(scene));
    all
}

fn mean(measures: &[Measure], id: &str) -> Option<f64> {
    measures.iter().find(|measure| measure.id == id)?.summary.map(|summary| summary.mean)
}

fn bits(value: f64) -> String {
    figure(value, Unit::Bits)
}

/// The best that was reached in one way, with the measure it comes from.
fn best<'m>(scene: &Scene<'_>, measures: &'m [Measure], way: Way) -> Option<&'m Measure> {
    let ids = [1, scene.streams].map(|count| format!("{}-{count}", way.name()));
    let of = measures.iter().filter(|measure| ids.contains(&measure.id));
    let mean = |measure: &Measure| measure.summary.map_or(0.0, |summary| summary.mean);
    of.max_by(|a, b| mean(a).total_cmp(&mean(b)))
}

/// The slower of the two ends' links, bits a second.
fn link_speed(scene: &Scene<'_>) -> Option<f64> {
    let speeds = [scene.ours.bits_per_second, scene.theirs.bits_per_second];
    speeds.into_iter().flatten().min().map(float)
}

/// The part of a link that TCP's payload can be, with packets of so many bytes.
fn payload(mtu: f64) -> f64 {
    // 20 bytes of IP, 20 of TCP, 12 for its time stamps
    (mtu - 52.0) / (mtu + FRAME)
}

fn reached(scene: &Scene<'_>, measures: &[Measure], way: Way) -> Option<String> {
    let measure = best(scene, measures, way)?;
    let rate = measure.summary?.mean;
    let direction = match way {
        Way::Up => "To the other end",
        Way::Down => "From the other end",
    };
    let Some(speed) = link_speed(scene) else {
        return Some(format!(
            "{direction} {} were reached; what the links could do is not known.",
            bits(rate)
        ));
    };
    let mtu = scene.path.mtu.map_or(1500.0, f64::from);
    let most = speed * payload(mtu);
    let busy = measure.processors_busy.filter(|part| *part > BUSY);
    let verdict = if rate > FULL * most {
        "the link is full, and only a faster one is faster".to_owned()
    } else if let Some(part) = busy {
        format!("this machine's processors were busy ({:.0} %) and are the limit", part * 100.0)
    } else {
        "the link is not what limits".to_owned()
    };
    Some(format!(
        "{direction} {} were reached: {} of the link's {}, of which TCP can use {}: {verdict}.",
        bits(rate),
        percent(rate / speed),
        bits(speed),
        percent(payload(mtu))
    ))
}

fn ends_differ(scene: &Scene<'_>) -> Option<String> {
    let (ours, theirs) = (scene.ours.bits_per_second?, scene.theirs.bits_per_second?);
    let (slow, fast, who) = match ours.cmp(&theirs) {
        std::cmp::Ordering::Less => (ours, theirs, "this end"),
        std::cmp::Ordering::Greater => (theirs, ours, "the other end"),
        std::cmp::Ordering::Equal => return None,
    };
    Some(format!(
        "The link of {who} runs at {}, that of the opposite one at {}: a better cable, port or \
         card here makes both faster.",
        bits(float(slow)),
        bits(float(fast))
    ))
}

fn links(scene: &Scene<'_>) -> Option<String> {
    let half = [("this end", scene.ours), ("the other end", scene.theirs)];
    let (who, _) = half.into_iter().find(|(_, link)| link.duplex.as_deref() == Some("half"))?;
    Some(format!(
        "The link of {who} is half duplex: it cannot send and receive at once; set both ends of \
         the cable to negotiate by themselves."
    ))
}

/// One stream that is slower than several has a window that is too small, or one processor for all.
fn windows(scene: &Scene<'_>, measures: &[Measure]) -> Option<String> {
    let speed = link_speed(scene)?;
    let idle = mean(measures, "latency-idle")?;
    let window = speed / 8.0 * idle / 1000.0;
    let one = Way::BOTH.into_iter().find_map(|way| {
        let one = mean(measures, &format!("{}-1", way.name()))?;
        let several = mean(measures, &format!("{}-{}", way.name(), scene.streams))?;
        (several > one * (1.0 + WORTH)).then_some((one, several))
    });
    let (one, several) = one?;
    let streams = scene.streams;
    let advice = match scene.most_window {
        // the system counts its own needs into the buffer: about as much again
        Some(most) if float(most) < 2.0 * window => format!(
            "the way holds {} and the system allows {}: raise net.ipv4.tcp_rmem and tcp_wmem (the \
             third number) at both ends to {}",
            units::human_bytes(crate::number::whole(window)),
            units::human_bytes(most),
            units::human_bytes(crate::number::whole(4.0 * window).next_power_of_two())
        ),
        _ => "windows are large enough, so one processor or lost packets limit a single stream; \
              copy with several at a time"
            .to_owned(),
    };
    Some(format!(
        "One stream reaches {}, {streams} together {}: {advice}.",
        bits(one),
        bits(several)
    ))
}

/// A fixed buffer that is better than what the system chooses.
fn better_buffer(measures: &[Measure], way: Way) -> Option<String> {
    let usual = measures.iter().find(|measure| measure.id == format!("{}-1", way.name()))?;
    let prefix = format!("{}-1-buffer-", way.name());
    let fixed = measures.iter().filter(|measure| measure.id.starts_with(&prefix));
    let gain = |measure: &Measure| {
        let change = Change::between(&usual.runs, &measure.runs)?;
        (change.part > WORTH && change.is_noise == Some(false)).then_some(change.part)
    };
    let best = fixed.filter_map(|measure| Some((gain(measure)?, measure)));
    let (part, measure) = best.max_by(|a, b| a.0.total_cmp(&b.0))?;
    let size = measure.id.strip_prefix(&prefix)?.to_uppercase();
    Some(format!(
        "{} of {size} make one stream {} faster than the system's own choice: set such a buffer in \
         the programs that copy, or raise the second number of net.ipv4.tcp_rmem and tcp_wmem.",
        "Socket buffers",
        percent(part)
    ))
}

/// Latency that a full link adds.
fn latency(measures: &[Measure]) -> Option<String> {
    let idle = mean(measures, "latency-idle")?;
    let under = |way: Way| Some((way, mean(measures, &format!("latency-{}", way.name()))?));
    let (way, worst) =
        Way::BOTH.into_iter().filter_map(under).max_by(|a, b| a.1.total_cmp(&b.1))?;
    (worst > idle + PATIENCE && worst > 3.0 * idle).then(|| {
        let who = if way == Way::Up { "this end" } else { "the other end" };
        format!(
            "A full link makes everybody wait: {} instead of {}. Too much is queued at {who} or in \
             the switch: `tc qdisc replace dev INTERFACE root fq_codel` there keeps the queue short.",
            figure(worst, Unit::Milliseconds),
            figure(idle, Unit::Milliseconds)
        )
    })
}

fn lost(scene: &Scene<'_>) -> Option<String> {
    let [ours, theirs] = scene.sent_again.map(|part| part.unwrap_or(0.0));
    (ours.max(theirs) > LOST).then(|| {
        format!(
            "{} of what this end sent and {} of what the other end sent had to be sent again: a \
             cable, a port, or a switch that is asked too much.",
            percent(ours),
            percent(theirs)
        )
    })
}

/// Packets that are smaller than the interfaces allow, or than would pay.
fn packets(scene: &Scene<'_>) -> Option<String> {
    let path = u64::from(scene.path.mtu?);
    let interfaces = [scene.ours.mtu?, scene.theirs.mtu?];
    let least = *interfaces.iter().min()?;
    if path < least {
        return Some(format!(
            "Packets of {path} bytes get through, though both interfaces send {least}: something \
             between them takes less."
        ));
    }
    if interfaces[0] != interfaces[1] {
        return Some(format!(
            "This end sends packets of {} bytes and the other end {}: make them the same.",
            interfaces[0], interfaces[1]
        ));
    }
    let fast = link_speed(scene).is_some_and(|speed| speed >= 1e10);
    (fast && path <= 1500).then(|| {
        format!(
            "Packets are {path} bytes: with 9000 at both ends and in the switch, processors have a \
             sixth of the work, and TCP can use {} of the link instead of {}.",
            percent(payload(9000.0)),
            percent(payload(float(path)))
        )
    })
}

#[cfg(test)]
mod tests {
    use super::{Scene, findings, payload};
    use crate::net::link::Link;
    use crate::net::talk::Path;
    use crate::record::{Measure, Unit};

    fn link(speed: u64, mtu: u64) -> Link {
        let name = Some("eth0".to_owned());
        let duplex = Some("full".to_owned());
        Link { name, bits_per_second: Some(speed), duplex, mtu: Some(mtu), driver: None }
    }

    fn measures(figures: &[(&str, f64)]) -> Vec<Measure> {
        let unit = |id: &str| if id.starts_with("lat") { Unit::Milliseconds } else { Unit::Bits };
        let one = |(id, value): &(&str, f64)| {
            let runs = vec![*value, value * 1.001, value * 0.999];
            Measure::new(id, id, "g", unit(id)).with_runs(runs, 5.0)
        };
        figures.iter().map(one).collect()
    }

    fn said(ours: &Link, theirs: &Link, mtu: u32, figures: &[(&str, f64)]) -> String {
        let path = Path { mtu: Some(mtu), congestion: None };
        let scene = Scene {
            ours,
            theirs,
            path: &path,
            sent_again: [Some(0.0), Some(0.0)],
            most_window: Some(6 << 20),
            streams: 4,
        };
        findings(&scene, &measures(figures)).join("\n")
    }

    const GIGABIT: u64 = 1_000_000_000;

    #[test]
    fn a_full_gigabit_is_full() {
        let link = link(GIGABIT, 1500);
        let text = said(&link, &link, 1500, &[("up-1", 941e6), ("up-4", 940e6)]);
        assert!(text.contains("94 % of the link's 1.00 Gb/s, of which TCP can use 94 %"), "{text}");
        assert!(text.contains("the link is full"), "{text}");
        assert!((payload(1500.0) - 0.9415).abs() < 1e-4);
    }

    #[test]
    fn small_windows_and_buffers_are_named() {
        let link = link(10 * GIGABIT, 1500);
        let figures = [
            ("latency-idle", 10.0),
            ("latency-down", 80.0),
            ("down-1", 2.5e9),
            ("down-4", 9e9),
            ("down-1-buffer-4m", 3.5e9),
        ];
        let text = said(&link, &link, 1500, &figures);
        assert!(text.contains("the way holds 11.9M and the system allows 6M"), "{text}");
        assert!(text.contains("to 64M"), "{text}");
        assert!(text.contains("Socket buffers of 4M make one stream 40 % faster"), "{text}");
        assert!(text.contains("80.0 ms instead of 10.0 ms"), "{text}");
        assert!(text.contains("with 9000 at both ends"), "{text}");
    }

    #[test]
    fn what_is_wrong_with_the_cable_is_said() {
        let (good, bad) = (link(GIGABIT, 9000), link(100_000_000, 1500));
        let text = said(&bad, &good, 1400, &[("up-1", 50e6)]);
        assert!(text.contains("The link of this end runs at 100 Mb/s"), "{text}");
        assert!(text.contains("Packets of 1400 bytes get through"), "{text}");
        assert!(text.contains("the link is not what limits"), "{text}");
        let text = said(&good, &bad, 1500, &[]);
        assert!(text.contains("The link of the other end runs at 100 Mb/s"), "{text}");
        assert!(text.contains("9000 bytes and the other end 1500"), "{text}");
    }

    #[test]
    fn a_machine_that_talks_to_itself_is_told_so() {
        let own = Link { name: Some("lo".to_owned()), ..Link::default() };
        let text = said(&own, &own, 65535, &[("up-1", 50e9)]);
        assert!(text.starts_with("Both ends are the same machine"), "{text}");
        assert!(!text.contains("of the link"), "{text}");
    }
}
