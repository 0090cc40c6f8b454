//! Predicts a layout of drives before they are bought: bytes, speed, safety, cost, pictures.
//!
//! ```text
//! drives       the drives, and the pool's part of a whole disk
//! pool_layout  the layout, in zpool's words
//! records      the block sizes
//! drive_spec   the properties of a drive
//! capacity     the capacity, to the byte, and the use of the other bytes
//! speed        the speed, and the duration of a resilver
//! safety       the probability of loss
//! simulate     the same, simulated
//! cost         the costs
//! rank         the sensible layouts, and the best for a goal
//! plan         all of that as one object
//! report       as text for a terminal
//! picture      as SVG, and as one HTML page
//! ```
//!
//! Sizes are exact: they come from the arithmetic with which the engine allocates. All else is an
//! estimate, whose assumptions [`Plan::assumptions`] names.
#![forbid(unsafe_code)]

mod capacity;
mod cost;
mod drive_spec;
mod drives;
mod error;
pub mod picture;
mod plan;
mod pool_layout;
mod rank;
mod records;
pub mod report;
mod safety;
mod simulate;
mod speed;

pub use capacity::{
    Capacity, CapacityOptions, RecordPlan, SpaceAccount, SpaceRules, VdevPlan, raidz_efficiency,
};
pub use cost::{Cost, Prices};
pub use drive_spec::{DriveClass, DriveSpec, parse_rate};
pub use drives::{MAX_DRIVES, parse_drives, partition_size};
pub use error::Error;
pub use plan::{LayoutPlan, Plan, PlanRequest, RECORD_SIZES};
pub use pool_layout::{GroupKind, LayoutGroup, PoolLayout};
pub use rank::{Goal, sensible_layouts};
pub use records::RecordMix;
pub use safety::Safety;
pub use simulate::Simulation;
pub use speed::Speed;

/// Bytes of one operation of a resilver at most.
pub(crate) const MAX_RESILVER_IO: f64 = 1_048_576.0;
