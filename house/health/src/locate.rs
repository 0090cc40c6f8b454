//! Finding a drive in its case: by the locate light of its slot, or by its activity light. And waking a drive.
//!
//! ```text
//! /sys/block/sda/device/enclosure_device:Slot 04/locate    1: the light of the slot is on (SES, SGPIO)
//! no such file                                             the drive is read for a second, and rests for one
//! ```

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::Host;

/// The time of reading, and of the pause after it.
const BLINK: Duration = Duration::from_secs(1);
/// The bytes of a read, and the bytes between two reads: no cache of the drive has the next one.
const READ: usize = 256 << 10;
const STRIDE: u64 = 67 << 20;
/// The alignment in bytes of reads that go past the page cache.
const ALIGNMENT: usize = 4096;

impl Host {
    /// The file of the locate light of a drive's slot, if the enclosure has one.
    pub fn locate_light(&self, drive: &str) -> Option<PathBuf> {
        let dir = self.device_dir(drive);
        let entries = fs::read_dir(dir).ok()?.flatten();
        let slots = entries
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("enclosure_device:"));
        slots.map(|slot| slot.path().join("locate")).find(|light| light.exists())
    }
}

/// Switches a locate light.
pub fn set_light(light: &Path, is_on: bool) -> io::Result<()> {
    fs::write(light, if is_on { "1" } else { "0" })
}

/// Makes the activity light of a drive blink until `is_over`. It wakes the drive, and writes nothing.
pub fn blink_activity(drive: &Path, is_over: impl Fn() -> bool) -> io::Result<()> {
    let (file, size) = open_past_cache(drive)?;
    let mut buffer = vec![0; READ + ALIGNMENT];
    let start = buffer.as_ptr().align_offset(ALIGNMENT);
    let Some(aligned) = buffer.get_mut(start..).and_then(|rest| rest.get_mut(..READ)) else {
        return Err(io::Error::other("no aligned memory"));
    };
    let last = size - size.min(READ as u64);
    let mut offset = 0;
    while !is_over() {
        let end = Instant::now() + BLINK;
        while Instant::now() < end && !is_over() {
            // an unreadable place blinks as well
            let _ = file.read_at(aligned, offset);
            offset = if offset + STRIDE > last { 0 } else { offset + STRIDE };
            thread::sleep(Duration::from_millis(5));
        }
        let end = Instant::now() + BLINK;
        while Instant::now() < end && !is_over() {
            thread::sleep(Duration::from_millis(50));
        }
    }
    Ok(())
}

/// Wakes a drive by a read, and returns once it turns. The place changes, so that no cache of the drive answers.
pub fn wake_drive(drive: &Path, place: u64) -> io::Result<()> {
    let (file, size) = open_past_cache(drive)?;
    let mut buffer = vec![0; 2 * ALIGNMENT];
    let start = buffer.as_ptr().align_offset(ALIGNMENT);
    let Some(aligned) = buffer.get_mut(start..).and_then(|rest| rest.get_mut(..ALIGNMENT)) else {
        return Err(io::Error::other("no aligned memory"));
    };
    let blocks = (size / ALIGNMENT as u64).max(1);
    file.read_exact_at(aligned, place % blocks * ALIGNMENT as u64)
}

/// Opens a drive so that reads reach it, and returns its size in bytes.
fn open_past_cache(drive: &Path) -> io::Result<(File, u64)> {
    let direct = rustix::fs::OFlags::DIRECT.bits();
    let direct = i32::try_from(direct).map_err(|_| io::ErrorKind::Unsupported)?;
    let mut options = OpenOptions::new();
    options.read(true);
    let opened = options.clone().custom_flags(direct).open(drive);
    // file systems of drive files may not have it
    let mut file = opened.or_else(|_| options.open(drive))?;
    let size = io::Seek::seek(&mut file, io::SeekFrom::End(0))?;
    Ok((file, size))
}
