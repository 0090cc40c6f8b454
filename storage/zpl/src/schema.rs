//! How a dataset lays out its files' attributes: its registry and its layouts.
//!
//! Both are read once. Layouts are added, and never change or go.

use std::sync::OnceLock;

use dmu::Objset;
use ondisk::sa::{Attribute, Attributes, Header, Layout, Registered, Registry, Value};
use ondisk::{ObjectType, Order};
use parking_lot::Mutex;
use units::ObjectId;
use zap::Zap;

use crate::Result;

/// Numbers of layouts have ten bits.
const MOST_LAYOUTS: usize = 1024;
/// Layouts 0 and 1 are of the format, and in no table.
const FIRST_LAYOUT: u16 = 2;
/// The layout of a legacy znode; it is in no table.
pub(crate) const ZNODE: std::ops::Range<u16> = 0..16;

type Slot = OnceLock<Box<std::result::Result<Layout, ondisk::Error>>>;

/// The layouts of a dataset by their number. One that cannot be understood is kept as its error.
#[derive(Debug)]
pub(crate) struct Schema {
    layouts: Box<[Slot]>,
    znode: Layout,
    registry: Registry,
    /// The version of the file system.
    pub(crate) version: u64,
    pub(crate) tables: Mutex<Tables>,
}

/// Where the two tables are; objects that do not exist are 0.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    /// The table of the two.
    pub(crate) master: ObjectId,
    pub(crate) registry: ObjectId,
    pub(crate) layouts: ObjectId,
    /// Attributes that have a number which is not in the registry yet.
    pub(crate) new: Vec<(Attribute, Registered)>,
}

impl Schema {
    /// A dataset's whose tables are empty.
    pub(crate) fn blank(version: u64, master: ObjectId) -> Self {
        let new = (0..).zip(Attribute::ALL).map(|(at, one)| (*one, one.registered(at))).collect();
        Self::new(version, Registry::standard(), Tables { master, new, ..Tables::default() })
    }

    fn new(version: u64, registry: Registry, tables: Tables) -> Self {
        let layouts = std::iter::repeat_with(Slot::new).take(MOST_LAYOUTS).collect();
        let znode: Vec<u16> = ZNODE.collect();
        let znode = Registry::standard().layout(&znode).unwrap_or_default();
        let schema = Self { layouts, znode, registry, version, tables: Mutex::new(tables) };
        schema.put(1, Ok(Layout::default()));
        schema
    }

    /// Reads the two tables that the object names; none if there is no such object.
    pub(crate) fn read(objset: &Objset, version: u64, master: ObjectId) -> Result<Self> {
        if !master.exists() {
            return Ok(Self::blank(version, master));
        }
        let names = Zap::open(objset.object(master)?)?;
        let object = |name: &[u8]| names.lookup_u64(name).map(|id| ObjectId::new(id.unwrap_or(0)));
        let (registry, layouts) = (object(b"REGISTRY")?, object(b"LAYOUTS")?);
        let mut schema = Self::blank(version, master);
        if registry.exists() {
            let mut known = read_registry(objset, registry)?;
            let new = known.complete();
            schema = Self::new(version, known, Tables { master, registry, layouts, new });
        }
        schema.tables.get_mut().layouts = layouts;
        if layouts.exists() {
            schema.read_layouts(&Zap::open(objset.object(layouts)?)?)?;
        }
        Ok(schema)
    }

    fn read_layouts(&self, table: &Zap) -> Result<()> {
        for entry in table.entries() {
            let entry = entry?;
            let number = std::str::from_utf8(&entry.name).ok().and_then(|text| text.parse().ok());
            let Some(number) = number else { continue };
            let attributes: Vec<u16> = entry
                .value
                .u64s()
                .iter()
                .map(|word| u16::try_from(*word).unwrap_or(u16::MAX))
                .collect();
            self.put(number, self.registry.layout(&attributes));
        }
        Ok(())
    }

    pub(crate) fn put(&self, number: u16, layout: std::result::Result<Layout, ondisk::Error>) {
        if let Some(slot) = self.layouts.get(usize::from(number)) {
            // the first of a number counts
            drop(slot.set(Box::new(layout)));
        }
    }

    /// What the dataset's registry says, or will say, of an attribute.
    pub(crate) fn registered(&self, attribute: Attribute) -> Registered {
        let number = self.registry.number(attribute).unwrap_or(attribute as u16);
        self.registry.registered(number).unwrap_or(attribute.registered(number))
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The number of the layout that has just these attributes.
    pub(crate) fn find(&self, values: &[Value]) -> Option<u16> {
        let is = |slot: &Slot| match slot.get().map(|layout| &**layout) {
            Some(Ok(layout)) => layout.is(values.iter().map(|value| value.registered.number)),
            _ => false,
        };
        let numbered = self.layouts.iter().enumerate().skip(usize::from(FIRST_LAYOUT));
        let mut used = numbered.take_while(|(_, slot)| slot.get().is_some());
        used.find(|(_, slot)| is(slot)).and_then(|(number, _)| u16::try_from(number).ok())
    }

    /// The first number that no layout has.
    pub(crate) fn free_number(&self) -> Option<u16> {
        let mut numbered = self.layouts.iter().enumerate().skip(usize::from(FIRST_LAYOUT));
        let free = numbered.find(|(_, slot)| slot.get().is_none())?;
        u16::try_from(free.0).ok()
    }

    /// The attributes in a bonus buffer or a spill block.
    pub(crate) fn attributes<'a>(&'a self, bytes: &'a [u8]) -> ondisk::Result<Attributes<'a>> {
        let header = Header::parse(bytes)?;
        match self.layouts.get(usize::from(header.layout)).and_then(OnceLock::get).map(|one| &**one)
        {
            Some(Ok(layout)) => Ok(Attributes::new(bytes, header, layout)),
            Some(Err(why)) => Err(why.clone()),
            None => Err(ondisk::Error::Unknown {
                what: "system attributes",
                field: "layout",
                found: header.layout.into(),
            }),
        }
    }

    /// The attributes in a bonus buffer of whatever kind, in a block of that order.
    pub(crate) fn bonus<'a>(
        &'a self,
        kind: ObjectType,
        bytes: &'a [u8],
        order: Order,
    ) -> ondisk::Result<Attributes<'a>> {
        match kind {
            ObjectType::SA => self.attributes(bytes),
            _ => Ok(Attributes::new(bytes, Header { layout: 0, size: 0, order }, &self.znode)),
        }
    }
}

fn read_registry(objset: &Objset, object: ObjectId) -> Result<Registry> {
    let mut registry = Registry::default();
    for entry in Zap::open(objset.object(object)?)?.entries() {
        let entry = entry?;
        if let Some(word) = entry.value.u64() {
            registry.register(&entry.name, word);
        }
    }
    Ok(registry)
}
