//! New top-level vdevs: their sizes, and their metaslabs.

use geometry::draid::DraidShape;
use geometry::{Expandable, Layout, Raidz, capacity};
use ondisk::label::{Bias, Draid, VdevConfig, VdevKind};
use units::Ashift;

use crate::Error;
use crate::auxiliary::AuxiliaryRole;

/// How the drives of a top-level vdev stand together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VdevLayout {
    /// One drive.
    Single,
    /// All hold the same.
    Mirror,
    /// Rows with this many parity columns.
    Raidz(u32),
    /// Rows with parity, and spares, spread over all drives.
    Draid(DraidLayout),
}

/// The parameters of a dRAID.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DraidLayout {
    /// Parity columns of a row.
    pub parity: u32,
    /// Data columns of a row.
    pub data: u32,
    /// Distributed spares, in drives.
    pub spares: u32,
}

/// A drive that is to be part of a vdev.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceSpec {
    /// Its path.
    pub path: String,
    /// Its bytes.
    pub size: u64,
    /// Whether it is a disk and no file.
    pub is_disk: bool,
}

/// The class of a vdev.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum VdevRole {
    /// Anything.
    #[default]
    Data,
    /// The intent log.
    Log,
    /// Metadata.
    Special,
    /// The tables of deduplication.
    Dedup,
    /// To take the place of drives that fail; part of no vdev.
    Spare,
    /// A cache device; part of no vdev.
    Cache,
}

impl VdevRole {
    /// The role of its drives, if they are part of no vdev.
    pub fn auxiliary_role(self) -> Option<AuxiliaryRole> {
        match self {
            Self::Spare => Some(AuxiliaryRole::Spare),
            Self::Cache => Some(AuxiliaryRole::Cache),
            _ => None,
        }
    }
}

/// The description of a new top-level vdev.
pub fn top_vdev_config(
    shape: VdevLayout,
    drives: &[DeviceSpec],
    ashift: Ashift,
    purpose: VdevRole,
) -> Result<VdevConfig, Error> {
    let mut smallest = u64::MAX;
    for drive in drives {
        let space = capacity::leaf_space(drive.size);
        smallest = smallest.min(space.ok_or_else(|| Error::TooSmall { path: drive.path.clone() })?);
    }
    let mut config = match shape {
        VdevLayout::Single => {
            drives.first().map_or_else(|| VdevConfig::new(VdevKind::Missing), leaf_config)
        }
        VdevLayout::Mirror => VdevConfig::new(VdevKind::Mirror),
        VdevLayout::Raidz(_) => VdevConfig::new(VdevKind::Raidz),
        VdevLayout::Draid(_) => VdevConfig::new(VdevKind::Draid),
    };
    let layout = match shape {
        VdevLayout::Single | VdevLayout::Mirror => Layout::Plain(ashift),
        VdevLayout::Raidz(parity) => {
            config.nparity = Some(parity.into());
            let width = units::narrow::<u32>(drives.len());
            let raidz = Raidz::new(width, parity, ashift)
                .and_then(|raidz| Expandable::new(raidz, &[], None));
            Layout::Raidz(raidz.map_err(|error| Error::VdevLayout { why: error.to_string() })?)
        }
        VdevLayout::Draid(DraidLayout { parity, data, spares }) => {
            let width = units::narrow::<u32>(drives.len());
            let shape = DraidShape::with_fewest_groups(width, data, parity, spares);
            config.nparity = Some(parity.into());
            config.draid = Some(Draid {
                data: data.into(),
                spares: spares.into(),
                groups: shape.groups.into(),
            });
            let draid = geometry::Draid::new(shape, ashift);
            Layout::Draid(draid.map_err(|error| Error::VdevLayout { why: error.to_string() })?)
        }
    };
    if shape != VdevLayout::Single {
        config.children = drives.iter().map(leaf_config).collect();
    }
    let asize = capacity::vdev_space(&layout, smallest);
    config.asize = Some(asize);
    config.ashift = Some(ashift.get().into());
    config.metaslab_shift = Some(capacity::metaslab_shift(asize).into());
    config.is_log = purpose == VdevRole::Log;
    config.bias = match purpose {
        VdevRole::Data | VdevRole::Log | VdevRole::Spare | VdevRole::Cache => None,
        VdevRole::Special => Some(Bias::Special),
        VdevRole::Dedup => Some(Bias::Dedup),
    };
    Ok(config)
}

/// The description of a new drive.
pub(crate) fn leaf_config(drive: &DeviceSpec) -> VdevConfig {
    let kind = if drive.is_disk { VdevKind::Disk } else { VdevKind::File };
    let mut config = VdevConfig::new(kind);
    config.path = Some(drive.path.clone());
    // partitions are not made here: the drive is used as it is given
    config.whole_disk = drive.is_disk.then_some(false);
    config
}
