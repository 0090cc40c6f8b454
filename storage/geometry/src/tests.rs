//! Properties of all layouts, and figures of real pools.

mod capacity;
mod golden;
mod properties;
