//! How a dataset lays out its files' attributes: its registry and its layouts, read once.

use dmu::Objset;
use ondisk::Order;
use ondisk::sa::{Attributes, Header, Layout, Registry};
use units::ObjectId;
use zap::Zap;

use crate::Result;

/// The layouts of a dataset by their number. One that cannot be understood is kept as its error.
#[derive(Debug, Default)]
pub(crate) struct Schema {
    layouts: Vec<Option<std::result::Result<Layout, ondisk::Error>>>,
}

impl Schema {
    /// Reads the two tables that the object names; none if there is no such object.
    pub(crate) fn read(objset: &Objset, object: ObjectId) -> Result<Self> {
        let mut schema = Self::default();
        schema.put(1, Ok(Layout::default()));
        if !object.exists() {
            return Ok(schema);
        }
        let tables = Zap::open(objset.object(object)?)?;
        let registry = match tables.lookup_u64(b"REGISTRY")? {
            Some(id) => read_registry(objset, ObjectId::new(id))?,
            None => Registry::standard(),
        };
        let Some(layouts) = tables.lookup_u64(b"LAYOUTS")? else { return Ok(schema) };
        let layouts = Zap::open(objset.object(ObjectId::new(layouts))?)?;
        for entry in layouts.entries() {
            let entry = entry?;
            let number = std::str::from_utf8(&entry.name).ok().and_then(|text| text.parse().ok());
            let Some(number) = number.filter(|number| *number < 1024) else { continue };
            let attributes: Vec<u16> = entry
                .value
                .u64s()
                .iter()
                .map(|word| u16::try_from(*word).unwrap_or(u16::MAX))
                .collect();
            schema.put(number, registry.layout(&attributes));
        }
        Ok(schema)
    }

    fn put(&mut self, number: usize, layout: std::result::Result<Layout, ondisk::Error>) {
        if self.layouts.len() <= number {
            self.layouts.resize_with(number.saturating_add(1), || None);
        }
        if let Some(slot) = self.layouts.get_mut(number) {
            *slot = Some(layout);
        }
    }

    /// The attributes in a bonus buffer or a spill block.
    pub(crate) fn attributes<'a>(
        &'a self,
        bytes: &'a [u8],
        order: Order,
    ) -> ondisk::Result<Attributes<'a>> {
        let header = Header::parse(bytes, order)?;
        match self.layouts.get(usize::from(header.layout)) {
            Some(Some(Ok(layout))) => Ok(Attributes::new(bytes, order, header, layout)),
            Some(Some(Err(why))) => Err(why.clone()),
            _ => Err(ondisk::Error::Unknown {
                what: "system attributes",
                field: "layout",
                found: header.layout.into(),
            }),
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
