//! Clients of a door: holders of locks, open files and leases.

use crate::DoorId;

/// A client of a door: a connection, an NFS client id, an SMB session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId {
    /// The door by which the client comes.
    pub door: DoorId,
    /// The door's number for the client.
    pub client: u64,
}
