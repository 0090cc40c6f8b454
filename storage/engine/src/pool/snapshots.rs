//! Reads the datasets of an imported pool, for file protocols.

use super::settings;
use crate::files::{DatasetSpace, FileSystemReader, ReadOptions};
use crate::pool::handles::{Datasets, Snapshots, Streams, Volumes};
use crate::{Error, Result};

/// A snapshot of a file system.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Snapshot {
    /// Its name after the `@`.
    pub name: String,
    /// The number of its object set: distinguishes it from an earlier one of its name.
    pub id: u64,
    /// Its guid, which stays the same when the pool is imported elsewhere.
    pub guid: u64,
    /// When it was taken, in seconds since 1970.
    pub created: u64,
    /// The txg in which it was taken: orders snapshots by age.
    pub txg: u64,
}

/// A bookmark of a file system or volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bookmark {
    /// Its name after the `#`.
    pub name: String,
    /// The guid of its snapshot.
    pub guid: u64,
    /// The txg in which its snapshot was taken.
    pub txg: u64,
}

impl Snapshots<'_> {
    /// The snapshots of a file system, oldest first.
    pub fn list(self, dataset: &str) -> Result<Vec<Snapshot>> {
        let _pin = self.pool.pin();
        let snapshots = self.pool.find_dataset(dataset)?.snapshots();
        let snapshots = snapshots.map_err(|error| Error::from_dsl_error(dataset, &error))?;
        let named = snapshots.iter().filter_map(|each| {
            let phys = each.phys()?;
            Some(Snapshot {
                name: each.short_name()?.to_owned(),
                id: each.id()?.get(),
                guid: each.guid().get(),
                created: phys.creation_time,
                txg: phys.creation_txg.get(),
            })
        });
        Ok(named.collect())
    }

    /// Bytes that the pool gets back if snapshots of a file system or volume are destroyed together; names are the parts
    /// after the @.
    ///
    /// # Errors
    ///
    /// The dataset does not exist, or its records are damaged.
    pub fn reclaimed(self, dataset: &str, names: &[&str]) -> Result<u64> {
        let _pin = self.pool.pin();
        let failed = |error: dsl::Error| Error::from_dsl_error(dataset, &error);
        let all = self.pool.find_dataset(dataset)?.snapshots().map_err(failed)?;
        let is_named = |it: &dsl::Dataset| it.short_name().is_some_and(|it| names.contains(&it));
        // blocks that several neighbours share are freed with the last of them
        let runs = all.chunk_by(|one, next| is_named(one) == is_named(next));
        let mut reclaimed = 0_u64;
        for run in runs.filter(|run| run.first().is_some_and(is_named)) {
            if let [first, .., last] | [first @ last] = run {
                reclaimed += first.space_freed_until(last).map_err(failed)?;
            }
        }
        Ok(reclaimed)
    }

    /// When a snapshot of a file system was last taken, destroyed or renamed, in seconds since 1970 (the property
    /// `snapshots_changed`); 0: never.
    pub fn changed_at(self, dataset: &str) -> Result<u64> {
        let _pin = self.pool.pin();
        let changed = self.pool.find_dataset(dataset)?.property("snapshots_changed");
        let changed = changed.map_err(|error| Error::from_dsl_error(dataset, &error))?;
        Ok(changed.and_then(|property| property.value.parse().ok()).unwrap_or(0))
    }
}

impl Streams<'_> {
    /// The token by which a receive into a file system or volume is resumed that was cut.
    pub fn resume_token(self, dataset: &str) -> Result<Option<String>> {
        let _pin = self.pool.pin();
        let token = self.pool.find_dataset(dataset)?.resume_token();
        token.map_err(|error| Error::from_dsl_error(dataset, &error))
    }
}

impl Snapshots<'_> {
    /// The bookmarks of a file system or volume, oldest first.
    pub fn bookmarks(self, dataset: &str) -> Result<Vec<Bookmark>> {
        let _pin = self.pool.pin();
        let bookmarks = self.pool.find_dataset(dataset)?.bookmarks();
        let bookmarks = bookmarks.map_err(|error| Error::from_dsl_error(dataset, &error))?;
        let named = bookmarks.iter().filter_map(|each| {
            let (name, guid) = (each.short_name()?.to_owned(), each.guid().get());
            Some(Bookmark { name, guid, txg: each.bookmark_record()?.creation_txg.get() })
        });
        Ok(named.collect())
    }
}

impl Volumes<'_> {
    /// The volumes just below a file system, by their names there, sorted, with their guids.
    pub fn children(self, filesystem: &str) -> Result<Vec<(String, u64)>> {
        let _pin = self.pool.pin();
        let tree = self.pool.tree()?;
        let above = format!("{filesystem}/");
        let mut names = Vec::new();
        for head in tree.heads() {
            let head = head.map_err(|error| Error::from_dsl_error(filesystem, &error))?;
            let name = head.name();
            let Some(own) = name.strip_prefix(&above).filter(|own| !own.contains('/')) else {
                continue;
            };
            let kind = head.kind().map_err(|error| Error::from_dsl_error(&name, &error))?;
            if kind == dsl::DatasetKind::Volume {
                names.push((own.to_owned(), head.guid().get()));
            }
        }
        names.sort();
        Ok(names)
    }
}

impl Datasets<'_> {
    /// The full name that the file system or volume of a guid has now; none: it was destroyed.
    pub fn name_by_guid(self, guid: u64) -> Result<Option<String>> {
        let _pin = self.pool.pin();
        let tree = self.pool.tree()?;
        let mut heads = tree.heads().filter_map(std::result::Result::ok);
        Ok(heads.find(|head| head.guid().get() == guid).map(|head| head.name()))
    }

    /// The files of a snapshot by its full name, or those of a file system as of the last synced
    /// txg.
    pub fn synced_reader(self, name: &str) -> Result<FileSystemReader> {
        let _pin = self.pool.pin();
        let dataset = self.pool.find_dataset(name)?;
        let reading = settings::read_options(&dataset);
        if let Some(id) = dataset.id() {
            self.pool.0.spa.l2arc().set_policy(id, settings::l2arc_policy(&dataset));
        }
        let zpl::FsOptions { posix_acls, user_xattrs, .. } = reading;
        let opened = FileSystemReader::open(
            &dataset,
            ReadOptions { replay_after: None, posix_acls, user_xattrs },
        );
        let (files, _) = opened.map_err(|error| Error::Unreadable {
            subject: format!("'{name}'"),
            why: error.to_string(),
        })?;
        Ok(files)
    }

    /// The used and available space of a dataset, as of the last synced txg; zeros if unknown.
    pub fn space(self, dataset: &str) -> DatasetSpace {
        let _pin = self.pool.pin();
        let Ok(found) = self.pool.find_dataset(dataset) else { return DatasetSpace::default() };
        let number = |name: &str| {
            let value = found.property(name).ok().flatten();
            value.and_then(|property| property.value.parse().ok()).unwrap_or(0)
        };
        DatasetSpace { referenced: number("referenced"), available: number("available") }
    }
}
