//! Incomplete datasets, and the remains of interrupted receives and sends.
//!
//! A receive marks its dataset as inconsistent until it is complete; a redacted dataset lacks
//! blocks that its sender left out. Neither is shown as a complete one: missing blocks would read
//! as zeros.

use dsl::write;
use spa::PoolDirectory;
use zap::Zap;

use super::Pool;
use super::history::{dataset_id, record_event_with_id};
use crate::files::IncompleteKind;
use crate::pool::handles::Datasets;
use crate::{Error, Result};

impl Datasets<'_> {
    /// Whether a file system or volume is incomplete; none: it is complete.
    pub fn incomplete_kind(self, name: &str) -> Result<Option<IncompleteKind>> {
        IncompleteKind::from_dataset(&self.pool.find_dataset(name)?)
            .map_err(|error| Error::from_dsl_error(name, &error))
    }
}

impl Pool {
    /// Destroys partial receives that cannot be resumed, and releases the holds of sends: at an
    /// import their processes no longer exist. Without any, nothing is written.
    pub(super) fn remove_interrupted_receives(&self) -> Result<()> {
        let pin = self.pin();
        let (lost, are_held) = (self.tree()?.abandoned_receives(), self.has_temporary_holds()?);
        drop(pin);
        if lost.is_empty() && !are_held {
            return Ok(());
        }
        let pool = self.name().to_owned();
        self.run_destroying_task(move |active, change| {
            let failed = |error: dsl::Error| Error::from_dsl_error(&pool, &error);
            write::release_temporary_holds(change).map_err(failed)?;
            for path in &lost {
                let id = dataset_id(change, path);
                if write::destroy_partial_receive(change, path).map_err(failed)? {
                    active.close_dataset(id);
                    record_event_with_id(active, change, "destroy", (path, id), "");
                }
            }
            Ok(())
        })
    }

    fn has_temporary_holds(&self) -> Result<bool> {
        let count = || -> std::result::Result<u64, spa::Error> {
            let directory = PoolDirectory::open(self.0.spa.synced_mos().clone())?;
            let Some(table) = directory.object(write::TMP_USERREFS)? else { return Ok(0) };
            Ok(Zap::open(table)?.count()?)
        };
        Ok(count().map_err(|error| self.explain_error(&error))? != 0)
    }
}

/// Refuses a file system or volume that was received in part. Streams may have a redacted one.
pub(super) fn check_received(dataset: &dsl::Dataset) -> Result<()> {
    if dataset.is_inconsistent() { check_complete(dataset) } else { Ok(()) }
}

/// Refuses an incomplete file system or volume.
pub(super) fn check_complete(dataset: &dsl::Dataset) -> Result<()> {
    let name = dataset.name();
    let why = match IncompleteKind::from_dataset(dataset)
        .map_err(|error| Error::from_dsl_error(&name, &error))?
    {
        None => return Ok(()),
        Some(IncompleteKind::Received) => {
            "a receive into it was interrupted; resume the receive to use it"
        }
        Some(IncompleteKind::Redacted) => {
            "it is redacted: its sender left parts out; `poolhouse rescue` copies the other parts"
        }
    };
    Err(Error::Refused { what: format!("'{name}' is incomplete: {why}") })
}
