//! From a block's content to the bytes that are stored: a hole, a payload, or bytes for the drives.

use ondisk::blkptr::{Embedded, Hole};
use ondisk::{Blkptr, Compression, ObjectType, Order};
use transform::compress;

use crate::WriteRequest;

/// To what sizes stored blocks are rounded, lest a drive's sector be charged as a part of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rounding {
    /// The smallest block that any normal vdev stores: its sector, or a row of a dRAID.
    pub smallest: u64,
    /// What divides the smallest blocks of all of them.
    pub step: u64,
}

impl Rounding {
    /// Of vdevs that store no less than so many bytes each.
    pub fn of(smallest: impl IntoIterator<Item = u64>) -> Self {
        let mut all = smallest.into_iter().filter(|size| *size >= SECTOR);
        let Some(first) = all.next() else { return Self { smallest: SECTOR, step: SECTOR } };
        all.fold(Self { smallest: first, step: first }, |found, size| Self {
            smallest: found.smallest.min(size),
            step: common_divisor(found.step, size),
        })
    }

    fn up(self, bytes: u64) -> u64 {
        if bytes <= self.smallest { self.smallest } else { bytes.next_multiple_of(self.step) }
    }

    /// More than so many bytes are not worth it, for a block of `lsize`: an eighth must be saved.
    fn limit(self, method: Compression, lsize: u64) -> u64 {
        let most = lsize - lsize / 8;
        if method == Compression::Zle {
            return most;
        }
        let whole = most - most % self.step;
        if whole < self.smallest { Blkptr::PAYLOAD as u64 } else { whole }
    }
}

const SECTOR: u64 = 512;

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

/// What became of the content.
pub(crate) enum Packed {
    /// It needs no room.
    Pointer(Blkptr),
    /// It is stored as it is.
    Plain,
    /// It is stored as these bytes.
    Compressed(Vec<u8>, Compression),
}

pub(crate) fn pack(request: &WriteRequest<'_>, rounding: Rounding) -> Packed {
    let WriteRequest { data, policy, kind, level, .. } = *request;
    if policy.hole_of_zeros && compress::is_zero(data) {
        return Packed::Pointer(hole(request));
    }
    let lsize = data.len() as u64;
    let method = method_of(request);
    let limit = usize::try_from(rounding.limit(method, lsize)).unwrap_or(usize::MAX);
    let Some(mut bytes) = compress::compress(method, policy.zstd_level, data, limit) else {
        return Packed::Plain;
    };
    let has_fill = matches!(kind, ObjectType::DNODE | ObjectType::OBJSET);
    let may_embed = policy.embed && policy.key.is_none() && level.get() == 0 && !has_fill;
    if may_embed && !bytes.is_empty() && bytes.len() <= Blkptr::PAYLOAD {
        return Packed::Pointer(embedded(request, bytes, method));
    }
    let rounded = rounding.up(bytes.len() as u64);
    if rounded >= lsize {
        return Packed::Plain;
    }
    bytes.resize(usize::try_from(rounded).unwrap_or(usize::MAX), 0);
    Packed::Compressed(bytes, method)
}

/// Dnodes and object sets of encrypted datasets are never compressed: parts of them are ciphered.
fn method_of(request: &WriteRequest<'_>) -> Compression {
    let in_parts =
        request.level.get() == 0 && matches!(request.kind, ObjectType::DNODE | ObjectType::OBJSET);
    match request.policy.compression {
        _ if in_parts && request.policy.key.is_some() => Compression::Off,
        // would be taken for zeros
        Compression::Empty => Compression::Off,
        method => method,
    }
}

/// What was never anything but zeros has no birth.
fn hole(request: &WriteRequest<'_>) -> Blkptr {
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

fn embedded(request: &WriteRequest<'_>, payload: Vec<u8>, compression: Compression) -> Blkptr {
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
    u32::try_from(request.data.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::Rounding;
    use ondisk::Compression;

    #[test]
    fn sizes_are_rounded_to_what_the_drives_take() {
        let one = Rounding::of([4096]);
        assert_eq!((one.up(1), one.up(4096), one.up(4097)), (4096, 4096, 8192));
        let mixed = Rounding::of([4096, 512, 6 * 4096]);
        assert_eq!(mixed, Rounding { smallest: 512, step: 512 });
        let draid = Rounding::of([6 * 4096, 4 * 4096]);
        assert_eq!(draid, Rounding { smallest: 4 * 4096, step: 2 * 4096 });
        assert_eq!(Rounding::of([]), Rounding::of([512]));
    }

    #[test]
    fn an_eighth_must_be_saved() {
        let sectors = Rounding::of([4096]);
        assert_eq!(sectors.limit(Compression::Lz4, 131_072), 114_688);
        assert_eq!(sectors.limit(Compression::Lz4, 16384), 12288);
        // less than a sector: only what fits the pointer is of use
        assert_eq!(sectors.limit(Compression::Lz4, 4096), 112);
        assert_eq!(sectors.limit(Compression::Zle, 4096), 3584);
    }
}
