//! Verdicts on recorded drives.

use health::{
    Counter, Evidence, Grade, History, Note, Placement, Sample, SmartReport, Verdict, assess,
};

use crate::recordings::report;

const DAY: u64 = 24 * 60 * 60;
const NOW: u64 = 1_800_000_000;

/// A drive that had the same counters for this many days, and these today.
fn history(report: &SmartReport, days: u64, change: &[(Counter, u64, u64)]) -> History {
    let mut history = History::default();
    for day in (0..=days).rev() {
        let mut counters = report.counters.clone();
        for (counter, before, now) in change {
            counters.insert(*counter, if day == 0 { *now } else { *before });
        }
        history.add(Sample { time: NOW - day * DAY, temperature: None, counters });
    }
    history
}

fn verdict_of(report: &SmartReport, history: &History) -> Verdict {
    let place = Placement { pool: "tank", device: "/dev/sdc" };
    let counters = history.samples.last().unwrap().counters.clone();
    assess(&Evidence {
        drive: "S1",
        report: Some(report),
        unreadable: None,
        place: Some(place),
        counters: &counters,
        history,
        now: NOW,
    })
}

fn judge_new(name: &str) -> Verdict {
    let report = report(name);
    verdict_of(&report, &history(&report, 0, &[]))
}

#[test]
fn sound_drives_are_ok() {
    for name in ["smart-ata2", "smart-nvme2", "smart-sat", "smart-ata-failed-scrutiny"] {
        let verdict = judge_new(name);
        assert_eq!((verdict.grade, verdict.findings.len()), (Grade::Ok, 0), "{name}: {verdict:?}");
        assert_eq!(verdict.sentence, "No problem is known.");
    }
}

#[test]
fn failing_drive_names_attribute_and_command() {
    let verdict = judge_new("smart-fail2");
    assert_eq!(verdict.grade, Grade::Failing);
    assert_eq!(
        verdict.sentence,
        "The attribute Reallocated_Sector_Ct (5) is 1, at or below its threshold 5; its raw value is 1975. \
         Replace the drive: poolhouse zpool replace tank /dev/sdc NEW (1 more: poolhouse drives show S1)"
    );
    assert!(verdict.findings.iter().all(|finding| finding.key != "smart_status"));
}

#[test]
fn passed_drive_with_media_errors_is_watched() {
    let verdict = judge_new("smart-nvme-failed");
    assert_eq!(verdict.grade, Grade::Watch);
    assert!(
        verdict.sentence.starts_with("The drive could not read or write 7 times (media_errors")
    );
    let verdict = judge_new("smart-scsi");
    assert_eq!(verdict.grade, Grade::Watch);
    assert!(verdict.sentence.contains("56 defects"), "{}", verdict.sentence);
}

#[test]
fn growth_is_worse_than_an_old_value() {
    let report = report("smart-megaraid1");
    let stable = verdict_of(&report, &history(&report, 60, &[]));
    assert_eq!(stable.grade, Grade::Watch);
    assert!(stable.sentence.contains("(Reallocated_Sector_Ct (5): the same for 30 days)"));
    let grown = [(Counter::ReallocatedSectors, 300, 387)];
    let grown = verdict_of(&report, &history(&report, 12, &grown));
    assert_eq!(grown.grade, Grade::Failing);
    assert!(grown.sentence.contains("300 to 387 in 12 days"), "{}", grown.sentence);
    assert_eq!(verdict_of(&report, &history(&report, 0, &[])).grade, Grade::Failing);
}

#[test]
fn pending_sectors_are_seen_though_smart_passed() {
    let mut report = report("smart-sat");
    report.passed = Some(true);
    let verdict = verdict_of(&report, &history(&report, 3, &[(Counter::PendingSectors, 0, 8)]));
    assert_eq!(verdict.grade, Grade::Watch);
    assert_eq!(
        verdict.sentence,
        "The drive cannot read 8 sectors (Current_Pending_Sector (197): 0 to 8 in 3 days). A scrub rewrites \
         sectors of which the pool has another copy: poolhouse zpool scrub tank"
    );
}

#[test]
fn old_cable_errors_give_no_finding() {
    let report = report("smart-ata-failed-scrutiny");
    assert_eq!(report.counters[&Counter::CrcErrors], 108);
    assert_eq!(verdict_of(&report, &history(&report, 5, &[])).grade, Grade::Ok);
    let grown = [(Counter::CrcErrors, 100, 108)];
    let verdict = verdict_of(&report, &history(&report, 5, &grown));
    assert!(verdict.sentence.contains("Check the data cable"), "{}", verdict.sentence);
}

#[test]
fn noted_findings_return_when_they_grow() {
    let report = report("smart-nvme-failed");
    let mut history = history(&report, 0, &[]);
    let note = Note { value: 7, grade: Grade::Watch, time: NOW };
    history.notes.insert("media_errors".to_owned(), note);
    let verdict = verdict_of(&report, &history);
    assert_eq!((verdict.grade, verdict.findings[0].is_noted), (Grade::Ok, true));
    assert_eq!(verdict.sentence, "No new problem; one is noted.");
    history.samples[0].counters.insert(Counter::MediaErrors, 8);
    assert_eq!(verdict_of(&report, &history).grade, Grade::Watch);
}

#[test]
fn failed_self_tests_and_heat_are_findings() {
    let mut sound = report("smart-ata2");
    sound.temperature = Some(71);
    let verdict = verdict_of(&sound, &history(&sound, 0, &[]));
    assert_eq!((verdict.grade, verdict.findings[0].key.as_str()), (Grade::Watch, "temperature"));
    let mut json = crate::recordings::json("smart-fail2");
    let newest = &mut json["ata_smart_self_test_log"]["standard"]["table"][0]["status"];
    newest["value"] = 121.into();
    let failed = health::parse_report(&json).unwrap();
    let verdict = verdict_of(&failed, &history(&failed, 0, &[]));
    assert!(verdict.findings.iter().any(|finding| finding.key == "self_test"));
}

#[test]
fn nvme_warnings_are_failures() {
    let mut report = report("smart-nvme2");
    report.critical_warning = 0x08;
    report.passed = Some(false);
    let verdict = verdict_of(&report, &history(&report, 0, &[]));
    assert_eq!((verdict.grade, verdict.findings.len()), (Grade::Failing, 1));
    assert!(verdict.sentence.contains("went read-only (critical_warning 0x08)"));
    report.critical_warning = 0;
    report.passed = Some(true);
    report.available_spare = Some((4, 10));
    assert_eq!(verdict_of(&report, &history(&report, 0, &[])).grade, Grade::Failing);
}

#[test]
fn unread_drive_is_unknown_not_ok() {
    let history = History::default();
    let evidence = Evidence {
        drive: "sda",
        report: None,
        unreadable: Some("smartctl is not installed"),
        place: None,
        counters: &std::collections::BTreeMap::new(),
        history: &history,
        now: NOW,
    };
    let verdict = assess(&evidence);
    assert_eq!(verdict.grade, Grade::Unknown);
    assert_eq!(verdict.sentence, "Its health is not known: smartctl is not installed.");
}

#[test]
fn errors_that_the_pool_counted_are_findings() {
    let report = report("smart-ata2");
    let counted = [(Counter::PoolChecksumErrors, 0, 3)];
    let verdict = verdict_of(&report, &history(&report, 1, &counted));
    assert_eq!(verdict.grade, Grade::Watch);
    assert!(verdict.sentence.contains("zpool clear tank /dev/sdc"), "{}", verdict.sentence);
}
