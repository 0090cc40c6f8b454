//! The kernel interface of a mounted file system: requests, replies, and their transport.
//!
//! ```text
//! request      requests of the kernel, parsed from its messages
//! reply        replies to them
//! init         the first message: the features of both sides
//! mount        mounts /dev/fuse on a folder
//! loop_device  block devices: over a served file, and those that sync(2) needs
//! own_thread   mount(2) and umount(2) on threads that share less with the others
//! notifier     notices without a request
//! project      the project of a file, by ioctl(2)
//! rdev         numbers of special files
//! session      a mounted file system, and the handling of one request
//! readers      the threads that read /dev/fuse, one set for all mounts: any kernel
//! device       requests read from /dev/fuse
//! rings        the threads that take requests from io_uring, for all mounts: since Linux 6.14
//! ring         io_uring, and the memory into which the kernel writes requests
//! kick         requests of our own, which make the kernel give slots back
//! ```
//!
//! io_uring is three times as fast where requests are small: the calling program and the server's
//! thread are on one processor, so that no other has to be woken. Both use the same
//! `request` and `reply`; tests compare them.
//!
//! No thread and no large buffer belongs to a mount: a process with a thousand idle mounts has as many
//! threads as one with a single mount.
//!
//! `unsafe` exists in `ring` and `loop_device`, where the kernel is given addresses, and in `own_thread` and `project`.
#![deny(unsafe_code)]

mod device;
mod init;
mod kick;
mod lock_request;
mod loop_device;
mod mount;
mod notifier;
mod own_thread;
mod project;
mod rdev;
mod readers;
mod reply;
mod request;
mod ring;
mod rings;
mod session;
mod wire;

pub use init::{InitFlags, MAX_REQUEST_BYTES};
pub use lock_request::{LockRequest, LockType};
pub use loop_device::{DetachOutcome, LoopDevice, LoopOptions};
pub use mount::{KernelMountOptions, forwards_sync, mount, remount};
pub use notifier::Notifier;
pub use own_thread::without_descriptors;
pub use project::FileProject;
pub use rdev::decode_dev;
pub use reply::{Attr, CacheTimeouts, DirentBuffer, OpenReply, Reply, Statfs, Timespec};
pub use request::{ForgottenNode, Request, SetTime, SetattrRequest};
pub use session::{ReplyData, RequestContext, RequestHandler, serve};
