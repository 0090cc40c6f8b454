//! Requests of the kernel that wait for a suspended pool.
//!
//! A waiting request does not block others: another thread takes the place of the waiting one. The
//! caller can be killed meanwhile. The kernel lets one process at a time change a directory;
//! requests queued on that lock cannot be interrupted from here.

use std::time::Duration;

use fusedev::RequestContext;
use vfs::{AccessChecks, Context, DoorId, Waiter};

use posix::{Capability, Credentials};

use super::process;

/// The longest time for which the kernel's write-out of mapped pages waits, where sync(2) waits for it: that
/// call cannot be killed, and waits for all file systems of the machine. After that the pages are lost, as
/// with any failed drive, and the next msync(2) or fsync(2) of the file fails.
pub(super) const WRITE_OUT_LIMIT: Duration = Duration::from_secs(5);
/// The bit of SIGKILL among the pending signals of a thread. Every signal that ends it becomes SIGKILL.
const SIGKILL_BIT: u64 = 1 << 8;

/// The caller of a request, and how the request waits.
pub(super) struct Caller<'a> {
    pub(super) credentials: Credentials,
    request: &'a RequestContext<'a>,
    door: DoorId,
    checks: AccessChecks,
    /// Whether the request waits although its caller was killed: the kernel itself is the caller.
    is_uncancellable: bool,
}

impl<'a> Caller<'a> {
    /// The caller of a request. The kernel has checked permissions, and set-ID bits of new files.
    pub(super) fn checked_by_kernel(request: &'a RequestContext<'a>, door: DoorId) -> Self {
        let credentials = if request.uid == 0 {
            Credentials::new(0, request.gid).with_all_capabilities()
        } else {
            Credentials::new(request.uid, request.gid).with_capability(Capability::FileSetId)
        };
        let checks = AccessChecks::DoneByDoor;
        Self { credentials, request, door, checks, is_uncancellable: false }
    }

    /// The caller of a request whose permissions the file system checks.
    pub(super) fn with_own_credentials(request: &'a RequestContext<'a>, door: DoorId) -> Self {
        let credentials = process::credentials(request.pid, request.uid, request.gid);
        let checks = AccessChecks::Enforced;
        Self { credentials, request, door, checks, is_uncancellable: false }
    }

    /// The same caller as access(2) sees it: a user that is not root has no capabilities.
    pub(super) fn with_real_user(self) -> Self {
        if self.request.uid == 0 {
            return self;
        }
        let Credentials { uid, gid, .. } = self.credentials;
        let credentials = Credentials::new(uid, gid).with_groups(self.credentials.groups());
        Self { credentials, ..self }
    }

    /// The same caller, whose change keeps set-ID bits only if `keeps`.
    pub(super) fn keeping_setid(self, keeps: bool) -> Self {
        if keeps {
            return self;
        }
        let credentials = self.credentials.without_capability(Capability::FileSetId);
        Self { credentials, ..self }
    }

    /// The same caller, whose change drops set-ID bits unless the caller is root.
    pub(super) fn dropping_setid(self) -> Self {
        let is_root = self.request.uid == 0;
        self.keeping_setid(is_root)
    }

    /// The same request, which only an unmount cancels.
    pub(super) fn uncancellable(self) -> Self {
        Self { is_uncancellable: true, ..self }
    }

    /// The circumstances of the request.
    pub(super) fn context(&self) -> Context<'_> {
        let context = Context::new(&self.credentials, self.door);
        Context { waiter: Some(self), checks: self.checks, ..context }
    }
}

impl Waiter for Caller<'_> {
    fn is_cancelled(&self) -> bool {
        self.request.is_unmounted() || !self.is_uncancellable && is_killed(self.request.pid)
    }

    fn run_blocking(&self, work: &mut dyn FnMut()) {
        self.request.run_blocking(work);
    }
}

/// Whether a signal has ended a thread that waits for its response. Thread 0 is the kernel.
fn is_killed(thread: u32) -> bool {
    if thread == 0 {
        return false;
    }
    let Ok(status) = std::fs::read_to_string(format!("/proc/{thread}/status")) else {
        return true;
    };
    let mut pending = status.lines().filter_map(|line| {
        let bits = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(bits.trim(), 16).ok()
    });
    pending.any(|bits| bits & SIGKILL_BIT != 0)
}
