//! The space of each vdev, from the pool's configuration and the maps' heads.

use ondisk::label::VdevConfig;
use ondisk::{Order, Reader};
use units::{Guid, ObjectId, VdevId};

use crate::space::map::read_header;
use crate::{Error, Pool};

/// The most metaslabs of a vdev (2^17 is OpenZFS's limit).
const MAX_METASLABS: u64 = 1 << 20;

/// A top-level vdev's space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VdevSpace {
    /// Which vdev.
    pub vdev: VdevId,
    /// Its guid.
    pub guid: Guid,
    /// Bytes for data.
    pub asize: u64,
    /// log2 of the bytes of a metaslab.
    pub metaslab_shift: u32,
    /// The space map of each metaslab; none where nothing was ever allocated in it.
    pub space_maps: Vec<Option<ObjectId>>,
    /// Bytes allocated, from the maps' headers.
    pub allocated: u64,
}

impl Pool {
    /// The space of each top-level vdev that has any.
    pub fn vdev_space(&self) -> Result<Vec<VdevSpace>, Error> {
        let Some(root) = &self.config().tree else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for top in &root.children {
            if let (Some(asize), Some(shift), Some(array)) =
                (top.asize, top.metaslab_shift, top.metaslab_array)
                && (1..64).contains(&shift)
            {
                found.push(self.read_vdev_space(top, asize, shift, array)?);
            }
        }
        Ok(found)
    }

    fn read_vdev_space(
        &self,
        top: &VdevConfig,
        asize: u64,
        shift: u64,
        array: ObjectId,
    ) -> Result<VdevSpace, Error> {
        // no vdev has more, whatever its labels have: it would take memory
        let asize = asize.min(MAX_METASLABS.saturating_mul(1 << shift));
        let count = asize >> shift;
        let mut bytes = vec![0; units::to_usize(count * 8)];
        let object = self.mos().object(array)?;
        object.read(0, &mut bytes)?;
        let mut reader = Reader::new("metaslab array", &bytes, Order::Little);
        let mut space = VdevSpace {
            vdev: top.id,
            guid: top.guid,
            asize,
            metaslab_shift: units::narrow::<u32>(shift),
            space_maps: Vec::new(),
            allocated: 0,
        };
        for _ in 0..count {
            let map = ObjectId::new(reader.u64()?);
            if map.exists() {
                let header = read_header(&self.mos().object(map)?)?;
                space.allocated =
                    space.allocated.saturating_add(header.allocated.max(0).unsigned_abs());
            }
            space.space_maps.push(map.exists().then_some(map));
        }
        Ok(space)
    }
}
