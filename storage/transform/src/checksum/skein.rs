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
const TURNS: [[u32; 4]; 8] = [
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
        inject(&mut x, &keys, &tweaks, 2 * pair);
        rounds::<0>(&mut x);
        inject(&mut x, &keys, &tweaks, 2 * pair + 1);
        rounds::<4>(&mut x);
    }
    inject(&mut x, &keys, &tweaks, 18);
    x
}

#[inline]
fn inject(x: &mut State, keys: &[u64; 18], tweaks: &[u64; 4], number: usize) {
    let window = &keys[number % 9..][..8];
    for (word, key) in x.iter_mut().zip(window) {
        *word = word.wrapping_add(*key);
    }
    x[5] = x[5].wrapping_add(tweaks[number % 3]);
    x[6] = x[6].wrapping_add(tweaks[number % 3 + 1]);
    x[7] = x[7].wrapping_add(number as u64);
}

/// Four rounds, from the `FROM`th of [`TURNS`].
///
/// Between rounds the words change places, and after four they are home again; here the words
/// stay and the pairs are named instead.
#[inline]
fn rounds<const FROM: usize>(x: &mut State) {
    round(x, [(0, 1), (2, 3), (4, 5), (6, 7)], TURNS[FROM]);
    round(x, [(2, 1), (4, 7), (6, 5), (0, 3)], TURNS[FROM + 1]);
    round(x, [(4, 1), (6, 3), (0, 5), (2, 7)], TURNS[FROM + 2]);
    round(x, [(6, 1), (0, 7), (2, 5), (4, 3)], TURNS[FROM + 3]);
}

#[inline]
fn round(x: &mut State, pairs: [(usize, usize); 4], turns: [u32; 4]) {
    let [a, b, c, d] = pairs;
    let [at, bt, ct, dt] = turns;
    mix(x, a, at);
    mix(x, b, bt);
    mix(x, c, ct);
    mix(x, d, dt);
}

#[inline]
fn mix(x: &mut State, (i, j): (usize, usize), turn: u32) {
    x[i] = x[i].wrapping_add(x[j]);
    x[j] = x[j].rotate_left(turn) ^ x[i];
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
    fn vector_of_nothing() {
        let hash = Skein::configured([0; 8], 256).hash(&[]);
        let bytes: Vec<u8> = hash.iter().flat_map(|w| w.to_le_bytes()).collect();
        assert_eq!(hex(&bytes), "39ccc4554a8b31853b9de7a1fe638a24cce6b35a55f2431009e18780335d2621");
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().fold(String::new(), |text, b| text + &format!("{b:02x}"))
    }
}
