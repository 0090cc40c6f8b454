//! Checks that the drives and vdevs of a new pool are similar enough. Others work, but are seldom
//! intended: the smallest drive of a vdev limits all, and the weakest vdev decides the pool's
//! redundancy.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use device::Device;
use spa::vdev_layout::{VdevLayout, VdevRole};

use super::{NewPool, NewVdev};
use crate::pool::handles::Vdevs;
use crate::{Error, Result};

/// Bytes by which drives of one vdev may differ: those of one model are not all equal.
const SIZE_TOLERANCE: u64 = 16 << 20;

impl Vdevs<'_> {
    /// Refuses larger sectors for a new drive than the vdev has that it comes to. `existing`: a drive of the vdev, or the
    /// vdev. A vdev keeps its sector size, so that smaller ones have no effect.
    pub fn check_ashift(self, existing: &str, ashift: u64) -> Result<()> {
        if !(9..=16).contains(&ashift) {
            return Err(Error::Usage {
                what: format!(
                    "property 'ashift' number {ashift} is invalid, only values between 9 and 16 are allowed."
                ),
            });
        }
        let of_vdev = self.pool.ashift_of(existing)?;
        if of_vdev.is_some_and(|of_vdev| ashift > of_vdev) {
            return Err(Error::Refused {
                what: "new device has a different optimal sector size; use the option '-o ashift=N' to \
                       override the optimal size"
                    .to_owned(),
            });
        }
        Ok(())
    }
}

/// Refuses dissimilar vdevs.
pub(super) fn check_new_pool(new: &NewPool, devices: &[Arc<dyn Device>]) -> Result<()> {
    check_widths(new)?;
    check_kinds(new.vdevs.iter().flat_map(|vdev| &vdev.drives))?;
    let mut rest = devices;
    for vdev in &new.vdevs {
        let (own, others) = rest.split_at_checked(vdev.drives.len()).unwrap_or((rest, &[]));
        rest = others;
        check_sizes(vdev, own)?;
    }
    Ok(())
}

/// Refuses a vdev of dissimilar drives.
pub(super) fn check_vdev(vdev: &NewVdev, devices: &[Arc<dyn Device>]) -> Result<()> {
    check_kinds(&vdev.drives)?;
    check_sizes(vdev, devices)
}

fn mismatch_error(what: &str) -> Error {
    Error::Usage { what: format!("{what}; use -f if that is intended") }
}

/// All mirrors are as wide, and all raidz; dRAIDs hide their width behind their groups.
fn check_widths(new: &NewPool) -> Result<()> {
    let mut widths: BTreeMap<&str, usize> = BTreeMap::new();
    for vdev in new.vdevs.iter().filter(|vdev| vdev.role == VdevRole::Data) {
        let kind = match vdev.layout {
            VdevLayout::Mirror => "mirror",
            VdevLayout::Raidz(_) => "raidz",
            VdevLayout::Draid(_) | VdevLayout::Single => continue,
        };
        let width = vdev.drives.len();
        let first = *widths.entry(kind).or_insert(width);
        if first != width {
            return Err(mismatch_error(&format!(
                "there are {kind}s of {first} and of {width} drives"
            )));
        }
    }
    Ok(())
}

/// Drives are all files, or all disks.
fn check_kinds<'a>(drives: impl IntoIterator<Item = &'a PathBuf>) -> Result<()> {
    let mut drives = drives.into_iter().map(|path| path.is_file());
    let first = drives.next();
    if drives.any(|is_file| Some(is_file) != first) {
        return Err(mismatch_error("some of the drives are files, others are disks"));
    }
    Ok(())
}

fn check_sizes(vdev: &NewVdev, devices: &[Arc<dyn Device>]) -> Result<()> {
    let sizes = || devices.iter().map(|device| device.size());
    let (least, most) = (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0));
    if vdev.layout == VdevLayout::Single || most - least <= SIZE_TOLERANCE {
        return Ok(());
    }
    let smallest = devices.iter().min_by_key(|device| device.size());
    Err(mismatch_error(&format!(
        "drives of one vdev are of unlike sizes, {} to {}, of each of which only as much is used \
         as '{}' has",
        units::human_bytes(least),
        units::human_bytes(most),
        smallest.map_or("", |device| device.name())
    )))
}
