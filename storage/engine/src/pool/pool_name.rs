//! The rules of pool names, and whether the datasets of a pool fit under another one.
//!
//! OpenZFS stores full names (`pool/dataset@snapshot`) in 256 bytes with a zero at the end. It
//! refuses to import or examine a pool with a longer one.

use spa::Pool;

use crate::{Error, Result};

/// The most bytes of a full name.
const MAX_DATASET_NAME_LEN: usize = 255;

/// The most bytes of a pool's name: OpenZFS reserves space for `/$ORIGIN@$ORIGIN` after it, in 256
/// with a zero.
const MAX_POOL_NAME_LEN: usize = 239;

/// Whether a pool may have this name: the rules are those of OpenZFS.
pub fn check_pool_name(name: &str) -> Result<()> {
    let refuse = |why: &str| Err(Error::Usage { what: format!("cannot create '{name}': {why}") });
    let reserved = ["mirror", "raidz", "draid", "spare"];
    if !name.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return refuse("name must begin with a letter\npool name may have been omitted");
    }
    if let Some(word) = reserved.iter().find(|word| name.starts_with(**word)) {
        let what = format!(
            "name is reserved\npool name may have been omitted: no pool is called {word}..."
        );
        return refuse(&what);
    }
    if name == "log" {
        return refuse("name is reserved\npool name may have been omitted");
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || "_-.: ".contains(c);
    if let Some(wrong) = name.chars().find(|c| !fits(*c)) {
        return refuse(&format!(
            "invalid character '{wrong}' in pool name\npool name may have been omitted"
        ));
    }
    if name.len() > MAX_POOL_NAME_LEN {
        return refuse(&format!(
            "name is too long: it has {} bytes, and {MAX_POOL_NAME_LEN} fit",
            name.len()
        ));
    }
    Ok(())
}

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
