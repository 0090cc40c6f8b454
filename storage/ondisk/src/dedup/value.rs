//! The value of a block in a dedup table.
//!
//! A set of copies, at the offsets of the flat form:
//!
//! ```text
//! offset  size  field           meaning
//!      0    48  dva[3]          where the copies are
//!     48     8  references      how many pointers there are to it
//!     56     8  birth_physical  the txg that wrote it
//!     64     8  class_start     when it came into its class, seconds since 1970
//!     72
//! ```
//!
//! The traditional form is four sets without `class_start`, 256 bytes: for ditto blocks, and for
//! blocks of one, two and three copies.
//!
//! In a table's ZAP the value is packed: one byte (bit 7: little-endian words; bits 0-6: the
//! compression, 2 for none or 14 for zle), then the bytes.
//!
//! Learnt from: `zdb -DDDDD` of the fixtures `dedup-legacy`, `dedup-fast`. Proved by:
//! `golden_value`, and `golden_dedup_log` for the flat form.

use units::Txg;

use super::Shape;
use crate::{Dva, Error, Order, Reader, Result};

/// One set of copies of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Copies {
    /// Where they are. With encryption the third is salt and IV, not a place.
    pub dvas: [Option<Dva>; 3],
    /// The third address as it stands.
    pub third_dva_words: [u64; 2],
    /// How many pointers there are to it.
    pub references: u64,
    /// The txg that wrote it; 0: the set is unused.
    pub birth: Txg,
}

/// The value of a block in a dedup table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DedupValue {
    /// For ditto blocks, and for blocks of one, two and three copies.
    Traditional(Box<[Copies; 4]>),
    /// One set for all.
    Flat {
        /// The copies.
        copies: Copies,
        /// When it came into its class, seconds since 1970.
        since: u64,
    },
}

impl Copies {
    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let (first, second) = (Dva::read(reader)?, Dva::read(reader)?);
        let third = reader.words()?;
        let dvas = [first, second, Dva::from_words(third[0], third[1])];
        Ok(Self {
            dvas,
            third_dva_words: third,
            references: reader.u64()?,
            birth: Txg::new(reader.u64()?),
        })
    }

    /// Copies of a block that is not encrypted.
    pub fn new(dvas: [Option<Dva>; 3], references: u64, birth: Txg) -> Self {
        let third_dva_words = dvas[2].map_or([0; 2], Dva::to_words);
        Self { dvas, third_dva_words, references, birth }
    }

    fn words(&self) -> [u64; 8] {
        let [first, second, _] = self.dvas.map(|dva| dva.map_or([0; 2], Dva::to_words));
        let [third, fourth] = self.third_dva_words;
        let (references, birth) = (self.references, self.birth.get());
        [first[0], first[1], second[0], second[1], third, fourth, references, birth]
    }
}

impl DedupValue {
    /// Reads a value that is not packed, as it stands in a log.
    pub fn read(reader: &mut Reader<'_>, shape: Shape) -> Result<Self> {
        Ok(match shape {
            Shape::Traditional => {
                let mut sets = [Copies::default(); 4];
                for set in &mut sets {
                    *set = Copies::read(reader)?;
                }
                Self::Traditional(Box::new(sets))
            }
            Shape::Flat => Self::Flat { copies: Copies::read(reader)?, since: reader.u64()? },
        })
    }

    /// Reads a packed value, as it stands in a table.
    pub fn parse(packed: &[u8], shape: Shape) -> Result<Self> {
        let (bytes, order) = unpack(packed, shape.size())?;
        Self::read(&mut Reader::new(STRUCTURE, &bytes, order), shape)
    }

    /// The value as it stands in a log, little-endian.
    pub fn encode(&self) -> Vec<u8> {
        let words: Vec<u64> = match self {
            Self::Traditional(sets) => sets.iter().flat_map(Copies::words).collect(),
            Self::Flat { copies, since } => {
                copies.words().into_iter().chain(std::iter::once(*since)).collect()
            }
        };
        words.into_iter().flat_map(u64::to_le_bytes).collect()
    }

    /// The value packed, as it stands in a table.
    pub fn pack(&self) -> Vec<u8> {
        let bytes = self.encode();
        let (number, content) = match pack_zle(&bytes) {
            Some(packed) => (ZLE, packed),
            None => (OFF, bytes),
        };
        let mut out = vec![number | LITTLE_ENDIAN];
        out.extend(content);
        out
    }

    /// The sets in use, with their number of copies (0: ditto; `None`: the flat form does not
    /// record it).
    pub fn sets(&self) -> impl Iterator<Item = (Option<u8>, &Copies)> {
        let all: &[Copies] = match self {
            Self::Traditional(sets) => sets.as_slice(),
            Self::Flat { copies, .. } => std::slice::from_ref(copies),
        };
        let flat = matches!(self, Self::Flat { .. });
        let numbered = (0_u8..).map(move |index| (!flat).then_some(index)).zip(all);
        numbered.filter(|set| !set.1.birth.is_zero())
    }

    /// Removes the sets without references. Their copies are still to be freed.
    pub fn remove_unreferenced(&mut self) -> Vec<Copies> {
        let all: &mut [Copies] = match self {
            Self::Traditional(sets) => sets.as_mut_slice(),
            Self::Flat { copies, .. } => std::slice::from_mut(copies),
        };
        let unwanted = |set: &&mut Copies| !set.birth.is_zero() && set.references == 0;
        all.iter_mut().filter(unwanted).map(std::mem::take).collect()
    }

    /// All references to the block.
    pub fn references(&self) -> u64 {
        self.sets().fold(0, |sum, set| sum.saturating_add(set.1.references))
    }
}

const STRUCTURE: &str = "dedup value";
/// The compression codes of a packed value, and the bit of its byte order.
const OFF: u8 = 2;
const ZLE: u8 = 14;
const LITTLE_ENDIAN: u8 = 0x80;

/// Unpacks a value of a table: `size` bytes, and the order of their words.
pub fn unpack(packed: &[u8], size: usize) -> Result<(Vec<u8>, Order)> {
    let mut reader = Reader::new(STRUCTURE, packed, Order::Little);
    let head = reader.u8()?;
    let order = if head & LITTLE_ENDIAN == 0 { Order::Big } else { Order::Little };
    let bytes = match head & !LITTLE_ENDIAN {
        OFF => reader.bytes(size)?.to_vec(),
        ZLE => unpack_zle(&mut reader, size)?,
        found => {
            let found = u64::from(found);
            return Err(Error::Unknown { structure: STRUCTURE, field: "compression", found });
        }
    };
    Ok((bytes, order))
}

/// The zle of tables: a byte up to 63 stands before that many bytes plus one as they are, a
/// greater one for that many zeros less 63.
fn unpack_zle(reader: &mut Reader<'_>, size: usize) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(size);
    while out.len() < size {
        let head = reader.u8()?;
        match usize::from(head).checked_sub(63) {
            None | Some(0) => {
                out.extend_from_slice(reader.bytes(usize::from(head).saturating_add(1))?);
            }
            Some(zeros) => out.resize(out.len().saturating_add(zeros), 0),
        }
    }
    if out.len() > size {
        return Err(reader.corrupt_field(1, "it unpacks to its size", u64::MAX));
    }
    Ok(out)
}

/// Packs bytes. Returns `None` where OpenZFS stores them unpacked: as soon as a run of literals
/// begins with less space than the longest run needs.
fn pack_zle(bytes: &[u8]) -> Option<Vec<u8>> {
    const LITERALS: usize = 64;
    const ZEROS: usize = 192;
    let mut out = Vec::with_capacity(bytes.len());
    let mut left = bytes;
    while let Some(first) = left.first() {
        // its head must fit, and one byte more
        if out.len().saturating_add(1) >= bytes.len() {
            return None;
        }
        let (count, head) = if *first == 0 {
            let count = left.iter().take(ZEROS).take_while(|byte| **byte == 0).count();
            (count, count.saturating_add(LITERALS).saturating_sub(1))
        } else {
            if bytes.len().saturating_sub(out.len()).saturating_sub(1) < LITERALS {
                return None;
            }
            let pairs = left.windows(2).take(LITERALS.saturating_sub(1));
            let count = pairs.take_while(|pair| *pair != [0, 0]).count();
            let last = left.get(count).is_some_and(|byte| *byte != 0);
            (
                count.saturating_add(usize::from(last)),
                count.saturating_add(usize::from(last)).saturating_sub(1),
            )
        };
        out.push(u8::try_from(head).unwrap_or(u8::MAX));
        let (now, rest) = left.split_at_checked(count)?;
        if *first != 0 {
            out.extend_from_slice(now);
        }
        left = rest;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::{Copies, DedupValue, unpack};
    use crate::dedup::Shape;
    use crate::{Dva, Order};
    use units::Txg;

    #[test]
    fn zle_is_literals_and_zeros() {
        let (bytes, order) = unpack(&[0x8e, 1, 5, 6, 64, 0, 9], 4).unwrap();
        assert_eq!((bytes, order), (vec![5, 6, 0, 9], Order::Little));
        // 64 bytes as they are are still literals
        let mut raw = vec![14, 63];
        raw.extend([7; 64]);
        assert_eq!(unpack(&raw, 64).unwrap(), (vec![7; 64], Order::Big));
        assert!(unpack(&[14, 0xff], 4).is_err());
        assert!(unpack(&[14, 3, 1], 4).is_err());
        assert!(unpack(&[3], 4).is_err());
    }

    /// A value of the table DDT-sha256-zap-duplicate of fixture `dedup-legacy`. zdb prints for it:
    /// refcnt 4 phys 1 DVA[0]=<0:7a000:2000> birth=11L/11P.
    #[test]
    fn golden_value() {
        let packed = [142, 127, 0, 16, 70, 1, 208, 3, 101, 0, 4, 70, 0, 11, 198];
        let value = DedupValue::parse(&packed, Shape::Traditional).unwrap();
        let sets: Vec<_> = value.sets().collect();
        assert_eq!(sets.len(), 1);
        let (copies, set) = sets[0];
        assert_eq!((copies, set.references, set.birth.get()), (Some(1), 4, 11));
        assert_eq!(set.dvas[0].unwrap().to_string(), "0:7a000:2000");
        assert_eq!(value.pack(), packed);
    }

    #[test]
    fn both_value_shapes_survive_encoding() {
        let mut raw = vec![0; 257];
        raw[0] = 0x82;
        // the set for one copy: address, references, birth
        raw[1 + 64] = 8;
        raw[1 + 64 + 8] = 3;
        raw[1 + 64 + 48] = 5;
        raw[1 + 64 + 56] = 77;
        let value = DedupValue::parse(&raw, Shape::Traditional).unwrap();
        let sets: Vec<_> = value.sets().collect();
        assert_eq!(sets.len(), 1);
        assert_eq!((sets[0].0, sets[0].1.references), (Some(1), 5));
        assert_eq!(sets[0].1.dvas[0].unwrap().offset, 1536);
        raw.drain(1..65);
        raw[1 + 64] = 100;
        let flat = DedupValue::parse(&raw[..73], Shape::Flat).unwrap();
        assert!(matches!(flat, DedupValue::Flat { since: 100, .. }));
        assert_eq!(flat.references(), 5);
        assert_eq!(flat.sets().next().unwrap().0, None);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes(mut bytes: Vec<u8>, packed: bool) {
            if packed && !bytes.is_empty() {
                bytes[0] = 0x8e;
            }
            let _ = DedupValue::parse(&bytes, Shape::Flat);
            let _ = DedupValue::parse(&bytes, Shape::Traditional);
        }

        #[test]
        fn packed_values_unpack_to_their_input(
            sets in proptest::collection::vec(
                (0_u64..9, 0_u64..1 << 48, 0_u64..1 << 48, 0_u64.., 0_u64..3), 4..5,
            ),
            flat: bool,
        ) {
            let mut sets = sets.into_iter().map(|(vdev, offset, second, salt, references)| Copies {
                dvas: [
                    Dva::from_words(vdev << 32 | 8, offset),
                    Dva::from_words(8, second).filter(|_| second % 3 > 0),
                    Dva::from_words(salt, !salt),
                ],
                third_dva_words: [salt, !salt],
                references,
                birth: Txg::new(references * 7),
            });
            let value = if flat {
                DedupValue::Flat { copies: sets.next().unwrap(), since: 1_700_000_000 }
            } else {
                let sets: Vec<Copies> = sets.collect();
                DedupValue::Traditional(Box::new(sets.try_into().unwrap()))
            };
            let shape = if flat { Shape::Flat } else { Shape::Traditional };
            assert_eq!(DedupValue::parse(&value.pack(), shape).unwrap(), value);
        }
    }
}
