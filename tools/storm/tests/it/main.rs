//! Power cuts.

mod cuts;
