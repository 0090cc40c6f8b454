//! The control in a simulated chassis.

use fans::{Controller, Inputs, SensorKind};
use proptest::prelude::*;

use crate::chassis::{Chassis, config};

const SECONDS: f64 = 5.0;
/// The looks of an hour.
const HOUR: usize = 720;

/// The percents of an hour.
fn hour(chassis: &mut Chassis) -> Vec<u64> {
    (0..HOUR).map(|_| chassis.step(SECONDS).percents[0]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn drives_stay_below_their_limit(
        ambient in 5.0..30.0_f64,
        power in proptest::collection::vec(2.0..11.0_f64, 1..12),
        busy in 2.0..11.0_f64,
    ) {
        let mut chassis = Chassis::new(ambient, power);
        for at in 0..4 * HOUR {
            if at == 2 * HOUR {
                // a scrub begins
                chassis.power.iter_mut().for_each(|watts| *watts = busy);
            }
            chassis.step(SECONDS);
            prop_assert!(chassis.hottest() < 50.0, "{} °C at look {at}", chassis.hottest());
        }
    }

    #[test]
    fn steady_load_gives_steady_fans(
        ambient in 5.0..30.0_f64,
        power in proptest::collection::vec(2.0..11.0_f64, 1..12),
    ) {
        let mut chassis = Chassis::new(ambient, power);
        for _ in 0..5 {
            hour(&mut chassis);
        }
        let percents = hour(&mut chassis);
        let (low, high) = (percents.iter().min().unwrap(), percents.iter().max().unwrap());
        // a degree is the resolution of the sensor, and equals a few percent
        prop_assert!(high - low <= 8, "{low} to {high} %");
        let target = 40.0;
        prop_assert!(chassis.hottest() < target + 1.6 || *high == 100, "{} °C", chassis.hottest());
        // no faster than needed
        prop_assert!(chassis.hottest() > target - 1.6 || *low == 20, "{} °C", chassis.hottest());
    }

    #[test]
    fn every_fault_leads_to_full_speed(
        ambient in 5.0..25.0_f64,
        at in 0..HOUR,
        fault in 0..3,
    ) {
        let mut chassis = Chassis::new(ambient, vec![5.0, 6.0]);
        (0..at).for_each(|_| drop(chassis.step(SECONDS)));
        match fault {
            0 => chassis.broken_sensor = Some(1),
            1 => chassis.is_stuck = true,
            _ => chassis.temperatures[0] = 51.0,
        }
        // a sensor may be silent for 30 seconds, and a fan gets three kicks
        let last = (0..8).map(|_| chassis.step(SECONDS)).last().unwrap();
        prop_assert_eq!(last.percents[0], 100);
        prop_assert_eq!(last.faults.len(), 1, "{:?}", last.faults);
    }
}

#[test]
fn fans_begin_fast_and_slow_down_by_steps() {
    let mut chassis = Chassis::new(20.0, vec![5.0]);
    let first: Vec<_> = (0..4).map(|_| chassis.step(SECONDS).percents[0]).collect();
    assert_eq!(first, [95, 90, 85, 80]);
    hour(&mut chassis);
    let slow = chassis.step(SECONDS).percents[0];
    chassis.temperatures[0] = 49.0;
    let fast = (0..6).map(|_| chassis.step(SECONDS).percents[0]).max().unwrap();
    assert!(fast > slow + 20, "{slow} to {fast}");
}

#[test]
fn limit_holds_until_it_is_cooler() {
    let mut controller = Controller::new(&config());
    let mut look = |celsius| {
        let temperatures = vec![(SensorKind::Drive, "drivetemp@0".to_owned(), Some(celsius))];
        controller.step(&Inputs { temperatures, rpm: vec![None], seconds: SECONDS }).faults
    };
    assert!(look(49.0).is_empty());
    assert_eq!(look(50.0), ["a drive is at 50 °C, and its limit is 50 °C"]);
    assert_eq!(look(48.0).len(), 1);
    assert!(look(47.0).is_empty());
}

#[test]
fn missing_sensors_are_faults_pulled_drives_are_not() {
    let mut controller = Controller::new(&config());
    let mut look = |names: &[&str]| {
        let sensor = |name: &&str| (SensorKind::Drive, (*name).to_owned(), Some(30.0));
        let temperatures = names.iter().map(sensor).collect();
        controller.step(&Inputs { temperatures, rpm: vec![None], seconds: SECONDS })
    };
    assert!(look(&["a", "b"]).faults.is_empty());
    assert!(look(&["a"]).faults.is_empty());
    let none = look(&[]);
    assert!(none.faults[0].contains("modprobe drivetemp"), "{:?}", none.faults);
    assert_eq!(none.percents, [100]);
}
