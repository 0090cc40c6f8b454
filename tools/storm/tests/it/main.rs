//! Power cuts, and drives that fail.

mod cuts;
mod faults;
mod taken;
