//! All attributes of a file, taken out of its bonus and spill, to be changed and put back.
//!
//! Which attributes there are, and how long, decides on the layouts; these are found or made
//! before the transaction begins ([`SaTable::resolve_layouts`]). Within it only numbers change, and are put
//! back by [`SaTable::store`].

use std::sync::Arc;

use dmu::Object;
use ondisk::acl::ZnodeAcl;
use ondisk::dnode::Dnode;
use ondisk::sa::{self, Attribute, Value};
use ondisk::znode::{Znode, device, flag};
use ondisk::{Blkptr, ObjectType};
use posix::{FileType, Time};
use txg::Tx;
use units::{MinusOrZero, ObjectId, Txg};

use crate::attributes::AttributeError;
use crate::new_znode::FUID_VERSION;
use crate::sa_schema::{self, SaSchema};
use crate::{Result, ZnodeAttributes};

/// The largest spill block.
const MAX_SPILL: usize = 128 << 10;

/// The attributes of every file, and their lengths.
const REQUIRED_ATTRIBUTES: [(Attribute, usize); 12] = [
    (Attribute::Mode, 8),
    (Attribute::Size, 8),
    (Attribute::Gen, 8),
    (Attribute::Uid, 8),
    (Attribute::Gid, 8),
    (Attribute::Parent, 8),
    (Attribute::Flags, 8),
    (Attribute::Links, 8),
    (Attribute::Atime, 16),
    (Attribute::Mtime, 16),
    (Attribute::Ctime, 16),
    (Attribute::Crtime, 16),
];

/// All attributes of a file.
#[derive(Clone, Debug)]
pub(crate) struct SaTable {
    schema: Arc<SaSchema>,
    /// The kind of the bonus: SA, or a legacy znode.
    bonus_kind: ObjectType,
    values: Vec<Value>,
    /// The bytes after a legacy znode.
    znode_tail: Vec<u8>,
    /// Bytes that the bonus may have.
    bonus_capacity: usize,
    /// How many of the values are in the bonus; the rest is in the spill block.
    bonus_count: usize,
    /// The layouts of bonus and spill; `None` where they are to be found yet.
    layouts: Option<[u16; 2]>,
    /// The spill block as it is stored now; empty if there is none.
    stored_spill: Vec<u8>,
}

/// The most bonus bytes in a dnode with these numbers of slots and pointers.
pub(crate) fn bonus_capacity(slots: u8, pointers: usize) -> usize {
    let all = (usize::from(slots) * Dnode::SLOT) - Dnode::CORE;
    all - (pointers * Blkptr::SIZE)
}

impl SaTable {
    /// The attributes of a new file with a dnode of this many slots.
    pub(crate) fn new(schema: &Arc<SaSchema>, bonus_kind: ObjectType, slots: u8) -> Self {
        let schema = Arc::clone(schema);
        let bonus_capacity = bonus_capacity(slots, 1);
        let (values, znode_tail, stored_spill) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            schema,
            bonus_kind,
            values,
            znode_tail,
            bonus_capacity,
            bonus_count: 0,
            layouts: None,
            stored_spill,
        }
    }

    /// A legacy znode, its four times the same.
    pub(crate) fn new_znode(
        schema: &Arc<SaSchema>,
        attributes: &ZnodeAttributes,
        now: Time,
        rdev: u64,
        acl: &ZnodeAcl,
    ) -> Self {
        let word = |attribute| match attribute {
            Attribute::Gen => attributes.generation.get(),
            Attribute::Mode => {
                u64::from(attributes.kind.type_bits()) << 12 | u64::from(attributes.mode)
            }
            Attribute::Size => attributes.size,
            Attribute::Parent => attributes.parent.get(),
            Attribute::Links => attributes.nlink,
            Attribute::Rdev => rdev,
            Attribute::Flags => attributes.flags,
            Attribute::Uid => attributes.owner,
            Attribute::Gid => attributes.group,
            _ => 0,
        };
        let bytes = |attribute: Attribute| match attribute {
            Attribute::ZnodeAcl => acl.encode().to_vec(),
            attribute if attribute.length() == 16 => now.to_words().map(u64::to_le_bytes).concat(),
            attribute => {
                let mut bytes = word(attribute).to_le_bytes().to_vec();
                bytes.resize(attribute.length().into(), 0);
                bytes
            }
        };
        let legacy = Attribute::ALL.iter().zip(sa_schema::ZNODE_ATTRIBUTES);
        let values = legacy.map(|(known, number)| {
            let (registered, bytes) = (known.registration(number), bytes(*known));
            Value { attribute: Some(*known), registration: registered, bytes }
        });
        Self { values: values.collect(), ..Self::new(schema, ObjectType::ZNODE, 1) }
    }

    /// The attributes of an object.
    pub(crate) fn load(
        object: &Object,
        schema: &Arc<SaSchema>,
    ) -> std::result::Result<Self, AttributeError> {
        let dnode = object.dnode();
        let kind = dnode.bonus_kind;
        if !matches!(kind, ObjectType::SA | ObjectType::ZNODE) {
            return Err(AttributeError::Rule("a file must have attributes"));
        }
        let space = bonus_capacity(dnode.slots, dnode.pointers.len());
        let bonus = schema.parse_bonus(kind, &dnode.bonus, dnode.order)?;
        let values = bonus.values()?;
        let mut sheet =
            Self { values, bonus_capacity: space, ..Self::new(schema, kind, dnode.slots) };
        sheet.bonus_count = sheet.values.len();
        sheet.layouts = Some([bonus.layout_number(), 0]);
        if kind == ObjectType::ZNODE {
            sheet.znode_tail = dnode.bonus.get(Znode::SIZE..).unwrap_or(&[]).to_vec();
        } else if let Some(block) = object.spill()? {
            let spill = schema.parse_attributes(&block)?;
            sheet.values.extend(spill.values()?);
            sheet.layouts = Some([bonus.layout_number(), spill.layout_number()]);
            sheet.stored_spill = block.to_vec();
        }
        let has = |(attribute, size): &(Attribute, usize)| {
            sheet.bytes(*attribute).is_some_and(|bytes| bytes.len() == *size)
        };
        if REQUIRED_ATTRIBUTES.iter().all(has) {
            return Ok(sheet);
        }
        Err(AttributeError::Rule("a file must have all attributes that every file has"))
    }

    /// Whether it is a legacy znode, which has a fixed set of attributes.
    pub(crate) fn is_legacy(&self) -> bool {
        self.bonus_kind == ObjectType::ZNODE
    }

    /// Slots that its dnode takes.
    pub(crate) fn slots(&self) -> u8 {
        let bytes = (self.bonus_capacity + Blkptr::SIZE) + Dnode::CORE;
        units::narrow::<u8>(bytes / Dnode::SLOT)
    }

    /// Whether this many bytes fit after a legacy znode.
    pub(crate) fn fits_in_tail(&self, bytes: usize) -> bool {
        Znode::SIZE + bytes <= self.bonus_capacity
    }

    /// The object that a legacy file's ACL is in, if it is in one.
    pub(crate) fn external_acl(&self) -> Option<ObjectId> {
        let acl = self.bytes(Attribute::ZnodeAcl)?;
        let word = acl.first_chunk().map(|word| u64::from_le_bytes(*word))?;
        Some(ObjectId::new(word)).filter(|object| object.exists())
    }

    /// The type of the bonus.
    pub(crate) fn bonus_kind(&self) -> ObjectType {
        self.bonus_kind
    }

    fn find_value(&self, attribute: Attribute) -> Option<&Value> {
        self.values.iter().find(|value| value.attribute == Some(attribute))
    }

    /// The bytes of an attribute.
    pub(crate) fn bytes(&self, attribute: Attribute) -> Option<&[u8]> {
        self.find_value(attribute).map(|value| value.bytes.as_slice())
    }

    fn words<const N: usize>(&self, attribute: Attribute) -> Option<[u64; N]> {
        let bytes = self.bytes(attribute)?;
        let mut out = [0; N];
        for (word, bytes) in out.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Some(out)
    }

    /// An attribute that is one number; 0 where it is not there.
    pub(crate) fn word(&self, attribute: Attribute) -> u64 {
        self.words::<1>(attribute).map_or(0, |[word]| word)
    }

    /// An attribute that is a moment.
    pub(crate) fn time(&self, attribute: Attribute) -> Time {
        self.words(attribute).map(Time::from_words).unwrap_or_default()
    }

    /// Sets an attribute; one that was not there comes last. False where a legacy znode has none.
    pub(crate) fn set(&mut self, attribute: Attribute, bytes: Vec<u8>) -> bool {
        if let Some(value) = self.values.iter_mut().find(|value| value.attribute == Some(attribute))
        {
            if value.bytes.len() != bytes.len() {
                assert!(self.bonus_kind != ObjectType::ZNODE, "a legacy znode has fixed places");
                self.layouts = None;
            }
            value.bytes = bytes;
            return true;
        }
        if self.is_legacy() {
            return false;
        }
        let registered = self.schema.registered(attribute);
        self.values.push(Value { attribute: Some(attribute), registration: registered, bytes });
        self.layouts = None;
        true
    }

    pub(crate) fn set_word(&mut self, attribute: Attribute, word: u64) -> bool {
        self.set_bytes(attribute, &word.to_le_bytes())
    }

    pub(crate) fn set_time(&mut self, attribute: Attribute, time: Time) -> bool {
        let [seconds, rest] = time.to_words();
        self.set_bytes(attribute, [seconds.to_le_bytes(), rest.to_le_bytes()].as_flattened())
    }

    /// The same as [`SaTable::set`]; a value of the same length is written in place.
    fn set_bytes(&mut self, attribute: Attribute, bytes: &[u8]) -> bool {
        let known = self.values.iter_mut().find(|value| value.attribute == Some(attribute));
        match known.filter(|value| value.bytes.len() == bytes.len()) {
            Some(value) => {
                value.bytes.copy_from_slice(bytes);
                true
            }
            None => self.set(attribute, bytes.to_vec()),
        }
    }

    /// Sets a legacy file's ACL.
    pub(crate) fn set_legacy_acl(&mut self, acl: &ZnodeAcl) {
        self.set(Attribute::ZnodeAcl, acl.encode().to_vec());
    }

    /// Puts an attribute that is to stand at a fixed place right behind another one.
    pub(crate) fn insert_after(&mut self, (attribute, word): (Attribute, u64), before: Attribute) {
        let registered = self.schema.registered(attribute);
        let known = Some(attribute);
        let value = Value {
            attribute: known,
            registration: registered,
            bytes: word.to_le_bytes().to_vec(),
        };
        let at = self.values.iter().position(|value| value.attribute == Some(before));
        let at = at.map_or(self.values.len(), |at| at + 1);
        self.values.insert(at.min(self.values.len()), value);
        self.layouts = None;
    }

    /// The bytes after a legacy znode.
    pub(crate) fn set_znode_tail(&mut self, tail: Vec<u8>) {
        self.znode_tail = tail;
    }

    /// Whether the attributes, as many and as long as they are, can be stored.
    pub(crate) fn fits_in_spill(&self) -> bool {
        let longest = self.values.iter().map(|value| value.bytes.len()).max();
        let all: usize =
            self.values.iter().map(|value| value.bytes.len().next_multiple_of(8)).sum();
        longest <= Some(u16::MAX.into()) && all <= MAX_SPILL - 512
    }

    /// Finds the layouts; `add` creates those that the dataset does not have.
    pub(crate) fn resolve_layouts(
        &mut self,
        add: &mut dyn FnMut(&[Value]) -> Result<u16>,
    ) -> Result<()> {
        if self.layouts.is_some() || self.is_legacy() {
            return Ok(());
        }
        self.bonus_count = sa::count_fitting(&self.values, self.bonus_capacity);
        if self.bonus_count < self.values.len() {
            self.bonus_count =
                sa::count_fitting(&self.values, self.bonus_capacity.minus_or_zero(Blkptr::SIZE));
        }
        assert!(self.bonus_count <= self.values.len(), "only values that exist are in the bonus");
        let (bonus, spill) = self.values.split_at_checked(self.bonus_count).unwrap_or((&[], &[]));
        let mut layout = |values: &[Value]| match self.schema.find_layout(values) {
            _ if values.is_empty() => Ok(1),
            Some(number) => Ok(number),
            None => add(values),
        };
        self.layouts = Some([layout(bonus)?, layout(spill)?]);
        Ok(())
    }

    /// The bonus buffer.
    pub(crate) fn encode_bonus(&self) -> Vec<u8> {
        if self.is_legacy() {
            let mut out: Vec<u8> =
                self.values.iter().flat_map(|value| value.bytes.clone()).collect();
            out.extend_from_slice(&self.znode_tail);
            return out;
        }
        let layouts = self.layouts;
        assert!(layouts.is_some(), "layouts are found before the transaction begins");
        let [layout, _] = layouts.unwrap_or_default();
        let bonus = sa::encode(layout, self.values.get(..self.bonus_count).unwrap_or(&[]));
        let (length, capacity) = (bonus.len(), self.bonus_capacity);
        assert!(length <= capacity, "attributes of {length} bytes fit a bonus of {capacity}");
        bonus
    }

    /// The spill block; empty if there is none.
    fn encode_spill(&self) -> Vec<u8> {
        let rest = self.values.get(self.bonus_count..).unwrap_or(&[]);
        if rest.is_empty() || self.is_legacy() {
            return Vec::new();
        }
        let [_, layout] = self.layouts.unwrap_or_default();
        let mut out = sa::encode(layout, rest);
        out.resize(out.len().next_multiple_of(512), 0);
        out
    }

    /// Puts them back.
    pub(crate) fn store(&mut self, tx: &Tx, object: &Object) -> Result<()> {
        object.set_bonus(tx, self.bonus_kind, &self.encode_bonus())?;
        let spill = self.encode_spill();
        if spill == self.stored_spill {
            return Ok(());
        }
        object.set_spill(tx, if spill.is_empty() { None } else { Some(&spill) })?;
        self.stored_spill = spill;
        Ok(())
    }

    /// Marks its content as changed.
    pub(crate) fn touch_mtime(&mut self, now: Time) {
        self.set_time(Attribute::Mtime, now);
        self.touch_with_flags(now, flag::ARCHIVE | flag::AV_MODIFIED);
    }

    /// Something about it changed.
    pub(crate) fn touch_ctime(&mut self, now: Time) {
        self.touch_with_flags(now, flag::ARCHIVE);
    }

    fn touch_with_flags(&mut self, now: Time, flags: u64) {
        self.set_time(Attribute::Ctime, now);
        if self.schema.version >= FUID_VERSION {
            self.set_flags(flags, true);
        }
    }

    /// Sets or clears flags.
    pub(crate) fn set_flags(&mut self, flags: u64, on: bool) {
        let old = self.word(Attribute::Flags);
        self.set_word(Attribute::Flags, if on { old | flags } else { old & !flags });
    }

    /// Adds to a number, which never goes below 0.
    pub(crate) fn add_to_word(&mut self, attribute: Attribute, delta: i64) {
        let sum = self.word(attribute).saturating_add_signed(delta);
        self.set_word(attribute, sum);
    }

    /// The identity of the file, for errors.
    pub(crate) fn file_type(&self) -> FileType {
        FileType::from_type_bits((self.word(Attribute::Mode) >> 12 & 0xf) as u8)
    }

    /// Type and permissions.
    pub(crate) fn mode(&self) -> u32 {
        units::narrow::<u32>(self.word(Attribute::Mode) & 0xffff)
    }

    /// Whether one of the flags is set.
    pub(crate) fn has_flag(&self, flags: u64) -> bool {
        self.word(Attribute::Flags) & flags != 0
    }

    /// The attributes as files show them.
    pub(crate) fn attributes(&self) -> ZnodeAttributes {
        let mut out = ZnodeAttributes::empty();
        out.set_mode(self.word(Attribute::Mode));
        out.set_owner(self.word(Attribute::Uid));
        out.set_group(self.word(Attribute::Gid));
        out.size = self.word(Attribute::Size);
        out.nlink = self.word(Attribute::Links);
        out.flags = self.word(Attribute::Flags);
        out.generation = Txg::new(self.word(Attribute::Gen));
        out.parent = ObjectId::new(self.word(Attribute::Parent));
        out.xattr_dir = ObjectId::new(self.word(Attribute::Xattr));
        out.rdev = device(self.word(Attribute::Rdev));
        out.project_id = if self.has_flag(flag::PROJID) { self.word(Attribute::Projid) } else { 0 };
        out.atime = self.time(Attribute::Atime);
        out.mtime = self.time(Attribute::Mtime);
        out.ctime = self.time(Attribute::Ctime);
        out.crtime = self.time(Attribute::Crtime);
        out
    }
}
