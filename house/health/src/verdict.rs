//! The verdict on a drive: one sentence with the attribute, its history, and the next step.
//!
//! A finding is one thing that is wrong. The owner of a drive can note it: then it is shown, but does not count
//! until its value grows or its grade gets worse. A value that is high and has not changed for a month is
//! graded lower than one that grows.

mod counter_rules;
mod report_rules;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::history::DAY;
use crate::{Counter, History, Note, SmartReport};

/// The time over which changes are looked at, in seconds.
const WINDOW: u64 = 30 * DAY;

/// How a drive is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Grade {
    /// No problem is known.
    #[default]
    Ok,
    /// Its health is unknown.
    Unknown,
    /// It needs attention.
    Watch,
    /// It fails, or is about to.
    Failing,
}

impl Grade {
    /// The word in tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unknown => "unknown",
            Self::Watch => "watch",
            Self::Failing => "failing",
        }
    }
}

/// One thing that is wrong with a drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Its name, the same at each look: `pending_sectors`, `smart_status`.
    pub key: String,
    /// The number that grows when it gets worse.
    pub value: u64,
    /// How bad it is.
    pub grade: Grade,
    /// The fact, with the attribute and its history.
    pub sentence: String,
    /// The next step.
    pub action: String,
    /// Whether the owner knows it at this value.
    pub is_noted: bool,
}

/// The verdict on a drive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The grade of the worst finding that is not noted.
    pub grade: Grade,
    /// The worst finding and the next step.
    pub sentence: String,
    /// All findings, the worst first.
    pub findings: Vec<Finding>,
}

/// Where a drive is in a pool, and how many errors the pool counted on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement<'a> {
    /// The pool.
    pub pool: &'a str,
    /// The device as `zpool status` names it.
    pub device: &'a str,
}

/// The inputs of a verdict.
#[derive(Clone, Debug)]
pub struct Evidence<'a> {
    /// The drive as commands name it.
    pub drive: &'a str,
    /// The newest report.
    pub report: Option<&'a SmartReport>,
    /// The reason why there is no report, or why it is old.
    pub unreadable: Option<&'a str>,
    /// The drive's place in a pool.
    pub place: Option<Placement<'a>>,
    /// The present counters: those of the report and those of the pool.
    pub counters: &'a BTreeMap<Counter, u64>,
    /// The samples until now, and the notes.
    pub history: &'a History,
    /// Seconds since 1970.
    pub now: u64,
}

/// The verdict on a drive.
pub fn assess(evidence: &Evidence<'_>) -> Verdict {
    let mut findings = Vec::new();
    if let Some(report) = evidence.report {
        report_rules::find(report, evidence, &mut findings);
    }
    let failing: Vec<_> = findings.iter().map(|finding| finding.key.clone()).collect();
    for (counter, value) in evidence.counters {
        // the attribute that fails is a finding already
        if counter.ata_id().is_some_and(|id| failing.contains(&format!("attribute_{id}"))) {
            continue;
        }
        findings.extend(counter_rules::find(*counter, *value, evidence));
    }
    if let (Some(_), Some(why)) = (evidence.report, evidence.unreadable) {
        findings.push(Finding {
            key: "unreadable".to_owned(),
            value: 1,
            grade: Grade::Watch,
            sentence: format!("The last look at the drive failed: {why}."),
            action: "Check its cable and power, and the kernel's messages: dmesg".to_owned(),
            is_noted: false,
        });
    }
    for finding in &mut findings {
        finding.is_noted =
            evidence.history.notes.get(&finding.key).is_some_and(|note| covers(note, finding));
    }
    findings.sort_by_key(|finding| (finding.is_noted, std::cmp::Reverse(finding.grade)));
    let grade = findings.iter().filter(|finding| !finding.is_noted).map(|finding| finding.grade);
    let is_unknown = evidence.report.is_none();
    let floor = if is_unknown { Grade::Unknown } else { Grade::Ok };
    let grade = grade.max().unwrap_or(floor);
    Verdict { grade, sentence: sentence(&findings, evidence), findings }
}

fn covers(note: &Note, finding: &Finding) -> bool {
    finding.value <= note.value && finding.grade <= note.grade
}

fn sentence(findings: &[Finding], evidence: &Evidence<'_>) -> String {
    let open: Vec<_> = findings.iter().filter(|finding| !finding.is_noted).collect();
    match (open.as_slice(), evidence.unreadable, evidence.report) {
        ([first], _, _) => format!("{} {}", first.sentence, first.action),
        ([first, rest @ ..], _, _) => format!(
            "{} {} ({} more: poolhouse drives show {})",
            first.sentence,
            first.action,
            rest.len(),
            evidence.drive
        ),
        ([], Some(why), None) => format!("Its health is not known: {why}."),
        ([], None, None) => "It has not been read yet.".to_owned(),
        ([], _, Some(_)) => match findings.len() {
            0 => "No problem is known.".to_owned(),
            1 => "No new problem; one is noted.".to_owned(),
            count => format!("No new problem; {count} are noted."),
        },
    }
}

impl Evidence<'_> {
    /// The command that replaces the drive.
    fn replacement(&self) -> String {
        match &self.place {
            Some(Placement { pool, device }) => {
                format!("Replace the drive: poolhouse zpool replace {pool} {device} NEW")
            }
            None => "Use another drive; this one is in no imported pool.".to_owned(),
        }
    }

    fn note_command(&self) -> String {
        format!("poolhouse drives note {}", self.drive)
    }

    /// The change of a counter within the window.
    fn change(&self, counter: Counter) -> Option<crate::history::Change> {
        self.history.change(counter, self.now, WINDOW)
    }
}

/// A time span: "5 hours", "12 days".
fn format_age(seconds: u64) -> String {
    let (count, unit) = match seconds {
        0..7200 => (seconds / 60, "minute"),
        7200..172_800 => (seconds / 3600, "hour"),
        _ => (seconds / DAY, "day"),
    };
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {unit}{plural}")
}
