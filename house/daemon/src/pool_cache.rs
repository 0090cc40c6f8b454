//! The list of imported pools, which the daemon imports again when it starts.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use engine::pool::Rewind;
use serde::{Deserialize, Serialize};

use crate::pools::cachefile::Cachefile;
use crate::{Error, Result, StateDir, state_file};

/// A pool of the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedPool {
    pub(crate) name: String,
    pub(crate) guid: u64,
    /// The paths of its devices.
    pub(crate) drives: Vec<PathBuf>,
    /// The directory in front of all its mountpoints.
    pub(crate) altroot: Option<PathBuf>,
    /// The cache file that has it.
    #[serde(default)]
    pub(crate) cachefile: Cachefile,
    /// It is imported read-only.
    #[serde(default)]
    pub(crate) read_only: bool,
    /// It has this name until it is exported.
    #[serde(default)]
    pub(crate) temporary: bool,
    /// The earlier state at which it is imported read-only.
    #[serde(default)]
    pub(crate) rewind: Rewind,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct PoolCache {
    pools: Vec<SavedPool>,
}

/// Reads the list.
pub(crate) fn load(place: &StateDir) -> Result<Vec<SavedPool>> {
    let path = place.pool_cache();
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(why) if why.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(why) => return Err(Error::file_error(&path, &why)),
    };
    let content: PoolCache = serde_json::from_slice(&bytes).map_err(|why| Error::File {
        path: path.display().to_string(),
        why: format!("it is not a list of pools ({why}); remove it and import the pools again"),
    })?;
    Ok(content.pools)
}

/// Writes the list. After a power cut the file has its old content or the new.
pub(crate) fn save(state_dir: &StateDir, pools: Vec<SavedPool>) -> Result<()> {
    let path = state_dir.pool_cache();
    let mut bytes = serde_json::to_vec_pretty(&PoolCache { pools })
        .map_err(|why| Error::file_error(&path, &why.into()))?;
    bytes.push(b'\n');
    state_file::replace(&path, &bytes)
}

#[cfg(test)]
mod tests {
    use engine::pool::Rewind;

    use super::{SavedPool, load, save};
    use crate::StateDir;
    use crate::pools::cachefile::Cachefile;

    #[test]
    fn the_list_survives_and_damage_is_reported() {
        let folder = std::env::temp_dir().join(format!("poolhouse-memory-{}", std::process::id()));
        let place = StateDir::from_dir(&folder).unwrap();
        place.create_dirs().unwrap();
        assert_eq!(load(&place).unwrap(), []);
        let one = SavedPool {
            name: "tank".to_owned(),
            guid: u64::MAX,
            drives: vec!["/a".into()],
            altroot: None,
            cachefile: Cachefile::Path("/run/cache".into()),
            read_only: true,
            temporary: true,
            rewind: Rewind::Txg(7),
        };
        save(&place, vec![one.clone()]).unwrap();
        assert_eq!(load(&place).unwrap(), [one]);
        std::fs::write(place.pool_cache(), b"{").unwrap();
        assert!(load(&place).unwrap_err().to_string().contains("pools.json"));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
