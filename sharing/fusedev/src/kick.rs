//! Requests of our own (kicks): the kernel gives a slot back only with a request, and has a slot that is answered look
//! for requests that wait.
//!
//! A thread that waits for the reply of a file system cannot be killed. If the process is killed
//! meanwhile, no reply comes, and the kernel aborts only when all descriptors of /dev/fuse are
//! closed. So the thread that kicks has no descriptors (`own_thread`).

use std::path::Path;

use parking_lot::Mutex;

use crate::own_thread::leave_descriptors;
use crate::rings::pin_to_cpu;
use crate::session::Session;

/// The threads that kick a queue at the moment.
static KICKERS: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// Has a request sent by a queue: a slot of it then looks for requests that wait there.
pub(crate) fn kick(session: &Session, queue: u16) {
    let dir = session.dir().to_owned();
    let ask = move || {
        pin_to_cpu(queue);
        // where it must share the table, a kick does all the same
        let _ = leave_descriptors();
        query_statfs(&dir);
    };
    let _ = std::thread::Builder::new().name("fuse kick".to_owned()).spawn(ask);
}

fn query_statfs(dir: &Path) {
    let myself = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
    KICKERS.lock().push(myself);
    // the reply does not matter
    let _ = rustix::fs::statfs(dir);
    KICKERS.lock().retain(|thread| *thread != myself);
}

/// Whether this thread kicks a queue.
pub(crate) fn is_kicker(thread: u32) -> bool {
    KICKERS.lock().contains(&thread)
}
