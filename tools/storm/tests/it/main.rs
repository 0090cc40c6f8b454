//! Power cuts, and drives that fail.

mod faults;
mod foreign_pools;
mod power_cuts;
