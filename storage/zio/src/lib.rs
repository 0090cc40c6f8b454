//! One block's journey down to the drives and back.
//!
//! [`Reader`] takes a block pointer and gives the block's bytes: found on the first copy that
//! can be read, judged by its checksum, decrypted, decompressed. Nothing that failed its checksum
//! leaves this crate. What lies above asks through the trait [`Source`], so that a cache may
//! stand in between.
//!
//! [`Writer`] takes a block and gives the pointer to it: a hole, the block within the pointer, or
//! compressed, ciphered, summed, and written where [`metaslab`] has room. What lies above gives
//! through the trait [`Sink`].
#![forbid(unsafe_code)]

mod aside;
mod batch;
mod block;
mod error;
mod gang;
mod gang_write;
mod healer;
mod log;
pub mod memory;
mod mend;
mod pack;
mod patience;
mod protect;
mod reader;
mod shared;
mod sink;
mod source;
mod trimmed;
mod writer;

pub use aside::Aside;
pub use block::Block;
pub use error::{CopyFault, Error};
pub use healer::Healer;
pub use log::LogRoom;
pub use mend::Mending;
pub use metaslab::Class;
pub use pack::Rounding;
pub use patience::{Patience, is_writing, while_writing};
pub use protect::Random;
pub use reader::{Examined, Reader};
pub use shared::{Fate, Found, Known, Shared};
pub use sink::{Policy, Sink, WriteRequest};
pub use source::{Key, Sought, Source};
pub use trimmed::Trimmed;
pub use writer::{Loader, Writer};
