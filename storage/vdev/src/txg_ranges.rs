//! Sets of txgs as ranges: what a device missed.

use units::{MinusOrZero, Txg};

/// Txgs as sorted ranges that do not touch, first and last included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TxgRanges(Vec<(Txg, Txg)>);

impl TxgRanges {
    /// From any ranges (first, last).
    pub fn new(ranges: impl IntoIterator<Item = (Txg, Txg)>) -> Self {
        let mut all = Self::default();
        for (first, last) in ranges {
            all.add(first, last);
        }
        all
    }

    /// Adds those from `first` to `last`.
    pub fn add(&mut self, first: Txg, last: Txg) {
        if first > last {
            return;
        }
        // those that overlap or touch become one with it
        let before = |range: &(Txg, Txg)| range.1.get() < first.get().minus_or_zero(1);
        let start = self.0.partition_point(before);
        let beyond = |range: &(Txg, Txg)| range.0.get().minus_or_zero(1) <= last.get();
        let end = start + self.0.get(start..).unwrap_or_default().partition_point(beyond);
        let mut joined = (first, last);
        for old in self.0.get(start..end).unwrap_or_default() {
            joined = (joined.0.min(old.0), joined.1.max(old.1));
        }
        self.0.splice(start..end, [joined]);
        debug_assert!(self.is_in_order(), "ranges that touch are joined");
    }

    /// Takes those from `first` to `last` out.
    pub fn remove(&mut self, first: Txg, last: Txg) {
        let before = first.get().checked_sub(1).map(Txg::new);
        let after = last.get().checked_add(1).map(Txg::new);
        let left = |(from, to): &(Txg, Txg)| {
            let head = before.map(|before| (*from, before.min(*to)));
            let tail = after.map(|after| (after.max(*from), *to));
            if *to < first || *from > last { [Some((*from, *to)), None] } else { [head, tail] }
        };
        let kept = self.0.iter().flat_map(left).flatten().filter(|(from, to)| from <= to);
        self.0 = kept.collect();
        debug_assert!(self.is_in_order(), "a part of sorted ranges is sorted");
    }

    fn is_in_order(&self) -> bool {
        self.0.iter().all(|(first, last)| first <= last)
            && self.0.is_sorted_by(|(_, last), (first, _)| last < first)
    }

    /// Those that are in `other` too.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut common = self.clone();
        let mut next = Some(Txg::ZERO);
        for (first, last) in other.iter() {
            if let (Some(from), Some(to)) = (next, first.get().checked_sub(1)) {
                common.remove(from, Txg::new(to));
            }
            next = last.get().checked_add(1).map(Txg::new);
        }
        if let Some(from) = next {
            common.remove(from, Txg::new(u64::MAX));
        }
        common
    }

    /// The txgs that are in more than `count` of the sets.
    ///
    /// # Panics
    /// If our own arithmetic or bookkeeping is wrong.
    #[must_use]
    pub fn in_more_than(count: usize, sets: &[Self]) -> Self {
        let ranges = sets.iter().flat_map(Self::iter);
        let mut edges: Vec<(u64, bool)> =
            ranges.flat_map(|(first, last)| [(first.get(), true), (last.get(), false)]).collect();
        // a range holds its last txg: at one txg, ranges begin before others end
        edges.sort_unstable_by_key(|(txg, begins)| (*txg, !begins));
        let (mut depth, mut since, mut found) = (0_usize, None, Self::default());
        for (txg, begins) in edges {
            if begins {
                depth += 1;
                since = since.or((depth > count).then_some(txg));
            } else {
                if let Some(first) = since.filter(|_| depth == count + 1) {
                    found.add(Txg::new(first), Txg::new(txg));
                    since = None;
                }
                depth -= 1;
            }
        }
        assert_eq!(depth, 0, "each range that begins ends");
        found
    }

    /// The first of all, if there are any.
    pub fn first(&self) -> Option<Txg> {
        self.0.first().map(|(first, _)| *first)
    }

    /// The last of all, if there are any.
    pub fn last(&self) -> Option<Txg> {
        self.0.last().map(|(_, last)| *last)
    }

    /// Whether `txg` is in one of them.
    pub fn contains(&self, txg: Txg) -> bool {
        let index = self.0.partition_point(|(_, last)| *last < txg);
        self.0.get(index).is_some_and(|(first, _)| *first <= txg)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ranges, sorted.
    pub fn iter(&self) -> impl Iterator<Item = (Txg, Txg)> + '_ {
        self.0.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::TxgRanges;
    use units::Txg;

    proptest::proptest! {
        #[test]
        fn they_are_what_a_plain_set_would_be(
            added in proptest::collection::vec((0_u64..60, 0_u64..8), 0..12),
            taken in proptest::collection::vec((0_u64..60, 0_u64..8), 0..4),
            others in proptest::collection::vec((0_u64..60, 0_u64..8), 0..6),
        ) {
            let txg = Txg::new;
            let mut ranges = TxgRanges::new(added.iter().map(|(a, n)| (txg(*a), txg(a + n))));
            for (a, n) in &taken {
                ranges.remove(txg(*a), txg(a + n));
            }
            let other = TxgRanges::new(others.iter().map(|(a, n)| (txg(*a), txg(a + n))));
            let common = ranges.intersection(&other);
            for each in 0..80 {
                let of = |all: &[(u64, u64)]| all.iter().any(|(a, n)| (*a..=a + n).contains(&each));
                let inside = of(&added) && !of(&taken);
                proptest::prop_assert_eq!(ranges.contains(txg(each)), inside);
                proptest::prop_assert_eq!(common.contains(txg(each)), inside && of(&others));
            }
            let sets = [ranges.clone(), other.clone(), TxgRanges::new([(txg(3), txg(30))])];
            for count in 0..4 {
                let found = TxgRanges::in_more_than(count, &sets);
                for each in 0..80 {
                    let holding = sets.iter().filter(|set| set.contains(txg(each))).count();
                    proptest::prop_assert_eq!(found.contains(txg(each)), holding > count);
                }
            }
            let list: Vec<_> = ranges.iter().collect();
            for pair in list.windows(2) {
                proptest::prop_assert!(pair[0].1.get() + 1 < pair[1].0.get());
            }
        }
    }

    #[test]
    fn the_largest_txg_is_no_trap() {
        let mut ranges = TxgRanges::default();
        ranges.add(Txg::new(5), Txg::new(u64::MAX));
        ranges.add(Txg::new(u64::MAX), Txg::new(u64::MAX));
        ranges.add(Txg::new(3), Txg::new(2));
        ranges.remove(Txg::new(3), Txg::new(2));
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(Txg::new(5), Txg::new(u64::MAX))]);
        ranges.remove(Txg::new(9), Txg::new(u64::MAX));
        assert_eq!((ranges.first(), ranges.last()), (Some(Txg::new(5)), Some(Txg::new(8))));
        ranges.remove(Txg::ZERO, Txg::new(u64::MAX));
        assert!(ranges.is_empty());
    }
}
