//! A copier of ours: several files at a time, with large reads and writes.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError, mpsc};

use super::tree::{TreeEntry, walk_tree};
use crate::Error;

/// Files at a time.
const THREAD_COUNT: usize = 4;
/// Files that wait to be copied.
const QUEUE_LENGTH: usize = 256;
/// Bytes of a read and a write.
const BUFFER_SIZE: usize = 1 << 20;

/// Copies a tree into an empty folder. Returns whether it was copied completely: `stop` ends it
/// early.
pub(super) fn copy_tree(
    source: &Path,
    target: &Path,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<bool, Error> {
    let (give, take) = mpsc::sync_channel::<PathBuf>(QUEUE_LENGTH);
    let take = Mutex::new(take);
    let failed: Mutex<Option<Error>> = Mutex::new(None);
    let end = AtomicBool::new(false);
    let ended = || end.load(Relaxed) || stop();
    let work = || {
        let mut buffer = vec![0; BUFFER_SIZE];
        loop {
            let next = take.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(path) = next else { return };
            if ended() {
                continue; // drain the queue, so that no thread waits for space
            }
            let (from, to) = (source.join(&path), target.join(&path));
            if let Err(error) = copy_file(&from, &to, &mut buffer, &ended) {
                end.store(true, Relaxed);
                *failed.lock().unwrap_or_else(PoisonError::into_inner) =
                    Some(Error::io(&from, "copied")(error));
            }
        }
    };
    let walked = std::thread::scope(|scope| {
        for _ in 0..THREAD_COUNT {
            scope.spawn(work);
        }
        let walked = queue_files(source, target, &ended, &give);
        drop(give);
        walked
    });
    if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let folders = walked?;
    // the last first, because a new entry changes its folder's times
    folders.iter().rev().try_for_each(|folder| {
        let (from, to) = (source.join(folder), target.join(folder));
        let kept = fs::metadata(&from).and_then(|facts| copy_attributes(&facts, &to));
        kept.map_err(Error::io(&to, "given its attributes"))
    })?;
    Ok(!stop())
}

/// Makes folders and links, and hands out files. Gives the folders.
fn queue_files(
    source: &Path,
    target: &Path,
    ended: &dyn Fn() -> bool,
    give: &mpsc::SyncSender<PathBuf>,
) -> Result<Vec<PathBuf>, Error> {
    let mut folders = Vec::new();
    walk_tree(source, &mut |path, entry| {
        if ended() {
            return Ok(());
        }
        let (from, to) = (source.join(path), target.join(path));
        match entry {
            TreeEntry::Directory => {
                fs::create_dir(&to).map_err(Error::io(&to, "made"))?;
                folders.push(path.to_owned());
            }
            TreeEntry::Symlink => {
                let made =
                    fs::read_link(&from).and_then(|leads| std::os::unix::fs::symlink(leads, &to));
                made.map_err(Error::io(&to, "made"))?;
            }
            // the workers live as long as this loop
            TreeEntry::File(_) => drop(give.send(path.to_owned())),
            TreeEntry::Special => {}
        }
        Ok(())
    })?;
    Ok(folders)
}

fn copy_file(
    from: &Path,
    to: &Path,
    buffer: &mut [u8],
    ended: &dyn Fn() -> bool,
) -> io::Result<()> {
    let mut source = File::open(from)?;
    let mut target = File::create_new(to)?;
    loop {
        let count = source.read(buffer)?;
        if count == 0 {
            return copy_attributes(&source.metadata()?, to);
        }
        target.write_all(&buffer[..count])?;
        if ended() {
            return Ok(());
        }
    }
}

/// Keeps mode and times, and the owner where that is allowed.
fn copy_attributes(facts: &fs::Metadata, path: &Path) -> io::Result<()> {
    match std::os::unix::fs::lchown(path, Some(facts.uid()), Some(facts.gid())) {
        Err(error) if error.kind() != io::ErrorKind::PermissionDenied => return Err(error),
        _ => {}
    }
    fs::set_permissions(path, fs::Permissions::from_mode(facts.mode() & 0o7777))?;
    let times =
        fs::FileTimes::new().set_modified(facts.modified()?).set_accessed(facts.accessed()?);
    File::open(path)?.set_times(times)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::copy_tree;

    #[test]
    fn copy_preserves_content_and_attributes() {
        let root = fixtures::scratch_dir("lab-own");
        let (source, target) = (root.join("source"), root.join("target"));
        fs::create_dir_all(source.join("a/b")).unwrap();
        fs::create_dir(&target).unwrap();
        let large: Vec<u8> = (0..3_000_001_u32).map(|n| n.to_le_bytes()[1]).collect();
        fs::write(source.join("a/large"), &large).unwrap();
        for number in 0..300 {
            fs::write(source.join(format!("a/b/{number}")), number.to_string()).unwrap();
        }
        fs::set_permissions(source.join("a/large"), fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("a/large", source.join("link")).unwrap();
        assert!(copy_tree(&source, &target, &|| false).unwrap());
        assert_eq!(fs::read(target.join("link")).unwrap(), large);
        assert_eq!(fs::read_to_string(target.join("a/b/299")).unwrap(), "299");
        for path in ["a", "a/b", "a/large"] {
            let facts = |root: &std::path::Path| fs::metadata(root.join(path)).unwrap();
            let (from, to) = (facts(&source), facts(&target));
            assert_eq!(from.modified().unwrap(), to.modified().unwrap(), "{path}");
            assert_eq!(from.permissions(), to.permissions(), "{path}");
        }
        assert!(copy_tree(&source, &target, &|| false).is_err(), "nothing is overwritten");
        fs::create_dir(root.join("none")).unwrap();
        assert!(!copy_tree(&source, &root.join("none"), &|| true).unwrap(), "it can be stopped");
    }
}
