//! Cache drives: a pool's blocks are written to them, and are found again.

use engine::files::{File, FileSystemReader, FileType};
use engine::pool::Pool;

use super::RoundError;

/// The bytes read of each file.
const MAX_READ_BYTES: usize = 4 << 20;

/// Reads the files of a pool, from its cache drives where possible; the other blocks
/// are written there. Returns the number of blocks from them: none of them was wrong.
pub(super) fn read_all_files(held: &Pool, filesystems: &[String]) -> Result<u64, RoundError> {
    for name in filesystems {
        let fs = held.datasets().filesystem(name).map_err(|error| format!("{name}: {error}"))?;
        read_tree(held, fs.reader()).map_err(|error| format!("{name}: {error}"))?;
    }
    match held.status().caches.iter().find(|cache| cache.checksum_errors > 0) {
        Some(cache) => Err(format!("{} returned wrong blocks: {cache:?}", cache.name)),
        None => Ok(held.drives().cache_counts().drive_hits),
    }
}

fn read_tree(pool: &Pool, files: &FileSystemReader) -> engine::files::Result<()> {
    let mut left = vec![files.root()?];
    while let Some(dir) = left.pop() {
        for name in files.read_dir_sorted(&dir)? {
            match name.kind {
                FileType::Directory => left.push(files.file(name.ino)?),
                FileType::File => read_file(&files.file(name.ino)?)?,
                _ => {}
            }
            pool.background().feed_l2arc(u64::MAX);
        }
    }
    Ok(())
}

fn read_file(file: &File) -> engine::files::Result<()> {
    let (content, mut bytes) = (file.content(), vec![0; 128 << 10]);
    let mut at = 0;
    while at < MAX_READ_BYTES {
        match content.read(at as u64, &mut bytes)? {
            0 => break,
            length => at += length,
        }
    }
    Ok(())
}

/// The number of blocks in the logs of a pool's cache drives.
pub(super) fn l2arc_log_blocks(held: &Pool) -> u64 {
    // this finds them, and writes nothing
    held.background().feed_l2arc(0);
    held.drives().cache_counts().drive_blocks
}
