//! Reads images without interpreting them.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

/// As many bytes as a block of the pools has.
const CHUNK_SIZE: usize = 128 << 10;

/// The images of a pool.
pub(crate) fn find_images(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(folder).map_err(|error| error.to_string())?;
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "img"))
        .collect();
    found.sort();
    Ok(found)
}

/// Reads all that is allocated in the images; gives bytes and seconds.
pub(crate) fn read_images(images: &[PathBuf], threads: usize) -> Result<(u64, f64), String> {
    let mut pieces = Vec::new();
    let mut files = Vec::new();
    for (index, image) in images.iter().enumerate() {
        let file = File::open(image).map_err(|error| format!("{}: {error}", image.display()))?;
        let facts = file.metadata().map_err(|error| error.to_string())?;
        // the pools are filled from the front: the allocated part is at the front of the image
        let end = (facts.blocks() * 512).min(facts.len());
        pieces.extend((0..end).step_by(CHUNK_SIZE).map(|at| (index, at)));
        files.push(file);
    }
    let (next, bytes) = (AtomicUsize::new(0), AtomicU64::new(0));
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut buffer = vec![0; CHUNK_SIZE];
                while let Some((index, at)) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let Some(file) = files.get(*index) else { return };
                    let Ok(count) = file.read_at(&mut buffer, *at) else { return };
                    bytes.fetch_add(count as u64, Ordering::Relaxed);
                }
            });
        }
    });
    Ok((bytes.into_inner(), begun.elapsed().as_secs_f64()))
}
