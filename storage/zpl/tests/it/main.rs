//! Tests of file systems, on pools that real OpenZFS made.

mod compare;
mod concurrency;
mod consistency;
mod extents;
mod faults;
mod fixtures;
mod foreign_datasets;
mod model;
mod new_fs;
mod open;
mod posix;
mod random;
mod test_fs;
mod unlinked;
mod xattr_names;
