//! Protection of what the snapshots need: the retention of object lock is extended.
//!
//! A bucket with object lock protects each object for a time after it was stored. A block is stored once, and later snapshots
//! need it as well. So the protection of old packs ends while new snapshots need them, unless it is extended.

use std::collections::BTreeSet;

use job::Job;

use crate::head::{INDEX, PACKS, SNAPSHOTS};
use crate::repository::REPOSITORY;
use crate::{Error, ObjectId, Repository, Result};

/// The result of a protection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProtectReport {
    /// Objects that are needed.
    pub objects: u64,
    /// Objects whose protection was extended.
    pub extended: u64,
    /// Objects that could not be protected, with the store's words.
    pub failed: Vec<(String, String)>,
}

impl Repository {
    /// Protects all objects that the snapshots need until a time in seconds since 1970: packs that the index names, index
    /// objects, manifests, the newest head and the object that describes the store. A pack that holds only blocks of removed
    /// snapshots is in the index until the next prune, and so is protected too.
    pub fn protect(&self, until: u64, job: &Job) -> Result<ProtectReport> {
        let head = self.refresh()?;
        let mut names = vec![REPOSITORY.to_owned(), head.generation.head_name()];
        names.extend(head.snapshots.iter().map(|it| it.manifest.name(SNAPSHOTS)));
        let mut packs: BTreeSet<ObjectId> = BTreeSet::new();
        for index in &head.index {
            names.push(index.id.name(INDEX));
            packs.extend(self.read_index(index)?.packs());
        }
        names.extend(packs.iter().map(|pack| pack.name(PACKS)));
        let mut report = ProtectReport::default();
        for name in names {
            if job.cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
            report.objects += 1;
            match self.protect_object(&name, until) {
                Ok(extended) => report.extended += u64::from(extended),
                Err(why) => report.failed.push((name, why.to_string())),
            }
            job.progress.add(0, 1);
        }
        Ok(report)
    }
}
