//! The redaction of a stream: REDACT records in place of blocks, and blocks that the base lacks.

use dmu::{Object, SPILL_BLOCK, WalkControl, WalkOptions};
use ondisk::dsl::RedactedBlocks;
use ondisk::nvlist::{Nvlist, Value};
use ondisk::stream::RedactRange;
use units::{BlockId, ObjectId, Txg};

use crate::Result;
use crate::overlay::{Action, Segment};
use crate::sender::{Sender, block_range};
use crate::walk::walk_pointers;

/// The redaction of a stream and of its base.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Redaction {
    /// The guids of the redaction snapshots; none: the stream has all blocks.
    pub snaps: Option<Vec<u64>>,
    /// The blocks that the stream leaves out, by object and block.
    pub blocks: Vec<RedactedBlocks>,
    /// The guids of the snapshots that the base is redacted by; none: it has all blocks.
    pub base_snaps: Option<Vec<u64>>,
    /// The blocks that the base lacks, by object and block.
    pub base_blocks: Vec<RedactedBlocks>,
}

impl Redaction {
    /// The name of the guids of the stream in the list behind BEGIN.
    pub const SNAPS: &'static str = "redact_snaps";
    /// The name of the guids of its base.
    pub const BASE_SNAPS: &'static str = "redact_from_snaps";

    /// The guids of a stream and of its base in the list behind BEGIN.
    pub fn snaps_from_payload(payload: &[u8]) -> [Option<Vec<u64>>; 2] {
        let list = Nvlist::decode(payload).unwrap_or_default();
        [Self::SNAPS, Self::BASE_SNAPS].map(|name| list.u64s(name).map(<[u64]>::to_vec))
    }

    pub(crate) fn add_to(&self, list: &mut Nvlist) {
        for (name, snaps) in [(Self::SNAPS, &self.snaps), (Self::BASE_SNAPS, &self.base_snaps)] {
            if let Some(snaps) = snaps {
                list.push(name, Value::U64s(snaps.clone()));
            }
        }
    }
}

impl Sender<'_, '_, '_> {
    /// Sends the segments of objects that the walk passes: they did not change since the base.
    pub(crate) fn send_segments_before(&mut self, object: u64) -> Result<()> {
        while let Some(segment) = self.overlay.pop_before_object(object) {
            self.send_segment(segment)?;
        }
        Ok(())
    }

    pub(crate) fn send_segment(&mut self, segment: Segment) -> Result<()> {
        let Segment { object, first, end, block_size, action } = segment;
        let id = ObjectId::new(object);
        match action {
            Action::Skip => Ok(()),
            Action::Redact => self.redact_range(id, [first, end], block_size),
            Action::Restore => match self.source.objset.object(id) {
                Ok(found) => self.send_blocks(&found, first, end),
                Err(dmu::Error::NoSuchObject { .. }) => Ok(()),
                Err(why) => Err(why.into()),
            },
        }
    }

    pub(crate) fn redact_range(
        &mut self,
        id: ObjectId,
        blocks: [u64; 2],
        block_size: u64,
    ) -> Result<()> {
        // a range whose offset overflows has no data
        let [offset, end] = blocks.map(|block| block.checked_mul(block_size));
        let Some(offset) = offset else { return Ok(()) };
        let length = end.unwrap_or(u64::MAX) - offset;
        let (object, to_guid) = (id.get(), self.to_guid);
        self.out.redact_range(RedactRange { object, offset, length, to_guid })
    }

    /// Sends blocks of an object, also those that did not change.
    fn send_blocks(&mut self, object: &Object, first: u64, end: u64) -> Result<()> {
        let end = end.min(object.dnode().max_block.get() + 1);
        let options = WalkOptions {
            born_after: Txg::ZERO,
            include_holes: true,
            include_unborn_holes: true,
            start: Some(object.zbookmark(BlockId::new(first))),
        };
        walk_pointers(object, &options, |at, pointer| {
            let Some([from, to]) = block_range(object.dnode(), at) else {
                return Ok(WalkControl::Descend);
            };
            if from >= end || at.block == SPILL_BLOCK {
                return Ok(WalkControl::Stop);
            }
            if at.level.get() == 0 || pointer.is_hole() {
                self.send_range(object, at, pointer, [from.max(first), to.min(end)])?;
            }
            Ok(WalkControl::Descend)
        })
    }

    /// Sends the segments of an object that are left.
    pub(crate) fn send_segments_of(&mut self, object: u64) -> Result<()> {
        while let Some(segment) = self.overlay.pop_of_object(object) {
            self.send_segment(segment)?;
        }
        Ok(())
    }
}
