//! Writing a record field by field, in either byte order.

use super::RECORD_SIZE;
use crate::Order;

/// The bytes of one record, filled from the front.
pub(super) struct RecordBuffer {
    bytes: [u8; RECORD_SIZE],
    at: usize,
    order: Order,
}

impl RecordBuffer {
    pub(super) const fn new(order: Order) -> Self {
        Self { bytes: [0; RECORD_SIZE], at: 0, order }
    }

    /// Appends bytes as they stand.
    ///
    /// # Panics
    /// Where they do not fit. The fields of a record are of fixed sizes, so they always do.
    pub(super) fn bytes(&mut self, field: &[u8]) -> &mut Self {
        let end = self.at.checked_add(field.len());
        let room = end.and_then(|end| self.bytes.get_mut(self.at..end));
        let Some(room) = room else { panic!("a record's fields fit into the record") };
        room.copy_from_slice(field);
        self.at = end.unwrap_or(RECORD_SIZE);
        self
    }

    pub(super) fn u8(&mut self, number: u8) -> &mut Self {
        self.bytes(&[number])
    }

    pub(super) fn u32(&mut self, number: u32) -> &mut Self {
        self.bytes(&match self.order {
            Order::Little => number.to_le_bytes(),
            Order::Big => number.to_be_bytes(),
        })
    }

    pub(super) fn u64(&mut self, number: u64) -> &mut Self {
        self.bytes(&match self.order {
            Order::Little => number.to_le_bytes(),
            Order::Big => number.to_be_bytes(),
        })
    }

    pub(super) fn words(&mut self, numbers: &[u64]) -> &mut Self {
        for number in numbers {
            self.u64(*number);
        }
        self
    }

    pub(super) const fn finish(self) -> [u8; RECORD_SIZE] {
        self.bytes
    }
}
