//! Requests of our own (kicks): the kernel gives a slot back only with a request, and has a slot that is answered look
//! for requests that wait.
//!
//! A thread that waits for the answer of a file system cannot be killed. If the process is killed meanwhile, nobody
//! answers, and the kernel gives up only when all descriptors of /dev/fuse are closed. So the thread that kicks has
//! no descriptors: it leaves the table that it shares with the others, and closes what its copy has.
//!
//! `unsafe` because closing descriptors by their numbers is: others may rely on them. Its safe twin is a thread that
//! shares the table.
#![allow(unsafe_code)]

use std::fs;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::path::Path;

use parking_lot::Mutex;
use rustix::io::fcntl_getfd;
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::rings::stay_on;
use crate::session::Session;

/// The threads that kick a queue at the moment.
static KICKERS: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// Has a request sent by a queue: a slot of it then looks for requests that wait there.
pub(crate) fn kick(session: &Session, queue: u16) {
    let dir = session.dir().to_owned();
    let ask = move || {
        stay_on(queue);
        // where it must share the table, a kick does all the same
        let _ = leave_descriptors();
        ask_figures(&dir);
    };
    let _ = std::thread::Builder::new().name("fuse kick".to_owned()).spawn(ask);
}

fn ask_figures(dir: &Path) {
    let myself = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
    KICKERS.lock().push(myself);
    // whatever the answer is
    let _ = rustix::fs::statfs(dir);
    KICKERS.lock().retain(|thread| *thread != myself);
}

/// Whether this thread kicks a queue.
pub(crate) fn is_kicker(thread: u32) -> bool {
    KICKERS.lock().contains(&thread)
}

/// Gives this thread a table of descriptors of its own, with nothing in it.
fn leave_descriptors() -> io::Result<()> {
    // SAFETY: from here on this thread opens and closes in a copy of the table; it owns no descriptor, and takes
    // none from others
    unsafe { unshare_unsafe(UnshareFlags::FILES)? };
    let number = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    let open: Vec<RawFd> = fs::read_dir("/proc/thread-self/fd")?.filter_map(number).collect();
    for descriptor in open {
        // SAFETY: this only looks whether it is open: that of the listing is not any more
        let is_open = fcntl_getfd(unsafe { BorrowedFd::borrow_raw(descriptor) }).is_ok();
        if is_open {
            // SAFETY: the table is this thread's alone, and nothing that it does later uses a descriptor of it
            unsafe { rustix::io::close(descriptor) };
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read as _;

    use super::leave_descriptors;

    #[test]
    fn threads_that_kick_have_no_descriptors() {
        let mut file = File::open("/proc/self/exe").unwrap();
        let left = std::thread::spawn(|| {
            leave_descriptors().unwrap();
            let left = std::fs::read_dir("/proc/thread-self/fd").unwrap();
            left.count()
        });
        // that of the listing itself
        assert_eq!(left.join().unwrap(), 1);
        assert_eq!(file.read(&mut [0; 4]).unwrap(), 4, "others have theirs");
    }
}
