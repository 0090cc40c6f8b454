//! Blocks of intent logs: their room is had before they are written, and they are written at once.

use metaslab::{AllocRequest, Class};
use ondisk::blkptr::{Protection, Regular};
use ondisk::zil::Verifier;
use ondisk::{Blkptr, Checksum, Compression, Dva, ObjectType, Order};
use transform::checksum::embedded;
use transform::crypt::block::{self as cipher, Layout, Params};
use units::{Level, Txg, Zbookmark};
use vdev::{BlockWrite, IoClass, NodeKind};

use crate::gang_write::MAX_DEPTH;
use crate::{Error, Key, Writer};

/// Where in a log block its authentication code stands: the second half of its sum.
const MAC_RANGE: std::ops::Range<usize> = 168..184;
/// What a log block is written in multiples of.
const WRITE_ALIGNMENT: usize = 4096;
/// Where a log block says how much of it is used.
const USED_OFFSET: usize = 136;

/// What is wanted of a log block.
#[derive(Clone, Copy, Debug)]
pub struct LogAllocation<'a> {
    /// Bytes of it.
    pub size: u32,
    /// The txg that is told of it.
    pub txg: Txg,
    /// Its place in the chain.
    pub verifier: Verifier,
    /// Of an encrypted dataset.
    pub key: Option<&'a Key>,
    /// Where it belongs, for errors.
    pub zbookmark: Zbookmark,
    /// It goes to no log device, though there may be some (logbias=throughput).
    pub avoid_log_devices: bool,
}

/// A log block to be written.
#[derive(Clone, Debug)]
pub struct LogBlock {
    /// Its room.
    pub block: Regular,
    /// As many bytes as the room has, with the chain header in front.
    pub bytes: Vec<u8>,
    /// Where it belongs, for errors.
    pub zbookmark: Zbookmark,
}

/// The bytes of a log block as they are stored: encrypted with a key, and sealed by a checksum.
fn seal_log_block(log_block: LogBlock, key: Option<&Key>) -> Result<Vec<u8>, Error> {
    let LogBlock { block, mut bytes, zbookmark } = log_block;
    assert_eq!(bytes.len(), block.psize as usize, "a log block fills its room");
    if let (Protection::Encrypted { salt, iv, .. }, Some(key)) = (block.protection, key) {
        let params = Params { salt, iv, mac: [0; 16] };
        let mut out = vec![0; bytes.len()];
        let mac = cipher::encrypt_block(key, Layout::Log, &params, Order::Little, &bytes, &mut out)
            .map_err(|error| Error::Transform { zbookmark, why: error })?;
        if let Some(code) = out.get_mut(MAC_RANGE) {
            code.copy_from_slice(&mac);
        }
        bytes = out;
    }
    let verifier = Verifier::from_pointer(&block).words();
    let is_encrypted = block.protection != Protection::None;
    let sealed = embedded::seal(&mut bytes, &verifier, Checksum::Zilog2, is_encrypted);
    assert!(sealed.is_some(), "a log block has room for its seal");
    Ok(bytes)
}

impl Writer {
    /// Room for a block of an intent log (of the newer kind), and the pointer to it.
    pub fn allocate_log_block(&self, room: &LogAllocation<'_>) -> Result<Regular, Error> {
        let LogAllocation { size, txg, verifier, .. } = *room;
        let class = if room.avoid_log_devices { Class::EmbeddedLog } else { Class::Log };
        let want = AllocRequest { class, ..AllocRequest::new(size.into(), txg) };
        let dvas = self.allocate(&want, room.zbookmark)?;
        let [first, second, third, fourth] = verifier.words();
        let (protection, sum) = match room.key {
            None => (Protection::None, [first, second, third, fourth]),
            Some(key) => {
                let Params { salt, iv, .. } = self.log_crypt_params(key);
                // its own code stands within the block, so that the pointer's place for one is free
                let mut mac = [0; 16];
                mac[..8].copy_from_slice(&third.to_le_bytes());
                mac[8..].copy_from_slice(&fourth.to_le_bytes());
                (Protection::Encrypted { salt, iv, mac }, [first, second, 0, 0])
            }
        };
        Ok(Regular {
            dvas,
            lsize: size,
            psize: size,
            compression: Compression::Off,
            checksum: Checksum::Zilog2,
            kind: ObjectType::INTENT_LOG,
            level: Level::new(0),
            dedup: false,
            order: Order::Little,
            birth: txg,
            birth_physical: txg,
            fill: 0,
            sum,
            protection,
        })
    }

    /// Writes log blocks into their room, adjacent ones together. They are there for good after the
    /// next [`Writer::flush`].
    ///
    /// # Panics
    /// Where the bytes of a block are not as long as its room.
    pub fn write_log_blocks(&self, blocks: Vec<LogBlock>, key: Option<&Key>) -> Result<(), Error> {
        let mut sealed = Vec::with_capacity(blocks.len());
        for log_block in blocks {
            let (block, zbookmark) = (log_block.block, log_block.zbookmark);
            let bytes = seal_log_block(log_block, key)?;
            let used = self.used_length(&block, &bytes);
            sealed.push((block, zbookmark, bytes, used));
        }
        let copies = || {
            sealed.iter().flat_map(|(block, place, bytes, used)| {
                let data = bytes.get(..*used).unwrap_or(bytes);
                block.copies().map(move |dva| (block.birth_physical, dva, *place, data))
            })
        };
        let write = |(birth, dva, _, data): (Txg, Dva, Zbookmark, _)| {
            assert!(dva.asize >= units::to_u64(<[u8]>::len(data)), "a log block fits its room");
            BlockWrite { vdev: dva.vdev, offset: dva.offset, birth, data }
        };
        let writes: Vec<_> = copies().map(write).collect();
        // the leaves remember themselves what they missed
        let write_all = || self.tree().write_many(&writes, &mut Vec::new());
        let written = vdev::with_class(IoClass::Sync, write_all);
        assert_eq!(written.len(), copies().count(), "the vdevs answer each write");
        copies().zip(written).try_for_each(|((_, dva, zbookmark, _), written)| {
            written.map_err(|why| Error::WriteFailed { zbookmark, dva, why })
        })
    }

    /// How much of a log block needs writing: on arrays all of it, for there a shorter block would
    /// lie otherwise.
    fn used_length(&self, block: &Regular, bytes: &[u8]) -> usize {
        let plain = block.copies().all(|dva| {
            let node = self.tree().top(dva.vdev);
            node.is_some_and(|node| matches!(node.kind, NodeKind::Leaf(_) | NodeKind::Mirror(_)))
        });
        let used = bytes.get(USED_OFFSET..).and_then(|rest| rest.first_chunk());
        let used = used.map_or(0, |word| u64::from_le_bytes(*word));
        let used = units::to_usize(used).min(bytes.len()).next_multiple_of(WRITE_ALIGNMENT);
        if plain { used.min(bytes.len()) } else { bytes.len() }
    }

    /// All that was written of txgs from `oldest` on, by whomever, will outlast a power cut: also what
    /// another flush took along, which may have failed.
    pub fn flush(&self, oldest: Txg) -> Result<(), Error> {
        let all = |_: &vdev::VdevNode| true;
        let flushed = self.tree().flush_vdevs(&all, &mut Vec::new());
        let kept = flushed
            .and_then(|()| self.tree().check_txgs_durable(oldest..=Txg::new(u64::MAX), &all));
        kept.map_err(|error| Error::NotFlushed { why: error })
    }

    /// Takes the room of a block that the space maps do not know of, since it was written after
    /// the last txg: one of an intent log, or one that a record of it points to.
    pub fn claim(&self, block: &Regular, txg: Txg, zbookmark: Zbookmark) -> Result<(), Error> {
        self.claim_at_depth(block, txg, zbookmark, 0)
    }

    fn claim_at_depth(
        &self,
        block: &Regular,
        txg: Txg,
        zbookmark: Zbookmark,
        depth: u32,
    ) -> Result<(), Error> {
        for dva in block.copies() {
            self.with_loaded_metaslabs(zbookmark, || self.allocator().claim(&dva, txg))?;
        }
        if block.is_gang() && depth <= MAX_DEPTH {
            for piece in self.reader().gang_header(block, zbookmark)?.present_pieces() {
                if let Blkptr::Regular(piece) = piece {
                    self.claim_at_depth(piece, txg, zbookmark, depth + 1)?;
                }
            }
        }
        Ok(())
    }
}
