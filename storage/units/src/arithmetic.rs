//! Conversions and differences that state what they expect of their numbers.
//!
//! Numbers that this program computed are added and multiplied plainly: `overflow-checks` is on in every profile, and an
//! overflow is a failed assertion. Numbers that were read from a disk or from the network are checked, and a value out
//! of range is a typed error. The functions here are for what remains.

use std::fmt::Debug;

const _: () = assert!(usize::BITS == 64, "lengths in memory and on drives have the same 64 bits");

/// A length or an index in memory as a number of the format. Exact: Poolhouse runs on 64-bit systems alone.
pub const fn to_u64(value: usize) -> u64 {
    value as u64
}

/// A number of the format as a length or an index in memory. Exact: Poolhouse runs on 64-bit systems alone.
///
/// The result says nothing of what memory holds: a length that was read from a disk is compared with a limit first.
#[expect(clippy::cast_possible_truncation, reason = "usize has 64 bits")]
pub fn to_usize(value: impl Into<u64>) -> usize {
    value.into() as usize
}

/// `value` as a narrower integer, which the caller knows to hold it.
///
/// # Panics
/// When it does not: the caller's sums are wrong. Values from a disk or the network go through `try_from`.
#[track_caller]
pub fn narrow<N>(value: impl TryInto<N> + Copy + Debug) -> N {
    let Ok(narrowed) = value.try_into() else {
        panic!("{value:?} does not fit {}", std::any::type_name::<N>());
    };
    narrowed
}

/// Differences of amounts where the second may rightly be the larger one.
pub trait MinusOrZero {
    /// The rest of a limit: `self - used`, or 0 when more is used than the limit allows.
    ///
    /// For limits that may be lowered below what is used (quotas, caches, budgets), and for counts of which the other
    /// one is read at another time. Two sums that must agree are subtracted plainly.
    #[must_use]
    fn minus_or_zero(self, used: Self) -> Self;
}

macro_rules! minus_or_zero {
    ($($number:ty)*) => {
        $(impl MinusOrZero for $number {
            fn minus_or_zero(self, used: Self) -> Self {
                self.checked_sub(used).unwrap_or(0)
            }
        })*
    };
}
minus_or_zero!(u16 u32 u64 u128 usize);

#[cfg(test)]
mod tests {
    use super::{MinusOrZero, narrow};

    #[test]
    fn narrowing_keeps_values_that_fit() {
        assert_eq!((narrow::<u8>(255_u64), narrow::<u32>(7_usize)), (255, 7));
    }

    #[test]
    #[should_panic(expected = "256 does not fit u8")]
    fn narrowing_panics_where_a_value_does_not_fit() {
        let _: u8 = narrow(256_u64);
    }

    #[test]
    fn overused_limits_leave_zero() {
        assert_eq!((3_u64.minus_or_zero(1), 3_u64.minus_or_zero(5)), (2, 0));
    }
}
