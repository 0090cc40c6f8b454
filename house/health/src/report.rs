//! The JSON of `smartctl --json -x` as a [`SmartReport`].
//!
//! ```text
//! device.protocol                       "ATA", "NVMe" or "SCSI"
//! smart_status.passed                   false: the drive itself says that it fails
//! temperature.current                   degrees Celsius; 0 of drives that do not know it
//! ata_smart_attributes.table[]          id, name, value, worst, thresh, when_failed, raw.value, raw.string
//! nvme_smart_health_information_log     critical_warning, available_spare, media_errors, ...
//! scsi_grown_defect_list                a number
//! scsi_error_counter_log.read|write|verify.total_uncorrected_errors
//! ata_smart_self_test_log, nvme_self_test_log, scsi_self_test_0
//! ```
//!
//! A field that is missing or has another type is taken as not reported: firmware and versions of smartctl
//! differ. `raw.value` holds more than the count in some firmware; the count is its low 32 bits.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Counter;

/// The low 32 bits of a raw ATA value, which hold the count.
const RAW_COUNT: u64 = 0xffff_ffff;
/// Temperatures in degrees Celsius that a working drive can have.
const PLAUSIBLE_TEMPERATURES: std::ops::RangeInclusive<i64> = 1..=150;

/// The protocol of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// SATA, also behind USB and SAS.
    Ata,
    /// NVMe.
    Nvme,
    /// SAS and other SCSI drives.
    Scsi,
}

/// A SMART report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SmartReport {
    /// The protocol.
    pub protocol: Protocol,
    /// The model.
    pub model: Option<String>,
    /// The serial number.
    pub serial: Option<String>,
    /// The world wide name, as hexadecimal digits.
    pub wwn: Option<String>,
    /// The version of the firmware.
    pub firmware: Option<String>,
    /// The size in bytes.
    pub size: Option<u64>,
    /// Rotations a minute; 0 of an SSD.
    pub rotation_rate: Option<u64>,
    /// The temperature in degrees Celsius.
    pub temperature: Option<i64>,
    /// The drive's own temperature limit in degrees Celsius.
    pub temperature_limit: Option<i64>,
    /// Hours that it was powered on.
    pub power_on_hours: Option<u64>,
    /// The drive's own verdict; none: it gives none.
    pub passed: Option<bool>,
    /// NVMe: the bits of `critical_warning`.
    pub critical_warning: u64,
    /// NVMe: percent of spare blocks that are left, and the percentage below which the drive fails.
    pub available_spare: Option<(u64, u64)>,
    /// The counters that it reports.
    pub counters: BTreeMap<Counter, u64>,
    /// The ATA attributes.
    pub attributes: Vec<Attribute>,
    /// The newest self-test.
    pub self_test: Option<SelfTest>,
}

/// An ATA attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attribute {
    /// Its number.
    pub id: u64,
    /// Its name in smartctl's database.
    pub name: String,
    /// The normalised value; it falls towards `threshold`.
    pub value: u64,
    /// The lowest value so far.
    pub worst: u64,
    /// The value at which the attribute fails.
    pub threshold: u64,
    /// The raw value as smartctl prints it.
    pub raw: String,
    /// Whether the value is at the threshold or below it now.
    pub is_failing: bool,
}

/// A self-test of a drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelfTest {
    /// "Short offline", "Extended offline".
    pub kind: String,
    /// The result in the drive's words.
    pub result: String,
    /// Whether it passed; none: it runs or was aborted.
    pub passed: Option<bool>,
    /// The hours that the drive had been on.
    pub hours: Option<u64>,
}

/// Reads the JSON of smartctl; nothing if it holds no SMART data.
pub fn parse_report(json: &Value) -> Option<SmartReport> {
    let protocol = match text(json, "/device/protocol")?.as_str() {
        "ATA" => Protocol::Ata,
        "NVMe" => Protocol::Nvme,
        "SCSI" => Protocol::Scsi,
        _ => return None,
    };
    let mut report = SmartReport {
        protocol,
        model: text(json, "/model_name").or_else(|| text(json, "/scsi_model_name")),
        serial: text(json, "/serial_number"),
        wwn: wwn(json),
        firmware: text(json, "/firmware_version").or_else(|| text(json, "/revision")),
        size: number(json, "/user_capacity/bytes"),
        rotation_rate: number(json, "/rotation_rate"),
        temperature: temperature(json),
        temperature_limit: temperature_limit(json),
        power_on_hours: number(json, "/power_on_time/hours"),
        passed: json.pointer("/smart_status/passed").and_then(Value::as_bool),
        critical_warning: 0,
        available_spare: None,
        counters: BTreeMap::new(),
        attributes: Vec::new(),
        self_test: self_test(json),
    };
    match protocol {
        Protocol::Ata => read_ata(json, &mut report),
        Protocol::Nvme => read_nvme(json, &mut report),
        Protocol::Scsi => read_scsi(json, &mut report),
    }
    if let Some(percent) = number(json, "/endurance_used/current_percent") {
        report.counters.insert(Counter::PercentageUsed, percent);
    }
    let has_data = report.passed.is_some()
        || report.temperature.is_some()
        || !report.counters.is_empty()
        || !report.attributes.is_empty();
    has_data.then_some(report)
}

fn read_ata(json: &Value, report: &mut SmartReport) {
    let table = json.pointer("/ata_smart_attributes/table").and_then(Value::as_array);
    for row in table.into_iter().flatten() {
        let Some(id) = number(row, "/id") else { continue };
        let raw = number(row, "/raw/value").unwrap_or(0);
        if let Some(counter) = Counter::from_ata(id) {
            report.counters.insert(counter, raw & RAW_COUNT);
        }
        report.attributes.push(Attribute {
            id,
            name: text(row, "/name").unwrap_or_default(),
            value: number(row, "/value").unwrap_or(0),
            worst: number(row, "/worst").unwrap_or(0),
            threshold: number(row, "/thresh").unwrap_or(0),
            raw: text(row, "/raw/string").unwrap_or_else(|| raw.to_string()),
            is_failing: text(row, "/when_failed").as_deref() == Some("now"),
        });
    }
}

fn read_nvme(json: &Value, report: &mut SmartReport) {
    let Some(log) = json.get("nvme_smart_health_information_log") else { return };
    report.critical_warning = number(log, "/critical_warning").unwrap_or(0);
    report.available_spare =
        number(log, "/available_spare").zip(number(log, "/available_spare_threshold"));
    for (field, counter) in
        [("/media_errors", Counter::MediaErrors), ("/percentage_used", Counter::PercentageUsed)]
    {
        if let Some(value) = number(log, field) {
            report.counters.insert(counter, value);
        }
    }
    report.power_on_hours = report.power_on_hours.or_else(|| number(log, "/power_on_hours"));
}

fn read_scsi(json: &Value, report: &mut SmartReport) {
    if let Some(defects) = number(json, "/scsi_grown_defect_list") {
        report.counters.insert(Counter::GrownDefects, defects);
    }
    let Some(log) = json.get("scsi_error_counter_log").and_then(Value::as_object) else { return };
    let counts = log.values().filter_map(|row| number(row, "/total_uncorrected_errors"));
    let sum = counts.fold(0_u64, |sum, count| sum.wrapping_add(count & RAW_COUNT));
    report.counters.insert(Counter::UncorrectedErrors, sum);
}

/// The temperature. Some SAS drives report 0 and give it in their environmental report.
fn temperature(json: &Value) -> Option<i64> {
    let places = [
        "/temperature/current",
        "/scsi_environmental_reports/temperature_1/current",
        "/nvme_smart_health_information_log/temperature",
    ];
    places.iter().find_map(|place| degrees(json, place))
}

fn temperature_limit(json: &Value) -> Option<i64> {
    ["/temperature/drive_trip", "/temperature/op_limit_max"]
        .iter()
        .find_map(|place| degrees(json, place))
}

fn degrees(json: &Value, place: &str) -> Option<i64> {
    let value = json.pointer(place)?.as_i64()?;
    PLAUSIBLE_TEMPERATURES.contains(&value).then_some(value)
}

/// The newest self-test of the logs.
fn self_test(json: &Value) -> Option<SelfTest> {
    let ata = ["extended", "standard"].iter().find_map(|log| {
        let row = json.pointer(&format!("/ata_smart_self_test_log/{log}/table/0"))?;
        Some(SelfTest {
            kind: text(row, "/type/string").unwrap_or_default(),
            result: text(row, "/status/string").unwrap_or_default(),
            passed: ata_self_test_result(row),
            hours: number(row, "/lifetime_hours"),
        })
    });
    let nvme = || {
        let row = json.pointer("/nvme_self_test_log/table/0")?;
        let result = number(row, "/self_test_result/value")?;
        Some(SelfTest {
            kind: text(row, "/self_test_code/string").unwrap_or_default(),
            result: text(row, "/self_test_result/string").unwrap_or_default(),
            // 1 to 4 and 8 to 15: aborted, or not used
            passed: match result {
                0 => Some(true),
                5..=7 => Some(false),
                _ => None,
            },
            hours: number(row, "/power_on_hours"),
        })
    };
    let scsi = || {
        let row = json.get("scsi_self_test_0")?;
        let result = number(row, "/result/value")?;
        Some(SelfTest {
            kind: text(row, "/code/string").unwrap_or_default(),
            result: text(row, "/result/string").unwrap_or_default(),
            passed: match result {
                0 => Some(true),
                3..=7 => Some(false),
                _ => None,
            },
            hours: number(row, "/power_on_time/hours"),
        })
    };
    ata.or_else(nvme).or_else(scsi)
}

/// The result of an ATA self-test: the high four bits of its status. 1 and 2 are an abort by the host, 15
/// stands for a test that runs.
fn ata_self_test_result(row: &Value) -> Option<bool> {
    match number(row, "/status/value")? >> 4 {
        0 => Some(true),
        3..=8 => Some(false),
        _ => None,
    }
}

/// The WWN as the kernel writes it: NAA, OUI and the vendor's number as 16 digits.
fn wwn(json: &Value) -> Option<String> {
    let part = |name: &str| number(json, &format!("/wwn/{name}"));
    let (naa, oui, id) = (part("naa")?, part("oui")?, part("id")?);
    Some(format!("{:x}{:06x}{:09x}", naa & 0xf, oui & 0xff_ffff, id & 0xf_ffff_ffff))
}

fn text(json: &Value, place: &str) -> Option<String> {
    let text = json.pointer(place)?.as_str()?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn number(json: &Value, place: &str) -> Option<u64> {
    json.pointer(place)?.as_u64()
}
