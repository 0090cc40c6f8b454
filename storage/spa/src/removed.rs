//! Where the blocks of removed vdevs went.

use std::sync::Arc;

use dmu::Objset;
use ondisk::Reader;
use ondisk::indirect::{Mapping as Entries, MappingHeader};
use ondisk::label::{Indirect, VdevConfig, VdevKind};
use units::VdevId;
use vdev::{IndirectMapping, MappingSegment, VdevTree};

use crate::{Error, Pool, PoolDirectory};

/// A mapping takes 24 bytes for each range that was moved; more than this is not believed.
const MAX_MAPPING_SIZE: u64 = 4 << 30;

/// Reads the mappings of all removed vdevs. One that was removed earlier may have its mapping on
/// one that was removed later, so the last removed comes first; each names the one before it.
pub(crate) fn load_mappings(
    tree: &VdevTree,
    directory: &PoolDirectory,
    mos: &Objset,
    root: Option<&VdevConfig>,
) -> Result<(), Error> {
    let Some(root) = root else { return Ok(()) };
    let mut waiting: Vec<(VdevId, Indirect)> = root
        .children
        .iter()
        .filter(|top| top.kind == VdevKind::Indirect)
        .filter_map(|top| top.indirect.map(|indirect| (top.id, indirect)))
        .collect();
    if waiting.is_empty() {
        return Ok(());
    }
    let removing = directory.lookup_u64s("com.delphix:removing")?.unwrap_or_default();
    let mut next = removing.get(2).copied();
    while !waiting.is_empty() {
        let named = waiting.iter().position(|(id, _)| Some(u64::from(id.get())) == next);
        let (id, indirect) = waiting.remove(named.unwrap_or(waiting.len() - 1));
        next = indirect.previous.map(|id| u64::from(id.get()));
        tree.set_mapping(id, Arc::new(read_mapping(mos, indirect)?));
    }
    Ok(())
}

impl Pool {
    /// The vdev that is being removed, and where what is copied of it lies; none if none is.
    pub fn removal_mapping(&self) -> Result<Option<(VdevId, IndirectMapping)>, Error> {
        let mut tops = self.config().tree.iter().flat_map(|root| &root.children);
        let removing = tops.find_map(|top| Some((top.id, top.indirect.filter(|_| top.removing)?)));
        removing.map(|(vdev, indirect)| Ok((vdev, read_mapping(self.mos(), indirect)?))).transpose()
    }
}

/// The mapping of a vdev that was removed, or that is being removed.
fn read_mapping(mos: &Objset, indirect: Indirect) -> Result<IndirectMapping, Error> {
    let object = mos.object(indirect.mapping)?;
    let mut bonus = Reader::new("mapping header", object.bonus(), object.bonus_order());
    let header = MappingHeader::read(&mut bonus)?;
    if header.size() > MAX_MAPPING_SIZE {
        return Err(bonus.corrupt_field(0, "a mapping is at most 4 GiB", header.size()).into());
    }
    let size = units::to_usize(header.size());
    let mut segments = Vec::new();
    let mut bytes = vec![0; size];
    object.read(0, &mut bytes)?;
    let entries = Entries::parse(&bytes, object.bonus_order())?;
    for entry in entries.entries() {
        segments.push(MappingSegment {
            source: entry.source,
            length: entry.target.asize,
            vdev: entry.target.vdev,
            offset: entry.target.offset,
        });
    }
    Ok(IndirectMapping::new(segments))
}
