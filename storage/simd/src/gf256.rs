//! The field of RAID-Z: 256 elements, polynomial 0x11d, generator 2.
//!
//! Addition is xor. Multiplication goes through logarithms; everything here is computed at
//! compile time. Three forms of "multiply by the constant c" are kept for the vector kernels:
//!
//! ```text
//! EXP, LOG     2^i and its inverse function           any two elements
//! NIBBLES[c]   16 products c*n, then 16 of c*(n<<4)   byte shuffles look them up
//! AFFINE[c]    the 8x8 bit matrix of x -> c*x         GFNI's gf2p8affineqb takes it whole
//! ```
//!
//! GFNI has a multiplication of its own, but for the polynomial 0x11b of AES; the affine form
//! works for any linear map, and so for our field too.

/// The field's polynomial without its top bit: what x^8 reduces to.
pub const REDUCTION: u8 = 0x1d;

/// Order of the multiplicative group: 2^255 = 1.
pub const ORDER: usize = 255;

/// `EXP[i]` is 2^i, for every `i` up to the sum of two logarithms.
pub const EXP: [u8; 512] = exponentials();

/// `LOG[x]` is the `i < 255` with 2^i = x. Zero has no logarithm; its entry is 0.
pub const LOG: [u8; 256] = logarithms();

/// Bit matrices of the multiplications, in the layout of `gf2p8affineqb`.
pub static AFFINE: [u64; 256] = affine_matrices();

/// Products by low and by high nibbles.
pub static NIBBLES: [[u8; 32]; 256] = nibble_tables();

/// `a * b`.
pub const fn mul(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    EXP[LOG[a as usize] as usize + LOG[b as usize] as usize]
}

/// `2 * x`.
pub const fn double(x: u8) -> u8 {
    let reduced = if x & 0x80 == 0 { 0 } else { REDUCTION };
    (x << 1) ^ reduced
}

/// `2^exponent`.
pub const fn pow2(exponent: usize) -> u8 {
    EXP[exponent % ORDER]
}

/// The logarithm of `x` to base 2, none for zero.
pub const fn log(x: u8) -> Option<u8> {
    if x == 0 { None } else { Some(LOG[x as usize]) }
}

/// `1 / x`, none for zero.
pub const fn inverse(x: u8) -> Option<u8> {
    match log(x) {
        Some(log) => Some(EXP[ORDER - log as usize]),
        None => None,
    }
}

const fn exponentials() -> [u8; 512] {
    let mut table = [0; 512];
    let mut x = 1;
    let mut i = 0;
    while i < table.len() {
        table[i] = x;
        x = double(x);
        i += 1;
    }
    table
}

#[expect(clippy::cast_possible_truncation, reason = "the index stays below 255")]
const fn logarithms() -> [u8; 256] {
    let mut table = [0; 256];
    let mut i = 0;
    while i < ORDER {
        table[EXP[i] as usize] = i as u8;
        i += 1;
    }
    table
}

#[expect(clippy::cast_possible_truncation, reason = "the index stays below 256")]
const fn nibble_tables() -> [[u8; 32]; 256] {
    let mut table = [[0; 32]; 256];
    let mut c = 0;
    while c < 256 {
        let mut n = 0;
        while n < 16 {
            table[c][n] = mul(c as u8, n as u8);
            table[c][16 + n] = mul(c as u8, (n << 4) as u8);
            n += 1;
        }
        c += 1;
    }
    table
}

/// Row `i` of a matrix says which bits of the operand add up to bit `i` of the product; the
/// instruction wants row 0 in the highest byte.
#[expect(clippy::cast_possible_truncation, reason = "the index stays below 256")]
const fn affine_matrices() -> [u64; 256] {
    let mut table = [0; 256];
    let mut c = 0;
    while c < 256 {
        let mut column = 0;
        while column < 8 {
            let product = mul(c as u8, 1 << column);
            let mut row = 0;
            while row < 8 {
                if product >> row & 1 == 1 {
                    table[c] |= 1 << ((7 - row) * 8 + column);
                }
                row += 1;
            }
            column += 1;
        }
        c += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Multiplication from its definition: shift, add, reduce.
    fn slow_mul(mut a: u8, b: u8) -> u8 {
        let mut product = 0;
        for bit in 0..8 {
            if b >> bit & 1 == 1 {
                product ^= a;
            }
            a = double(a);
        }
        product
    }

    #[test]
    fn tables_agree_with_the_definition() {
        for a in 0..=255 {
            for b in 0..=255 {
                let product = slow_mul(a, b);
                assert_eq!(mul(a, b), product, "{a} * {b}");
                let table = &NIBBLES[usize::from(a)];
                let (low, high) = (usize::from(b & 15), usize::from(b >> 4));
                assert_eq!(table[low] ^ table[16 + high], product);
                let bits = (0..8).map(|i| {
                    let row = (AFFINE[usize::from(a)] >> ((7 - i) * 8)).to_le_bytes()[0];
                    u8::from((row & b).count_ones() % 2 == 1) << i
                });
                assert_eq!(bits.fold(0, |byte, bit| byte | bit), product);
            }
        }
    }

    #[test]
    fn nonzero_elements_have_inverse_and_logarithm() {
        for x in 1..=255 {
            assert_eq!(mul(x, inverse(x).unwrap()), 1);
            assert_eq!(pow2(usize::from(log(x).unwrap())), x);
        }
        assert_eq!((inverse(0), log(0)), (None, None));
        assert_eq!((pow2(0), pow2(8), pow2(255)), (1, 0x1d, 1));
    }
}
