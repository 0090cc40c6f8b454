//! Object sets, objects, name tables.

use dmu::{Object, Objset};
use ondisk::Reader;
use ondisk::dnode::Dnode;
use ondisk::object_type::Content;
use serde_json::json;
use units::ObjectId;
use zap::{Zap, ZapEntry, ZapValue};

use super::{Facts, MAX_ROWS, blocks, unreadable_error};
use crate::{Error, RescuePool, Result};

impl RescuePool {
    /// The head of an object set, and its objects.
    pub fn inspect_objset(&self, name: &str) -> Result<Facts> {
        let objset = self.objset(name)?;
        let mut objects = Vec::new();
        let mut complete = true;
        for found in objset.objects() {
            if objects.len() >= MAX_ROWS {
                complete = false;
                break;
            }
            objects.push(match found {
                Ok((id, dnode)) => dnode_row(id, &dnode),
                Err(error) => json!({ "type": format!("cannot be read: {error}") }),
            });
        }
        let mut facts = objset_header(&objset);
        facts["name"] = json!(self.full_name(name));
        facts["complete"] = json!(complete);
        facts["objects"] = Facts::Array(objects);
        Ok(facts)
    }

    /// An object: its dnode, its bonus, its roots.
    pub fn inspect_object(&self, name: &str, object: u64) -> Result<Facts> {
        let found = self.object(name, object)?;
        let dnode = found.dnode();
        let mut facts = dnode_row(found.id(), dnode);
        facts["slots"] = json!(dnode.slots);
        facts["indirect_size"] = json!(dnode.indirect_size());
        facts["checksum"] = json!(dnode.checksum);
        facts["compression"] = json!(dnode.compression);
        facts["flags"] = json!(format!("{:#04x}", dnode.flags.0));
        facts["max_block"] = json!(dnode.max_block.get());
        facts["pointers"] =
            dnode.pointers.iter().map(|each| json!(blocks::format_pointer(each))).collect();
        if let Some(spill) = &dnode.spill {
            facts["spill"] = json!(blocks::format_pointer(spill));
        }
        add_bonus(&mut facts, &found);
        Ok(facts)
    }

    /// A name table.
    pub fn inspect_zap(&self, name: &str, object: u64) -> Result<Facts> {
        let found = self.object(name, object)?;
        let subject = format!("object {object} of '{name}'");
        let table = match Zap::open(found) {
            Err(zap::Error::NotZap { .. }) => {
                let what = format!("name table in object {object} of '{name}'");
                return Err(Error::NotFound { what });
            }
            other => other.map_err(|error| unreadable_error(&*subject, &error))?,
        };
        let (micro, count) = table
            .is_micro()
            .and_then(|micro| Ok((micro, table.count()?)))
            .map_err(|error| unreadable_error(&*subject, &error))?;
        let mut rows = Vec::new();
        let mut complete = true;
        for found in table.entries() {
            if rows.len() >= MAX_ROWS {
                complete = false;
                break;
            }
            rows.push(match found {
                Ok(entry) => {
                    json!({ "name": entry_name(&entry), "value": zap_value(&entry.value) })
                }
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

fn objset_header(objset: &Objset) -> Facts {
    let header = objset.header();
    json!({
        "name": "",
        "id": objset.id().get(),
        "kind": format!("{:?}", header.kind).to_lowercase(),
        "flags": format!("{:#x}", header.flags.0),
        "root": blocks::format_pointer(objset.root()),
        "log_claim_txg": header.log.claim_txg.get(),
        "log_replay_sequence": header.log.replay_seq,
        "log_chain": blocks::format_pointer(&header.log.chain),
    })
}

fn dnode_row(id: ObjectId, dnode: &Dnode) -> Facts {
    json!({
        "object": id.get(),
        "type": dnode.kind.name(),
        "levels": dnode.levels,
        "block_size": dnode.block_size,
        "blocks": dnode.max_block.get() + 1,
        "used": dnode.used_bytes,
        "bonus": dnode.bonus_kind.name(),
        "bonus_size": dnode.bonus.len(),
    })
}

/// The parsed bonus, if its type is known; else its bytes.
fn add_bonus(facts: &mut Facts, object: &Object) {
    let bytes = object.bonus();
    if bytes.is_empty() {
        return;
    }
    facts["bonus_content"] = match object.dnode().bonus_kind.content() {
        Content::Words64 => bonus_words(bytes, object.bonus_order()),
        _ => json!(crate::hex(bytes)),
    };
}

fn bonus_words(bytes: &[u8], order: ondisk::Order) -> Facts {
    let mut reader = Reader::new("bonus", bytes, order);
    std::iter::from_fn(|| reader.u64().ok()).map(Facts::from).collect()
}

fn entry_name(entry: &ZapEntry) -> String {
    match &entry.key64 {
        Some(words) => words.iter().map(|word| format!("{word:#x}")).collect::<Vec<_>>().join(","),
        None => String::from_utf8_lossy(&entry.name).into_owned(),
    }
}

fn zap_value(value: &ZapValue) -> Facts {
    if value.int_size() == 1 {
        return match value.as_str() {
            Some(text) if !text.chars().any(char::is_control) => json!(text),
            _ => json!(crate::hex(value.bytes())),
        };
    }
    match value.u64() {
        Some(number) => json!(number),
        None => json!(value.u64s()),
    }
}
