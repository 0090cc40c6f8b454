//! Rounds against the oracle: `recipe.py` writes random recipes, a VM with real OpenZFS makes pools
//! of them, and what we read of those must be what OpenZFS shows. The rounds are in `tests/it`.
#![forbid(unsafe_code)]
