//! Codes over what is not encrypted: pointer blocks, object sets, and public leaf blocks.
//!
//! * A pointer block of an encrypted dataset: the first half of its own pointer's checksum is a
//!   checksum, the second a plain SHA-512 (cut to 16 bytes) of the facts of all its pointers, so
//!   that the tree can be verified without a key.
//! * An object set keeps two codes within itself, HMAC-SHA-512 cut to 32 bytes: the *portable*
//!   one over the metadnode, which survives sending, and the *local* one over the space
//!   accounting.
//! * Any other leaf block that is not encrypted: HMAC-SHA-512 of its bytes as stored, cut to 16.
//!
//! ```text
//! offset  size  field         since  meaning
//!      0   512  metadnode     v1
//!    512   192  log_header    v1     not covered: claiming a log changes it without a key
//!    704     8  kind          v1     covered as a big-endian number, on every machine
//!    712     8  flags         v1     covered by the local code, little-endian
//!    720    32  portable_code crypt
//!    752    32  local_code    crypt
//!    784   240  padding       v1
//!   1024   512  by_user       v15    absent in an object set of 1024 bytes
//!   1536   512  by_group      v15
//!   2048   512  by_project    quota  absent in an object set of 2048 bytes
//! ```
//!
//! Learnt from: object sets and pointer blocks of an encrypted pool. Proved by: `tests/it`.

use aws_lc_rs::{digest, hmac};
use ondisk::Order;

use super::cipher::MAC;
use super::dnodes::{RawDnode, SLOT};
use super::fields::{POINTER, PointerAuthData, word};
use super::key::DatasetKey;
use crate::Error;

/// Bytes of an object set's codes.
pub const OBJSET_MAC: usize = 32;

const CURRENT_VERSION: u64 = 1;
const KIND_AT: usize = 704;
const FLAGS_AT: usize = 712;
const PORTABLE_AT: usize = 720;
const LOCAL_AT: usize = 752;
const OWNERS_AT: [usize; 3] = [1024, 1536, 2048];
const FLAG_ACCOUNTED: u64 = 1;

/// The code of a pointer block's bytes (decompressed).
pub fn pointers_mac(data: &[u8], version: u64, order: Order) -> [u8; MAC] {
    let mut context = digest::Context::new(&digest::SHA512);
    for pointer in data.as_chunks::<POINTER>().0 {
        context.update(PointerAuthData::new(pointer, version, order).as_slice());
    }
    truncate(context.finish().as_ref())
}

/// Verifies a pointer block (decompressed) by the code in its own pointer. The key version is
/// unknown without the key, so the code of either version is accepted.
pub fn verify_pointers(data: &[u8], order: Order, code: &[u8; MAC]) -> Result<(), Error> {
    let fits = [CURRENT_VERSION, 0].iter().any(|v| pointers_mac(data, *v, order) == *code);
    fits.then_some(()).ok_or(Error::MacMismatch { structure: "a pointer block" })
}

/// The code of a leaf block that is not encrypted, over its bytes as stored.
pub fn leaf_mac(key: &DatasetKey, data: &[u8]) -> [u8; MAC] {
    truncate(hmac::sign(key.hmac(), data).as_ref())
}

/// Verifies such a block by the code in its pointer.
pub fn verify_leaf(key: &DatasetKey, data: &[u8], code: &[u8; MAC]) -> Result<(), Error> {
    let fits = leaf_mac(key, data) == *code;
    fits.then_some(()).ok_or(Error::MacMismatch { structure: "an unencrypted block" })
}

/// The codes of an object set (decompressed): portable, local.
pub fn objset_macs(
    key: &DatasetKey,
    data: &[u8],
    order: Order,
) -> Result<([u8; OBJSET_MAC], [u8; OBJSET_MAC]), Error> {
    let mut kind: [u8; 8] = *field(data, KIND_AT)?;
    if order == Order::Little {
        kind.reverse();
    }
    let mut portable = hmac::Context::with_key(key.hmac());
    portable.update(&kind);
    // of the flags nothing is portable so far
    portable.update(&[0; 8]);
    add_dnode(&mut portable, &dnode_at(data, 0)?, key.version(), order);

    let local = local_mac(key, data, order)?.unwrap_or([0; OBJSET_MAC]);
    Ok((truncate(portable.sign().as_ref()), local))
}

/// `None`: nothing is accounted for by user or group, and the code stays zero.
fn local_mac(
    key: &DatasetKey,
    data: &[u8],
    order: Order,
) -> Result<Option<[u8; OBJSET_MAC]>, Error> {
    let flags = word(*field(data, FLAGS_AT)?, order);
    let mut owners = Vec::with_capacity(OWNERS_AT.len());
    for at in OWNERS_AT.into_iter().filter(|at| data.len() >= at + SLOT) {
        owners.push(dnode_at(data, at)?);
    }
    let by_user_or_group = owners.iter().take(2).any(|node| !node.is_free());
    if flags & FLAG_ACCOUNTED == 0 || !by_user_or_group {
        return Ok(None);
    }
    let mut local = hmac::Context::with_key(key.hmac());
    local.update(&flags.to_le_bytes());
    for node in owners.iter().filter(|node| !node.is_free()) {
        add_dnode(&mut local, node, key.version(), order);
    }
    Ok(Some(truncate(local.sign().as_ref())))
}

/// Verifies an object set (decompressed) by the codes within it.
///
/// A local code of zeros is accepted, as in OpenZFS: the space accounting is then computed again.
pub fn verify_objset(key: &DatasetKey, data: &[u8], order: Order) -> Result<(), Error> {
    let (portable, local) = objset_macs(key, data, order)?;
    if portable != *field(data, PORTABLE_AT)? {
        return Err(Error::MacMismatch { structure: "an object set" });
    }
    if local != *field(data, LOCAL_AT)? && local != [0; OBJSET_MAC] {
        return Err(Error::MacMismatch { structure: "an object set's space accounting" });
    }
    Ok(())
}

fn add_dnode(context: &mut hmac::Context, node: &RawDnode<'_>, version: u64, order: Order) {
    context.update(&node.little_core(order));
    for facts in node.pointer_auth_data(version, order) {
        context.update(facts.as_slice());
    }
}

fn dnode_at(data: &[u8], at: usize) -> Result<RawDnode<'_>, Error> {
    Ok(RawDnode::split_first(field::<SLOT>(data, at)?)?.0)
}

fn field<const N: usize>(data: &[u8], at: usize) -> Result<&[u8; N], Error> {
    let short = Error::CorruptLayout { structure: "an object set", rule: "it is cut off" };
    data.get(at..).and_then(|rest| rest.first_chunk()).ok_or(short)
}

fn truncate<const N: usize>(digest: &[u8]) -> [u8; N] {
    digest.first_chunk().copied().unwrap_or([0; N])
}
