//! Rounds against the oracle, in two directions.
//!
//! Reading: `recipe.py` writes random recipes, a VM with real OpenZFS makes pools of them, and what
//! we read of those must be what OpenZFS shows. Writing: our engine makes random pools ([`ours`]),
//! OpenZFS judges them and goes on with them, and we take them back ([`Tools::trips`]).
//!
//! [`judge`] sets our manifest of a folder of images against the recorded one, and wants `verify`
//! to find no damage but what was put there. The rounds themselves are in `tests/it`.
#![forbid(unsafe_code)]

mod compare;
mod judge;
pub mod ours;
mod trip;
mod vm;

pub use compare::differences;
pub use judge::{Error, judge};
pub use trip::{Tools, zdb};
pub use vm::Vm;
