//! All attributes of a file, taken out of its bonus and spill, to be changed and put back.
//!
//! Which attributes there are, and how long, decides on the layouts; these are found or made
//! before the transaction begins ([`Sheet::settle`]). Within it only numbers change, and are put
//! back by [`Sheet::store`].

use std::sync::Arc;

use dmu::Object;
use ondisk::acl::ZnodeAcl;
use ondisk::dnode::Dnode;
use ondisk::sa::{self, Attribute, Value};
use ondisk::znode::{Time, Znode, device, flag};
use ondisk::{Blkptr, ObjectType};
use txg::Tx;
use units::{ObjectId, Txg};

use crate::attributes::Fault;
use crate::birth::FUID_VERSION;
use crate::schema::{self, Schema};
use crate::{Attributes, Kind, Result};

/// The largest spill block.
const LARGEST_SPILL: usize = 128 << 10;

/// What every file has, and how long it is.
const ALWAYS: [(Attribute, usize); 12] = [
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
pub(crate) struct Sheet {
    schema: Arc<Schema>,
    /// What the bonus is: SA, or a legacy znode.
    kind: ObjectType,
    values: Vec<Value>,
    /// What stands behind a legacy znode.
    tail: Vec<u8>,
    /// Bytes that the bonus may have.
    space: usize,
    /// How many of the values are in the bonus; the rest is in the spill block.
    split: usize,
    /// The layouts of bonus and spill; `None` where they are to be found yet.
    layouts: Option<[u16; 2]>,
    /// The spill block as it is stored now; empty if there is none.
    spill: Vec<u8>,
}

/// Bytes of bonus that a dnode of so many slots can have beside so many pointers.
pub(crate) fn bonus_space(slots: u8, pointers: usize) -> usize {
    let all = usize::from(slots).saturating_mul(Dnode::SLOT).saturating_sub(Dnode::CORE);
    all.saturating_sub(pointers.saturating_mul(Blkptr::SIZE))
}

impl Sheet {
    /// Of a file that is to be made with a dnode of so many slots.
    pub(crate) fn new(schema: &Arc<Schema>, kind: ObjectType, slots: u8) -> Self {
        let schema = Arc::clone(schema);
        let space = bonus_space(slots, 1);
        let (values, tail, spill) = (Vec::new(), Vec::new(), Vec::new());
        Self { schema, kind, values, tail, space, split: 0, layouts: None, spill }
    }

    /// A legacy znode, its four times the same.
    pub(crate) fn znode(
        schema: &Arc<Schema>,
        attributes: &Attributes,
        now: Time,
        rdev: u64,
        acl: &ZnodeAcl,
    ) -> Self {
        let word = |attribute| match attribute {
            Attribute::Gen => attributes.generation.get(),
            Attribute::Mode => {
                u64::from(attributes.kind.number()) << 12 | u64::from(attributes.mode)
            }
            Attribute::Size => attributes.size,
            Attribute::Parent => attributes.parent.get(),
            Attribute::Links => attributes.links,
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
        let legacy = Attribute::ALL.iter().zip(schema::ZNODE);
        let values = legacy.map(|(known, number)| {
            let (registered, bytes) = (known.registered(number), bytes(*known));
            Value { known: Some(*known), registered, bytes }
        });
        Self { values: values.collect(), ..Self::new(schema, ObjectType::ZNODE, 1) }
    }

    /// What an object has.
    pub(crate) fn load(object: &Object, schema: &Arc<Schema>) -> std::result::Result<Self, Fault> {
        let dnode = object.dnode();
        let kind = dnode.bonus_kind;
        if !matches!(kind, ObjectType::SA | ObjectType::ZNODE) {
            return Err(Fault::Rule("a file must have attributes"));
        }
        let space = bonus_space(dnode.slots, dnode.pointers.len());
        let bonus = schema.bonus(kind, &dnode.bonus, dnode.order)?;
        let values = bonus.values()?;
        let mut sheet = Self { values, space, ..Self::new(schema, kind, dnode.slots) };
        sheet.split = sheet.values.len();
        sheet.layouts = Some([bonus.layout_number(), 0]);
        if kind == ObjectType::ZNODE {
            sheet.tail = dnode.bonus.get(Znode::SIZE..).unwrap_or(&[]).to_vec();
        } else if let Some(block) = object.spill()? {
            let spill = schema.attributes(&block)?;
            sheet.values.extend(spill.values()?);
            sheet.layouts = Some([bonus.layout_number(), spill.layout_number()]);
            sheet.spill = block.to_vec();
        }
        let has = |(attribute, size): &(Attribute, usize)| {
            sheet.bytes(*attribute).is_some_and(|bytes| bytes.len() == *size)
        };
        if ALWAYS.iter().all(has) {
            return Ok(sheet);
        }
        Err(Fault::Rule("a file must have all attributes that every file has"))
    }

    /// Whether it is a legacy znode, which has a fixed set of attributes.
    pub(crate) fn is_legacy(&self) -> bool {
        self.kind == ObjectType::ZNODE
    }

    /// Slots that its dnode takes.
    pub(crate) fn slots(&self) -> u8 {
        let bytes = self.space.saturating_add(Blkptr::SIZE).saturating_add(Dnode::CORE);
        u8::try_from(bytes / Dnode::SLOT).unwrap_or(1)
    }

    /// Whether so many bytes have room behind a legacy znode.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        Znode::SIZE.saturating_add(bytes) <= self.space
    }

    /// The object that a legacy file's ACL is in, if it is in one.
    pub(crate) fn external_acl(&self) -> Option<ObjectId> {
        let acl = self.bytes(Attribute::ZnodeAcl)?;
        let word = acl.first_chunk().map(|word| u64::from_le_bytes(*word))?;
        Some(ObjectId::new(word)).filter(|object| object.exists())
    }

    /// What the bonus is made of.
    pub(crate) fn kind(&self) -> ObjectType {
        self.kind
    }

    fn find(&self, attribute: Attribute) -> Option<&Value> {
        self.values.iter().find(|value| value.known == Some(attribute))
    }

    /// The bytes of an attribute.
    pub(crate) fn bytes(&self, attribute: Attribute) -> Option<&[u8]> {
        self.find(attribute).map(|value| value.bytes.as_slice())
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
        if let Some(value) = self.values.iter_mut().find(|value| value.known == Some(attribute)) {
            if value.bytes.len() != bytes.len() {
                self.layouts = None;
            }
            value.bytes = bytes;
            return true;
        }
        if self.is_legacy() {
            return false;
        }
        let registered = self.schema.registered(attribute);
        self.values.push(Value { known: Some(attribute), registered, bytes });
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

    /// The same as [`Sheet::set`]; what has the same length is written where it is.
    fn set_bytes(&mut self, attribute: Attribute, bytes: &[u8]) -> bool {
        let known = self.values.iter_mut().find(|value| value.known == Some(attribute));
        match known.filter(|value| value.bytes.len() == bytes.len()) {
            Some(value) => {
                value.bytes.copy_from_slice(bytes);
                true
            }
            None => self.set(attribute, bytes.to_vec()),
        }
    }

    /// Sets a legacy file's ACL.
    pub(crate) fn put_legacy_acl(&mut self, acl: &ZnodeAcl) {
        self.set(Attribute::ZnodeAcl, acl.encode().to_vec());
    }

    /// Puts an attribute that is to stand at a fixed place right behind another one.
    pub(crate) fn set_behind(&mut self, (attribute, word): (Attribute, u64), before: Attribute) {
        let registered = self.schema.registered(attribute);
        let known = Some(attribute);
        let value = Value { known, registered, bytes: word.to_le_bytes().to_vec() };
        let at = self.values.iter().position(|value| value.known == Some(before));
        let at = at.map_or(self.values.len(), |at| at.saturating_add(1));
        self.values.insert(at.min(self.values.len()), value);
        self.layouts = None;
    }

    /// What stands behind a legacy znode.
    pub(crate) fn set_tail(&mut self, tail: Vec<u8>) {
        self.tail = tail;
    }

    /// Whether the attributes, as many and as long as they are, can be stored.
    pub(crate) fn fits(&self) -> bool {
        let longest = self.values.iter().map(|value| value.bytes.len()).max();
        let all: usize =
            self.values.iter().map(|value| value.bytes.len().next_multiple_of(8)).sum();
        longest <= Some(u16::MAX.into()) && all <= LARGEST_SPILL.saturating_sub(512)
    }

    /// Finds the layouts; those that the dataset has none of are made by `add`.
    pub(crate) fn settle(&mut self, add: &mut dyn FnMut(&[Value]) -> Result<u16>) -> Result<()> {
        if self.layouts.is_some() || self.is_legacy() {
            return Ok(());
        }
        self.split = sa::fitting(&self.values, self.space);
        if self.split < self.values.len() {
            self.split = sa::fitting(&self.values, self.space.saturating_sub(Blkptr::SIZE));
        }
        let (bonus, spill) = self.values.split_at_checked(self.split).unwrap_or((&[], &[]));
        let mut layout = |values: &[Value]| match self.schema.find(values) {
            _ if values.is_empty() => Ok(1),
            Some(number) => Ok(number),
            None => add(values),
        };
        self.layouts = Some([layout(bonus)?, layout(spill)?]);
        Ok(())
    }

    /// The bonus buffer.
    pub(crate) fn bonus(&self) -> Vec<u8> {
        if self.is_legacy() {
            let mut out: Vec<u8> =
                self.values.iter().flat_map(|value| value.bytes.clone()).collect();
            out.extend_from_slice(&self.tail);
            return out;
        }
        let layouts = self.layouts;
        assert!(layouts.is_some(), "layouts are found before the transaction begins");
        let [layout, _] = layouts.unwrap_or_default();
        sa::encode(layout, self.values.get(..self.split).unwrap_or(&[]))
    }

    /// The spill block; empty if there is none.
    fn spill(&self) -> Vec<u8> {
        let rest = self.values.get(self.split..).unwrap_or(&[]);
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
        object.set_bonus(tx, self.kind, &self.bonus())?;
        let spill = self.spill();
        if spill == self.spill {
            return Ok(());
        }
        object.set_spill(tx, if spill.is_empty() { None } else { Some(&spill) })?;
        self.spill = spill;
        Ok(())
    }

    /// Its content changed.
    pub(crate) fn touch_content(&mut self, now: Time) {
        self.set_time(Attribute::Mtime, now);
        self.touch(now, flag::ARCHIVE | flag::AV_MODIFIED);
    }

    /// Something about it changed.
    pub(crate) fn touch_status(&mut self, now: Time) {
        self.touch(now, flag::ARCHIVE);
    }

    fn touch(&mut self, now: Time, flags: u64) {
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
    pub(crate) fn add(&mut self, attribute: Attribute, delta: i64) {
        let sum = self.word(attribute).saturating_add_signed(delta);
        self.set_word(attribute, sum);
    }

    /// What file it is.
    pub(crate) fn file_kind(&self) -> Kind {
        Kind::from_number((self.word(Attribute::Mode) >> 12 & 0xf) as u8)
    }

    /// Type and permissions.
    pub(crate) fn mode(&self) -> u32 {
        u32::try_from(self.word(Attribute::Mode) & 0xffff).unwrap_or(0)
    }

    /// Whether one of the flags is set.
    pub(crate) fn has_flag(&self, flags: u64) -> bool {
        self.word(Attribute::Flags) & flags != 0
    }

    /// The attributes as files show them.
    pub(crate) fn attributes(&self) -> Attributes {
        let mut out = Attributes::blank();
        out.set_mode(self.word(Attribute::Mode));
        out.set_owner(self.word(Attribute::Uid));
        out.set_group(self.word(Attribute::Gid));
        out.size = self.word(Attribute::Size);
        out.links = self.word(Attribute::Links);
        out.flags = self.word(Attribute::Flags);
        out.generation = Txg::new(self.word(Attribute::Gen));
        out.parent = ObjectId::new(self.word(Attribute::Parent));
        out.xattr_dir = ObjectId::new(self.word(Attribute::Xattr));
        out.rdev = device(self.word(Attribute::Rdev));
        out.project = if self.has_flag(flag::PROJID) { self.word(Attribute::Projid) } else { 0 };
        out.atime = self.time(Attribute::Atime);
        out.mtime = self.time(Attribute::Mtime);
        out.ctime = self.time(Attribute::Ctime);
        out.crtime = self.time(Attribute::Crtime);
        out
    }
}
