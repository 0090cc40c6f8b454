//! Further operations of file protocols: resumable listings, single attributes, space on disk, and
//! the list of datasets to share.

use std::collections::BTreeMap;

use dsl::DatasetKind;
use units::MinusOrZero as _;

use super::{DirEntry, File, FileSystemReader, Result};
use crate::RescuePool;

/// A file system or volume of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadDataset {
    /// Its full name.
    pub name: String,
    /// Whether it is a volume.
    pub is_volume: bool,
}

/// The used and available space of a dataset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatasetSpace {
    /// Bytes that it refers to.
    pub referenced: u64,
    /// Bytes that are available to it.
    pub available: u64,
}

/// Cookies from here on are those of names from the intent log; below are those of the
/// dataset's own: 48 bits of the name's hash, then 13 bits of its number among those of one hash.
const LOGGED_COOKIE: u64 = 1 << 61;
const COLLISION_BITS: u32 = 13;
const MAX_COLLISIONS: u64 = 1 << COLLISION_BITS;

fn to_cookie(cursor: zap::ZapCursor) -> u64 {
    let hash = cursor.hash >> 16;
    // no directory has so many names of one hash; a damaged one continues with the next
    match u64::from(cursor.collision) {
        collision if collision < MAX_COLLISIONS => hash << COLLISION_BITS | collision,
        _ => ((hash + 1) << COLLISION_BITS).min(LOGGED_COOKIE - 1),
    }
}

fn to_cursor(cookie: u64) -> zap::ZapCursor {
    let collision = units::narrow::<u32>(cookie % MAX_COLLISIONS);
    zap::ZapCursor { hash: cookie >> COLLISION_BITS << 16, collision }
}

impl FileSystemReader {
    /// Calls `visit` with the names in a directory, in the order in which they are stored, from a
    /// cookie on until it returns false; each name comes with the cookie of the position after it.
    /// Cookies grow, the first is 0, none reaches 2^62, and they are valid as long as the pool is
    /// open.
    pub fn read_dir_from(
        &self,
        dir: &File,
        from: u64,
        visit: &mut dyn FnMut(DirEntry, u64) -> bool,
    ) -> Result<()> {
        let mut skip = from.minus_or_zero(LOGGED_COOKIE);
        let start = if from < LOGGED_COOKIE { to_cursor(from) } else { zap::ZapCursor::END };
        let mut logged = LOGGED_COOKIE;
        let mut last = from;
        let mut show = |entry: zpl::DirEntry| {
            let next = match entry.cursor {
                zpl::DirCursor::Stored(behind) => to_cookie(behind).max(last + 1),
                zpl::DirCursor::Logged(_) => {
                    logged += 1;
                    if skip > 0 {
                        skip -= 1;
                        return true;
                    }
                    logged
                }
            };
            last = next;
            let kind = entry.kind;
            visit(DirEntry { name: entry.name, ino: entry.object.get(), kind }, next)
        };
        Ok(self.fs.read_dir(&dir.node, Some(&zpl::DirCursor::Stored(start)), &mut show)?)
    }

    /// The number of the topmost directory.
    pub fn root_object(&self) -> u64 {
        self.fs.master().root.get()
    }
}

impl File {
    /// Bytes that it takes on the drives, its dnode with them.
    pub fn allocated(&self) -> u64 {
        let Some(object) = self.node.object() else { return 0 };
        let dnode = object.dnode();
        dnode.used_bytes + u64::from(dnode.slots) * 512
    }

    /// The names of the extended attributes that Linux would list.
    pub fn xattr_names(&self) -> Result<Vec<Vec<u8>>> {
        Ok(self.node.xattrs()?.into_iter().map(|xattr| xattr.name).collect())
    }

    /// The value of an extended attribute by its name as Linux lists it.
    pub fn xattr(&self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.node.xattr(name)?)
    }
}

impl RescuePool {
    /// A dataset's name and those of all file systems and volumes below it, sorted, parents before
    /// their children. Unreadable ones are left out.
    pub fn heads_below(&self, target: &str) -> Vec<HeadDataset> {
        let target = self.full_name(target);
        let mut found = BTreeMap::new();
        for head in self.tree().heads().filter_map(std::result::Result::ok) {
            let name = head.name();
            let rest = name.strip_prefix(&target);
            if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
                let is_volume = matches!(head.kind(), Ok(DatasetKind::Volume));
                found.insert(name, is_volume);
            }
        }
        found.into_iter().map(|(name, is_volume)| HeadDataset { name, is_volume }).collect()
    }

    /// The names of a dataset's snapshots behind the `@`, oldest first.
    pub fn snapshot_names(&self, dataset: &str) -> crate::Result<Vec<String>> {
        let snapshots = self.find_dataset(dataset)?.snapshots();
        let snapshots = snapshots.map_err(|why| crate::Error::from_dsl_error(dataset, &why))?;
        Ok(snapshots.iter().filter_map(|each| each.short_name().map(str::to_owned)).collect())
    }

    /// The used and available space of a dataset; zeros if unknown.
    pub fn space(&self, dataset: &str) -> DatasetSpace {
        let Ok(found) = self.find_dataset(dataset) else { return DatasetSpace::default() };
        let number = |name: &str| {
            let value = found.property(name).ok().flatten();
            value.and_then(|property| property.value.parse().ok()).unwrap_or(0)
        };
        DatasetSpace { referenced: number("referenced"), available: number("available") }
    }
}

#[cfg(test)]
mod tests {
    use super::{LOGGED_COOKIE, to_cookie, to_cursor};

    #[test]
    fn cookies_stand_for_cursors() {
        for hash in [0_u64, 1, 0x1234_5678_9abc, (1 << 48) - 1] {
            for collision in [0, 1, 8191] {
                let place = zap::ZapCursor { hash: hash << 16, collision };
                assert_eq!(to_cursor(to_cookie(place)), place);
                assert!(to_cookie(place) < LOGGED_COOKIE);
            }
        }
    }

    #[test]
    fn too_many_collisions_continue_with_the_next_hash() {
        let place = zap::ZapCursor { hash: 7 << 16, collision: 9000 };
        assert_eq!(to_cursor(to_cookie(place)), zap::ZapCursor { hash: 8 << 16, collision: 0 });
        assert!(to_cookie(zap::ZapCursor::END) < LOGGED_COOKIE);
    }
}
