//! NFSv3: attributes, access, content.

use engine::files::DatasetSpace;
use posix::SetAttributes;
use vfs::{FileOffset, Stability};

use super::{Exchange, to_set_attributes};
use crate::attributes::from_v3_time;
use crate::node::Node;
use crate::request::Result;
use crate::wire::v3::{self, StableHow};

/// The largest file: offsets are signed.
pub(crate) const MAX_FILE_SIZE: u64 = i64::MAX.cast_unsigned();
/// The names that a file may have: a number of 64 bits in ZFS, of which the protocol shows 32.
const MAX_LINKS: u32 = i32::MAX.cast_unsigned();
/// FSINFO: hard links, symbolic links, PATHCONF is the same everywhere, times can be set.
const PROPERTIES: u32 = 0x1 | 0x2 | 0x8 | 0x10;

impl Exchange<'_> {
    pub(super) fn get_attributes(&mut self, file: &[u8]) -> Result<()> {
        let node = self.request.resolve(file)?;
        let attributes = self.request.attributes(&node)?;
        self.writer.u32(0);
        attributes.to_v3().write(self.writer);
        Ok(())
    }

    pub(super) fn set_attributes(
        &mut self,
        file: &[u8],
        set: &v3::SetAttributes,
        guard: Option<v3::Time>,
    ) -> Result<()> {
        let node = self.request.resolve(file)?;
        let node = node.writable()?;
        let before = self.v3_attributes(node);
        let set = SetAttributes { if_ctime: guard.map(from_v3_time), ..to_set_attributes(set) };
        self.request.set_attributes(node, &set)?;
        self.writer.u32(0);
        self.write_change(before.as_ref(), node);
        Ok(())
    }

    pub(super) fn access(&mut self, file: &[u8], wanted: u32) -> Result<()> {
        let node = self.request.resolve(file)?;
        let (_, granted) = self.request.access(&node, wanted)?;
        self.writer.u32(0);
        self.write_attributes(&node);
        self.writer.u32(granted);
        Ok(())
    }

    pub(super) fn read_link(&mut self, file: &[u8]) -> Result<()> {
        let node = self.request.resolve(file)?;
        let file = node.file()?;
        let target = file.export.filesystem.read_link(&self.request.context(file), file.ino)?;
        self.writer.u32(0);
        self.write_attributes(&node);
        self.writer.opaque(&target);
        Ok(())
    }

    pub(super) fn read(&mut self, file: &[u8], offset: u64, count: u32) -> Result<()> {
        let node = self.request.resolve(file)?;
        let file = node.file()?;
        let open = self.request.open_by_handle(file, false)?;
        let most = usize::try_from(count).expect("a 64-bit system");
        let most = most.min(self.request.core.options.max_io_bytes);
        self.writer.u32(0);
        self.write_attributes(&node);
        let (count, end) = (self.writer.placeholder(), self.writer.placeholder());
        let from = FileOffset { file: &*open, offset };
        let (read, is_end) = self.request.read(file, from, (most, false), self.writer)?;
        self.writer.set(count, u32::try_from(read).expect("a limit of 16 MiB"));
        self.writer.set(end, u32::from(is_end));
        self.counters.read_bytes += u64::try_from(read).expect("a buffer in memory");
        Ok(())
    }

    pub(super) fn write(
        &mut self,
        file: &[u8],
        offset: u64,
        stable: StableHow,
        data: &[u8],
    ) -> Result<()> {
        let node = self.request.resolve(file)?;
        let file = node.writable()?;
        let before = self.v3_attributes(file);
        let open = self.request.open_by_handle(file, true)?;
        let stability = to_stability(stable);
        let written = self.request.write(file, (&open, offset), data, stability)?;
        self.writer.u32(0);
        self.write_change(before.as_ref(), file);
        self.writer.count(data.len());
        self.writer.u32(to_stable_how(written.stability).number());
        self.writer.fixed(&written.verifier.bytes());
        self.counters.written_bytes += u64::try_from(data.len()).expect("a buffer in memory");
        Ok(())
    }

    pub(super) fn commit(&mut self, file: &[u8]) -> Result<()> {
        let node = self.request.resolve(file)?;
        let file = node.writable()?;
        let verifier = self.request.commit_writes(file)?;
        self.writer.u32(0);
        self.write_change(None, file);
        self.writer.fixed(&verifier.bytes());
        Ok(())
    }

    pub(super) fn fs_stat(&mut self, file: &[u8]) -> Result<()> {
        let node = self.request.resolve(file)?;
        let space = space(self.request, &node)?;
        self.writer.u32(0);
        self.write_attributes(&node);
        let total = total_space(space);
        for bytes in [total, space.available, space.available] {
            self.writer.u64(bytes);
        }
        // files: ZFS has no limit of its own, and makes an inode of any free 512 bytes
        for files in [total, space.available, space.available] {
            self.writer.u64(files / 512);
        }
        self.writer.u32(0);
        Ok(())
    }

    pub(super) fn fs_info(&mut self, file: &[u8]) -> Result<()> {
        let node = self.request.resolve(file)?;
        let io = self.request.core.options.max_io_bytes;
        let io = u32::try_from(io).expect("a limit of 16 MiB");
        self.writer.u32(0);
        self.write_attributes(&node);
        // reads: most, preferred, multiple of; the same of writes; READDIR preferred
        for bytes in [io, io, 4096, io, io, 4096, io.min(1 << 17)] {
            self.writer.u32(bytes);
        }
        self.writer.u64(MAX_FILE_SIZE);
        // times are stored to the nanosecond
        self.writer.u32(0);
        self.writer.u32(1);
        self.writer.u32(PROPERTIES);
        Ok(())
    }

    pub(super) fn path_conf(&mut self, file: &[u8]) -> Result<()> {
        let node = self.request.resolve(file)?;
        let (max_name, is_exact) = match &node {
            Node::Pseudo(_) => (255, true),
            Node::File(file) => {
                let limits = file.export.filesystem.limits();
                (limits.max_name_len, limits.has_exact_names)
            }
        };
        self.writer.u32(0);
        self.write_attributes(&node);
        self.writer.u32(MAX_LINKS);
        self.writer.count(max_name);
        // names are not truncated, only root changes owners, case is distinguished and preserved
        for value in [true, true, !is_exact, true] {
            self.writer.bool(value);
        }
        Ok(())
    }
}

/// The requested stability of a WRITE.
pub(crate) fn to_stability(stable: StableHow) -> Stability {
    match stable {
        StableHow::Unstable => Stability::Unstable,
        StableHow::DataSync | StableHow::FileSync => Stability::Stable,
    }
}

/// The stability in the reply of a WRITE.
pub(crate) fn to_stable_how(stability: Stability) -> StableHow {
    match stability {
        Stability::Unstable => StableHow::Unstable,
        Stability::Stable => StableHow::FileSync,
    }
}

/// The space of a node's dataset. Pseudo directories have none.
pub(crate) fn space(request: &crate::request::Request<'_>, node: &Node) -> Result<DatasetSpace> {
    match node {
        Node::Pseudo(_) => Ok(DatasetSpace { referenced: 0, available: 0 }),
        Node::File(file) => Ok(file.export.filesystem.space(&request.context(file), file.ino)?),
    }
}

/// The size of a dataset in statfs(2): its used and available space.
pub(crate) fn total_space(space: DatasetSpace) -> u64 {
    space.referenced.checked_add(space.available).expect("a pool below 16 EiB")
}
