//! How a dataset lays out its files' attributes: its registry and its layouts.
//!
//! Both are read once. Layouts are added, and never change or go.

use std::sync::OnceLock;

use dmu::Objset;
use ondisk::sa::{Attribute, Attributes, Header, Layout, Registration, Registry, Value};
use ondisk::{ObjectType, Order};
use parking_lot::Mutex;
use units::ObjectId;
use zap::Zap;

use crate::Result;
use crate::chunked_table::ChunkedTable;

/// Numbers of layouts have ten bits.
const MAX_LAYOUTS: u16 = 1024;
/// Layouts 0 and 1 are of the format, and in no table.
const FIRST_LAYOUT: u16 = 2;
/// The layout of a legacy znode; it is in no table.
pub(crate) const ZNODE_ATTRIBUTES: std::ops::Range<u16> = 0..16;

type LayoutSlot = OnceLock<Box<std::result::Result<Layout, ondisk::Error>>>;

/// The layouts of a dataset by their number. One that cannot be understood is kept as its error.
#[derive(Debug)]
pub(crate) struct SaSchema {
    layouts: ChunkedTable<LayoutSlot>,
    znode_layout: Layout,
    registry: Registry,
    /// The version of the file system.
    pub(crate) version: u64,
    pub(crate) objects: Mutex<SaObjects>,
}

/// Where the two tables are; objects that do not exist are 0.
#[derive(Debug, Default)]
pub(crate) struct SaObjects {
    /// The table of the two.
    pub(crate) master: ObjectId,
    pub(crate) registry: ObjectId,
    pub(crate) layouts: ObjectId,
    /// Attributes that have a number which is not in the registry yet.
    pub(crate) unregistered: Vec<(Attribute, Registration)>,
}

impl SaSchema {
    /// The schema of a dataset with empty tables.
    pub(crate) fn empty(version: u64, master: ObjectId) -> Self {
        let new = (0..).zip(Attribute::ALL).map(|(at, one)| (*one, one.registration(at))).collect();
        Self::new(
            version,
            Registry::standard(),
            SaObjects { master, unregistered: new, ..SaObjects::default() },
        )
    }

    fn new(version: u64, registry: Registry, tables: SaObjects) -> Self {
        let layouts = ChunkedTable::new(usize::from(MAX_LAYOUTS));
        let znode: Vec<u16> = ZNODE_ATTRIBUTES.collect();
        let znode = Registry::standard().layout(&znode).unwrap_or_default();
        let schema =
            Self { layouts, znode_layout: znode, registry, version, objects: Mutex::new(tables) };
        schema.set_layout(1, Ok(Layout::default()));
        schema
    }

    /// Reads the two tables that the object names; none if the object does not exist.
    pub(crate) fn read(objset: &Objset, version: u64, master: ObjectId) -> Result<Self> {
        if !master.exists() {
            return Ok(Self::empty(version, master));
        }
        let names = Zap::open(objset.object(master)?)?;
        let object = |name: &[u8]| names.lookup_u64(name).map(|id| ObjectId::new(id.unwrap_or(0)));
        let (registry, layouts) = (object(b"REGISTRY")?, object(b"LAYOUTS")?);
        let mut schema = Self::empty(version, master);
        if registry.exists() {
            let mut known = read_registry(objset, registry)?;
            let new = known.register_missing();
            schema = Self::new(
                version,
                known,
                SaObjects { master, registry, layouts, unregistered: new },
            );
        }
        schema.objects.get_mut().layouts = layouts;
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
            self.set_layout(number, self.registry.layout(&attributes));
        }
        Ok(())
    }

    pub(crate) fn set_layout(
        &self,
        number: u16,
        layout: std::result::Result<Layout, ondisk::Error>,
    ) {
        if let Some(slot) = self.layouts.get(usize::from(number)) {
            // the first of a number counts
            drop(slot.set(Box::new(layout)));
        }
    }

    /// The present or future registry entry of an attribute.
    pub(crate) fn registered(&self, attribute: Attribute) -> Registration {
        let number = self.registry.number(attribute).unwrap_or(attribute as u16);
        self.registry.registration(number).unwrap_or(attribute.registration(number))
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The layout of a number, or why it cannot be used; none if the dataset has no such layout.
    fn layout(&self, number: u16) -> Option<&std::result::Result<Layout, ondisk::Error>> {
        self.layouts.get_allocated(usize::from(number))?.get().map(|layout| &**layout)
    }

    /// The number of the layout that has just these attributes.
    pub(crate) fn find_layout(&self, values: &[Value]) -> Option<u16> {
        let is_match = |layout: &std::result::Result<Layout, ondisk::Error>| match layout {
            Ok(layout) => layout.has_numbers(values.iter().map(|value| value.registration.number)),
            Err(_) => false,
        };
        let numbers = FIRST_LAYOUT..MAX_LAYOUTS;
        let mut used = numbers.map_while(|number| Some((number, self.layout(number)?)));
        used.find(|(_, layout)| is_match(layout)).map(|(number, _)| number)
    }

    /// The first number that no layout has.
    pub(crate) fn free_layout_number(&self) -> Option<u16> {
        (FIRST_LAYOUT..MAX_LAYOUTS).find(|number| self.layout(*number).is_none())
    }

    /// The attributes in a bonus buffer or a spill block.
    pub(crate) fn parse_attributes<'a>(
        &'a self,
        bytes: &'a [u8],
    ) -> ondisk::Result<Attributes<'a>> {
        let header = Header::parse(bytes)?;
        match self.layout(header.layout) {
            Some(Ok(layout)) => Ok(Attributes::new(bytes, header, layout)),
            Some(Err(why)) => Err(why.clone()),
            None => Err(ondisk::Error::Unknown {
                structure: "system attributes",
                field: "layout",
                found: header.layout.into(),
            }),
        }
    }

    /// The attributes in a bonus buffer of any kind, in a block of that byte order.
    pub(crate) fn parse_bonus<'a>(
        &'a self,
        kind: ObjectType,
        bytes: &'a [u8],
        order: Order,
    ) -> ondisk::Result<Attributes<'a>> {
        match kind {
            ObjectType::SA => self.parse_attributes(bytes),
            _ => {
                Ok(Attributes::new(bytes, Header { layout: 0, size: 0, order }, &self.znode_layout))
            }
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
