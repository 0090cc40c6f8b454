//! Loop devices: block devices of the kernel over a file.
//!
//! * [`SyncDevice`] has a page of memory as its file. The kernel forwards sync(2) and syncfs(2) only to FUSE servers
//!   that are mounted from a block device (`mount`). No program reads or writes that device. It goes with the last
//!   descriptor or mount that has it open (`LO_FLAGS_AUTOCLEAR`).
//! * [`LoopDevice`] has a file that this process serves: a volume. The kernel stores on the last close of the device
//!   all pages that programs wrote to it. So the process keeps no descriptor of it open.
//!
//! `LOOP_CONFIGURE` reads this structure, in the machine's byte order. From offset 8 on it is `struct loop_info64`,
//! which `LOOP_GET_STATUS64` and `LOOP_SET_STATUS64` exchange:
//!
//! ```text
//! offset  size  field
//!      0     4  descriptor of the backing file
//!      4     4  block size; 0: 512 bytes
//!      8    52  device, inode, offset, size limit, number, encryption: 0
//!     60     4  flags: 1 read-only, 4 the device is removed at its last close, 8 partitions, 16 direct I/O
//!     64    64  name of the backing file, for losetup(8)
//!    128   176  encryption, reserved: 0
//! ```
//!
//! Learnt from: Linux's `include/uapi/linux/loop.h`.
//!
//! `unsafe` because an ioctl's number has to fit its argument, which only we can know.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;

use rustix::fs::{MemfdFlags, OFlags, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::ioctl::{Getter, Ioctl, IoctlOutput, NoArg, Opcode, Setter, ioctl};

use crate::own_thread::without_descriptors;

const LOOP_CLR_FD: Opcode = 0x4c01;
const LOOP_SET_STATUS64: Opcode = 0x4c04;
const LOOP_GET_STATUS64: Opcode = 0x4c05;
const LOOP_SET_CAPACITY: Opcode = 0x4c07;
const LOOP_CONFIGURE: Opcode = 0x4c0a;
const LOOP_CTL_GET_FREE: Opcode = 0x4c82;
const BLKROSET: Opcode = 0x125d;
/// Another program may take the free device first; then the next one is tried.
const ATTEMPTS: usize = 8;
const CONFIG_BYTES: usize = 304;
/// Bytes of `struct loop_info64`.
const INFO_BYTES: usize = 232;
/// Where `struct loop_info64` begins in the configuration.
const INFO_AT: usize = 8;
const FLAGS_AT: usize = 60;
const NAME_AT: usize = 64;
const LO_FLAGS_READ_ONLY: u32 = 1;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_PARTSCAN: u32 = 8;
const LO_FLAGS_DIRECT_IO: u32 = 16;
/// The kernel's directory of block devices.
const BLOCK_DEVICES_PATH: &str = "/sys/block";

/// A loop device that goes when this and all mounts of it are gone.
pub(crate) struct SyncDevice {
    /// Keeps the device until it is mounted.
    _open: File,
    pub(crate) path: PathBuf,
}

impl SyncDevice {
    /// Sets up a free loop device over a page of memory.
    pub(crate) fn attach() -> io::Result<Self> {
        let backing = memfd_create("poolhouse", MemfdFlags::CLOEXEC)?;
        ftruncate(&backing, u64::try_from(rustix::param::page_size()).map_err(io::Error::other)?)?;
        let config = config(backing.as_raw_fd(), LO_FLAGS_AUTOCLEAR, b"poolhouse");
        let (open, path) = configure_free_device(&config)?;
        Ok(Self { _open: open, path })
    }
}

/// How a [`LoopDevice`] is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopOptions {
    /// The kernel refuses writes.
    pub read_only: bool,
    /// The kernel shows the partitions on the device.
    pub has_partitions: bool,
}

/// Whether a device is detached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DetachOutcome {
    /// The device has no file any more.
    Detached,
    /// A program has the device open, or it is mounted.
    InUse,
}

/// A loop device over a file. It stays when this is dropped, until [`Self::detach`].
///
/// The file may be one that this process serves: no call keeps a descriptor of /dev/fuse open while it waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopDevice {
    path: PathBuf,
}

impl LoopDevice {
    /// Sets up a free loop device over the file `backing`. losetup(8) shows the first 63 bytes of `name`.
    pub fn attach(backing: &Path, name: &str, options: LoopOptions) -> io::Result<Self> {
        let mut flags = LO_FLAGS_DIRECT_IO;
        flags |= if options.read_only { LO_FLAGS_READ_ONLY } else { 0 };
        flags |= if options.has_partitions { LO_FLAGS_PARTSCAN } else { 0 };
        without_descriptors(|| {
            // O_DIRECT
            let direct = i32::try_from(OFlags::DIRECT.bits()).map_err(io::Error::other)?;
            let mut way = File::options();
            way.read(true).write(!options.read_only).custom_flags(direct);
            let backing = way.open(backing)?;
            let config = config(backing.as_raw_fd(), flags, name.as_bytes());
            configure_free_device(&config).map(|(_, path)| Self { path })
        })
    }

    /// The device in /dev.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The device's number, as in `st_rdev`.
    pub fn number(&self) -> io::Result<u64> {
        Ok(fs::metadata(&self.path)?.rdev())
    }

    /// The devices whose files are in a directory.
    pub fn over_files_in(dir: &Path) -> Vec<Self> {
        let Ok(entries) = fs::read_dir(BLOCK_DEVICES_PATH) else { return Vec::new() };
        let is_below = |block: &Path| {
            let backing = fs::read_to_string(block.join("loop/backing_file"));
            backing.is_ok_and(|backing| Path::new(backing.trim_end()).starts_with(dir))
        };
        let found = entries.flatten().filter(|entry| is_below(&entry.path()));
        found.map(|entry| Self { path: Path::new("/dev").join(entry.file_name()) }).collect()
    }

    /// Makes the kernel read the new size of the file `backing`.
    pub fn update_size(&self, backing: &Path) -> io::Result<()> {
        self.with_open(|device| {
            // older kernels use the size that they know, and learn the new one by this
            let _ = fs::metadata(backing);
            // SAFETY: LOOP_SET_CAPACITY has no argument
            unsafe { ioctl(device, NoArg::<LOOP_SET_CAPACITY>::new()) }
        })
    }

    /// Has the kernel refuse writes, or take them again.
    pub fn set_read_only(&self, is_read_only: bool) -> io::Result<()> {
        self.with_open(|device| set_read_only(device, is_read_only))
    }

    /// Takes the file from the device, unless a program has the device open. `force`: in that case the kernel does
    /// so when the last program closes it, and the outcome is still [`DetachOutcome::InUse`].
    pub fn detach(&self, force: bool) -> io::Result<DetachOutcome> {
        self.with_open(|device| {
            // SAFETY: LOOP_CLR_FD has no argument. The kernel detaches the file with the last close: if that is
            // ours, the device has no status any more
            match unsafe { ioctl(device, NoArg::<LOOP_CLR_FD>::new()) } {
                Err(Errno::NXIO) => return Ok(DetachOutcome::Detached),
                done => done?,
            }
            let make_writable = || set_read_only(device, false);
            // SAFETY: LOOP_GET_STATUS64 writes the 232 bytes of `struct loop_info64`
            let status =
                unsafe { ioctl(device, Getter::<LOOP_GET_STATUS64, [u8; INFO_BYTES]>::new()) };
            let mut info = match status {
                Err(Errno::NXIO) => return make_writable().map(|()| DetachOutcome::Detached),
                info => info?,
            };
            if force {
                make_writable()?;
            } else {
                clear_flag(&mut info, LO_FLAGS_AUTOCLEAR);
                // SAFETY: LOOP_SET_STATUS64 reads the 232 bytes of the array, which outlives the call
                unsafe {
                    ioctl(device, Setter::<LOOP_SET_STATUS64, [u8; INFO_BYTES]>::new(info))?;
                }
            }
            Ok(DetachOutcome::InUse)
        })
    }

    fn with_open<T: Send>(
        &self,
        work: impl Fn(&File) -> rustix::io::Result<T> + Send + Sync,
    ) -> io::Result<T> {
        without_descriptors(|| Ok(work(&File::open(&self.path)?)?))
    }
}

/// Makes a block device read-only, or writable. The setting stays until the next call, also when
/// the loop device gets another file.
fn set_read_only(device: &File, is_read_only: bool) -> rustix::io::Result<()> {
    let value = c_int::from(is_read_only);
    // SAFETY: BLKROSET reads an int where it is told to, which outlives the call
    unsafe { ioctl(device, Setter::<BLKROSET, c_int>::new(value)) }
}

/// Configures a free loop device. Returns it with its path.
fn configure_free_device(config: &[u8; CONFIG_BYTES]) -> io::Result<(File, PathBuf)> {
    let control = File::options().read(true).write(true).open("/dev/loop-control")?;
    for _ in 0..ATTEMPTS {
        // SAFETY: LOOP_CTL_GET_FREE has no argument
        let number = unsafe { ioctl(&control, GetFree)? };
        let path = PathBuf::from(format!("/dev/loop{number}"));
        let open = File::options().read(true).write(true).open(&path)?;
        // SAFETY: the number is that of LOOP_CONFIGURE, which reads the 304 bytes of `struct
        // loop_config` where it is told to, and those are the array, which outlives the call
        match unsafe { ioctl(&open, Setter::<LOOP_CONFIGURE, [u8; CONFIG_BYTES]>::new(*config)) } {
            Ok(()) => return Ok((open, path)),
            Err(Errno::BUSY) => {}
            Err(why) => return Err(why.into()),
        }
    }
    Err(Errno::BUSY.into())
}

/// The structure that `LOOP_CONFIGURE` reads.
fn config(backing: i32, flags: u32, name: &[u8]) -> [u8; CONFIG_BYTES] {
    let mut config = [0; CONFIG_BYTES];
    // the last of the 64 bytes of the name is 0
    let name = name.get(..63).unwrap_or(name);
    let fields: [(usize, &[u8]); 3] =
        [(0, &backing.to_ne_bytes()), (FLAGS_AT, &flags.to_ne_bytes()), (NAME_AT, name)];
    for (at, bytes) in fields {
        for (slot, byte) in config.iter_mut().skip(at).zip(bytes) {
            *slot = *byte;
        }
    }
    config
}

fn clear_flag(info: &mut [u8; INFO_BYTES], flag: u32) {
    let clear = !flag;
    for (slot, mask) in info.iter_mut().skip(FLAGS_AT - INFO_AT).zip(clear.to_ne_bytes()) {
        *slot &= mask;
    }
}

/// `LOOP_CTL_GET_FREE`: its result is the number of an unused loop device.
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
    use super::{INFO_AT, INFO_BYTES, LO_FLAGS_AUTOCLEAR, clear_flag, config};

    #[test]
    fn loop_config_has_the_fields_of_the_kernel() {
        let config = config(7, 4, b"poolhouse");
        let word = |at: usize| u32::from_ne_bytes(*config[at..].first_chunk().unwrap());
        assert_eq!((config.len(), word(0), word(4), word(60)), (304, 7, 0, 4));
        assert_eq!(&config[64..74], b"poolhouse\0");
    }

    #[test]
    fn a_long_name_ends_with_a_zero() {
        let config = config(0, 0, &[b'x'; 200]);
        assert_eq!((config[126], config[127], config[128]), (b'x', 0, 0));
    }

    #[test]
    fn clearing_a_flag_keeps_the_others() {
        let config = config(7, 31, b"x");
        let mut info: [u8; INFO_BYTES] = *config[INFO_AT..].first_chunk().unwrap();
        clear_flag(&mut info, LO_FLAGS_AUTOCLEAR);
        assert_eq!(u32::from_ne_bytes(*info[52..].first_chunk().unwrap()), 27);
    }
}
