//! The common arguments of commands that read pools: the search path, the txg, the keys.

use std::path::PathBuf;

use engine::{ImportPoint, OpenOptions, RescuePool, Search};

use crate::outcome::Failure;
use crate::{keys, print};

/// The default search path.
const DEFAULT_SEARCH_PATH: &str = "/dev";

/// The options of all commands that read pools.
#[derive(clap::Args, Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command")]
pub(crate) struct PoolArgs {
    /// Where to look for pools: a folder, an image file, a disk or a partition; may be repeated
    #[arg(short = 'd', value_name = "PATH", global = true, help_heading = "Which pool")]
    paths: Vec<PathBuf>,
    /// Read disks without a partition table from end to end, to find pools wherever they begin
    #[arg(long, global = true, help_heading = "Which pool")]
    deep: bool,
    /// The key of an encrypted dataset: a file that holds the passphrase, the hexadecimal digits or
    /// the raw bytes; may be repeated
    #[arg(long, value_name = "DATASET=FILE", global = true, help_heading = "Which pool")]
    key: Vec<String>,
    /// Read the pool as of this transaction group; `rescue scan -v` lists those that are still
    /// complete
    #[arg(long, value_name = "N", global = true, help_heading = "Which pool")]
    #[arg(conflicts_with_all = ["rewind", "checkpoint"])]
    txg: Option<u64>,
    /// Go back to the newest state with which the pool can be read
    #[arg(long, global = true, help_heading = "Which pool", conflicts_with = "checkpoint")]
    rewind: bool,
    /// Read the pool as of its checkpoint
    #[arg(long, global = true, help_heading = "Which pool")]
    checkpoint: bool,
    /// Ignore the intent logs that a crash left
    #[arg(long, global = true, help_heading = "Which pool")]
    no_zil: bool,
    /// Print facts as JSON
    #[arg(long, global = true, help_heading = "Output")]
    pub(crate) json: bool,
}

impl PoolArgs {
    /// Searches for pools in the user's paths.
    pub(crate) fn search(&self) -> Search {
        let paths = self.paths();
        if self.deep { engine::search_deep(&paths) } else { engine::search(&paths) }
    }

    /// The user's search paths.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        if self.paths.is_empty() {
            vec![PathBuf::from(DEFAULT_SEARCH_PATH)]
        } else {
            self.paths.clone()
        }
    }

    /// The same options with another search path.
    pub(crate) fn with_path(&self, path: PathBuf) -> Self {
        Self { paths: vec![path], ..self.clone() }
    }

    /// How pools are to be opened.
    pub(crate) fn open_options(&self) -> OpenOptions {
        let moment = match (self.txg, self.rewind, self.checkpoint) {
            (Some(txg), _, _) => ImportPoint::Txg(txg),
            (None, true, _) => ImportPoint::Rewind,
            (None, false, true) => ImportPoint::Checkpoint,
            (None, false, false) => ImportPoint::Newest,
        };
        OpenOptions { import_point: moment, no_zil: self.no_zil }
    }

    /// Opens the pool of that name or guid, and loads its keys. Missing devices and other tolerable
    /// problems are printed on standard error.
    pub(crate) fn open(&self, pool: &str) -> Result<RescuePool, Failure> {
        let pool = self.search().open(pool, &self.open_options())?;
        for event in pool.events() {
            print::warning(event);
        }
        keys::load_key_files(&pool, &self.key)?;
        Ok(pool)
    }

    /// Opens the pool of `target` (`POOL/FS@SNAP:/PATH`: the pool is the part before the first of
    /// `/`, `@`, `:`), and loads the keys of the dataset with that name and its descendants, as far
    /// as possible: given keys, keys at their keylocation, and keys that the user types.
    pub(crate) fn open_unlocked(&self, target: &str) -> Result<RescuePool, Failure> {
        let pool = self.open(pool_name(target))?;
        let dataset = target.split([':', '@']).next().unwrap_or(target);
        let inside = dataset.split_once('/').map_or("", |(_, rest)| rest);
        keys::load_missing_keys(&pool, inside)?;
        Ok(pool)
    }
}

/// The pool's name or guid in the name of something in it.
pub(crate) fn pool_name(target: &str) -> &str {
    target.split(['/', '@', '#', ':']).next().unwrap_or(target)
}

#[cfg(test)]
mod tests {
    use super::pool_name;

    #[test]
    fn a_target_begins_with_the_pool() {
        for target in ["tank", "tank/a", "tank@s", "tank:/x", "tank/a@s:/b:c", "tank#m"] {
            assert_eq!(pool_name(target), "tank");
        }
    }
}
