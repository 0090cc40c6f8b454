//! From damaged blocks to the names of files, and to ranges of bytes.
//!
//! A file knows a directory that it is in, so that the way up gives its path; where that fails
//! (after renames of hard links) all directories of the dataset are walked, once.

use std::collections::{BTreeMap, HashMap, HashSet};

use dmu::Objset;
use ondisk::ObjectType;
use ondisk::dnode::Dnode;
use posix::FileType;
use units::{ObjectId, ObjsetId, Zbookmark};
use zpl::{Fs, FsOptions};

use crate::log::LOG_LEVEL;
use crate::report::{DamagedObject, DamagedPart, DamagedRange};
use crate::tally::BlockDamage;

/// No path has more parts; deeper nesting is a circle.
const MAX_DEPTH: usize = 4096;
/// The pool's own object set.
const MOS: ObjsetId = ObjsetId::new(0);

/// Finds the names of damaged blocks.
pub(crate) fn name_damage(
    mos: &Objset,
    names: Option<&dsl::DatasetTree>,
    damages: Vec<BlockDamage>,
) -> Vec<DamagedObject> {
    let mut by_objset: BTreeMap<ObjsetId, Vec<BlockDamage>> = BTreeMap::new();
    for damage in damages {
        by_objset.entry(damage.zbookmark.objset).or_default().push(damage);
    }
    let mut all = Vec::new();
    for (id, damages) in by_objset {
        let dataset = names.filter(|_| id != MOS).and_then(|names| names.dataset(id).ok());
        let name = match &dataset {
            Some(dataset) => dataset.name(),
            None if id == MOS => String::new(),
            None => format!("dataset {id}"),
        };
        let objset = match &dataset {
            Some(dataset) => dataset.open_objset().or_else(|_| dataset.objset(None)).ok(),
            None => (id == MOS).then(|| mos.clone()),
        };
        all.extend(name_objset_damage(id, &name, objset, damages));
    }
    all
}

/// Names blocks that cannot be read any more, and what each lacks.
pub fn name_lost_blocks(
    mos: &Objset,
    names: &dsl::DatasetTree,
    lost: Vec<(Zbookmark, String)>,
) -> Vec<DamagedObject> {
    let damage = |(place, why)| BlockDamage {
        zbookmark: place,
        kind: ObjectType::NONE,
        is_lost: true,
        leaves: Vec::new(),
        why: Some(why),
    };
    name_damage(mos, Some(names), lost.into_iter().map(damage).collect())
}

fn name_objset_damage(
    id: ObjsetId,
    dataset: &str,
    objset: Option<Objset>,
    damages: Vec<BlockDamage>,
) -> Vec<DamagedObject> {
    let mut by_object: BTreeMap<(ObjectId, DamagedPart), DamagedObject> = BTreeMap::new();
    let mut dnodes: HashMap<ObjectId, Option<Dnode>> = HashMap::new();
    for damage in damages {
        let object = damage.zbookmark.object;
        let dnode = dnodes.entry(object).or_insert_with(|| {
            let objset = objset.as_ref()?;
            match object {
                ObjectId::META => objset.header().meta.clone(),
                _ => objset.dnode(object).ok(),
            }
        });
        let (part, range) = damaged_range(&damage, dnode.as_ref());
        let found = by_object.entry((object, part)).or_insert_with(|| DamagedObject {
            dataset: dataset.to_owned(),
            objset: id,
            object,
            kind: dnode.as_ref().map(|dnode| dnode.kind),
            path: None,
            part,
            ranges: Vec::new(),
        });
        let BlockDamage { is_lost: lost, leaves, why, .. } = damage;
        found.ranges.push(DamagedRange { range, is_lost: lost, leaves, why });
    }
    let mut found: Vec<DamagedObject> = by_object.into_values().collect();
    for object in &mut found {
        object.ranges = merge_ranges(std::mem::take(&mut object.ranges));
    }
    if let Some((fs, _)) =
        objset.and_then(|objset| Fs::open(objset, FsOptions::default(), None).ok())
    {
        find_paths(&fs, &mut found);
    }
    found
}

/// The part of an object that a block belongs to.
fn damaged_range(
    damage: &BlockDamage,
    dnode: Option<&Dnode>,
) -> (DamagedPart, std::ops::Range<u64>) {
    let zbookmark = damage.zbookmark;
    let block = zbookmark.block.get();
    if zbookmark.level == LOG_LEVEL
        || zbookmark.block == dmu::SPILL_BLOCK
        || damage.kind == ObjectType::OBJSET
    {
        return (DamagedPart::Other, 0..0);
    }
    let Some(dnode) = dnode else { return (DamagedPart::Content, 0..u64::MAX) };
    let is_meta = zbookmark.object == ObjectId::META;
    let unit = u64::from(dnode.block_size) / if is_meta { 512 } else { 1 };
    let shift =
        u32::from(dnode.indirect_shift.saturating_sub(7)) * u32::from(zbookmark.level.get());
    let blocks = 1_u64.checked_shl(shift).unwrap_or(u64::MAX);
    let last = dnode.max_block.get() + 1;
    let start = block.saturating_mul(blocks).min(last);
    let end = start.saturating_add(blocks).min(last).max(start);
    let part = if is_meta { DamagedPart::ObjectTable } else { DamagedPart::Content };
    (part, start.saturating_mul(unit)..end.saturating_mul(unit))
}

/// Sorts ranges and joins adjacent ones with the same kind of damage.
fn merge_ranges(mut ranges: Vec<DamagedRange>) -> Vec<DamagedRange> {
    ranges.sort_by_key(|range| (range.range.start, range.range.end));
    let mut all: Vec<DamagedRange> = Vec::new();
    for next in ranges {
        match all.last_mut() {
            Some(last)
                if last.range.end >= next.range.start
                    && (last.is_lost, &last.leaves, &last.why)
                        == (next.is_lost, &next.leaves, &next.why) =>
            {
                last.range.end = last.range.end.max(next.range.end);
            }
            _ => all.push(next),
        }
    }
    all
}

fn find_paths(fs: &Fs, damaged: &mut [DamagedObject]) {
    let mut directories = HashMap::new();
    let mut unknown = HashSet::new();
    for object in damaged.iter_mut().filter(|object| object.object.exists()) {
        object.path = path_from_parents(fs, object.object, &mut directories);
        // what is not a file has no path
        if object.path.is_none() && fs.attributes(object.object).is_ok() {
            unknown.insert(object.object);
        }
    }
    if unknown.is_empty() {
        return;
    }
    let found = search_directories(fs, &unknown);
    for object in damaged.iter_mut().filter(|object| object.path.is_none()) {
        object.path = found.get(&object.object).cloned();
    }
}

/// The names of all entries of a directory, by their objects.
type EntryNames = HashMap<ObjectId, Vec<u8>>;

fn path_from_parents(
    fs: &Fs,
    object: ObjectId,
    directories: &mut HashMap<ObjectId, EntryNames>,
) -> Option<Vec<u8>> {
    let root = fs.master().root;
    let mut parts: Vec<Vec<u8>> = Vec::new();
    let mut at = object;
    for _ in 0..MAX_DEPTH {
        if at == root {
            let mut path = Vec::new();
            for part in parts.iter().rev() {
                path.push(b'/');
                path.extend_from_slice(part);
            }
            return Some(if path.is_empty() { b"/".to_vec() } else { path });
        }
        let parent = fs.attributes(at).ok()?.parent;
        let above = fs.attributes(parent).ok()?;
        if above.xattr_dir == at {
            parts.push(b"(extended attributes)".to_vec());
        } else {
            let names = directories.entry(parent).or_insert_with(|| entry_names(fs, parent));
            parts.push(names.get(&at)?.clone());
        }
        at = parent;
    }
    None
}

fn entry_names(fs: &Fs, dir: ObjectId) -> EntryNames {
    let mut names = EntryNames::new();
    if let Ok(node) = fs.inode(dir) {
        // what could be read of a damaged directory is better than nothing
        let _ = fs.read_dir(&node, None, &mut |entry| {
            names.insert(entry.object, entry.name);
            true
        });
    }
    names
}

/// Looks for files in all directories.
fn search_directories(fs: &Fs, wanted: &HashSet<ObjectId>) -> HashMap<ObjectId, Vec<u8>> {
    let mut found = HashMap::new();
    let mut seen = HashSet::new();
    let mut waiting = vec![(fs.master().root, Vec::new())];
    while let Some((dir, path)) = waiting.pop() {
        let Ok(node) = fs.inode(dir) else { continue };
        if !seen.insert(dir) {
            continue;
        }
        let _ = fs.read_dir(&node, None, &mut |entry| {
            let mut below: Vec<u8> = path.clone();
            below.push(b'/');
            below.extend_from_slice(&entry.name);
            if entry.kind == FileType::Directory {
                waiting.push((entry.object, below.clone()));
            }
            if wanted.contains(&entry.object) {
                found.insert(entry.object, below);
            }
            found.len() < wanted.len()
        });
        if found.len() == wanted.len() {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::merge_ranges;
    use crate::report::DamagedRange;

    #[test]
    fn ranges_that_touch_are_joined_if_alike() {
        let range =
            |range, lost| DamagedRange { range, is_lost: lost, leaves: Vec::new(), why: None };
        let all =
            merge_ranges(vec![range(20..30, true), range(0..10, false), range(10..20, false)]);
        assert_eq!(all, [range(0..20, false), range(20..30, true)]);
    }
}
