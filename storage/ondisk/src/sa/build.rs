//! Attributes to bytes: what fits the bonus buffer, and the buffer itself.

use super::{MAGIC, Value};
use crate::{Order, acl};

/// A header's size with this many lengths in it: the first fits into the header's 8 bytes.
fn header_size(variable: usize) -> usize {
    variable.saturating_sub(1).saturating_mul(2).saturating_add(8).next_multiple_of(8)
}

/// How many of the values, from the first on, fit a buffer of `space` bytes with its header.
pub fn count_fitting(values: &[Value], space: usize) -> usize {
    let (mut bytes, mut variable) = (0_usize, 0_usize);
    let fits = |value: &Value| {
        bytes = bytes.next_multiple_of(8).saturating_add(value.bytes.len());
        variable = variable.saturating_add(usize::from(value.registration.length == 0));
        bytes.saturating_add(header_size(variable)) <= space
    };
    values.iter().map(fits).take_while(|fits| *fits).count()
}

/// The buffer of a layout with these values, in its order. A value of fixed length is
/// truncated or padded to it.
pub fn encode(layout: u16, values: &[Value]) -> Vec<u8> {
    let varies = |value: &&Value| value.registration.length == 0;
    let size = header_size(values.iter().filter(varies).count());
    let mut out = Vec::with_capacity(512);
    out.extend(MAGIC.to_le_bytes());
    let words = u16::try_from(size / 8).unwrap_or(0x3f);
    out.extend((layout & 0x3ff | words << 10).to_le_bytes());
    for value in values.iter().filter(varies) {
        out.extend(units::narrow::<u16>(value.bytes.len()).to_le_bytes());
    }
    out.resize(size, 0);
    for value in values {
        out.resize(out.len().next_multiple_of(8), 0);
        let start = out.len();
        out.extend_from_slice(&value.bytes);
        if value.registration.length != 0 {
            out.resize(start.saturating_add(value.registration.length.into()), 0);
        }
    }
    out
}

/// A value with its numbers least significant byte first.
pub(super) fn to_little(swap: u8, bytes: &[u8], order: Order) -> Vec<u8> {
    let width = match (order, swap) {
        (Order::Little, _) | (_, 3) => return bytes.to_vec(),
        (Order::Big, 4) => return acl::to_little(bytes),
        (Order::Big, 1) => 4,
        (Order::Big, 2) => 2,
        (Order::Big, _) => 8,
    };
    bytes.chunks(width).flat_map(|number| number.iter().rev()).copied().collect()
}
