//! Object sets, objects, name tables.

use dmu::{Object, Objset};
use ondisk::Reader;
use ondisk::dnode::Dnode;
use ondisk::object_type::Content;
use serde_json::json;
use units::ObjectId;
use zap::{Entry, Value, Zap};

use super::{Facts, ROWS, blocks, unreadable};
use crate::{Error, Pool, Result};

impl Pool {
    /// The head of an object set, and its objects.
    pub fn inspect_objset(&self, name: &str) -> Result<Facts> {
        let objset = self.objset(name)?;
        let mut objects = Vec::new();
        let mut complete = true;
        for found in objset.objects() {
            if objects.len() >= ROWS {
                complete = false;
                break;
            }
            objects.push(match found {
                Ok((id, dnode)) => row(id, &dnode),
                Err(error) => json!({ "type": format!("cannot be read: {error}") }),
            });
        }
        let mut facts = head(&objset);
        facts["name"] = json!(self.full_name(name));
        facts["complete"] = json!(complete);
        facts["objects"] = Facts::Array(objects);
        Ok(facts)
    }

    /// An object: its dnode, its bonus, its roots.
    pub fn inspect_object(&self, name: &str, object: u64) -> Result<Facts> {
        let found = self.object(name, object)?;
        let dnode = found.dnode();
        let mut facts = row(found.id(), dnode);
        facts["slots"] = json!(dnode.slots);
        facts["indirect_size"] = json!(dnode.indirect_size());
        facts["checksum"] = json!(dnode.checksum);
        facts["compression"] = json!(dnode.compression);
        facts["flags"] = json!(format!("{:#04x}", dnode.flags.0));
        facts["max_block"] = json!(dnode.max_block.get());
        facts["pointers"] = dnode.pointers.iter().map(|each| json!(blocks::short(each))).collect();
        if let Some(spill) = &dnode.spill {
            facts["spill"] = json!(blocks::short(spill));
        }
        bonus(&mut facts, &found);
        Ok(facts)
    }

    /// A name table.
    pub fn inspect_zap(&self, name: &str, object: u64) -> Result<Facts> {
        let found = self.object(name, object)?;
        let subject = format!("object {object} of '{name}'");
        let table = match Zap::open(found) {
            Err(zap::Error::NotATable { .. }) => {
                let what = format!("name table in object {object} of '{name}'");
                return Err(Error::NoSuchThing { what });
            }
            other => other.map_err(|error| unreadable(&*subject, &error))?,
        };
        let (micro, count) = table
            .is_micro()
            .and_then(|micro| Ok((micro, table.count()?)))
            .map_err(|error| unreadable(&*subject, &error))?;
        let mut rows = Vec::new();
        let mut complete = true;
        for found in table.entries() {
            if rows.len() >= ROWS {
                complete = false;
                break;
            }
            rows.push(match found {
                Ok(entry) => json!({ "name": entry_name(&entry), "value": value(&entry.value) }),
                Err(error) => json!({ "name": format!("cannot be read: {error}") }),
            });
        }
        Ok(json!({
            "object": object,
            "form": if micro { "micro" } else { "fat" },
            "count": count,
            "complete": complete,
            "entries": rows,
        }))
    }
}

fn head(objset: &Objset) -> Facts {
    let header = objset.header();
    json!({
        "name": "",
        "id": objset.id().get(),
        "kind": format!("{:?}", header.kind).to_lowercase(),
        "flags": format!("{:#x}", header.flags.0),
        "root": blocks::short(objset.root()),
        "log_claim_txg": header.log.claim_txg.get(),
        "log_replay_sequence": header.log.replay_seq,
        "log_chain": blocks::short(&header.log.chain),
    })
}

fn row(id: ObjectId, dnode: &Dnode) -> Facts {
    json!({
        "object": id.get(),
        "type": dnode.kind.name(),
        "levels": dnode.levels,
        "block_size": dnode.block_size,
        "blocks": dnode.max_block.get().saturating_add(1),
        "used": dnode.used_bytes,
        "bonus": dnode.bonus_kind.name(),
        "bonus_size": dnode.bonus.len(),
    })
}

/// The bonus as what it is, as far as that is told by its type; else as bytes.
fn bonus(facts: &mut Facts, object: &Object) {
    let bytes = object.bonus();
    if bytes.is_empty() {
        return;
    }
    facts["bonus_content"] = match object.dnode().bonus_kind.content() {
        Content::Words64 => words(bytes, object.bonus_order()),
        _ => json!(crate::hex(bytes)),
    };
}

fn words(bytes: &[u8], order: ondisk::Order) -> Facts {
    let mut reader = Reader::new("bonus", bytes, order);
    std::iter::from_fn(|| reader.u64().ok()).map(Facts::from).collect()
}

fn entry_name(entry: &Entry) -> String {
    match &entry.key64 {
        Some(words) => words.iter().map(|word| format!("{word:#x}")).collect::<Vec<_>>().join(","),
        None => String::from_utf8_lossy(&entry.name).into_owned(),
    }
}

fn value(value: &Value) -> Facts {
    if value.int_size() == 1 {
        return match value.string() {
            Some(text) if !text.chars().any(char::is_control) => json!(text),
            _ => json!(crate::hex(value.bytes())),
        };
    }
    match value.u64() {
        Some(number) => json!(number),
        None => json!(value.u64s()),
    }
}
