//! GRANTED: a lock that a client waited for is its own now.
//!
//! ```text
//! the client says            the lock
//! GRANTED                    stays
//! another status             ends: the client does not wait any more
//! nothing, but has the call  stays: the client may have taken it. If it has not, it requests the lock again
//! does not get the call      stays for a minute, in which the call is repeated, and clients request again
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use vfs::LockKind;

use super::Inner;
use super::callbacks::Job;
use super::state::OwnedLock;
use crate::rpc_client::{Host, Outcome};
use crate::wire::nlm::{self, LockStatus};
use crate::wire::portmap::Transport;
use crate::wire::xdr::{Reader, Writer};

/// The pauses between the attempts to reach a client.
const RETRY_PAUSE: Duration = Duration::from_secs(10);
/// The attempts to reach a client. Linux requests the lock again after 30 s by itself.
const MAX_ATTEMPTS: u32 = 6;

/// A further attempt to call a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retry {
    pub(super) due: Instant,
    attempts: u32,
}

/// The facts of a call.
pub(super) struct GrantedCall {
    pub(super) lock: OwnedLock,
    pub(super) kind: LockKind,
    pub(super) transport: Transport,
}

/// Tells a client that a wait has ended, and does with the lock as it replies.
pub(super) fn call_granted(inner: &Arc<Inner>, host: Host, (client, wait): (u64, u64)) {
    // the client may have ended the wait meanwhile
    let Some(call) = inner.tables.lock().granted_call(client, wait) else { return };
    let mut arguments = Writer::default();
    // the cookie: the client repeats it
    let cookie = wait.to_be_bytes();
    let is_exclusive = call.kind == LockKind::Exclusive;
    nlm::write_granted(&mut arguments, &cookie, is_exclusive, &call.lock.as_wire());
    let procedure = (nlm::PROGRAM, nlm::VERSION, nlm::GRANTED);
    // a second copy would be answered as if the client did not wait
    let outcome = host.call(call.transport, procedure, (arguments.as_bytes(), false));
    let status = match outcome {
        Outcome::NotSent => None,
        Outcome::NoReply => Some(LockStatus::Granted as u32),
        Outcome::Reply(results) => nlm::parse_result(&mut Reader::new(&results)).ok(),
    };
    let is_later = status.is_none_or(|it| it == LockStatus::DeniedGracePeriod as u32);
    let mut tables = inner.tables.lock();
    if is_later && tables.retry_granted(client, wait) {
        return;
    }
    let removed = tables.end_wait(client, wait, status == Some(LockStatus::Granted as u32));
    drop(tables);
    drop(removed);
}

impl Retry {
    /// The next attempt after another one; none: there were enough.
    pub(super) fn after(before: Option<Self>) -> Option<Self> {
        let attempts = before.map_or(1, |retry| retry.attempts + 1);
        (attempts < MAX_ATTEMPTS).then(|| Self { due: Instant::now() + RETRY_PAUSE, attempts })
    }
}

impl Inner {
    /// Repeats the calls to clients that could not be reached.
    pub(super) fn retry_granted_calls(self: &Arc<Self>) {
        let due = self.tables.lock().due_granted_calls(Instant::now());
        for (host, client, wait) in due {
            self.queue_call(host, Job::Granted { client, wait });
        }
        self.start_callback_thread();
    }
}
