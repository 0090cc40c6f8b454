//! The checkpoint of a pool: `zpool checkpoint`.

use serde::{Deserialize, Serialize};

use super::Pool;
use crate::pool::handles::Activities;
use crate::{Error, Result};

/// The checkpoint of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointStatus {
    /// "exists" or "discarding".
    pub state: String,
    /// The second of the state that it keeps, since 1970; 0 while it is discarded.
    pub time: u64,
    /// Bytes that only it uses, parity included.
    pub bytes: u64,
}

impl Activities<'_> {
    /// Makes a checkpoint of the pool as it is now. An import can go back to it.
    pub fn create_checkpoint(self) -> Result<()> {
        self.pool.check_writable()?;
        self.pool
            .0
            .spa
            .create_checkpoint()
            .map_err(|error| self.pool.checkpoint_error("checkpoint", &error))
    }

    /// Gives the checkpoint up. The next txgs free what only it used.
    pub fn discard_checkpoint(self) -> Result<()> {
        self.pool.check_writable()?;
        let done = self.pool.0.spa.discard_checkpoint();
        done.map_err(|error| self.pool.checkpoint_error("discard checkpoint in", &error))
    }

    /// The checkpoint, if the pool has one or discards one.
    pub fn checkpoint_status(self) -> Option<CheckpointStatus> {
        let found = self.pool.0.spa.checkpoint_status()?;
        let state = if found.is_discarding { "discarding" } else { "exists" };
        Some(CheckpointStatus { state: state.to_owned(), time: found.time, bytes: found.bytes })
    }
}

impl Pool {
    fn checkpoint_error(&self, verb: &str, error: &spa::Error) -> Error {
        match error {
            spa::Error::Checkpoint(error) => {
                Error::Refused { what: format!("cannot {verb} '{}': {error}", self.name()) }
            }
            other => self.explain_error(other),
        }
    }
}
