//! Looking at the datasets of a held pool, for those who share its files.

use super::{Held, settings};
use crate::files::{Files, Look, Room};
use crate::{Error, Result};

/// A snapshot of a file system.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Snapshot {
    /// Its name behind the `@`.
    pub name: String,
    /// The number of its object set: tells it from another that had its name before.
    pub id: u64,
}

impl Held {
    /// The snapshots of a file system, oldest first.
    pub fn snapshots(&self, dataset: &str) -> Result<Vec<Snapshot>> {
        let _pin = self.pin();
        let snapshots = self.find(dataset)?.snapshots();
        let snapshots = snapshots.map_err(|why| Error::of_dataset(dataset, &why))?;
        let named = snapshots.iter().filter_map(|each| {
            Some(Snapshot { name: each.part()?.to_owned(), id: each.id()?.get() })
        });
        Ok(named.collect())
    }

    /// The volumes just below a file system, by their names there, sorted, with their guids.
    pub fn volumes(&self, filesystem: &str) -> Result<Vec<(String, u64)>> {
        let _pin = self.pin();
        let tree = self.tree()?;
        let above = format!("{filesystem}/");
        let mut names = Vec::new();
        for head in tree.heads() {
            let head = head.map_err(|why| Error::of_dataset(filesystem, &why))?;
            let name = head.name();
            let Some(own) = name.strip_prefix(&above).filter(|own| !own.contains('/')) else {
                continue;
            };
            let kind = head.kind().map_err(|why| Error::of_dataset(&name, &why))?;
            if kind == dsl::Kind::Volume {
                names.push((own.to_owned(), head.guid().get()));
            }
        }
        names.sort();
        Ok(names)
    }

    /// The files of a snapshot by its full name, or those of a file system as the last group on the
    /// drives has them.
    pub fn still_files(&self, name: &str) -> Result<Files> {
        let _pin = self.pin();
        let dataset = self.find(name)?;
        let reading = settings::of_reading(&dataset);
        if let Some(id) = dataset.id() {
            self.0.owned.l2arc().set_kept(id, settings::of_caching(&dataset));
        }
        let zpl::Options { posix_acls, user_xattrs, .. } = reading;
        let opened = Files::open(&dataset, Look { log: None, posix_acls, user_xattrs });
        let (files, _) = opened.map_err(|why| Error::Unreadable {
            subject: format!("'{name}'"),
            why: why.to_string(),
        })?;
        Ok(files)
    }

    /// What a dataset takes and may still take, as the last group on the drives has it; zeros
    /// where that cannot be told.
    pub fn room(&self, dataset: &str) -> Room {
        let _pin = self.pin();
        let Ok(found) = self.find(dataset) else { return Room::default() };
        let number = |name: &str| {
            let value = found.property(name).ok().flatten();
            value.and_then(|property| property.value.parse().ok()).unwrap_or(0)
        };
        Room { referenced: number("referenced"), available: number("available") }
    }
}
