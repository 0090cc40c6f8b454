//! Work on a thread that has a working directory or a table of descriptors of its own.
//!
//! * mount(2) is given a relative path as its source (`mounting`): only the thread that calls it may change
//!   its working directory.
//! * umount(2) and syncfs(2) of a mount that this process serves wait, and cannot be killed meanwhile. If the
//!   process is killed just then, the kernel ends the wait as soon as /dev/fuse is closed. The waiting thread
//!   itself must not keep it open.
//!
//! `unsafe` because a thread that shares no descriptors with others could use one that is another file there:
//! the work is given none, and returns none.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;

use rustix::fs::Dir;
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// The numbers below this are standard input, output and error.
const FIRST_OWN: RawFd = 3;

/// Does some work in a directory, which stays that of this work alone.
pub(crate) fn in_directory<T: Send>(
    dir: &Path,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    on_thread(|| {
        // SAFETY: descriptors stay shared; the flag concerns the working directory and the umask
        unsafe { unshare_unsafe(UnshareFlags::FS)? };
        rustix::process::chdir(dir)?;
        work()
    })
}

/// Does some work with a table of descriptors that has standard input, output and error alone. `work` may open
/// and close files, but use none that was open before. If no thread can be had, it is done on this one.
pub fn without_descriptors<T: Send>(work: impl Fn() -> T + Send + Sync) -> T {
    let alone = on_thread(|| {
        leave_descriptors()?;
        Ok(work())
    });
    alone.unwrap_or_else(|_: io::Error| work())
}

/// Gives this thread, which must not use any descriptor that is open, a table of its own that has standard
/// input, output and error alone.
pub(crate) fn leave_descriptors() -> io::Result<()> {
    // SAFETY: the thread uses no descriptor of the shared table
    unsafe { unshare_unsafe(UnshareFlags::FILES)? };
    close_all()
}

fn on_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("mount".to_owned());
        let ended = thread.spawn_scoped(scope, work)?.join();
        ended.map_err(|_| io::Error::other("the thread that mounts and unmounts failed"))?
    })
}

/// Closes all descriptors but the first three in the table of this thread.
fn close_all() -> io::Result<()> {
    let mut dir = Dir::new(File::open("/proc/thread-self/fd")?)?;
    let of_dir = dir.fd()?.as_raw_fd();
    let mut open = Vec::new();
    while let Some(entry) = dir.read() {
        // the others are `.` and `..`
        if let Ok(Ok(number)) = entry?.file_name().to_str().map(str::parse::<RawFd>) {
            open.push(number);
        }
    }
    for number in open.into_iter().filter(|number| *number >= FIRST_OWN && *number != of_dir) {
        // SAFETY: the descriptor is open in this thread's own table, and nothing here uses it
        unsafe { rustix::io::close(number) };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsRawFd;
    use std::thread;

    use super::{in_directory, without_descriptors};

    #[test]
    fn work_has_a_directory_of_its_own() {
        let before = std::env::current_dir().unwrap();
        let inside = in_directory("/proc/self".as_ref(), || fs::read("./stat")).unwrap();
        assert!(!inside.is_empty());
        assert_eq!(std::env::current_dir().unwrap(), before);
    }

    #[test]
    fn work_has_no_descriptors_of_others() {
        let file = File::open("/dev/null").unwrap();
        let path = format!("/proc/thread-self/fd/{}", file.as_raw_fd());
        assert!(fs::exists(&path).unwrap());
        let seen = || (thread::current().name().map(str::to_owned), fs::read_link(&path).ok());
        let (thread, found) = without_descriptors(seen);
        assert_eq!(thread.as_deref(), Some("mount"), "it is not done once more on this thread");
        assert_ne!(found, Some("/dev/null".into()));
        assert!(file.metadata().is_ok(), "it is open where it was opened");
    }
}
