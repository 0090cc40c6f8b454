//! The verdict of a burn-in: a grade and a sentence with the next step.

use serde::{Deserialize, Serialize};

use super::{BurnIn, BurnInPhase, Fault, FaultKind};
use crate::{Counter, Grade};

/// The counters whose growth during a burn-in condemns a new drive.
const MEDIA_COUNTERS: [Counter; 7] = [
    Counter::ReallocatedSectors,
    Counter::PendingSectors,
    Counter::OfflineUncorrectable,
    Counter::ReportedUncorrectable,
    Counter::MediaErrors,
    Counter::GrownDefects,
    Counter::UncorrectedErrors,
];
/// The step after a fault of the drive.
const RETURN_IT: &str = "Do not store data on it; return it.";

/// The verdict of a burn-in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BurnInVerdict {
    /// `Ok`: the drive passed. `Unknown`: the burn-in has not ended.
    pub grade: Grade,
    /// The reason and the next step.
    pub sentence: String,
}

impl BurnIn {
    /// The verdict of the present results.
    pub fn verdict(&self) -> BurnInVerdict {
        let (grade, sentence) = if let Some(fault) = self.worst_fault() {
            (Grade::Failing, format!("{} {RETURN_IT}", self.describe_fault(fault)))
        } else if self.phase != BurnInPhase::Done {
            (Grade::Unknown, "The burn-in has not ended; no fault was found so far.".to_owned())
        } else if let Some((counter, before, after)) = self.grown(&MEDIA_COUNTERS) {
            let fact = format!(
                "{} grew from {before} to {after} during the burn-in.",
                counter.attribute()
            );
            (Grade::Failing, format!("{fact} {RETURN_IT}"))
        } else if self.grade_after == Some(Grade::Failing) {
            let fact = "All data were read back, but the drive's SMART report says that it fails.";
            (Grade::Failing, format!("{fact} {RETURN_IT}"))
        } else if let Some((counter, before, after)) = self.grown(&[Counter::CrcErrors]) {
            let fact = format!(
                "{} grew from {before} to {after} during the burn-in.",
                counter.attribute()
            );
            (Grade::Watch, format!("{fact} Replace its cable, and run the burn-in again."))
        } else {
            (Grade::Ok, self.describe_success())
        };
        BurnInVerdict { grade, sentence }
    }

    /// A misplaced sector tells the most: the drive lies about its size.
    fn worst_fault(&self) -> Option<&Fault> {
        let is_misplaced = |fault: &&Fault| matches!(fault.kind, FaultKind::Misplaced { .. });
        self.faults.iter().find(is_misplaced).or_else(|| self.faults.first())
    }

    fn describe_fault(&self, fault: &Fault) -> String {
        let offset = fault.offset;
        let fact = match &fault.kind {
            FaultKind::Failed { request, why } => {
                format!("A {request} failed at byte {offset}: {why}.")
            }
            FaultKind::Misplaced { written_at } => format!(
                "Byte {offset} returned the data that were written to byte {written_at}: the drive holds less than \
                 the {} bytes that it states, or addresses them wrongly.",
                self.size
            ),
            FaultKind::Lost => {
                format!(
                    "The drive confirmed a write of {} bytes at byte {offset} and lost it.",
                    fault.length
                )
            }
            FaultKind::Damaged => {
                format!(
                    "The drive returned {} damaged bytes at byte {offset}, without an error.",
                    fault.length
                )
            }
        };
        match self.fault_count {
            0 | 1 => fact,
            count if self.has_given_up() => {
                format!("{fact} The burn-in ended after {count} faults.")
            }
            count => format!("{fact} {count} faults in all."),
        }
    }

    fn describe_success(&self) -> String {
        let extent = if self.is_quick { "A sample of the drive" } else { "The whole drive" };
        let smart = if self.counters_before.is_empty() || self.counters_after.is_empty() {
            "Its SMART counters are not known."
        } else {
            "No SMART counter of errors grew."
        };
        format!("{extent} was written and read back without a fault. {smart}")
    }

    /// The first of some counters that grew.
    fn grown(&self, counters: &[Counter]) -> Option<(Counter, u64, u64)> {
        counters.iter().find_map(|counter| {
            let before = *self.counters_before.get(counter)?;
            let after = *self.counters_after.get(counter)?;
            (after > before).then_some((*counter, before, after))
        })
    }
}
