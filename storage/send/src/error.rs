//! Why a stream could not be sent or received.

use std::sync::Arc;

/// Why a stream could not be sent or received.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The stream could not be read or written: a pipe was closed, a disk is full.
    #[error("cannot transfer the stream: {why}")]
    Transfer {
        /// The operating system's error.
        why: Arc<std::io::Error>,
    },
    /// The stream ends before its END record (Corrupt).
    #[error("the stream ends too early, after {bytes} bytes")]
    Truncated {
        /// Bytes that were read.
        bytes: u64,
    },
    /// The bytes are not a send stream (Corrupt).
    #[error("the input is not a ZFS send stream")]
    NotAStream,
    /// A record does not follow the format (Corrupt), or is unknown (Unsupported).
    #[error("the record at byte {at} of the stream is invalid: {why}")]
    Record {
        /// Where the record begins, in bytes.
        at: u64,
        /// The rule that it breaks.
        why: ondisk::Error,
    },
    /// The running checksum of the stream differs: it was damaged on its way (Corrupt).
    #[error("the stream is damaged: the checksum is wrong at byte {at}")]
    Checksum {
        /// Where the record with the wrong checksum begins, in bytes.
        at: u64,
    },
    /// A record contradicts those before it (Corrupt).
    #[error("the {record} record of object {object} is invalid: {why}")]
    Invalid {
        /// The record's type.
        record: &'static str,
        /// The object that it is about.
        object: u64,
        /// The rule that it breaks.
        why: &'static str,
    },
    /// This version cannot send or receive that (Unsupported).
    #[error("{what} is not supported")]
    Unsupported {
        /// The feature or kind of stream.
        what: String,
    },
    /// The dataset could not be read or changed.
    #[error(transparent)]
    Object {
        /// Why not.
        #[from]
        why: dmu::Error,
    },
    /// A block could not be read as it is stored.
    #[error(transparent)]
    Block {
        /// Why not.
        #[from]
        why: zio::Error,
    },
    /// The table of the file system's properties could not be read.
    #[error(transparent)]
    Table {
        /// Why not.
        #[from]
        why: zap::Error,
    },
    /// The payload of a record cannot be decompressed (Corrupt).
    #[error("the payload of a {record} record of object {object} is damaged: {why}")]
    Payload {
        /// The record's type.
        record: &'static str,
        /// The object that it is about.
        object: u64,
        /// The operation that failed.
        why: transform::Error,
    },
    /// The pool ended the receive: it is full, suspended, or being exported.
    #[error("{why}")]
    Pool {
        /// The pool's own words.
        why: String,
    },
}

impl From<std::io::Error> for Error {
    fn from(why: std::io::Error) -> Self {
        Self::Transfer { why: Arc::new(why) }
    }
}
