//! Why something of a file or a volume could not be given.

use units::Zbookmark;

/// The result of an operation on a file.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something of a file or a volume could not be given.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The dataset could not be opened.
    #[error(transparent)]
    Dataset(#[from] dsl::Error),
    /// An error of the file system.
    #[error(transparent)]
    FileSystem(#[from] zpl::Error),
    /// An error of the volume.
    #[error(transparent)]
    Volume(#[from] zvol::Error),
    /// Blocks or objects could not be read.
    #[error(transparent)]
    Object(#[from] dmu::Error),
    /// The change is done but not durable: the pool is suspended, or is being exported.
    #[error("it is done, but would not outlast a power cut: the pool takes no changes now")]
    NotCommitted,
}

impl Error {
    /// Whether the error only means that the file does not exist.
    pub fn is_not_found(&self) -> bool {
        match self {
            Self::FileSystem(zpl::Error::NotFound { .. }) => true,
            Self::FileSystem(zpl::Error::Dmu(why))
            | Self::Volume(zvol::Error::Dmu(why))
            | Self::Object(why) => why.is_not_found(),
            _ => false,
        }
    }

    /// Whether the error means that the dataset is locked.
    pub fn is_locked(&self) -> bool {
        matches!(
            self,
            Self::Dataset(dsl::Error::KeyNotLoaded { .. })
                | Self::Object(dmu::Error::Read { source: zio::Error::KeyNotLoaded { .. } })
        )
    }

    /// The unreadable block, if that is the error.
    pub(crate) fn zbookmark(&self) -> Option<Zbookmark> {
        match self {
            Self::FileSystem(zpl::Error::Dmu(why))
            | Self::Volume(zvol::Error::Dmu(why))
            | Self::Object(why) => Some(why.zbookmark()),
            _ => None,
        }
    }
}
