//! The circumstances of a request: its caller, the protocol it came by, and how long it may wait.

use std::time::Instant;

use posix::Credentials;

/// The protocol server, or the mount, that a request came by. Changes carry it, so that a door is not told
/// of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DoorId(u32);

impl DoorId {
    /// The daemon itself, for changes that no protocol asks for.
    pub const DAEMON: Self = Self(0);

    /// The door of that number.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// Who checks the permissions of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessChecks {
    /// The file system checks them against the credentials.
    Enforced,
    /// The door has checked them, as the kernel does for a mount with `default_permissions`.
    DoneByDoor,
}

/// A request that may wait for a suspended pool.
pub trait Waiter {
    /// Whether nobody waits for the response any more.
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
    /// When the door stops waiting for the response; none: never.
    pub deadline: Option<Instant>,
    /// How the request waits for a suspended pool; none: the pool's error is the response.
    pub waiter: Option<&'a dyn Waiter>,
    /// Who checks permissions.
    pub checks: AccessChecks,
}

impl<'a> Context<'a> {
    /// A request whose permissions are checked, and which waits for nothing.
    pub const fn new(credentials: &'a Credentials, door: DoorId) -> Self {
        let checks = AccessChecks::Enforced;
        Self { credentials, door, deadline: None, waiter: None, checks }
    }

    /// The same request, whose permissions the door has checked.
    #[must_use]
    pub const fn checked_by_door(self) -> Self {
        Self { checks: AccessChecks::DoneByDoor, ..self }
    }

    /// Whether the file system must check permissions.
    pub fn is_enforced(&self) -> bool {
        self.checks == AccessChecks::Enforced
    }

    /// Whether the door has stopped waiting for the response.
    pub(crate) fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
            || self.waiter.is_none_or(Waiter::is_cancelled)
    }
}
