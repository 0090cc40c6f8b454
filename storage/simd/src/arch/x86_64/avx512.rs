//! 64 bytes at a time: AVX-512 F and BW, with GFNI for multiplication.
//!
//! Multiplying by any constant of the field is one instruction, `gf2p8affineqb`, with the
//! constant's bit matrix; adding two products to a sum is one more, the three-way xor of
//! `vpternlog`. So Horner's rule goes two columns at a time:
//! `sum = x^2 * sum + x * this + next`.
//!
//! Remainders shorter than a vector are loaded and stored under a mask.

use std::arch::x86_64::{
    __m512i, __mmask64, _mm_set_epi8, _mm256_loadu_si256, _mm512_add_epi64, _mm512_broadcast_i32x4,
    _mm512_cvtepu32_epi64, _mm512_gf2p8affine_epi64_epi8, _mm512_loadu_si512,
    _mm512_mask_storeu_epi8, _mm512_maskz_loadu_epi8, _mm512_or_si512, _mm512_set1_epi64,
    _mm512_setzero_si512, _mm512_shuffle_epi8, _mm512_storeu_si512, _mm512_ternarylogic_epi64,
    _mm512_test_epi8_mask, _mm512_xor_si512,
};

use crate::arch::{Factors, Kernels, common_length, scalar};
use crate::fletcher::{Sums, join_lanes2, join_lanes4};
use crate::gf256::AFFINE;

/// Bytes in a vector.
const WIDTH: usize = 64;

/// Kernels for AVX-512 with GFNI. A value of this type proves that the processor has them.
pub(crate) struct Avx512(());

impl Avx512 {
    /// The kernels, if this processor can run them.
    pub(crate) fn detect() -> Option<&'static Self> {
        static KERNELS: Avx512 = Avx512(());
        let able = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("gfni");
        able.then_some(&KERNELS)
    }
}

impl Kernels for Avx512 {
    fn generate(&self, columns: &[&[u8]], parity: &mut [&mut [u8]]) {
        let length = common_length(columns, parity);
        assert!(!columns.is_empty(), "no columns");
        // SAFETY: `self` proves the features; every slice has `length` bytes.
        unsafe {
            match parity {
                [p] => generate::<1, 8>(columns, [p.as_mut_ptr()], length),
                [p, q] => generate::<2, 4>(columns, [p.as_mut_ptr(), q.as_mut_ptr()], length),
                [p, q, r] => {
                    let rows = [p.as_mut_ptr(), q.as_mut_ptr(), r.as_mut_ptr()];
                    generate::<3, 4>(columns, rows, length);
                }
                _ => unreachable!("one to three parity rows"),
            }
        }
    }

    fn combine(&self, factors: &[Factors], inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        let length = common_length(inputs, outputs);
        assert_eq!(factors.len(), inputs.len(), "factors for every input");
        // SAFETY: `self` proves the features; every slice has `length` bytes; one row is
        // generated only where there is an input.
        unsafe {
            match outputs {
                [a] if !inputs.is_empty() && factors.iter().all(|factors| factors[0] == 1) => {
                    generate::<1, 8>(inputs, [a.as_mut_ptr()], length);
                }
                [a] => combine::<1, 8>(factors, inputs, [a.as_mut_ptr()], length),
                [a, b] => {
                    combine::<2, 4>(factors, inputs, [a.as_mut_ptr(), b.as_mut_ptr()], length);
                }
                [a, b, c] => {
                    let outputs = [a.as_mut_ptr(), b.as_mut_ptr(), c.as_mut_ptr()];
                    combine::<3, 4>(factors, inputs, outputs, length);
                }
                _ => unreachable!("one to three outputs"),
            }
        }
    }

    fn xor(&self, destination: &mut [u8], source: &[u8]) {
        let length = common_length(&[source], &[&mut *destination]);
        // SAFETY: `self` proves the features; both have `length` bytes.
        unsafe { xor(destination.as_mut_ptr(), source.as_ptr(), length) }
    }

    fn is_zero(&self, data: &[u8]) -> bool {
        // SAFETY: `self` proves the features.
        unsafe { is_zero(data) }
    }

    fn fletcher2(&self, data: &[u8], swapped: bool) -> Sums {
        // SAFETY: `self` proves the features.
        unsafe { if swapped { fletcher2::<true>(data) } else { fletcher2::<false>(data) } }
    }

    fn fletcher4(&self, data: &[u8], swapped: bool) -> Sums {
        // SAFETY: `self` proves the features.
        unsafe { if swapped { fletcher4::<true>(data) } else { fletcher4::<false>(data) } }
    }
}

/// Parity rows 0.. over whole groups of `VECTORS` vectors, then single ones, then the rest.
///
/// # Safety
/// Every column and row has `length` bytes; there is a column.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn generate<const ROWS: usize, const VECTORS: usize>(
    columns: &[&[u8]],
    rows: [*mut u8; ROWS],
    length: usize,
) {
    let mut at = 0;
    // SAFETY: a step touches bytes `at..at + its width`, the masked one only `at..length`.
    unsafe {
        while length - at >= VECTORS * WIDTH {
            horner::<ROWS, VECTORS>(columns, rows, at, None);
            at += VECTORS * WIDTH;
        }
        while length - at >= WIDTH {
            horner::<ROWS, 1>(columns, rows, at, None);
            at += WIDTH;
        }
        if at < length {
            horner::<ROWS, 1>(columns, rows, at, Some(mask(length - at)));
        }
    }
}

/// One step of [`generate`].
///
/// # Safety
/// `VECTORS` vectors from `at` on, or one under the mask, lie within every column and row.
#[expect(clippy::needless_range_loop, reason = "one index into every row's sums")]
#[target_feature(enable = "avx512f,avx512bw,gfni")]
#[inline]
unsafe fn horner<const ROWS: usize, const VECTORS: usize>(
    columns: &[&[u8]],
    rows: [*mut u8; ROWS],
    at: usize,
    mask: Option<__mmask64>,
) {
    // By row: 1, 2, 4 and their squares 1, 4, 16.
    let once = [matrix(1), matrix(2), matrix(4)];
    let twice = [matrix(1), matrix(4), matrix(16)];
    let mut sums = [[_mm512_setzero_si512(); VECTORS]; ROWS];
    // SAFETY: the caller guarantees the bounds above.
    unsafe {
        let (singles, pairs) = columns.split_at(columns.len() % 2);
        for column in singles {
            for v in 0..VECTORS {
                let data = load(column.as_ptr().add(at + v * WIDTH), mask);
                for sum in &mut sums {
                    sum[v] = data;
                }
            }
        }
        for pair in pairs.as_chunks::<2>().0 {
            for v in 0..VECTORS {
                let this = load(pair[0].as_ptr().add(at + v * WIDTH), mask);
                let next = load(pair[1].as_ptr().add(at + v * WIDTH), mask);
                sums[0][v] = xor3(sums[0][v], this, next);
                for row in 1..ROWS {
                    let sum = multiply(sums[row][v], twice[row]);
                    sums[row][v] = xor3(sum, multiply(this, once[row]), next);
                }
            }
        }
        for (sums, row) in sums.into_iter().zip(rows) {
            for (v, sum) in sums.into_iter().enumerate() {
                store(row.add(at + v * WIDTH), sum, mask);
            }
        }
    }
}

/// Sums of multiples over whole groups of `VECTORS` vectors, then single ones, then the rest.
///
/// # Safety
/// Every input and output has `length` bytes; there are as many factors as inputs.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn combine<const OUTPUTS: usize, const VECTORS: usize>(
    factors: &[Factors],
    inputs: &[&[u8]],
    outputs: [*mut u8; OUTPUTS],
    length: usize,
) {
    let mut at = 0;
    // SAFETY: a step touches bytes `at..at + its width`, the masked one only `at..length`.
    unsafe {
        while length - at >= VECTORS * WIDTH {
            multiples::<OUTPUTS, VECTORS>(factors, inputs, outputs, at, None);
            at += VECTORS * WIDTH;
        }
        while length - at >= WIDTH {
            multiples::<OUTPUTS, 1>(factors, inputs, outputs, at, None);
            at += WIDTH;
        }
        if at < length {
            multiples::<OUTPUTS, 1>(factors, inputs, outputs, at, Some(mask(length - at)));
        }
    }
}

/// One step of [`combine`].
///
/// # Safety
/// `VECTORS` vectors from `at` on, or one under the mask, lie within every input and output.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
#[inline]
unsafe fn multiples<const OUTPUTS: usize, const VECTORS: usize>(
    factors: &[Factors],
    inputs: &[&[u8]],
    outputs: [*mut u8; OUTPUTS],
    at: usize,
    mask: Option<__mmask64>,
) {
    let mut sums = [[_mm512_setzero_si512(); VECTORS]; OUTPUTS];
    let (pairs, singles) = inputs.as_chunks::<2>();
    let (factor_pairs, factor_singles) = factors.as_chunks::<2>();
    // SAFETY: the caller guarantees the bounds above.
    unsafe {
        for (factors, pair) in factor_pairs.iter().zip(pairs) {
            for v in 0..VECTORS {
                let this = load(pair[0].as_ptr().add(at + v * WIDTH), mask);
                let next = load(pair[1].as_ptr().add(at + v * WIDTH), mask);
                for (k, sums) in sums.iter_mut().enumerate() {
                    let this = multiply(this, matrix(factors[0][k]));
                    let next = multiply(next, matrix(factors[1][k]));
                    sums[v] = xor3(sums[v], this, next);
                }
            }
        }
        for (factors, input) in factor_singles.iter().zip(singles) {
            for v in 0..VECTORS {
                let data = load(input.as_ptr().add(at + v * WIDTH), mask);
                for (k, sums) in sums.iter_mut().enumerate() {
                    sums[v] = _mm512_xor_si512(sums[v], multiply(data, matrix(factors[k])));
                }
            }
        }
        for (sums, output) in sums.into_iter().zip(outputs) {
            for (v, sum) in sums.into_iter().enumerate() {
                store(output.add(at + v * WIDTH), sum, mask);
            }
        }
    }
}

/// # Safety
/// Both have `length` bytes.
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn xor(destination: *mut u8, source: *const u8, length: usize) {
    for at in (0..length).step_by(WIDTH) {
        let mask = (length - at < WIDTH).then(|| mask(length - at));
        // SAFETY: a whole vector lies before `length`, or the mask stops there.
        unsafe {
            let sum = _mm512_xor_si512(load(destination.add(at), mask), load(source.add(at), mask));
            store(destination.add(at), sum, mask);
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw")]
fn is_zero(data: &[u8]) -> bool {
    let (blocks, rest) = data.as_chunks::<{ 4 * WIDTH }>();
    for block in blocks {
        let mut any = _mm512_setzero_si512();
        for vector in block.as_chunks::<WIDTH>().0 {
            any = _mm512_or_si512(any, vector_of(vector));
        }
        if _mm512_test_epi8_mask(any, any) != 0 {
            return false;
        }
    }
    rest.iter().all(|&byte| byte == 0)
}

#[target_feature(enable = "avx512f,avx512bw")]
fn fletcher2<const SWAPPED: bool>(data: &[u8]) -> Sums {
    let (vectors, rest) = data.as_chunks::<WIDTH>();
    let (mut first, mut second) = (_mm512_setzero_si512(), _mm512_setzero_si512());
    for vector in vectors {
        let words = vector_of(vector);
        let words = if SWAPPED { _mm512_shuffle_epi8(words, swap8()) } else { words };
        first = _mm512_add_epi64(first, words);
        second = _mm512_add_epi64(second, first);
    }
    let pairs = |sums| {
        let words = lanes(sums);
        std::array::from_fn::<_, 4, _>(|k| [words[2 * k], words[2 * k + 1]])
    };
    scalar::finish2(join_lanes2(&pairs(first), &pairs(second)), rest, SWAPPED)
}

#[target_feature(enable = "avx512f,avx512bw")]
fn fletcher4<const SWAPPED: bool>(data: &[u8]) -> Sums {
    let (vectors, rest) = data.as_chunks::<{ WIDTH / 2 }>();
    let mut sums = [_mm512_setzero_si512(); 4];
    for vector in vectors {
        // SAFETY: the vector has the 32 bytes.
        let words = unsafe { _mm256_loadu_si256(vector.as_ptr().cast()) };
        let mut carry = _mm512_cvtepu32_epi64(words);
        if SWAPPED {
            carry = _mm512_shuffle_epi8(carry, swap4());
        }
        for sum in &mut sums {
            *sum = _mm512_add_epi64(*sum, carry);
            carry = *sum;
        }
    }
    scalar::finish4(join_lanes4(&sums.map(|sum| lanes(sum))), rest, SWAPPED)
}

/// Reverses the bytes of each 64-bit lane.
#[target_feature(enable = "avx512f")]
#[inline]
fn swap8() -> __m512i {
    _mm512_broadcast_i32x4(_mm_set_epi8(8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7))
}

/// Reverses the low four bytes of each 64-bit lane and clears the others.
#[target_feature(enable = "avx512f")]
#[inline]
fn swap4() -> __m512i {
    let order = _mm_set_epi8(-1, -1, -1, -1, 8, 9, 10, 11, -1, -1, -1, -1, 0, 1, 2, 3);
    _mm512_broadcast_i32x4(order)
}

#[target_feature(enable = "avx512f")]
#[inline]
fn lanes(vector: __m512i) -> [u64; 8] {
    let mut lanes = [0; 8];
    // SAFETY: the array has the 64 bytes.
    unsafe { _mm512_storeu_si512(lanes.as_mut_ptr().cast(), vector) };
    lanes
}

#[target_feature(enable = "avx512f")]
#[inline]
fn vector_of(bytes: &[u8; WIDTH]) -> __m512i {
    // SAFETY: the array has the 64 bytes.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

/// The lowest `bytes < 64` bits.
fn mask(bytes: usize) -> __mmask64 {
    (1 << bytes) - 1
}

/// # Safety
/// The vector, or the part of it under the mask, is readable.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
unsafe fn load(from: *const u8, mask: Option<__mmask64>) -> __m512i {
    // SAFETY: the caller guarantees that the bytes are readable.
    unsafe {
        match mask {
            None => _mm512_loadu_si512(from.cast()),
            Some(mask) => _mm512_maskz_loadu_epi8(mask, from.cast()),
        }
    }
}

/// # Safety
/// The vector, or the part of it under the mask, is writable.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
unsafe fn store(to: *mut u8, vector: __m512i, mask: Option<__mmask64>) {
    // SAFETY: the caller guarantees that the bytes are writable.
    unsafe {
        match mask {
            None => _mm512_storeu_si512(to.cast(), vector),
            Some(mask) => _mm512_mask_storeu_epi8(to.cast(), mask, vector),
        }
    }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn matrix(factor: u8) -> __m512i {
    _mm512_set1_epi64(AFFINE[usize::from(factor)].cast_signed())
}

#[target_feature(enable = "avx512f,gfni")]
#[inline]
fn multiply(x: __m512i, matrix: __m512i) -> __m512i {
    _mm512_gf2p8affine_epi64_epi8::<0>(x, matrix)
}

#[target_feature(enable = "avx512f")]
#[inline]
fn xor3(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    _mm512_ternarylogic_epi64::<0x96>(a, b, c)
}
