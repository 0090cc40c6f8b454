//! Reading an array with parity.
//!
//! The common case costs nothing extra: each data column is read straight into its place in the
//! block, and the checksum is verified. Otherwise unreadable columns are rebuilt from
//! parity. If the checksum is still wrong, each child, each pair, each three of them in turn is
//! assumed to be wrong and its columns are rebuilt from the others.

use device::buffer;
use geometry::{Column, Draid, Map};
use parking_lot::Mutex;
use units::Txg;

use crate::mirror::record_leaf_checksum_error;
use crate::node::{NodeAddress, all_holders_asked};
use crate::{DeviceError, Error, Leaf, LeafError, ReadRequest, VdevNode};

/// The most combinations tried for a block.
const MAX_RECONSTRUCTIONS: usize = 20_000;

/// A block on an array.
pub(crate) struct ArrayBlock<'a> {
    /// Where its columns are.
    pub(crate) map: &'a Map,
    /// The array's children.
    pub(crate) children: &'a [VdevNode],
    /// The array, if it is a dRAID.
    pub(crate) draid: Option<&'a Draid>,
    /// The children that were wrong in the last such block.
    pub(crate) suspects: &'a Mutex<Vec<usize>>,
}

/// A block's columns as they were read.
#[derive(Default)]
pub(crate) struct ReadColumns {
    /// Whether the column could be read, row by row (parity first).
    pub(crate) is_readable: Vec<Vec<bool>>,
    /// The parity columns' bytes, row by row.
    pub(crate) parity: Vec<Vec<Vec<u8>>>,
}

impl Drop for ReadColumns {
    fn drop(&mut self) {
        self.parity.drain(..).flatten().for_each(buffer::recycle);
    }
}

impl ArrayBlock<'_> {
    /// Reads the block whose checksum is right.
    pub(crate) fn read(
        &self,
        request: &ReadRequest<'_>,
        into: &mut [u8],
        faults: &mut Vec<LeafError>,
    ) -> Result<(), Error> {
        assert_eq!(into.len(), request.size, "a block is read into its length");
        if into.len() == self.map.size() {
            return self.read_rows(request, into, faults);
        }
        // the last sector, or row, has zeros behind the block
        let mut rows = buffer::alloc(self.map.size());
        let result = self.read_rows(request, &mut rows, faults);
        for (to, from) in into.iter_mut().zip(&rows) {
            *to = *from;
        }
        buffer::recycle(rows);
        result
    }

    /// The same, with what fills up its last row.
    fn read_rows(
        &self,
        request: &ReadRequest<'_>,
        into: &mut [u8],
        faults: &mut Vec<LeafError>,
    ) -> Result<(), Error> {
        let before = faults.len();
        let first = self.read_attempt(request, false, into, faults);
        let stale = faults[before..].iter().any(|fault| fault.error == DeviceError::Stale);
        if first.is_ok() || !request.has_checksum || !stale {
            return first;
        }
        self.read_attempt(request, true, into, faults).map_err(|second| {
            if all_holders_asked(self.children, request.birth, &faults[before..]) {
                return second;
            }
            first.err().unwrap_or(second)
        })
    }

    fn read_attempt(
        &self,
        request: &ReadRequest<'_>,
        stale_too: bool,
        into: &mut [u8],
        faults: &mut Vec<LeafError>,
    ) -> Result<(), Error> {
        let mut lost = Vec::new();
        for (row_index, row) in self.map.rows().enumerate() {
            for (index, column) in row.data().iter().enumerate() {
                let Some(place) = into.get_mut(column.data()) else {
                    return Err(Error::InvalidAddress(
                        "a column lies outside of its block".to_owned(),
                    ));
                };
                if self.read_column(column, request, stale_too, place, faults).is_err() {
                    lost.push((row_index, index));
                }
            }
        }
        if lost.is_empty() && (request.is_valid)(&into[..request.size]) {
            return Ok(());
        }
        let columns = self.read_parity(request, stale_too, &lost, faults);
        self.reconstruct(request, &columns, into, faults)
    }

    /// Reads one column; nothing is read for an empty one.
    pub(crate) fn read_column(
        &self,
        column: &Column,
        request: &ReadRequest<'_>,
        stale_too: bool,
        into: &mut [u8],
        faults: &mut Vec<LeafError>,
    ) -> Result<(), DeviceError> {
        if column.size == 0 {
            return Ok(());
        }
        let Some(child) = self.children.get(column.child) else { return Err(DeviceError::Missing) };
        let spot = if column.scratch {
            let offset = column.device_offset();
            NodeAddress {
                is_absolute: true,
                allow_stale: stale_too,
                ..NodeAddress::new(offset, request.birth)
            }
        } else {
            NodeAddress { allow_stale: stale_too, ..NodeAddress::new(column.offset, request.birth) }
        };
        let family = self.draid.map(|draid| (draid, self.children));
        child.read_child(family, spot, into, faults)
    }

    /// Reads the parity of all rows; `lost` are data columns that could not be read.
    pub(crate) fn read_parity(
        &self,
        request: &ReadRequest<'_>,
        stale_too: bool,
        lost: &[(usize, usize)],
        faults: &mut Vec<LeafError>,
    ) -> ReadColumns {
        let mut columns = ReadColumns::default();
        for (row_index, row) in self.map.rows().enumerate() {
            let mut good = vec![true; row.columns().len()];
            for (_, index) in lost.iter().filter(|(r, _)| *r == row_index) {
                good[row.parity().len() + index] = false;
            }
            let mut parity = Vec::with_capacity(row.parity().len());
            for (index, column) in row.parity().iter().enumerate() {
                let mut bytes = buffer::alloc(column.size);
                good[index] =
                    self.read_column(column, request, stale_too, &mut bytes, faults).is_ok();
                parity.push(bytes);
            }
            columns.is_readable.push(good);
            columns.parity.push(parity);
        }
        columns
    }

    /// Builds the block from the readable columns, with more and more children assumed wrong.
    pub(crate) fn reconstruct(
        &self,
        request: &ReadRequest<'_>,
        columns: &ReadColumns,
        into: &mut [u8],
        faults: &mut Vec<LeafError>,
    ) -> Result<(), Error> {
        assert_eq!(into.len(), self.map.size(), "all rows of a block are reconstructed together");
        assert_eq!(columns.is_readable.len(), self.map.rows().len(), "each row was read");
        let original = into.to_vec();
        let mut possible = false;
        let mut attempt = |liars: &[usize], into: &mut [u8]| {
            let rebuilt = self.rebuild_columns(columns, liars, &original, into);
            possible |= rebuilt;
            if rebuilt && (request.is_valid)(&into[..request.size]) {
                return true;
            }
            into.copy_from_slice(&original);
            false
        };
        if attempt(&[], into) {
            return Ok(());
        }
        if request.has_checksum {
            let remembered = self.suspects.lock().clone();
            let guesses = SuspectSets::new(self.suspect_candidates(columns), self.map.parity());
            let first = std::iter::once(remembered).filter(|guess| !guess.is_empty());
            for liars in first.chain(guesses).take(MAX_RECONSTRUCTIONS) {
                if attempt(&liars, into) {
                    for leaf in self.corrupt_leaves(columns, &liars, &original, into) {
                        record_leaf_checksum_error(leaf, faults);
                    }
                    *self.suspects.lock() = liars;
                    return Ok(());
                }
            }
        }
        if possible {
            return Err(Error::ChecksumMismatch);
        }
        let missing =
            columns.is_readable.iter().map(|row| row.iter().filter(|good| !**good).count());
        Err(Error::Unavailable {
            missing: missing.max().unwrap_or(0),
            redundancy: self.map.parity(),
        })
    }

    /// The children of which some column was read, and so may be wrong.
    fn suspect_candidates(&self, columns: &ReadColumns) -> Vec<usize> {
        let mut children = Vec::new();
        for (row, good) in self.map.rows().zip(&columns.is_readable) {
            for (column, good) in row.columns().iter().zip(good) {
                if *good && column.size > 0 && !children.contains(&column.child) {
                    children.push(column.child);
                }
            }
        }
        children
    }

    /// Rebuilds the data columns that are lost or of liars; false where parity does not suffice.
    fn rebuild_columns(
        &self,
        columns: &ReadColumns,
        liars: &[usize],
        original: &[u8],
        into: &mut [u8],
    ) -> bool {
        let trusted = |column: &Column, good: bool| good && !liars.contains(&column.child);
        for ((row, good), parity) in self.map.rows().zip(&columns.is_readable).zip(&columns.parity)
        {
            let (parity_good, data_good) = good.split_at(row.parity().len());
            let parity: Vec<Option<&[u8]>> = (row.parity().iter().zip(parity_good).zip(parity))
                .map(|((column, good), bytes)| trusted(column, *good).then_some(&bytes[..]))
                .collect();
            let mut missing = Vec::new();
            let mut data: Vec<Option<&[u8]>> = Vec::with_capacity(row.data().len());
            for (index, (column, good)) in row.data().iter().zip(data_good).enumerate() {
                if column.size == 0 || trusted(column, *good) {
                    data.push(original.get(column.data()));
                } else {
                    data.push(None);
                    missing.push(index);
                }
            }
            if missing.is_empty() {
                continue;
            }
            if missing.len() > parity.iter().flatten().count() {
                return false;
            }
            let mut out: Vec<Vec<u8>> =
                missing.iter().map(|index| vec![0; row.data()[*index].size]).collect();
            let mut slices: Vec<&mut [u8]> = out.iter_mut().map(Vec::as_mut_slice).collect();
            if simd::parity::rebuild(parity.len(), &data, &parity, &missing, &mut slices).is_err() {
                return false;
            }
            for (index, bytes) in missing.iter().zip(&out) {
                if let Some(place) = into.get_mut(row.data()[*index].data()) {
                    place.copy_from_slice(bytes);
                }
            }
        }
        true
    }

    /// The leaves of suspects that really had wrong data.
    fn corrupt_leaves(
        &self,
        columns: &ReadColumns,
        liars: &[usize],
        original: &[u8],
        right: &[u8],
    ) -> Vec<&Leaf> {
        let mut wrong: Vec<&Leaf> = Vec::new();
        for (row, good) in self.map.rows().zip(&columns.is_readable) {
            let data_good = &good[row.parity().len()..];
            for (column, good) in row.data().iter().zip(data_good) {
                if *good
                    && liars.contains(&column.child)
                    && original.get(column.data()) != right.get(column.data())
                {
                    let known =
                        |leaf: &&Leaf| wrong.iter().all(|known| known.guid() != leaf.guid());
                    let more: Vec<_> = self.column_leaves(column).filter(known).collect();
                    wrong.extend(more);
                }
            }
        }
        wrong
    }

    /// Records that the read content of a column was wrong.
    pub(crate) fn record_checksum_error(&self, column: &Column, faults: &mut Vec<LeafError>) {
        self.column_leaves(column).for_each(|leaf| record_leaf_checksum_error(leaf, faults));
    }

    /// The leaves that a column lies on.
    fn column_leaves(&self, column: &Column) -> impl Iterator<Item = &Leaf> {
        let family = self.draid.map(|draid| (draid, self.children));
        let spot = NodeAddress::new(column.offset, Txg::ZERO);
        let child = self.children.get(column.child).into_iter();
        child.flat_map(move |child| child.holding_leaves(family, spot)).map(|leaf| &**leaf)
    }
}

/// All sets of one, then two, then three of some things.
struct SuspectSets {
    candidates: Vec<usize>,
    max_size: usize,
    current: Vec<usize>,
}

impl SuspectSets {
    fn new(candidates: Vec<usize>, max_size: usize) -> Self {
        let current = if candidates.is_empty() || max_size == 0 { Vec::new() } else { vec![0] };
        Self { candidates, max_size, current }
    }

    /// Steps to the next set of places: the last that can still move moves, those behind it follow.
    fn advance(&mut self) {
        let (count, size) = (self.candidates.len(), self.current.len());
        for place in (0..size).rev() {
            if self.current[place] < count - (size - place) {
                let start = self.current[place] + 1;
                for (offset, index) in self.current[place..].iter_mut().enumerate() {
                    *index = start + offset;
                }
                return;
            }
        }
        let larger = size + 1;
        self.current =
            if larger <= self.max_size.min(count) { (0..larger).collect() } else { Vec::new() };
    }
}

impl Iterator for SuspectSets {
    type Item = Vec<usize>;

    fn next(&mut self) -> Option<Vec<usize>> {
        if self.current.is_empty() {
            return None;
        }
        let guess = self.current.iter().map(|index| self.candidates[*index]).collect();
        self.advance();
        Some(guess)
    }
}

#[cfg(test)]
mod tests {
    use super::SuspectSets;

    #[test]
    fn every_set_is_guessed_once_small_ones_first() {
        let guesses: Vec<_> = SuspectSets::new(vec![7, 8, 9], 2).collect();
        assert_eq!(guesses, [vec![7], vec![8], vec![9], vec![7, 8], vec![7, 9], vec![8, 9]]);
        assert_eq!(SuspectSets::new((0..10).collect(), 3).count(), 10 + 45 + 120);
        assert_eq!(SuspectSets::new(vec![1], 3).count(), 1);
        assert_eq!(SuspectSets::new(vec![], 3).count(), 0);
    }
}
