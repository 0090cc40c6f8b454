//! Writing blocks at addresses that the allocator gave.
//!
//! A block becomes pieces: its columns are slices of the caller's bytes, parity is computed into
//! one buffer for all blocks of a batch. The pieces of each child are sorted, neighbours go out in
//! one request, and the sectors that raidz leaves over between blocks are filled where that joins
//! two of them. A block is written if no row of it lost more columns than there is parity, and on
//! a mirror if one side has it; who missed something is named, and the leaf itself remembers it.
//!
//! Proved by: `tests/it/write.rs`; `rewritten_blocks_equal_those_of_openzfs` (spa).

use device::buffer;
use geometry::{BOOT_SIZE, Block, Column, Draid, LABEL_START, Map, ReflowPosition, Row, Shadow};
use units::{MinusOrZero, Txg, VdevId};

use crate::node::NodeAddress;
use crate::{Error, LeafError, NodeKind, VdevNode, VdevTree};

/// What a sector is filled up with; the largest sector there is.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// So much data is written at a time: parity and what it was computed from shall still be in the
/// processor's cache when they go out.
const MAX_BATCH_BYTES: usize = 256 << 10;

/// A block to be written.
#[derive(Clone, Copy, Debug)]
pub struct BlockWrite<'a> {
    /// On which top-level vdev.
    pub vdev: VdevId,
    /// Bytes from the end of the front labels.
    pub offset: u64,
    /// The txg in which it is written.
    pub birth: Txg,
    /// The bytes that are to be stored; zeros are added up to the end of the last sector.
    pub data: &'a [u8],
}

impl BlockWrite<'_> {
    /// Where the block is, and when it is written.
    pub(crate) fn block(&self) -> (Block, Txg) {
        (Block { offset: self.offset, size: self.data.len() }, self.birth)
    }
}

impl VdevTree {
    /// Writes a block, parity included. Ok while redundancy lasts; leaves that missed something
    /// are added to `faults`, and remember it.
    pub fn write(
        &self,
        vdev: VdevId,
        offset: u64,
        data: &[u8],
        birth: Txg,
        faults: &mut Vec<LeafError>,
    ) -> Result<(), Error> {
        let mut result = Ok(());
        self.write_batch(&[BlockWrite { vdev, offset, birth, data }], faults, &mut |_, error| {
            result = Err(error);
        });
        result
    }

    /// Writes many blocks, small neighbours in one request for each drive; what became of each is
    /// given in the same order.
    ///
    /// # Panics
    ///
    /// If our own arithmetic or bookkeeping is wrong.
    pub fn write_many(
        &self,
        blocks: &[BlockWrite<'_>],
        faults: &mut Vec<LeafError>,
    ) -> Vec<Result<(), Error>> {
        let mut results = vec![Ok(()); blocks.len()];
        let mut order: Vec<usize> = (0..blocks.len()).collect();
        let place = |block: &BlockWrite<'_>| (block.vdev, block.birth, block.offset);
        order.sort_unstable_by_key(|index| place(&blocks[*index]));
        let (mut rest, mut written) = (&order[..], 0);
        while !rest.is_empty() {
            let (indices, later) = rest.split_at(batch_length(blocks, rest));
            (rest, written) = (later, written + indices.len());
            let group: Vec<BlockWrite<'_>> = indices.iter().map(|index| blocks[*index]).collect();
            self.write_batch(&group, faults, &mut |place, error| {
                results[indices[place]] = Err(error);
            });
        }
        assert_eq!(written, blocks.len(), "each block is written in one batch");
        results
    }

    /// Writes blocks of one vdev and one txg; `failed` is told of those that are not written.
    fn write_batch(
        &self,
        blocks: &[BlockWrite<'_>],
        faults: &mut Vec<LeafError>,
        failed: &mut dyn FnMut(usize, Error),
    ) {
        let Some(BlockWrite { vdev, birth, .. }) = blocks.first().copied() else { return };
        let Some(top) = self.top_vdev(vdev) else {
            return (0..blocks.len()).for_each(|index| failed(index, Error::NoVdev(vdev)));
        };
        let node = &*top.node;
        let lock = top.lock_blocks(blocks.iter().map(BlockWrite::block));
        let position = lock.as_ref().map(|lock| lock.position);
        let _rebuild = top.lock_rebuild(blocks.iter().map(BlockWrite::block));
        let mut maps = Vec::with_capacity(blocks.len());
        for (index, block) in blocks.iter().enumerate() {
            match WriteLayout::new(node, block, position) {
                Ok(layout) => maps.push((index, block.data, layout)),
                Err(error) => failed(index, error),
            }
        }
        let mut scratch =
            buffer::alloc(maps.iter().map(|(_, data, map)| map.scratch_size(data)).sum());
        let mut batch = PieceBatch::new(node);
        batch.pieces.reserve(maps.iter().map(|(_, _, layout)| layout.max_pieces()).sum());
        let mut rest = &mut scratch[..];
        for (_, data, layout) in &maps {
            rest = batch.add_block(layout, data, rest);
        }
        assert!(rest.is_empty(), "parity uses the memory that was counted for it");
        let is_busy = |child| column_children(node).0.get(child).is_some_and(VdevNode::is_busy);
        batch.write_all(&is_busy, &mut |first, parts| {
            write_piece(node, first, birth, parts, faults)
        });
        let mut rows = batch.rows.iter().map(|lost| lost.lost_columns);
        for (index, _, layout) in &maps {
            let worst = rows.by_ref().take(layout.row_count()).max().unwrap_or(0);
            if worst > layout.redundancy() {
                let (missing, spare) = layout.loss_summary(node, worst);
                failed(*index, Error::Unavailable { missing, redundancy: spare });
            }
        }
        assert!(rows.next().is_none(), "each row counts for its block");
        drop(batch);
        buffer::recycle(scratch);
    }
}

/// How many of the blocks that are first in this order are to be written together: one, or those
/// of the same vdev and txg that are not too much.
pub(crate) fn batch_length(blocks: &[BlockWrite<'_>], order: &[usize]) -> usize {
    let mut amount = 0;
    let mut first = None;
    let fits = |index: &&usize| {
        let block = &blocks[**index];
        amount += block.data.len();
        let key = (block.vdev, block.birth);
        *first.get_or_insert(key) == key && amount <= MAX_BATCH_BYTES
    };
    order.iter().take_while(fits).count().max(1)
}

/// Where a block's bytes go.
pub(crate) enum WriteLayout {
    /// Whole to each side, at its own offset; with so many bytes of zeros behind it.
    Plain { offset: u64, padding: usize },
    /// To the columns of an array.
    Array(Map),
}

impl WriteLayout {
    pub(crate) fn new(
        node: &VdevNode,
        block: &BlockWrite<'_>,
        position: Option<ReflowPosition>,
    ) -> Result<Self, Error> {
        let BlockWrite { offset, data, .. } = *block;
        let (place, birth) = block.block();
        if let Some((map, _)) = node.block_column_map(place, birth, position)? {
            return Ok(Self::Array(map));
        }
        let (NodeKind::Leaf(_) | NodeKind::Mirror(_) | NodeKind::Replacing(_) | NodeKind::Spare(_)) =
            node.kind
        else {
            return Err(Error::NoVdev(block.vdev));
        };
        let ashift = node.ashift();
        let unit = ashift.bytes();
        if !offset.is_multiple_of(unit) || data.is_empty() || data.len() > geometry::MAX_BLOCK {
            let what = format!("{} bytes at {offset:#x}, in sectors of {unit}", data.len());
            return Err(Error::InvalidAddress(what));
        }
        let length = data.len() as u64;
        let padding = units::to_usize(ashift.round_up(length) - length);
        assert!(padding < units::to_usize(unit), "{padding} bytes fill up a sector of {unit}");
        Ok(Self::Plain { offset, padding })
    }

    /// Bytes of memory that its parity, and a column that ends behind the block, need.
    pub(crate) fn scratch_size(&self, data: &[u8]) -> usize {
        let Self::Array(map) = self else { return 0 };
        let parity: usize = map.rows().map(|row| row.parity().len() * row.height()).sum();
        let columns = map.rows().flat_map(|row| row.data().iter());
        let tails = columns.filter(|column| column.data().end > data.len());
        parity + tails.map(|column| column.size).sum::<usize>()
    }

    /// How many pieces it comes to at most.
    fn max_pieces(&self) -> usize {
        let Self::Array(map) = self else { return 2 };
        let columns = map.rows().map(|row| row.columns().len()).sum::<usize>();
        columns + map.padding().len() + map.shadows().len()
    }

    /// How many rows are written: those with shadows count twice.
    fn row_count(&self) -> usize {
        let Self::Array(map) = self else { return 1 };
        map.rows().len() + map.shadows().chunk_by(|a, b| a.row == b.row).count()
    }

    /// How many columns of a row may be lost.
    fn redundancy(&self) -> usize {
        if let Self::Array(map) = self { map.parity() } else { 0 }
    }

    /// How many of how many that may be lost were lost.
    fn loss_summary(&self, node: &VdevNode, worst: usize) -> (usize, usize) {
        match self {
            Self::Array(map) => (worst, map.parity()),
            Self::Plain { .. } => (node.replica_count(), node.replica_count().minus_or_zero(1)),
        }
    }
}

/// Bytes for one child.
#[derive(Clone, Copy)]
pub(crate) struct WritePiece<'a> {
    pub(crate) child: usize,
    /// Bytes from the end of the child's front labels, or from the start of its boot area.
    pub(crate) offset: u64,
    /// Whether it goes to the scratch copy in the boot area, which a raidz expansion began with.
    pub(crate) in_scratch: bool,
    pub(crate) bytes: &'a [u8],
    /// To which row of which block it belongs: an index in [`PieceBatch::rows`]. None for what nobody
    /// will ever read.
    row: Option<usize>,
}

impl WritePiece<'_> {
    /// Whether `next` begins where this ends, and may go to the child in the same request. A distributed spare
    /// lies on another drive in each slice of a dRAID, so no request crosses the end of one.
    fn is_adjacent(&self, next: &Self, slice_size: Option<u64>) -> bool {
        self.child == next.child
            && self.in_scratch == next.in_scratch
            && self.offset + self.bytes.len() as u64 == next.offset
            && slice_size.is_none_or(|size| !next.offset.is_multiple_of(size))
    }

    /// Where on the child it goes.
    pub(crate) fn address(&self, birth: Txg) -> NodeAddress {
        if !self.in_scratch {
            return NodeAddress::new(self.offset, birth);
        }
        let start = LABEL_START - BOOT_SIZE;
        let offset = start + self.offset;
        NodeAddress { is_absolute: true, ..NodeAddress::new(offset, birth) }
    }
}

/// Pieces of several blocks.
pub(crate) struct PieceBatch<'a> {
    pub(crate) pieces: Vec<WritePiece<'a>>,
    /// Bytes of a slice on each child of a dRAID.
    slice_size: Option<u64>,
    /// What became of each row of each block.
    rows: Vec<RowLoss>,
}

/// What a row has lost.
#[derive(Clone, Copy, Default)]
struct RowLoss {
    lost_columns: usize,
    /// The child of the last of them: a column and the padding below it are lost together.
    last_child: Option<usize>,
}

impl RowLoss {
    fn record(&mut self, child: usize) {
        self.lost_columns += usize::from(self.last_child != Some(child));
        self.last_child = Some(child);
    }
}

impl<'a> PieceBatch<'a> {
    /// An empty batch for the children of a node.
    pub(crate) fn new(node: &VdevNode) -> Self {
        let slice_size = match &node.kind {
            NodeKind::Draid(draid, _) => Some(draid.slice_size()),
            _ => None,
        };
        Self { pieces: Vec::new(), slice_size, rows: Vec::new() }
    }

    /// Adds a block; gives what is left of the memory for parity.
    pub(crate) fn add_block(
        &mut self,
        layout: &WriteLayout,
        data: &'a [u8],
        memory: &'a mut [u8],
    ) -> &'a mut [u8] {
        match layout {
            WriteLayout::Plain { offset, padding } => {
                let row = Some(self.new_row());
                self.push_plain(*offset, data, row);
                let (offset, bytes) = (offset + data.len() as u64, &ZEROS[..*padding]);
                if !bytes.is_empty() {
                    self.push_plain(offset, bytes, row);
                }
                memory
            }
            WriteLayout::Array(map) => {
                let first = self.rows.len();
                let mut shadows = map.shadows();
                let mut rest = memory;
                let mut shadowed = Vec::new();
                for (index, row) in map.rows().enumerate() {
                    let own = shadows.iter().take_while(|shadow| shadow.row == index).count();
                    let (now, later) = shadows.split_at(own);
                    shadows = later;
                    rest = self.add_row(row, (now, &mut shadowed), data, rest);
                }
                self.add_shadows(&shadowed);
                for (index, sector) in map.padding().iter().enumerate() {
                    // what lies in the last row of a dRAID is covered by parity and must be there
                    let row = map.zero_padding().then(|| first + padding_row(map, index));
                    self.push_piece(sector, &ZEROS[..sector.size], row);
                }
                rest
            }
        }
    }

    /// Adds the columns of a row; what their shadows hold goes to `shadowed`.
    fn add_row(
        &mut self,
        row: Row<'_>,
        (shadows, shadowed): (&[Shadow], &mut Vec<(Shadow, &'a [u8])>),
        data: &'a [u8],
        memory: &'a mut [u8],
    ) -> &'a mut [u8] {
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
        let number = Some(self.new_row());
        let outs = outs.into_iter().take(row.parity().len()).map(|out| &*out);
        let all: Vec<&'a [u8]> = outs.chain(columns).collect();
        assert_eq!(all.len(), row.columns().len(), "each column has its bytes");
        for (column, bytes) in row.columns().iter().zip(&all) {
            assert_eq!(bytes.len(), column.size, "a column is written whole");
            self.push_piece(column, bytes, number);
        }
        shadowed.extend(shadows.iter().filter_map(|one| Some((*one, *all.get(one.index)?))));
        rest
    }

    /// Adds what is written a second time, at the new width of an array that is being expanded.
    fn add_shadows(&mut self, shadowed: &[(Shadow, &'a [u8])]) {
        for row in shadowed.chunk_by(|(a, _), (b, _)| a.row == b.row) {
            let number = Some(self.new_row());
            for (shadow, bytes) in row {
                let Shadow { child, offset, scratch, .. } = *shadow;
                let column = Column { child, offset, size: bytes.len(), data_start: 0, scratch };
                self.push_piece(&column, bytes, number);
            }
        }
    }

    fn push_plain(&mut self, offset: u64, bytes: &'a [u8], row: Option<usize>) {
        self.pieces.push(WritePiece { child: 0, offset, in_scratch: false, bytes, row });
    }

    fn push_piece(&mut self, column: &Column, bytes: &'a [u8], row: Option<usize>) {
        if !bytes.is_empty() {
            let Column { child, offset, scratch, .. } = *column;
            self.pieces.push(WritePiece { child, offset, in_scratch: scratch, bytes, row });
        }
    }

    /// The next row's number.
    fn new_row(&mut self) -> usize {
        self.rows.push(RowLoss::default());
        self.rows.len() - 1
    }

    /// Has everything written, neighbours at once, counting what is lost; last what goes to children
    /// that are busy: each of several threads does better to go on with another drive than to wait.
    pub(crate) fn write_all(
        &mut self,
        is_busy: &dyn Fn(usize) -> bool,
        put: &mut dyn FnMut(WritePiece<'_>, &[&[u8]]) -> bool,
    ) {
        self.pieces.sort_unstable_by_key(|piece| (piece.child, piece.in_scratch, piece.offset));
        let pieces = std::mem::take(&mut self.pieces);
        let mut parts = Vec::with_capacity(pieces.len());
        let mut later = Vec::new();
        let slice_size = self.slice_size;
        for run in pieces.chunk_by(|piece, next| piece.is_adjacent(next, slice_size)) {
            if is_busy(run[0].child) {
                later.push(run);
            } else {
                self.write_adjacent(run, &mut parts, put);
            }
        }
        for run in later {
            self.write_adjacent(run, &mut parts, put);
        }
    }

    fn write_adjacent(
        &mut self,
        run: &[WritePiece<'a>],
        parts: &mut Vec<&'a [u8]>,
        put: &mut dyn FnMut(WritePiece<'_>, &[&[u8]]) -> bool,
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
                self.rows[row].record(piece.child);
            }
        }
    }
}

/// Writes parts one behind the other to the child of the piece, at its offset.
fn write_piece(
    node: &VdevNode,
    first: WritePiece<'_>,
    birth: Txg,
    parts: &[&[u8]],
    faults: &mut Vec<LeafError>,
) -> bool {
    let (children, family) = column_children(node);
    let Some(child) = children.get(first.child) else { return false };
    child.write_child(family, first.address(birth), parts, faults)
}

/// The dRAID that a child belongs to, and all its children.
pub(crate) type DraidChildren<'a> = Option<(&'a Draid, &'a [VdevNode])>;

/// What the columns of blocks go to: the children of an array, or the node itself.
pub(crate) fn column_children(node: &VdevNode) -> (&[VdevNode], DraidChildren<'_>) {
    match &node.kind {
        NodeKind::Raidz(_, children) => (children, None),
        NodeKind::Draid(draid, children) => (children, Some((draid, children))),
        _ => (std::slice::from_ref(node), None),
    }
}

/// To which of the map's rows a sector of padding belongs: those of the first row come first.
fn padding_row(map: &Map, index: usize) -> usize {
    let of_first = map
        .rows()
        .next()
        .map_or(0, |row| row.data().iter().filter(|column| column.size < row.height()).count());
    usize::from(index >= of_first)
}

#[cfg(test)]
mod tests {
    use super::{PieceBatch, WritePiece};

    #[test]
    fn busy_drives_are_written_last_and_whatever_is_lost_is_counted() {
        let mut batch = PieceBatch { pieces: Vec::new(), slice_size: None, rows: Vec::new() };
        for (child, offset) in [(2, 0), (0, 0), (1, 0), (0, 4), (0, 512)] {
            let row = Some(batch.new_row());
            batch.pieces.push(WritePiece { child, offset, in_scratch: false, bytes: b"four", row });
        }
        let mut order = Vec::new();
        batch.write_all(&|child| child == 0, &mut |first, parts| {
            order.push((first.child, first.offset, parts.len()));
            first.offset != 512
        });
        assert_eq!(order, [(1, 0, 1), (2, 0, 1), (0, 0, 2), (0, 512, 1)]);
        let lost: Vec<usize> = batch.rows.iter().map(|lost| lost.lost_columns).collect();
        assert_eq!(lost, [0, 0, 0, 0, 1]);
    }
}
