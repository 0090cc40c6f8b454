//! Shared mappings of files, as mmap(2) makes them.
//!
//! `unsafe` because a mapping is an address of the kernel's. It is sound while no other reference
//! to the bytes exists in this process, and while the file is not shorter than the writes.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::{copy_nonoverlapping, null_mut};

unsafe extern "C" {
    fn mmap(
        at: *mut c_void,
        length: usize,
        rights: c_int,
        how: c_int,
        file: c_int,
        offset: i64,
    ) -> *mut c_void;
    fn munmap(at: *mut c_void, length: usize) -> c_int;
    fn msync(at: *mut c_void, length: usize, how: c_int) -> c_int;
}

const READ_WRITE: c_int = 3;
const SHARED: c_int = 1;
const MS_SYNC: c_int = 4;

/// The first bytes of a file, mapped to be read and written. It keeps the file open for the kernel.
pub(crate) struct Mapping {
    start: *mut c_void,
    length: usize,
}

impl Mapping {
    pub(crate) fn new(file: &File, length: usize) -> io::Result<Self> {
        // SAFETY: the kernel chooses an address that nothing else uses
        let start = unsafe { mmap(null_mut(), length, READ_WRITE, SHARED, file.as_raw_fd(), 0) };
        // MAP_FAILED
        if start.addr() == usize::MAX {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { start, length })
    }

    pub(crate) fn length(&self) -> u64 {
        self.length.try_into().unwrap()
    }

    /// Changes bytes that the file has.
    pub(crate) fn write(&mut self, at: usize, bytes: &[u8]) {
        assert!(at.checked_add(bytes.len()).is_some_and(|end| end <= self.length));
        // SAFETY: the range is within the mapping, and only this has its address
        unsafe {
            let to = self.start.cast::<u8>().add(at);
            copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    pub(crate) fn sync(&mut self) -> io::Result<()> {
        // SAFETY: the range is that of the mapping
        let done = unsafe { msync(self.start, self.length, MS_SYNC) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is that of the mapping, whose address is unused afterwards
        let _ = unsafe { munmap(self.start, self.length) };
    }
}
