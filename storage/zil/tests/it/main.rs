//! What was promised is there after a power cut.

mod house;
mod promises;
