//! Rules for counters: when a value, or its growth, is a finding.
//!
//! The five ATA attributes that Backblaze's drive statistics found to come before failures (5, 187, 188, 197,
//! 198) count from 1 on, without 188: several vendors pack three numbers into its raw value.

use super::{Evidence, Finding, Grade, WINDOW, format_age};
use crate::Counter;
use crate::history::Change;

/// A rule for one counter.
struct Rule {
    /// The value from which the counter is a finding.
    watch_at: u64,
    /// The value from which a drive fails, unless it has been the same for a month.
    fails_at: u64,
    /// The growth within a month from which a drive fails.
    fails_on_growth: u64,
    /// Whether only growth is a finding.
    growth_only: bool,
}

const DEFECTS: Rule = Rule { watch_at: 1, fails_at: 100, fails_on_growth: 10, growth_only: false };
/// The age in seconds from which the sentence mentions that a counter stayed the same.
const MIN_AGE: u64 = 24 * 60 * 60;
const NEVER: u64 = u64::MAX;
const TRANSPORT: Rule =
    Rule { watch_at: 1, fails_at: NEVER, fails_on_growth: NEVER, growth_only: true };
const WEAR: Rule =
    Rule { watch_at: 90, fails_at: NEVER, fails_on_growth: NEVER, growth_only: false };
const COUNTED_BY_POOL: Rule =
    Rule { watch_at: 1, fails_at: NEVER, fails_on_growth: NEVER, growth_only: false };

const fn rule(counter: Counter) -> &'static Rule {
    match counter {
        Counter::ReallocatedSectors
        | Counter::PendingSectors
        | Counter::OfflineUncorrectable
        | Counter::ReportedUncorrectable
        | Counter::SpinRetries
        | Counter::MediaErrors
        | Counter::GrownDefects
        | Counter::UncorrectedErrors => &DEFECTS,
        Counter::CrcErrors => &TRANSPORT,
        Counter::PercentageUsed => &WEAR,
        Counter::PoolReadErrors | Counter::PoolWriteErrors | Counter::PoolChecksumErrors => {
            &COUNTED_BY_POOL
        }
    }
}

/// The finding of a counter, if it is one.
pub(super) fn find(counter: Counter, value: u64, evidence: &Evidence<'_>) -> Option<Finding> {
    let rule = rule(counter);
    let change = evidence.change(counter);
    let growth = change.and_then(|change| value.checked_sub(change.from)).unwrap_or(0);
    if value < rule.watch_at || (rule.growth_only && growth == 0) {
        return None;
    }
    let is_stable = change.is_some_and(|change| change.from == value && change.age >= WINDOW);
    let fails = growth >= rule.fails_on_growth || (value >= rule.fails_at && !is_stable);
    let grade = if fails { Grade::Failing } else { Grade::Watch };
    let fact = fact(counter, value);
    let history = format_history(counter, value, change);
    Some(Finding {
        key: counter.key().to_owned(),
        value,
        grade,
        sentence: format!("{fact} ({history})."),
        action: action(counter, grade, evidence),
        is_noted: false,
    })
}

fn fact(counter: Counter, value: u64) -> String {
    let sectors = if value == 1 { "sector" } else { "sectors" };
    match counter {
        Counter::ReallocatedSectors => {
            format!("The drive replaced {value} {sectors} by spare ones")
        }
        Counter::PendingSectors => format!("The drive cannot read {value} {sectors}"),
        Counter::OfflineUncorrectable => {
            format!("The drive's own scan could not read {value} {sectors}")
        }
        Counter::ReportedUncorrectable | Counter::UncorrectedErrors => {
            format!("Error correction inside the drive failed {value} times")
        }
        Counter::SpinRetries => format!("The drive repeated its spin-up {value} times"),
        Counter::CrcErrors => {
            format!("{value} transfers between drive and controller arrived damaged")
        }
        Counter::MediaErrors => format!("The drive could not read or write {value} times"),
        Counter::PercentageUsed => {
            format!("{value} % of the writes that the drive is rated for are used up")
        }
        Counter::GrownDefects => {
            format!("{value} defects appeared since the drive left the factory")
        }
        Counter::PoolReadErrors => format!("The pool counted {value} failed reads"),
        Counter::PoolWriteErrors => format!("The pool counted {value} failed writes"),
        Counter::PoolChecksumErrors => format!("The pool counted {value} checksum errors"),
    }
}

fn format_history(counter: Counter, value: u64, change: Option<Change>) -> String {
    let attribute = counter.attribute();
    match change {
        Some(Change { from, age }) if from < value => {
            format!("{attribute}: {from} to {value} in {}", format_age(age))
        }
        Some(Change { from, age }) if from == value && age >= MIN_AGE => {
            format!("{attribute}: the same for {}", format_age(age))
        }
        _ => attribute.to_owned(),
    }
}

fn action(counter: Counter, grade: Grade, evidence: &Evidence<'_>) -> String {
    let note = evidence.note_command();
    if grade == Grade::Failing {
        return evidence.replacement();
    }
    match (counter, &evidence.place) {
        (Counter::PendingSectors, Some(place)) => format!(
            "A scrub rewrites sectors of which the pool has another copy: poolhouse zpool scrub {}",
            place.pool
        ),
        (Counter::CrcErrors, _) => {
            format!("Check the data cable; if the number stays, note it: {note}")
        }
        (Counter::PercentageUsed, _) => {
            format!("Plan its replacement; until then note it: {note}")
        }
        (
            Counter::PoolReadErrors | Counter::PoolWriteErrors | Counter::PoolChecksumErrors,
            Some(place),
        ) => format!(
            "Check its cable and power, then reset the counters: poolhouse zpool clear {} {}",
            place.pool, place.device
        ),
        _ => format!("Watch whether the number grows; until then note it: {note}"),
    }
}
