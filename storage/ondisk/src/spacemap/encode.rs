//! Encodes space maps: headers, entries, and appended entries.

use std::ops::Range;

use units::{ObjectId, Txg, VdevId};

use super::{Action, Entry, SpaceMapHeader, VDEV_MASK};
use crate::{Error, Result};

/// The most units in an entry of one word.
const ONE_WORD_MAX_LENGTH: u64 = 1 << 15;
/// Where an entry of one word can begin at most.
const ONE_WORD_MAX_OFFSET: u64 = 1 << 47;
/// The most units in an entry of two words.
const TWO_WORDS_MAX_LENGTH: u64 = 1 << 36;
/// A note with nothing in it.
const PADDING: u64 = 2 << 62;

impl SpaceMapHeader {
    /// Of an empty map.
    pub const fn empty(with_histogram: bool) -> Self {
        let histogram = if with_histogram { Some([0; 32]) } else { None };
        Self { object: ObjectId::new(0), length: 0, allocated: 0, histogram }
    }

    /// The bytes: 24, or with a histogram 320.
    ///
    /// # Panics
    ///
    /// If our own arithmetic or bookkeeping is wrong.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::SIZE);
        bytes.extend(self.object.get().to_le_bytes());
        bytes.extend(self.length.to_le_bytes());
        bytes.extend(self.allocated.to_le_bytes());
        if let Some(histogram) = &self.histogram {
            bytes.extend([0; 40]);
            bytes.extend(histogram.iter().flat_map(|count| count.to_le_bytes()));
            assert_eq!(bytes.len(), Self::SIZE, "a header with a histogram has its size");
        }
        bytes
    }
}

impl Action {
    const fn bit(self) -> u64 {
        match self {
            Self::Allocated => 0,
            Self::Freed => 1,
        }
    }
}

impl Entry {
    /// Appends its bytes: a range with a vdev takes two words, one without takes one word. Refused
    /// where a number does not fit.
    pub fn encode(&self, into: &mut Vec<u8>) -> Result<()> {
        let mut put = |word: u64| into.extend(word.to_le_bytes());
        match *self {
            Self::Padding => put(PADDING),
            Self::Debug { action, txg, pass } => put(debug_word(action, txg, pass)),
            Self::Range { action, vdev: None, offset, length } => {
                check_limit("a space map's offset is below 2^47", offset, ONE_WORD_MAX_OFFSET - 1)?;
                let less = encoded_length(length, ONE_WORD_MAX_LENGTH)?;
                put((offset << 16) | (action.bit() << 15) | less);
            }
            Self::Range { action, vdev: Some(vdev), offset, length } => {
                let vdev = u64::from(vdev.get());
                check_limit("a vdev's number is below 2^24", vdev, VDEV_MASK)?;
                check_limit("a space map's offset is below 2^63", offset, u64::MAX >> 1)?;
                put((3 << 62) | (encoded_length(length, TWO_WORDS_MAX_LENGTH)? << 24) | vdev);
                put((action.bit() << 63) | offset);
            }
        }
        Ok(())
    }
}

fn debug_word(action: Action, txg: Txg, pass: u16) -> u64 {
    let pass = u64::from(pass) & 0x3ff;
    PADDING | (action.bit() << 60) | (pass << 50) | (txg.get() & ((1 << 50) - 1))
}

fn encoded_length(length: u64, most: u64) -> Result<u64> {
    let rule = "an entry's length is at least 1, and fits its form";
    let less = length.checked_sub(1).unwrap_or(u64::MAX);
    check_limit(rule, less, most.saturating_sub(1)).map(|()| less)
}

fn check_limit(rule: &'static str, found: u64, most: u64) -> Result<()> {
    if found <= most {
        return Ok(());
    }
    Err(Error::Rule { structure: "space map", at: 0, rule, found })
}

/// Entries to append to a space map. Each gets the shortest form that fits, and none straddles
/// two blocks.
#[derive(Clone, Debug)]
pub struct SpaceMapAppender {
    bytes: Vec<u8>,
    /// Bytes of the map before.
    length: u64,
    block_size: u64,
    two_words: bool,
}

impl SpaceMapAppender {
    /// For a map of `header`, with this block size; entries of two words need the pool feature
    /// spacemap_v2.
    pub const fn new(header: &SpaceMapHeader, block_size: u32, two_words: bool) -> Self {
        let block_size = if block_size < 512 { 512 } else { block_size as u64 };
        Self { bytes: Vec::new(), length: header.length, block_size, two_words }
    }

    /// Ranges that changed hands in a pass of a txg's sync, in units of the map: with a note before
    /// them, if there are any. The vdev is for logs of changes.
    pub fn push_ranges(
        &mut self,
        (action, txg, pass): (Action, Txg, u16),
        vdev: Option<VdevId>,
        ranges: impl IntoIterator<Item = Range<u64>>,
    ) -> Result<()> {
        let mut noted = false;
        for range in ranges {
            if !noted {
                Entry::Debug { action, txg, pass }.encode(&mut self.bytes)?;
                noted = true;
            }
            self.push_range(action, vdev, range)?;
        }
        Ok(())
    }

    fn push_range(
        &mut self,
        action: Action,
        vdev: Option<VdevId>,
        range: Range<u64>,
    ) -> Result<()> {
        assert!(
            range.start < range.end,
            "a space map gets a range of some units, and not {range:?}"
        );
        let long = range.end.saturating_sub(range.start) > ONE_WORD_MAX_LENGTH
            || range.start >= ONE_WORD_MAX_OFFSET;
        let own = (self.two_words && long).then_some(VdevId::new(0));
        let vdev = vdev.or(own);
        let most = if vdev.is_some() { TWO_WORDS_MAX_LENGTH } else { ONE_WORD_MAX_LENGTH };
        let mut offset = range.start;
        while offset < range.end {
            if vdev.is_some() && self.remaining_in_block() == 8 {
                Entry::Padding.encode(&mut self.bytes)?;
            }
            let length = range.end.saturating_sub(offset).min(most);
            Entry::Range { action, vdev, offset, length }.encode(&mut self.bytes)?;
            offset = offset.saturating_add(length);
        }
        Ok(())
    }

    /// Bytes up to the end of the block in which the next entry begins.
    fn remaining_in_block(&self) -> u64 {
        let at = self.end().checked_rem(self.block_size).unwrap_or(0);
        self.block_size.saturating_sub(at)
    }

    /// Bytes of the map after the append.
    pub fn end(&self) -> u64 {
        self.length.saturating_add(units::to_u64(self.bytes.len()))
    }

    /// The bytes to write at the map's end.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use units::{Txg, VdevId};

    use super::{Action, Entry, SpaceMapAppender, SpaceMapHeader};
    use crate::spacemap::Entries;
    use crate::{Order, Reader};

    fn action() -> impl Strategy<Value = Action> {
        prop_oneof![Just(Action::Allocated), Just(Action::Freed)]
    }

    fn entry() -> impl Strategy<Value = Entry> {
        let one = (action(), 0..1_u64 << 47, 1..=1_u64 << 15);
        let two = (action(), 0..1_u32 << 24, 0..1_u64 << 63, 1..=1_u64 << 36);
        let note = (action(), 1..1_u64 << 50, 0..1_u16 << 10);
        prop_oneof![
            one.prop_map(|(action, offset, length)| Entry::Range {
                action,
                vdev: None,
                offset,
                length
            }),
            two.prop_map(|(action, vdev, offset, length)| Entry::Range {
                action,
                vdev: Some(VdevId::new(vdev)),
                offset,
                length
            }),
            note.prop_map(|(action, txg, pass)| Entry::Debug { action, txg: Txg::new(txg), pass }),
            Just(Entry::Padding),
        ]
    }

    proptest! {
        #[test]
        fn entries_come_back(entries in prop::collection::vec(entry(), 0..40)) {
            let mut bytes = Vec::new();
            for entry in &entries {
                entry.encode(&mut bytes).unwrap();
            }
            let back: Vec<_> =
                Entries::new(&bytes, Order::Little).map(Result::unwrap).collect();
            prop_assert_eq!(back, entries);
        }

        #[test]
        fn headers_come_back(
            length in 0..1_u64 << 48,
            allocated in -(1_i64 << 62)..1_i64 << 62,
            histogram: Option<[u64; 32]>,
        ) {
            let header = SpaceMapHeader { length, allocated, histogram, ..SpaceMapHeader::empty(false) };
            let bytes = header.encode();
            prop_assert_eq!(bytes.len(), if histogram.is_some() { 320 } else { 24 });
            let back = SpaceMapHeader::read(&mut Reader::new("h", &bytes, Order::Little));
            prop_assert_eq!(back, Ok(header));
        }

        #[test]
        fn appended_entries_parse_to_their_input(
            before in 0..600_u64, two_words: bool, vdev: Option<u8>,
            ranges in prop::collection::vec((0..1_u64 << 40, 1..1_u64 << 20), 1..50),
        ) {
            let header = SpaceMapHeader { length: before * 8, ..SpaceMapHeader::empty(true) };
            let vdev = vdev.map(|id| VdevId::new(id.into()));
            let mut appendix = SpaceMapAppender::new(&header, 512, two_words);
            let meant: Vec<_> = ranges.iter().map(|(start, length)| *start..start + length).collect();
            let what = (Action::Freed, Txg::new(9), 1);
            appendix.push_ranges(what, vdev, meant.iter().cloned()).unwrap();
            prop_assert_eq!(appendix.end(), before * 8 + appendix.bytes().len() as u64);
            // read block by block: so no entry straddles two
            let (first, rest) = appendix.bytes().split_at(
                appendix.bytes().len().min(512 - (before * 8 % 512) as usize));
            let mut said: Vec<std::ops::Range<u64>> = Vec::new();
            for piece in std::iter::once(first).chain(rest.chunks(512)) {
                for entry in Entries::new(piece, Order::Little) {
                    let Entry::Range { offset, length, action, vdev: on } = entry.unwrap() else {
                        continue;
                    };
                    prop_assert!(action == Action::Freed && (vdev.is_none() || on == vdev));
                    prop_assert!(two_words || vdev.is_some() || on.is_none());
                    said.push(offset..offset + length);
                }
            }
            let mut at = said.into_iter();
            for range in meant {
                let mut end = range.start;
                while end < range.end {
                    let next = at.next().unwrap();
                    prop_assert_eq!(next.start, end);
                    end = next.end;
                }
                prop_assert_eq!(end, range.end);
            }
        }
    }

    #[test]
    fn out_of_range_entries_are_refused() {
        for (vdev, offset, length) in [
            (None, 1 << 47, 1),
            (None, 0, (1 << 15) + 1),
            (None, 0, 0),
            (Some(1 << 24), 0, 1),
            (Some(0), 1 << 63, 1),
            (Some(0), 0, (1 << 36) + 1),
        ] {
            let vdev = vdev.map(VdevId::new);
            let entry = Entry::Range { action: Action::Freed, vdev, offset, length };
            assert!(entry.encode(&mut Vec::new()).is_err(), "{entry:?}");
        }
    }
}
