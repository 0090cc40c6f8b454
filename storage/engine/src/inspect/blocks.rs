//! Block pointers.

use dmu::{BlockVisit, WalkControl, WalkOptions};
use ondisk::Blkptr;
use ondisk::blkptr::{Protection, Regular};
use serde_json::json;
use units::{BlockId, Level};

use super::{Facts, MAX_ROWS, unreadable_error};
use crate::{RescuePool, Result};

/// A pointer in a line.
pub(super) fn format_pointer(pointer: &Blkptr) -> String {
    match pointer {
        Blkptr::Hole(hole) if hole.birth.is_zero() => "hole".to_owned(),
        Blkptr::Hole(hole) => format!("hole since txg {}", hole.birth),
        Blkptr::Redacted(_) => "redacted".to_owned(),
        Blkptr::Embedded(embedded) => format!(
            "embedded {}/{} {} txg {}",
            embedded.lsize,
            embedded.payload.len(),
            embedded.compression,
            embedded.birth
        ),
        Blkptr::Regular(block) => {
            let copies: Vec<String> = block.copies().map(|dva| dva.to_string()).collect();
            format!(
                "{} {}/{} {} {} txg {}",
                copies.join(" "),
                block.lsize,
                block.psize,
                block.compression,
                block.checksum.name(),
                block.birth
            )
        }
    }
}

/// A pointer in full.
fn pointer_facts(pointer: &Blkptr) -> Facts {
    let mut facts = json!({
        "kind": match pointer {
            Blkptr::Hole(_) => "hole",
            Blkptr::Redacted(_) => "redacted",
            Blkptr::Embedded(_) => "embedded",
            Blkptr::Regular(block) if block.is_gang() => "gang",
            Blkptr::Regular(_) => "block",
        },
        "type": pointer.kind().name(),
        "level": pointer.level().get(),
        "lsize": pointer.lsize(),
        "birth": pointer.birth().get(),
    });
    match pointer {
        Blkptr::Hole(_) | Blkptr::Redacted(_) => {}
        Blkptr::Embedded(embedded) => {
            facts["psize"] = json!(embedded.payload.len());
            facts["compression"] = json!(embedded.compression.to_string());
            facts["payload"] = json!(crate::hex(&embedded.payload));
        }
        Blkptr::Regular(block) => add_regular_facts(&mut facts, block),
    }
    facts
}

fn add_regular_facts(facts: &mut Facts, block: &Regular) {
    let copies: Vec<String> = block.copies().map(|dva| dva.to_string()).collect();
    facts["copies"] = json!(copies);
    facts["psize"] = json!(block.psize);
    facts["compression"] = json!(block.compression.to_string());
    facts["checksum"] = json!(block.checksum.name());
    facts["order"] = json!(format!("{:?}", block.order).to_lowercase());
    facts["physical_birth"] = json!(block.birth_physical.get());
    facts["fill"] = json!(block.fill);
    facts["dedup"] = json!(block.dedup);
    facts["sum"] = json!(block.sum.map(|word| format!("{word:016x}")).join(":"));
    facts["protection"] = match &block.protection {
        Protection::None => json!("none"),
        other => json!(format!("{other:?}").to_lowercase()),
    };
}

impl RescuePool {
    /// One block pointer of an object, in full; at level 0 with the block's first bytes.
    pub fn inspect_blkptr(&self, name: &str, object: u64, level: u8, block: u64) -> Result<Facts> {
        let found = self.object(name, object)?;
        let (number, id) = (level, BlockId::new(block));
        let subject = || format!("block {block} of level {level} of object {object} of '{name}'");
        let level = Level::new(number);
        let pointer =
            found.pointer(level, id).map_err(|error| unreadable_error(subject(), &error))?;
        let mut facts = pointer_facts(&pointer);
        if number == 0 && !pointer.is_hole() {
            match found.block(id) {
                Ok(Some(content)) => {
                    facts["content"] = json!(crate::hex(content.get(..512).unwrap_or(&content)));
                }
                Ok(None) => {}
                Err(error) => facts["problem"] = json!(error.to_string()),
            }
        }
        Ok(facts)
    }

    /// All block pointers of an object, a line each.
    pub fn inspect_blkptrs(&self, name: &str, object: u64) -> Result<Facts> {
        let object = self.object(name, object)?;
        let mut rows = Vec::new();
        let all = object.walk(&WalkOptions::default(), &mut |zbookmark, found| {
            let what = match found {
                BlockVisit::Pointer(pointer) => format_pointer(pointer),
                BlockVisit::Error(error) => format!("cannot be read: {error}"),
            };
            rows.push(json!({
                "level": zbookmark.level.get(),
                "block": zbookmark.block.get(),
                "pointer": what,
            }));
            if rows.len() < MAX_ROWS { WalkControl::Descend } else { WalkControl::Stop }
        });
        Ok(json!({ "object": object.id().get(), "complete": all, "pointers": rows }))
    }
}
