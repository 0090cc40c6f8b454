//! Numbers that look random and are the same for the same seed (splitmix64).

/// A stream of numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The stream of several numbers together: independent of the order of calls and of threads.
    pub fn from_parts(parts: &[u64]) -> Self {
        let mut all = Self(0);
        for part in parts {
            all.0 ^= *part;
            all.0 = all.next_u64();
        }
        all
    }

    /// The next number.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`; 0 if that is 0.
    pub const fn next_below(&mut self, end: u64) -> u64 {
        let next = self.next_u64();
        if end == 0 { 0 } else { next % end }
    }

    /// An index into `length` things.
    pub fn next_index(&mut self, length: usize) -> usize {
        usize::try_from(self.next_below(length as u64)).unwrap_or(0)
    }

    /// True in one of `many` cases.
    pub const fn one_in(&mut self, many: u64) -> bool {
        self.next_below(many) == 0
    }

    /// One of the things given.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.next_index(from.len())]
    }
}

/// Numbers at which careless code fails.
const BOUNDARY_VALUES: [u64; 16] = [
    0,
    1,
    2,
    0x7f,
    0xff,
    0x200,
    0x7fff,
    0xffff,
    0x10000,
    0x7fff_ffff,
    0xffff_ffff,
    0x1_0000_0000,
    1 << 48,
    (1 << 63) - 1,
    1 << 63,
    u64::MAX,
];

/// Changes some bytes in one of many ways.
pub fn damage(bytes: &mut [u8], random: &mut Random) {
    let length = bytes.len();
    if length < 8 {
        return;
    }
    match random.next_below(13) {
        0 | 1 => {
            for _ in 0..=random.next_below(8) {
                let at = random.next_index(length);
                bytes[at] ^= 1 << random.next_below(8);
            }
        }
        2 => {
            for _ in 0..=random.next_below(16) {
                let at = random.next_index(length);
                bytes[at] = random.next_u64().to_le_bytes()[0];
            }
        }
        10..=12 => {
            for _ in 0..=random.next_below(4) {
                damage_small_number(bytes, random);
            }
        }
        3..=6 => {
            for _ in 0..=random.next_below(4) {
                damage_word(bytes, random);
            }
        }
        7 => {
            let (at, end) = random_range(length, random);
            bytes[at..end].fill(random.pick(&[0, 0xff]));
        }
        8 => {
            let (at, end) = random_range(length, random);
            for byte in &mut bytes[at..end] {
                *byte = random.next_u64().to_le_bytes()[0];
            }
        }
        _ => {
            let (at, end) = random_range(length, random);
            let to = random.next_index(length - (end - at) + 1) & !7;
            bytes.copy_within(at..end, to);
        }
    }
}

/// Puts a nasty number where one may stand: of 1, 2, 4 or 8 bytes, in either order.
fn damage_word(bytes: &mut [u8], random: &mut Random) {
    let width = random.pick(&[1, 2, 4, 8, 8, 8]);
    let at = random.next_index(bytes.len() - 8) & !(width - 1);
    let old = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
    let new = match random.next_below(5) {
        0 => old.wrapping_add(1),
        1 => old.wrapping_sub(1),
        2 => old << random.next_below(16),
        _ => random.pick(&BOUNDARY_VALUES),
    };
    let mut new = new.to_le_bytes();
    if random.one_in(8) {
        new.reverse();
    }
    bytes[at..at + width].copy_from_slice(&new[..width]);
}

/// Makes a small number another small number: object numbers so lead elsewhere, or in a circle.
fn damage_small_number(bytes: &mut [u8], random: &mut Random) {
    let words = bytes.len() / 8;
    let start = random.next_index(words);
    for step in 0..words {
        let at = (start + step) % words * 8;
        let old = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
        if (1..1 << 12).contains(&old) {
            let new = match random.next_below(3) {
                0 => old - 1,
                1 => old + 1,
                _ => random.next_below(256),
            };
            return bytes[at..at + 8].copy_from_slice(&new.to_le_bytes());
        }
    }
}

/// A range of whole words, short more often than long.
fn random_range(length: usize, random: &mut Random) -> (usize, usize) {
    let at = random.next_index(length) & !7;
    let longest = length - at;
    let wanted = 8 << random.next_below(12);
    (at, at + longest.min(wanted))
}
