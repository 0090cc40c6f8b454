//! Changes to a pool whose drives have failed: where it says so (failmode=wait), who asks for one
//! waits until the pool is cleared, and can be killed meanwhile. Those who read are not kept
//! waiting by them: others take the place of the threads that wait. (The kernel has one at a time
//! change a folder; who waits there for another's turn is out of reach.)

use std::time::{Duration, Instant};

use fusedev::RequestContext;
use rustix::io::Errno;
use vfs::{Error, Reason};

use super::FileSystemServer;
use crate::convert::to_errno;

/// How often is looked whether the pool goes on, and whether the caller still wants it.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// So often at most is it tried with a pool that does not stand still.
const MAX_RETRIES: u32 = 5;
/// How long the kernel's own write-out of mapped pages waits where sync(2) waits for it: that call cannot be
/// killed, and waits for all file systems of the machine. Then the pages are lost, as with any drive that fails,
/// and the next msync(2) or fsync(2) of the file fails.
const WRITE_OUT_LIMIT: Duration = Duration::from_secs(5);
/// The bit of SIGKILL among a thread's pending signals: every signal that ends it becomes that.
const SIGKILL_BIT: u64 = 1 << 8;

impl FileSystemServer {
    /// Does something that can be done twice, at once or when the pool goes on.
    pub(super) fn retry_while_suspended<T>(
        &self,
        asker: &RequestContext<'_>,
        work: impl Fn() -> Result<T, Error>,
    ) -> Result<T, Errno> {
        self.retry_once_while_suspended(asker, &work, &work)
    }

    /// Does something, at once or when the pool goes on. Where it was done, and is only not sure to
    /// outlast a power cut, `settle` sees to that, and gives what came of it: done twice it would fail.
    pub(super) fn retry_once_while_suspended<T>(
        &self,
        asker: &RequestContext<'_>,
        work: impl Fn() -> Result<T, Error>,
        settle: impl Fn() -> Result<T, Error>,
    ) -> Result<T, Errno> {
        let is_wanted = || !asker.is_unmounted() && !is_killed(asker.pid);
        let mut done = work();
        if self.is_retryable(&done) {
            let again = |is_done: bool| if is_done { settle() } else { work() };
            done = asker.run_blocking(|| self.wait_for_resume(is_wanted, done, again));
        }
        done.map_err(|why| to_errno(&why))
    }

    /// Writes out pages that a program changed through a mapping, at once or when the pool goes on.
    pub(super) fn write_out(
        &self,
        asker: &RequestContext<'_>,
        work: impl Fn() -> Result<(), Error>,
    ) -> Result<(), Errno> {
        if !self.sync_waits {
            return self.retry_while_suspended(asker, work);
        }
        let last = Instant::now() + WRITE_OUT_LIMIT;
        let is_wanted = || !asker.is_unmounted() && Instant::now() < last;
        let mut done = work();
        if self.is_retryable(&done) {
            done = asker.run_blocking(|| self.wait_for_resume(is_wanted, done, |_| work()));
        }
        done.map_err(|why| to_errno(&why))
    }

    fn wait_for_resume<T>(
        &self,
        is_wanted: impl Fn() -> bool,
        first: Result<T, Error>,
        again: impl Fn(bool) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let (mut done, mut tries) = (first, 0);
        while self.is_retryable(&done) && tries < MAX_RETRIES && is_wanted() {
            // it may have been cleared just now
            tries += u32::from(!self.fs.is_suspended());
            std::thread::sleep(RETRY_INTERVAL);
            done = again(matches!(done, Err(Error::Refused { reason: Reason::NotCommitted })));
        }
        done
    }

    fn is_retryable<T>(&self, answer: &Result<T, Error>) -> bool {
        let Err(Error::Refused { reason }) = answer else { return false };
        matches!(reason, Reason::Suspended | Reason::NotCommitted) && self.fs.has_failmode_wait()
    }
}

/// Whether a signal has ended a thread, which is still waiting for its answer. The kernel itself
/// is nobody.
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
