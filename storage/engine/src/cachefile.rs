//! The file in which a system with OpenZFS remembers its pools (`/etc/zfs/zpool.cache`).
//!
//! It is one packed name-value list: a pool's name, and its configuration in the form of labels.
//! The search uses only the paths of the drives; their labels describe them. Spares and cache
//! drives are not in it.
//!
//! Learnt from: zpoolprops(7), and a file that OpenZFS 2.3.2 wrote (tests).

use std::path::{Path, PathBuf};

use ondisk::nvlist::{Nvlist, Value};

use crate::{Error, Result};

/// The largest file of this kind, in bytes.
const MAX_FILE_SIZE: u64 = 64 << 20;
/// Vdevs are so deep at most.
const MAX_DEPTH: usize = 16;

/// The drives of all pools that the file names, at the paths that they had then; without spares and
/// cache drives.
pub fn read_cachefile_drives(path: &Path) -> Result<Vec<PathBuf>> {
    let refuse = |why: String| Error::Usage { what: format!("{}: {why}", path.display()) };
    let facts = std::fs::metadata(path).map_err(|error| refuse(error.to_string()))?;
    if !facts.is_file() || facts.len() > MAX_FILE_SIZE {
        return Err(refuse("this is not a file with the names of pools".to_owned()));
    }
    let bytes = std::fs::read(path).map_err(|error| refuse(error.to_string()))?;
    let list = Nvlist::decode(&bytes);
    let list = list.map_err(|error| refuse(format!("no pools can be read from it: {error}")))?;
    let mut drives = Vec::new();
    for (_, value) in list.iter() {
        let Value::List(pool) = value else { continue };
        if let Some(tree) = pool.nvlist("vdev_tree") {
            collect_paths(tree, MAX_DEPTH, &mut drives);
        }
    }
    Ok(drives)
}

/// Notes the paths of a vdev's drives.
fn collect_paths(vdev: &Nvlist, deeper: usize, drives: &mut Vec<PathBuf>) {
    drives.extend(vdev.str("path").map(PathBuf::from));
    let Some(deeper) = deeper.checked_sub(1) else { return };
    vdev.nvlists("children").iter().for_each(|child| collect_paths(child, deeper, drives));
}

#[cfg(test)]
mod tests {
    use super::read_cachefile_drives;
    use std::path::Path;

    #[test]
    fn openzfs_remembers_drives_of_all_vdevs() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/zpool.cache");
        let mut drives = read_cachefile_drives(&file).unwrap();
        drives.sort();
        // f4 and f5 are a cache drive and a spare
        let wanted = [0, 1, 2, 3, 6].map(|number| Path::new("/ram/d").join(format!("f{number}")));
        assert_eq!(drives, wanted);
    }

    #[test]
    fn other_files_are_refused() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        for other in ["Cargo.toml", "src", "nothing"] {
            let why = read_cachefile_drives(&here.join(other)).unwrap_err().to_string();
            assert!(why.contains(other), "{why}");
        }
    }
}
