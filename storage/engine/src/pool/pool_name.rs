//! Whether the datasets of a pool fit under another pool name.
//!
//! OpenZFS stores full names (`pool/dataset@snapshot`) in 256 bytes with a zero at the end. It
//! refuses to import or examine a pool with a longer one.

use spa::Pool;

use crate::{Error, Result};

/// The most bytes of a full name.
const MAX_DATASET_NAME_LEN: usize = 255;

/// Refuses a new name for a pool under which a dataset, snapshot or bookmark would have a name that is
/// too long.
pub(super) fn check_names_fit(pool: &Pool, new_name: &str) -> Result<()> {
    let old = pool.name();
    if new_name.len() <= old.len() {
        return Ok(());
    }
    let damaged =
        |error: dsl::Error| Error::DamagedPool { pool: old.to_owned(), why: error.to_string() };
    let facts = dsl::PoolInfo { name: old.to_owned(), usable_space: 0 };
    let tree = dsl::DatasetTree::open(pool.mos().clone(), facts).map_err(damaged)?;
    let longer = new_name.len() - old.len();
    for dataset in tree.datasets() {
        // the name of one that cannot be read is not known
        let Ok(dataset) = dataset else { continue };
        let name = dataset.name();
        let length = name.len() + longer;
        if length > MAX_DATASET_NAME_LEN {
            let what = format!(
                "pool '{old}' cannot be called '{new_name}': the name of '{name}' would have {length} \
                 bytes, and {MAX_DATASET_NAME_LEN} is the most; nothing was changed; import it under its own \
                 or a shorter name"
            );
            return Err(Error::Usage { what });
        }
    }
    Ok(())
}
