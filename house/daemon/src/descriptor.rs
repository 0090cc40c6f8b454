//! Passing a file descriptor to the daemon, so that a stream's bytes need not pass through HTTP.
//!
//! The command listens on a Unix socket in the daemon's private folder and names it in its request. The
//! daemon connects once and is sent the descriptor (SCM_RIGHTS) with one byte. From then on the daemon
//! reads the stream from the command's standard input, or writes it to its standard output.
//!
//! A user who may not write to that folder listens in the folder of temporary files. The daemon takes a descriptor only
//! from the user of the request.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::cancel::Cancel;
use crate::{Error, Result, StateDir};

/// How often a transfer that waits looks whether it is cancelled.
const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// A descriptor of this process that the daemon may fetch, once.
#[derive(Debug)]
pub struct OfferedDescriptor {
    path: PathBuf,
    sender: Option<JoinHandle<()>>,
}

impl OfferedDescriptor {
    /// Offers a descriptor to the daemon at a place.
    pub fn new(place: &StateDir, descriptor: OwnedFd) -> Result<Self> {
        let name = format!("stream-{}", std::process::id());
        let own = place.socket().with_file_name(&name);
        let in_own = place.create_dirs().and_then(|()| listen(&own));
        let (path, listener) = if let Ok(listener) = in_own {
            (own, listener)
        } else {
            let path = std::env::temp_dir().join(format!("poolhouse-{name}"));
            let listener = listen(&path)?;
            (path, listener)
        };
        let failed = |why: io::Error| Error::file_error(&path, &why);
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&path, mode).map_err(failed)?;
        let sender = std::thread::spawn(move || {
            if let Ok((stream, _)) = listener.accept() {
                // the daemon reports the missing descriptor
                let _ = send_descriptor(&stream, &descriptor);
            }
        });
        Ok(Self { path, sender: Some(sender) })
    }

    /// The socket at which it is offered.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for OfferedDescriptor {
    fn drop(&mut self) {
        // wakes the thread if no call fetched the descriptor
        drop(UnixStream::connect(&self.path));
        let _ = std::fs::remove_file(&self.path);
        if let Some(sender) = self.sender.take() {
            let _ = sender.join();
        }
    }
}

/// Listens at a path, in place of an ended process with this number.
fn listen(path: &Path) -> Result<UnixListener> {
    let _ = std::fs::remove_file(path);
    UnixListener::bind(path).map_err(|why| Error::file_error(path, &why))
}

fn send_descriptor(stream: &UnixStream, descriptor: &OwnedFd) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(stream, &[IoSlice::new(b"d")], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Fetches the descriptor that a command of a user offers.
pub(crate) fn fetch(path: &Path, uid: u32) -> Result<File> {
    let failed = |why: io::Error| Error::file_error(path, &why);
    let stream = UnixStream::connect(path).map_err(failed)?;
    let peer = rustix::net::sockopt::socket_peercred(&stream).map_err(|why| failed(why.into()))?;
    if peer.uid.as_raw() != uid {
        let why = "another user listens there";
        return Err(failed(io::Error::new(io::ErrorKind::PermissionDenied, why)));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    recvmsg(&stream, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)
        .map_err(|why| failed(why.into()))?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message
            && let Some(descriptor) = descriptors.next()
        {
            return Ok(File::from(descriptor));
        }
    }
    Err(failed(io::Error::new(io::ErrorKind::InvalidData, "no descriptor was passed")))
}

/// A descriptor whose transfers end when the request is cancelled.
pub(crate) struct CancellableFile<'a> {
    file: File,
    cancel: &'a Cancel,
}

impl<'a> CancellableFile<'a> {
    pub(crate) fn new(file: File, cancel: &'a Cancel) -> Self {
        Self { file, cancel }
    }

    /// Waits until bytes can be transferred.
    fn wait(&self, direction: PollFlags) -> io::Result<()> {
        loop {
            if self.cancel.is_cancelled() {
                let why = "the command that transfers it was stopped";
                return Err(io::Error::new(io::ErrorKind::ConnectionAborted, why));
            }
            let mut polled = [PollFd::new(&self.file, direction)];
            match poll(&mut polled, Some(&POLL_INTERVAL)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(why) => return Err(why.into()),
            }
        }
    }
}

impl Read for CancellableFile<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.wait(PollFlags::IN)?;
        self.file.read(into)
    }
}

impl Write for CancellableFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wait(PollFlags::OUT)?;
        // a ready pipe takes this many bytes without blocking
        self.file.write(bytes.get(..4096).unwrap_or(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::OwnedFd;

    use super::{CancellableFile, OfferedDescriptor, fetch};
    use crate::StateDir;
    use crate::cancel::Cancel;

    fn place(name: &str) -> StateDir {
        let dir = std::env::temp_dir().join(format!("ph-fd-{name}-{}", std::process::id()));
        StateDir::from_dir(&dir).unwrap()
    }

    #[test]
    fn descriptor_reaches_the_other_side() {
        let place = place("passed");
        let (mut ours, theirs) = std::io::pipe().unwrap();
        let other = OwnedFd::from(theirs.try_clone().unwrap());
        let offered = OfferedDescriptor::new(&place, other).unwrap();
        let uid = rustix::process::getuid().as_raw();
        assert!(fetch(offered.path(), uid + 1).is_err());
        drop(offered);
        let offered = OfferedDescriptor::new(&place, OwnedFd::from(theirs)).unwrap();
        let mut fetched = fetch(offered.path(), uid).unwrap();
        drop(offered);
        fetched.write_all(b"hello").unwrap();
        drop(fetched);
        let mut text = String::new();
        ours.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
        std::fs::remove_dir_all(place.socket().parent().unwrap()).unwrap();
    }

    #[test]
    fn unfetched_descriptor_leaves_nothing_behind() {
        let place = place("unfetched");
        let (_ours, theirs) = std::io::pipe().unwrap();
        let offered = OfferedDescriptor::new(&place, OwnedFd::from(theirs)).unwrap();
        let path = offered.path().to_owned();
        drop(offered);
        assert!(!path.exists() && fetch(&path, 0).is_err());
        std::fs::remove_dir_all(place.socket().parent().unwrap()).unwrap();
    }

    #[test]
    fn cancelled_transfer_ends() {
        let (ours, _theirs) = std::io::pipe().unwrap();
        let cancel = Cancel::default();
        drop(cancel.on_drop());
        let file = std::fs::File::from(OwnedFd::from(ours));
        let error = CancellableFile::new(file, &cancel).read(&mut [0; 9]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionAborted);
    }
}
