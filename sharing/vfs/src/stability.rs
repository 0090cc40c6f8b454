//! Stability of writes: which data a client may drop, and how it learns that a server has lost
//! some.
//!
//! NFS clients may request writes that the server acknowledges before they are on stable storage,
//! keep a copy, and send a COMMIT later. The [`BootVerifier`] in every reply changes when such
//! writes may have been lost, so that clients send them again. SMB and iSCSI have the same two
//! levels without a verifier: write-through and flush.

/// How stable written data is when a write returns.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stability {
    /// In memory: a power cut may lose it before the txg is written or the file is committed.
    Unstable,
    /// In the intent log or in a written txg.
    Stable,
}

/// The result of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    /// Bytes written.
    pub count: usize,
    /// Their stability: at least the requested one.
    pub stability: Stability,
    /// The verifier at the time of the write.
    pub verifier: BootVerifier,
}

/// A number that stays the same as long as no unstable write can have been lost.
///
/// It changes with every import of the pool, and with every rollback of the file system.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BootVerifier(u64);

impl BootVerifier {
    pub(crate) fn new(import_nonce: u64, rollbacks: u64) -> Self {
        Self(import_nonce.wrapping_add(rollbacks))
    }

    /// The bytes for NFS's `writeverf3` and `verifier4`.
    pub fn bytes(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }
}
