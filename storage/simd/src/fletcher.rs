//! ZFS's two running-sum checksums, over a whole buffer or piece by piece.
//!
//! ```text
//! fletcher4  for each 32-bit word w:         a += w; b += a; c += b; d += c     -> [a, b, c, d]
//! fletcher2  for each pair of 64-bit words:  a += w0; b += w1; c += a; d += b   -> [a, b, c, d]
//! ```
//!
//! All sums are modulo 2^64. Words are little-endian, or big-endian if `swapped`. A remainder
//! shorter than a word (fletcher2: than a pair) adds nothing, as in OpenZFS, where the loops run
//! over whole words only; blocks on disk never have one.
//!
//! **Lanes.** A vector of N lanes sums words k, k+N, k+2N... in lane k. A word with `r` words
//! from itself to the end, itself included, counts in a, b, c, d with the weights
//! 1, r, r(r+1)/2, r(r+1)(r+2)/6; a lane knows only x, the iterations from the word to the end.
//! As r = N*x - k, the true weights are fixed combinations of the lane's own: `join4`.
//!
//! **Pieces.** Words that stood `n` words before the end stand `n + m` before it once `m` words
//! follow: [`Fletcher4::append`] uses the same weights the other way round.
//!
//! Learnt from: the block pointers of a pool made by OpenZFS. Proved by: `golden_block`.

use crate::Backend;

/// The four running sums, in the order a block pointer's checksum stores them.
pub type Sums = [u64; 4];

/// ZFS's fletcher2 of `data`.
pub fn fletcher2(data: &[u8], swapped: bool) -> Sums {
    Backend::best().fletcher2(data, swapped)
}

/// ZFS's fletcher4 of `data`.
pub fn fletcher4(data: &[u8], swapped: bool) -> Sums {
    Backend::best().fletcher4(data, swapped)
}

impl Backend {
    /// [`fletcher2`] with these kernels.
    pub fn fletcher2(self, data: &[u8], swapped: bool) -> Sums {
        self.kernels().fletcher2(data.as_chunks::<16>().0.as_flattened(), swapped)
    }

    /// [`fletcher4`] with these kernels.
    pub fn fletcher4(self, data: &[u8], swapped: bool) -> Sums {
        self.kernels().fletcher4(data.as_chunks::<4>().0.as_flattened(), swapped)
    }
}

/// A fletcher2 sum in progress.
#[derive(Clone, Debug)]
pub struct Fletcher2(Stream<16>);

impl Fletcher2 {
    /// The checksum of nothing yet.
    pub fn new(swapped: bool) -> Self {
        Self(Stream::new(swapped))
    }

    /// Adds the next bytes; the pieces may have any lengths.
    pub fn update(&mut self, data: &[u8]) {
        self.0.update(data, Backend::fletcher2, append_zeros2);
    }

    /// Adds the sums of `next`, as if its bytes had been added to `self`. An unfinished word in
    /// `self` is dropped, as [`Self::finish`] would drop it.
    pub fn append(&mut self, next: &Self) {
        self.0.append(&next.0, append_zeros2);
    }

    /// The checksum of all bytes so far; a remainder of less than 16 of them is ignored.
    pub fn finish(&self) -> Sums {
        self.0.sums
    }
}

/// A fletcher4 sum in progress.
#[derive(Clone, Debug)]
pub struct Fletcher4(Stream<4>);

impl Fletcher4 {
    /// The checksum of nothing yet.
    pub fn new(swapped: bool) -> Self {
        Self(Stream::new(swapped))
    }

    /// Adds the next bytes; the pieces may have any lengths.
    pub fn update(&mut self, data: &[u8]) {
        self.0.update(data, Backend::fletcher4, append_zeros4);
    }

    /// Adds the sums of `next`, as if its bytes had been added to `self`. An unfinished word in
    /// `self` is dropped, as [`Self::finish`] would drop it.
    pub fn append(&mut self, next: &Self) {
        self.0.append(&next.0, append_zeros4);
    }

    /// The checksum of all bytes so far; a remainder of less than 4 of them is ignored.
    pub fn finish(&self) -> Sums {
        self.0.sums
    }
}

/// Sums over groups of `GROUP` bytes, with the bytes of an unfinished group.
#[derive(Clone, Debug)]
struct Stream<const GROUP: usize> {
    sums: Sums,
    groups: u64,
    pending: [u8; GROUP],
    pending_bytes: usize,
    swapped: bool,
}

impl<const GROUP: usize> Stream<GROUP> {
    fn new(swapped: bool) -> Self {
        Self { sums: [0; 4], groups: 0, pending: [0; GROUP], pending_bytes: 0, swapped }
    }

    fn update(
        &mut self,
        data: &[u8],
        sum: fn(Backend, &[u8], bool) -> Sums,
        after: fn(Sums, u64) -> Sums,
    ) {
        let mut data = data;
        if self.pending_bytes > 0 {
            let (filling, rest) = data.split_at(data.len().min(GROUP - self.pending_bytes));
            self.pending[self.pending_bytes..self.pending_bytes + filling.len()]
                .copy_from_slice(filling);
            self.pending_bytes += filling.len();
            data = rest;
            if self.pending_bytes < GROUP {
                return;
            }
            self.add(sum(Backend::Scalar, &self.pending, self.swapped), 1, after);
        }
        let (whole, rest) = data.as_chunks::<GROUP>();
        if !whole.is_empty() {
            let sums = sum(Backend::best(), whole.as_flattened(), self.swapped);
            self.add(sums, whole.len() as u64, after);
        }
        self.pending[..rest.len()].copy_from_slice(rest);
        self.pending_bytes = rest.len();
    }

    fn append(&mut self, next: &Self, after: fn(Sums, u64) -> Sums) {
        self.add(next.sums, next.groups, after);
        self.pending = next.pending;
        self.pending_bytes = next.pending_bytes;
    }

    fn add(&mut self, sums: Sums, groups: u64, after: fn(Sums, u64) -> Sums) {
        self.sums = add_sums(after(self.sums, groups), sums);
        self.groups = self.groups.wrapping_add(groups);
    }
}

fn add_sums(a: Sums, b: Sums) -> Sums {
    std::array::from_fn(|i| a[i].wrapping_add(b[i]))
}

/// The fletcher2 sums after `pairs` more pairs of zeroes.
fn append_zeros2([a, b, c, d]: Sums, pairs: u64) -> Sums {
    [a, b, c.wrapping_add(a.wrapping_mul(pairs)), d.wrapping_add(b.wrapping_mul(pairs))]
}

/// The fletcher4 sums after `n` more words of zeroes.
fn append_zeros4([a, b, c, d]: Sums, n: u64) -> Sums {
    let (second, third) = (triangular(n), tetrahedral(n));
    let dot = |weights: &[(u64, u64)]| {
        weights.iter().fold(0u64, |sum, (x, weight)| sum.wrapping_add(x.wrapping_mul(*weight)))
    };
    [
        a,
        dot(&[(b, 1), (a, n)]),
        dot(&[(c, 1), (b, n), (a, second)]),
        dot(&[(d, 1), (c, n), (b, second), (a, third)]),
    ]
}

/// n(n+1)/2 modulo 2^64.
#[expect(clippy::cast_possible_truncation, reason = "the truncation is the modulus")]
fn triangular(n: u64) -> u64 {
    let n = u128::from(n);
    (n * (n + 1) / 2) as u64
}

/// n(n+1)(n+2)/6 modulo 2^64. One of the three factors is a multiple of 3. It is divided first,
/// because the whole product would overflow 128 bits.
#[expect(clippy::cast_possible_truncation, reason = "the truncation is the modulus")]
fn tetrahedral(n: u64) -> u64 {
    let n = u128::from(n);
    let (pair, third) = (n * (n + 1) / 2, n + 2);
    let (pair, third) = if pair % 3 == 0 { (pair / 3, third) } else { (pair, third / 3) };
    (pair as u64).wrapping_mul(third as u64)
}

/// The fletcher2 sums of pairs dealt out to `LANES` lanes in turn: `lanes[s][k]` is sum `s`
/// (a or b, then c or d of that half) of lane `k`.
pub(crate) fn join_lanes2<const LANES: usize>(
    first: &[[u64; 2]; LANES],
    second: &[[u64; 2]; LANES],
) -> Sums {
    let mut sums = [0; 4];
    for (k, (first, second)) in first.iter().zip(second).enumerate() {
        let half = |h: usize| {
            let whole = second[h].wrapping_mul(LANES as u64);
            whole.wrapping_sub(first[h].wrapping_mul(k as u64))
        };
        sums = add_sums(sums, [first[0], first[1], half(0), half(1)]);
    }
    sums
}

/// The fletcher4 sums of words dealt out to `LANES` lanes in turn: `lanes[s][k]` is sum `s` of
/// lane `k`.
///
/// With X2 = x(x+1)/2 and X3 = x(x+1)(x+2)/6, the lane's own weights, and r = N*x - k:
///
/// ```text
/// r            = N x - k
/// r(r+1)/2     = N^2 X2 + (N - N^2 - 2Nk)/2 x + (k^2 - k)/2
/// r(r+1)(r+2)/6 = N^3 X3 + (N^2 - N^3 - N^2 k) X2
///               + (N^3 + 3N^2 k + 3N k^2 - 3N^2 - 6Nk + 2N)/6 x - k(k-1)(k-2)/6
/// ```
#[expect(clippy::cast_possible_wrap, reason = "there are at most 16 lanes")]
pub(crate) fn join_lanes4<const LANES: usize>(lanes: &[[u64; LANES]; 4]) -> Sums {
    let n = LANES as i64;
    let mut sums = [0; 4];
    for k in 0..LANES {
        let [a, b, c, d] = lanes.map(|sum| sum[k]);
        let k = k as i64;
        let dot = |weights: [i64; 4]| {
            [a, b, c, d].iter().zip(weights).fold(0u64, |sum, (x, weight)| {
                sum.wrapping_add(x.wrapping_mul(weight.cast_unsigned()))
            })
        };
        let linear = n.pow(3) + 3 * n * n * k + 3 * n * k * k - 3 * n * n - 6 * n * k + 2 * n;
        let lane = [
            a,
            dot([-k, n, 0, 0]),
            dot([(k * k - k) / 2, (n - n * n - 2 * n * k) / 2, n * n, 0]),
            dot([-k * (k - 1) * (k - 2) / 6, linear / 6, n * n - n.pow(3) - n * n * k, n.pow(3)]),
        ];
        sums = add_sums(sums, lane);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fletcher_matches_hand_computed_sums() {
        let words = |words: &[u32]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>();
        let data = words(&[1, 2, 3]);
        // a: 1 3 6, b: 1 4 10, c: 1 5 15, d: 1 6 21
        assert_eq!(fletcher4(&data, false), [6, 10, 15, 21]);
        assert_eq!(fletcher4(&words(&[0x01000000]), true), [1; 4]);
        let data = words(&[1, 0, 2, 0, 3, 0, 4, 0]);
        assert_eq!(fletcher2(&data, false), [4, 6, 5, 8]);
    }

    #[test]
    fn incomplete_words_are_ignored() {
        let data: Vec<u8> = (1..=64).collect();
        for length in 0..data.len() {
            assert_eq!(fletcher4(&data[..length], true), fletcher4(&data[..length & !3], true));
            assert_eq!(fletcher2(&data[..length], false), fletcher2(&data[..length & !15], false));
        }
        assert_eq!(fletcher4(&data[..3], false), [0; 4]);
    }

    #[test]
    fn weights_do_not_overflow() {
        assert_eq!((triangular(4), tetrahedral(4)), (10, 20));
        // (2^64 - 1) 2^64 / 2, and that times (2^64 + 1) / 3, an odd number.
        assert_eq!((triangular(u64::MAX), tetrahedral(u64::MAX)), (1 << 63, 1 << 63));
        let mut sums = [7, 6, 5, 4];
        for _ in 0..1000 {
            sums = append_zeros4(sums, 1);
        }
        assert_eq!(sums, append_zeros4([7, 6, 5, 4], 1000));
    }

    proptest! {
        #[test]
        fn pieces_are_the_whole(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..150), 0..8),
            swapped: bool,
        ) {
            let whole = pieces.concat();
            let (mut four, mut two) = (Fletcher4::new(swapped), Fletcher2::new(swapped));
            for piece in &pieces {
                four.update(piece);
                two.update(piece);
            }
            prop_assert_eq!(four.finish(), Backend::Naive.fletcher4(&whole, swapped));
            prop_assert_eq!(two.finish(), Backend::Naive.fletcher2(&whole, swapped));
        }

        #[test]
        fn appending_is_continuing(
            head in prop::collection::vec(any::<u8>(), 0..40),
            tail in prop::collection::vec(any::<u8>(), 0..400),
            more in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let head = head.repeat(16);
            let whole = [&head[..], &tail, &more].concat();
            let (mut four, mut next) = (Fletcher4::new(false), Fletcher4::new(false));
            four.update(&head);
            next.update(&tail);
            four.append(&next);
            four.update(&more);
            prop_assert_eq!(four.finish(), Backend::Naive.fletcher4(&whole, false));
            let (mut two, mut next) = (Fletcher2::new(true), Fletcher2::new(true));
            two.update(&head);
            next.update(&tail);
            two.append(&next);
            two.update(&more);
            prop_assert_eq!(two.finish(), Backend::Naive.fletcher2(&whole, true));
        }
    }
}
