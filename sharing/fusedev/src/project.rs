//! The project of a file in a mounted file system, by ioctl_xfs_fsgetxattr(2).
//!
//! The kernel's structure `fsxattr`:
//!
//! ```text
//! offset size field
//! 0      4    xflags; 0x200: new files in the directory inherit its project
//! 4      4    extsize
//! 8      4    nextents
//! 12     4    projid
//! 16     4    cowextsize
//! 20     8    padding
//! ```
#![allow(unsafe_code)]

use std::fs::File;

use rustix::io;
use rustix::ioctl::{Getter, Opcode, Setter, ioctl, opcode};

/// The attributes of a file that chattr(1) sets.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct FsXattr {
    xflags: u32,
    extsize: u32,
    nextents: u32,
    projid: u32,
    cowextsize: u32,
    padding: [u8; 8],
}

const GET: Opcode = opcode::read::<FsXattr>(b'X', 31);
const SET: Opcode = opcode::write::<FsXattr>(b'X', 32);
const PROJECT_INHERIT: u32 = 0x200;

/// The project of a file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileProject {
    /// The project id; 0: no project.
    pub id: u32,
    /// Whether new files in the directory get its project.
    pub is_inherited: bool,
}

impl FileProject {
    /// Reads the project of an open file.
    ///
    /// # Errors
    ///
    /// The file system has no projects.
    pub fn read(file: &File) -> io::Result<Self> {
        let found = read_attributes(file)?;
        Ok(Self { id: found.projid, is_inherited: found.xflags & PROJECT_INHERIT != 0 })
    }

    /// Sets the project of an open file, which may be open to read.
    ///
    /// # Errors
    ///
    /// The file system has no projects, or the user may not change the file.
    pub fn write(self, file: &File) -> io::Result<()> {
        let found = read_attributes(file)?;
        let inherit = if self.is_inherited { PROJECT_INHERIT } else { 0 };
        let xflags = found.xflags & !PROJECT_INHERIT | inherit;
        let new = FsXattr { xflags, projid: self.id, ..found };
        // SAFETY: the kernel reads one `fsxattr`, which has the layout of `FsXattr`
        unsafe { ioctl(file, Setter::<SET, FsXattr>::new(new)) }
    }
}

fn read_attributes(file: &File) -> io::Result<FsXattr> {
    // SAFETY: the kernel writes one `fsxattr`, which has the layout of `FsXattr` and no invalid values
    unsafe { ioctl(file, Getter::<GET, FsXattr>::new()) }
}

#[cfg(test)]
mod tests {
    use super::{FsXattr, GET, SET};

    #[test]
    fn requests_have_the_numbers_of_the_kernel() {
        assert_eq!(size_of::<FsXattr>(), 28);
        assert_eq!((GET, SET), (0x801c_581f, 0x401c_5820));
    }
}
