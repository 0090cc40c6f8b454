//! A copier of ours: several files at a time, with large reads and writes.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError, mpsc};

use super::tree::{Entry, walk};
use crate::Error;

/// Files at a time.
const CREW: usize = 4;
/// Files that wait to be copied.
const WAITING: usize = 256;
/// Bytes of a read and a write.
const PIECE: usize = 1 << 20;

/// Copies a tree into an empty folder. Whether all was copied: not if `stop` said so.
pub(super) fn copy(
    source: &Path,
    target: &Path,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<bool, Error> {
    let (give, take) = mpsc::sync_channel::<PathBuf>(WAITING);
    let take = Mutex::new(take);
    let failed: Mutex<Option<Error>> = Mutex::new(None);
    let end = AtomicBool::new(false);
    let ended = || end.load(Relaxed) || stop();
    let work = || {
        let mut buffer = vec![0; PIECE];
        loop {
            let next = take.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(path) = next else { return };
            if ended() {
                continue; // what waits is taken, so that nobody waits for room
            }
            let (from, to) = (source.join(&path), target.join(&path));
            if let Err(error) = file(&from, &to, &mut buffer, &ended) {
                end.store(true, Relaxed);
                *failed.lock().unwrap_or_else(PoisonError::into_inner) =
                    Some(Error::file(&from, "copied")(error));
            }
        }
    };
    let walked = std::thread::scope(|scope| {
        for _ in 0..CREW {
            scope.spawn(work);
        }
        let walked = hand_out(source, target, &ended, &give);
        drop(give);
        walked
    });
    if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let folders = walked?;
    // the last first, as what is put into a folder changes its times
    folders.iter().rev().try_for_each(|folder| {
        let (from, to) = (source.join(folder), target.join(folder));
        let kept = fs::metadata(&from).and_then(|facts| keep(&facts, &to));
        kept.map_err(Error::file(&to, "given its attributes"))
    })?;
    Ok(!stop())
}

/// Makes folders and links, and hands out files. Gives the folders.
fn hand_out(
    source: &Path,
    target: &Path,
    ended: &dyn Fn() -> bool,
    give: &mpsc::SyncSender<PathBuf>,
) -> Result<Vec<PathBuf>, Error> {
    let mut folders = Vec::new();
    walk(source, &mut |path, entry| {
        if ended() {
            return Ok(());
        }
        let (from, to) = (source.join(path), target.join(path));
        match entry {
            Entry::Folder => {
                fs::create_dir(&to).map_err(Error::file(&to, "made"))?;
                folders.push(path.to_owned());
            }
            Entry::Link => {
                let made =
                    fs::read_link(&from).and_then(|leads| std::os::unix::fs::symlink(leads, &to));
                made.map_err(Error::file(&to, "made"))?;
            }
            // the crew is there as long as this goes on
            Entry::File(_) => drop(give.send(path.to_owned())),
            Entry::Special => {}
        }
        Ok(())
    })?;
    Ok(folders)
}

fn file(from: &Path, to: &Path, buffer: &mut [u8], ended: &dyn Fn() -> bool) -> io::Result<()> {
    let mut source = File::open(from)?;
    let mut target = File::create_new(to)?;
    loop {
        let count = source.read(buffer)?;
        if count == 0 {
            return keep(&source.metadata()?, to);
        }
        target.write_all(&buffer[..count])?;
        if ended() {
            return Ok(());
        }
    }
}

/// Keeps mode and times, and the owner where that is allowed.
fn keep(facts: &fs::Metadata, path: &Path) -> io::Result<()> {
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

    use super::copy;

    #[test]
    fn a_tree_arrives_as_it_was() {
        let root = fixtures::scratch("lab-own");
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
        assert!(copy(&source, &target, &|| false).unwrap());
        assert_eq!(fs::read(target.join("link")).unwrap(), large);
        assert_eq!(fs::read_to_string(target.join("a/b/299")).unwrap(), "299");
        for path in ["a", "a/b", "a/large"] {
            let facts = |root: &std::path::Path| fs::metadata(root.join(path)).unwrap();
            let (from, to) = (facts(&source), facts(&target));
            assert_eq!(from.modified().unwrap(), to.modified().unwrap(), "{path}");
            assert_eq!(from.permissions(), to.permissions(), "{path}");
        }
        assert!(copy(&source, &target, &|| false).is_err(), "nothing is overwritten");
        fs::create_dir(root.join("none")).unwrap();
        assert!(!copy(&source, &root.join("none"), &|| true).unwrap(), "it can be stopped");
    }
}
