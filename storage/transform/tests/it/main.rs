//! What this crate does to blocks, judged by blocks of real pools and by random ones.

mod golden;
mod properties;
