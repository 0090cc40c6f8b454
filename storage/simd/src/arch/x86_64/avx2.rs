//! 32 bytes at a time: AVX2.
//!
//! A multiplication by a constant looks up two tables of 16 products, by the low and by the
//! high nibble, with byte shuffles. Doubling, which is all that parity needs, is cheaper: add to
//! itself, and reduce where the sign bit was set.
//!
//! Remainders shorter than a vector go to the portable kernels.

use std::arch::x86_64::{
    __m256i, _mm_loadu_si128, _mm256_add_epi8, _mm256_add_epi64, _mm256_and_si256,
    _mm256_broadcastsi128_si256, _mm256_cmpgt_epi8, _mm256_cvtepu32_epi64, _mm256_loadu_si256,
    _mm256_or_si256, _mm256_set_epi8, _mm256_set1_epi8, _mm256_setzero_si256, _mm256_shuffle_epi8,
    _mm256_srli_epi64, _mm256_storeu_si256, _mm256_testz_si256, _mm256_xor_si256,
};

use crate::arch::scalar::{self, Scalar};
use crate::arch::{Factors, Kernels, common_length};
use crate::fletcher::{Sums, join_lanes2, join_lanes4};
use crate::gf256::{NIBBLES, REDUCTION};

/// Bytes in a vector.
const WIDTH: usize = 32;

/// Kernels for AVX2. A value of this type proves that the processor has it.
pub(crate) struct Avx2(());

impl Avx2 {
    /// The kernels, if this processor can run them.
    pub(crate) fn detect() -> Option<&'static Self> {
        static KERNELS: Avx2 = Avx2(());
        is_x86_feature_detected!("avx2").then_some(&KERNELS)
    }
}

impl Kernels for Avx2 {
    fn generate(&self, columns: &[&[u8]], parity: &mut [&mut [u8]]) {
        let length = common_length(columns, parity);
        // SAFETY: `self` proves the feature; every slice has `length` bytes.
        let done = unsafe {
            match parity {
                [p] => generate::<1, 8>(columns, [p.as_mut_ptr()], length),
                [p, q] => generate::<2, 4>(columns, [p.as_mut_ptr(), q.as_mut_ptr()], length),
                [p, q, r] => {
                    let rows = [p.as_mut_ptr(), q.as_mut_ptr(), r.as_mut_ptr()];
                    generate::<3, 2>(columns, rows, length)
                }
                _ => unreachable!("one to three parity rows"),
            }
        };
        if done < length {
            let columns: Vec<&[u8]> = columns.iter().map(|column| &column[done..]).collect();
            let mut rest: Vec<&mut [u8]> = parity.iter_mut().map(|row| &mut row[done..]).collect();
            Scalar.generate(&columns, &mut rest);
        }
    }

    fn combine(&self, factors: &[Factors], inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        let length = common_length(inputs, outputs);
        // SAFETY: `self` proves the feature; every slice has `length` bytes.
        let done = unsafe {
            match outputs {
                [a] if factors.iter().all(|factors| factors[0] == 1) => {
                    generate::<1, 8>(inputs, [a.as_mut_ptr()], length)
                }
                [a] => combine::<1, 2>(factors, inputs, [a.as_mut_ptr()], length),
                [a, b] => {
                    combine::<2, 2>(factors, inputs, [a.as_mut_ptr(), b.as_mut_ptr()], length)
                }
                [a, b, c] => {
                    let outputs = [a.as_mut_ptr(), b.as_mut_ptr(), c.as_mut_ptr()];
                    combine::<3, 2>(factors, inputs, outputs, length)
                }
                _ => unreachable!("one to three outputs"),
            }
        };
        if done < length {
            let inputs: Vec<&[u8]> = inputs.iter().map(|input| &input[done..]).collect();
            let mut rest: Vec<&mut [u8]> = outputs.iter_mut().map(|out| &mut out[done..]).collect();
            Scalar.combine(factors, &inputs, &mut rest);
        }
    }

    fn xor(&self, destination: &mut [u8], source: &[u8]) {
        // SAFETY: `self` proves the feature.
        unsafe { xor(destination, source) }
    }

    fn is_zero(&self, data: &[u8]) -> bool {
        // SAFETY: `self` proves the feature.
        unsafe { is_zero(data) }
    }

    fn fletcher2(&self, data: &[u8], swapped: bool) -> Sums {
        // SAFETY: `self` proves the feature.
        unsafe { if swapped { fletcher2::<true>(data) } else { fletcher2::<false>(data) } }
    }

    fn fletcher4(&self, data: &[u8], swapped: bool) -> Sums {
        // SAFETY: `self` proves the feature.
        unsafe { if swapped { fletcher4::<true>(data) } else { fletcher4::<false>(data) } }
    }
}

/// Parity rows 0.. over all whole vectors; returns how many bytes that was.
///
/// # Safety
/// Every column and row has `length` bytes.
#[target_feature(enable = "avx2")]
unsafe fn generate<const ROWS: usize, const VECTORS: usize>(
    columns: &[&[u8]],
    rows: [*mut u8; ROWS],
    length: usize,
) -> usize {
    let mut at = 0;
    // SAFETY: a step touches bytes `at..at + its width`, none past `length`.
    unsafe {
        while length - at >= VECTORS * WIDTH {
            horner::<ROWS, VECTORS>(columns, rows, at);
            at += VECTORS * WIDTH;
        }
        while length - at >= WIDTH {
            horner::<ROWS, 1>(columns, rows, at);
            at += WIDTH;
        }
    }
    at
}

/// One step of [`generate`].
///
/// # Safety
/// `VECTORS` vectors from `at` on lie within every column and row.
#[expect(clippy::needless_range_loop, reason = "one index into every row's sums")]
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn horner<const ROWS: usize, const VECTORS: usize>(
    columns: &[&[u8]],
    rows: [*mut u8; ROWS],
    at: usize,
) {
    let mut sums = [[_mm256_setzero_si256(); VECTORS]; ROWS];
    // SAFETY: the caller guarantees the bounds above.
    unsafe {
        for column in columns {
            for v in 0..VECTORS {
                let data = _mm256_loadu_si256(column.as_ptr().add(at + v * WIDTH).cast());
                sums[0][v] = _mm256_xor_si256(sums[0][v], data);
                if ROWS > 1 {
                    sums[1][v] = _mm256_xor_si256(double(sums[1][v]), data);
                }
                if ROWS > 2 {
                    sums[2][v] = _mm256_xor_si256(quadruple(sums[2][v]), data);
                }
            }
        }
        for (sums, row) in sums.into_iter().zip(rows) {
            for (v, sum) in sums.into_iter().enumerate() {
                _mm256_storeu_si256(row.add(at + v * WIDTH).cast(), sum);
            }
        }
    }
}

/// Sums of multiples over all whole vectors; returns how many bytes that was.
///
/// # Safety
/// Every input and output has `length` bytes.
#[target_feature(enable = "avx2")]
unsafe fn combine<const OUTPUTS: usize, const VECTORS: usize>(
    factors: &[Factors],
    inputs: &[&[u8]],
    outputs: [*mut u8; OUTPUTS],
    length: usize,
) -> usize {
    let mut at = 0;
    // SAFETY: a step touches bytes `at..at + its width`, none past `length`.
    unsafe {
        while length - at >= VECTORS * WIDTH {
            multiples::<OUTPUTS, VECTORS>(factors, inputs, outputs, at);
            at += VECTORS * WIDTH;
        }
        while length - at >= WIDTH {
            multiples::<OUTPUTS, 1>(factors, inputs, outputs, at);
            at += WIDTH;
        }
    }
    at
}

/// One step of [`combine`].
///
/// # Safety
/// `VECTORS` vectors from `at` on lie within every input and output.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn multiples<const OUTPUTS: usize, const VECTORS: usize>(
    factors: &[Factors],
    inputs: &[&[u8]],
    outputs: [*mut u8; OUTPUTS],
    at: usize,
) {
    let nibble = _mm256_set1_epi8(15);
    let mut sums = [[_mm256_setzero_si256(); VECTORS]; OUTPUTS];
    // SAFETY: the caller guarantees the bounds above.
    unsafe {
        for (factors, input) in factors.iter().zip(inputs) {
            let mut parts = [[_mm256_setzero_si256(); 2]; VECTORS];
            for (v, [low, high]) in parts.iter_mut().enumerate() {
                let data = _mm256_loadu_si256(input.as_ptr().add(at + v * WIDTH).cast());
                *low = _mm256_and_si256(data, nibble);
                *high = _mm256_and_si256(_mm256_srli_epi64::<4>(data), nibble);
            }
            for (k, sums) in sums.iter_mut().enumerate() {
                let [low_table, high_table] = tables(factors[k]);
                for (sum, [low, high]) in sums.iter_mut().zip(parts) {
                    let low = _mm256_shuffle_epi8(low_table, low);
                    let high = _mm256_shuffle_epi8(high_table, high);
                    *sum = _mm256_xor_si256(*sum, _mm256_xor_si256(low, high));
                }
            }
        }
        for (sums, output) in sums.into_iter().zip(outputs) {
            for (v, sum) in sums.into_iter().enumerate() {
                _mm256_storeu_si256(output.add(at + v * WIDTH).cast(), sum);
            }
        }
    }
}

#[target_feature(enable = "avx2")]
fn xor(destination: &mut [u8], source: &[u8]) {
    let (vectors, rest) = destination.as_chunks_mut::<WIDTH>();
    let (others, other_rest) = source.as_chunks::<WIDTH>();
    for (vector, other) in vectors.iter_mut().zip(others) {
        let sum = _mm256_xor_si256(vector_of(vector), vector_of(other));
        // SAFETY: the array has the 32 bytes.
        unsafe { _mm256_storeu_si256(vector.as_mut_ptr().cast(), sum) };
    }
    Scalar.xor(rest, other_rest);
}

#[target_feature(enable = "avx2")]
fn is_zero(data: &[u8]) -> bool {
    let (blocks, rest) = data.as_chunks::<{ 4 * WIDTH }>();
    for block in blocks {
        let mut any = _mm256_setzero_si256();
        for vector in block.as_chunks::<WIDTH>().0 {
            any = _mm256_or_si256(any, vector_of(vector));
        }
        if _mm256_testz_si256(any, any) == 0 {
            return false;
        }
    }
    rest.iter().all(|&byte| byte == 0)
}

#[target_feature(enable = "avx2")]
fn fletcher2<const SWAPPED: bool>(data: &[u8]) -> Sums {
    let (vectors, rest) = data.as_chunks::<WIDTH>();
    let (mut first, mut second) = (_mm256_setzero_si256(), _mm256_setzero_si256());
    for vector in vectors {
        let words = vector_of(vector);
        let words = if SWAPPED { _mm256_shuffle_epi8(words, swap8()) } else { words };
        first = _mm256_add_epi64(first, words);
        second = _mm256_add_epi64(second, first);
    }
    let pairs = |sums| {
        let [a, b, c, d] = lanes(sums);
        [[a, b], [c, d]]
    };
    scalar::finish2(join_lanes2(&pairs(first), &pairs(second)), rest, SWAPPED)
}

#[target_feature(enable = "avx2")]
fn fletcher4<const SWAPPED: bool>(data: &[u8]) -> Sums {
    let (vectors, rest) = data.as_chunks::<{ WIDTH / 2 }>();
    let mut sums = [_mm256_setzero_si256(); 4];
    for vector in vectors {
        // SAFETY: the vector has the 16 bytes.
        let words = unsafe { _mm_loadu_si128(vector.as_ptr().cast()) };
        let mut carry = _mm256_cvtepu32_epi64(words);
        if SWAPPED {
            carry = _mm256_shuffle_epi8(carry, swap4());
        }
        for sum in &mut sums {
            *sum = _mm256_add_epi64(*sum, carry);
            carry = *sum;
        }
    }
    scalar::finish4(join_lanes4(&sums.map(|sum| lanes(sum))), rest, SWAPPED)
}

/// Reverses the bytes of each 64-bit lane.
#[target_feature(enable = "avx2")]
#[inline]
fn swap8() -> __m256i {
    _mm256_set_epi8(
        8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1,
        2, 3, 4, 5, 6, 7,
    )
}

/// Reverses the low four bytes of each 64-bit lane and clears the others.
#[target_feature(enable = "avx2")]
#[inline]
fn swap4() -> __m256i {
    _mm256_set_epi8(
        -1, -1, -1, -1, 8, 9, 10, 11, -1, -1, -1, -1, 0, 1, 2, 3, -1, -1, -1, -1, 8, 9, 10, 11, -1,
        -1, -1, -1, 0, 1, 2, 3,
    )
}

#[target_feature(enable = "avx2")]
#[inline]
fn lanes(vector: __m256i) -> [u64; 4] {
    let mut lanes = [0; 4];
    // SAFETY: the array has the 32 bytes.
    unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), vector) };
    lanes
}

#[target_feature(enable = "avx2")]
#[inline]
fn vector_of(bytes: &[u8; WIDTH]) -> __m256i {
    // SAFETY: the array has the 32 bytes.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

/// The products by low and by high nibbles, in both halves of a vector.
#[target_feature(enable = "avx2")]
#[inline]
fn tables(factor: u8) -> [__m256i; 2] {
    let table: &[u8; 32] = &NIBBLES[usize::from(factor)];
    // SAFETY: the table has twice 16 bytes.
    unsafe {
        let low = _mm_loadu_si128(table.as_ptr().cast());
        let high = _mm_loadu_si128(table.as_ptr().add(16).cast());
        [_mm256_broadcastsi128_si256(low), _mm256_broadcastsi128_si256(high)]
    }
}

#[target_feature(enable = "avx2")]
#[inline]
fn double(x: __m256i) -> __m256i {
    let high = _mm256_cmpgt_epi8(_mm256_setzero_si256(), x);
    let reduced = _mm256_and_si256(high, _mm256_set1_epi8(REDUCTION.cast_signed()));
    _mm256_xor_si256(_mm256_add_epi8(x, x), reduced)
}

#[target_feature(enable = "avx2")]
#[inline]
fn quadruple(x: __m256i) -> __m256i {
    double(double(x))
}
