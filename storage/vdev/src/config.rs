//! From the pool's description of a vdev to a node that can be read.

use std::sync::Arc;

use device::Device;
use geometry::draid::DraidShape;
use geometry::{Draid, Expandable, Layout, Raidz, Reflow, capacity};
use ondisk::label::{VdevConfig, VdevKind};
use units::{Ashift, Guid, Txg};

use crate::indirect::Indirect;
use crate::leaf::usable_space;
use crate::{DistributedSpare, Error, Leaf, NodeKind, VdevNode};

/// A device that was found for a leaf.
#[derive(Clone, Debug)]
pub struct LeafDevice {
    /// The device.
    pub device: Arc<dyn Device>,
    /// The newest txg that its labels know of.
    pub label_txg: Txg,
}

/// What is known when a tree is built, besides the pool's description of it.
pub struct BuildContext<'a> {
    /// Finds the device of a leaf.
    pub find_device: &'a dyn Fn(Guid) -> Option<LeafDevice>,
    /// How far a running raidz expansion has come, as the uberblock says.
    pub reflow: Reflow,
}

/// Bytes of its address space that a top-level vdev must have: its metaslabs (`vdev_get_min_asize`).
pub fn min_asize(top: &VdevConfig) -> u64 {
    let shift = top.metaslab_shift.unwrap_or(0).min(63);
    (top.asize.unwrap_or(0) >> shift) << shift
}

impl VdevNode {
    /// Builds the node that `config` describes, with all below it. A drive that is to be written and has
    /// become too small counts as missing: its last labels would come to lie where blocks are.
    pub fn build(config: &VdevConfig, around: &BuildContext<'_>) -> Result<Self, Error> {
        // only top-level vdevs say it
        let ashift = config.ashift.and_then(Ashift::new).unwrap_or(Ashift::MIN);
        let mut node = Self::build_node(config, around, ashift)?;
        let (layout, needed) = (node.layout(), min_asize(config));
        node.drop_unfit_devices(&|device| {
            !device.is_writable() || capacity::vdev_space(&layout, usable_space(device)) >= needed
        });
        Ok(node)
    }

    /// How it lays out blocks, as a top-level vdev.
    pub fn layout(&self) -> Layout {
        match &self.kind {
            NodeKind::Raidz(raidz, _) => Layout::Raidz((**raidz).clone()),
            NodeKind::Draid(draid, _) => Layout::Draid((**draid).clone()),
            _ => Layout::Plain(self.ashift()),
        }
    }

    /// Leaves without those of their devices that do not fit.
    fn drop_unfit_devices(&mut self, fits: &dyn Fn(&dyn Device) -> bool) {
        if let NodeKind::Leaf(leaf) = &mut self.kind
            && leaf.device().is_some_and(|device| !fits(&**device))
        {
            let (guid, path, ashift) = (leaf.guid(), leaf.path().to_owned(), leaf.ashift());
            *leaf = Arc::new(Leaf::new(guid, path, None, Txg::ZERO).with_ashift(ashift));
        }
        self.children_mut().iter_mut().for_each(|child| child.drop_unfit_devices(fits));
    }

    fn build_node(
        config: &VdevConfig,
        around: &BuildContext<'_>,
        ashift: Ashift,
    ) -> Result<Self, Error> {
        let children = || {
            let each = |child| Self::build_node(child, around, ashift);
            config.children.iter().map(each).collect::<Result<Vec<_>, _>>()
        };
        let kind = match &config.kind {
            VdevKind::Disk | VdevKind::File => build_leaf(config, around, ashift),
            VdevKind::Mirror => NodeKind::Mirror(children()?),
            VdevKind::Replacing => NodeKind::Replacing(children()?),
            VdevKind::Spare => NodeKind::Spare(children()?),
            VdevKind::Raidz => build_raidz(config, around, children()?)?,
            VdevKind::Draid => build_draid(config, children()?)?,
            VdevKind::DraidSpare => {
                let id = config.spare_id.and_then(|id| u32::try_from(id).ok());
                let name = config.path.clone().unwrap_or_default();
                id.map_or(NodeKind::Missing, |id| {
                    NodeKind::DistributedSpare(DistributedSpare::new(config.guid, id, name))
                })
            }
            VdevKind::Indirect => NodeKind::Indirect(Indirect::default()),
            VdevKind::Hole => NodeKind::Hole,
            VdevKind::Missing => NodeKind::Missing,
            VdevKind::Root | VdevKind::Cache | VdevKind::Unknown(_) => {
                return Err(Error::UnknownKind(config.kind.name().to_owned()));
            }
        };
        Ok(Self { guid: config.guid, kind })
    }
}

fn build_leaf(config: &VdevConfig, around: &BuildContext<'_>, ashift: Ashift) -> NodeKind {
    let path = config.path.clone().unwrap_or_default();
    let found = (around.find_device)(config.guid);
    let synced = found.as_ref().map_or(Txg::ZERO, |found| found.label_txg);
    let device = found.map(|found| found.device);
    NodeKind::Leaf(Arc::new(Leaf::new(config.guid, path, device, synced).with_ashift(ashift)))
}

fn build_raidz(
    config: &VdevConfig,
    around: &BuildContext<'_>,
    children: Vec<VdevNode>,
) -> Result<NodeKind, Error> {
    let ashift = config_ashift(config)?;
    let shape = Raidz::new(to_u32(config.children.len()), config_parity(config), ashift);
    let reflow = config.raidz_expanding.then_some(around.reflow);
    let expandable = shape
        .and_then(|now| Expandable::new(now, &config.raidz_expand_txgs, reflow))
        .map_err(|error| layout_error(config, &error))?;
    Ok(NodeKind::Raidz(Box::new(expandable), children))
}

fn build_draid(config: &VdevConfig, children: Vec<VdevNode>) -> Result<NodeKind, Error> {
    let ashift = config_ashift(config)?;
    let Some(said) = config.draid else {
        return Err(Error::InvalidConfig {
            guid: config.guid,
            why: "a dRAID without shape".to_owned(),
        });
    };
    let narrow = |number| u32::try_from(number).unwrap_or(u32::MAX);
    let shape = DraidShape {
        children: to_u32(config.children.len()),
        data: narrow(said.data),
        parity: config_parity(config),
        spares: narrow(said.spares),
        groups: narrow(said.groups),
    };
    let draid = Draid::new(shape, ashift).map_err(|error| layout_error(config, &error))?;
    Ok(NodeKind::Draid(Box::new(draid), children))
}

fn config_ashift(config: &VdevConfig) -> Result<Ashift, Error> {
    let found = config.ashift.unwrap_or(0);
    let why = || format!("its sector size is 2^{found} bytes");
    Ashift::new(found).ok_or_else(|| Error::InvalidConfig { guid: config.guid, why: why() })
}

fn config_parity(config: &VdevConfig) -> u32 {
    config.nparity.and_then(|parity| u32::try_from(parity).ok()).unwrap_or(1)
}

fn to_u32(count: usize) -> u32 {
    units::narrow::<u32>(count)
}

fn layout_error(config: &VdevConfig, error: &geometry::Error) -> Error {
    Error::InvalidConfig { guid: config.guid, why: error.to_string() }
}
