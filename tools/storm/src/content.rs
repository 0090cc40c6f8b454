//! Content from a number.

use sim::Random;

/// Bytes that follow from `seed`; some are noise, some compress well, some are zeros.
pub(crate) fn generate_content(seed: u64, length: usize) -> Vec<u8> {
    let mut chance = Random::new(seed);
    match seed % 5 {
        0 => vec![0; length],
        1 => b"to be or not to be ".iter().copied().cycle().take(length).collect(),
        _ => (0..length.div_ceil(8))
            .flat_map(|_| chance.next_u64().to_le_bytes())
            .take(length)
            .collect(),
    }
}
