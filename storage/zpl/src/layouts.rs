//! Layouts that a dataset does not have yet.

use dmu::Objset;
use ondisk::ObjectType;
use ondisk::sa::Value;
use txg::Tx;
use units::ObjectId;
use zap::{NewTable, Zap};

use crate::schema::{Schema, Tables};
use crate::{Error, Result};

/// Adds the layout of these values, and the registry if there is none; gives its number.
///
/// Nobody uses a layout before it stands in the table within a transaction; so who finds it
/// begins a transaction that is not before that one.
pub(crate) fn add(
    objset: &Objset,
    schema: &Schema,
    salt: u64,
    begin: &mut dyn FnMut() -> Result<Tx>,
    values: &[Value],
) -> Result<u16> {
    let mut tables = schema.tables.lock();
    if let Some(number) = schema.find(values) {
        return Ok(number);
    }
    let tx = begin()?;
    add_within(objset, schema, &mut tables, salt, &tx, values)
}

/// The same within a transaction that has begun, while nobody else uses the file system.
pub(crate) fn add_in(
    objset: &Objset,
    schema: &Schema,
    salt: u64,
    tx: &Tx,
    values: &[Value],
) -> Result<u16> {
    add_within(objset, schema, &mut schema.tables.lock(), salt, tx, values)
}

fn add_within(
    objset: &Objset,
    schema: &Schema,
    tables: &mut Tables,
    salt: u64,
    tx: &Tx,
    values: &[Value],
) -> Result<u16> {
    register(objset, tables, salt, tx)?;
    let Some(number) = schema.free_number() else {
        let rule = "a dataset has at most 1022 layouts of attributes";
        return Err(Error::Invalid { objset: objset.id(), object: tables.master, rule });
    };
    if !tables.layouts.exists() {
        tables.layouts =
            linked(objset, tables.master, ObjectType::SA_ATTR_LAYOUTS, b"LAYOUTS", salt, tx)?;
    }
    let numbers: Vec<u16> = values.iter().map(|value| value.registered.number).collect();
    let layout = schema.registry().layout(&numbers);
    let bytes = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
    let table = Zap::open(objset.object(tables.layouts)?)?;
    table.insert(tx, number.to_string().as_bytes(), &zap::Value::new(2, bytes))?;
    schema.put(number, layout);
    Ok(number)
}

/// Writes what the registry lacks.
fn register(objset: &Objset, tables: &mut Tables, salt: u64, tx: &Tx) -> Result<()> {
    if tables.new.is_empty() {
        return Ok(());
    }
    if !tables.registry.exists() {
        let kind = ObjectType::SA_ATTR_REGISTRATION;
        tables.registry = linked(objset, tables.master, kind, b"REGISTRY", salt, tx)?;
    }
    for (attribute, registered) in &tables.new {
        let table = Zap::open(objset.object(tables.registry)?)?;
        table.update_u64(tx, attribute.name().as_bytes(), registered.to_word())?;
    }
    tables.new.clear();
    Ok(())
}

/// A new table, named in another one.
fn linked(
    objset: &Objset,
    master: ObjectId,
    kind: ObjectType,
    name: &[u8],
    salt: u64,
    tx: &Tx,
) -> Result<ObjectId> {
    let table = Zap::create(objset, tx, kind, &NewTable { salt, ..NewTable::default() })?;
    let id = table.object().id();
    Zap::open(objset.object(master)?)?.insert_u64(tx, name, id.get())?;
    Ok(id)
}
