//! Writing blocks at addresses that the allocator gave.
//!
//! A block becomes pieces: its columns are slices of the caller's bytes, parity is computed into
//! one buffer for all blocks of a batch. The pieces of each child are sorted, neighbours go out in
//! one request, and the sectors that raidz leaves over between blocks are filled where that joins
//! two of them. A block is written if no row of it lost more columns than there is parity, and on
//! a mirror if one side has it; who missed something is named, and the leaf itself remembers it.
//!
//! Proved by: `tests/it/write.rs`; `blocks_of_real_pools_are_written_as_openzfs_wrote_them` (spa).

use device::buffer;
use geometry::{Block, Column, Draid, Map, Row};
use units::{Txg, VdevId};

use crate::node::Spot;
use crate::{Error, Kind, LeafFault, Node, Tree};

/// What a sector is filled up with; the largest sector there is.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// So much data is written at a time: parity and what it was computed from shall still be in the
/// processor's cache when they go out.
const AT_A_TIME: usize = 256 << 10;

/// A block to be written.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// On which top-level vdev.
    pub vdev: VdevId,
    /// Bytes from the end of the front labels.
    pub offset: u64,
    /// The txg in which it is written.
    pub birth: Txg,
    /// The bytes that are to be stored; zeros are added up to the end of the last sector.
    pub data: &'a [u8],
}

impl Tree {
    /// Writes a block, parity included. Ok while redundancy lasts; leaves that missed something
    /// are added to `faults`, and remember it.
    pub fn write(
        &self,
        vdev: VdevId,
        offset: u64,
        data: &[u8],
        birth: Txg,
        faults: &mut Vec<LeafFault>,
    ) -> Result<(), Error> {
        let mut result = Ok(());
        self.write_group(&[Outgoing { vdev, offset, birth, data }], faults, &mut |_, error| {
            result = Err(error);
        });
        result
    }

    /// Writes many blocks, small neighbours in one request for each drive; what became of each is
    /// given in the same order.
    pub fn write_many(
        &self,
        blocks: &[Outgoing<'_>],
        faults: &mut Vec<LeafFault>,
    ) -> Vec<Result<(), Error>> {
        let mut results = vec![Ok(()); blocks.len()];
        let mut order: Vec<usize> = (0..blocks.len()).collect();
        let place = |block: &Outgoing<'_>| (block.vdev, block.birth, block.offset);
        order.sort_unstable_by_key(|index| place(&blocks[*index]));
        let mut rest = &order[..];
        while !rest.is_empty() {
            let (indices, later) = rest.split_at(at_once(blocks, rest));
            rest = later;
            let group: Vec<Outgoing<'_>> = indices.iter().map(|index| blocks[*index]).collect();
            self.write_group(&group, faults, &mut |place, error| {
                results[indices[place]] = Err(error);
            });
        }
        results
    }

    /// Writes blocks of one vdev and one txg; `failed` is told of those that are not written.
    fn write_group(
        &self,
        blocks: &[Outgoing<'_>],
        faults: &mut Vec<LeafFault>,
        failed: &mut dyn FnMut(usize, Error),
    ) {
        let Some(Outgoing { vdev, birth, .. }) = blocks.first().copied() else { return };
        let Some(node) = self.top(vdev) else {
            return (0..blocks.len()).for_each(|index| failed(index, Error::NoVdev(vdev)));
        };
        let node = &*node;
        let mut maps = Vec::with_capacity(blocks.len());
        for (index, block) in blocks.iter().enumerate() {
            match Layout::of(node, block) {
                Ok(layout) => maps.push((index, block.data, layout)),
                Err(error) => failed(index, error),
            }
        }
        let mut scratch = buffer::take(maps.iter().map(|(_, data, map)| map.scratch(data)).sum());
        let mut batch = Batch::default();
        batch.pieces.reserve(maps.iter().map(|(_, _, layout)| layout.pieces()).sum());
        let mut rest = &mut scratch[..];
        for (_, data, layout) in &maps {
            rest = batch.add(layout, data, rest);
        }
        let is_busy = |child| columns(node).0.get(child).is_some_and(Node::is_busy);
        batch.send(&is_busy, &mut |first, parts| put(node, first, birth, parts, faults));
        let mut rows = batch.rows.iter().map(|lost| lost.columns);
        for (index, _, layout) in &maps {
            let worst = rows.by_ref().take(layout.rows()).max().unwrap_or(0);
            if worst > layout.spare() {
                let (missing, spare) = layout.verdict(node, worst);
                failed(*index, Error::Unavailable { missing, spare });
            }
        }
        drop(batch);
        buffer::give(scratch);
    }
}

/// How many of the blocks that are first in this order are to be written together: one, or those
/// of the same vdev and txg that are not too much.
pub(crate) fn at_once(blocks: &[Outgoing<'_>], order: &[usize]) -> usize {
    let mut amount = 0;
    let mut first = None;
    let fits = |index: &&usize| {
        let block = &blocks[**index];
        amount += block.data.len();
        let key = (block.vdev, block.birth);
        *first.get_or_insert(key) == key && amount <= AT_A_TIME
    };
    order.iter().take_while(fits).count().max(1)
}

/// Where a block's bytes go.
pub(crate) enum Layout {
    /// Whole to each side, at its own offset; with so many bytes of zeros behind it.
    Plain { offset: u64, padding: usize },
    /// To the columns of an array.
    Array(Map),
}

impl Layout {
    pub(crate) fn of(node: &Node, block: &Outgoing<'_>) -> Result<Self, Error> {
        let Outgoing { offset, birth, data, .. } = *block;
        let place = Block { offset, size: data.len() };
        if let Kind::Raidz(raidz, _) = &node.kind
            && raidz.reflow().is_some_and(|reflow| reflow.scratch)
        {
            return Err(Error::Scratch { guid: node.guid });
        }
        if let Some((map, _)) = node.map_of(place, birth)? {
            return Ok(Self::Array(map));
        }
        let (Kind::Leaf(_) | Kind::Mirror(_) | Kind::Replacing(_) | Kind::Spare(_)) = node.kind
        else {
            return Err(Error::NoVdev(block.vdev));
        };
        let ashift = node.ashift();
        let unit = ashift.bytes();
        if !offset.is_multiple_of(unit) || data.is_empty() || data.len() > geometry::MAX_BLOCK {
            let what = format!("{} bytes at {offset:#x}, in sectors of {unit}", data.len());
            return Err(Error::Address(what));
        }
        let length = data.len() as u64;
        let padding = usize::try_from(ashift.round_up(length) - length).unwrap_or(0);
        Ok(Self::Plain { offset, padding })
    }

    /// Bytes of memory that its parity, and a column that ends behind the block, need.
    pub(crate) fn scratch(&self, data: &[u8]) -> usize {
        let Self::Array(map) = self else { return 0 };
        let parity: usize = map.rows().map(|row| row.parity().len() * row.height()).sum();
        let columns = map.rows().flat_map(|row| row.data().iter());
        let tails = columns.filter(|column| column.data().end > data.len());
        parity + tails.map(|column| column.size).sum::<usize>()
    }

    /// How many pieces it comes to at most.
    fn pieces(&self) -> usize {
        let Self::Array(map) = self else { return 2 };
        map.rows().map(|row| row.columns().len()).sum::<usize>() + map.padding().len()
    }

    fn rows(&self) -> usize {
        if let Self::Array(map) = self { map.rows().len() } else { 1 }
    }

    /// How many columns of a row may be lost.
    fn spare(&self) -> usize {
        if let Self::Array(map) = self { map.parity() } else { 0 }
    }

    /// How many of how many that may be lost were lost.
    fn verdict(&self, node: &Node, worst: usize) -> (usize, usize) {
        match self {
            Self::Array(map) => (worst, map.parity()),
            Self::Plain { .. } => (node.sides(), node.sides().saturating_sub(1)),
        }
    }
}

/// Bytes for one child.
#[derive(Clone, Copy)]
pub(crate) struct Piece<'a> {
    pub(crate) child: usize,
    /// Bytes from the end of the child's front labels.
    pub(crate) offset: u64,
    pub(crate) bytes: &'a [u8],
    /// To which row of which block it belongs: an index in [`Batch::rows`]. None for what nobody
    /// will ever read.
    row: Option<usize>,
}

impl Piece<'_> {
    /// Whether `next` begins where this ends.
    fn touches(&self, next: &Self) -> bool {
        self.child == next.child && self.offset + self.bytes.len() as u64 == next.offset
    }
}

/// Pieces of several blocks.
#[derive(Default)]
pub(crate) struct Batch<'a> {
    pub(crate) pieces: Vec<Piece<'a>>,
    /// What became of each row of each block.
    rows: Vec<Lost>,
}

/// What a row has lost.
#[derive(Clone, Copy, Default)]
struct Lost {
    columns: usize,
    /// The child of the last of them: a column and the padding below it are lost together.
    last: Option<usize>,
}

impl Lost {
    fn add(&mut self, child: usize) {
        self.columns += usize::from(self.last != Some(child));
        self.last = Some(child);
    }
}

impl<'a> Batch<'a> {
    /// Adds a block; gives what is left of the memory for parity.
    pub(crate) fn add(
        &mut self,
        layout: &Layout,
        data: &'a [u8],
        memory: &'a mut [u8],
    ) -> &'a mut [u8] {
        match layout {
            Layout::Plain { offset, padding } => {
                let row = Some(self.row());
                self.pieces.push(Piece { child: 0, offset: *offset, bytes: data, row });
                let (offset, bytes) = (offset + data.len() as u64, &ZEROS[..*padding]);
                if !bytes.is_empty() {
                    self.pieces.push(Piece { child: 0, offset, bytes, row });
                }
                memory
            }
            Layout::Array(map) => {
                let first = self.rows.len();
                let rest = map.rows().fold(memory, |memory, row| self.add_row(row, data, memory));
                for (index, sector) in map.padding().iter().enumerate() {
                    // what lies in the last row of a dRAID is covered by parity and must be there
                    let row = map.zero_padding().then(|| first + padded_row(map, index));
                    self.push(sector, &ZEROS[..sector.size], row);
                }
                rest
            }
        }
    }

    fn add_row(&mut self, row: Row<'_>, data: &'a [u8], memory: &'a mut [u8]) -> &'a mut [u8] {
        let mut memory = memory;
        let mut columns: Vec<&'a [u8]> = Vec::with_capacity(row.data().len());
        for column in row.data() {
            if let Some(bytes) = data.get(column.data()) {
                columns.push(bytes);
                continue;
            }
            let (tail, rest) = memory.split_at_mut(column.size);
            memory = rest;
            let bytes = data.get(column.data_start..).unwrap_or_default();
            let (head, zeros) = tail.split_at_mut(bytes.len());
            head.copy_from_slice(bytes);
            zeros.fill(0);
            columns.push(tail);
        }
        let (parity, rest) = memory.split_at_mut(row.parity().len() * row.height());
        let mut outs: [&mut [u8]; simd::parity::MAX_ROWS] = Default::default();
        for (out, bytes) in outs.iter_mut().zip(parity.chunks_exact_mut(row.height())) {
            *out = bytes;
        }
        simd::parity::generate(&columns, &mut outs[..row.parity().len()]);
        let number = Some(self.row());
        for (column, bytes) in row.parity().iter().zip(outs) {
            self.push(column, bytes, number);
        }
        for (column, bytes) in row.data().iter().zip(columns) {
            self.push(column, bytes, number);
        }
        rest
    }

    fn push(&mut self, column: &Column, bytes: &'a [u8], row: Option<usize>) {
        if !bytes.is_empty() {
            self.pieces.push(Piece { child: column.child, offset: column.offset, bytes, row });
        }
    }

    /// The next row's number.
    fn row(&mut self) -> usize {
        self.rows.push(Lost::default());
        self.rows.len() - 1
    }

    /// Has everything written, neighbours at once, counting what is lost; last what goes to children
    /// that are busy: each of several threads does better to go on with another drive than to wait.
    pub(crate) fn send(
        &mut self,
        is_busy: &dyn Fn(usize) -> bool,
        put: &mut dyn FnMut(Piece<'_>, &[&[u8]]) -> bool,
    ) {
        self.pieces.sort_unstable_by_key(|piece| (piece.child, piece.offset));
        let pieces = std::mem::take(&mut self.pieces);
        let mut parts = Vec::with_capacity(pieces.len());
        let mut later = Vec::new();
        for run in pieces.chunk_by(Piece::touches) {
            if is_busy(run[0].child) {
                later.push(run);
            } else {
                self.send_run(run, &mut parts, put);
            }
        }
        for run in later {
            self.send_run(run, &mut parts, put);
        }
    }

    fn send_run(
        &mut self,
        run: &[Piece<'a>],
        parts: &mut Vec<&'a [u8]>,
        put: &mut dyn FnMut(Piece<'_>, &[&[u8]]) -> bool,
    ) {
        // filling is of use between pieces only
        let Some(start) = run.iter().position(|piece| piece.row.is_some()) else { return };
        let end = run.iter().rposition(|piece| piece.row.is_some()).map_or(start, |i| i + 1);
        let run = &run[start..end];
        parts.clear();
        parts.extend(run.iter().map(|piece| piece.bytes));
        if put(run[0], parts) {
            return;
        }
        for piece in run {
            // one bad place need not be the loss of all that lies beside it
            let alone = run.len() == 1 || !put(*piece, &[piece.bytes]);
            if let (true, Some(row)) = (alone, piece.row) {
                self.rows[row].add(piece.child);
            }
        }
    }
}

/// Writes parts one behind the other to the child of the piece, at its offset.
fn put(
    node: &Node,
    first: Piece<'_>,
    birth: Txg,
    parts: &[&[u8]],
    faults: &mut Vec<LeafFault>,
) -> bool {
    let spot = Spot::new(first.offset, birth);
    let (children, family) = columns(node);
    let Some(child) = children.get(first.child) else { return false };
    child.write_side(family, spot, parts, faults)
}

/// The dRAID that a child belongs to, and all its children.
pub(crate) type Family<'a> = Option<(&'a Draid, &'a [Node])>;

/// What the columns of blocks go to: the children of an array, or the node itself.
pub(crate) fn columns(node: &Node) -> (&[Node], Family<'_>) {
    match &node.kind {
        Kind::Raidz(_, children) => (children, None),
        Kind::Draid(draid, children) => (children, Some((draid, children))),
        _ => (std::slice::from_ref(node), None),
    }
}

/// To which of the map's rows a sector of padding belongs: those of the first row come first.
fn padded_row(map: &Map, index: usize) -> usize {
    let of_first = map
        .rows()
        .next()
        .map_or(0, |row| row.data().iter().filter(|column| column.size < row.height()).count());
    usize::from(index >= of_first)
}

#[cfg(test)]
mod tests {
    use super::{Batch, Piece};

    #[test]
    fn busy_drives_are_written_last_and_whatever_is_lost_is_counted() {
        let mut batch = Batch::default();
        for (child, offset) in [(2, 0), (0, 0), (1, 0), (0, 4), (0, 512)] {
            let row = Some(batch.row());
            batch.pieces.push(Piece { child, offset, bytes: b"four", row });
        }
        let mut order = Vec::new();
        batch.send(&|child| child == 0, &mut |first, parts| {
            order.push((first.child, first.offset, parts.len()));
            first.offset != 512
        });
        assert_eq!(order, [(1, 0, 1), (2, 0, 1), (0, 0, 2), (0, 512, 1)]);
        let lost: Vec<usize> = batch.rows.iter().map(|lost| lost.columns).collect();
        assert_eq!(lost, [0, 0, 0, 0, 1]);
    }
}
