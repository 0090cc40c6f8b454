//! A dnode's way back to its slots (drawn in the parent module).

use super::Dnode;
use crate::Blkptr;
use crate::writer::FixedWriter;

impl Dnode {
    /// Fills the slots at the start of `bytes`, which are [`Self::size`] or more; later bytes stay
    /// unchanged. Unused space of the slots becomes zeros.
    ///
    /// # Panics
    /// If pointers, bonus and spill do not fit, or if the bonus has big-endian content. Callers
    /// that make or change dnodes prevent both.
    pub fn encode(&self, bytes: &mut [u8]) {
        let whole = bytes.get_mut(..self.size()).unwrap_or_default();
        assert!(whole.len() == self.size(), "a dnode is written into all of its slots");
        assert!(self.bonus.len() <= self.bonus_space(), "a bonus fits its dnode");
        assert!(
            self.bonus.len().saturating_add(self.bonus_tail.len()) <= self.bonus_space(),
            "an encrypted bonus area fits its dnode"
        );
        assert!(
            self.order == crate::Order::Little || self.bonus.is_empty(),
            "a bonus is little-endian before it is written"
        );
        let mut room = FixedWriter::new(whole);
        let used = if self.flags.used_in_bytes() { self.used_bytes } else { self.used_bytes >> 9 };
        room.u8(self.kind.0)
            .u8(self.indirect_shift)
            .u8(self.levels)
            .u8(pointer_count(&self.pointers))
            .u8(self.bonus_kind.0)
            .u8(self.checksum)
            .u8(self.compression)
            .u8(self.flags.0)
            .u16(units::narrow(self.block_size >> 9))
            .u16(units::narrow(self.bonus.len()))
            .u8(self.slots.saturating_sub(1))
            .zeros(3)
            .u64(self.max_block.get())
            .u64(used)
            .zeros(32);
        for pointer in &self.pointers {
            room.bytes(&pointer.encode());
        }
        room.bytes(&self.bonus);
        room.bytes(&self.bonus_tail);
        let free = room.remaining();
        room.zeros(free);
        if let Some(spill) = &self.spill {
            // it may overlap pointers that are not used
            let at = self.size().saturating_sub(Blkptr::SIZE);
            FixedWriter::new(whole.get_mut(at..).unwrap_or_default()).bytes(&spill.encode());
        }
    }

    /// Bytes that a bonus may have: from the last pointer to the end, or to the spill pointer.
    pub fn bonus_space(&self) -> usize {
        let pointers = self.pointers.len().saturating_mul(Blkptr::SIZE);
        let spill = if self.spill.is_some() { Blkptr::SIZE } else { 0 };
        self.size().saturating_sub(Self::CORE).saturating_sub(pointers).saturating_sub(spill)
    }
}

fn pointer_count(pointers: &[Blkptr]) -> u8 {
    units::narrow(pointers.len())
}

#[cfg(test)]
mod tests {
    use super::Dnode;
    use crate::Order;

    const REAL: &[u8] = include_bytes!("../../tests/golden/objset-names.bin");

    #[test]
    fn golden_dnode_survives_encoding() {
        let dnode = Dnode::parse(REAL, Order::Little).unwrap().unwrap();
        let mut bytes = [0xff; 600];
        dnode.encode(&mut bytes);
        assert_eq!(bytes[..512], REAL[..512]);
        assert_eq!(bytes[512..], [0xff; 88]);
    }

    proptest::proptest! {
        #[test]
        fn any_dnode_survives_its_bytes(
            mut bytes in proptest::collection::vec(0_u8.., 1024),
            slots in 0_u8..2, levels in 1_u8..13, pointers in 1_u8..4, bonus in 0_u8..192, flags: u8,
        ) {
            (bytes[0], bytes[1], bytes[2], bytes[3]) = (19, 17, levels, pointers);
            (bytes[7], bytes[8], bytes[9], bytes[10], bytes[11]) = (flags, 3, 0, bonus, 0);
            bytes[12] = slots;
            (bytes[30], bytes[31]) = (0, 0);
            for pointer in bytes[64..].chunks_mut(128) {
                // of known algorithms, so that most of them are pointers
                (pointer[52], pointer[53]) = (2, 7);
            }
            if let Ok(Some(dnode)) = Dnode::parse(&bytes, Order::Little)
                && dnode.bonus.len() <= dnode.bonus_space()
            {
                let mut again = vec![0; dnode.size()];
                dnode.encode(&mut again);
                let again = Dnode::parse(&again, Order::Little).unwrap().unwrap();
                proptest::prop_assert_eq!(again, dnode);
            }
        }
    }
}
