//! File handles: names of files that stay valid over renames, export and import, and restarts.
//!
//! NFS clients keep a handle without a time limit and present it to any later server. So a handle
//! holds only stored identities, and identifies its file without a path:
//!
//! ```text
//! offset  size  field        meaning
//!      0     1  version      1
//!      1     1  kind         0 file, 1 .zfs, 2 .zfs/snapshot, 3 .zfs/volume, 4 volume, 5 .zfs/shadow
//!      2     6  object       object number in the object set; 0 where kind is not 0
//!      8     8  pool         guid of the pool
//!     16     8  filesystem   guid of the file system by which the client reached the file
//!     24     8  objset       guid of the dataset, or of the snapshot or volume below its .zfs
//!     32     8  generation   txg in which the object was created; 0 where kind is not 0
//!     40    16  mac          keyed BLAKE3 of bytes 0 to 39, its first 16 bytes
//! ```
//!
//! A server with several file systems finds the one of a handle by `filesystem`.
//!
//! All numbers are little-endian. The MAC keeps a client from naming files that no lookup gave it, such as
//! files outside an exported directory. The caller stores the key; it must be the same after a restart, or
//! every client gets ESTALE.
//!
//! An object number is reused after its file is freed. The generation distinguishes the new file
//! from the old one: a number cannot be freed and allocated twice in one txg.

use units::Guid;

/// A key for the MAC of file handles: 32 random bytes that the caller stores.
#[derive(Clone)]
pub struct HandleKey([u8; 32]);

impl HandleKey {
    /// A key of these bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl std::fmt::Debug for HandleKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HandleKey(..)")
    }
}

/// The kind of node that a handle names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HandleKind {
    /// A file of any type, stored as an object.
    File,
    /// The directory `.zfs` of a file system.
    ControlDir,
    /// `.zfs/snapshot`.
    SnapshotDir,
    /// `.zfs/volume`.
    VolumeDir,
    /// A volume shown as a file; `objset_guid` is the volume's.
    Volume,
    /// `.zfs/shadow`.
    ShadowDir,
}

/// A file, named by the identifiers that the pool stores.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileHandle {
    /// The pool.
    pub pool_guid: Guid,
    /// The file system by which the client reached the file.
    pub filesystem_guid: Guid,
    /// The dataset or snapshot that the file is in.
    pub objset_guid: Guid,
    /// The kind of node.
    pub kind: HandleKind,
    /// Object number; below 2^48.
    pub object: u64,
    /// Txg in which the object was created.
    pub generation: u64,
}

/// Why bytes are not a valid file handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HandleError {
    /// The length, version or kind is unknown.
    #[error("the file handle has an unknown format: mount the share again")]
    Malformed,
    /// The MAC does not fit: another server made the handle, or a client changed it.
    #[error("the file handle was not issued by this server: mount the share again")]
    Forged,
    /// The object number does not fit into a handle.
    #[error("object number {object} is too high for a file handle")]
    ObjectTooHigh {
        /// The object number.
        object: u64,
    },
}

const VERSION: u8 = 1;
const OBJECT_BYTES: usize = 6;
const BODY_LEN: usize = 40;
const MAC_LEN: usize = 16;

impl HandleKind {
    const ALL: [Self; 6] = [
        Self::File,
        Self::ControlDir,
        Self::SnapshotDir,
        Self::VolumeDir,
        Self::Volume,
        Self::ShadowDir,
    ];

    fn to_byte(self) -> u8 {
        match self {
            Self::File => 0,
            Self::ControlDir => 1,
            Self::SnapshotDir => 2,
            Self::VolumeDir => 3,
            Self::Volume => 4,
            Self::ShadowDir => 5,
        }
    }

    fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.to_byte() == byte)
    }
}

impl FileHandle {
    /// Bytes of an encoded handle. NFSv3 allows 64.
    pub const LEN: usize = BODY_LEN + MAC_LEN;

    /// The bytes that a client gets.
    pub fn encode(&self, key: &HandleKey) -> Result<[u8; Self::LEN], HandleError> {
        let [object @ .., 0, 0] = self.object.to_le_bytes() else {
            return Err(HandleError::ObjectTooHigh { object: self.object });
        };
        let mut bytes = [0; Self::LEN];
        let (body, mac) = bytes.split_at_mut(BODY_LEN);
        let fields: [&[u8]; 7] = [
            &[VERSION],
            &[self.kind.to_byte()],
            &object,
            &self.pool_guid.get().to_le_bytes(),
            &self.filesystem_guid.get().to_le_bytes(),
            &self.objset_guid.get().to_le_bytes(),
            &self.generation.to_le_bytes(),
        ];
        for (to, from) in body.iter_mut().zip(fields.concat()) {
            *to = from;
        }
        mac.copy_from_slice(&compute_mac(key, body));
        Ok(bytes)
    }

    /// The file that bytes of a client name. The caller must still check that the file exists and has this
    /// generation.
    pub fn decode(key: &HandleKey, bytes: &[u8]) -> Result<Self, HandleError> {
        let bytes: &[u8; Self::LEN] = bytes.try_into().map_err(|_| HandleError::Malformed)?;
        let (body, mac) = bytes.split_at(BODY_LEN);
        if !has_equal_bytes(&compute_mac(key, body), mac) {
            return Err(HandleError::Forged);
        }
        let Some(([VERSION, kind], rest)) = body.split_first_chunk::<2>() else {
            return Err(HandleError::Malformed);
        };
        let kind = HandleKind::from_byte(*kind).ok_or(HandleError::Malformed)?;
        let (object, rest) = rest.split_at(OBJECT_BYTES);
        let number =
            |bytes: &[u8]| bytes.iter().rev().fold(0, |all: u64, byte| all << 8 | u64::from(*byte));
        let (pool_guid, rest) = rest.split_at(8);
        let (filesystem_guid, rest) = rest.split_at(8);
        let (objset_guid, generation) = rest.split_at(8);
        Ok(Self {
            pool_guid: Guid::new(number(pool_guid)),
            filesystem_guid: Guid::new(number(filesystem_guid)),
            objset_guid: Guid::new(number(objset_guid)),
            kind,
            object: number(object),
            generation: number(generation),
        })
    }
}

fn compute_mac(key: &HandleKey, body: &[u8]) -> [u8; MAC_LEN] {
    let hash = blake3::keyed_hash(&key.0, body);
    let mut mac = [0; MAC_LEN];
    for (to, from) in mac.iter_mut().zip(hash.as_bytes()) {
        *to = *from;
    }
    mac
}

/// Compares in constant time: an early return would show a client how many bytes it guessed.
fn has_equal_bytes(ours: &[u8], theirs: &[u8]) -> bool {
    ours.iter().zip(theirs).fold(0, |differences, (one, other)| differences | (one ^ other)) == 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use units::Guid;

    use super::{FileHandle, HandleError, HandleKey, HandleKind};

    fn any_handle() -> impl Strategy<Value = FileHandle> {
        let kind = prop::sample::select(HandleKind::ALL.to_vec());
        (any::<[u64; 4]>(), kind, 0..1_u64 << 48).prop_map(|(numbers, kind, object)| {
            let [pool, filesystem, objset, generation] = numbers;
            let [pool_guid, filesystem_guid, objset_guid] =
                [pool, filesystem, objset].map(Guid::new);
            FileHandle { pool_guid, filesystem_guid, objset_guid, kind, object, generation }
        })
    }

    proptest! {
        #[test]
        fn handles_decode_to_their_input(handle in any_handle(), key: [u8; 32]) {
            let key = HandleKey::new(key);
            let bytes = handle.encode(&key).unwrap();
            prop_assert_eq!(FileHandle::decode(&key, &bytes), Ok(handle));
        }

        #[test]
        fn changed_handles_are_refused(
            handle in any_handle(),
            key: [u8; 32],
            at in 0..FileHandle::LEN,
            flip in 1..=u8::MAX,
        ) {
            let key = HandleKey::new(key);
            let mut bytes = handle.encode(&key).unwrap();
            bytes[at] ^= flip;
            prop_assert_eq!(FileHandle::decode(&key, &bytes), Err(HandleError::Forged));
        }

        #[test]
        fn handles_of_another_key_are_refused(handle in any_handle(), key: [u8; 32], at in 0..32_usize) {
            let bytes = handle.encode(&HandleKey::new(key)).unwrap();
            let mut other = key;
            other[at] ^= 1;
            let other = HandleKey::new(other);
            prop_assert_eq!(FileHandle::decode(&other, &bytes), Err(HandleError::Forged));
        }

        #[test]
        fn any_bytes_decode_without_panic(bytes: Vec<u8>, key: [u8; 32]) {
            prop_assert!(FileHandle::decode(&HandleKey::new(key), &bytes).is_err());
        }
    }

    #[test]
    fn encoding_is_the_documented_layout() {
        let handle = FileHandle {
            pool_guid: Guid::new(0x1122_3344_5566_7788),
            filesystem_guid: Guid::new(0x2122_2324_2526_2728),
            objset_guid: Guid::new(0x0102_0304_0506_0708),
            kind: HandleKind::Volume,
            object: 0xaabb_ccdd_eeff,
            generation: 9,
        };
        let bytes = handle.encode(&HandleKey::new([7; 32])).unwrap();
        let body = [
            1, 4, 0xff, 0xee, 0xdd, 0xcc, 0xbb, 0xaa, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22,
            0x11, 0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, 8, 7, 6, 5, 4, 3, 2, 1, 9, 0, 0,
            0, 0, 0, 0, 0,
        ];
        assert_eq!(bytes[..40], body);
        let too_high = FileHandle { object: 1 << 48, ..handle };
        let error = HandleError::ObjectTooHigh { object: 1 << 48 };
        assert_eq!(too_high.encode(&HandleKey::new([7; 32])), Err(error));
    }
}
