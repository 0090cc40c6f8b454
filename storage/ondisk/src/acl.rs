//! Access control lists: NFSv4 style entries as ZFS stores them, old and new.
