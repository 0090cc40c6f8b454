//! Datasets as streams, both ways: OpenZFS's send and receive.
//!
//! A sender ([`send`]) walks a snapshot and writes a record for each object, block and hole. With a
//! base snapshot it writes only the changes since that snapshot's txg. A receiver ([`Receiver`])
//! applies the records to the object set of a dataset that has no other user. [`StreamReader`]
//! verifies the running checksum. It returns a record only after the checksum behind its payload
//! has been verified.
//!
//! This crate knows object sets and records. It knows nothing of names, snapshots and properties:
//! those are the caller's, as is beginning and ending a received dataset.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

mod data;
mod describe;
mod digest;
mod error;
mod features;
mod objects;
mod overlay;
mod queue;
mod raw;
mod reader;
mod receiver;
mod redact;
mod redaction;
mod sender;
mod walk;
mod writer;

pub use describe::describe_record;
pub use digest::{ContentDigest, content_digest};
pub use error::Error;
pub use features::{FeatureFacts, SendOptions, stream_features};
pub use reader::{StreamReader, VerifiedRecord};
pub use receiver::{BeginTx, Receiver, check_receivable, decompress_write, resume_point};
pub use redact::redacted_blocks;
pub use redaction::Redaction;
pub use sender::{ResumePoint, SendBase, SendSource, StoredBlocks, send};
pub use writer::StreamWriter;

/// The result of sending or receiving.
pub type Result<T> = std::result::Result<T, Error>;
