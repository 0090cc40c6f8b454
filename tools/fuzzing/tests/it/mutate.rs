//! Mutations of a block, from a seed alone.

/// Numbers that depend on a seed only (xorshift64*).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next_u64() % (end.max(1) as u64)).expect("less than a usize")
    }
}

/// Numbers that lengths and counts go wrong at.
const BOUNDARY_VALUES: [u64; 10] =
    [0, 1, 0x7f, 0xff, 0xffff, 0x7fff_ffff, 0xffff_ffff, 1 << 32, u64::MAX / 2, u64::MAX];

/// One of the blocks, with up to eight changes; some are cut, some begin in the middle.
pub(crate) fn mutated_block(random: &mut Random, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = seeds[random.below(seeds.len())].clone();
    if random.below(4) == 0 {
        let start = random.below(bytes.len()) & !127;
        bytes.drain(..start);
    }
    for _ in 0..random.below(9) {
        let at = random.below(bytes.len());
        match random.below(5) {
            0 => flip_bit(&mut bytes, at, random),
            1 => write_boundary_value(&mut bytes, at & !7, random),
            2 => write_boundary_value(&mut bytes, random.below(256) & !3, random),
            3 => copy_range(&mut bytes, at, random),
            _ => bytes.truncate(bytes.len() - random.below(bytes.len() / 4 + 1)),
        }
    }
    bytes
}

fn flip_bit(bytes: &mut [u8], at: usize, random: &mut Random) {
    if let Some(byte) = bytes.get_mut(at) {
        *byte ^= 1 << random.below(8);
    }
}

/// A number of 1, 2, 4 or 8 bytes, in either order, becomes one that is easily mistaken.
fn write_boundary_value(bytes: &mut [u8], at: usize, random: &mut Random) {
    let value = BOUNDARY_VALUES[random.below(BOUNDARY_VALUES.len())];
    let width = 1 << random.below(4);
    let raw = if random.below(2) == 0 { value.to_le_bytes() } else { value.to_be_bytes() };
    if let Some(place) = bytes.get_mut(at..at + width) {
        place.copy_from_slice(&raw[..width]);
    }
}

fn copy_range(bytes: &mut [u8], from: usize, random: &mut Random) {
    let length = random.below(64).min(bytes.len() - from.min(bytes.len()));
    let to = random.below(bytes.len() - length + 1);
    bytes.copy_within(from..from + length, to);
}
