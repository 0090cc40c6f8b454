//! The logs of dedup: what the real system has said of blocks and not put into the tables yet.
//!
//! With `fast_dedup` a checksum's directory names two logs beside its tables. One grows while the
//! other is being emptied into the tables, in the order of its keys: what lies up to its checkpoint
//! is in them. What a log says of a block overrules the tables, and the one that grows overrules the
//! other. The sums in `DDT-statistics` leave out what is in a log.

use std::collections::BTreeMap;

use dmu::Objset;
use ondisk::dedup::{DedupKey, DedupValue, LogHeader, Records, Shape, Sums, TableName};
use ondisk::{Blkptr, Checksum, Reader};
use units::{BlockId, ObjectId};
use zap::Zap;

use crate::dedup::{DsizeOf, entry_stats};
use crate::{Error, PoolDirectory};

/// What the logs of a checksum say.
pub struct DedupLogs {
    /// Where they are.
    pub objects: Vec<ObjectId>,
    /// What is now true of each block in them; one without references waits to be freed. By the words
    /// of the keys.
    pub entries: BTreeMap<[u64; 5], DedupValue>,
}

impl DedupLogs {
    /// Reads the logs that a checksum's directory names.
    pub fn read(mos: &Objset, directory: &Zap) -> Result<Self, Error> {
        let shape = Shape::from_flags(directory.lookup_u64(b"flags")?.unwrap_or(0));
        let mut logs = Vec::new();
        for entry in directory.entries() {
            let entry = entry?;
            let name = String::from_utf8_lossy(&entry.name);
            if let (Some(TableName::Log(..)), Some(id)) =
                (TableName::parse(&name), entry.value.u64())
            {
                let object = mos.object(ObjectId::new(id))?;
                let mut bonus = Reader::new("dedup log", object.bonus(), object.bonus_order());
                logs.push((LogHeader::read(&mut bonus)?, object));
            }
        }
        // the one that is being emptied is the older one
        logs.sort_by_key(|(header, _)| !header.flushing);
        let mut entries = BTreeMap::new();
        for (header, object) in &logs {
            let size = u64::from(object.block_size()).max(1);
            let held = object.max_block().get() + 1;
            for number in 0..header.length.div_ceil(size).min(held) {
                let Some(block) = object.block(BlockId::new(number))? else { continue };
                for record in Records::new(&block, block.order(), shape) {
                    let record = record?;
                    let words = record.key.to_words();
                    if header.checkpoint.is_none_or(|done| words > done) {
                        entries.insert(words, record.value);
                    }
                }
            }
        }
        let objects = logs.into_iter().map(|(_, object)| object.id()).collect();
        Ok(Self { objects, entries })
    }

    /// Those of all checksums of a pool.
    pub fn read_all(
        mos: &Objset,
        directory: &PoolDirectory,
    ) -> Result<Vec<(Checksum, Self)>, Error> {
        let mut found = Vec::new();
        for entry in directory.zap().entries() {
            let entry = entry?;
            let name = String::from_utf8_lossy(&entry.name);
            if let (Some(TableName::Directory(checksum)), Some(id)) =
                (TableName::parse(&name), entry.value.u64())
            {
                let home = Zap::open(mos.object(ObjectId::new(id))?)?;
                found.push((checksum, Self::read(mos, &home)?));
            }
        }
        Ok(found)
    }

    /// Takes out what nobody refers to any more of what is known.
    pub fn drain_unreferenced(&mut self, checksum: Checksum) -> Result<Vec<Blkptr>, Error> {
        let mut found = Vec::new();
        for (words, value) in &mut self.entries {
            let key = DedupKey::from_words(words)?;
            for copies in value.remove_unreferenced() {
                found.push(key.pointer(checksum, &copies)?);
            }
        }
        Ok(found)
    }

    /// Adds what they hold to a histogram: sums over the blocks of which there are 1, 2 to 3, 4 to 7
    /// references, and so on.
    pub(crate) fn add_to_histogram(
        &self,
        all: &mut [Sums],
        size_of: DsizeOf<'_>,
    ) -> Result<(), Error> {
        for (words, value) in &self.entries {
            let sums = entry_stats(&DedupKey::from_words(words)?, value, size_of);
            let bucket = sums.referenced_blocks.checked_ilog2().map(|bucket| bucket as usize);
            if let Some(bucket) = bucket.and_then(|bucket| all.get_mut(bucket)) {
                *bucket = bucket.combined(&sums, u64::saturating_add);
            }
        }
        Ok(())
    }
}
