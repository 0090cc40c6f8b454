//! Layouts that a dataset does not have yet.

use dmu::Objset;
use ondisk::ObjectType;
use ondisk::sa::Value;
use txg::Tx;
use units::ObjectId;
use zap::{NewZap, Zap};

use crate::sa_schema::{SaObjects, SaSchema};
use crate::{Error, Result};

/// Adds the layout of these values, and the registry if there is none; gives its number.
///
/// A layout is used only after a transaction has put it in the table; so the user's transaction
/// is not before that one.
pub(crate) fn add_layout(
    objset: &Objset,
    schema: &SaSchema,
    salt: u64,
    begin: &mut dyn FnMut() -> Result<Tx>,
    values: &[Value],
) -> Result<u16> {
    let mut tables = schema.objects.lock();
    if let Some(number) = schema.find_layout(values) {
        return Ok(number);
    }
    let tx = begin()?;
    add_layout_locked(objset, schema, &mut tables, salt, &tx, values)
}

/// The same within a running transaction, while the file system has no other user.
pub(crate) fn add_layout_in_tx(
    objset: &Objset,
    schema: &SaSchema,
    salt: u64,
    tx: &Tx,
    values: &[Value],
) -> Result<u16> {
    add_layout_locked(objset, schema, &mut schema.objects.lock(), salt, tx, values)
}

fn add_layout_locked(
    objset: &Objset,
    schema: &SaSchema,
    tables: &mut SaObjects,
    salt: u64,
    tx: &Tx,
    values: &[Value],
) -> Result<u16> {
    write_registry(objset, tables, salt, tx)?;
    let Some(number) = schema.free_layout_number() else {
        let rule = "a dataset has at most 1022 layouts of attributes";
        return Err(Error::Invalid { objset: objset.id(), object: tables.master, rule });
    };
    if !tables.layouts.exists() {
        tables.layouts = create_linked_table(
            objset,
            tables.master,
            ObjectType::SA_ATTR_LAYOUTS,
            b"LAYOUTS",
            salt,
            tx,
        )?;
    }
    let numbers: Vec<u16> = values.iter().map(|value| value.registration.number).collect();
    let layout = schema.registry().layout(&numbers);
    let bytes = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
    let table = Zap::open(objset.object(tables.layouts)?)?;
    table.insert(tx, number.to_string().as_bytes(), &zap::ZapValue::new(2, bytes))?;
    schema.set_layout(number, layout);
    Ok(number)
}

/// Writes the missing entries of the registry.
fn write_registry(objset: &Objset, tables: &mut SaObjects, salt: u64, tx: &Tx) -> Result<()> {
    if tables.unregistered.is_empty() {
        return Ok(());
    }
    if !tables.registry.exists() {
        let kind = ObjectType::SA_ATTR_REGISTRATION;
        tables.registry = create_linked_table(objset, tables.master, kind, b"REGISTRY", salt, tx)?;
    }
    for (attribute, registered) in &tables.unregistered {
        let table = Zap::open(objset.object(tables.registry)?)?;
        table.update_u64(tx, attribute.name().as_bytes(), registered.to_word())?;
    }
    tables.unregistered.clear();
    Ok(())
}

/// A new table, named in another one.
fn create_linked_table(
    objset: &Objset,
    master: ObjectId,
    kind: ObjectType,
    name: &[u8],
    salt: u64,
    tx: &Tx,
) -> Result<ObjectId> {
    let table = Zap::create(objset, tx, kind, &NewZap { salt, ..NewZap::default() })?;
    let id = table.object().id();
    Zap::open(objset.object(master)?)?.insert_u64(tx, name, id.get())?;
    Ok(id)
}
