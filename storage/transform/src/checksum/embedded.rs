//! Sums that a block carries within itself: labels, gang headers and log blocks.
//!
//! ```text
//! offset  size  field     since  meaning
//!      0     8  magic     v1     0x0210da7ab10c7a11; its byte order is the block's byte order
//!      8    32  checksum  v1     of the block, summed with the verifier standing in this place
//! ```
//!
//! These 40 bytes end the block; in a log block of the newer kind (`zilog2`) they end the chain
//! header instead, at offset 144, and the sum reaches only as far as the log is used.
//!
//! The verifier ties the block to its place: `(offset on the device, 0, 0, 0)` for a label's
//! parts, `(vdev, offset, birth txg, 0)` for a gang header, and for a log block the checksum in
//! the pointer to it (a sequence number among it).
//!
//! Learnt from: labels and log blocks of pools. Proved by: `tests/it`.

use ondisk::Order;

use super::{Checksum, sha256, truncate_sum};

const MAGIC: u64 = 0x0210_da7a_b10c_7a11;
const MAGIC_SIZE: usize = 8;
const SUM_SIZE: usize = 32;
const SEAL_SIZE: usize = MAGIC_SIZE + SUM_SIZE;
const LOG_USED_AT: usize = 136;
const LOG_SEAL_AT: usize = 144;
const LOG_MIN_SIZE: u64 = 4096;

/// True if the sum within `data` is right for `verifier`.
///
/// `encrypted`: a log block of an encrypted dataset, where half of the sum is an authentication
/// code (see [`log_mac`]). Any other `method` than the four kept in blocks is never right.
pub fn verify(data: &[u8], verifier: &[u64; 4], method: Checksum, encrypted: bool) -> bool {
    let Some(seat) = EmbeddedChecksum::find(data, method) else { return false };
    let Some(kept) = seat.stored_sum(data) else { return false };
    let Some(sum) = seat.compute_sum(data, verifier, method) else { return false };
    if encrypted { truncate_sum(method, &sum)[..] == kept[..2] } else { sum == kept }
}

/// Writes magic and checksum into `data` (little-endian), so that [`verify`] succeeds.
/// Returns `None` if `data` is too short.
///
/// With `encrypted` the MAC in the checksum's second half is left unchanged.
pub fn seal(data: &mut [u8], verifier: &[u64; 4], method: Checksum, encrypted: bool) -> Option<()> {
    let at = EmbeddedChecksum::magic_offset(data, method)?;
    data.get_mut(at..at + MAGIC_SIZE)?.copy_from_slice(&MAGIC.to_le_bytes());
    let seat = EmbeddedChecksum::find(data, method)?;
    let mut sum = seat.compute_sum(data, verifier, method)?;
    if encrypted {
        let [_, _, c, d] = seat.stored_sum(data)?;
        let [a, b] = truncate_sum(method, &sum);
        sum = [a, b, c, d];
    }
    data.get_mut(seat.sum_at..seat.sum_at + SUM_SIZE)?.copy_from_slice(&seat.bytes(&sum));
    debug_assert!(verify(data, verifier, method, encrypted), "a sealed block verifies");
    Some(())
}

/// The authentication code of an encrypted log block, which lies in its sum's second half.
pub fn log_mac(data: &[u8]) -> Option<[u8; 16]> {
    data.get(LOG_SEAL_AT + MAGIC_SIZE + 16..)?.first_chunk().copied()
}

/// Where the sum lies, in which byte order, and how much of the block it covers.
struct EmbeddedChecksum {
    sum_at: usize,
    order: Order,
    covered: usize,
}

impl EmbeddedChecksum {
    /// Offset of the magic number.
    fn magic_offset(data: &[u8], method: Checksum) -> Option<usize> {
        match method {
            Checksum::Label | Checksum::GangHeader | Checksum::Zilog => {
                data.len().checked_sub(SEAL_SIZE)
            }
            Checksum::Zilog2 => Some(LOG_SEAL_AT),
            _ => None,
        }
    }

    fn find(data: &[u8], method: Checksum) -> Option<Self> {
        let at = Self::magic_offset(data, method)?;
        let magic: [u8; 8] = *data.get(at..)?.first_chunk()?;
        let order = if u64::from_le_bytes(magic) == MAGIC {
            Order::Little
        } else if u64::from_be_bytes(magic) == MAGIC {
            Order::Big
        } else {
            return None;
        };
        let mut seat = Self { sum_at: at + MAGIC_SIZE, order, covered: data.len() };
        if method == Checksum::Zilog2 {
            let used = seat.word(*data.get(LOG_USED_AT..)?.first_chunk()?);
            seat.covered = usize::try_from(used.checked_next_multiple_of(LOG_MIN_SIZE)?).ok()?;
        }
        (seat.covered >= seat.sum_at + SUM_SIZE && seat.covered <= data.len()).then_some(seat)
    }

    fn stored_sum(&self, data: &[u8]) -> Option<[u64; 4]> {
        let bytes: [u8; SUM_SIZE] = *data.get(self.sum_at..)?.first_chunk()?;
        let words = bytes.as_chunks::<8>().0;
        Some(std::array::from_fn(|i| self.word(words[i])))
    }

    fn compute_sum(&self, data: &[u8], verifier: &[u64; 4], method: Checksum) -> Option<[u64; 4]> {
        let before = data.get(..self.sum_at)?;
        let after = data.get(self.sum_at + SUM_SIZE..self.covered)?;
        let place = self.bytes(verifier);
        let pieces = [before, &place, after];
        let swapped = self.order == Order::Big;
        match method {
            Checksum::Zilog => Some(simd::fletcher2(&pieces.concat(), swapped)),
            Checksum::Zilog2 => Some(simd::fletcher4(&pieces.concat(), swapped)),
            _ => Some(sha256(&pieces)),
        }
    }

    fn word(&self, bytes: [u8; 8]) -> u64 {
        match self.order {
            Order::Little => u64::from_le_bytes(bytes),
            Order::Big => u64::from_be_bytes(bytes),
        }
    }

    fn bytes(&self, words: &[u64; 4]) -> [u8; SUM_SIZE] {
        let mut bytes = [0; SUM_SIZE];
        for (out, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *out = match self.order {
                Order::Little => word.to_le_bytes(),
                Order::Big => word.to_be_bytes(),
            };
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METHODS: [Checksum; 4] =
        [Checksum::Label, Checksum::GangHeader, Checksum::Zilog, Checksum::Zilog2];

    fn block() -> Vec<u8> {
        let mut data: Vec<u8> = (0..8192_u32).map(|i| (i * 7 % 251) as u8).collect();
        data[LOG_USED_AT..][..8].copy_from_slice(&5000_u64.to_le_bytes());
        data
    }

    #[test]
    fn only_sealed_blocks_verify() {
        let verifier = [5, 6, 7, 8];
        for method in METHODS {
            for encrypted in [false, true] {
                let mut data = block();
                seal(&mut data, &verifier, method, encrypted).unwrap();
                assert!(verify(&data, &verifier, method, encrypted));
                assert!(!verify(&data, &[5, 6, 7, 9], method, encrypted));
                data[1000] ^= 1;
                assert!(!verify(&data, &verifier, method, encrypted));
            }
        }
    }

    #[test]
    fn log_checksum_covers_only_used_bytes() {
        let mut data = block();
        data[LOG_USED_AT..][..8].copy_from_slice(&4000_u64.to_le_bytes());
        seal(&mut data, &[1; 4], Checksum::Zilog2, false).unwrap();
        data[4096] ^= 1;
        assert!(verify(&data, &[1; 4], Checksum::Zilog2, false));
    }

    #[test]
    fn short_or_corrupt_blocks_are_refused() {
        for method in METHODS {
            for length in [0, 1, 39, 40, 150, 183, 184] {
                let mut data = vec![0; length];
                let sealed = seal(&mut data, &[0; 4], method, false).is_some();
                assert_eq!(verify(&data, &[0; 4], method, false), sealed);
            }
        }
        let mut data = block();
        seal(&mut data, &[0; 4], Checksum::Zilog2, false).unwrap();
        data[LOG_USED_AT..][..8].fill(0xff);
        assert!(!verify(&data, &[0; 4], Checksum::Zilog2, false));
    }
}
