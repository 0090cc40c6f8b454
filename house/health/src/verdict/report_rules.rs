//! Rules for a drive's own report: its SMART status, failing attributes, NVMe warnings, self-tests
//! and its temperature.

use super::{Evidence, Finding, Grade};
use crate::{Attribute, Protocol, SmartReport};

/// The bits of NVMe's `critical_warning`, with their meaning. Bit 1 is the temperature.
const CRITICAL_WARNINGS: [(u64, &str); 5] = [
    (SPARE_WARNING, "its spare blocks are nearly used up"),
    (0x04, "it is no longer reliable after many media errors"),
    (0x08, "it went read-only"),
    (0x10, "the backup of its volatile memory failed"),
    (0x20, "its persistent memory went read-only"),
];
/// The bit of `critical_warning` for few spare blocks.
const SPARE_WARNING: u64 = 0x01;
/// The bit of `critical_warning` for a temperature outside the limits.
const TEMPERATURE_WARNING: u64 = 0x02;
/// Temperatures in degrees Celsius above which a drive is too hot, if it states no limit itself.
const DISK_LIMIT: i64 = 60;
const SSD_LIMIT: i64 = 70;
const NVME_LIMIT: i64 = 80;

/// Adds the findings of a report.
pub(super) fn find(report: &SmartReport, evidence: &Evidence<'_>, findings: &mut Vec<Finding>) {
    let before = findings.len();
    findings.extend(failing_attributes(report, evidence));
    findings.extend(critical_warning(report, evidence));
    // the attribute or the warning is the reason, and has more detail
    if report.passed == Some(false) && findings.len() == before {
        let sentence = "The drive reports that it fails (SMART status FAILED).".to_owned();
        findings.push(failing("smart_status", 1, sentence, evidence));
    }
    if report.critical_warning & SPARE_WARNING == 0 {
        findings.extend(available_spare(report, evidence));
    }
    findings.extend(self_test(report, evidence));
    findings.extend(temperature(report));
}

fn failing(key: &str, value: u64, sentence: String, evidence: &Evidence<'_>) -> Finding {
    let (key, action) = (key.to_owned(), evidence.replacement());
    Finding { key, value, grade: Grade::Failing, sentence, action, is_noted: false }
}

fn failing_attributes(report: &SmartReport, evidence: &Evidence<'_>) -> Vec<Finding> {
    let failing_now = report.attributes.iter().filter(|attribute| attribute.is_failing);
    let finding = |attribute: &Attribute| {
        let Attribute { id, name, value, threshold, raw, .. } = attribute;
        let sentence = format!(
            "The attribute {name} ({id}) is {value}, at or below its threshold {threshold}; its raw value is {raw}."
        );
        failing(&format!("attribute_{id}"), 1, sentence, evidence)
    };
    failing_now.map(finding).collect()
}

fn critical_warning(report: &SmartReport, evidence: &Evidence<'_>) -> Option<Finding> {
    let warning = report.critical_warning;
    let set = CRITICAL_WARNINGS.iter().filter(|(bit, _)| warning & bit != 0);
    let meanings: Vec<_> = set.map(|(_, meaning)| *meaning).collect();
    let sentence = format!(
        "The drive warns that {} (critical_warning {warning:#04x}).",
        meanings.join(" and ")
    );
    (!meanings.is_empty()).then(|| failing("critical_warning", warning, sentence, evidence))
}

fn available_spare(report: &SmartReport, evidence: &Evidence<'_>) -> Option<Finding> {
    let (spare, threshold) = report.available_spare?;
    let missing = threshold.checked_sub(spare).filter(|missing| *missing > 0)?;
    let sentence = format!(
        "{spare} % of the spare blocks are left, and the drive fails below {threshold} % (available_spare)."
    );
    Some(failing("available_spare", missing, sentence, evidence))
}

fn self_test(report: &SmartReport, evidence: &Evidence<'_>) -> Option<Finding> {
    let test = report.self_test.as_ref().filter(|test| test.passed == Some(false))?;
    let at = test.hours.map_or_else(String::new, |hours| format!(", at {hours} hours"));
    let sentence = format!("The newest self-test ({}{at}) failed: {}.", test.kind, test.result);
    // a later test that fails has a greater number, and so raises the alert again
    Some(failing("self_test", test.hours.unwrap_or(1), sentence, evidence))
}

fn temperature(report: &SmartReport) -> Option<Finding> {
    let (celsius, limit) = too_hot(report)?;
    Some(Finding {
        key: "temperature".to_owned(),
        value: celsius.unsigned_abs(),
        grade: Grade::Watch,
        sentence: format!("The drive has {celsius} °C; its limit is {limit} °C."),
        action: "Check the fans and the air in front of it now.".to_owned(),
        is_noted: false,
    })
}

/// The temperature and its limit, if the drive is too hot now. Past temperatures do not count.
fn too_hot(report: &SmartReport) -> Option<(i64, i64)> {
    let celsius = report.temperature?;
    let usual = match (report.protocol, report.rotation_rate) {
        (Protocol::Nvme, _) => NVME_LIMIT,
        (_, Some(0)) => SSD_LIMIT,
        _ => DISK_LIMIT,
    };
    let limit = report.temperature_limit.unwrap_or(usual);
    let warns = report.critical_warning & TEMPERATURE_WARNING != 0;
    (celsius >= limit || warns).then_some((celsius, limit))
}
