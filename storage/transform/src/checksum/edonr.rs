//! Edon-R 512, salted: a hash built on quasigroups of vectors of eight words.
//!
//! The pool's salt is made a whole block by hashing it twice (the hash of the salt, then the hash
//! of that hash), and that block is hashed ahead of the data. The sum is the first half of the
//! digest, its words little-endian.
//!
//! Learnt from: the Edon-R submission to the SHA-3 contest with its later tweak (the old pipe and
//! the block are added to the new pipe). Proved by: `tests/it` (blocks of a pool).

const BLOCK: usize = 128;
const LENGTH: usize = 8;
const SQUARE_ONE: u64 = 0xaaaa_aaaa_aaaa_aaaa;

type Row = [u64; 8];

/// The double pipe, and how many bytes have gone through it.
#[derive(Clone)]
pub(super) struct EdonR {
    pipe: [Row; 2],
    bytes: u64,
}

impl EdonR {
    /// Ready for data, the block made of `salt` already taken in.
    pub(super) fn salted(salt: &[u8; 32]) -> Self {
        let once = digest_bytes(&Self::new().hash(salt));
        let twice = digest_bytes(&Self::new().hash(&once));
        let mut block = [0; BLOCK];
        block[..BLOCK / 2].copy_from_slice(&once);
        block[BLOCK / 2..].copy_from_slice(&twice);
        let mut state = Self::new();
        state.block(&block);
        state
    }

    fn new() -> Self {
        // the bytes 0x80 to 0xff in order, as big-endian words
        let mut words = [[0; 8]; 2];
        let mut byte = 0x80_u8;
        for word in words.as_flattened_mut() {
            *word = u64::from_be_bytes(std::array::from_fn(|_| {
                let this = byte;
                byte = byte.wrapping_add(1);
                this
            }));
        }
        Self { pipe: words, bytes: 0 }
    }

    /// The digest of all earlier bytes and `data`, as eight little-endian words.
    pub(super) fn hash(&self, data: &[u8]) -> Row {
        let mut state = self.clone();
        let (blocks, rest) = data.as_chunks::<BLOCK>();
        for block in blocks {
            state.block(block);
        }
        let bits = (state.bytes + rest.len() as u64).wrapping_mul(8);
        let mut tail = [0; 2 * BLOCK];
        tail[..rest.len()].copy_from_slice(rest);
        tail[rest.len()] = 0x80;
        let end = if rest.len() < BLOCK - LENGTH { BLOCK } else { 2 * BLOCK };
        tail[end - LENGTH..end].copy_from_slice(&bits.to_le_bytes());
        for block in tail[..end].as_chunks::<BLOCK>().0 {
            state.block(block);
        }
        state.pipe[1]
    }

    fn block(&mut self, block: &[u8; BLOCK]) {
        let mut data = [[0; 8]; 2];
        for (word, bytes) in data.as_flattened_mut().iter_mut().zip(block.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        let [low, high] = data;
        let [old_low, old_high] = self.pipe;
        let mut p = star(&reverse_word_bytes(high), &low);
        let mut q = star(&p, &high);
        p = star(&old_high, &p);
        q = star(&p, &q);
        p = star(&p, &old_low);
        q = star(&q, &p);
        p = star(&reverse_word_bytes(low), &p);
        q = star(&p, &q);
        for i in 0..8 {
            self.pipe[0][i] ^= high[i] ^ p[i];
            self.pipe[1][i] ^= low[i] ^ q[i];
        }
        self.bytes += BLOCK as u64;
    }
}

fn reverse_word_bytes(mut row: Row) -> Row {
    row.reverse();
    row
}

fn digest_bytes(row: &Row) -> [u8; 64] {
    let mut bytes = [0; 64];
    for (out, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(row) {
        *out = word.to_le_bytes();
    }
    bytes
}

/// The quasigroup operation: each side is summed by a Latin square (five words to each output)
/// and turned, then three words of each side meet in every output.
#[inline]
fn star(x: &Row, y: &Row) -> Row {
    let s = left(x);
    let t = right(y);
    let meet = |a: [usize; 3], b: [usize; 3]| {
        (s[a[0]] ^ s[a[1]] ^ s[a[2]]).wrapping_add(t[b[0]] ^ t[b[1]] ^ t[b[2]])
    };
    [
        meet([0, 4, 1], [0, 1, 5]),
        meet([0, 4, 7], [6, 7, 2]),
        meet([1, 7, 6], [0, 1, 3]),
        meet([2, 3, 4], [3, 4, 0]),
        meet([1, 7, 0], [2, 5, 1]),
        meet([5, 6, 3], [3, 4, 6]),
        meet([5, 6, 2], [2, 5, 7]),
        meet([2, 3, 5], [6, 7, 4]),
    ]
}

#[inline]
fn left(x: &Row) -> Row {
    let sum = |a: [usize; 5]| a.iter().fold(0_u64, |acc, i| acc.wrapping_add(x[*i]));
    [
        sum([0, 4, 1, 7, 2]).wrapping_add(SQUARE_ONE),
        sum([0, 4, 1, 7, 3]).rotate_left(5),
        sum([0, 4, 1, 7, 6]).rotate_left(15),
        sum([2, 3, 5, 6, 7]).rotate_left(22),
        sum([2, 3, 5, 6, 1]).rotate_left(31),
        sum([2, 3, 5, 0, 4]).rotate_left(40),
        sum([5, 6, 1, 7, 0]).rotate_left(50),
        sum([2, 3, 5, 6, 4]).rotate_left(59),
    ]
}

#[inline]
fn right(y: &Row) -> Row {
    let sum = |a: [usize; 5]| a.iter().fold(0_u64, |acc, i| acc.wrapping_add(y[*i]));
    [
        sum([0, 1, 2, 5, 7]).wrapping_add(!SQUARE_ONE),
        sum([0, 1, 3, 4, 6]).rotate_left(10),
        sum([0, 1, 2, 5, 3]).rotate_left(19),
        sum([3, 4, 6, 7, 2]).rotate_left(29),
        sum([0, 1, 3, 4, 5]).rotate_left(36),
        sum([2, 5, 6, 7, 4]).rotate_left(44),
        sum([2, 5, 6, 7, 1]).rotate_left(48),
        sum([3, 4, 6, 7, 0]).rotate_left(55),
    ]
}
