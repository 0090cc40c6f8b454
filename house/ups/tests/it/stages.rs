//! The stages of a power failure.

use ups::{PowerSource, PowerWatch, Reading, Stage, Thresholds};

fn reading(source: PowerSource) -> Reading {
    Reading {
        source,
        is_battery_low: false,
        is_forced_shutdown: false,
        needs_battery: false,
        charge: Some(90),
        runtime: Some(1800),
        load: None,
        model: None,
        status: String::new(),
    }
}

fn line() -> Reading {
    reading(PowerSource::Line)
}

fn battery() -> Reading {
    reading(PowerSource::Battery)
}

const LIMITS: Thresholds = Thresholds {
    quiet_after: 60,
    shutdown_after: 0,
    shutdown_charge: 20,
    shutdown_runtime: 300,
    resume_after: 30,
    dead_time: 15,
};

/// The stages after each of some readings, at the given seconds.
fn stages(limits: &Thresholds, looks: &[(u64, Option<Reading>)]) -> Vec<Stage> {
    let mut watch = PowerWatch::default();
    looks.iter().map(|(now, reading)| watch.observe(reading.as_ref(), limits, *now)).collect()
}

#[test]
fn short_outage_only_warns() {
    let looks =
        [(0, Some(line())), (5, Some(battery())), (64, Some(battery())), (65, Some(line()))];
    let resumed = [(94, Some(line())), (95, Some(line()))];
    let looks: Vec<_> = looks.into_iter().chain(resumed).collect();
    let (normal, warned) = (Stage::Normal, Stage::OnBattery);
    let found = stages(&LIMITS, &looks);
    assert_eq!(found, [normal, warned, warned, warned, warned, normal]);
}

#[test]
fn each_limit_leads_to_the_shutdown() {
    let after = |change: fn(&mut Reading)| {
        let mut last = battery();
        change(&mut last);
        stages(&LIMITS, &[(0, Some(battery())), (60, Some(battery())), (61, Some(last))])
    };
    let shut_down = [Stage::OnBattery, Stage::Quiet, Stage::ShutDown];
    assert_eq!(after(|it| it.charge = Some(20)), shut_down);
    assert_eq!(after(|it| it.runtime = Some(300)), shut_down);
    assert_eq!(after(|it| it.is_battery_low = true), shut_down);
    assert_eq!(after(|it| it.is_forced_shutdown = true), shut_down);
    // a UPS that estimates nothing
    let blind = |it: &mut Reading| (it.charge, it.runtime) = (None, None);
    assert_eq!(after(blind), [Stage::OnBattery, Stage::Quiet, Stage::Quiet]);
    let limits = Thresholds { shutdown_after: 61, ..LIMITS };
    let found =
        stages(&limits, &[(0, Some(battery())), (60, Some(battery())), (61, Some(battery()))]);
    assert_eq!(found, shut_down);
}

#[test]
fn forced_shutdown_counts_on_line_power() {
    let forced = Reading { is_forced_shutdown: true, ..line() };
    assert_eq!(stages(&LIMITS, &[(0, Some(line())), (5, Some(forced))])[1], Stage::ShutDown);
}

#[test]
fn silence_on_battery_leads_to_the_shutdown() {
    let looks = [(0, Some(battery())), (14, None), (15, None)];
    assert_eq!(stages(&LIMITS, &looks)[1..], [Stage::OnBattery, Stage::ShutDown]);
    // on line power it only is unknown
    let looks = [(0, None), (5, Some(line())), (5000, None)];
    assert_eq!(stages(&LIMITS, &looks), [Stage::Normal; 3]);
}

#[test]
fn shutdown_ends_after_stable_line_power() {
    let low = Reading { is_battery_low: true, ..battery() };
    let looks = [(0, Some(low)), (5, Some(line())), (20, Some(battery())), (25, Some(line()))];
    let later = [(54, Some(line())), (55, Some(line()))];
    let looks: Vec<_> = looks.into_iter().chain(later).collect();
    let found = stages(&LIMITS, &looks);
    assert_eq!(found[..5], [Stage::ShutDown; 5]);
    assert_eq!(found[5], Stage::Normal);
}
