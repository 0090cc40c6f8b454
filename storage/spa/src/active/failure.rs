//! Why the pool writes no txg any more. The first reason stays.

use lock::{RwLock, rank};

use crate::Error;

/// The error that ended the pool's writes, if there was one.
#[derive(Debug, Default)]
pub(super) struct FatalError(RwLock<Option<Error>, { rank::FATAL_ERROR }>);

impl FatalError {
    /// The reason, if there is one.
    pub(super) fn reason(&self) -> Option<Error> {
        self.0.read().clone()
    }

    /// Refuses what would write after the failure.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.reason().map_or(Ok(()), Err)
    }

    /// Ends the writes. Returns the reason: this one, or an earlier one.
    pub(super) fn set(&self, error: Error) -> Error {
        self.0.write().get_or_insert(error).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::FatalError;
    use crate::Error;

    #[test]
    fn first_failure_stays() {
        let fatal = FatalError::default();
        assert_eq!(fatal.check(), Ok(()));
        assert_eq!(fatal.set(Error::Closed), Error::Closed);
        assert_eq!(fatal.set(Error::ImportedReadOnly), Error::Closed);
        assert_eq!(fatal.check(), Err(Error::Closed));
    }
}
