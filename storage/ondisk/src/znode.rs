//! The legacy znode in a bonus buffer.
