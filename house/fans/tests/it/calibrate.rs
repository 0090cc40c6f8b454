//! The calibration of fans.

use fans::calibrate;

/// A fan that stops below one percent and starts at another.
fn fan(stops: u64, starts: u64) -> impl FnMut(u64) -> Result<u64, String> {
    let mut turns = true;
    move |percent| {
        turns = if turns { percent >= stops } else { percent >= starts };
        Ok(if turns { percent * 12 + 300 } else { 0 })
    }
}

#[test]
fn stop_and_start_are_found() {
    let found = calibrate(fan(22, 38)).unwrap();
    assert_eq!((found.stop, found.start, found.min()), (25, 40, 30));
    assert_eq!(found.curve.first(), Some(&(100, 1500)));
    assert_eq!(found.curve.last(), Some(&(20, 0)));
    let endless = calibrate(fan(0, 0)).unwrap();
    assert_eq!((endless.stop, endless.start, endless.min()), (0, 0, 0));
    assert_eq!(calibrate(fan(60, 100)).unwrap().start, 100);
}

#[test]
fn silent_fan_and_heat_end_it() {
    assert!(calibrate(|_| Ok(0)).unwrap_err().contains("check its plug"));
    let hot = |percent| if percent < 50 { Err("too hot".to_owned()) } else { Ok(900) };
    assert_eq!(calibrate(hot).unwrap_err(), "too hot");
}
