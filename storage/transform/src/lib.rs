//! Compression, encryption and checksums of blocks.
//!
//! A write compresses a block, encrypts it and computes its checksum. A read verifies the checksum,
//! decrypts and decompresses. This crate knows neither addresses nor the meaning of a block: it
//! works on slices.
//!
//! * [`compress`]: the five methods and their framings on disk;
//! * [`checksum`]: the sums in a block pointer, and those a block carries within itself;
//! * [`crypt`]: from a passphrase to the plaintext of one block, and codes over trees of blocks.
#![forbid(unsafe_code)]

pub mod checksum;
pub mod compress;
pub mod crypt;
mod error;

pub use error::Error;
