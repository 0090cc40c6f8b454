//! The changes of an intent log, applied to a file system in memory; the base stays unchanged.

use std::collections::{BTreeMap, HashMap, HashSet};

use dmu::Object;
use posix::{FileType, acl::Ace};
use units::ObjectId;
use zil::extents::LogExtents;

use crate::ZnodeAttributes;
use crate::writer::first_block_size;

/// The changes, by file.
#[derive(Debug, Default)]
pub(crate) struct LogOverlay {
    pub(crate) files: HashMap<ObjectId, FileOverlay>,
}

/// One file as the log leaves it.
#[derive(Debug)]
pub(crate) struct FileOverlay {
    /// All its attributes.
    pub(crate) attributes: ZnodeAttributes,
    /// The log created it: an older object of this number in the dataset is hidden.
    pub(crate) is_new: bool,
    /// It lost its last name.
    pub(crate) is_removed: bool,
    /// Of a directory: what became of its names.
    pub(crate) dir_names: DirOverlay,
    /// Ranges of its content.
    pub(crate) extents: LogExtents,
    /// The blocks that hold them once the log is replayed.
    pub(crate) block_layout: BlockLayout,
    /// Of a symbolic link that the log made: where it points.
    pub(crate) target: Vec<u8>,
    /// All extended attributes kept with the other attributes, if one of them changed.
    pub(crate) xattrs: Option<BTreeMap<Vec<u8>, Vec<u8>>>,
    /// The ACL, if it changed.
    pub(crate) acl: Option<Vec<Ace>>,
}

/// The changes to the names in a directory.
#[derive(Debug, Default)]
pub(crate) struct DirOverlay {
    /// Names of the base that no longer show.
    pub(crate) removed: HashSet<Vec<u8>>,
    /// New names, in the order in which they are listed.
    pub(crate) added: BTreeMap<Vec<u8>, (ObjectId, FileType)>,
}

/// The size of a file's blocks, which grows while there is only one. Written records cover whole
/// blocks: holes begin and end between them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockLayout {
    size: u32,
    is_single: bool,
}

impl BlockLayout {
    /// Those of a new file.
    const NEW: Self = Self { size: 512, is_single: true };

    fn from_object(object: &Object) -> Self {
        Self { size: object.block_size(), is_single: object.max_block().get() == 0 }
    }

    /// Bytes of each.
    pub(crate) fn size(self) -> u64 {
        self.size.into()
    }

    /// The file is lengthened to end at `end`.
    pub(crate) fn extend_to(&mut self, end: u64, record_size: u32) {
        if self.is_single {
            self.size = first_block_size(self.size, record_size, end);
        }
    }

    /// It is written up to `end`.
    pub(crate) fn write_to(&mut self, end: u64, record_size: u32) {
        self.extend_to(end, record_size);
        self.is_single &= end <= self.size();
    }

    /// It gets blocks of this size, which others have as well, up to `end`.
    pub(crate) fn clone_to(&mut self, size: u64, end: u64) {
        if self.is_single {
            self.size = u32::try_from(size).unwrap_or(self.size);
            self.is_single = end <= size;
        }
    }
}

impl FileOverlay {
    /// A file in the dataset (or without an object, as the log creates it), before any change.
    pub(crate) fn new(attributes: ZnodeAttributes, object: Option<&Object>) -> Self {
        Self {
            attributes,
            is_new: object.is_none(),
            is_removed: false,
            dir_names: DirOverlay::default(),
            extents: LogExtents::default(),
            block_layout: object.map_or(BlockLayout::NEW, BlockLayout::from_object),
            target: Vec::new(),
            xattrs: None,
            acl: None,
        }
    }
}

impl LogOverlay {
    pub(crate) fn get(&self, id: ObjectId) -> Option<&FileOverlay> {
        // most file systems have no log to replay: spare them the hashing
        if self.files.is_empty() { None } else { self.files.get(&id) }
    }
}
