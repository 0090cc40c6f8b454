//! Why something of a file or a volume could not be given.

use units::Zbookmark;

/// What asking for something of a file gives.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something of a file or a volume could not be given.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The dataset could not be opened.
    #[error(transparent)]
    Dataset(#[from] dsl::Error),
    /// The file system could not answer.
    #[error(transparent)]
    FileSystem(#[from] zpl::Error),
    /// The volume could not answer.
    #[error(transparent)]
    Volume(#[from] zvol::Error),
    /// Blocks or objects could not be read.
    #[error(transparent)]
    Object(#[from] dmu::Error),
    /// It is done, and was to outlast a power cut; but the pool stands still, or is on its way out.
    #[error("it is done, but would not outlast a power cut: the pool takes no changes now")]
    NotCommitted,
}

impl Error {
    /// Whether it says that there is no such file, and not that something is wrong.
    pub fn is_not_found(&self) -> bool {
        match self {
            Self::FileSystem(zpl::Error::NotFound { .. }) => true,
            Self::FileSystem(zpl::Error::Dmu(why))
            | Self::Volume(zvol::Error::Dmu(why))
            | Self::Object(why) => why.is_not_found(),
            _ => false,
        }
    }

    /// Whether it says that the dataset is locked.
    pub fn is_locked(&self) -> bool {
        matches!(
            self,
            Self::Dataset(dsl::Error::KeyNotLoaded { .. })
                | Self::Object(dmu::Error::Read { source: zio::Error::KeyNotLoaded { .. } })
        )
    }

    /// The block that could not be read, if that is what is wrong.
    pub(crate) fn zbookmark(&self) -> Option<Zbookmark> {
        match self {
            Self::FileSystem(zpl::Error::Dmu(why))
            | Self::Volume(zvol::Error::Dmu(why))
            | Self::Object(why) => Some(why.zbookmark()),
            _ => None,
        }
    }
}
