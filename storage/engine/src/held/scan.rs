//! Walks over a held pool: giving drives what they missed.

use serde::{Deserialize, Serialize};

use super::Held;
use crate::Result;
pub use spa::Watch;

/// What came of a walk over a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mended {
    /// It came to its end.
    pub complete: bool,
    /// In so many rounds: more than one where room ran short.
    pub rounds: u64,
    /// Blocks that it looked at.
    pub blocks: u64,
    /// Bytes that it read.
    pub read: u64,
    /// Bytes that it wrote to drives that lacked them.
    pub written: u64,
    /// Blocks that could not be mended.
    pub errors: u64,
    /// Some of them: where they belong, and why.
    pub damage: Vec<String>,
}

impl Mended {
    fn of(below: spa::Mended) -> Self {
        let spa::Mended { complete, rounds, blocks, read, written, errors, damage } = below;
        let damage = damage.into_iter().map(|one| format!("{}: {}", one.place, one.why)).collect();
        Self { complete, rounds, blocks, read, written, errors, damage }
    }
}

impl Held {
    /// Whether a drive that is there lacks what it missed.
    pub fn wants_resilver(&self) -> bool {
        self.0.owned.wants_resilver()
    }

    /// Gives all drives that are there what they missed while they were away, or failed; until
    /// that is done, or the watch says stop; drives that were replaced go. What could not be mended stays noted. Everything else
    /// goes on meanwhile. For a thread of its own, one at a time.
    pub fn resilver(&self, watch: &Watch) -> Result<Mended> {
        let mended = self.0.owned.resilver(watch).map_err(|why| self.explain(&why))?;
        self.finish_replacing()?;
        Ok(Mended::of(mended))
    }
}
