//! The planner against real pools, published cases, and itself.

mod capacity;
mod made;
mod plan;
