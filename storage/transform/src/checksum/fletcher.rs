//! Fletcher sums: four running sums over a block's words, kept as four 64-bit words.
//!
//! * fletcher2 reads 64-bit words and keeps two independent streams (even and odd words):
//!   `[a_even, a_odd, b_even, b_odd]`, `a` the sum of the words, `b` the sum of the `a`s;
//! * fletcher4 reads 32-bit words into one chain of four sums, each the sum of the one before.
//!
//! Words are read in the byte order of the block's writer. Bytes past the last whole word (or, for
//! fletcher2, pair of words) are not summed; no block of the format has any.

use ondisk::Order;

pub(super) fn fletcher2(data: &[u8], order: Order) -> [u64; 4] {
    let mut sums = [0; 4];
    fletcher2_more(&mut sums, data, order);
    sums
}

/// Continues `sums`; every piece but the last must be a multiple of 16 bytes.
pub(super) fn fletcher2_more(sums: &mut [u64; 4], data: &[u8], order: Order) {
    let [mut a0, mut a1, mut b0, mut b1] = *sums;
    for pair in data.as_chunks::<16>().0 {
        let (even, odd) = match order {
            Order::Little => split(u128::from_le_bytes(*pair)),
            Order::Big => {
                let (low, high) = split(u128::from_be_bytes(*pair));
                (high, low)
            }
        };
        a0 = a0.wrapping_add(even);
        a1 = a1.wrapping_add(odd);
        b0 = b0.wrapping_add(a0);
        b1 = b1.wrapping_add(a1);
    }
    *sums = [a0, a1, b0, b1];
}

/// Low and high half.
#[allow(clippy::cast_possible_truncation, reason = "the low half is what is wanted")]
fn split(pair: u128) -> (u64, u64) {
    (pair as u64, (pair >> 64) as u64)
}

/// Four words side by side, so that a compiler can use vectors; then joined and finished.
pub(super) fn fletcher4(data: &[u8], order: Order) -> [u64; 4] {
    let (groups, rest) = data.as_chunks::<16>();
    let lanes = match order {
        Order::Little => four_lanes(groups, u32::from_le_bytes),
        Order::Big => four_lanes(groups, u32::from_be_bytes),
    };
    let mut sums = join(&lanes);
    fletcher4_more(&mut sums, rest, order);
    sums
}

/// Continues `sums`; every piece but the last must be a multiple of 4 bytes.
pub(super) fn fletcher4_more(sums: &mut [u64; 4], data: &[u8], order: Order) {
    let [mut a, mut b, mut c, mut d] = *sums;
    for word in data.as_chunks::<4>().0 {
        let word = match order {
            Order::Little => u32::from_le_bytes(*word),
            Order::Big => u32::from_be_bytes(*word),
        };
        a = a.wrapping_add(u64::from(word));
        b = b.wrapping_add(a);
        c = c.wrapping_add(b);
        d = d.wrapping_add(c);
    }
    *sums = [a, b, c, d];
}

type Lanes = [[u64; 4]; 4];

#[inline]
fn four_lanes(groups: &[[u8; 16]], word: impl Fn([u8; 4]) -> u32) -> Lanes {
    let [mut a, mut b, mut c, mut d] = [[0_u64; 4]; 4];
    for group in groups {
        let words = group.as_chunks::<4>().0;
        for lane in 0..4 {
            a[lane] = a[lane].wrapping_add(u64::from(word(words[lane])));
            b[lane] = b[lane].wrapping_add(a[lane]);
            c[lane] = c[lane].wrapping_add(b[lane]);
            d[lane] = d[lane].wrapping_add(c[lane]);
        }
    }
    [a, b, c, d]
}

/// Joins four interleaved chains into the one they are parts of.
///
/// A word with `u` steps to go in its lane `j` has `4u - j` to go in the whole. The whole weighs
/// it with the binomials of `4u - j`, the lane with those of `u`; writing the former in terms of
/// the latter gives these factors.
fn join(lanes: &Lanes) -> [u64; 4] {
    let mut sums = [0_u64; 4];
    for j in 0..4_u64 {
        let lane = |sum: &[u64; 4]| sum[usize::try_from(j).unwrap_or(0)];
        let [a, b, c, d] = lanes.each_ref().map(lane);
        let parts = [
            a,
            weigh(4, b, j, a),
            weigh(16, c, 6 + 4 * j, b).wrapping_add((j * j.wrapping_sub(1) / 2).wrapping_mul(a)),
            weigh(64, d, 48 + 16 * j, c)
                .wrapping_add((4 + 4 * j + 2 * j * j).wrapping_mul(b))
                .wrapping_sub(u64::from(j == 3).wrapping_mul(a)),
        ];
        for (sum, part) in sums.iter_mut().zip(parts) {
            *sum = sum.wrapping_add(part);
        }
    }
    sums
}

fn weigh(plus: u64, x: u64, minus: u64, y: u64) -> u64 {
    plus.wrapping_mul(x).wrapping_sub(minus.wrapping_mul(y))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn small_sums_by_hand() {
        let data: Vec<u8> = [1_u32, 2, 3, 4].iter().flat_map(|w| w.to_le_bytes()).collect();
        assert_eq!(fletcher4(&data, Order::Little), [10, 20, 35, 56]);
        let data: Vec<u8> = [1_u64, 2, 3, 4].iter().flat_map(|w| w.to_be_bytes()).collect();
        assert_eq!(fletcher2(&data, Order::Big), [4, 6, 5, 8]);
    }

    proptest! {
        #[test]
        fn lanes_agree_with_the_plain_chain(data in prop::collection::vec(any::<u8>(), 0..700)) {
            for order in [Order::Little, Order::Big] {
                let mut plain = [0; 4];
                fletcher4_more(&mut plain, &data, order);
                prop_assert_eq!(fletcher4(&data, order), plain);
            }
        }
    }
}
