//! Name/value lists, the pool's own configuration, and its history.

use ondisk::Reader;
use ondisk::history::{HistoryHeader, HistoryRecord, Records};
use ondisk::nvlist::{Nvlist, Value};
use serde_json::{Map, json};
use spa::PoolDirectory;

use super::{Facts, unreadable_error};
use crate::{Error, RescuePool, Result};

/// A history is a ring of this size at most.
const MAX_HISTORY_SIZE: u64 = 1 << 30;

/// A list.
pub(super) fn nvlist_facts(list: &Nvlist) -> Facts {
    let entries = list.iter().map(|(name, each)| (name.to_owned(), value_facts(each)));
    Facts::Object(entries.collect::<Map<_, _>>())
}

fn value_facts(value: &Value) -> Facts {
    let text = |bytes: &Vec<u8>| Facts::from(String::from_utf8_lossy(bytes).into_owned());
    match value {
        Value::Flag => Facts::Bool(true),
        Value::Bool(flag) => json!(flag),
        Value::Byte(number) | Value::U8(number) => json!(number),
        Value::I8(number) => json!(number),
        Value::I16(number) => json!(number),
        Value::U16(number) => json!(number),
        Value::I32(number) => json!(number),
        Value::U32(number) => json!(number),
        Value::I64(number) | Value::HrTime(number) => json!(number),
        Value::U64(number) => json!(number),
        Value::Double(number) => json!(number),
        Value::Str(bytes) => text(bytes),
        Value::Bytes(bytes) => json!(crate::hex(bytes)),
        Value::U8s(all) => json!(all),
        Value::I8s(all) => json!(all),
        Value::I16s(all) => json!(all),
        Value::U16s(all) => json!(all),
        Value::I32s(all) => json!(all),
        Value::U32s(all) => json!(all),
        Value::I64s(all) => json!(all),
        Value::U64s(all) => json!(all),
        Value::Bools(all) => json!(all),
        Value::Strs(all) => all.iter().map(text).collect(),
        Value::List(inner) => nvlist_facts(inner),
        Value::Lists(all) => all.iter().map(nvlist_facts).collect(),
    }
}

impl RescuePool {
    /// The pool's configuration.
    pub fn inspect_config(&self) -> Facts {
        nvlist_facts(self.spa().config_nvlist())
    }

    /// The pool's command history: the users' commands, and internal events (`internal`).
    pub fn inspect_history(&self, internal: bool) -> Result<Facts> {
        read_history(self.name(), self.spa().directory(), internal)
    }
}

/// The history of a pool: commands, and internal events (`internal`).
pub(crate) fn read_history(name: &str, directory: &PoolDirectory, internal: bool) -> Result<Facts> {
    let failed = |error: &dyn std::fmt::Display| {
        unreadable_error(format!("the history of pool '{name}'"), &error.to_string())
    };
    let object = directory.object("history").map_err(|error| failed(&error))?;
    let Some(object) = object else {
        return Err(Error::NotFound { what: format!("history in pool '{name}'") });
    };
    let mut bonus = Reader::new("history header", object.bonus(), object.bonus_order());
    let header = HistoryHeader::read(&mut bonus).map_err(|error| failed(&error))?;
    let mut bytes = Vec::new();
    for range in header.ranges() {
        let length = range.end - range.start;
        let all = length + (bytes.len() as u64);
        if all > MAX_HISTORY_SIZE {
            return Err(failed(&format!("it would be {all} bytes long")));
        }
        let mut part = vec![0; units::to_usize(length)];
        object.read(range.start, &mut part).map_err(|error| failed(&error))?;
        bytes.extend(part);
    }
    let mut rows = Vec::new();
    for found in Records::new(&bytes) {
        match found {
            Ok(found) => rows.extend(history_record(&found, internal)),
            Err(error) => rows.push(json!({ "error": error.to_string() })),
        }
    }
    Ok(json!({ "pool": name, "lost": header.lost, "records": rows }))
}

fn history_record(found: &HistoryRecord, internal: bool) -> Option<Facts> {
    let command = found.command();
    if command.is_none() && !internal {
        return None;
    }
    let mut facts = Map::new();
    facts.insert("time".to_owned(), json!(found.time()));
    if let Some(txg) = found.txg() {
        facts.insert("txg".to_owned(), json!(txg.get()));
    }
    let what = match (&command, found.event(), found.ioctl()) {
        (Some(command), _, _) => command.clone(),
        (None, Some(event), _) => event,
        (None, None, Some(ioctl)) => format!("ioctl {ioctl}"),
        (None, None, None) => "?".to_owned(),
    };
    facts.insert("what".to_owned(), json!(what));
    if let Some((name, id)) = found.dataset() {
        facts.insert("dataset".to_owned(), json!(format!("{name} ({id})")));
    }
    if let Some(detail) = found.detail() {
        facts.insert("detail".to_owned(), json!(detail));
    }
    for (name, field) in [("input", "in_nvl"), ("output", "out_nvl")] {
        if let (Some(inner), true) = (found.nvlist.nvlist(field), internal) {
            facts.insert(name.to_owned(), nvlist_facts(inner));
        }
    }
    if let Some(user) = found.user() {
        facts.insert("user".to_owned(), json!(user));
    }
    if let Some(host) = found.host() {
        facts.insert("host".to_owned(), json!(host));
    }
    if let Some(zone) = found.zone() {
        facts.insert("zone".to_owned(), json!(zone));
    }
    Some(Facts::Object(facts))
}
