//! Labels of a device that no pool uses any more: `zpool labelclear`.

use std::path::Path;
use std::sync::Arc;

use device::{Device, File};
use ondisk::label::PoolState;

use crate::{Error, Result};

/// Clears the valid labels of a device, so that no pool is found on it. Refused while a pool uses the device; and,
/// without `force`, where the device is part of an exported pool or of one that may be in use.
pub fn clear_labels(path: &Path, force: bool) -> Result<()> {
    let device: Arc<dyn Device> =
        Arc::new(File::open_exclusive(path).map_err(|error| Error::from_device_error(&error))?);
    let (found, copies) = spa::read_labels(&device);
    let shown = path.display();
    let Some(found) = found else {
        let what = format!("failed to read label from {shown}: the device has no valid label");
        return Err(Error::Refused { what });
    };
    let clear_valid = || to_refusal(spa::auxiliary::clear_labels(&*device, &copies));
    let pool = &found.config.pool;
    let name = pool.name.as_deref().unwrap_or("?");
    let why = match pool.state {
        PoolState::Exported => format!("{shown} is a member of exported pool \"{name}\""),
        PoolState::Active => {
            format!("{shown} is a member of potentially active pool \"{name}\"")
        }
        PoolState::Spare | PoolState::Cache => {
            return to_refusal(spa::auxiliary::clear_auxiliary(&*device, &copies));
        }
        PoolState::Destroyed | PoolState::Unknown(_) => return clear_valid(),
    };
    if force {
        return clear_valid();
    }
    Err(Error::Refused { what: format!("{why}: use '-f' to clear its labels all the same") })
}

fn to_refusal(done: std::result::Result<(), spa::Error>) -> Result<()> {
    done.map_err(|error| Error::Refused { what: error.to_string() })
}
