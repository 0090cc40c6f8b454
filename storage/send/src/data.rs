//! Data blocks of a stream: which record has them, and in which form.

use dmu::Object;
use ondisk::blkptr::{Checksum, Protection, Regular};
use ondisk::stream::{DedupKey, Record, StreamFeatures, Write};
use ondisk::{Blkptr, Order};
use units::Zbookmark;

use crate::Result;
use crate::queue::{Payload, ReadBlock};
use crate::raw;
use crate::sender::Sender;

/// Blocks above this are sent in pieces unless the stream has large blocks.
pub(crate) const OLD_MAX_BLOCK_SIZE: u32 = 128 << 10;

impl Sender<'_, '_, '_> {
    pub(crate) fn send_data(
        &mut self,
        object: &Object,
        at: Zbookmark,
        pointer: &Blkptr,
    ) -> Result<()> {
        let size = object.block_size();
        let mut record = Write {
            object: object.id().get(),
            kind: object.dnode().kind,
            offset: at.block.get().wrapping_mul(size.into()),
            logical_size: size.into(),
            to_guid: self.to_guid,
            checksum: Checksum::Off.number(),
            ..Write::default()
        };
        if size > OLD_MAX_BLOCK_SIZE && !self.has(StreamFeatures::LARGE_BLOCKS) {
            return self.send_pieces(object, at, &record);
        }
        if let Blkptr::Regular(block) = pointer {
            if matches!(block.protection, Protection::None) {
                describe_block(&mut record, block);
            }
            if self.sends_compressed(object, block) {
                record.compression = block.compression.number();
                record.compressed_size = block.psize.into();
                return self.send_stored(record, block, at);
            }
        }
        let records = vec![(Record::Write(Box::new(record)), None)];
        self.out.block(records, size, read_later(object, at))
    }

    /// A block as it is stored.
    fn send_stored(&mut self, record: Write, block: &Regular, at: Zbookmark) -> Result<()> {
        let (stored, block) = (self.source.stored, *block);
        let records = vec![(Record::Write(Box::new(record)), None)];
        let read = move || stored.read_stored(&block, at).map(Payload::Stored);
        self.out.block(records, block.psize, Box::new(read))
    }

    /// A block in pieces that older systems know.
    fn send_pieces(&mut self, object: &Object, at: Zbookmark, whole: &Write) -> Result<()> {
        let size = object.block_size();
        let mut records = Vec::new();
        for first in (0..size).step_by(units::to_usize(OLD_MAX_BLOCK_SIZE)) {
            let length = OLD_MAX_BLOCK_SIZE.min(size - first);
            let offset = whole.offset.wrapping_add(first.into());
            let record = Write { offset, logical_size: length.into(), ..*whole };
            let part = units::to_usize(first)..units::to_usize(first + length);
            records.push((Record::Write(Box::new(record)), Some(part)));
        }
        self.out.block(records, size, read_later(object, at))
    }

    /// Whether a block is sent as it is stored. Encrypted blocks are decrypted, and so also decompressed.
    fn sends_compressed(&self, object: &Object, block: &Regular) -> bool {
        self.has(StreamFeatures::COMPRESSED)
            && block.order == Order::Little
            && !block.compression.is_off()
            && !object.dnode().kind.is_metadata()
            && matches!(block.protection, Protection::None)
    }

    /// An encrypted block as it is stored.
    pub(crate) fn send_raw_data(
        &mut self,
        object: &Object,
        at: Zbookmark,
        block: &Regular,
    ) -> Result<()> {
        let size = u64::from(object.block_size());
        let mut record = Write {
            object: object.id().get(),
            kind: object.dnode().kind,
            offset: at.block.get().wrapping_mul(size),
            logical_size: size,
            to_guid: self.to_guid,
            crypt: raw::block_crypt(object.id().get(), block)?,
            ..Write::default()
        };
        describe_block(&mut record, block);
        record.flags |= raw::order_flag(block.order);
        record.compression = block.compression.number();
        record.compressed_size = block.psize.into();
        self.send_stored(record, block, at)
    }
}

/// Reads the content of a block, once the stream is so far.
fn read_later<'a>(object: &Object, at: Zbookmark) -> ReadBlock<'a> {
    let object = object.clone();
    Box::new(move || {
        let content = object.block_uncached(at.block)?;
        content.map(Payload::Content).ok_or(dmu::Error::OutOfTree { zbookmark: at }.into())
    })
}

/// The fields of the record about the block on the sender's disks.
fn describe_block(record: &mut Write, block: &Regular) {
    record.checksum = block.checksum.number();
    let is_strong = matches!(
        block.checksum,
        Checksum::Sha256 | Checksum::Sha512 | Checksum::Skein | Checksum::EdonR | Checksum::Blake3
    );
    record.flags = if is_strong { Write::DEDUP_CHECKSUM } else { 0 };
    let sectors = |bytes: u32| u64::from((bytes >> 9) - 1);
    let sizes = sectors(block.lsize) | sectors(block.psize) << 16;
    let is_protected = block.protection != Protection::None;
    let properties = sizes
        | u64::from(block.compression.number()) << 32
        | if is_protected { DedupKey::ENCRYPTED } else { 0 };
    let [first, second, ..] = block.sum;
    let checksum = match raw::mac_of(block) {
        Some(mac) => {
            let [third, fourth] = raw::mac_words(mac);
            [first, second, third, fourth]
        }
        None => block.sum,
    };
    record.key = DedupKey { checksum, properties };
}
