//! Corrective receive: damaged blocks of a snapshot are written again from a stream of the same snapshot (-c).
//!
//! Each data block of the stream is looked up in the snapshot. A block that can be read stays as it is. Of one that cannot,
//! the stored bytes are made from the record. They are written to the block's places only if they have the checksum that
//! the snapshot has of it. So a wrong stream changes nothing. Metadata cannot be healed: streams do not have them.

use dmu::{Object, Objset, SPILL_BLOCK};
use dsl::Dataset;
use ondisk::Blkptr;
use ondisk::blkptr::Regular;
use ondisk::stream::{Record, Spill, StreamFeatures, Write};
use units::{BlockId, ObjectId, Zbookmark};
use zio::{Key, Reader};

use super::receive::receive_error;
use super::stream_input::StreamInput;
use super::{Pool, settings};
use crate::pool::handles::Streams;
use crate::{Error, Result};

/// The result of a corrective receive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Healed {
    /// The snapshot, by its full name.
    pub snapshot: String,
    /// Blocks of the stream that were looked up.
    pub examined: u64,
    /// Damaged blocks that were found.
    pub damaged: u64,
    /// Damaged blocks that can be read again.
    pub repaired: u64,
    /// Bytes of the stream.
    pub bytes: u64,
}

/// The snapshot that is healed.
struct Target<'a> {
    pool: &'a Pool,
    objset: Objset,
    key: Option<Key>,
    zstd_level: i32,
    is_raw: bool,
    /// Only damage is counted (-n).
    dry_run: bool,
    /// The object of the last record.
    current: Option<Object>,
    found: Healed,
}

impl Streams<'_> {
    /// Heals damaged blocks of a snapshot from a stream of it, also a raw one. `target` is the snapshot, or its file system
    /// or volume. An error if damage is left.
    pub fn heal(self, target: &str, dry_run: bool, input: &mut StreamInput<'_>) -> Result<Healed> {
        self.pool.check_writable()?;
        if input.compound_name().is_some() {
            let why =
                "a corrective receive needs the stream of one snapshot, without -R, -I and -p";
            return Err(receive_error(target, why));
        }
        let begun = input.take_begin()?;
        let first = input.bytes();
        let snapshot = self.pool.find_sent_snapshot(target, begun.begin.to_guid)?;
        let name = snapshot.name();
        let _hold = snapshot.id().map(|id| self.pool.0.dataset_holds.hold(id));
        let failed = |error: dsl::Error| Error::from_dsl_error(&name, &error);
        let is_encrypted = snapshot.key_object().map_err(failed)?.is_some();
        let is_raw = begun.begin.features.has(StreamFeatures::RAW);
        let key = snapshot.key().map_err(failed)?;
        if is_encrypted && !is_raw && key.is_none() {
            return Err(crate::keys::locked_error(&snapshot));
        }
        if is_raw && !is_encrypted {
            let why = "the stream is raw, and the snapshot is not encrypted";
            return Err(receive_error(&name, why));
        }
        let head = snapshot.tree().find(snapshot.dir().path()).map_err(failed)?;
        let found = Healed { snapshot: name.clone(), ..Healed::default() };
        let zstd_level = settings::block_settings(&head).zstd_level;
        let objset = self.pool.raw_objset(&snapshot)?;
        let mut target = Target {
            pool: self.pool,
            objset,
            key,
            zstd_level,
            is_raw,
            dry_run,
            current: None,
            found,
        };
        while target.next_record(input).map_err(|why| receive_error(&name, why))? {}
        target.found.bytes = input.bytes() - first;
        let left = target.found.damaged - target.found.repaired;
        if left > 0 && !dry_run {
            return Err(receive_error(
                &name,
                format!(
                    "{} damaged blocks were healed, and {left} were not: the stream does not have them in \
                     the form in which they are stored; try a stream sent with -w or -Lec by the system \
                     that has a good copy",
                    target.found.repaired
                ),
            ));
        }
        Ok(target.found)
    }
}

impl Pool {
    /// The snapshot of a stream: the one that is named, or the one of a file system that has the guid.
    fn find_sent_snapshot(&self, target: &str, guid: u64) -> Result<Dataset> {
        let found = self.find_dataset(target)?;
        let failed = |error: dsl::Error| Error::from_dsl_error(target, &error);
        let all =
            if found.is_snapshot() { vec![found] } else { found.snapshots().map_err(failed)? };
        let why = "the stream is not of this snapshot: a corrective receive needs a stream of the very \
                   snapshot that is damaged";
        let snapshot = all.into_iter().find(|it| it.guid().get() == guid);
        snapshot.ok_or_else(|| receive_error(target, why))
    }
}

impl Target<'_> {
    /// Handles a record; false at the end of the stream.
    fn next_record(&mut self, input: &mut StreamInput<'_>) -> send::Result<bool> {
        let bytes = input.bytes();
        let found = input.reader.next_record()?.ok_or(send::Error::Truncated { bytes })?;
        match &found.record {
            Record::End(_) => return Ok(false),
            Record::Write(write) => self.check_write(write, &found.payload)?,
            Record::Spill(spill) => self.check_spill(spill, &found.payload)?,
            _ => {}
        }
        Ok(true)
    }

    /// The object of a record; `None`: its dnode cannot be read, or is another object's by now.
    fn object(&mut self, number: u64) -> Option<Object> {
        let id = ObjectId::new(number);
        if self.current.as_ref().is_none_or(|object| object.id() != id) {
            self.current = self.objset.object(id).ok();
        }
        self.current.clone()
    }

    fn check_write(&mut self, write: &Write, payload: &[u8]) -> send::Result<()> {
        let Some(object) = self.object(write.object) else {
            self.lose();
            return Ok(());
        };
        let size = u64::from(object.block_size());
        let block = BlockId::new(write.offset.checked_div(size).unwrap_or(0));
        let place = object.zbookmark(block);
        let Some(pointer) = self.damaged(object.pointer(place.level, block), place) else {
            return Ok(());
        };
        // a part of a block does not have the checksum of the block
        if write.logical_size != size || !write.offset.is_multiple_of(size) {
            return Ok(());
        }
        let kind = object.dnode().kind;
        if (self.is_raw || write.compression != 0)
            && self.heal_as_stored(&pointer, place, payload)?
        {
            return Ok(());
        }
        if self.is_raw {
            return Ok(());
        }
        if write.compression == 0 {
            return self.heal(&pointer, place, (kind, payload));
        }
        let plain = send::decompress_write(write, payload)?;
        self.heal(&pointer, place, (kind, &plain))
    }

    fn check_spill(&mut self, spill: &Spill, payload: &[u8]) -> send::Result<()> {
        let Some(object) = self.object(spill.object) else {
            self.lose();
            return Ok(());
        };
        let place = object.zbookmark(SPILL_BLOCK);
        let pointer = object.dnode().spill.clone().unwrap_or(Blkptr::EMPTY);
        let Some(pointer) = self.damaged(Ok(pointer), place) else { return Ok(()) };
        if self.is_raw {
            return self.heal_as_stored(&pointer, place, payload).map(drop);
        }
        self.heal(&pointer, place, (object.dnode().bonus_kind, payload))
    }

    fn lose(&mut self) {
        self.found.examined += 1;
        self.found.damaged += 1;
    }

    /// The pointer of a block that cannot be read.
    fn damaged(&mut self, pointer: dmu::Result<Blkptr>, place: Zbookmark) -> Option<Regular> {
        let pointer = match pointer {
            Ok(Blkptr::Regular(pointer)) => *pointer,
            Ok(_) => return None,
            Err(_) => {
                self.lose();
                return None;
            }
        };
        self.found.examined += 1;
        let read = self.pool.0.spa.reader().read_stored(&pointer, place);
        if read.map(Reader::recycle).is_ok() {
            return None;
        }
        self.found.damaged += 1;
        Some(pointer)
    }

    /// Writes a block whose stored bytes the record has. False: they are others.
    fn heal_as_stored(
        &mut self,
        pointer: &Regular,
        place: Zbookmark,
        stored: &[u8],
    ) -> send::Result<bool> {
        let is_same = self.pool.0.spa.reader().is_stored_form(pointer, stored);
        if is_same {
            self.write(pointer, place, stored.to_vec())?;
        }
        Ok(is_same)
    }

    /// Writes a block of this content.
    fn heal(
        &mut self,
        pointer: &Regular,
        place: Zbookmark,
        content: (ondisk::ObjectType, &[u8]),
    ) -> send::Result<()> {
        let how = (self.key.as_ref(), self.zstd_level);
        match self.pool.0.spa.reader().rebuild_stored(pointer, content, how) {
            Some(stored) => self.write(pointer, place, stored),
            None => Ok(()),
        }
    }

    fn write(&mut self, pointer: &Regular, place: Zbookmark, stored: Vec<u8>) -> send::Result<()> {
        if self.dry_run {
            return Ok(());
        }
        let spa = &self.pool.0.spa;
        let done = spa.rewrite_block(pointer, place, stored);
        let done = done.map_err(|why| send::Error::Pool { why: why.to_string() })?;
        self.found.repaired += u64::from(done);
        Ok(())
    }
}
