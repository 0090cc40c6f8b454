//! The planner against real pools, published cases, and itself.

mod capacity;
mod created_pools;
mod plan;
