//! Loop devices: block devices of the kernel over a small file in memory.
//!
//! The kernel forwards sync(2) and syncfs(2) only to FUSE servers that are mounted from a block device
//! (`mounting`). Nothing is read from the device or written to it: it only has to be there. It goes with the
//! last descriptor or mount that has it open (`LO_FLAGS_AUTOCLEAR`).
//!
//! `LOOP_CONFIGURE` reads this structure, in the machine's byte order:
//!
//! ```text
//! offset  size  field
//!      0     4  descriptor of the backing file
//!      4     4  block size; 0: 512 bytes
//!      8    52  device, inode, offset, size limit, number, encryption: 0
//!     60     4  flags: 4 the device goes when nobody has it open
//!     64    64  name of the backing file, for losetup(8)
//!    128   176  encryption, reserved: 0
//! ```
//!
//! Learnt from: Linux's `include/uapi/linux/loop.h`.
//!
//! `unsafe` because an ioctl's number has to fit its argument, which only we can know.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::ptr::null_mut;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Setter, ioctl};

const LOOP_CTL_GET_FREE: Opcode = 0x4c82;
const LOOP_CONFIGURE: Opcode = 0x4c0a;
/// Another program may take the free device first; then the next one is tried.
const ATTEMPTS: usize = 8;
const BYTES: usize = 304;
const FLAGS_AT: usize = 60;
const NAME_AT: usize = 64;
const LO_FLAGS_AUTOCLEAR: u32 = 4;

/// A loop device that goes when this and all mounts of it are gone.
pub(crate) struct LoopDevice {
    /// Keeps the device until it is mounted.
    _open: File,
    pub(crate) path: PathBuf,
}

impl LoopDevice {
    /// Sets up a free loop device over a page of memory.
    pub(crate) fn attach() -> io::Result<Self> {
        let control = File::options().read(true).write(true).open("/dev/loop-control")?;
        let backing = memfd_create("poolhouse", MemfdFlags::CLOEXEC)?;
        ftruncate(&backing, u64::try_from(rustix::param::page_size()).map_err(io::Error::other)?)?;
        let config = config(backing.as_raw_fd());
        for _ in 0..ATTEMPTS {
            // SAFETY: LOOP_CTL_GET_FREE has no argument
            let number = unsafe { ioctl(&control, GetFree)? };
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let open = File::options().read(true).write(true).open(&path)?;
            // SAFETY: the number is that of LOOP_CONFIGURE, which reads the 304 bytes of `struct
            // loop_config` where it is told to, and those are the array, which outlives the call
            match unsafe { ioctl(&open, Setter::<LOOP_CONFIGURE, [u8; BYTES]>::new(config)) } {
                Ok(()) => return Ok(Self { _open: open, path }),
                Err(Errno::BUSY) => {}
                Err(why) => return Err(why.into()),
            }
        }
        Err(Errno::BUSY.into())
    }
}

/// The structure that `LOOP_CONFIGURE` reads.
fn config(backing: i32) -> [u8; BYTES] {
    let mut config = [0; BYTES];
    let fields: [(usize, &[u8]); 3] = [
        (0, &backing.to_ne_bytes()),
        (FLAGS_AT, &LO_FLAGS_AUTOCLEAR.to_ne_bytes()),
        (NAME_AT, b"poolhouse"),
    ];
    for (at, bytes) in fields {
        for (slot, byte) in config.iter_mut().skip(at).zip(bytes) {
            *slot = *byte;
        }
    }
    config
}

/// `LOOP_CTL_GET_FREE`: its result is the number of a loop device that nobody uses.
struct GetFree;

// SAFETY: the opcode is that of LOOP_CTL_GET_FREE, which neither reads nor writes memory of ours
unsafe impl Ioctl for GetFree {
    type Output = IoctlOutput;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        LOOP_CTL_GET_FREE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        null_mut()
    }

    unsafe fn output_from_ptr(
        number: IoctlOutput,
        _: *mut c_void,
    ) -> rustix::io::Result<Self::Output> {
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::config;

    #[test]
    fn loop_config_has_the_fields_of_the_kernel() {
        let config = config(7);
        let word = |at: usize| u32::from_ne_bytes(*config[at..].first_chunk().unwrap());
        assert_eq!((config.len(), word(0), word(4), word(60)), (304, 7, 0, 4));
        assert_eq!(&config[64..74], b"poolhouse\0");
    }
}
