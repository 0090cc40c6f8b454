//! The address of a block in the pool's tree of objects.

use crate::{BlockId, Level, ObjectId, ObjsetId};

/// The address of a block by its object (zbookmark); error messages name blocks by it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Zbookmark {
    /// The object set.
    pub objset: ObjsetId,
    /// The object in it.
    pub object: ObjectId,
    /// The level in the object's tree.
    pub level: Level,
    /// The index on that level.
    pub block: BlockId,
}

impl Zbookmark {
    /// The root block of an object set. It belongs to no object of the set.
    pub const fn root(objset: ObjsetId) -> Self {
        Self { objset, object: ObjectId::META, level: Level::new(0), block: BlockId::new(0) }
    }

    /// A block of an object.
    pub const fn new(objset: ObjsetId, object: ObjectId, level: Level, block: BlockId) -> Self {
        Self { objset, object, level, block }
    }
}

impl std::fmt::Display for Zbookmark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { objset, object, level, block } = self;
        write!(f, "objset {objset} object {object} level {level} block {block}")
    }
}
