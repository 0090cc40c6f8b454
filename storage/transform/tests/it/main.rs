//! Compression, encryption and checksums, tested with blocks of real pools and random blocks.

mod golden;
mod properties;
