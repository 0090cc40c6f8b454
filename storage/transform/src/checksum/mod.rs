//! Checksums: the sum of a block's bytes as its block pointer keeps it.
//!
//! Every sum is four 64-bit words. How bytes become words is part of each method:
//!
//! ```text
//! fletcher2, fletcher4       the running sums; data words are read in the writer's byte order
//! sha256                     the digest as big-endian words, on every machine
//! sha512 (SHA-512/256),      the digest as words in the writer's byte order
//! skein, edonr, blake3
//! ```
//!
//! skein, edonr and blake3 are keyed with the pool's salt. In the pointer of an encrypted block
//! the last two words are not a sum but the message authentication code: see [`truncate_sum`].
//!
//! Learnt from: blocks of a pool that has one dataset for each method. Proved by: `tests/it`.

mod edonr;
pub mod embedded;
mod skein;

use std::cell::RefCell;

use aws_lc_rs::digest;
use ondisk::Order;
pub use ondisk::blkptr::Checksum;

use crate::Error;
use edonr::EdonR;
use skein::Skein;

/// The sum of `data` by `method`, as the four words of a block pointer.
///
/// `order` is that of the block's content, as its pointer says. `salt` is
/// the pool's, needed by skein, edonr and blake3 only. `Off` and `NoParity` sum to zeros. The
/// methods kept inside blocks (label, gang header, logs) give their plain sum, see [`embedded`].
pub fn compute(
    method: Checksum,
    data: &[u8],
    order: Order,
    salt: Option<&[u8; 32]>,
) -> Result<[u64; 4], Error> {
    let salted = |name| salt.ok_or(Error::SaltMissing { checksum: name });
    Ok(match method {
        Checksum::Off | Checksum::NoParity => [0; 4],
        Checksum::Fletcher2 | Checksum::Zilog => simd::fletcher2(data, order == Order::Big),
        Checksum::Fletcher4 | Checksum::Zilog2 => simd::fletcher4(data, order == Order::Big),
        Checksum::Sha256 | Checksum::Label | Checksum::GangHeader => sha256(&[data]),
        Checksum::Sha512 => words(digest::digest(&digest::SHA512_256, data).as_ref(), order),
        Checksum::Skein => {
            words_in_order(with_salted_states(salted("skein")?, |k| k.skein.hash(data)), order)
        }
        Checksum::EdonR => {
            let [a, b, c, d, ..] = with_salted_states(salted("edonr")?, |k| k.edonr.hash(data));
            words_in_order([a, b, c, d], order)
        }
        Checksum::Blake3 => words(blake3::keyed_hash(salted("blake3")?, data).as_bytes(), order),
        Checksum::Inherit => return Err(unsupported_code(0)),
        Checksum::On => return Err(unsupported_code(1)),
    })
}

/// True if `data` has the sum that its pointer holds in `expected`.
///
/// `encrypted`: the pointer says that encryption is used and it does not point to an object set;
/// then only the first half of `expected` is a sum. A block with checksum `off` always matches.
pub fn matches(
    method: Checksum,
    data: &[u8],
    order: Order,
    salt: Option<&[u8; 32]>,
    expected: &[u64; 4],
    encrypted: bool,
) -> Result<bool, Error> {
    if matches!(method, Checksum::Off | Checksum::NoParity) {
        return Ok(true);
    }
    let sum = compute(method, data, order, salt)?;
    Ok(if encrypted { truncate_sum(method, &sum)[..] == expected[..2] } else { sum == *expected })
}

/// The two checksum words of an encrypted block's pointer; the other two hold the MAC.
///
/// A checksum strong enough for deduplication is truncated; the others are folded.
pub fn truncate_sum(method: Checksum, sum: &[u64; 4]) -> [u64; 2] {
    let [a, b, c, d] = *sum;
    match method {
        Checksum::Sha256 | Checksum::Sha512 | Checksum::Skein | Checksum::Blake3 => [a, b],
        _ => [a ^ c, b ^ d],
    }
}

/// States that depend on the salt only, made once for each thread and pool.
struct SaltedStates {
    salt: [u8; 32],
    skein: Skein,
    edonr: EdonR,
}

thread_local! {
    static KEYS: RefCell<Option<SaltedStates>> = const { RefCell::new(None) };
}

fn with_salted_states<T>(salt: &[u8; 32], f: impl FnOnce(&SaltedStates) -> T) -> T {
    KEYS.with_borrow_mut(|slot| {
        slot.take_if(|keys| keys.salt != *salt);
        let make =
            || SaltedStates { salt: *salt, skein: Skein::keyed(salt), edonr: EdonR::salted(salt) };
        f(slot.get_or_insert_with(make))
    })
}

/// SHA-256 of `pieces` one after the other, as big-endian words.
fn sha256(pieces: &[&[u8]]) -> [u64; 4] {
    let mut context = digest::Context::new(&digest::SHA256);
    for piece in pieces {
        context.update(piece);
    }
    words(context.finish().as_ref(), Order::Big)
}

/// The first 32 bytes of a digest as words.
fn words(digest: &[u8], order: Order) -> [u64; 4] {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(digest.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words_in_order(words, order)
}

fn words_in_order(words: [u64; 4], order: Order) -> [u64; 4] {
    match order {
        Order::Little => words,
        Order::Big => words.map(u64::swap_bytes),
    }
}

fn unsupported_code(code: u64) -> Error {
    Error::Unsupported { feature: "checksum code of a stored block", code }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sha_words_follow_the_published_digests() {
        let abc = compute(Checksum::Sha256, b"abc", Order::Little, None).unwrap();
        assert_eq!(abc[0], 0xba7816bf8f01cfea);
        assert_eq!(abc, compute(Checksum::Sha256, b"abc", Order::Big, None).unwrap());
        let abc = compute(Checksum::Sha512, b"abc", Order::Big, None).unwrap();
        assert_eq!(abc[0], 0x53048e2681941ef9);
        let little = compute(Checksum::Sha512, b"abc", Order::Little, None).unwrap();
        assert_eq!(little[0], 0x53048e2681941ef9_u64.swap_bytes());
    }

    #[test]
    fn salted_checksums_require_the_salt() {
        for method in [Checksum::Skein, Checksum::EdonR, Checksum::Blake3] {
            assert!(matches!(
                compute(method, b"abc", Order::Little, None),
                Err(Error::SaltMissing { .. })
            ));
            let one = compute(method, b"abc", Order::Little, Some(&[1; 32])).unwrap();
            let two = compute(method, b"abc", Order::Little, Some(&[2; 32])).unwrap();
            assert_ne!(one, two);
            assert_eq!(one, compute(method, b"abc", Order::Little, Some(&[1; 32])).unwrap());
        }
    }

    #[test]
    fn encrypted_pointers_compare_half_the_checksum() {
        let sum = compute(Checksum::Fletcher4, &[7; 512], Order::Little, None).unwrap();
        let [x, y] = truncate_sum(Checksum::Fletcher4, &sum);
        let judge = |words: [u64; 4], encrypted| {
            matches(Checksum::Fletcher4, &[7; 512], Order::Little, None, &words, encrypted).unwrap()
        };
        assert!(judge([x, y, 1, 2], true));
        assert!(!judge([x, y ^ 1, 1, 2], true));
        assert!(!judge([x, y, 1, 2], false));
        assert!(judge(sum, false));
    }
}
