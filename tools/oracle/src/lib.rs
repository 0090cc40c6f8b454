//! Rounds against the oracle, in two directions.
//!
//! Reading: `recipe.py` writes random recipes, a VM with real OpenZFS makes pools of them, and what
//! we read of those must be what OpenZFS shows. Writing: our engine makes random pools ([`random_pool`]),
//! OpenZFS judges them and goes on with them, and we take them back ([`RoundTripRunner::run_rounds`]).
//!
//! [`check_manifest`] sets our manifest of a folder of images against the recorded one, and wants `verify`
//! to find no damage but what was put there. The rounds themselves are in `tests/it`.
#![forbid(unsafe_code)]

mod compare;
mod manifest_check;
pub mod random_pool;
mod round_trip;
mod vm;

pub use compare::differences;
pub use manifest_check::{Error, check_manifest};
pub use round_trip::{RoundTripRunner, zdb_errors};
pub use vm::Vm;
