//! RAID-Z parity: one to three rows over a row of data columns.
//!
//! ```text
//! P = sum of D[i]              Q = sum of 2^(n-1-i) D[i]         R = sum of 4^(n-1-i) D[i]
//! ```
//!
//! with `n` data columns, sums and products in [`gf256`](crate::gf256). A column shorter than
//! the parity counts as padded with zeroes at its end: the last columns of a RAID-Z row may be a
//! sector shorter than the first.
//!
//! Any `m` lost data columns are the solution of `m` equations, one per surviving parity row.
//! Every choice of rows is solvable for at most 255 columns (the matrices are Vandermonde's; for
//! P with R because squaring permutes the field). The inverse is folded into one factor per
//! input and lost column, so that rebuilding is a single pass over the survivors.
//!
//! Columns may lie anywhere; those that begin at a multiple of 64 bytes are a third faster.

use std::fmt;

use crate::Backend;
use crate::arch::{Factors, Kernels};
use crate::gf256::{mul, pow2};
use crate::matrix::{self, Matrix};

/// The most parity rows.
pub const MAX_ROWS: usize = matrix::MAX;

/// The most data columns: the powers of 2 repeat after this many.
pub const MAX_COLUMNS: usize = crate::gf256::ORDER;

/// More data columns are lost than there are parity rows left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotEnoughParity {
    /// Data columns to solve for.
    pub missing: usize,
    /// Parity rows to do it with.
    pub parity: usize,
}

impl fmt::Display for NotEnoughParity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} data columns are lost, {} parity rows are left", self.missing, self.parity)
    }
}

impl std::error::Error for NotEnoughParity {}

/// Computes the parity rows P, Q, R, as many as `parity` has slices.
///
/// # Panics
/// If there are no or more than [`MAX_COLUMNS`] columns, no or more than [`MAX_ROWS`] rows, rows
/// of different lengths, or a column longer than the rows.
pub fn generate(data: &[&[u8]], parity: &mut [&mut [u8]]) {
    Backend::best().generate(data, parity);
}

/// Computes the one parity row `row` (0 is P, 1 is Q, 2 is R).
///
/// # Panics
/// As [`generate`], and if there is no such row.
pub fn generate_row(row: usize, data: &[&[u8]], parity: &mut [u8]) {
    Backend::best().generate_row(row, data, parity);
}

/// Computes lost data columns: `out[k]` receives data column `missing[k]`.
///
/// `data[i]` is none for every unavailable column; entries of `data` for a column in `missing` are
/// ignored. `parity[row]` is none for lost rows. Every unavailable column counts against the
/// parity, also those that are not in `missing`. Each column of `out` has the length of its data
/// column.
///
/// # Errors
/// [`NotEnoughParity`] if more data columns are unavailable than the first `parity_rows` rows have
/// survivors. `out` is then unchanged.
///
/// # Panics
/// If `data` has more than [`MAX_COLUMNS`] columns, `missing` is not a list of distinct columns
/// of them, `missing` and `out` differ in number, a used parity row is shorter than a column of
/// `out`, or `parity_rows` is more than [`MAX_ROWS`] or than the length of `parity`.
pub fn rebuild(
    parity_rows: usize,
    data: &[Option<&[u8]>],
    parity: &[Option<&[u8]>],
    missing: &[usize],
    out: &mut [&mut [u8]],
) -> Result<(), NotEnoughParity> {
    Backend::best().rebuild(parity_rows, data, parity, missing, out)
}

impl Backend {
    /// [`generate`] with these kernels.
    ///
    /// # Panics
    /// As [`generate`].
    pub fn generate(self, data: &[&[u8]], parity: &mut [&mut [u8]]) {
        assert!((1..=MAX_ROWS).contains(&parity.len()), "{} parity rows", parity.len());
        let length = parity[0].len();
        assert!(parity.iter().all(|row| row.len() == length), "parity rows of one length");
        let common = shortest_length(data, length);
        if common == length {
            self.kernels().generate(data, parity);
            return;
        }
        if common > 0 {
            let heads: Vec<&[u8]> = data.iter().map(|column| &column[..common]).collect();
            let mut rows: Vec<&mut [u8]> =
                parity.iter_mut().map(|row| &mut row[..common]).collect();
            self.kernels().generate(&heads, &mut rows);
        }
        let factors: Vec<Factors> =
            (0..data.len()).map(|i| [0, 1, 2].map(|row| coefficient(row, i, data.len()))).collect();
        combine_from(common, self.kernels(), &factors, data, parity);
    }

    /// [`generate_row`] with these kernels.
    ///
    /// # Panics
    /// As [`generate_row`].
    pub fn generate_row(self, row: usize, data: &[&[u8]], parity: &mut [u8]) {
        assert!(row < MAX_ROWS, "parity row {row}");
        shortest_length(data, parity.len());
        let factors: Vec<Factors> =
            (0..data.len()).map(|i| [coefficient(row, i, data.len()), 0, 0]).collect();
        combine_from(0, self.kernels(), &factors, data, &mut [parity]);
    }

    /// [`rebuild`] with these kernels.
    ///
    /// # Errors
    /// As [`rebuild`].
    ///
    /// # Panics
    /// As [`rebuild`].
    pub fn rebuild(
        self,
        parity_rows: usize,
        data: &[Option<&[u8]>],
        parity: &[Option<&[u8]>],
        missing: &[usize],
        out: &mut [&mut [u8]],
    ) -> Result<(), NotEnoughParity> {
        assert!(data.len() <= MAX_COLUMNS, "{} data columns", data.len());
        assert_eq!(missing.len(), out.len(), "a buffer for every missing column");
        for (k, column) in missing.iter().enumerate() {
            assert!(*column < data.len(), "missing column {column} of {}", data.len());
            assert!(!missing[..k].contains(column), "missing column {column} named twice");
        }
        let plan = RebuildPlan::new(data, &parity[..parity_rows], missing)?;
        let longest = out.iter().map(|column| column.len()).max().unwrap_or(0);
        let rows = plan.rows.iter().filter_map(|&row| parity[row]);
        assert!(rows.clone().all(|row| row.len() >= longest), "parity as long as the columns");
        let survivors = plan.survivors.iter().filter_map(|&i| data[i]);
        let inputs: Vec<&[u8]> = survivors.chain(rows).collect();
        combine_from(0, self.kernels(), &plan.factors, &inputs, out);
        Ok(())
    }
}

/// The factor of column `i` of `columns` in parity row `row`.
fn coefficient(row: usize, i: usize, columns: usize) -> u8 {
    pow2(row * (columns - 1 - i))
}

/// The length of the shortest column, none being longer than `length`.
fn shortest_length(data: &[&[u8]], length: usize) -> usize {
    assert!((1..=MAX_COLUMNS).contains(&data.len()), "{} data columns", data.len());
    assert!(data.iter().all(|column| column.len() <= length), "columns no longer than parity");
    data.iter().map(|column| column.len()).min().unwrap_or(0)
}

/// Which inputs, times what, make up the missing columns.
struct RebuildPlan {
    /// Available data columns.
    survivors: Vec<usize>,
    /// Parity rows used.
    rows: Vec<usize>,
    /// For the survivors, then for the rows.
    factors: Vec<Factors>,
}

impl RebuildPlan {
    fn new(
        data: &[Option<&[u8]>],
        parity: &[Option<&[u8]>],
        missing: &[usize],
    ) -> Result<Self, NotEnoughParity> {
        assert!(parity.len() <= MAX_ROWS, "{} parity rows", parity.len());
        let at_hand = |i: &usize| data[*i].is_some() && !missing.contains(i);
        let (survivors, others): (Vec<_>, Vec<_>) = (0..data.len()).partition(at_hand);
        // The wanted unknowns first: solution k is then missing column k.
        let others = others.into_iter().filter(|i| !missing.contains(i));
        let unknowns: Vec<usize> = missing.iter().copied().chain(others).collect();
        let rows: Vec<usize> = (0..parity.len()).filter(|&row| parity[row].is_some()).collect();
        let not_enough = NotEnoughParity { missing: unknowns.len(), parity: rows.len() };
        let (rows, inverse) = find_solvable_rows(&rows, &unknowns, data.len()).ok_or(not_enough)?;

        let mut factors = Vec::with_capacity(survivors.len() + rows.len());
        for &i in &survivors {
            let by_row = |k: usize| {
                rows.iter().enumerate().fold(0, |sum, (j, &row)| {
                    sum ^ mul(inverse[k][j], coefficient(row, i, data.len()))
                })
            };
            factors.push(std::array::from_fn(by_row));
        }
        factors.extend((0..rows.len()).map(|j| std::array::from_fn(|k| inverse[k][j])));
        Ok(Self { survivors, rows, factors })
    }
}

/// The first choice among `rows` that can be solved for the unknowns, with the inverse of its
/// matrix. Choices go in order, so that P is preferred: its factors are all one.
fn find_solvable_rows(
    rows: &[usize],
    unknowns: &[usize],
    columns: usize,
) -> Option<(Vec<usize>, Matrix)> {
    let choices = (0usize..1 << rows.len())
        .rev()
        .filter(|choice| choice.count_ones() as usize == unknowns.len());
    choices.into_iter().find_map(|choice| {
        // The highest bit stands for the first row: counting down prefers the first rows.
        let taken = |i: usize| choice >> (rows.len() - 1 - i) & 1 == 1;
        let chosen: Vec<usize> =
            rows.iter().enumerate().filter(|(i, _)| taken(*i)).map(|(_, &row)| row).collect();
        let mut equations = Matrix::default();
        for (equation, &row) in equations.iter_mut().zip(&chosen) {
            for (factor, &unknown) in equation.iter_mut().zip(unknowns) {
                *factor = coefficient(row, unknown, columns);
            }
        }
        matrix::invert(equations, unknowns.len()).map(|inverse| (chosen, inverse))
    })
}

/// [`Kernels::combine`] from byte `start` on, for inputs and outputs of any lengths: cut where
/// one ends, without the inputs that have ended, whose padding adds nothing.
fn combine_from(
    start: usize,
    kernels: &dyn Kernels,
    factors: &[Factors],
    inputs: &[&[u8]],
    outputs: &mut [&mut [u8]],
) {
    let longest = outputs.iter().map(|output| output.len()).max().unwrap_or(0);
    let even = inputs.iter().all(|input| input.len() == longest)
        && outputs.iter().all(|output| output.len() == longest);
    if start == 0 && even && !outputs.is_empty() {
        kernels.combine(factors, inputs, outputs);
        return;
    }
    let lengths = inputs.iter().map(|i| i.len()).chain(outputs.iter().map(|o| o.len()));
    let mut cuts: Vec<usize> =
        lengths.filter(|&length| start < length && length <= longest).collect();
    cuts.sort_unstable();
    cuts.dedup();
    let mut start = start;
    for end in cuts {
        let present: Vec<usize> = (0..outputs.len()).filter(|&k| outputs[k].len() >= end).collect();
        let (part_factors, part_inputs): (Vec<Factors>, Vec<&[u8]>) = factors
            .iter()
            .zip(inputs)
            .filter(|(_, input)| input.len() >= end)
            .map(|(factors, input)| {
                (
                    std::array::from_fn(|k| present.get(k).map_or(0, |&k| factors[k])),
                    &input[start..end],
                )
            })
            .unzip();
        let mut part_outputs: Vec<&mut [u8]> = outputs
            .iter_mut()
            .filter(|output| output.len() >= end)
            .map(|output| &mut output[start..end])
            .collect();
        kernels.combine(&part_factors, &part_inputs, &mut part_outputs);
        start = end;
    }
}
