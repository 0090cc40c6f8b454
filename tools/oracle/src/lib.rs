//! Rounds against the oracle, in two directions.
//!
//! Reading: `recipe.py` writes random recipes, a VM with real OpenZFS makes pools of them, and our
//! reader must show the same content as OpenZFS. Writing: our engine makes random pools
//! ([`random_pool`]), OpenZFS checks and changes them, and we import them again
//! ([`RoundTripRunner::run_rounds`]).
//!
//! [`check_manifest`] compares our manifest of a folder of images with the recorded one, and
//! requires that `verify` finds exactly the planted damage. The rounds themselves are in
//! `tests/it`.
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
