//! Blocks that are written together, so that neighbours go to each drive in one request.

use std::borrow::Cow;

use ondisk::Blkptr;
use ondisk::blkptr::Regular;
use vdev::Outgoing;

use crate::{Error, WriteRequest, Writer};

/// Blocks that need room: the request that each is of, its bytes, its pointer so far.
#[derive(Default)]
pub(crate) struct Batch<'a> {
    pub(crate) blocks: Vec<(usize, Cow<'a, [u8]>, Regular)>,
}

impl Batch<'_> {
    /// Finds room for all and writes them; `done` is told what became of each.
    pub(crate) fn write(
        mut self,
        writer: &Writer,
        requests: &[WriteRequest<'_>],
        done: &mut dyn FnMut(usize, Result<Blkptr, Error>),
    ) {
        let mut placed = Vec::with_capacity(self.blocks.len());
        for (index, bytes, block) in &mut self.blocks {
            let Some(request) = requests.get(*index) else { continue };
            let result = match writer.allocate(&writer.want(request, block, bytes), request.place) {
                Ok(dvas) => {
                    block.dvas = dvas;
                    placed.push((request, *index, &bytes[..], *block));
                    continue;
                }
                // in pieces, if need be
                Err(_) => writer.put(request, block, bytes),
            };
            done(*index, result.map(|()| Blkptr::Regular(Box::new(*block))));
        }
        let outgoing: Vec<Outgoing<'_>> = placed
            .iter()
            .flat_map(|(_, _, data, block)| {
                let birth = block.birth_physical;
                block.copies().map(move |dva| Outgoing {
                    vdev: dva.vdev,
                    offset: dva.offset,
                    birth,
                    data,
                })
            })
            .collect();
        // the leaves remember themselves what they missed
        let mut written = writer.tree().write_many(&outgoing, &mut Vec::new()).into_iter();
        for (request, index, _, block) in placed {
            let mut result = Ok(());
            for (dva, copy) in block.copies().zip(written.by_ref()) {
                let place = request.place;
                result = result.and(copy.map_err(|why| Error::Unwritten { place, dva, why }));
            }
            if result.is_err() {
                for dva in block.copies() {
                    let given = writer.allocator().unallocate(&dva, request.txg);
                    writer.note_lost(request.place, given);
                }
            }
            done(index, result.map(|()| Blkptr::Regular(Box::new(block))));
        }
    }
}
