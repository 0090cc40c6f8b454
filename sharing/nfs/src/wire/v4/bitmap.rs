//! Sets of attributes (`bitmap4`).

use crate::wire::Result;
use crate::wire::xdr::{Reader, Writer};

/// Words that are kept. Attributes above are unknown to every version of the protocol.
const WORDS: usize = 3;
/// Words of the longest set that is parsed.
const MAX_WORDS: usize = 64;

/// A set of attributes by their numbers, which are below 96.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bitmap([u32; WORDS]);

impl Bitmap {
    /// No attributes.
    pub const EMPTY: Self = Self([0; WORDS]);

    /// The set of these attributes.
    pub const fn of(attributes: &[u32]) -> Self {
        let mut all = 0_u128;
        let mut rest = attributes;
        while let [first, others @ ..] = rest {
            all |= 1 << *first;
            rest = others;
        }
        let bytes = all.to_le_bytes();
        let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = bytes;
        Self([
            u32::from_le_bytes([a, b, c, d]),
            u32::from_le_bytes([e, f, g, h]),
            u32::from_le_bytes([i, j, k, l]),
        ])
    }

    /// Parses a set. Attributes that no version has are dropped; see [`Bitmap::parse_exact`].
    pub fn parse(reader: &mut Reader<'_>) -> Result<Self> {
        Self::parse_exact(reader).map(|(set, _)| set)
    }

    /// Parses a set. Also returns whether it has attributes that no version has.
    pub fn parse_exact(reader: &mut Reader<'_>) -> Result<(Self, bool)> {
        let words = reader.list(MAX_WORDS, Reader::u32)?;
        let mut set = Self::EMPTY;
        for (to, from) in set.0.iter_mut().zip(&words) {
            *to = *from;
        }
        Ok((set, words.iter().skip(WORDS).any(|word| *word != 0)))
    }

    /// Writes the set, without empty words at its end.
    pub fn write(&self, writer: &mut Writer) {
        let used = self.0.iter().rposition(|word| *word != 0);
        let count = used.map_or(0, |last| last.wrapping_add(1));
        writer.count(count);
        self.0.iter().take(count).for_each(|word| writer.u32(*word));
    }

    /// Whether an attribute is in the set.
    pub fn has(&self, attribute: u32) -> bool {
        self.intersection(&Self::of(&[attribute])) != Self::EMPTY
    }

    /// Adds an attribute.
    pub fn insert(&mut self, attribute: u32) {
        *self = self.union(&Self::of(&[attribute]));
    }

    /// The attributes of either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.combine(other, |one, two| one | two)
    }

    /// The attributes of both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.combine(other, |one, two| one & two)
    }

    /// The attributes of this set that another does not have.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        self.combine(other, |one, two| one & !two)
    }

    fn combine(&self, other: &Self, combine: impl Fn(u32, u32) -> u32) -> Self {
        let mut result = *self;
        for (to, from) in result.0.iter_mut().zip(other.0) {
            *to = combine(*to, from);
        }
        result
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        *self == Self::EMPTY
    }

    /// The attributes, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        (0..96).filter(move |attribute| self.has(*attribute))
    }
}
