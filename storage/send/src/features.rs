//! The features of a stream: the requested ones, as far as the dataset needs them.

use dmu::Objset;
use ondisk::objset::Kind;
use ondisk::stream::StreamFeatures;
use units::ObjectId;
use zap::Zap;

use crate::{Error, Result};

/// File systems have system attributes, and so spill blocks, since this version.
const ZPL_VERSION_SA: u64 = 5;
/// The table that names a file system's version.
const MASTER_NODE: ObjectId = ObjectId::new(1);

/// The allowed features of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "options of a stream, each on its own")]
pub struct SendOptions {
    /// Blocks above 128 KiB (-L). Without it they are sent in pieces.
    pub large_blocks: bool,
    /// Blocks that are stored in their pointers, as such (-e).
    pub embedded: bool,
    /// Blocks as they are compressed on disk (-c).
    pub compressed: bool,
    /// Blocks as they are on disk, still encrypted (-w). Of a dataset that is not encrypted: all of the above.
    pub raw: bool,
}

/// The features in use on the pool, which decide the features of the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "features, each on its own")]
pub struct FeatureFacts {
    /// The pool has blocks that are stored in their pointers (embedded_data is active).
    pub pool_embedded_data: bool,
    /// The pool has blocks compressed with lz4 (lz4_compress is active).
    pub pool_lz4: bool,
    /// The dataset has blocks above 128 KiB (large_blocks).
    pub large_blocks: bool,
    /// The dataset has dnodes above 512 bytes (large_dnode).
    pub large_dnode: bool,
    /// The dataset has blocks compressed with zstd (zstd_compress).
    pub zstd: bool,
    /// The dataset has names above 255 bytes (longname).
    pub long_name: bool,
    /// The dataset has micro ZAPs above 128 KiB (large_microzap).
    pub large_microzap: bool,
    /// The dataset is encrypted.
    pub encrypted: bool,
}

/// Whether the files of a file system have system attributes, and so spill blocks.
fn has_attributes(objset: &Objset) -> Result<bool> {
    let master = match objset.object(MASTER_NODE) {
        Ok(master) => master,
        // the saved part of a stream that was cut before it: all versions since 5 have them
        Err(dmu::Error::NoSuchObject { .. }) => return Ok(true),
        Err(why) => return Err(why.into()),
    };
    let version = Zap::open(master)?.lookup_u64(b"VERSION")?;
    Ok(version.is_some_and(|version| version >= ZPL_VERSION_SA))
}

/// The features of a stream of an object set.
pub fn stream_features(
    objset: &Objset,
    options: SendOptions,
    facts: FeatureFacts,
) -> Result<StreamFeatures> {
    let has_spill = objset.header().kind == Kind::Filesystem && has_attributes(objset)?;
    let large_blocks = (options.large_blocks || options.raw) && facts.large_blocks;
    let embedded =
        (options.embedded || options.raw) && !facts.encrypted && facts.pool_embedded_data;
    let compressed = options.compressed || options.raw;
    if facts.large_microzap && !large_blocks {
        let what = "sending a dataset with large micro ZAPs without large blocks (-L)".to_owned();
        return Err(Error::Unsupported { what });
    }
    let chosen = [
        (StreamFeatures::SA_SPILL, has_spill),
        (StreamFeatures::LARGE_BLOCKS, large_blocks),
        (StreamFeatures::EMBEDDED_DATA, embedded),
        (StreamFeatures::COMPRESSED, compressed),
        (StreamFeatures::LZ4, (embedded || compressed) && facts.pool_lz4),
        (StreamFeatures::RAW, options.raw && facts.encrypted),
        (StreamFeatures::ZSTD, compressed && facts.zstd),
        (StreamFeatures::LARGE_DNODE, facts.large_dnode),
        (StreamFeatures::LONG_NAME, facts.long_name),
        (StreamFeatures::LARGE_MICROZAP, facts.large_microzap),
    ];
    let chosen = chosen.into_iter().filter(|(_, is_on)| *is_on);
    Ok(chosen.fold(StreamFeatures::default(), |all, (feature, _)| all.with(feature)))
}
