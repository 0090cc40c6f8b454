//! Recorded outputs of smartctl.

use health::{Counter, Protocol, SmartReport, parse_report};
use serde_json::Value;

pub(crate) fn json(name: &str) -> Value {
    let path = format!("{}/tests/data/scrutiny/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

pub(crate) fn report(name: &str) -> SmartReport {
    parse_report(&json(name)).unwrap()
}

#[test]
fn identity_of_drives_is_read() {
    let ata = report("smart-ata2");
    assert_eq!((ata.protocol, ata.rotation_rate), (Protocol::Ata, Some(0)));
    assert_eq!(ata.serial.as_deref(), Some("S24ZN902000L"));
    assert_eq!(ata.wwn.as_deref(), Some("5002538840293c45"));
    assert_eq!((ata.power_on_hours, ata.temperature), (Some(846), Some(32)));
    let nvme = report("smart-nvme2");
    assert_eq!((nvme.protocol, nvme.model.as_deref()), (Protocol::Nvme, Some("Force MP510")));
    let scsi = report("smart-scsi");
    assert_eq!((scsi.protocol, scsi.temperature_limit), (Protocol::Scsi, Some(68)));
    assert_eq!(scsi.counters[&Counter::GrownDefects], 56);
    assert_eq!(scsi.counters[&Counter::UncorrectedErrors], 0);
}

#[test]
fn packed_raw_values_are_not_misread() {
    let report = report("smart-sat");
    // the raw value is 487784477, of which the low byte is the temperature
    assert_eq!(report.temperature, Some(29));
    assert!(report.counters.values().all(|value| *value == 0), "{:?}", report.counters);
}

#[test]
fn zero_degrees_mean_no_temperature() {
    let mut json = json("smart-scsi");
    json["temperature"]["current"] = 0.into();
    assert_eq!(parse_report(&json).unwrap().temperature, None);
    json["scsi_environmental_reports"]["temperature_1"]["current"] = 38.into();
    assert_eq!(parse_report(&json).unwrap().temperature, Some(38));
}

#[test]
fn outputs_without_smart_data_give_no_report() {
    assert_eq!(parse_report(&json("smart-fail")), None);
    assert_eq!(parse_report(&json("smart-raid")), None);
    assert_eq!(parse_report(&Value::Null), None);
}

#[test]
fn fields_of_wrong_types_are_left_out() {
    let original = json("smart-fail2");
    let Value::Object(fields) = &original else { panic!("an object") };
    for name in fields.keys() {
        for wrong in [Value::Null, Value::from(-1), Value::from("x"), Value::from(vec![1, 2])] {
            let mut changed = original.clone();
            changed[name] = wrong;
            // it must only not panic
            let _ = parse_report(&changed);
        }
    }
}
