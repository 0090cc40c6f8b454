//! The structures on disk, as plain data.
