//! What all layouts must keep to, and what real pools showed.

mod capacity;
mod golden;
mod properties;
