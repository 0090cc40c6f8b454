//! Whether a file system holds together: names, links, sizes, parents, and no file without a name.

use std::collections::BTreeMap;

use posix::FileType;
use units::ObjectId;
use zpl::Fs;

#[derive(Default)]
struct FoundLinks {
    names: u64,
    kind: Option<FileType>,
}

/// Walks a stored file system, and compares the reached objects with all objects.
pub(crate) fn check_consistency(fs: &Fs) {
    let root = fs.root().expect("root").id();
    let mut seen: BTreeMap<ObjectId, FoundLinks> = BTreeMap::new();
    let mut hidden = 0;
    let mut todo = vec![root];
    seen.insert(root, FoundLinks { names: 1, kind: Some(FileType::Directory) });
    while let Some(id) = todo.pop() {
        let node = fs.inode(id).expect("a file");
        let found = *node.attributes();
        assert_eq!(Some(found.kind), seen[&id].kind, "{id}");
        if found.xattr_dir.exists() {
            let dir = fs.inode(found.xattr_dir).expect("attributes");
            hidden += 1 + fs.list_dir(&dir).expect("attributes").len();
        }
        if found.kind != FileType::Directory {
            continue;
        }
        let names = fs.list_dir(&node).expect("names");
        let subdirs = names.iter().filter(|entry| entry.kind == FileType::Directory);
        assert_eq!(found.nlink, subdirs.count() as u64 + 2, "{id}: links");
        assert_eq!(found.size, names.len() as u64 + 2, "{id}: size");
        for entry in names {
            if entry.kind == FileType::Directory {
                let parent = fs.attributes(entry.object).expect("attributes").parent;
                assert_eq!(parent, id, "{}: parent", entry.object);
            }
            let row = seen.entry(entry.object).or_default();
            if row.names == 0 {
                todo.push(entry.object);
            }
            (row.names, row.kind) = (row.names + 1, Some(entry.kind));
        }
    }
    let files = seen.iter().filter(|row| row.1.kind != Some(FileType::Directory));
    for (id, row) in files {
        assert_eq!(fs.attributes(*id).expect("attributes").nlink, row.names, "{id}: links");
    }
    let mut unlinked = Vec::new();
    fs.for_each_unlinked(&mut |id| {
        unlinked.push(id);
        true
    })
    .expect("unlinked");
    for id in &unlinked {
        hidden += count_xattr_objects(fs, *id);
    }
    let objects = fs.objset().objects().filter_map(Result::ok).count();
    // the master node, the set of unlinked files, and three tables of attributes
    assert_eq!(objects, 5 + seen.len() + hidden + unlinked.len(), "objects");
}

/// The objects that an unlinked file still has besides itself.
fn count_xattr_objects(fs: &Fs, id: ObjectId) -> usize {
    let node = fs.inode(id).expect("an unlinked file");
    let found = node.attributes();
    assert_eq!(found.nlink, 0, "{id}: links");
    if found.xattr_dir.exists() {
        let dir = fs.inode(found.xattr_dir).expect("attributes");
        return 1 + fs.list_dir(&dir).expect("attributes").len();
    }
    if found.kind == FileType::Directory { fs.list_dir(&node).expect("names").len() } else { 0 }
}
