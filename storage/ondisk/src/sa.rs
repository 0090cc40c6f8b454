//! System attributes: how a file's attributes are laid out in a bonus buffer or a spill block.
//!
//! ```text
//! offset  size  field     meaning
//!      0     4  magic     0x2f505a
//!      4     2  layout    bits 0-9 the layout's number, 10-15 the header's size in 8 bytes
//!      6     2  length[0] lengths of the attributes of variable size, in the layout's order; the
//!                         header is as long as holds them all, rounded up to 8 bytes
//!      8
//! ```
//!
//! The values follow the header in the order that the layout names, each rounded up to 8 bytes.
//! Two tables of each dataset say what the numbers mean. REGISTRY: name to a word whose bits 0-15
//! are the attribute's number, 16-23 how its bytes are ordered, 24-39 its length in bytes (0:
//! variable). LAYOUTS: the layout's number in decimal to an array of 16-bit attribute numbers.
//! Layout 0 in a buffer of this kind stands for layout 1, and that has no attributes at all.
//!
//! Learnt from: `zdb -dddd` of the fixtures. Proved by: `golden_bonus` and the fixture tests.

use crate::{Error, Order, Reader, Result};

const MAGIC: u32 = 0x2f505a;
const WHAT: &str = "system attributes";

macro_rules! attributes {
    ($($name:ident = $field:literal, $length:literal;)*) => {
        /// The attributes that file systems use, whatever number a dataset gave them.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        #[expect(missing_docs, reason = "each is the field's name of it")]
        pub enum Attribute { $($name,)* }

        impl Attribute {
            /// All of them, in the order of the format's own numbers.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Its name in the registry.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $field,)* }
            }

            /// Its size in bytes as it is always registered; 0 if that varies.
            pub const fn length(self) -> u16 {
                match self { $(Self::$name => $length,)* }
            }
        }
    };
}

attributes! {
    Atime = "ZPL_ATIME", 16;
    Mtime = "ZPL_MTIME", 16;
    Ctime = "ZPL_CTIME", 16;
    Crtime = "ZPL_CRTIME", 16;
    Gen = "ZPL_GEN", 8;
    Mode = "ZPL_MODE", 8;
    Size = "ZPL_SIZE", 8;
    Parent = "ZPL_PARENT", 8;
    Links = "ZPL_LINKS", 8;
    Xattr = "ZPL_XATTR", 8;
    Rdev = "ZPL_RDEV", 8;
    Flags = "ZPL_FLAGS", 8;
    Uid = "ZPL_UID", 8;
    Gid = "ZPL_GID", 8;
    Pad = "ZPL_PAD", 32;
    ZnodeAcl = "ZPL_ZNODE_ACL", 88;
    DaclCount = "ZPL_DACL_COUNT", 8;
    Symlink = "ZPL_SYMLINK", 0;
    Scanstamp = "ZPL_SCANSTAMP", 32;
    DaclAces = "ZPL_DACL_ACES", 0;
    Dxattr = "ZPL_DXATTR", 0;
    Projid = "ZPL_PROJID", 8;
}

const COUNT: usize = Attribute::ALL.len();

/// One attribute as a dataset's registry knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Registered {
    /// Its number in layouts.
    pub number: u16,
    /// Its size in bytes; 0 if each file's differs.
    pub length: u16,
    /// How its bytes are ordered: 0 words of 8 bytes, 1 of 4, 2 of 2, 3 bytes, 4 an ACL.
    pub swap: u8,
}

impl Registered {
    /// From the word in the registry.
    pub const fn from_word(word: u64) -> Self {
        let [low, high, swap, length_low, length_high, ..] = word.to_le_bytes();
        let number = u16::from_le_bytes([low, high]);
        Self { number, length: u16::from_le_bytes([length_low, length_high]), swap }
    }
}

/// A dataset's registry: what its attribute numbers mean.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    by_number: Vec<Option<(Registered, Option<Attribute>)>>,
}

impl Registry {
    /// The registry of a dataset that has none yet: the format's own numbers.
    pub fn standard() -> Self {
        let mut out = Self::default();
        for (number, attribute) in (0..).zip(Attribute::ALL) {
            let registered = Registered { number, length: attribute.length(), swap: 0 };
            out.put(registered, Some(*attribute));
        }
        out
    }

    /// Adds an entry of the registry's table.
    pub fn register(&mut self, name: &[u8], word: u64) {
        let known = Attribute::ALL.iter().find(|known| known.name().as_bytes() == name);
        self.put(Registered::from_word(word), known.copied());
    }

    fn put(&mut self, registered: Registered, known: Option<Attribute>) {
        let at = usize::from(registered.number);
        if self.by_number.len() <= at {
            self.by_number.resize(at.saturating_add(1), None);
        }
        if let Some(slot) = self.by_number.get_mut(at) {
            *slot = Some((registered, known));
        }
    }

    /// Works out where the attributes of a layout stand; fails if it names one nobody registered.
    pub fn layout(&self, numbers: &[u16]) -> Result<Layout> {
        let mut layout = Layout::default();
        let mut offset = Some(0_u16);
        for number in numbers {
            let slot = self.by_number.get(usize::from(*number)).copied().flatten();
            let Some((registered, known)) = slot else {
                let found = u64::from(*number);
                return Err(Error::Unknown { what: "layout", field: "attribute", found });
            };
            let slot = known.and_then(|known| layout.fixed.get_mut(usize::from(known as u8)));
            if let Some(slot) = slot {
                *slot = match (offset, registered.length) {
                    (Some(offset), length @ 1..) => Where::Fixed { offset, length },
                    _ => Where::Search,
                };
            }
            let step = Step { known, length: registered.length };
            offset = match step.length {
                0 => None,
                length => offset.and_then(|at| at.checked_add(length)?.checked_next_multiple_of(8)),
            };
            layout.steps.push(step);
        }
        Ok(layout)
    }
}

#[derive(Clone, Copy, Debug)]
struct Step {
    known: Option<Attribute>,
    /// In bytes; 0: the header says.
    length: u16,
}

/// Where an attribute stands in a layout.
#[derive(Clone, Copy, Debug, Default)]
enum Where {
    #[default]
    Absent,
    /// At the same place in every buffer: bytes after the header, and size.
    Fixed { offset: u16, length: u16 },
    /// It varies, or stands behind one that does.
    Search,
}

/// Which attributes stand in a buffer, in which order.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    steps: Vec<Step>,
    fixed: [Where; COUNT],
}

/// The start of a buffer of system attributes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The number of the layout by which the rest is laid out.
    pub layout: u16,
    /// The header's own size in bytes.
    pub size: usize,
}

impl Header {
    /// Reads it at the start of a bonus buffer or spill block.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let magic = reader.u32()?;
        if magic != MAGIC {
            return Err(reader.broken(4, "the magic number is 0x2f505a", magic.into()));
        }
        let info = reader.u16()?;
        let size = usize::from(info >> 10).saturating_mul(8);
        if size < 8 {
            return Err(reader.broken(2, "a header has 8 bytes at least", info.into()));
        }
        let layout = match info & 0x3ff {
            0 => 1,
            number => number,
        };
        Ok(Self { layout, size })
    }

    /// Reads it from the start of `bytes`.
    pub fn parse(bytes: &[u8], order: Order) -> Result<Self> {
        Self::read(&mut Reader::new(WHAT, bytes, order))
    }
}

/// A buffer of attributes together with its layout.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    bytes: &'a [u8],
    order: Order,
    header: Header,
    layout: &'a Layout,
}

impl<'a> Attributes<'a> {
    /// `bytes` begin with `header`, and `layout` is the one that it names.
    pub const fn new(bytes: &'a [u8], order: Order, header: Header, layout: &'a Layout) -> Self {
        Self { bytes, order, header, layout }
    }

    /// The bytes of an attribute, if the layout has it.
    pub fn bytes(&self, attribute: Attribute) -> Result<Option<&'a [u8]>> {
        match self.layout.fixed.get(usize::from(attribute as u8)) {
            None | Some(Where::Absent) => Ok(None),
            Some(Where::Fixed { offset, length }) => {
                let at = self.header.size.saturating_add(usize::from(*offset));
                self.slice(at, usize::from(*length)).map(Some)
            }
            Some(Where::Search) => self.search(attribute),
        }
    }

    /// An attribute that is one number of 64 bits.
    pub fn word(&self, attribute: Attribute) -> Result<Option<u64>> {
        Ok(self.words::<1>(attribute)?.map(|[word]| word))
    }

    /// An attribute that is `N` numbers of 64 bits.
    pub fn words<const N: usize>(&self, attribute: Attribute) -> Result<Option<[u64; N]>> {
        let Some(bytes) = self.bytes(attribute)? else { return Ok(None) };
        Reader::new(attribute.name(), bytes, self.order).words().map(Some)
    }

    /// In which order the numbers of the buffer are.
    pub const fn order(&self) -> Order {
        self.order
    }

    fn slice(&self, at: usize, length: usize) -> Result<&'a [u8]> {
        let mut reader = Reader::new(WHAT, self.bytes, self.order);
        reader.seek(at);
        reader.take(length)
    }

    fn search(&self, wanted: Attribute) -> Result<Option<&'a [u8]>> {
        let mut at = self.header.size;
        let mut lengths = Reader::new(WHAT, self.bytes, self.order);
        lengths.seek(6);
        for step in &self.layout.steps {
            let length = match step.length {
                0 if lengths.at() >= self.header.size => {
                    let found = u64::try_from(lengths.at()).unwrap_or(u64::MAX);
                    return Err(lengths.broken(0, "the header holds every length", found));
                }
                0 => usize::from(lengths.u16()?),
                fixed => usize::from(fixed),
            };
            if step.known == Some(wanted) {
                return self.slice(at, length).map(Some);
            }
            at = at.saturating_add(length).next_multiple_of(8);
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::{Attribute, Attributes, Header, Registered, Registry};
    use crate::Order;

    fn buffer(info: u16, lengths: &[u16], values: &[&[u8]]) -> Vec<u8> {
        let mut out = 0x2f505a_u32.to_le_bytes().to_vec();
        out.extend(info.to_le_bytes());
        for length in lengths {
            out.extend(length.to_le_bytes());
        }
        out.resize(out.len().next_multiple_of(8), 0);
        for value in values {
            out.extend_from_slice(value);
            out.resize(out.len().next_multiple_of(8), 0);
        }
        out
    }

    #[test]
    fn words_of_the_registry_split_into_their_fields() {
        let registered = Registered::from_word(0x5803_000f);
        assert_eq!(registered, Registered { number: 15, length: 88, swap: 3 });
    }

    #[test]
    fn attributes_behind_variable_ones_are_found() {
        let layout = Registry::standard().layout(&[5, 17, 6, 20]).expect("layout");
        let word = 7_u64.to_le_bytes();
        let bytes = buffer(2 | (2 << 10), &[5, 3], &[&word, b"there", &word, b"nvl"]);
        let header = Header::parse(&bytes, Order::Little).expect("header");
        assert_eq!((header.layout, header.size), (2, 16));
        let found = Attributes::new(&bytes, Order::Little, header, &layout);
        assert_eq!(found.word(Attribute::Mode), Ok(Some(7)));
        assert_eq!(found.bytes(Attribute::Symlink), Ok(Some(&b"there"[..])));
        assert_eq!(found.word(Attribute::Size), Ok(Some(7)));
        assert_eq!(found.bytes(Attribute::Dxattr), Ok(Some(&b"nvl"[..])));
        assert_eq!(found.bytes(Attribute::Projid), Ok(None));
    }

    #[test]
    fn lengths_beyond_the_buffer_or_the_header_are_refused() {
        let layout = Registry::standard().layout(&[17, 20]).expect("layout");
        let bytes = buffer(2 | (1 << 10), &[200], &[b"short"]);
        let header = Header::parse(&bytes, Order::Little).expect("header");
        let found = Attributes::new(&bytes, Order::Little, header, &layout);
        assert!(found.bytes(Attribute::Symlink).is_err());
        assert!(found.bytes(Attribute::Dxattr).is_err());
        assert!(Header::parse(&[0; 16], Order::Little).is_err());
        assert!(Registry::standard().layout(&[99]).is_err());
    }

    #[test]
    fn the_other_order_reads_the_same() {
        let layout = Registry::standard().layout(&[6]).expect("layout");
        let mut bytes = 0x2f505a_u32.to_be_bytes().to_vec();
        bytes.extend((3_u16 | (1 << 10)).to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(1234_u64.to_be_bytes());
        let header = Header::parse(&bytes, Order::Big).expect("header");
        assert_eq!(header, Header { layout: 3, size: 8 });
        let found = Attributes::new(&bytes, Order::Big, header, &layout);
        assert_eq!(found.word(Attribute::Size), Ok(Some(1234)));
    }
}
