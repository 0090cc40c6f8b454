//! Where the blocks of a removed vdev went.
