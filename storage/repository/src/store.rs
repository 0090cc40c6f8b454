//! The interface to a store of objects: a folder, or a bucket.

use std::ops::Range;

/// An object in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Its name, with its folder: `packs/0000000000000001-…`.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// When the store took it, in seconds since 1970 by the store's clock; none: unknown.
    pub modified: Option<u64>,
}

/// Errors of a store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// An object of that name exists.
    #[error("an object of that name exists already")]
    AlreadyExists,
    /// The object does not exist.
    #[error("the object does not exist")]
    NotFound,
    /// The store refuses: the keys do not permit it, or object lock protects the object.
    #[error("permission denied: {why}")]
    Denied {
        /// The store's own words.
        why: String,
    },
    /// The store cannot be reached, or failed. Whether a change was made is not known.
    #[error("{why}")]
    Unavailable {
        /// The store's own words.
        why: String,
    },
}

/// A store of objects. Names are made of `a-z`, `0-9`, `-` and `/`.
///
/// A store may be slow, fail any request and list stale names. It must guarantee two things. A
/// stored object, as [`ObjectStore::create`] reported it, survives a power cut. Of several creators
/// of one name exactly one succeeds.
pub trait ObjectStore: Send + Sync {
    /// The store's address as the user wrote it, without secrets.
    fn location(&self) -> String;

    /// Stores an object durably, if none of that name exists.
    fn create(&self, name: &str, content: &[u8]) -> Result<(), StoreError>;

    /// Reads a range of an object; less if the object ends before it.
    fn read(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>, StoreError>;

    /// The size of an object, bytes.
    fn size(&self, name: &str) -> Result<u64, StoreError>;

    /// The objects whose names begin with `prefix`, in any order.
    fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>, StoreError>;

    /// Deletes an object. A missing object is not an error.
    fn delete(&self, name: &str) -> Result<(), StoreError>;

    /// Protects an object from deletion at least until a time in seconds since 1970 (object lock). A protection that is
    /// longer stays. Returns whether it was extended.
    fn protect(&self, _name: &str, _until: u64) -> Result<bool, StoreError> {
        Err(StoreError::Denied { why: "this store has no object lock".to_owned() })
    }

    /// Drops what a cache before the store has of an object. Its content was found to be wrong.
    fn forget(&self, _name: &str) {}

    /// Removes what interrupted requests left behind, as far as the store knows of it.
    fn remove_leftovers(&self) {}
}
