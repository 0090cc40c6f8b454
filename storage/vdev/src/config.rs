//! From the pool's description of a vdev to a node that can be read.

use std::sync::Arc;

use device::Device;
use geometry::draid::DraidShape;
use geometry::{Draid, Expandable, Layout, Raidz, Reflow, capacity};
use ondisk::label::{VdevConfig, VdevKind};
use units::{Ashift, Guid, Txg};

use crate::indirect::Indirect;
use crate::leaf::space;
use crate::{Error, Kind, Leaf, Node};

/// A device that was found for a leaf.
#[derive(Clone, Debug)]
pub struct FoundLeaf {
    /// The device.
    pub device: Arc<dyn Device>,
    /// The newest txg that its labels know of.
    pub synced: Txg,
}

/// What is known when a tree is built, besides the pool's description of it.
pub struct Surroundings<'a> {
    /// Finds the device of a leaf.
    pub find: &'a dyn Fn(Guid) -> Option<FoundLeaf>,
    /// How far a running raidz expansion has come, as the uberblock says.
    pub reflow: Reflow,
}

/// Bytes of its address space that a top-level vdev must have: its metaslabs (`vdev_get_min_asize`).
pub fn needed_space(top: &VdevConfig) -> u64 {
    let shift = top.metaslab_shift.unwrap_or(0).min(63);
    (top.asize.unwrap_or(0) >> shift) << shift
}

impl Node {
    /// Builds the node that `config` describes, with all below it. A drive that is to be written and has
    /// become too small counts as missing: its last labels would come to lie where blocks are.
    pub fn build(config: &VdevConfig, around: &Surroundings<'_>) -> Result<Self, Error> {
        // only top-level vdevs say it
        let ashift = config.ashift.and_then(Ashift::new).unwrap_or(Ashift::MIN);
        let mut node = Self::build_below(config, around, ashift)?;
        let (layout, needed) = (node.layout(), needed_space(config));
        node.keep_devices(&|device| {
            !device.is_writable() || capacity::vdev_space(&layout, space(device)) >= needed
        });
        Ok(node)
    }

    /// How it lays out blocks, as a top-level vdev.
    pub fn layout(&self) -> Layout {
        match &self.kind {
            Kind::Raidz(raidz, _) => Layout::Raidz((**raidz).clone()),
            Kind::Draid(draid, _) => Layout::Draid((**draid).clone()),
            _ => Layout::Plain(self.ashift()),
        }
    }

    /// Leaves without those of their devices that do not fit.
    fn keep_devices(&mut self, fits: &dyn Fn(&dyn Device) -> bool) {
        if let Kind::Leaf(leaf) = &mut self.kind
            && leaf.device().is_some_and(|device| !fits(&**device))
        {
            let (guid, path, ashift) = (leaf.guid(), leaf.path().to_owned(), leaf.ashift());
            *leaf = Arc::new(Leaf::new(guid, path, None, Txg::ZERO).with_ashift(ashift));
        }
        self.children_mut().iter_mut().for_each(|child| child.keep_devices(fits));
    }

    fn build_below(
        config: &VdevConfig,
        around: &Surroundings<'_>,
        ashift: Ashift,
    ) -> Result<Self, Error> {
        let children = || {
            let each = |child| Self::build_below(child, around, ashift);
            config.children.iter().map(each).collect::<Result<Vec<_>, _>>()
        };
        let kind = match &config.kind {
            VdevKind::Disk | VdevKind::File => leaf(config, around, ashift),
            VdevKind::Mirror => Kind::Mirror(children()?),
            VdevKind::Replacing => Kind::Replacing(children()?),
            VdevKind::Spare => Kind::Spare(children()?),
            VdevKind::Raidz => raidz(config, around, children()?)?,
            VdevKind::Draid => draid(config, children()?)?,
            VdevKind::DraidSpare => {
                let id = config.spare_id.and_then(|id| u32::try_from(id).ok());
                id.map_or(Kind::Missing, Kind::DistributedSpare)
            }
            VdevKind::Indirect => Kind::Indirect(Indirect::default()),
            VdevKind::Hole => Kind::Hole,
            VdevKind::Missing => Kind::Missing,
            VdevKind::Root | VdevKind::Cache | VdevKind::Unknown(_) => {
                return Err(Error::UnknownKind(config.kind.name().to_owned()));
            }
        };
        Ok(Self { guid: config.guid, kind })
    }
}

fn leaf(config: &VdevConfig, around: &Surroundings<'_>, ashift: Ashift) -> Kind {
    let path = config.path.clone().unwrap_or_default();
    let found = (around.find)(config.guid);
    let synced = found.as_ref().map_or(Txg::ZERO, |found| found.synced);
    let device = found.map(|found| found.device);
    Kind::Leaf(Arc::new(Leaf::new(config.guid, path, device, synced).with_ashift(ashift)))
}

fn raidz(
    config: &VdevConfig,
    around: &Surroundings<'_>,
    children: Vec<Node>,
) -> Result<Kind, Error> {
    let ashift = ashift(config)?;
    let shape = Raidz::new(small(config.children.len()), parity(config), ashift);
    let reflow = config.raidz_expanding.then_some(around.reflow);
    let expandable = shape
        .and_then(|now| Expandable::new(now, &config.raidz_expand_txgs, reflow))
        .map_err(|error| impossible(config, &error))?;
    Ok(Kind::Raidz(Box::new(expandable), children))
}

fn draid(config: &VdevConfig, children: Vec<Node>) -> Result<Kind, Error> {
    let ashift = ashift(config)?;
    let Some(said) = config.draid else {
        return Err(Error::Config { guid: config.guid, why: "a dRAID without shape".to_owned() });
    };
    let narrow = |number| u32::try_from(number).unwrap_or(u32::MAX);
    let shape = DraidShape {
        children: small(config.children.len()),
        data: narrow(said.data),
        parity: parity(config),
        spares: narrow(said.spares),
        groups: narrow(said.groups),
    };
    let draid = Draid::new(shape, ashift).map_err(|error| impossible(config, &error))?;
    Ok(Kind::Draid(Box::new(draid), children))
}

fn ashift(config: &VdevConfig) -> Result<Ashift, Error> {
    let found = config.ashift.unwrap_or(0);
    let why = || format!("its sector size is 2^{found} bytes");
    Ashift::new(found).ok_or_else(|| Error::Config { guid: config.guid, why: why() })
}

fn parity(config: &VdevConfig) -> u32 {
    config.nparity.and_then(|parity| u32::try_from(parity).ok()).unwrap_or(1)
}

fn small(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn impossible(config: &VdevConfig, error: &geometry::Error) -> Error {
    Error::Config { guid: config.guid, why: error.to_string() }
}
