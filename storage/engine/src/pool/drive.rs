//! Drives, and parts of them, opened for pools on open devices.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use device::{Device, DeviceSlice, File};

use crate::{Error, Result};

/// A drive that is open.
pub type Drive = Arc<dyn Device>;

/// Opens a drive exclusively, whatever its content is; with `part`, these bytes of it as a
/// drive of their own, like a partition.
pub fn open_drive(path: &Path, part: Option<Range<u64>>) -> Result<Drive> {
    let file = File::open_exclusive(path).map_err(|error| Error::from_device_error(&error))?;
    let whole: Drive = Arc::new(file);
    Ok(match part {
        None => whole,
        Some(part) => {
            let size = part.end - part.start;
            Arc::new(DeviceSlice::new(path.display().to_string(), whole, part.start, size))
        }
    })
}
