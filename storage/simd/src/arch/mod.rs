//! The kernels behind the safe functions.
//!
//! A kernel gets slices of equal lengths: the callers apply the padding rules of RAID-Z and handle
//! the remainders of the checksums.

pub(crate) mod naive;
pub(crate) mod scalar;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86_64;

use crate::fletcher::Sums;

/// The operations of a backend.
pub(crate) trait Kernels: Sync {
    /// RAID-Z parity rows 0.. of the columns, one row per slice of `parity`. All slices of
    /// both have the length of `parity[0]`; at most three rows, at least one column.
    fn generate(&self, columns: &[&[u8]], parity: &mut [&mut [u8]]);

    /// `outputs[k]` = the sum over inputs of `factors[i][k] * inputs[i]`. As many factors as
    /// inputs; all slices have the length of `outputs[0]`; at most three outputs. No input at
    /// all gives zeroes.
    fn combine(&self, factors: &[Factors], inputs: &[&[u8]], outputs: &mut [&mut [u8]]);

    /// `destination ^= source`, equal lengths.
    fn xor(&self, destination: &mut [u8], source: &[u8]);

    /// Whether every byte is zero.
    fn is_zero(&self, data: &[u8]) -> bool;

    /// Sums of `data` alone, whose length is a multiple of 16.
    fn fletcher2(&self, data: &[u8], swapped: bool) -> Sums;

    /// Sums of `data` alone, whose length is a multiple of 4.
    fn fletcher4(&self, data: &[u8], swapped: bool) -> Sums;
}

/// The factors of one input, one for each output.
pub(crate) type Factors = [u8; 3];

/// Checks the conditions that the kernels with raw pointers need.
#[cfg(target_arch = "x86_64")]
pub(crate) fn common_length(inputs: &[&[u8]], outputs: &[&mut [u8]]) -> usize {
    let length = outputs.first().map_or(0, |first| first.len());
    assert!(inputs.iter().all(|input| input.len() == length), "inputs of one length");
    assert!(outputs.iter().all(|output| output.len() == length), "outputs of one length");
    length
}
