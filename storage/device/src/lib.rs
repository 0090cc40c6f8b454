//! What holds bytes: disks and files.
