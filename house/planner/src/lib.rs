//! What a layout of drives gives before they are bought: bytes, speed, safety, cost, pictures.
#![forbid(unsafe_code)]

mod capacity;
mod drives;
mod error;
mod plan;
mod records;
mod words;

pub use capacity::{Account, Capacity, RecordPlan, Rules, Taking, VdevPlan, raidz_efficiency};
pub use drives::{MOST_DRIVES, parse_drives, partition};
pub use error::Error;
pub use plan::{LayoutPlan, Plan, Question, RECORDS};
pub use records::Mix;
pub use words::{Group, Kind, Words};
