//! Notices to the kernel without a request: invalidations of its caches.
//!
//! A notice is written to /dev/fuse like a reply, with a notice code in the error field, and 0 in
//! the request number. All fields are of the machine's byte order.
//!
//! ```text
//! offset  size  field
//!      0     4  bytes in all
//!      4     4  2: a node's attributes and content, 3: what a name names
//!      8     8  0
//!     16     8  the node, or the directory
//! of a node:
//!     24     8  the first byte, 32 bytes (8); 0: all; -1: of the attributes alone
//! of a name:
//!     24     4  bytes of the name
//!     28     4  flags: 1 the name stays and expires (EXPIRE_ONLY)
//!     32        the name, and a zero
//! ```
//!
//! Learnt from: Linux's `include/uapi/linux/fuse.h` (protocol 7.45).

use std::fs::File;
use std::io::{self, Write};
use std::sync::{Arc, Weak};

use rustix::io::Errno;

use crate::wire::MessageBuilder;

const NOTIFY_INVAL_INODE: u32 = 2;
const NOTIFY_INVAL_ENTRY: u32 = 3;
const EXPIRE_ONLY: u32 = 1;
const HEADER_LEN: usize = 16;

/// A handle for sending notices, while the file system is mounted.
#[derive(Clone, Debug)]
pub struct Notifier(Weak<File>);

impl Notifier {
    /// By the device of the mount.
    pub fn new(device: &Arc<File>) -> Self {
        Self(Arc::downgrade(device))
    }

    /// Invalidates the attributes and the content of a node. Dirty mapped pages are written out
    /// before that.
    pub fn invalidate_inode(&self, node: u64) -> io::Result<()> {
        let mut message = MessageBuilder::with_capacity(24);
        message.u64(node).u64(0).u64(0);
        self.write_notification(NOTIFY_INVAL_INODE, &message.0)
    }

    /// Invalidates the attributes of a node.
    pub fn invalidate_attributes(&self, node: u64) -> io::Result<()> {
        let mut message = MessageBuilder::with_capacity(24);
        // a range before the first byte is none
        message.u64(node).u64(u64::MAX).u64(0);
        self.write_notification(NOTIFY_INVAL_INODE, &message.0)
    }

    /// Invalidates a name in a directory, also a cached missing name. Mounts on the name are
    /// unmounted.
    pub fn invalidate_entry(&self, dir: u64, name: &[u8]) -> io::Result<()> {
        self.write_entry(dir, name, 0)
    }

    /// Makes the kernel look a name up again before its next use; needs
    /// [`crate::InitFlags::HAS_EXPIRE_ONLY`]. A running lookup may undo that. Mounts on the name
    /// stay.
    pub fn expire_entry(&self, dir: u64, name: &[u8]) -> io::Result<()> {
        self.write_entry(dir, name, EXPIRE_ONLY)
    }

    fn write_entry(&self, dir: u64, name: &[u8], flags: u32) -> io::Result<()> {
        let length = u32::try_from(name.len()).map_err(|_| Errno::NAMETOOLONG)?;
        let mut message = MessageBuilder::with_capacity(17 + name.len());
        message.u64(dir).u32(length).u32(flags).bytes(name).zeros(1);
        self.write_notification(NOTIFY_INVAL_ENTRY, &message.0)
    }

    /// An unknown object needs no invalidation.
    fn write_notification(&self, kind: u32, rest: &[u8]) -> io::Result<()> {
        let Some(device) = self.0.upgrade() else { return Ok(()) };
        let mut message = MessageBuilder::with_capacity(HEADER_LEN + rest.len());
        let length = u32::try_from(HEADER_LEN + rest.len()).unwrap_or(u32::MAX);
        message.u32(length).u32(kind).u64(0).bytes(rest);
        match (&*device).write_all(&message.0) {
            Err(why) if Errno::from_io_error(&why) != Some(Errno::NOENT) => Err(why),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::Arc;

    use super::Notifier;

    #[test]
    fn notices_have_the_shape_that_the_kernel_wants() {
        let path = std::env::temp_dir().join(format!("notices-{}", std::process::id()));
        let device = Arc::new(File::create(&path).unwrap());
        let notices = Notifier::new(&device);
        notices.invalidate_inode(7).unwrap();
        notices.invalidate_entry(9, b"abc").unwrap();
        notices.expire_entry(9, b"abc").unwrap();
        drop(device);
        notices.invalidate_inode(8).unwrap();
        let words =
            |all: &[u32]| all.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>();
        let long = |number: u64| number.to_ne_bytes().to_vec();
        let node = [words(&[40, 2]), long(0), long(7), long(0), long(0)].concat();
        let name = [words(&[36, 3]), long(0), long(9), words(&[3, 0]), b"abc\0".to_vec()].concat();
        let expired =
            [words(&[36, 3]), long(0), long(9), words(&[3, 1]), b"abc\0".to_vec()].concat();
        assert_eq!(std::fs::read(&path).unwrap(), [node, name, expired].concat());
        std::fs::remove_file(path).unwrap();
    }
}
