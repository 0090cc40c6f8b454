//! The portable fallback: eight bytes at a time in a `u64`, in loops that
//! the compiler may vectorize.

use super::{Factors, Kernels};
use crate::fletcher::Sums;
use crate::gf256::{REDUCTION, double, mul};

/// Portable kernels.
pub(crate) struct Scalar;

/// Bytes of each column that are processed before the next column.
const CHUNK: usize = 4096;

impl Kernels for Scalar {
    fn generate(&self, columns: &[&[u8]], parity: &mut [&mut [u8]]) {
        let Some((first, rest)) = columns.split_first() else { return };
        for (row, output) in parity.iter_mut().enumerate() {
            let mut from = 0;
            for output in output.chunks_mut(CHUNK) {
                let range = from..from + output.len();
                from = range.end;
                output.copy_from_slice(&first[range.clone()]);
                for column in rest {
                    accumulate(row, output, &column[range.clone()]);
                }
            }
        }
    }

    fn combine(&self, factors: &[Factors], inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        for (k, output) in outputs.iter_mut().enumerate() {
            output.fill(0);
            for (factors, input) in factors.iter().zip(inputs) {
                match factors[k] {
                    0 => {}
                    1 => self.xor(output, input),
                    factor => multiply_add(factor, output, input),
                }
            }
        }
    }

    fn xor(&self, destination: &mut [u8], source: &[u8]) {
        for (byte, other) in destination.iter_mut().zip(source) {
            *byte ^= other;
        }
    }

    fn is_zero(&self, data: &[u8]) -> bool {
        let (words, rest) = data.as_chunks::<8>();
        words
            .chunks(64)
            .all(|chunk| chunk.iter().fold(0, |any, w| any | u64::from_ne_bytes(*w)) == 0)
            && rest.iter().all(|&byte| byte == 0)
    }

    fn fletcher2(&self, data: &[u8], swapped: bool) -> Sums {
        finish2([0; 4], data, swapped)
    }

    fn fletcher4(&self, data: &[u8], swapped: bool) -> Sums {
        finish4([0; 4], data, swapped)
    }
}

/// Continues plain sums over the rest that a vector kernel left. Lanes would not help here: a word
/// costs four additions either way.
pub(crate) fn finish4([mut a, mut b, mut c, mut d]: Sums, rest: &[u8], swapped: bool) -> Sums {
    for &word in rest.as_chunks::<4>().0 {
        let word = if swapped { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) };
        a = a.wrapping_add(word.into());
        b = b.wrapping_add(a);
        c = c.wrapping_add(b);
        d = d.wrapping_add(c);
    }
    [a, b, c, d]
}

/// Continues plain sums over the rest that a vector kernel left.
pub(crate) fn finish2([mut a, mut b, mut c, mut d]: Sums, rest: &[u8], swapped: bool) -> Sums {
    let read = |word| if swapped { u64::from_be_bytes(word) } else { u64::from_le_bytes(word) };
    for pair in rest.as_chunks::<8>().0.as_chunks::<2>().0 {
        a = a.wrapping_add(read(pair[0]));
        b = b.wrapping_add(read(pair[1]));
        c = c.wrapping_add(a);
        d = d.wrapping_add(b);
    }
    [a, b, c, d]
}

/// `output = output * 2^row + column`.
fn accumulate(row: usize, output: &mut [u8], column: &[u8]) {
    let (words, tail) = output.as_chunks_mut::<8>();
    let (column_words, column_tail) = column.as_chunks::<8>();
    for (word, other) in words.iter_mut().zip(column_words) {
        let shifted = (0..row).fold(u64::from_ne_bytes(*word), |word, _| double_each(word));
        *word = (shifted ^ u64::from_ne_bytes(*other)).to_ne_bytes();
    }
    for (byte, other) in tail.iter_mut().zip(column_tail) {
        *byte = (0..row).fold(*byte, |byte, _| double(byte)) ^ other;
    }
}

/// Twice each of the eight bytes.
fn double_each(word: u64) -> u64 {
    let high = word & 0x8080808080808080;
    let reduced = (high << 1).wrapping_sub(high >> 7) & (u64::from(REDUCTION) * 0x0101010101010101);
    (word & !high) << 1 ^ reduced
}

/// `output += factor * input`: the sum of the input's doubles that the factor's bits select.
fn multiply_add(factor: u8, output: &mut [u8], input: &[u8]) {
    let masks: [u64; 8] = std::array::from_fn(|bit| u64::from(factor >> bit & 1).wrapping_neg());
    let (words, tail) = output.as_chunks_mut::<8>();
    let (input_words, input_tail) = input.as_chunks::<8>();
    for (word, input) in words.iter_mut().zip(input_words) {
        let (mut sum, mut doubled) = (u64::from_ne_bytes(*word), u64::from_ne_bytes(*input));
        for mask in masks {
            sum ^= doubled & mask;
            doubled = double_each(doubled);
        }
        *word = sum.to_ne_bytes();
    }
    for (byte, input) in tail.iter_mut().zip(input_tail) {
        *byte ^= mul(factor, *input);
    }
}
