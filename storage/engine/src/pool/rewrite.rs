//! The blocks of files written again as they are (zfs-rewrite(8)).

use std::ops::Range;

use job::Job;
use ondisk::Blkptr;
use posix::FileType;
use units::{ObjectId, Txg};
use zpl::RewrittenRange;

use super::OpenFileSystem;
use crate::files::{File, Reason, Result};

/// The blocks that a rewrite leaves as they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RewriteFilter {
    /// Blocks that files share by cloning: a rewritten block is shared no more, and takes space.
    pub skip_cloned: bool,
    /// Blocks that the newest snapshot shares: it keeps the old block, and the new one takes space.
    pub skip_snapshots: bool,
    /// Blocks that were written in this txg or later. None: all ages are rewritten.
    pub born_before: Option<u64>,
}

impl OpenFileSystem {
    /// Rewrites the blocks at the start of a range of a file, in bytes, as many as one transaction holds. The
    /// caller goes on at [`RewrittenRange::next`].
    pub fn rewrite_range(
        &self,
        file: ObjectId,
        range: Range<u64>,
        filter: &RewriteFilter,
    ) -> Result<RewrittenRange> {
        let spa = self.spa();
        let stopped = |_: spa::Error| zpl::Error::Stopped { objset: self.dataset().objset().id() };
        let head = self.dataset().objset().id();
        let snapshot = if filter.skip_snapshots {
            spa.newest_snapshot_txg(head).map_err(stopped)?
        } else {
            Txg::ZERO
        };
        let wants = |pointer: &Blkptr| {
            let is_young = filter.born_before.is_some_and(|txg| stored_txg(pointer).get() >= txg);
            let is_kept = filter.skip_snapshots && pointer.birth() <= snapshot;
            if is_young || is_kept {
                return Ok(false);
            }
            Ok(!(filter.skip_cloned && spa.is_cloned(pointer).map_err(stopped)?))
        };
        Ok(self.writer().rewrite_range(file, range, &wants)?)
    }
}

/// The txg in which the data of a block was written. A clone is younger than its data.
fn stored_txg(pointer: &Blkptr) -> Txg {
    match pointer {
        Blkptr::Regular(block) => block.birth_physical,
        _ => pointer.birth(),
    }
}

/// The files and blocks that a rewrite covers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RewriteRequest {
    /// Whether the files below a directory are rewritten.
    pub recursive: bool,
    /// The bytes of each file.
    pub range: Range<u64>,
    /// The blocks that stay as they are.
    pub filter: RewriteFilter,
}

/// A file of which the rewrite has ended.
#[derive(Debug)]
pub struct FileRewrite<'a> {
    /// The path below the root of the file system, without a `/` in front.
    pub path: &'a [u8],
    /// The bytes that were rewritten and those that were left as they are; or why the rest of the file was not
    /// rewritten.
    pub result: Result<RewriteSums>,
}

/// The sums of a rewrite so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RewriteSums {
    /// Bytes of the blocks that were rewritten, as the files have them.
    pub rewritten: u64,
    /// Bytes of the blocks that were left as they are.
    pub skipped: u64,
}

impl OpenFileSystem {
    /// Rewrites a file, given with its path, or the files below a directory, until the work is cancelled. Returns
    /// false if it was.
    ///
    /// `report` is told of each regular file at its end. Fails where the file system can be changed no more: it
    /// was destroyed or rolled back, or the pool is suspended.
    pub fn rewrite_tree(
        &self,
        (top, path): (&File, &[u8]),
        request: &RewriteRequest,
        work: &Job,
        report: &mut dyn FnMut(FileRewrite<'_>),
    ) -> Result<bool> {
        let mut waiting = vec![(top.ino(), top.stat().kind, path.to_vec())];
        while let Some((ino, kind, path)) = waiting.pop() {
            if work.cancel.is_cancelled() {
                return Ok(false);
            }
            work.progress.set_message(String::from_utf8_lossy(&path));
            let result = match kind {
                FileType::Directory if request.recursive => {
                    // a directory may be removed meanwhile
                    waiting.extend(self.list_below(ino, &path).unwrap_or_default());
                    continue;
                }
                FileType::File => self.rewrite_file(ObjectId::new(ino), request, work),
                _ => continue,
            };
            if let Err(why) = &result
                && why.reason() == Reason::Suspended
            {
                return Err(why.clone());
            }
            report(FileRewrite { path: &path, result });
        }
        Ok(!work.cancel.is_cancelled())
    }

    /// The files in a directory: number, type and path. They are visited from the last to the first.
    fn list_below(&self, dir: u64, path: &[u8]) -> Result<Vec<(u64, FileType, Vec<u8>)>> {
        let mut entries = self.reader().read_dir_sorted(&self.reader().file(dir)?)?;
        entries.reverse();
        let joined = |name: &[u8]| match path {
            [] => name.to_vec(),
            path => [path, b"/", name].concat(),
        };
        Ok(entries.iter().map(|it| (it.ino, it.kind, joined(&it.name))).collect())
    }

    fn rewrite_file(
        &self,
        file: ObjectId,
        request: &RewriteRequest,
        work: &Job,
    ) -> Result<RewriteSums> {
        let (mut sums, mut next) = (RewriteSums::default(), Some(request.range.start));
        while let Some(start) = next.filter(|_| !work.cancel.is_cancelled()) {
            let part = self.rewrite_range(file, start..request.range.end, &request.filter)?;
            work.progress.add(part.rewritten, 0);
            sums.rewritten += part.rewritten;
            sums.skipped += part.skipped;
            next = part.next;
        }
        work.progress.add(0, 1);
        Ok(sums)
    }
}
