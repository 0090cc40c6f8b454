//! The circumstances of a request: its caller, the protocol it came by, and how long it may wait.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use posix::Credentials;

use crate::{Access, ClientId, LeaseHolder};

/// The protocol server, or the mount, that a request came by. Changes carry it, so that a door is
/// not notified of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DoorId(u32);

/// Numbers from here on are given to doors that request a unique one.
const FIRST_UNIQUE_DOOR: u32 = 1 << 16;
static NEXT_DOOR: AtomicU32 = AtomicU32::new(FIRST_UNIQUE_DOOR);

impl DoorId {
    /// The daemon itself, for changes without a protocol.
    pub const DAEMON: Self = Self(0);

    /// A door that no other part of the process has: each mount is one.
    pub fn new_unique() -> Self {
        Self(NEXT_DOOR.fetch_add(1, Ordering::Relaxed))
    }

    /// The door of that number.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// The layer that checks the permissions of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessChecks {
    /// The file system checks them against the credentials.
    Enforced,
    /// As `Enforced`, but the owner of a file may read and write it whatever its permissions are
    /// (NFSv3).
    OwnerOverride,
    /// The door has checked them, as the kernel does for a mount with `default_permissions`.
    DoneByDoor,
}

/// A request that may wait for a suspended pool.
pub trait Waiter {
    /// Whether no client waits for the response any more.
    fn is_cancelled(&self) -> bool;

    /// Runs work that blocks for long. A door may start another thread for its requests meanwhile.
    fn run_blocking(&self, work: &mut dyn FnMut());
}

/// The circumstances of a request.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The caller: owner of what the request creates.
    pub credentials: &'a Credentials,
    /// Where the request came from.
    pub door: DoorId,
    /// The door's number for the client; 0 where the door has one client, as a mount has.
    pub client: u64,
    /// The client's key for its leases; 0 where it has one lease per file.
    pub lease_key: u64,
    /// The accesses that other clients are denied while this request has the file open (SMB, NFSv4
    /// OPEN).
    pub deny: Access,
    /// When the door stops waiting for the response; none: never.
    pub deadline: Option<Instant>,
    /// When the request stops waiting for another client that gives a lease back, with [`crate::Error::RecallPending`];
    /// none: when the lease is revoked, or at `deadline`.
    pub recall_deadline: Option<Instant>,
    /// When a request that is not carried out stops waiting for a suspended pool, with [`crate::Error::PoolSuspended`];
    /// none: when the pool resumes, or at `deadline`.
    pub suspend_deadline: Option<Instant>,
    /// How the request waits for a suspended pool; none: the pool's error is the response.
    pub waiter: Option<&'a dyn Waiter>,
    /// The layer that checks permissions.
    pub checks: AccessChecks,
}

impl<'a> Context<'a> {
    /// A request with permission checks, which never waits.
    pub const fn new(credentials: &'a Credentials, door: DoorId) -> Self {
        let checks = AccessChecks::Enforced;
        let (client, lease_key, deny) = (0, 0, Access::NONE);
        let (deadline, recall_deadline, suspend_deadline, waiter) = (None, None, None, None);
        Self {
            credentials,
            door,
            client,
            lease_key,
            deny,
            deadline,
            recall_deadline,
            suspend_deadline,
            waiter,
            checks,
        }
    }

    /// The client of the request.
    pub const fn client_id(&self) -> ClientId {
        ClientId { door: self.door, client: self.client }
    }

    /// The holder of leases that the request does not recall: its own client.
    pub const fn lease_holder(&self) -> LeaseHolder {
        LeaseHolder { client: self.client_id(), key: self.lease_key }
    }

    /// The same request, whose permissions the door has checked.
    #[must_use]
    pub const fn checked_by_door(self) -> Self {
        Self { checks: AccessChecks::DoneByDoor, ..self }
    }

    /// Whether the file system must check permissions.
    pub fn is_enforced(&self) -> bool {
        self.checks != AccessChecks::DoneByDoor
    }

    /// The same request, whose caller may read and write the files it owns whatever their
    /// permissions are.
    #[must_use]
    pub const fn with_owner_override(self) -> Self {
        Self { checks: AccessChecks::OwnerOverride, ..self }
    }

    /// Whether the door has stopped waiting for the response.
    pub(crate) fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
            || self.waiter.is_none_or(Waiter::is_cancelled)
    }
}
