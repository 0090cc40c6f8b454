//! The pool property `cachefile`: files by which OpenZFS's programs (zdb, `zpool import -c`) find the imported pools.
//!
//! The daemon imports its pools again by its own list, whatever the property is. So it touches no cache file, not even
//! `/etc/zfs/zpool.cache`, unless the property of a pool names it. As in OpenZFS, the property is not stored in the pool
//! and lasts until the export. A pool that is imported read-only is in no cache file.
//!
//! The entry of a pool is written when the pool is created, imported or changed, and removed before the pool is exported
//! or destroyed. The watch thread writes what changed since, and retries what failed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use engine::CachefileEntry;
use engine::pool::PoolProperty;
use serde::{Deserialize, Serialize};

use super::{ManagedPool, Pools};
use crate::Result;
use crate::pool_cache::SavedPool;

/// The name of the property.
const PROPERTY: &str = "cachefile";

/// The value of the property.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Cachefile {
    /// The property is not set: only the daemon's own list has the pool.
    #[default]
    Default,
    /// Set to `none`, or by `-R`: the same.
    None,
    /// The cache file that has the pool.
    Path(PathBuf),
}

impl Cachefile {
    /// Reads a value: empty, `none`, or the absolute path of a file in a directory that exists.
    fn parse(value: &str) -> Result<Self> {
        let refuse = |what: &str| Err(engine::Error::Usage { what: what.to_owned() }.into());
        if !value.is_empty() && value != "none" && !value.starts_with('/') {
            return refuse("property 'cachefile' must be empty, an absolute path, or 'none'");
        }
        match value {
            "" => Ok(Self::Default),
            "none" => Ok(Self::None),
            path => {
                let name = path.rsplit('/').next().unwrap_or_default();
                if ["", ".", ".."].contains(&name) {
                    return refuse(&format!("'{path}' is not a valid file"));
                }
                engine::check_cachefile(path.as_ref())?;
                Ok(Self::Path(path.into()))
            }
        }
    }

    /// Takes the property out of those of a new or imported pool.
    pub(super) fn split_from(
        properties: &[(String, String)],
    ) -> Result<(Self, Vec<(String, String)>)> {
        let (own, rest): (Vec<_>, Vec<_>) =
            properties.iter().cloned().partition(|(name, _)| name == PROPERTY);
        let set = own.last().map_or(Ok(Self::Default), |(_, value)| Self::parse(value))?;
        Ok((set, rest))
    }

    /// The row of `zpool get`.
    fn to_property(&self) -> PoolProperty {
        let (value, source) = match self {
            Self::Default => ("-".to_owned(), "default"),
            Self::None => ("none".to_owned(), "local"),
            Self::Path(path) => (path.display().to_string(), "local"),
        };
        PoolProperty { name: PROPERTY.to_owned(), value, source: source.to_owned() }
    }
}

/// The cache files that the daemon wrote, and the entries in them.
#[derive(Default)]
pub(super) struct WrittenCachefiles {
    files: BTreeMap<PathBuf, Vec<CachefileEntry>>,
    /// Entries to be removed, by guid, of pools that could not be imported again.
    forgotten: Vec<(PathBuf, u64)>,
    /// Why a file could not be written.
    failure: Option<String>,
}

impl ManagedPool {
    /// The properties of the pool as `zpool get` has them.
    pub(super) fn properties(&self) -> Result<Vec<PoolProperty>> {
        let mut all = self.handle.properties().of_pool()?;
        all.push(self.cachefile.lock().to_property());
        Ok(all)
    }
}

impl Pools {
    /// Sets the property if it is the named one. None: it is another property.
    pub(super) fn set_cachefile(
        &self,
        pool: &ManagedPool,
        property: &str,
        value: &str,
    ) -> Option<Result<()>> {
        (property == PROPERTY).then(|| {
            *pool.cachefile.lock() = Cachefile::parse(value)?;
            self.save_pools();
            Ok(())
        })
    }

    /// Has the next write remove a pool that is not imported from its cache file.
    pub(super) fn forget_cachefile(&self, pool: &SavedPool) {
        if let Cachefile::Path(path) = &pool.cachefile {
            self.cachefiles.lock().forgotten.push((path.clone(), pool.guid));
        }
    }

    /// Writes the cache files whose entries changed.
    pub(super) fn write_cachefiles(&self) {
        let mut written = self.cachefiles.lock();
        let mut wanted: BTreeMap<PathBuf, Vec<CachefileEntry>> = BTreeMap::new();
        for pool in self.all().iter().filter(|pool| !pool.handle.is_read_only()) {
            if let Cachefile::Path(path) = &*pool.cachefile.lock() {
                wanted.entry(path.clone()).or_default().push(pool.handle.cachefile_entry());
            }
        }
        // a pool that waits for its devices stays in its file
        let unavailable: BTreeSet<u64> =
            self.unavailable.lock().iter().map(|one| one.saved.guid).collect();
        let forgotten = std::mem::take(&mut written.forgotten);
        let known = written.files.keys().chain(wanted.keys()).cloned();
        let paths: BTreeSet<PathBuf> =
            known.chain(forgotten.iter().map(|(path, _)| path.clone())).collect();
        let mut failure = None;
        for path in paths {
            let entries = wanted.remove(&path).unwrap_or_default();
            let before = written.files.get(&path);
            let own = |(of, _): &&(PathBuf, u64)| *of == path;
            if before == Some(&entries) && !forgotten.iter().any(|one| own(&one)) {
                continue;
            }
            let is_gone = |guid: &u64| {
                !unavailable.contains(guid) && !entries.iter().any(|entry| entry.guid == *guid)
            };
            let guids = before.into_iter().flatten().map(|entry| entry.guid);
            let guids = guids.chain(forgotten.iter().filter(own).map(|(_, guid)| *guid));
            let removed: Vec<u64> = guids.filter(is_gone).collect();
            match engine::update_cachefile(&path, &entries, &removed) {
                Ok(()) if entries.is_empty() => drop(written.files.remove(&path)),
                Ok(()) => drop(written.files.insert(path, entries)),
                Err(why) => {
                    failure = Some(why.to_string());
                    written.forgotten.extend(forgotten.iter().filter(own).cloned());
                }
            }
        }
        if let Some(why) = failure.as_ref().filter(|_| failure != written.failure) {
            self.log.write_line(&format!("a cache file cannot be written: {why}"));
        }
        written.failure = failure;
    }

    /// A warning if a cache file could not be written.
    pub(crate) fn cachefile_warning(&self) -> Option<String> {
        let why = self.cachefiles.lock().failure.clone()?;
        Some(format!(
            "{why}: the cache file could not be written. The pools stay imported; the daemon tries again every \
             two seconds, and `zpool set cachefile= POOL` ends that"
        ))
    }

    /// The properties of pools as `zpool get` has them.
    pub(crate) fn pool_properties(
        &self,
        names: &[String],
    ) -> Result<Vec<(String, Vec<PoolProperty>)>> {
        let of = |pool: Arc<ManagedPool>| Ok((pool.handle.name().to_owned(), pool.properties()?));
        self.select_pools(names)?.into_iter().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Cachefile;

    #[test]
    fn values_are_checked_as_in_openzfs() {
        let parse = |value: &str| Cachefile::parse(value).map_err(|why| why.to_string());
        assert_eq!(parse(""), Ok(Cachefile::Default));
        assert_eq!(parse("none"), Ok(Cachefile::None));
        assert!(parse("relative").unwrap_err().contains("must be empty, an absolute path, or"));
        for path in ["/", "/tmp/", "/tmp/.", "/tmp/.."] {
            assert!(parse(path).unwrap_err().contains("is not a valid file"), "{path}");
        }
        assert!(parse("/nothere/file").unwrap_err().contains("is not a valid directory"));
        let file = std::env::temp_dir().join("poolhouse-no-such-cachefile");
        assert_eq!(parse(file.to_str().unwrap()), Ok(Cachefile::Path(file)));
    }
}
