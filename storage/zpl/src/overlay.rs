//! What a replayed intent log makes of a file system, in memory, over a base that stays as it is.

use std::collections::{BTreeMap, HashMap, HashSet};

use ondisk::acl;
use units::ObjectId;
use zil::extents::Extents;

use crate::{Attributes, Kind};

/// The changes, by file.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    pub(crate) nodes: HashMap<ObjectId, Change>,
}

/// One file as the log leaves it.
#[derive(Debug)]
pub(crate) struct Change {
    /// Its attributes, all of them.
    pub(crate) attributes: Attributes,
    /// The log made it: nothing of what the dataset may have under this number shows.
    pub(crate) is_new: bool,
    /// It lost its last name.
    pub(crate) is_gone: bool,
    /// Of a directory: what became of its names.
    pub(crate) names: Names,
    /// Ranges of its content.
    pub(crate) data: Extents,
    /// Of a symbolic link that the log made: where it points.
    pub(crate) target: Vec<u8>,
    /// All extended attributes kept with the other attributes, if one of them changed.
    pub(crate) xattrs: Option<BTreeMap<Vec<u8>, Vec<u8>>>,
    /// The ACL, if it changed.
    pub(crate) acl: Option<Vec<acl::Entry>>,
}

/// What became of the names in a directory.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// Names of the base that no longer show.
    pub(crate) hidden: HashSet<Vec<u8>>,
    /// New names, in the order in which they are listed.
    pub(crate) added: BTreeMap<Vec<u8>, (ObjectId, Kind)>,
}

impl Change {
    /// A file as the dataset has it (or as the log makes it), before any change.
    pub(crate) fn new(attributes: Attributes, is_new: bool) -> Self {
        Self {
            attributes,
            is_new,
            is_gone: false,
            names: Names::default(),
            data: Extents::default(),
            target: Vec::new(),
            xattrs: None,
            acl: None,
        }
    }
}

impl Overlay {
    pub(crate) fn get(&self, id: ObjectId) -> Option<&Change> {
        // most file systems have no log to replay: spare them the hashing
        if self.nodes.is_empty() { None } else { self.nodes.get(&id) }
    }
}
