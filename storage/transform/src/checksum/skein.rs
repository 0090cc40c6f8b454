//! Skein-512 with 256 bits of output, keyed: a hash built on the block cipher Threefish-512.
//!
//! The pool's salt is Skein's own MAC key, hashed before all else. The words of the sum are the
//! digest's in little-endian order.
//!
//! Learnt from: "The Skein Hash Function Family", version 1.3. Proved by: the tests below (the
//! paper's vectors) and `tests/it` (blocks of a pool).

const BLOCK: usize = 64;
const KEY_PARITY: u64 = 0x1bd1_1bda_a9fc_1a22;
const SCHEMA: [u8; 8] = *b"SHA3\x01\0\0\0";
const TYPE_KEY: u64 = 0;
const TYPE_CONFIG: u64 = 4;
const TYPE_MESSAGE: u64 = 48;
const TYPE_OUTPUT: u64 = 63;
const FIRST: u64 = 1 << 62;
const FINAL: u64 = 1 << 63;

/// How far each of the four pairs is turned, in each of eight rounds that repeat.
const ROTATIONS: [[u32; 4]; 8] = [
    [46, 36, 19, 37],
    [33, 27, 14, 42],
    [17, 49, 36, 39],
    [44, 9, 54, 56],
    [39, 30, 34, 24],
    [13, 50, 10, 17],
    [25, 29, 39, 43],
    [8, 35, 56, 22],
];

type State = [u64; 8];

/// A hash that has taken in its key and its configuration and awaits a message.
#[derive(Clone)]
pub(super) struct Skein(State);

impl Skein {
    /// Keyed with `key`, for 256 bits of output.
    pub(super) fn keyed(key: &[u8; 32]) -> Self {
        Self::configured(chain([0; 8], TYPE_KEY, key), 256)
    }

    fn configured(keyed: State, output_bits: u64) -> Self {
        let mut config = [0; 32];
        config[..8].copy_from_slice(&SCHEMA);
        config[8..16].copy_from_slice(&output_bits.to_le_bytes());
        Self(chain(keyed, TYPE_CONFIG, &config))
    }

    /// The first 256 bits of the hash of `data`, as little-endian words.
    pub(super) fn hash(&self, data: &[u8]) -> [u64; 4] {
        let [a, b, c, d, ..] = self.hash_wide(data);
        [a, b, c, d]
    }

    fn hash_wide(&self, data: &[u8]) -> State {
        chain(chain(self.0, TYPE_MESSAGE, data), TYPE_OUTPUT, &[0; 8])
    }
}

/// Unique block iteration: `state` after a whole field of `kind`, padded with zeros.
fn chain(state: State, kind: u64, data: &[u8]) -> State {
    let mut state = state;
    let mut place = 0_u64;
    let mut flags = kind << 56 | FIRST;
    let mut rest = data;
    while let Some((block, more)) = rest.split_first_chunk::<BLOCK>()
        && !more.is_empty()
    {
        place += BLOCK as u64;
        state = step(&state, [place, flags], block);
        flags = kind << 56;
        rest = more;
    }
    let mut last = [0; BLOCK];
    last[..rest.len()].copy_from_slice(rest);
    step(&state, [place + rest.len() as u64, flags | FINAL], &last)
}

fn step(state: &State, tweak: [u64; 2], block: &[u8; BLOCK]) -> State {
    let mut words = [0; 8];
    for (word, bytes) in words.iter_mut().zip(block.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    let mut out = threefish(state, tweak, words);
    for (o, w) in out.iter_mut().zip(words) {
        *o ^= w;
    }
    out
}

fn threefish(key: &State, [t0, t1]: [u64; 2], block: State) -> State {
    // both schedules are laid out twice, so that a subkey is a window and not eight remainders
    let parity = key.iter().fold(KEY_PARITY, |acc, k| acc ^ k);
    let mut keys = [0; 18];
    for half in keys.chunks_exact_mut(9) {
        half[..8].copy_from_slice(key);
        half[8] = parity;
    }
    let tweaks = [t0, t1, t0 ^ t1, t0];
    let mut x = block;
    for pair in 0..9 {
        x = rounds::<0>(inject(x, &keys, tweaks, 2 * pair));
        x = rounds::<4>(inject(x, &keys, tweaks, 2 * pair + 1));
    }
    inject(x, &keys, tweaks, 18)
}

#[inline]
fn inject(x: State, keys: &[u64; 18], tweaks: [u64; 4], number: usize) -> State {
    let k = keys[number % 9..].first_chunk::<8>().unwrap_or(&[0; 8]);
    let [t0, t1] = [tweaks[number % 3], tweaks[number % 3 + 1]];
    [
        x[0].wrapping_add(k[0]),
        x[1].wrapping_add(k[1]),
        x[2].wrapping_add(k[2]),
        x[3].wrapping_add(k[3]),
        x[4].wrapping_add(k[4]),
        x[5].wrapping_add(k[5]).wrapping_add(t0),
        x[6].wrapping_add(k[6]).wrapping_add(t1),
        x[7].wrapping_add(k[7]).wrapping_add(number as u64),
    ]
}

/// Four rounds, from the `FROM`th of [`ROTATIONS`].
///
/// Between rounds the words change places, and after four they are home again; here the words
/// stay and the pairs change. All is passed by value, which keeps the words in registers.
#[inline]
fn rounds<const FROM: usize>(x: State) -> State {
    let [a, b, c, d, e, f, g, h] = x;
    let [a, b, c, d, e, f, g, h] = round([a, b, c, d, e, f, g, h], ROTATIONS[FROM]);
    let [c, b, e, h, g, f, a, d] = round([c, b, e, h, g, f, a, d], ROTATIONS[FROM + 1]);
    let [e, b, g, d, a, f, c, h] = round([e, b, g, d, a, f, c, h], ROTATIONS[FROM + 2]);
    let [g, b, a, h, c, f, e, d] = round([g, b, a, h, c, f, e, d], ROTATIONS[FROM + 3]);
    [a, b, c, d, e, f, g, h]
}

#[inline]
fn round(x: State, turns: [u32; 4]) -> State {
    let (a, b) = mix(x[0], x[1], turns[0]);
    let (c, d) = mix(x[2], x[3], turns[1]);
    let (e, f) = mix(x[4], x[5], turns[2]);
    let (g, h) = mix(x[6], x[7], turns[3]);
    [a, b, c, d, e, f, g, h]
}

#[inline]
fn mix(a: u64, b: u64, turn: u32) -> (u64, u64) {
    let sum = a.wrapping_add(b);
    (sum, b.rotate_left(turn) ^ sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's first vector for Skein-512-512: the one byte 0xff.
    #[test]
    fn vector_of_one_byte() {
        let hash = Skein::configured([0; 8], 512).hash_wide(&[0xff]);
        let bytes: Vec<u8> = hash.iter().flat_map(|w| w.to_le_bytes()).collect();
        assert_eq!(
            hex(&bytes),
            "71b7bce6fe6452227b9ced6014249e5bf9a9754c3ad618ccc4e0aae16b316cc8\
             ca698d864307ed3e80b6ef1570812ac5272dc409b5a012df2a579102f340617a"
        );
    }

    #[test]
    fn vector_of_empty_message() {
        let hash = Skein::configured([0; 8], 256).hash(&[]);
        let bytes: Vec<u8> = hash.iter().flat_map(|w| w.to_le_bytes()).collect();
        assert_eq!(hex(&bytes), "39ccc4554a8b31853b9de7a1fe638a24cce6b35a55f2431009e18780335d2621");
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().fold(String::new(), |text, b| text + &format!("{b:02x}"))
    }
}
