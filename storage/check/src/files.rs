//! From damaged blocks to the names of files, and to ranges of bytes.
//!
//! A file knows a directory that it is in, so that the way up gives its path; where that fails
//! (after renames of hard links) all directories of the dataset are walked, once.

use std::collections::{BTreeMap, HashMap, HashSet};

use dmu::Objset;
use ondisk::ObjectType;
use ondisk::dnode::Dnode;
use posix::FileType;
use units::{ObjectId, ObjsetId, Place};
use zpl::{Fs, FsOptions};

use crate::log::LEVEL;
use crate::report::{DamagedObject, DamagedRange, Part};
use crate::tally::Damage;

/// No path has more parts; deeper nesting is a circle.
const DEEPEST: usize = 4096;
/// The pool's own object set.
const MOS: ObjsetId = ObjsetId::new(0);

/// Names what is damaged.
pub(crate) fn name(
    mos: &Objset,
    names: Option<&dsl::Tree>,
    damages: Vec<Damage>,
) -> Vec<DamagedObject> {
    let mut by_objset: BTreeMap<ObjsetId, Vec<Damage>> = BTreeMap::new();
    for damage in damages {
        by_objset.entry(damage.place.objset).or_default().push(damage);
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
            Some(dataset) => dataset.open().or_else(|_| dataset.objset(None)).ok(),
            None => (id == MOS).then(|| mos.clone()),
        };
        all.extend(of_objset(id, &name, objset, damages));
    }
    all
}

/// Names blocks that cannot be read any more, and what each lacks.
pub fn name_lost(
    mos: &Objset,
    names: &dsl::Tree,
    lost: Vec<(Place, String)>,
) -> Vec<DamagedObject> {
    let damage = |(place, why)| Damage {
        place,
        kind: ObjectType::NONE,
        lost: true,
        leaves: Vec::new(),
        why: Some(why),
    };
    name(mos, Some(names), lost.into_iter().map(damage).collect())
}

fn of_objset(
    id: ObjsetId,
    dataset: &str,
    objset: Option<Objset>,
    damages: Vec<Damage>,
) -> Vec<DamagedObject> {
    let mut by_object: BTreeMap<(ObjectId, Part), DamagedObject> = BTreeMap::new();
    let mut dnodes: HashMap<ObjectId, Option<Dnode>> = HashMap::new();
    for damage in damages {
        let object = damage.place.object;
        let dnode = dnodes.entry(object).or_insert_with(|| {
            let objset = objset.as_ref()?;
            match object {
                ObjectId::META => objset.header().meta.clone(),
                _ => objset.dnode(object).ok(),
            }
        });
        let (part, range) = range(&damage, dnode.as_ref());
        let found = by_object.entry((object, part)).or_insert_with(|| DamagedObject {
            dataset: dataset.to_owned(),
            objset: id,
            object,
            kind: dnode.as_ref().map(|dnode| dnode.kind),
            path: None,
            part,
            ranges: Vec::new(),
        });
        let Damage { lost, leaves, why, .. } = damage;
        found.ranges.push(DamagedRange { range, lost, leaves, why });
    }
    let mut found: Vec<DamagedObject> = by_object.into_values().collect();
    for object in &mut found {
        object.ranges = joined(std::mem::take(&mut object.ranges));
    }
    if let Some((fs, _)) =
        objset.and_then(|objset| Fs::open(objset, FsOptions::default(), None).ok())
    {
        find_paths(&fs, &mut found);
    }
    found
}

/// What of an object a block is.
fn range(damage: &Damage, dnode: Option<&Dnode>) -> (Part, std::ops::Range<u64>) {
    let place = damage.place;
    let block = place.block.get();
    if place.level == LEVEL || place.block == dmu::SPILL_BLOCK || damage.kind == ObjectType::OBJSET
    {
        return (Part::Rest, 0..0);
    }
    let Some(dnode) = dnode else { return (Part::Content, 0..u64::MAX) };
    let is_meta = place.object == ObjectId::META;
    let unit = u64::from(dnode.block_size) / if is_meta { 512 } else { 1 };
    let shift = u32::from(dnode.indirect_shift.saturating_sub(7)) * u32::from(place.level.get());
    let blocks = 1_u64.checked_shl(shift).unwrap_or(u64::MAX);
    let last = dnode.max_block.get().saturating_add(1);
    let start = block.saturating_mul(blocks).min(last);
    let end = start.saturating_add(blocks).min(last).max(start);
    let part = if is_meta { Part::Objects } else { Part::Content };
    (part, start.saturating_mul(unit)..end.saturating_mul(unit))
}

/// Sorts ranges and joins those that touch and are damaged in the same way.
fn joined(mut ranges: Vec<DamagedRange>) -> Vec<DamagedRange> {
    ranges.sort_by_key(|range| (range.range.start, range.range.end));
    let mut all: Vec<DamagedRange> = Vec::new();
    for next in ranges {
        match all.last_mut() {
            Some(last)
                if last.range.end >= next.range.start
                    && (last.lost, &last.leaves, &last.why)
                        == (next.lost, &next.leaves, &next.why) =>
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
        object.path = upwards(fs, object.object, &mut directories);
        // what is no file has no path
        if object.path.is_none() && fs.attributes(object.object).is_ok() {
            unknown.insert(object.object);
        }
    }
    if unknown.is_empty() {
        return;
    }
    let found = downwards(fs, &unknown);
    for object in damaged.iter_mut().filter(|object| object.path.is_none()) {
        object.path = found.get(&object.object).cloned();
    }
}

/// The names of all entries of a directory, by their objects.
type Names = HashMap<ObjectId, Vec<u8>>;

fn upwards(
    fs: &Fs,
    object: ObjectId,
    directories: &mut HashMap<ObjectId, Names>,
) -> Option<Vec<u8>> {
    let root = fs.master().root;
    let mut parts: Vec<Vec<u8>> = Vec::new();
    let mut at = object;
    for _ in 0..DEEPEST {
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
            let names = directories.entry(parent).or_insert_with(|| names(fs, parent));
            parts.push(names.get(&at)?.clone());
        }
        at = parent;
    }
    None
}

fn names(fs: &Fs, dir: ObjectId) -> Names {
    let mut names = Names::new();
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
fn downwards(fs: &Fs, wanted: &HashSet<ObjectId>) -> HashMap<ObjectId, Vec<u8>> {
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
    use super::joined;
    use crate::report::DamagedRange;

    #[test]
    fn ranges_that_touch_are_joined_if_alike() {
        let range = |range, lost| DamagedRange { range, lost, leaves: Vec::new(), why: None };
        let all = joined(vec![range(20..30, true), range(0..10, false), range(10..20, false)]);
        assert_eq!(all, [range(0..20, false), range(20..30, true)]);
    }
}
