//! Drives of the read cache: what a pool holds comes to lie on them, and is found there again.

use engine::files::{File, FileSystemReader, FileType};
use engine::pool::Pool;

use super::RoundError;

/// Of each file so much is read.
const MAX_READ_BYTES: usize = 4 << 20;

/// Reads what the file systems of a pool hold, from its cache drives where they have it; what they
/// have not comes to lie there. Gives how many blocks came from them: none of them was wrong.
pub(super) fn read_all_files(held: &Pool, filesystems: &[String]) -> Result<u64, RoundError> {
    for name in filesystems {
        let fs = held.filesystem(name).map_err(|error| format!("{name}: {error}"))?;
        read_tree(held, fs.reader()).map_err(|error| format!("{name}: {error}"))?;
    }
    match held.status().caches.iter().find(|cache| cache.checksum_errors > 0) {
        Some(cache) => Err(format!("{} gave what is wrong: {cache:?}", cache.name)),
        None => Ok(held.cache_counts().drive_hits),
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
            pool.feed_l2arc(u64::MAX);
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

/// How many blocks the logs of a pool's cache drives tell of.
pub(super) fn l2arc_log_blocks(held: &Pool) -> u64 {
    // this finds them, and writes nothing
    held.feed_l2arc(0);
    held.cache_counts().drive_blocks
}
