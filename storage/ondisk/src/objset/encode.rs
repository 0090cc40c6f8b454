//! An object set's way back to its block (drawn in the parent module).

use super::{Kind, LogHeader, ObjsetHeader};
use crate::dnode::Dnode;
use crate::writer::FixedWriter;

impl Kind {
    /// The number on disk.
    pub const fn number(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Meta => 1,
            Self::Filesystem => 2,
            Self::Volume => 3,
            Self::Other => 4,
        }
    }
}

impl LogHeader {
    /// The bytes as they stand in a little-endian block.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        let mut room = FixedWriter::new(&mut bytes);
        room.u64(self.claim_txg.get())
            .u64(self.replay_seq)
            .bytes(&self.chain.encode())
            .u64(self.claim_block_seq)
            .u64(self.flags)
            .u64(self.claim_record_seq)
            .zeros(24);
        bytes
    }
}

impl ObjsetHeader {
    /// Bytes of the block in current pools: with accounts by owner, group and project.
    pub const SIZE: usize = 4096;
    /// Before accounts by project.
    pub const OLD_SIZE: usize = 2048;
    /// Before any accounts.
    pub const OLDEST_SIZE: usize = 1024;

    /// The block, of `size` bytes: one of the three that there are.
    pub fn encode(&self, size: usize) -> Vec<u8> {
        let mut bytes = vec![0; size];
        let mut room = FixedWriter::new(&mut bytes);
        write_dnode(&mut room, self.meta.as_ref());
        room.bytes(&self.log.encode())
            .u64(self.kind.number())
            .u64(self.flags.0)
            .bytes(&self.portable_mac)
            .bytes(&self.local_mac)
            .zeros(240);
        for used in [&self.user_used, &self.group_used, &self.project_used] {
            write_dnode(&mut room, used.as_ref());
        }
        bytes
    }
}

/// A dnode of one slot, if the form of the block has it.
fn write_dnode(room: &mut FixedWriter<'_>, dnode: Option<&Dnode>) {
    if room.remaining() < Dnode::SLOT {
        return;
    }
    let slot = room.next_slice(Dnode::SLOT);
    if let Some(dnode) = dnode {
        assert_eq!(dnode.size(), Dnode::SLOT, "a dnode in a root block has one slot");
        dnode.encode(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::ObjsetHeader;
    use crate::Order;

    const REAL: &[u8] = include_bytes!("../../tests/golden/objset-names.bin");

    #[test]
    fn golden_objset_survives_encoding() {
        for size in [ObjsetHeader::OLDEST_SIZE, ObjsetHeader::OLD_SIZE, ObjsetHeader::SIZE] {
            let mut bytes = REAL.to_vec();
            bytes.resize(size, 0);
            let header = ObjsetHeader::parse(&bytes, Order::Little).unwrap();
            assert_eq!(header.encode(size), bytes, "of {size} bytes");
        }
    }
}
