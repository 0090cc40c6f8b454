//! What the crate promises, tried on pools that real OpenZFS made.

mod compare;
mod crowd;
mod extents;
mod faults;
mod fixtures;
mod made;
mod model;
mod open;
mod pool;
mod posix;
mod random;
mod sound;
mod spaces;
mod theirs;
mod unlinked;
