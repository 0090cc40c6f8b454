//! Another way to the same /dev/fuse: a descriptor that takes questions of the same mount, without
//! sharing the list of those under way.
//!
//! `unsafe` because an ioctl's number has to fit its argument, which only we can know:
//! `FUSE_DEV_IOC_CLONE` reads a descriptor's number of 4 bytes. Its safe twin is the first
//! descriptor, which serves as well.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use rustix::ioctl::{Setter, ioctl, opcode};

/// Opens another way to what `first` leads to.
pub(crate) fn clone(first: &File) -> io::Result<File> {
    const CLONE: u32 = opcode::read::<u32>(229, 0);
    let other = File::options().read(true).write(true).open("/dev/fuse")?;
    let number = u32::try_from(first.as_raw_fd()).map_err(io::Error::other)?;
    // SAFETY: the number is that of FUSE_DEV_IOC_CLONE, which reads 4 bytes where it is told to,
    // and those are `number`, which outlives the call
    unsafe { ioctl(&other, Setter::<CLONE, u32>::new(number))? };
    Ok(other)
}
