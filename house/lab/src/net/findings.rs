//! Findings about a network: the used part of the link, its limit, and worthwhile changes.

use super::client::{Direction, PathInfo};
use super::link::Link;
use crate::bench_result::{Measure, Unit};
use crate::formatting::{format_value, percent};
use crate::number::to_f64;
use crate::statistics::Change;

/// The share of TCP's maximum from which a link counts as full.
const FULL_LINK_RATIO: f64 = 0.95;
/// The gain from which a change is worthwhile.
const MIN_GAIN: f64 = 0.10;
/// Segments that are lost on a sound cable: fewer.
const MAX_RETRANSMITTED: f64 = 0.001;
/// Milliseconds that a full link may add.
const MAX_ADDED_LATENCY_MS: f64 = 5.0;
const CPU_BOUND_THRESHOLD: f64 = 0.9;
/// Bytes that Ethernet adds to a packet, with the gap after it.
const ETHERNET_OVERHEAD: f64 = 38.0;

/// The facts besides the figures.
pub(super) struct FindingInputs<'a> {
    pub(super) local_link: &'a Link,
    pub(super) peer_link: &'a Link,
    pub(super) path: &'a PathInfo,
    /// The retransmitted share of the bytes of both ends.
    pub(super) retransmitted: [Option<f64>; 2],
    pub(super) max_receive_window: Option<u64>,
    pub(super) stream_count: usize,
}

/// The sentences.
pub(super) fn findings(scene: &FindingInputs<'_>, measures: &[Measure]) -> Vec<String> {
    let mut all = Vec::new();
    if scene.local_link.is_loopback() {
        all.push(
            "Both ends are the same machine: these are figures of its memory, not of a network."
                .to_owned(),
        );
    } else {
        all.extend(
            Direction::BOTH.into_iter().filter_map(|way| throughput_finding(scene, measures, way)),
        );
        all.extend(unequal_links_finding(scene));
        all.extend(half_duplex_finding(scene));
        all.extend(window_finding(scene, measures));
    }
    all.extend(Direction::BOTH.into_iter().filter_map(|way| buffer_finding(measures, way)));
    all.extend(queueing_finding(measures));
    all.extend(retransmission_finding(scene));
    all.extend(mtu_finding(scene));
    all
}

fn measure_mean(measures: &[Measure], id: &str) -> Option<f64> {
    measures.iter().find(|measure| measure.id == id)?.summary.map(|summary| summary.mean)
}

fn format_bits(value: f64) -> String {
    format_value(value, Unit::BitsPerSecond)
}

/// The best that was reached in one way, with the measure it comes from.
fn best_measure<'m>(
    scene: &FindingInputs<'_>,
    measures: &'m [Measure],
    way: Direction,
) -> Option<&'m Measure> {
    let ids = [1, scene.stream_count].map(|count| format!("{}-{count}", way.name()));
    let of = measures.iter().filter(|measure| ids.contains(&measure.id));
    let mean = |measure: &Measure| measure.summary.map_or(0.0, |summary| summary.mean);
    of.max_by(|a, b| mean(a).total_cmp(&mean(b)))
}

/// The slower of the two ends' links, bits a second.
fn link_speed(scene: &FindingInputs<'_>) -> Option<f64> {
    let speeds = [scene.local_link.bits_per_second, scene.peer_link.bits_per_second];
    speeds.into_iter().flatten().min().map(to_f64)
}

/// The most of a link that TCP's payload can be, with packets of this many bytes.
fn payload_ratio(mtu: f64) -> f64 {
    // 20 bytes of IP, 20 of TCP, 12 for its time stamps
    (mtu - 52.0) / (mtu + ETHERNET_OVERHEAD)
}

fn throughput_finding(
    scene: &FindingInputs<'_>,
    measures: &[Measure],
    way: Direction,
) -> Option<String> {
    let measure = best_measure(scene, measures, way)?;
    let rate = measure.summary?.mean;
    let direction = match way {
        Direction::Upload => "To the other end",
        Direction::Download => "From the other end",
    };
    let Some(speed) = link_speed(scene) else {
        return Some(format!(
            "{direction} {} were reached; the speed of the links is unknown.",
            format_bits(rate)
        ));
    };
    let mtu = scene.path.mtu.map_or(1500.0, f64::from);
    let most = speed * payload_ratio(mtu);
    let busy = measure.processors_busy.filter(|part| *part > CPU_BOUND_THRESHOLD);
    let verdict = if rate > FULL_LINK_RATIO * most {
        "the link is full, and only a faster one is faster".to_owned()
    } else if let Some(part) = busy {
        format!("this machine's processors were busy ({:.0} %) and are the limit", part * 100.0)
    } else {
        "the link is not what limits".to_owned()
    };
    Some(format!(
        "{direction} {} were reached: {} of the link's {}, of which TCP can use {}: {verdict}.",
        format_bits(rate),
        percent(rate / speed),
        format_bits(speed),
        percent(payload_ratio(mtu))
    ))
}

fn unequal_links_finding(scene: &FindingInputs<'_>) -> Option<String> {
    let (ours, theirs) = (scene.local_link.bits_per_second?, scene.peer_link.bits_per_second?);
    let (slow, fast, who) = match ours.cmp(&theirs) {
        std::cmp::Ordering::Less => (ours, theirs, "this end"),
        std::cmp::Ordering::Greater => (theirs, ours, "the other end"),
        std::cmp::Ordering::Equal => return None,
    };
    Some(format!(
        "The link of {who} runs at {}, that of the opposite one at {}: a better cable, port or \
         card here makes both faster.",
        format_bits(to_f64(slow)),
        format_bits(to_f64(fast))
    ))
}

fn half_duplex_finding(scene: &FindingInputs<'_>) -> Option<String> {
    let half = [("this end", scene.local_link), ("the other end", scene.peer_link)];
    let (who, _) = half.into_iter().find(|(_, link)| link.duplex.as_deref() == Some("half"))?;
    Some(format!(
        "The link of {who} is half duplex: it cannot send and receive at once; set both ends of \
         the cable to negotiate by themselves."
    ))
}

/// One stream that is slower than several has a window that is too small, or one processor for all.
fn window_finding(scene: &FindingInputs<'_>, measures: &[Measure]) -> Option<String> {
    let speed = link_speed(scene)?;
    let idle = measure_mean(measures, "latency-idle")?;
    let window = speed / 8.0 * idle / 1000.0;
    let one = Direction::BOTH.into_iter().find_map(|way| {
        let one = measure_mean(measures, &format!("{}-1", way.name()))?;
        let several = measure_mean(measures, &format!("{}-{}", way.name(), scene.stream_count))?;
        (several > one * (1.0 + MIN_GAIN)).then_some((one, several))
    });
    let (one, several) = one?;
    let streams = scene.stream_count;
    let advice = match scene.max_receive_window {
        // the system counts its own needs into the buffer: about as much again
        Some(most) if to_f64(most) < 2.0 * window => format!(
            "the way holds {} and the system allows {}: raise net.ipv4.tcp_rmem and tcp_wmem (the \
             third number) at both ends to {}",
            units::human_bytes(crate::number::to_u64(window)),
            units::human_bytes(most),
            units::human_bytes(crate::number::to_u64(4.0 * window).next_power_of_two())
        ),
        _ => "windows are large enough, so one processor or lost packets limit a single stream; \
              copy with several at a time"
            .to_owned(),
    };
    Some(format!(
        "One stream reaches {}, {streams} together {}: {advice}.",
        format_bits(one),
        format_bits(several)
    ))
}

/// A fixed buffer that is better than the system's choice.
fn buffer_finding(measures: &[Measure], way: Direction) -> Option<String> {
    let usual = measures.iter().find(|measure| measure.id == format!("{}-1", way.name()))?;
    let prefix = format!("{}-1-buffer-", way.name());
    let fixed = measures.iter().filter(|measure| measure.id.starts_with(&prefix));
    let gain = |measure: &Measure| {
        let change = Change::between(&usual.runs, &measure.runs)?;
        (change.part > MIN_GAIN && change.is_noise == Some(false)).then_some(change.part)
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
fn queueing_finding(measures: &[Measure]) -> Option<String> {
    let idle = measure_mean(measures, "latency-idle")?;
    let under =
        |way: Direction| Some((way, measure_mean(measures, &format!("latency-{}", way.name()))?));
    let (way, worst) =
        Direction::BOTH.into_iter().filter_map(under).max_by(|a, b| a.1.total_cmp(&b.1))?;
    (worst > idle + MAX_ADDED_LATENCY_MS && worst > 3.0 * idle).then(|| {
        let who = if way == Direction::Upload { "this end" } else { "the other end" };
        format!(
            "A full link makes everybody wait: {} instead of {}. Too much is queued at {who} or in \
             the switch: `tc qdisc replace dev INTERFACE root fq_codel` there keeps the queue short.",
            format_value(worst, Unit::Milliseconds),
            format_value(idle, Unit::Milliseconds)
        )
    })
}

fn retransmission_finding(scene: &FindingInputs<'_>) -> Option<String> {
    let [ours, theirs] = scene.retransmitted.map(|part| part.unwrap_or(0.0));
    (ours.max(theirs) > MAX_RETRANSMITTED).then(|| {
        format!(
            "{} of what this end sent and {} of what the other end sent had to be sent again: a \
             cable, a port, or a switch that is asked too much.",
            percent(ours),
            percent(theirs)
        )
    })
}

/// Packets that are smaller than the interfaces allow, or than would pay.
fn mtu_finding(scene: &FindingInputs<'_>) -> Option<String> {
    let path = u64::from(scene.path.mtu?);
    let interfaces = [scene.local_link.mtu?, scene.peer_link.mtu?];
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
            percent(payload_ratio(9000.0)),
            percent(payload_ratio(to_f64(path)))
        )
    })
}

#[cfg(test)]
mod tests {
    use super::{FindingInputs, findings, payload_ratio};
    use crate::bench_result::{Measure, Unit};
    use crate::net::client::PathInfo;
    use crate::net::link::Link;

    fn link(speed: u64, mtu: u64) -> Link {
        let name = Some("eth0".to_owned());
        let duplex = Some("full".to_owned());
        Link { name, bits_per_second: Some(speed), duplex, mtu: Some(mtu), driver: None }
    }

    fn measures(figures: &[(&str, f64)]) -> Vec<Measure> {
        let unit =
            |id: &str| if id.starts_with("lat") { Unit::Milliseconds } else { Unit::BitsPerSecond };
        let one = |(id, value): &(&str, f64)| {
            let runs = vec![*value, value * 1.001, value * 0.999];
            Measure::new(id, id, "g", unit(id)).with_runs(runs, 5.0)
        };
        figures.iter().map(one).collect()
    }

    fn findings_text(ours: &Link, theirs: &Link, mtu: u32, figures: &[(&str, f64)]) -> String {
        let path = PathInfo { mtu: Some(mtu), congestion: None };
        let scene = FindingInputs {
            local_link: ours,
            peer_link: theirs,
            path: &path,
            retransmitted: [Some(0.0), Some(0.0)],
            max_receive_window: Some(6 << 20),
            stream_count: 4,
        };
        findings(&scene, &measures(figures)).join("\n")
    }

    const GIGABIT: u64 = 1_000_000_000;

    #[test]
    fn full_link_is_reported() {
        let link = link(GIGABIT, 1500);
        let text = findings_text(&link, &link, 1500, &[("up-1", 941e6), ("up-4", 940e6)]);
        assert!(text.contains("94 % of the link's 1.00 Gb/s, of which TCP can use 94 %"), "{text}");
        assert!(text.contains("the link is full"), "{text}");
        assert!((payload_ratio(1500.0) - 0.9415).abs() < 1e-4);
    }

    #[test]
    fn small_windows_and_buffers_are_reported() {
        let link = link(10 * GIGABIT, 1500);
        let figures = [
            ("latency-idle", 10.0),
            ("latency-down", 80.0),
            ("down-1", 2.5e9),
            ("down-4", 9e9),
            ("down-1-buffer-4m", 3.5e9),
        ];
        let text = findings_text(&link, &link, 1500, &figures);
        assert!(text.contains("the way holds 11.9M and the system allows 6M"), "{text}");
        assert!(text.contains("to 64M"), "{text}");
        assert!(text.contains("Socket buffers of 4M make one stream 40 % faster"), "{text}");
        assert!(text.contains("80.0 ms instead of 10.0 ms"), "{text}");
        assert!(text.contains("with 9000 at both ends"), "{text}");
    }

    #[test]
    fn link_faults_are_reported() {
        let (good, bad) = (link(GIGABIT, 9000), link(100_000_000, 1500));
        let text = findings_text(&bad, &good, 1400, &[("up-1", 50e6)]);
        assert!(text.contains("The link of this end runs at 100 Mb/s"), "{text}");
        assert!(text.contains("Packets of 1400 bytes get through"), "{text}");
        assert!(text.contains("the link is not what limits"), "{text}");
        let text = findings_text(&good, &bad, 1500, &[]);
        assert!(text.contains("The link of the other end runs at 100 Mb/s"), "{text}");
        assert!(text.contains("9000 bytes and the other end 1500"), "{text}");
    }

    #[test]
    fn loopback_is_reported() {
        let own = Link { name: Some("lo".to_owned()), ..Link::default() };
        let text = findings_text(&own, &own, 65535, &[("up-1", 50e9)]);
        assert!(text.starts_with("Both ends are the same machine"), "{text}");
        assert!(!text.contains("of the link"), "{text}");
    }
}
