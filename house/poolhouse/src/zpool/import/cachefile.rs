//! `zpool import -c`: the pools that a cache file names.
//!
//! The drives are searched for at the paths of the file and in the directories of those: since the file was written,
//! drives can have been added, replaced or renamed. The file only says which pools are wanted, by their guids.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use engine::CachedPool;

use super::{Args, find_importable, import, print_importable};
use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Failure, Outcome};

/// Imports or lists pools of a cache file.
pub(super) fn run(args: &Args, file: &Path, asking: &DaemonArgs) -> CommandResult {
    let mut cached = engine::read_cachefile(file)?;
    if let Some(wanted) = &args.pool {
        cached.retain(|pool| pool.name == *wanted || pool.guid.to_string() == *wanted);
        let [pool] = &cached[..] else {
            let what = format!("cannot import '{wanted}': no such pool available");
            return Err(Failure::usage(what));
        };
        return import(args, search_paths(&cached), Some(pool.guid.to_string()), asking);
    }
    let paths = search_paths(&cached);
    if paths.is_empty() {
        return print_importable(&[], asking);
    }
    let mut found = find_importable(args, paths.clone(), asking)?;
    found.retain(|pool| cached.iter().any(|wanted| wanted.guid == pool.guid));
    if !args.all {
        return print_importable(&found, asking);
    }
    let mut result = Outcome::Complete;
    for pool in found {
        let one = import(args, paths.clone(), Some(pool.guid.to_string()), asking)?;
        result = result.combine(one);
    }
    Ok(result)
}

/// The drives of pools that are there, and the directories of all.
fn search_paths(pools: &[CachedPool]) -> Vec<PathBuf> {
    let drives = || pools.iter().flat_map(|pool| &pool.drives);
    let dirs: BTreeSet<&Path> = drives().filter_map(|drive| drive.parent()).collect();
    let there = drives().map(PathBuf::as_path).chain(dirs).filter(|path| path.exists());
    there.map(Path::to_path_buf).collect()
}
