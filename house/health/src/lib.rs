//! The health of drives: SMART reports, their history, verdicts and the map of bays.
//!
//! ```text
//! inventory   which drives are there           /sys/block, /dev/disk/by-id
//! smartctl    runs smartctl, never wakes       smartctl --json -x -n standby,3 /dev/sda
//! report      its JSON as a SmartReport        ATA, NVMe, SCSI
//! history     samples of a drive, bounded      one JSON file a drive
//! verdict     report + history -> a sentence   Ok, Watch, Failing, Unknown
//! bays        rows and columns of a case       serial number -> bay
//! locate      lights of slots and activity     so that a person finds a drive
//! burn_in     a pattern over a new drive       written, read back, compared
//! power       idle timers and watts            standby after minutes without a request
//! ```
//!
//! The crate knows no pool: the caller passes in how many errors a pool counted on a drive.
#![forbid(unsafe_code)]

mod bays;
mod burn_in;
mod counter;
mod history;
mod inventory;
mod locate;
mod power;
mod report;
mod smartctl;
mod verdict;

pub use bays::{Bay, BayMap};
pub use burn_in::{
    BurnIn, BurnInEnd, BurnInError, BurnInObserver, BurnInPhase, BurnInTarget, BurnInVerdict,
    DirectDrive, Fault, FaultKind, PassSpeed,
};
pub use counter::Counter;
pub use history::{History, HistoryStore, MAX_SAMPLES, Note, Sample, StoreError, drive_file_name};
pub use inventory::{BlockDevice, Host};
pub use locate::{blink_activity, set_light, wake_drive};
pub use power::{IdleTimer, PoolRequests, PowerStep, estimated_milliwatts};
pub use report::{Attribute, Protocol, SelfTest, SmartReport, parse_report};
pub use smartctl::{HungDrives, Reading, SelfTestKind, Smartctl, SmartctlError};
pub use verdict::{Evidence, Finding, Grade, Placement, Verdict, assess};
