//! One block's journey down to the drives and back.
//!
//! [`Reader`] takes a block pointer and gives the block's bytes: found on the first copy that
//! can be read, judged by its checksum, decrypted, decompressed. Nothing that failed its checksum
//! leaves this crate. What lies above asks through the trait [`Source`], so that a cache may
//! stand in between.
#![forbid(unsafe_code)]

mod block;
mod error;
mod gang;
mod reader;
mod sink;
mod source;

pub use block::Block;
pub use error::{CopyFault, Error};
pub use reader::{Examined, Reader};
pub use sink::{Class, Policy, Sink, WriteRequest};
pub use source::{Key, Source};
