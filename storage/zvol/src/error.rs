//! Why a volume could not answer.

use units::ObjsetId;

/// Why a volume could not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Blocks or objects could not be read.
    #[error(transparent)]
    Dmu(#[from] dmu::Error),
    /// The table of its properties could not be read.
    #[error(transparent)]
    Zap(#[from] zap::Error),
    /// The dataset is no volume.
    #[error("objset {objset} is no volume")]
    NotVolume {
        /// The object set.
        objset: ObjsetId,
    },
    /// The table of its properties does not say how large it is (Corrupt).
    #[error("objset {objset}: the volume does not say how large it is")]
    NoSize {
        /// The object set.
        objset: ObjsetId,
    },
}
