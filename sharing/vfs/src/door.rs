//! Doors: the ways by which clients reach one file system, such as a FUSE mount or an NFS server.
//!
//! A change made through one door is announced to the others; locks and leases say which door holds them.

use std::sync::atomic::{AtomicU32, Ordering};

/// A door into file systems. Each mount and each server of a protocol is one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DoorId(u32);

static NEXT: AtomicU32 = AtomicU32::new(1);

impl DoorId {
    /// The process itself, where no protocol is involved: nothing subscribes under this id.
    pub const INTERNAL: Self = Self(0);

    /// A door that no other part of the process has.
    pub fn new_unique() -> Self {
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A client of a door: a connection, an NFS client id, an SMB session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId {
    /// The door by which the client comes.
    pub door: DoorId,
    /// The door's number for the client.
    pub client: u64,
}
