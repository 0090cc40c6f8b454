//! Parameters of OpenZFS's module that tests of scripts set, as files in the folder that the environment variable
//! `POOLHOUSE_PARAMETERS` names. Those with an effect are in [`file_name`]; a file that does not begin with `0`
//! holds that work back.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::pool::{GatedWork, Pool};

/// The environment variable with the folder.
const VARIABLE: &str = "POOLHOUSE_PARAMETERS";

/// Has the background work of a pool obey the parameters, if there is a folder of them.
pub(crate) fn apply(pool: &Pool) {
    let Some(folder) = std::env::var_os(VARIABLE).map(PathBuf::from) else { return };
    pool.activities().set_gates(Arc::new(move |work| is_held(&folder, work)));
}

const fn file_name(work: GatedWork) -> &'static str {
    match work {
        GatedWork::Scan => "zfs_scan_suspend_progress",
        GatedWork::Removal => "zfs_removal_suspend_progress",
    }
}

fn is_held(folder: &Path, work: GatedWork) -> bool {
    let content = std::fs::read_to_string(folder.join(file_name(work)));
    content.is_ok_and(|text| !text.trim().is_empty() && !text.trim().starts_with('0'))
}
