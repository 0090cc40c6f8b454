//! Rounds against the oracle: `recipe.py` writes random recipes, a VM with real OpenZFS makes pools
//! of them, and what we read of those must be what OpenZFS shows.
//!
//! [`judge`] sets our manifest of a folder of images against the recorded one, and wants `verify`
//! to find no damage but what was put there. The rounds themselves are in `tests/it`.
#![forbid(unsafe_code)]

mod compare;
mod judge;

pub use compare::differences;
pub use judge::{Error, judge};
