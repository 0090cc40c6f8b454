//! The arithmetic of an object's tree: which block is below which pointer.

use ondisk::dnode::Dnode;

/// The proportions of a tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TreeShape {
    /// The level of the pointers in the dnode.
    pub(crate) top_level: u8,
    /// log2 of the pointers in an indirect block.
    pub(crate) fan_out_shift: u32,
}

impl TreeShape {
    pub(crate) fn from_dnode(dnode: &Dnode) -> Self {
        Self { top_level: dnode.levels - 1, fan_out_shift: dnode.fan_out_shift() }
    }

    /// log2 of the data blocks below a pointer of this level.
    fn span_shift(self, level: u8) -> u32 {
        self.fan_out_shift * u32::from(level)
    }

    /// The block of a higher level that data block `block` is below.
    pub(crate) fn ancestor(self, level: u8, block: u64) -> u64 {
        block.checked_shr(self.span_shift(level)).unwrap_or(0)
    }

    /// The block of the next level that a block is below.
    pub(crate) fn parent(self, block: u64) -> u64 {
        block.checked_shr(self.fan_out_shift).unwrap_or(0)
    }

    /// The index of a block's pointer in the indirect block above.
    pub(crate) fn slot(self, block: u64) -> usize {
        let mask = !u64::MAX.checked_shl(self.fan_out_shift).unwrap_or(0);
        units::to_usize(block & mask)
    }

    /// The first block of the next lower level that is below a block.
    pub(crate) fn first_child(self, block: u64) -> u64 {
        saturating_shl(block, self.fan_out_shift)
    }

    /// The first data block that is below a block; the largest number if that is out of range.
    pub(crate) fn first_data_block(self, level: u8, block: u64) -> u64 {
        saturating_shl(block, self.span_shift(level))
    }

    /// The data block that follows those below a block.
    pub(crate) fn end_data_block(self, level: u8, block: u64) -> u64 {
        self.first_data_block(level, block.saturating_add(1))
    }
}

/// Shifts left and saturates.
fn saturating_shl(block: u64, bits: u32) -> u64 {
    match block {
        0 => 0,
        _ if bits <= block.leading_zeros() => block.checked_shl(bits).unwrap_or(u64::MAX),
        _ => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::TreeShape;

    #[test]
    fn spans_of_levels_meet_without_gaps() {
        let shape = TreeShape { top_level: 5, fan_out_shift: 10 };
        assert_eq!(shape.end_data_block(2, 0), 1 << 20);
        assert_eq!(shape.first_data_block(2, 1), 1 << 20);
        assert_eq!(shape.ancestor(2, (1 << 20) - 1), 0);
        assert_eq!((shape.parent(1025), shape.slot(1025), shape.first_child(1)), (1, 1, 1024));
    }

    #[test]
    fn the_tallest_tree_saturates() {
        let shape = TreeShape { top_level: 11, fan_out_shift: 17 };
        assert_eq!(shape.end_data_block(11, 0), u64::MAX);
        assert_eq!(shape.ancestor(11, u64::MAX), 0);
        assert_eq!(shape.first_data_block(0, u64::MAX), u64::MAX);
    }
}
