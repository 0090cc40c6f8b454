//! Cache files of pools (`/etc/zfs/zpool.cache`): read for `zpool import -c`, written for the property `cachefile`.
//!
//! A cache file is one packed name-value list in XDR: a pool's name, and its configuration as the pool stores it.
//! The search uses only the paths of the drives; their labels describe them. Spares and cache drives are not in it.
//!
//! The file can have entries of other programs, such as the kernel module of OpenZFS. An update keeps them.
//!
//! Learnt from: zpoolprops(7), and a file that OpenZFS 2.3.2 wrote (tests).

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ondisk::nvlist::{Encoding, Nvlist, Value};

use crate::{Error, Result};

/// The largest cache file, in bytes.
const MAX_FILE_SIZE: u64 = 64 << 20;
/// The largest depth of vdevs.
const MAX_DEPTH: usize = 16;
/// Every program may read a cache file, as with OpenZFS: it has no secrets.
const MODE: u32 = 0o644;

/// A pool that a cache file names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedPool {
    /// Its name.
    pub name: String,
    /// Its guid.
    pub guid: u64,
    /// The paths of its drives when the file was written; without spares and cache drives.
    pub drives: Vec<PathBuf>,
}

/// The configuration of a pool, as an entry of a cache file.
#[derive(Clone, Debug, PartialEq)]
pub struct CachefileEntry {
    /// The pool's name.
    pub(crate) name: String,
    /// The pool's guid.
    pub guid: u64,
    pub(crate) config: Nvlist,
}

/// Reads the pools that a cache file names.
///
/// # Errors
/// The file cannot be read, or is not a cache file.
pub fn read_cachefile(path: &Path) -> Result<Vec<CachedPool>> {
    let list =
        read_list(path)?.ok_or_else(|| usage(path, "No such file or directory (os error 2)"))?;
    let pools = list.iter().filter_map(|(name, value)| {
        let Value::List(pool) = value else { return None };
        let mut drives = Vec::new();
        if let Some(tree) = pool.nvlist("vdev_tree") {
            collect_paths(tree, MAX_DEPTH, &mut drives);
        }
        Some(CachedPool { name: name.to_owned(), guid: pool.u64("pool_guid")?, drives })
    });
    Ok(pools.collect())
}

/// Refuses a path at which no cache file can be written: its directory is missing, or another file is there.
///
/// # Errors
/// A sentence that names the path and the reason.
pub fn check_cachefile(path: &Path) -> Result<()> {
    let dir = path.parent().unwrap_or(path);
    if !dir.is_dir() {
        return Err(Error::Usage { what: format!("'{}' is not a valid directory", dir.display()) });
    }
    read_list(path).map(drop)
}

/// Replaces the entries of these pools in a cache file, and removes those of the guids in `removed`. Entries of
/// other pools stay. A file without entries is deleted.
///
/// The file is replaced as a whole: after a power cut it has its old content or the new.
///
/// # Errors
/// The file is not a cache file, or cannot be written.
pub fn update_cachefile(path: &Path, pools: &[CachefileEntry], removed: &[u64]) -> Result<()> {
    let old = read_list(path)?;
    let mut new = Nvlist::new();
    let is_kept = |name: &str, guid: Option<u64>| {
        let is_removed = guid.is_some_and(|guid| removed.contains(&guid));
        !is_removed && !pools.iter().any(|pool| pool.name == name || Some(pool.guid) == guid)
    };
    for (name, value) in old.iter().flat_map(Nvlist::iter) {
        let guid = if let Value::List(pool) = value { pool.u64("pool_guid") } else { None };
        if is_kept(name, guid) {
            new.push(name, value.clone());
        }
    }
    for pool in pools {
        new.push(&pool.name, Value::List(pool.config.clone()));
    }
    let done = if !new.is_empty() {
        replace_file(path, &new.encode(Encoding::Xdr))
    } else if old.is_some() {
        fs::remove_file(path)
    } else {
        Ok(())
    };
    done.map_err(|why| usage(path, &why.to_string()))
}

fn usage(path: &Path, why: &str) -> Error {
    Error::Usage { what: format!("{}: {why}", path.display()) }
}

/// The list of a cache file. None: there is no such file, or it is empty.
fn read_list(path: &Path) -> Result<Option<Nvlist>> {
    let facts = match fs::metadata(path) {
        Ok(facts) => facts,
        Err(why) if why.kind() == ErrorKind::NotFound => return Ok(None),
        Err(why) => return Err(usage(path, &why.to_string())),
    };
    if !facts.is_file() || facts.len() > MAX_FILE_SIZE {
        return Err(usage(path, "this is not a file with the names of pools"));
    }
    let bytes = fs::read(path).map_err(|why| usage(path, &why.to_string()))?;
    if bytes.is_empty() {
        return Ok(None);
    }
    let list = Nvlist::decode(&bytes);
    list.map(Some).map_err(|why| usage(path, &format!("no pools can be read from it: {why}")))
}

/// Writes a file beside `path`, and renames it. The new file is created exclusively, so that a link at its name
/// leads nowhere else.
fn replace_file(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".poolhouse-new");
    let new = path.with_file_name(name);
    match fs::remove_file(&new) {
        Err(why) if why.kind() != ErrorKind::NotFound => return Err(why),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

/// Collects the paths of a vdev's drives.
fn collect_paths(vdev: &Nvlist, deeper: usize, drives: &mut Vec<PathBuf>) {
    drives.extend(vdev.str("path").map(PathBuf::from));
    let Some(deeper) = deeper.checked_sub(1) else { return };
    vdev.nvlists("children").iter().for_each(|child| collect_paths(child, deeper, drives));
}

#[cfg(test)]
mod tests {
    use super::{CachefileEntry, check_cachefile, read_cachefile, update_cachefile};
    use ondisk::nvlist::{Nvlist, Value};
    use std::fs;
    use std::path::{Path, PathBuf};

    fn recorded() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/zpool.cache")
    }

    fn names(path: &Path) -> Vec<String> {
        read_cachefile(path).unwrap().into_iter().map(|pool| pool.name).collect()
    }

    #[test]
    fn openzfs_remembers_drives_of_all_vdevs() {
        let pools = read_cachefile(&recorded()).unwrap();
        let guids: Vec<_> = pools.iter().map(|pool| (pool.name.as_str(), pool.guid)).collect();
        assert_eq!(
            guids,
            [("other", 13_831_960_893_430_438_618), ("tank", 7_149_197_204_278_201_658)]
        );
        let mut drives: Vec<_> = pools.into_iter().flat_map(|pool| pool.drives).collect();
        drives.sort();
        // f4 and f5 are a cache drive and a spare
        let wanted = [0, 1, 2, 3, 6].map(|number| Path::new("/ram/d").join(format!("f{number}")));
        assert_eq!(drives, wanted);
    }

    #[test]
    fn other_files_are_refused() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        for other in ["Cargo.toml", "src", "nothing"] {
            let why = read_cachefile(&here.join(other)).unwrap_err().to_string();
            assert!(why.contains(other), "{why}");
        }
    }

    #[test]
    fn update_keeps_entries_of_other_pools() {
        let dir = std::env::temp_dir().join(format!("poolhouse-cachefile-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("zpool.cache");
        fs::copy(recorded(), &path).unwrap();
        let mut config = Nvlist::new();
        config.push("pool_guid", Value::U64(7));
        let own = CachefileEntry { name: "own".to_owned(), guid: 7, config };
        update_cachefile(&path, std::slice::from_ref(&own), &[]).unwrap();
        assert_eq!(names(&path), ["other", "tank", "own"]);
        let renamed = CachefileEntry { name: "new".to_owned(), ..own };
        update_cachefile(&path, &[renamed], &[13_831_960_893_430_438_618]).unwrap();
        assert_eq!(names(&path), ["tank", "new"]);
        update_cachefile(&path, &[], &[7, 7_149_197_204_278_201_658]).unwrap();
        assert!(!path.exists(), "a file without entries is deleted");
        update_cachefile(&path, &[], &[7]).unwrap();
        fs::write(&path, "no cache file").unwrap();
        assert!(check_cachefile(&path).is_err());
        update_cachefile(&path, &[], &[7]).unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"no cache file");
        fs::remove_dir_all(dir).unwrap();
    }
}
