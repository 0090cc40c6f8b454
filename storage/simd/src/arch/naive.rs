//! The specification: every kernel as its definition reads, for nothing but comparison.

use super::{Factors, Kernels};
use crate::fletcher::Sums;
use crate::gf256::{mul, pow2};

/// Kernels written from the definitions.
pub(crate) struct Naive;

impl Kernels for Naive {
    fn generate(&self, columns: &[&[u8]], parity: &mut [&mut [u8]]) {
        for (row, output) in parity.iter_mut().enumerate() {
            for (at, byte) in output.iter_mut().enumerate() {
                *byte = columns
                    .iter()
                    .rev()
                    .enumerate()
                    .fold(0, |sum, (power, column)| sum ^ mul(pow2(row * power), column[at]));
            }
        }
    }

    fn combine(&self, factors: &[Factors], inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        for (k, output) in outputs.iter_mut().enumerate() {
            for (at, byte) in output.iter_mut().enumerate() {
                *byte = factors
                    .iter()
                    .zip(inputs)
                    .fold(0, |sum, (factors, input)| sum ^ mul(factors[k], input[at]));
            }
        }
    }

    fn xor(&self, destination: &mut [u8], source: &[u8]) {
        for (byte, other) in destination.iter_mut().zip(source) {
            *byte ^= other;
        }
    }

    fn is_zero(&self, data: &[u8]) -> bool {
        data.iter().all(|&byte| byte == 0)
    }

    fn fletcher2(&self, data: &[u8], swapped: bool) -> Sums {
        let mut sums = [0u64; 4];
        for pair in data.as_chunks::<16>().0 {
            let (words, _) = pair.as_chunks::<8>();
            for (lane, &word) in words.iter().enumerate() {
                let word =
                    if swapped { u64::from_be_bytes(word) } else { u64::from_le_bytes(word) };
                sums[lane] = sums[lane].wrapping_add(word);
                sums[2 + lane] = sums[2 + lane].wrapping_add(sums[lane]);
            }
        }
        sums
    }

    fn fletcher4(&self, data: &[u8], swapped: bool) -> Sums {
        let [mut a, mut b, mut c, mut d] = [0u64; 4];
        for &word in data.as_chunks::<4>().0 {
            let word = if swapped { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) };
            a = a.wrapping_add(word.into());
            b = b.wrapping_add(a);
            c = c.wrapping_add(b);
            d = d.wrapping_add(c);
        }
        [a, b, c, d]
    }
}
