//! From a block's content to the bytes that are stored: a hole, a payload, or bytes for the drives.

use ondisk::blkptr::{Embedded, Hole};
use ondisk::{Blkptr, Compression, ObjectType, Order};
use transform::compress;

use crate::WriteRequest;

/// To what sizes stored blocks are rounded, lest a drive's sector be charged as a part of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SizeRounding {
    /// The smallest block that any normal vdev stores: its sector, or a row of a dRAID.
    pub min_size: u64,
    /// What divides the smallest blocks of all of them.
    pub alignment: u64,
}

impl SizeRounding {
    /// Of vdevs that store no less than so many bytes each.
    pub fn from_min_sizes(smallest: impl IntoIterator<Item = u64>) -> Self {
        let mut all = smallest.into_iter().filter(|size| *size >= SECTOR_SIZE);
        let Some(first) = all.next() else {
            return Self { min_size: SECTOR_SIZE, alignment: SECTOR_SIZE };
        };
        all.fold(Self { min_size: first, alignment: first }, |found, size| Self {
            min_size: found.min_size.min(size),
            alignment: gcd(found.alignment, size),
        })
    }

    fn round_up(self, bytes: u64) -> u64 {
        if bytes <= self.min_size { self.min_size } else { bytes.next_multiple_of(self.alignment) }
    }

    /// More than so many bytes are not worth it, for a block of `lsize`: an eighth must be saved.
    fn compressed_limit(self, method: Compression, lsize: u64) -> u64 {
        let most = lsize - lsize / 8;
        if method == Compression::Zle {
            return most;
        }
        let whole = most - most % self.alignment;
        if whole < self.min_size { Blkptr::PAYLOAD as u64 } else { whole }
    }
}

const SECTOR_SIZE: u64 = 512;

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// What became of the content.
pub(crate) enum EncodedBlock {
    /// It needs no room.
    Pointer(Blkptr),
    /// It is stored as it is.
    Uncompressed,
    /// It is stored as these bytes.
    Compressed(Vec<u8>, Compression),
}

pub(crate) fn encode_block(request: &WriteRequest<'_>, rounding: SizeRounding) -> EncodedBlock {
    let WriteRequest { data, policy, kind, level, .. } = *request;
    if policy.zeros_to_hole && compress::is_zero(data) {
        return EncodedBlock::Pointer(hole_pointer(request));
    }
    let lsize = data.len() as u64;
    let method = effective_compression(request);
    let limit = units::to_usize(rounding.compressed_limit(method, lsize));
    let Some(mut bytes) = compress::compress(method, policy.zstd_level, data, limit) else {
        return EncodedBlock::Uncompressed;
    };
    let has_fill = matches!(kind, ObjectType::DNODE | ObjectType::OBJSET);
    let is_encrypted = policy.key.is_some() || policy.keyless;
    let may_embed = policy.embedded_data && !is_encrypted && level.get() == 0 && !has_fill;
    if may_embed && !bytes.is_empty() && bytes.len() <= Blkptr::PAYLOAD {
        return EncodedBlock::Pointer(embedded_pointer(request, bytes, method));
    }
    assert!(bytes.len() <= limit, "a compressed block is within its limit");
    let rounded = rounding.round_up(bytes.len() as u64);
    assert!(rounded >= bytes.len() as u64, "rounding cuts nothing off");
    if rounded >= lsize {
        return EncodedBlock::Uncompressed;
    }
    bytes.resize(units::to_usize(rounded), 0);
    EncodedBlock::Compressed(bytes, method)
}

/// Dnodes and object sets of encrypted datasets are never compressed: parts of them are ciphered.
fn effective_compression(request: &WriteRequest<'_>) -> Compression {
    let in_parts =
        request.level.get() == 0 && matches!(request.kind, ObjectType::DNODE | ObjectType::OBJSET);
    let is_encrypted = request.policy.key.is_some() || request.policy.keyless;
    match request.policy.compression {
        _ if in_parts && is_encrypted => Compression::Off,
        // would be taken for zeros
        Compression::Empty => Compression::Off,
        method => method,
    }
}

/// What was never anything but zeros has no birth.
fn hole_pointer(request: &WriteRequest<'_>) -> Blkptr {
    if !request.policy.hole_birth || request.previous.birth().is_zero() {
        return Blkptr::EMPTY;
    }
    Blkptr::Hole(Hole {
        birth: request.txg,
        level: request.level,
        lsize: lsize(request),
        kind: request.kind,
    })
}

fn embedded_pointer(
    request: &WriteRequest<'_>,
    mut payload: Vec<u8>,
    compression: Compression,
) -> Blkptr {
    // open datasets keep many of these, and the compressor left room for a sector
    payload.shrink_to_fit();
    Blkptr::Embedded(Box::new(Embedded {
        payload,
        lsize: lsize(request),
        compression,
        kind: request.kind,
        level: request.level,
        birth: request.txg,
        order: Order::Little,
    }))
}

pub(crate) fn lsize(request: &WriteRequest<'_>) -> u32 {
    match request.raw {
        Some(raw) => raw.lsize,
        None => units::narrow::<u32>(request.data.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::SizeRounding;
    use ondisk::Compression;

    #[test]
    fn sizes_are_rounded_to_what_the_drives_take() {
        let one = SizeRounding::from_min_sizes([4096]);
        assert_eq!((one.round_up(1), one.round_up(4096), one.round_up(4097)), (4096, 4096, 8192));
        let mixed = SizeRounding::from_min_sizes([4096, 512, 6 * 4096]);
        assert_eq!(mixed, SizeRounding { min_size: 512, alignment: 512 });
        let draid = SizeRounding::from_min_sizes([6 * 4096, 4 * 4096]);
        assert_eq!(draid, SizeRounding { min_size: 4 * 4096, alignment: 2 * 4096 });
        assert_eq!(SizeRounding::from_min_sizes([]), SizeRounding::from_min_sizes([512]));
    }

    #[test]
    fn an_eighth_must_be_saved() {
        let sectors = SizeRounding::from_min_sizes([4096]);
        assert_eq!(sectors.compressed_limit(Compression::Lz4, 131_072), 114_688);
        assert_eq!(sectors.compressed_limit(Compression::Lz4, 16384), 12288);
        // less than a sector: only what fits the pointer is of use
        assert_eq!(sectors.compressed_limit(Compression::Lz4, 4096), 112);
        assert_eq!(sectors.compressed_limit(Compression::Zle, 4096), 3584);
    }
}
