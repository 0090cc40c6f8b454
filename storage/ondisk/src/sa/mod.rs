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
//! The values follow the header in the order of the layout, each rounded up to 8 bytes.
//! Two tables of each dataset define the numbers. REGISTRY: name to a word whose bits 0-15
//! are the attribute's number, 16-23 its byte order class, 24-39 its length in bytes (0:
//! variable). LAYOUTS: the layout's number in decimal to an array of 16-bit attribute numbers.
//! Layout 0 in a buffer of this kind stands for layout 1, which has no attributes.
//!
//! Learnt from: `zdb -dddd` of the fixtures. Proved by: `golden_bonus` and the fixture tests.

mod build;

pub use build::{count_fitting, encode};

use crate::{Error, Order, Reader, Result};

const MAGIC: u32 = 0x2f505a;
const STRUCTURE: &str = "system attributes";

macro_rules! attributes {
    ($($name:ident = $field:literal, $length:literal, $swap:literal;)*) => {
        /// The attributes of file systems, whatever number a dataset's registry has for them.
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

            /// How its bytes are ordered, as it is always registered: see [`Registration::swap`].
            pub const fn swap(self) -> u8 {
                match self { $(Self::$name => $swap,)* }
            }
        }
    };
}

attributes! {
    Atime = "ZPL_ATIME", 16, 0;
    Mtime = "ZPL_MTIME", 16, 0;
    Ctime = "ZPL_CTIME", 16, 0;
    Crtime = "ZPL_CRTIME", 16, 0;
    Gen = "ZPL_GEN", 8, 0;
    Mode = "ZPL_MODE", 8, 0;
    Size = "ZPL_SIZE", 8, 0;
    Parent = "ZPL_PARENT", 8, 0;
    Links = "ZPL_LINKS", 8, 0;
    Xattr = "ZPL_XATTR", 8, 0;
    Rdev = "ZPL_RDEV", 8, 0;
    Flags = "ZPL_FLAGS", 8, 0;
    Uid = "ZPL_UID", 8, 0;
    Gid = "ZPL_GID", 8, 0;
    Pad = "ZPL_PAD", 32, 0;
    ZnodeAcl = "ZPL_ZNODE_ACL", 88, 3;
    DaclCount = "ZPL_DACL_COUNT", 8, 0;
    Symlink = "ZPL_SYMLINK", 0, 3;
    Scanstamp = "ZPL_SCANSTAMP", 32, 3;
    DaclAces = "ZPL_DACL_ACES", 0, 4;
    Dxattr = "ZPL_DXATTR", 0, 3;
    Projid = "ZPL_PROJID", 8, 0;
}

impl Attribute {
    /// As it is registered under a number.
    pub const fn registration(self, number: u16) -> Registration {
        Registration { number, length: self.length(), swap: self.swap() }
    }
}

const COUNT: usize = Attribute::ALL.len();

/// One attribute as a dataset's registry knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Registration {
    /// Its number in layouts.
    pub number: u16,
    /// Its size in bytes; 0 if each file's differs.
    pub length: u16,
    /// How its bytes are ordered: 0 words of 8 bytes, 1 of 4, 2 of 2, 3 bytes, 4 an ACL.
    pub swap: u8,
}

impl Registration {
    /// From the word in the registry.
    pub const fn from_word(word: u64) -> Self {
        let [low, high, swap, length_low, length_high, ..] = word.to_le_bytes();
        let number = u16::from_le_bytes([low, high]);
        Self { number, length: u16::from_le_bytes([length_low, length_high]), swap }
    }

    /// The word in the registry.
    pub const fn to_word(self) -> u64 {
        (self.number as u64) | ((self.swap as u64) << 16) | ((self.length as u64) << 24)
    }
}

/// An attribute with its bytes, numbers least significant byte first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Value {
    /// Which it is, if file systems use it.
    pub attribute: Option<Attribute>,
    /// The entry of the dataset's registry.
    pub registration: Registration,
    /// Its bytes: as many as are registered, or any number where that varies.
    pub bytes: Vec<u8>,
}

/// A dataset's registry: what its attribute numbers mean.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    by_number: Vec<Option<(Registration, Option<Attribute>)>>,
}

impl Registry {
    /// The registry of a dataset that has none yet: the format's own numbers.
    pub fn standard() -> Self {
        let mut out = Self::default();
        for (number, attribute) in (0..).zip(Attribute::ALL) {
            out.insert(attribute.registration(number), Some(*attribute));
        }
        out
    }

    /// The number of an attribute, if the dataset has registered it.
    pub fn number(&self, wanted: Attribute) -> Option<u16> {
        let slots = self.by_number.iter().flatten();
        slots.filter(|slot| slot.1 == Some(wanted)).map(|slot| slot.0.number).next()
    }

    /// The attribute registered under a number.
    pub fn registration(&self, number: u16) -> Option<Registration> {
        self.by_number.get(usize::from(number)).copied().flatten().map(|slot| slot.0)
    }

    /// Assigns the next free number to every attribute without one; returns the new entries.
    pub fn register_missing(&mut self) -> Vec<(Attribute, Registration)> {
        let mut new = Vec::new();
        for attribute in Attribute::ALL {
            let free = u16::try_from(self.by_number.len());
            if let (None, Ok(free)) = (self.number(*attribute), free) {
                let registered = attribute.registration(free);
                self.insert(registered, Some(*attribute));
                new.push((*attribute, registered));
            }
        }
        new
    }

    /// Adds an entry of the registry's table.
    pub fn register(&mut self, name: &[u8], word: u64) {
        let known = Attribute::ALL.iter().find(|known| known.name().as_bytes() == name);
        self.insert(Registration::from_word(word), known.copied());
    }

    fn insert(&mut self, registered: Registration, known: Option<Attribute>) {
        let at = usize::from(registered.number);
        if self.by_number.len() <= at {
            self.by_number.resize(at.saturating_add(1), None);
        }
        if let Some(slot) = self.by_number.get_mut(at) {
            *slot = Some((registered, known));
        }
    }

    /// Computes the offsets of a layout's attributes; fails if an attribute is not registered.
    pub fn layout(&self, numbers: &[u16]) -> Result<Layout> {
        let mut layout = Layout::default();
        let mut offset = Some(0_u16);
        for number in numbers {
            let slot = self.by_number.get(usize::from(*number)).copied().flatten();
            let Some((registered, known)) = slot else {
                let found = u64::from(*number);
                return Err(Error::Unknown { structure: "layout", field: "attribute", found });
            };
            let slot = known.and_then(|known| layout.fixed.get_mut(usize::from(known as u8)));
            if let Some(slot) = slot {
                *slot = match (offset, registered.length) {
                    (Some(offset), length @ 1..) => Location::Fixed { offset, length },
                    _ => Location::Variable,
                };
            }
            let step = Step { attribute: known, registration: registered };
            offset = match registered.length {
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
    attribute: Option<Attribute>,
    registration: Registration,
}

/// Where an attribute stands in a layout.
#[derive(Clone, Copy, Debug, Default)]
enum Location {
    #[default]
    Absent,
    /// At the same place in every buffer: bytes after the header, and size.
    Fixed { offset: u16, length: u16 },
    /// It varies, or stands behind one that does.
    Variable,
}

/// Which attributes stand in a buffer, in which order.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    steps: Vec<Step>,
    fixed: [Location; COUNT],
}

impl Layout {
    /// Whether it has just these attributes, in this order.
    pub fn has_numbers(&self, numbers: impl ExactSizeIterator<Item = u16>) -> bool {
        self.steps.len() == numbers.len()
            && self
                .steps
                .iter()
                .zip(numbers)
                .all(|(step, number)| step.registration.number == number)
    }
}

/// The start of a buffer of system attributes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The number of the layout by which the rest is laid out.
    pub layout: u16,
    /// The header's own size in bytes.
    pub size: usize,
    /// The byte order of the buffer's numbers; that of its block may differ.
    pub order: Order,
}

impl Header {
    /// Reads it from the start of a bonus buffer or spill block.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        // a machine of the other byte order rewrites only the attributes that it changes
        let is_big = bytes.starts_with(&MAGIC.to_be_bytes());
        let order = if is_big { Order::Big } else { Order::Little };
        let mut reader = Reader::new(STRUCTURE, bytes, order);
        let magic = reader.u32()?;
        if magic != MAGIC {
            return Err(reader.corrupt_field(4, "the magic number is 0x2f505a", magic.into()));
        }
        let info = reader.u16()?;
        let size = usize::from(info >> 10).saturating_mul(8);
        if size < 8 {
            return Err(reader.corrupt_field(2, "a header has 8 bytes at least", info.into()));
        }
        let layout = match info & 0x3ff {
            0 => 1,
            number => number,
        };
        Ok(Self { layout, size, order })
    }
}

/// A buffer of attributes together with its layout.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    bytes: &'a [u8],
    header: Header,
    layout: &'a Layout,
}

impl<'a> Attributes<'a> {
    /// `bytes` begin with `header`, and `layout` is the one that it names.
    pub const fn new(bytes: &'a [u8], header: Header, layout: &'a Layout) -> Self {
        Self { bytes, header, layout }
    }

    /// The bytes of an attribute, if the layout has it.
    pub fn bytes(&self, attribute: Attribute) -> Result<Option<&'a [u8]>> {
        match self.layout.fixed.get(usize::from(attribute as u8)) {
            None | Some(Location::Absent) => Ok(None),
            Some(Location::Fixed { offset, length }) => {
                let at = self.header.size.saturating_add(usize::from(*offset));
                self.slice(at, usize::from(*length)).map(Some)
            }
            Some(Location::Variable) => self.find_variable(attribute),
        }
    }

    /// An attribute that is one number of 64 bits.
    pub fn word(&self, attribute: Attribute) -> Result<Option<u64>> {
        Ok(self.words::<1>(attribute)?.map(|[word]| word))
    }

    /// An attribute that is `N` numbers of 64 bits.
    pub fn words<const N: usize>(&self, attribute: Attribute) -> Result<Option<[u64; N]>> {
        let Some(bytes) = self.bytes(attribute)? else { return Ok(None) };
        Reader::new(attribute.name(), bytes, self.header.order).words().map(Some)
    }

    /// The number of its layout.
    pub const fn layout_number(&self) -> u16 {
        self.header.layout
    }

    /// In which order the numbers of the buffer are.
    pub const fn order(&self) -> Order {
        self.header.order
    }

    fn slice(&self, at: usize, length: usize) -> Result<&'a [u8]> {
        let mut reader = Reader::new(STRUCTURE, self.bytes, self.header.order);
        reader.seek(at);
        reader.bytes(length)
    }

    fn find_variable(&self, wanted: Attribute) -> Result<Option<&'a [u8]>> {
        let mut found = None;
        self.visit_each(&mut |step, bytes| {
            found = if step.attribute == Some(wanted) { Some(bytes) } else { None };
            found.is_none()
        })?;
        Ok(found)
    }

    /// All attributes in their order, also unknown ones; numbers least significant byte
    /// first.
    pub fn values(&self) -> Result<Vec<Value>> {
        let mut out = Vec::with_capacity(self.layout.steps.len());
        self.visit_each(&mut |step, bytes| {
            let bytes = build::to_little(step.registration.swap, bytes, self.header.order);
            out.push(Value { attribute: step.attribute, registration: step.registration, bytes });
            true
        })?;
        Ok(out)
    }

    /// Calls `visit` for each attribute until it returns false.
    fn visit_each(&self, visit: &mut dyn FnMut(&Step, &'a [u8]) -> bool) -> Result<()> {
        let mut at = self.header.size;
        let mut lengths = Reader::new(STRUCTURE, self.bytes, self.header.order);
        lengths.seek(6);
        for step in &self.layout.steps {
            let length = match step.registration.length {
                0 if lengths.position() >= self.header.size => {
                    let found = u64::try_from(lengths.position()).unwrap_or(u64::MAX);
                    return Err(lengths.corrupt_field(0, "the header holds every length", found));
                }
                0 => usize::from(lengths.u16()?),
                fixed => usize::from(fixed),
            };
            if !visit(step, self.slice(at, length)?) {
                break;
            }
            at = at.saturating_add(length).next_multiple_of(8);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
