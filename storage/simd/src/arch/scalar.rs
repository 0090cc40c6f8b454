//! The portable fallback: eight bytes at a time in a `u64`, lanes the compiler may vectorize.

use super::{Factors, Kernels};
use crate::fletcher::{Sums, join4};
use crate::gf256::{NIBBLES, REDUCTION, double};

/// Portable kernels.
pub(crate) struct Scalar;

/// Bytes of each column that are worked on before the next column's turn.
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
        let (groups, rest) = data.as_chunks::<16>();
        let mut lanes = [[0u64; 4]; 4];
        for group in groups {
            let (words, _) = group.as_chunks::<4>();
            for lane in 0..4 {
                step4(&mut lanes, lane, words[lane], swapped);
            }
        }
        finish4(join4(&lanes), rest, swapped)
    }
}

/// One word into all four sums of a lane.
fn step4<const LANES: usize>(sums: &mut [[u64; LANES]; 4], k: usize, word: [u8; 4], swapped: bool) {
    let word = u32::from_le_bytes(word);
    let mut carry = u64::from(if swapped { word.swap_bytes() } else { word });
    for sum in sums {
        sum[k] = sum[k].wrapping_add(carry);
        carry = sum[k];
    }
}

/// Continues plain sums over what a vector kernel has left over.
pub(crate) fn finish4(sums: Sums, rest: &[u8], swapped: bool) -> Sums {
    let mut sums = sums.map(|sum| [sum]);
    for &word in rest.as_chunks::<4>().0 {
        step4(&mut sums, 0, word, swapped);
    }
    sums.map(|[sum]| sum)
}

/// Continues plain sums over what a vector kernel has left over.
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

/// `output += factor * input`.
fn multiply_add(factor: u8, output: &mut [u8], input: &[u8]) {
    let (low, high) = NIBBLES[usize::from(factor)].split_at(16);
    for (byte, &input) in output.iter_mut().zip(input) {
        *byte ^= low[usize::from(input & 15)] ^ high[usize::from(input >> 4)];
    }
}
