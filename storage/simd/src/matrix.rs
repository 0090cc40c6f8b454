//! Square matrices of at most three rows over the field, just enough to solve for lost columns.

use crate::gf256::{inverse, mul};

/// The most unknowns a RAID-Z row can be solved for.
pub(crate) const MAX: usize = 3;

/// A matrix; only the leading `size` rows and columns of it mean anything.
pub(crate) type Matrix = [[u8; MAX]; MAX];

/// The inverse of the leading `size` rows and columns, none if they are singular.
pub(crate) fn invert(mut matrix: Matrix, size: usize) -> Option<Matrix> {
    let mut result = Matrix::default();
    for (i, row) in result.iter_mut().enumerate() {
        row[i] = 1;
    }
    for i in 0..size {
        let pivot = (i..size).find(|&row| matrix[row][i] != 0)?;
        matrix.swap(i, pivot);
        result.swap(i, pivot);
        let scale = inverse(matrix[i][i])?;
        matrix[i] = matrix[i].map(|x| mul(x, scale));
        result[i] = result[i].map(|x| mul(x, scale));
        for row in (0..size).filter(|&row| row != i) {
            let factor = matrix[row][i];
            for column in 0..size {
                matrix[row][column] ^= mul(factor, matrix[i][column]);
                result[row][column] ^= mul(factor, result[i][column]);
            }
        }
    }
    Some(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn inverse_times_matrix_is_one(matrix: Matrix, size in 1..=MAX) {
            if let Some(inverse) = invert(matrix, size) {
                for (i, j) in (0..size).flat_map(|i| (0..size).map(move |j| (i, j))) {
                    let sum = (0..size).fold(0, |s, k| s ^ mul(inverse[i][k], matrix[k][j]));
                    prop_assert_eq!(sum, u8::from(i == j));
                }
            } else {
                let [[a, b, c], [d, e, f], [g, h, i]] = matrix;
                let minor = |p, q, r, s| mul(p, s) ^ mul(q, r);
                let determinant = match size {
                    1 => a,
                    2 => minor(a, b, d, e),
                    _ => mul(a, minor(e, f, h, i)) ^ mul(b, minor(d, f, g, i))
                        ^ mul(c, minor(d, e, g, h)),
                };
                prop_assert_eq!(determinant, 0);
            }
        }
    }

    #[test]
    fn a_singular_matrix_has_no_inverse() {
        assert_eq!(invert([[1, 2, 0], [2, 4, 0], [0; 3]], 2), None);
        assert_eq!(
            invert([[0, 1, 0], [1, 0, 0], [0; 3]], 2),
            Some([[0, 1, 0], [1, 0, 0], [0, 0, 1]])
        );
    }
}
