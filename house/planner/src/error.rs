//! Errors in a plan's options.

use thiserror::Error;

/// The reason why a plan is impossible; all of these are about the user's input.
#[derive(Debug, Error, Clone, PartialEq)]
pub enum Error {
    /// A part of the list of drives that cannot be read.
    #[error("'{part}' does not name drives: write 24x4TB, 2x3TiB or 6x4000787030016")]
    InvalidDrives {
        /// the input
        part: String,
    },
    /// More drives than a pool is planned for.
    #[error("{count} drives are more than the {max} that can be planned for")]
    TooManyDrives {
        /// drives given
        count: usize,
        /// the bound
        max: usize,
    },
    /// More bytes than can be reckoned with.
    #[error("the drives have more than 1 EiB together")]
    CapacityTooLarge,
    /// No drives at all.
    #[error("no drives are given")]
    NoDrives,
    /// A drive that no pool takes.
    #[error("a drive of {bytes} bytes is too small: a pool needs drives of at least 64 MiB")]
    DriveTooSmall {
        /// the drive's (or its partition's) size, bytes
        bytes: u64,
    },
    /// A word of the layout that is not one of zpool's.
    #[error(
        "'{word}' is not a layout: write stripe 6, mirror 2 mirror 2, raidz2 6, draid2:8d:24c:1s, \
         spare 1"
    )]
    InvalidLayout {
        /// the input
        word: String,
    },
    /// A group that has too few drives for its type.
    #[error("{layout} cannot be made: {why}")]
    InvalidGroup {
        /// the group in zpool's words
        layout: String,
        /// which rule it breaks
        why: String,
    },
    /// The layout takes another number of drives than there are.
    #[error("the layout takes {required} drives, and {given} are given")]
    DriveCountMismatch {
        /// drives that the layout takes
        required: usize,
        /// drives given
        given: usize,
    },
    /// A layout of spares only.
    #[error("a layout of spares alone holds nothing")]
    OnlySpares,
    /// Block sizes that cannot be read.
    #[error("'{part}' is not a record size: write 128K, or a mix as 16K=30%,1M=70%")]
    InvalidRecordSize {
        /// the input
        part: String,
    },
    /// A figure outside of its range.
    #[error("{parameter} cannot be {value}")]
    OutOfRange {
        /// which figure
        parameter: &'static str,
        /// the input
        value: f64,
    },
    /// Prices that cannot be read.
    #[error("'{part}' is not a price: write 90 (each drive), or 4TB=90,8TB=150")]
    InvalidPrice {
        /// the input
        part: String,
    },
    /// A drive without a price among those given.
    #[error("no price is given for drives of {bytes} bytes")]
    NoPrice {
        /// the drive's size, bytes
        bytes: u64,
    },
    /// No layout is sensible with these drives.
    #[error("no layout makes sense with these drives; name one")]
    NoSensibleLayout,
    /// The arithmetic refuses the shape.
    #[error(transparent)]
    Geometry(#[from] geometry::Error),
}
