//! Holds on snapshots: a snapshot with a hold cannot be destroyed.

use dsl::write;

use super::Pool;
use super::history::record_dataset_event;
use crate::pool::handles::Snapshots;
use crate::{Error, Result};

/// A hold on a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The snapshot's full name.
    pub snapshot: String,
    /// The tag.
    pub tag: String,
    /// When it was placed, in seconds since 1970.
    pub time: u64,
}

impl Snapshots<'_> {
    /// Puts a hold on snapshots, all in one txg, or on none of them.
    pub fn place_hold(self, tag: &str, snapshots: &[String]) -> Result<()> {
        self.pool.check_holds(tag, snapshots, false)?;
        let (tag, snapshots) = (tag.to_owned(), snapshots.to_vec());
        self.pool.run_sync_task(move |active, change| {
            for (at, name) in snapshots.iter().enumerate() {
                if let Err(why) = write::hold(change, name, &tag) {
                    // a hold of this very txg is taken off again
                    for placed in snapshots.iter().take(at) {
                        write::release_hold(change, placed, &tag)
                            .map_err(|why| Error::from_dsl_error(placed, &why))?;
                    }
                    return Err(Error::from_dsl_error(name, &why));
                }
            }
            for name in &snapshots {
                record_dataset_event(active, change, "hold", name, &format!("tag={tag}"));
            }
            Ok(())
        })
    }

    /// Releases a hold of snapshots, all in one txg. A snapshot that waited for that is destroyed.
    pub fn release_hold(self, tag: &str, snapshots: &[String]) -> Result<()> {
        self.pool.check_holds(tag, snapshots, true)?;
        let (tag, snapshots) = (tag.to_owned(), snapshots.to_vec());
        self.pool.run_destroying_task(move |active, change| {
            for name in &snapshots {
                record_dataset_event(active, change, "release", name, &format!("tag={tag}"));
                write::release_hold(change, name, &tag)
                    .map_err(|why| Error::from_dsl_error(name, &why))?;
            }
            Ok(())
        })
    }

    /// The holds of a snapshot.
    pub fn holds(self, snapshot: &str) -> Result<Vec<Hold>> {
        let found = self.pool.find_snapshot(snapshot)?;
        let holds = found.holds().map_err(|why| Error::from_dsl_error(snapshot, &why))?;
        let named = |hold: dsl::Hold| Hold {
            snapshot: snapshot.to_owned(),
            tag: hold.tag,
            time: hold.time,
        };
        Ok(holds.into_iter().map(named).collect())
    }
}

impl Pool {
    /// Refuses before anything is changed, in the words of zfs(8).
    fn check_holds(&self, tag: &str, snapshots: &[String], is_placed: bool) -> Result<()> {
        for name in snapshots {
            let has_tag = self.snapshots().holds(name)?.iter().any(|hold| hold.tag == tag);
            let what = match (has_tag, is_placed) {
                (true, false) => {
                    format!("cannot hold snapshot '{name}': tag already exists on this dataset")
                }
                (false, true) => format!(
                    "cannot release hold from snapshot '{name}': no such tag on this dataset"
                ),
                _ => continue,
            };
            return Err(Error::Refused { what });
        }
        Ok(())
    }

    fn find_snapshot(&self, name: &str) -> Result<dsl::Dataset> {
        let found = self.find_dataset(name)?;
        if found.is_snapshot() {
            return Ok(found);
        }
        Err(Error::Usage { what: format!("'{name}' is not a snapshot (FILESYSTEM@NAME)") })
    }
}
