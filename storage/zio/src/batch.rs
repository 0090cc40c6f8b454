//! Blocks that are written together, so that adjacent blocks go to each drive in one request.

use std::borrow::Cow;

use ondisk::Blkptr;
use ondisk::blkptr::Regular;
use vdev::BlockWrite;

use crate::{Error, WriteRequest, Writer};

/// Blocks to allocate: the request of each, its bytes, its pointer so far.
#[derive(Default)]
pub(crate) struct WriteBatch<'a> {
    pub(crate) blocks: Vec<(usize, Cow<'a, [u8]>, Regular)>,
}

impl WriteBatch<'_> {
    /// Allocates all and writes them; `done` gets the result of each.
    pub(crate) fn write(
        mut self,
        writer: &Writer,
        requests: &[WriteRequest<'_>],
        done: &mut dyn FnMut(usize, Result<Blkptr, Error>),
    ) {
        let mut placed = Vec::with_capacity(self.blocks.len());
        for (index, bytes, block) in &mut self.blocks {
            let request = requests.get(*index);
            assert!(request.is_some(), "each block of a batch has its request");
            let Some(request) = request else { continue };
            let result = match writer
                .allocate(&writer.alloc_request(request, block, bytes), request.zbookmark)
            {
                Ok(dvas) => {
                    block.dvas = dvas;
                    placed.push((request, *index, &bytes[..], *block));
                    continue;
                }
                // in pieces, if need be
                Err(_) => writer.allocate_and_write(request, block, bytes),
            };
            done(*index, result.map(|()| Blkptr::Regular(Box::new(*block))));
        }
        let outgoing: Vec<BlockWrite<'_>> = placed
            .iter()
            .flat_map(|(_, _, data, block)| {
                let birth = block.birth_physical;
                block.copies().map(move |dva| BlockWrite {
                    vdev: dva.vdev,
                    offset: dva.offset,
                    birth,
                    data,
                })
            })
            .collect();
        // the leaves record the missed txgs themselves
        let written = writer.tree().write_many(&outgoing, &mut Vec::new());
        assert_eq!(written.len(), outgoing.len(), "the vdevs answer each write");
        let mut written = written.into_iter();
        for (request, index, _, block) in placed {
            let mut result = Ok(());
            for (dva, copy) in block.copies().zip(written.by_ref()) {
                let place = request.zbookmark;
                result = result.and(copy.map_err(|error| Error::WriteFailed {
                    zbookmark: place,
                    dva,
                    why: error,
                }));
            }
            if result.is_err() {
                for dva in block.copies() {
                    let given = writer.allocator().unallocate(&dva, request.txg);
                    writer.record_leak(request.zbookmark, given);
                }
            }
            done(index, result.map(|()| Blkptr::Regular(Box::new(block))));
        }
    }
}
