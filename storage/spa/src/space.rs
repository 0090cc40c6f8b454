//! Space maps, and what is told by them: which txgs a drive missed, how full a vdev is.

use dmu::{Object, Objset};
use ondisk::Reader;
use ondisk::label::{VdevConfig, VdevKind};
use ondisk::spacemap::{Action, Entries, Entry, SpaceMapHeader};
use units::{BlockId, Guid, ObjectId, Txg, VdevId};
use vdev::TxgRanges;

use crate::{Error, Pool};

/// No pool has more metaslabs in a vdev (2^17 is what OpenZFS stops at).
const MOST_METASLABS: u64 = 1 << 20;

/// Shows all entries of a space map to `visit`, in order.
pub fn space_map_entries(
    object: &Object,
    visit: &mut dyn FnMut(Entry),
) -> Result<SpaceMapHeader, Error> {
    let mut bonus = Reader::new("space map header", object.bonus(), object.bonus_order());
    let header = SpaceMapHeader::read(&mut bonus)?;
    let size = u64::from(object.block_size()).max(1);
    let mut left = header.length;
    let blocks = header.length.div_ceil(size).min(object.max_block().get().saturating_add(1));
    for number in 0..blocks {
        let Some(block) = object.block(BlockId::new(number))? else {
            left = left.saturating_sub(size);
            continue;
        };
        let length = usize::try_from(left.min(size)).unwrap_or(usize::MAX).min(block.len());
        for entry in Entries::new(&block[..length], block.order()) {
            visit(entry?);
        }
        left = left.saturating_sub(size);
    }
    Ok(header)
}

/// Tells every leaf which txgs it missed. What cannot be read is left out: checksums find the rest.
pub(crate) fn load_away(pool: &Pool) {
    let Some(root) = &pool.config().tree else { return };
    let leaves = pool.tree().leaves();
    for config in root.leaves() {
        let (Some(object), true) = (config.dtl, is_device(config)) else { continue };
        let Ok(ranges) = away(pool.mos(), object) else { continue };
        if let Some(leaf) = leaves.iter().find(|leaf| leaf.guid() == config.guid) {
            leaf.set_away(ranges);
        }
    }
}

fn is_device(config: &VdevConfig) -> bool {
    matches!(config.kind, VdevKind::Disk | VdevKind::File)
}

fn away(mos: &Objset, object: ObjectId) -> Result<TxgRanges, Error> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    space_map_entries(&mos.object(object)?, &mut |entry| {
        let Entry::Range { action, .. } = entry else { return };
        let Some((start, length)) = entry.bytes(0, 0) else { return };
        match action {
            Action::Allocated => ranges.push((start, start + length)),
            Action::Freed => {
                let end = start + length;
                let cut =
                    |(from, to): &(u64, u64)| [(*from, (*to).min(start)), ((*from).max(end), *to)];
                ranges = ranges.iter().flat_map(cut).filter(|(from, to)| from < to).collect();
            }
        }
    })?;
    Ok(TxgRanges::new(ranges.into_iter().map(|(from, to)| (Txg::new(from), Txg::new(to - 1)))))
}

/// A top-level vdev's space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopSpace {
    /// Which vdev.
    pub vdev: VdevId,
    /// Its identity.
    pub guid: Guid,
    /// Bytes for data.
    pub asize: u64,
    /// log2 of the bytes of a metaslab.
    pub metaslab_shift: u32,
    /// The space map of each metaslab; none where nothing was ever allocated in it.
    pub maps: Vec<Option<ObjectId>>,
    /// Bytes allocated, as the maps' headers say.
    pub allocated: u64,
}

impl Pool {
    /// The space of each top-level vdev that has any.
    pub fn space(&self) -> Result<Vec<TopSpace>, Error> {
        let Some(root) = &self.config().tree else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for top in &root.children {
            if let (Some(asize), Some(shift), Some(array)) =
                (top.asize, top.metaslab_shift, top.metaslab_array)
                && (1..64).contains(&shift)
            {
                found.push(self.top_space(top, asize, shift, array)?);
            }
        }
        Ok(found)
    }

    fn top_space(
        &self,
        top: &VdevConfig,
        asize: u64,
        shift: u64,
        array: ObjectId,
    ) -> Result<TopSpace, Error> {
        let count = (asize >> shift).min(MOST_METASLABS);
        let mut bytes = vec![0; usize::try_from(count * 8).unwrap_or(0)];
        let object = self.mos().object(array)?;
        object.read(0, &mut bytes)?;
        let order = self.uberblock().order;
        let mut reader = Reader::new("metaslab array", &bytes, order);
        let mut space = TopSpace {
            vdev: top.id,
            guid: top.guid,
            asize,
            metaslab_shift: u32::try_from(shift).unwrap_or(0),
            maps: Vec::new(),
            allocated: 0,
        };
        for _ in 0..count {
            let map = ObjectId::new(reader.u64()?);
            if map.exists() {
                let object = self.mos().object(map)?;
                let bonus = Reader::new("space map header", object.bonus(), object.bonus_order());
                let header = SpaceMapHeader::read(&mut bonus.clone())?;
                space.allocated =
                    space.allocated.saturating_add(header.allocated.try_into().unwrap_or(0));
            }
            space.maps.push(map.exists().then_some(map));
        }
        Ok(space)
    }
}
