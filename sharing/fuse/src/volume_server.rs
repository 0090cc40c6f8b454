//! A directory in which each volume is a file: the backing files of loop devices.
//!
//! The kernel reads and writes whole sectors, as loop devices do. A request on a suspended pool
//! waits until the pool is resumed, or until the mount is gone. The directory cannot be listed: the
//! daemon knows the names.

use std::sync::Arc;
use std::time::Duration;

use fusedev::{
    Attr, CacheTimeouts, InitFlags, MAX_REQUEST_BYTES, OpenReply, Reply, ReplyData, Request,
    RequestContext, RequestHandler, Statfs,
};
use lun::{Durability, Lun};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use units::MinusOrZero as _;

use crate::ROOT_NODEID;
use crate::volume_files::VolumeFiles;

const DIRECTORY_MODE: u32 = 0o040_700;
const FILE_MODE: u32 = 0o100_600;
const SECTOR: u64 = 512;
/// A size may change, and a file go, at any moment.
const NO_TIMEOUTS: CacheTimeouts = CacheTimeouts { entry: Duration::ZERO, attr: Duration::ZERO };
/// How often a request of a suspended pool is tried again.
const SUSPEND_RETRY: Duration = Duration::from_millis(200);

/// The request handler.
pub(crate) struct VolumeServer {
    files: VolumeFiles,
}

type ReplyResult = Result<Reply, Errno>;

impl VolumeServer {
    pub(crate) fn new(files: VolumeFiles) -> Self {
        Self { files }
    }

    fn unit(&self, id: u64) -> Result<Arc<dyn Lun>, Errno> {
        self.files.unit(id).ok_or(Errno::NXIO)
    }

    fn attributes(&self, id: u64) -> Result<Attr, Errno> {
        if id == ROOT_NODEID {
            return Ok(Attr { ino: id, mode: DIRECTORY_MODE, nlink: 2, ..Attr::default() });
        }
        let geometry = self.unit(id)?.geometry();
        let (size, block_size) = (geometry.size(), geometry.physical_block_size);
        let blocks = size / SECTOR;
        Ok(Attr { ino: id, size, blocks, mode: FILE_MODE, nlink: 1, block_size, ..Attr::default() })
    }

    fn lookup(&self, name: &[u8]) -> ReplyResult {
        let id = std::str::from_utf8(name).ok().and_then(|name| name.parse().ok());
        let id = id.filter(|id| *id != ROOT_NODEID).ok_or(Errno::NOENT)?;
        let attributes = self.attributes(id).map_err(|_| Errno::NOENT)?;
        Ok(Reply::entry(&attributes, 0, NO_TIMEOUTS))
    }

    /// The kernel gets the attributes before it discards: a discard is a multiple of the block
    /// size.
    fn statfs(&self, id: u64) -> Reply {
        let block = self.unit(id).map_or(4096, |unit| unit.geometry().physical_block_size);
        Reply::statfs(&Statfs {
            blocks: 0,
            free_blocks: 0,
            files: 0,
            free_files: 0,
            fragment_size: block,
            block_size: block,
            max_name_len: 255,
        })
    }

    fn read(
        &self,
        asker: &RequestContext<'_>,
        from: (u64, u32),
        out: &mut ReplyData<'_>,
    ) -> ReplyResult {
        let unit = self.unit(asker.nodeid)?;
        let (offset, size) = from;
        let left = unit.geometry().size().minus_or_zero(offset);
        let length = left.min(size.min(MAX_REQUEST_BYTES).into());
        let length = usize::try_from(length).map_err(|_| Errno::INVAL)?;
        out.fill_with(length, |into| {
            run(asker, &*unit, || unit.read(offset, into)).map(|()| length)
        })
    }

    fn fallocate(
        &self,
        asker: &RequestContext<'_>,
        offset: u64,
        length: u64,
        mode: i32,
    ) -> ReplyResult {
        let unit = self.unit(asker.nodeid)?;
        let mode = u32::try_from(mode).map(FallocateFlags::from_bits_retain);
        let mode = mode.map_err(|_| Errno::INVAL)? - FallocateFlags::KEEP_SIZE;
        let makes_zeros = [FallocateFlags::PUNCH_HOLE, FallocateFlags::ZERO_RANGE].contains(&mode);
        if !makes_zeros {
            return Err(Errno::OPNOTSUPP);
        }
        let end = offset.checked_add(length).ok_or(Errno::INVAL)?;
        run(asker, &*unit, || unit.write_zeroes(offset..end, Durability::Cached))?;
        Ok(Reply::empty())
    }
}

impl RequestHandler for VolumeServer {
    fn wanted_flags(&self, _offered: InitFlags) -> InitFlags {
        InitFlags::ASYNC_DIO
    }

    fn handle(
        &self,
        asker: &RequestContext<'_>,
        ask: Request<'_>,
        out: &mut ReplyData<'_>,
    ) -> ReplyResult {
        match ask {
            Request::Lookup { name } if asker.nodeid == ROOT_NODEID => self.lookup(name),
            Request::Getattr => Ok(Reply::attr(&self.attributes(asker.nodeid)?, Duration::ZERO)),
            Request::Statx => Ok(Reply::statx(&self.attributes(asker.nodeid)?, Duration::ZERO)),
            Request::Open { .. } => {
                self.unit(asker.nodeid)?;
                Ok(Reply::open(OpenReply::new(0).direct_io().parallel_direct_writes().no_flush()))
            }
            Request::Read { offset, size, .. } => self.read(asker, (offset, size), out),
            Request::Write { offset, data, .. } => {
                let unit = self.unit(asker.nodeid)?;
                run(asker, &*unit, || unit.write(offset, data, Durability::Cached))?;
                let written = u32::try_from(data.len()).map_err(|_| Errno::INVAL)?;
                Ok(Reply::write_size(written))
            }
            Request::Fsync => {
                let unit = self.unit(asker.nodeid)?;
                run(asker, &*unit, || unit.flush())?;
                Ok(Reply::empty())
            }
            Request::Fallocate { offset, length, mode, .. } => {
                self.fallocate(asker, offset, length, mode)
            }
            Request::Statfs => Ok(self.statfs(asker.nodeid)),
            Request::Release { .. } | Request::Flush { .. } => Ok(Reply::empty()),
            _ => Err(Errno::NOSYS),
        }
    }
}

/// Runs a request. On a suspended pool it is repeated until the pool is resumed.
fn run(
    asker: &RequestContext<'_>,
    unit: &dyn Lun,
    mut request: impl FnMut() -> lun::Result<()>,
) -> Result<(), Errno> {
    let mut done = request();
    if done == Err(lun::Error::Suspended) && unit.waits_while_suspended() {
        asker.run_blocking(|| {
            while done == Err(lun::Error::Suspended) && !asker.is_unmounted() {
                std::thread::sleep(SUSPEND_RETRY);
                done = request();
            }
        });
    }
    done.map_err(|why| to_errno(&why))
}

fn to_errno(why: &lun::Error) -> Errno {
    match why {
        lun::Error::Unaligned { .. } | lun::Error::OutOfRange { .. } => Errno::INVAL,
        lun::Error::ReadOnly => Errno::ROFS,
        lun::Error::NoSpace => Errno::NOSPC,
        lun::Error::Gone => Errno::NXIO,
        lun::Error::LengthMismatch
        | lun::Error::BlockSize { .. }
        | lun::Error::Suspended
        | lun::Error::Medium { .. }
        | lun::Error::Open { .. } => Errno::IO,
    }
}
