//! One space map: reading it, and writing at its end.

use dmu::{NewObject, Object, Objset};
use ondisk::spacemap::{Entries, Entry, SpaceMapAppender, SpaceMapHeader};
use ondisk::{ObjectType, Reader};
use txg::Tx;
use units::{BlockId, MinusOrZero, ObjectId};

use crate::Error;

/// log2 of the bytes of an indirect block of a space map.
const INDIRECT_SHIFT: u8 = 14;

/// Shows all entries of a space map to `visit`, in order.
pub fn space_map_entries(
    object: &Object,
    visit: &mut dyn FnMut(Entry),
) -> Result<SpaceMapHeader, Error> {
    let mut bonus = Reader::new("space map header", object.bonus(), object.bonus_order());
    let header = SpaceMapHeader::read(&mut bonus)?;
    let size = u64::from(object.block_size()).max(1);
    let mut left = header.length;
    let blocks = header.length.div_ceil(size).min(object.max_block().get() + 1);
    for number in 0..blocks {
        let Some(block) = object.block(BlockId::new(number))? else {
            left = left.minus_or_zero(size);
            continue;
        };
        let length = units::to_usize(left.min(size)).min(block.len());
        for entry in Entries::new(&block[..length], block.order()) {
            visit(entry?);
        }
        left = left.minus_or_zero(size);
    }
    Ok(header)
}

/// The head of a space map.
pub(crate) fn read_header(object: &Object) -> Result<SpaceMapHeader, Error> {
    let mut bonus = Reader::new("space map header", object.bonus(), object.bonus_order());
    Ok(SpaceMapHeader::read(&mut bonus)?)
}

/// A space map that is being written.
pub(crate) struct SpaceMapWriter {
    object: Object,
    pub(crate) header: SpaceMapHeader,
}

impl SpaceMapWriter {
    /// A new map, empty.
    pub(crate) fn create(
        mos: &Objset,
        tx: &Tx,
        block_size: u32,
        with_histogram: bool,
    ) -> Result<Self, Error> {
        let header = SpaceMapHeader::empty(with_histogram);
        let bonus = header.encode();
        let new = NewObject {
            indirect_shift: INDIRECT_SHIFT,
            ..NewObject::new(ObjectType::SPACE_MAP, block_size)
                .with_bonus(ObjectType::SPACE_MAP_HEADER, bonus)
        };
        let object = mos.create(tx, &new)?;
        Ok(Self { object, header })
    }

    /// The map of that number.
    pub(crate) fn open(mos: &Objset, id: ObjectId) -> Result<Self, Error> {
        let object = mos.object(id)?;
        let header = read_header(&object)?;
        Ok(Self { object, header })
    }

    pub(crate) fn id(&self) -> ObjectId {
        self.object.id()
    }

    /// Bytes of its blocks.
    pub(crate) fn block_size(&self) -> u32 {
        self.object.block_size()
    }

    /// An append, with entries of two words if the pool has them.
    pub(crate) fn appendix(&self, two_words: bool) -> SpaceMapAppender {
        SpaceMapAppender::new(&self.header, self.object.block_size(), two_words)
    }

    /// Writes at the end. `allocated` is by how much more is allocated after it.
    pub(crate) fn append(
        &mut self,
        tx: &Tx,
        appendix: &SpaceMapAppender,
        allocated: i64,
    ) -> Result<(), Error> {
        // Rule: the entries are written first, and the header with their end in the same txg. A map whose end is
        // short after a crash would have allocated space as free.
        let length = units::to_u64(appendix.bytes().len());
        assert_eq!(appendix.end(), self.header.length + length, "entries are appended at the end");
        self.object.write(tx, self.header.length, appendix.bytes())?;
        self.header.length = appendix.end();
        self.header.allocated += allocated;
        Ok(())
    }

    /// Shows the entries of the last block to `visit`, and cuts the block off.
    pub(crate) fn cut_last_block(
        &mut self,
        tx: &Tx,
        visit: &mut dyn FnMut(Entry),
    ) -> Result<(), Error> {
        let size = u64::from(self.object.block_size()).max(1);
        let Some(last) = self.header.length.checked_sub(1) else { return Ok(()) };
        let (number, start) = (last / size, last / size * size);
        if number <= self.object.max_block().get()
            && let Some(block) = self.object.block(BlockId::new(number))?
        {
            let length = units::to_usize(self.header.length - start);
            for entry in Entries::new(&block[..length.min(block.len())], block.order()) {
                visit(entry?);
            }
        }
        self.object.free_range(tx, start..u64::MAX)?;
        self.header.length = start;
        Ok(())
    }

    /// Empties it.
    pub(crate) fn truncate(&mut self, tx: &Tx) -> Result<(), Error> {
        self.object.free_range(tx, 0..u64::MAX)?;
        self.header.length = 0;
        self.header.allocated = 0;
        Ok(())
    }

    /// Writes the head: the last thing to do.
    pub(crate) fn finish(mut self, tx: &Tx) -> Result<(), Error> {
        self.header.object = self.object.id();
        let bonus = self.header.encode();
        Ok(self.object.set_bonus(tx, ObjectType::SPACE_MAP_HEADER, &bonus)?)
    }
}
