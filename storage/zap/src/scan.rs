//! A scan of a table of numbers: every entry once, in the order in which the blocks have them.
//!
//! [`Zap::entries`] sorts by hash, so that a listing can be continued, and allocates each name and
//! value. A scan does neither: deadlists have an entry for each snapshot, and a pool reads them by the
//! million when it destroys snapshots.

use ondisk::zap::leaf::Leaf;

use crate::fat_table::{FatTable, corrupt_error};
use crate::micro::parse_micro;
use crate::zap::{Zap, ZapKind};
use crate::{Error, Result};

impl Zap {
    /// Calls `visit` with the name and the number of each entry. Values that are not one number are
    /// skipped. The first error ends the scan.
    pub fn scan_numbers(&self, visit: &mut dyn FnMut(&[u8], u64)) -> Result<()> {
        match &*self.current()? {
            ZapKind::Micro(table) => {
                parse_micro(&table.block)
                    .entries()
                    .for_each(|entry| visit(entry.name, entry.value));
                Ok(())
            }
            ZapKind::Fat(fat) => self.scan_leaves(fat, visit),
        }
    }

    fn scan_leaves(&self, fat: &FatTable, visit: &mut dyn FnMut(&[u8], u64)) -> Result<()> {
        let object = self.object();
        let mut name = Vec::new();
        let mut index = 0_u64;
        while let Some(hash) = fat.first_hash(index) {
            let number = fat.leaf_at_index(object, index)?;
            let block = fat.block(object, number)?;
            let told = |error| corrupt_error(object, number, error);
            let leaf = Leaf::parse(&block, block.order()).map_err(told)?;
            let wrong = || Error::WrongLeaf { zbookmark: object.zbookmark(number), hash };
            index = end_of_leaf(fat, &leaf, index).ok_or_else(wrong)?;
            for entry in leaf.entries() {
                let entry = entry.map_err(told)?;
                if let Some(value) = leaf.number(&entry).map_err(told)? {
                    leaf.read_name(&entry, &mut name).map_err(told)?;
                    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
                    visit(name.get(..end).unwrap_or(&name), value);
                }
            }
        }
        Ok(())
    }
}

/// The place in the pointer table behind the pointers to a leaf; `None` if the leaf's prefix does not
/// cover `index`.
fn end_of_leaf(fat: &FatTable, leaf: &Leaf<'_>, index: u64) -> Option<u64> {
    let spare = fat.header.table_shift.checked_sub(leaf.prefix_bits)?;
    let first = leaf.prefix.checked_shl(spare)?;
    let end = first.checked_add(1_u64.checked_shl(spare)?)?;
    (first..end).contains(&index).then_some(end)
}
