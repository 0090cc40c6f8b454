//! Numbers put into a block, in its byte order.

use crate::Order;

macro_rules! numbers {
    ($($name:ident: $type:ty;)*) => {$(
        /// Puts a number at an offset; beyond the end of the block nothing is put.
        pub(super) fn $name(bytes: &mut [u8], at: usize, order: Order, value: $type) {
            let raw = match order {
                Order::Little => value.to_le_bytes(),
                Order::Big => value.to_be_bytes(),
            };
            slice(bytes, at, &raw);
        }
    )*};
}

numbers! {
    u16: u16;
    u32: u32;
    u64: u64;
}

/// Puts bytes at an offset.
pub(super) fn slice(bytes: &mut [u8], at: usize, from: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at.saturating_add(from.len())) {
        place.copy_from_slice(from);
    }
}
