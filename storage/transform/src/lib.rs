//! What a block undergoes: compress, encrypt, checksum.
//!
//! On the way down a block is compressed, then encrypted, then summed; on the way up the sum is
//! judged first, then it is decrypted, then decompressed. Nothing here knows where a block lies
//! or what it means: slices and plain facts come in, slices and verdicts go out.
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
