//! Written blocks are read back: by every method, as gang blocks, over predecessors.

mod flush;
mod writing;
