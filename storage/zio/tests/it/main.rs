//! What is written is read back: by every method, in pieces, over predecessors.

mod flush;
mod writing;
