//! dRAID's permutations: in which order each slice of the array takes its drives.
//!
//! For a number of children there is one fixed list of permutations, grown from a seed by
//! shuffling: each permutation is the one before it, shuffled once more (Fisher and Yates, from
//! the last place down), the first one being the shuffled identity. The random numbers come from
//! xoroshiro128++ (public domain, Blackman and Vigna), whose state is a fixed first word and the
//! seed. 256 permutations for up to 31 children, 512 for more.
//!
//! Each permutation serves `children` slices, one after the other; from slice to slice all drives
//! move on by one.
//!
//! Learnt from: `vdev_draid.c`, `vdev_draid_rand.c` of OpenZFS 2.3.2.
//! Proved by: `every_permutation_matches_its_checksum`.

use super::seeds::{MIN_CHILDREN, SEEDS};

/// First word of the generator's state.
const FIRST_WORD: u64 = 0x000d_7a1d_5eed;

/// The permutations for one number of children.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Permutations {
    children: usize,
    /// One permutation after the other, each `children` long.
    order: Vec<u8>,
}

impl Permutations {
    /// Grows the list; `None` where the format knows no such number of children, or the list did
    /// not come out as it must.
    pub(super) fn new(children: u32) -> Option<Self> {
        let index = usize::try_from(children.checked_sub(MIN_CHILDREN)?).ok()?;
        let (seed, sum) = *SEEDS.get(index)?;
        let order = generate_permutations(u8::try_from(children).ok()?, seed);
        (checksum(&order) == sum).then_some(Self { children: children as usize, order })
    }

    /// Which child stands at `place` in slice `slice`.
    pub(super) fn child(&self, slice: u64, place: usize) -> usize {
        let children = self.children as u64;
        let slice = slice % (self.order.len() as u64).max(1);
        let start = crate::map::child(slice / children) * self.children;
        let moved = crate::map::child(slice % children);
        let child = self.order.get(start + place % self.children).copied().unwrap_or(0);
        (usize::from(child) + moved) % self.children
    }
}

impl std::fmt::Debug for Permutations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Permutations({} children)", self.children)
    }
}

fn generate_permutations(children: u8, seed: u64) -> Vec<u8> {
    let count = if children < 32 { 256 } else { 512 };
    let mut random = Xoroshiro { state: [FIRST_WORD, seed] };
    let mut current: Vec<u8> = (0..children).collect();
    let mut order = Vec::with_capacity(count * usize::from(children));
    for _ in 0..count {
        for last in (1..current.len()).rev() {
            let other = crate::map::child(random.next() % (last as u64 + 1));
            current.swap(last, other);
        }
        order.extend_from_slice(&current);
    }
    order
}

fn checksum(order: &[u8]) -> u64 {
    let words = order.as_chunks::<4>().0.iter().map(|word| u64::from(u32::from_le_bytes(*word)));
    words.fold(0, u64::wrapping_add)
}

/// The generator of the format's random numbers.
struct Xoroshiro {
    state: [u64; 2],
}

impl Xoroshiro {
    fn next(&mut self) -> u64 {
        let [a, b] = self.state;
        let result = a.wrapping_add(b).rotate_left(17).wrapping_add(a);
        let mixed = a ^ b;
        self.state = [a.rotate_left(49) ^ mixed ^ (mixed << 21), mixed.rotate_left(28)];
        result
    }
}

#[cfg(test)]
mod tests {
    use super::Permutations;

    #[test]
    fn every_permutation_matches_its_checksum() {
        for children in 2..=255 {
            let map = Permutations::new(children).expect("the sum is right");
            for row in map.order.chunks(children as usize) {
                let mut seen = row.to_vec();
                seen.sort_unstable();
                assert!(seen.iter().copied().eq(0..u8::try_from(children).unwrap()));
            }
        }
        assert!(Permutations::new(0).is_none());
        assert!(Permutations::new(1).is_none());
        assert!(Permutations::new(256).is_none());
    }

    #[test]
    fn permutations_rotate_then_repeat() {
        let map = Permutations::new(8).expect("8 children are allowed");
        // slices run through the shifts of one permutation, then to the next permutation
        for place in 0..8 {
            assert_eq!((map.child(0, place) + 1) % 8, map.child(1, place));
            assert_eq!(map.child(0, place), map.child(256 * 8, place));
            assert_eq!(map.child(8, place), usize::from(map.order[8 + place]));
        }
    }
}
