//! Holds on snapshots: placed, released, listed.

use api::{Hold, ListHolds, PlaceHold, ReleaseHold, pool_of};
use engine::dataset::DatasetQuery;

use super::Pools;
use crate::{Error, Result};

impl Pools {
    pub(crate) fn place_hold(&self, call: &PlaceHold) -> Result<()> {
        for group in self.held_snapshots(&call.snapshots, call.recursive)? {
            let Some(first) = group.first() else { continue };
            self.change_dataset(first, |pool| {
                Ok(pool.handle.snapshots().place_hold(&call.tag, &group)?)
            })?;
        }
        Ok(())
    }

    pub(crate) fn release_hold(&self, call: &ReleaseHold) -> Result<()> {
        for group in self.held_snapshots(&call.snapshots, call.recursive)? {
            let Some(first) = group.first() else { continue };
            self.change_dataset(first, |pool| {
                Ok(pool.handle.snapshots().release_hold(&call.tag, &group)?)
            })?;
        }
        Ok(())
    }

    pub(crate) fn list_holds(&self, call: &ListHolds) -> Result<Vec<Hold>> {
        let mut found = Vec::new();
        for name in self.held_snapshots(&call.snapshots, call.recursive)?.into_iter().flatten() {
            let holds = self.pool_of_dataset(&name)?.handle.snapshots().holds(&name)?.into_iter();
            found.extend(holds.map(|hold| Hold {
                snapshot: hold.snapshot,
                tag: hold.tag,
                time: hold.time,
            }));
        }
        Ok(found)
    }

    /// The snapshots that a call means, by pool.
    fn held_snapshots(&self, names: &[String], recursive: bool) -> Result<Vec<Vec<String>>> {
        let mut groups: Vec<Vec<String>> = Vec::new();
        for name in names {
            let Some((head, part)) = name.split_once('@') else {
                return Err(Error::usage_error(format!("'{name}' is not a snapshot: FS@NAME")));
            };
            let found =
                if recursive { self.snapshots_named(head, part)? } else { vec![name.clone()] };
            let same = |group: &&mut Vec<String>| {
                group.first().is_some_and(|first| pool_of(first) == pool_of(name))
            };
            match groups.iter_mut().find(same) {
                Some(group) => group.extend(found),
                None => groups.push(found),
            }
        }
        Ok(groups)
    }

    /// The snapshots of a name in a file system and below.
    fn snapshots_named(&self, head: &str, part: &str) -> Result<Vec<String>> {
        let pool = self.pool_of_dataset(head)?;
        let query = DatasetQuery {
            kinds: vec!["snapshot".to_owned()],
            properties: vec!["createtxg".to_owned()],
            depth: None,
        };
        let mut found = Vec::new();
        pool.handle.datasets().list(
            head,
            &query,
            &mut |dataset| {
                if dataset.name.split_once('@').is_some_and(|(_, name)| name == part) {
                    found.push(dataset.name);
                }
            },
            &mut |_| (),
        )?;
        if found.is_empty() {
            return Err(engine::Error::NoSuchDataset { name: format!("{head}@{part}") }.into());
        }
        Ok(found)
    }
}
